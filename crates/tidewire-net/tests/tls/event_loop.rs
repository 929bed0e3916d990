//! Connections with TLS in the loop: short sends, order, ends, and memory.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::time::{Duration, Instant};

use rustls::{ClientConnection, StreamOwned};
use tidewire_net::connection::Key;
use tidewire_net::event_loop::{EventLoop, OutboxMarks, Settled};
use tidewire_net::memory_budget::MemoryBudget;
use tidewire_net::outbox::LogRange;
use tidewire_net::read_buffer::{ReadBuffer, ReadOutcome};
use tidewire_net::send_batch::Sender;
use tidewire_net::turn_log::TurnLogs;

use crate::peer::{DEADLINE, established_over, sent, write_raw};

type Client = StreamOwned<ClientConnection, std::net::TcpStream>;

struct Fixture {
    event_loop: EventLoop<()>,
    _waker: mio::Waker,
    logs: TurnLogs,
    buffer: ReadBuffer,
    listener: TcpListener,
}

impl Fixture {
    fn new() -> Self {
        let (event_loop, waker) =
            EventLoop::new(&MemoryBudget::new(usize::MAX), Sender::detect()).unwrap();
        Self {
            event_loop,
            _waker: waker,
            logs: TurnLogs::new(1),
            buffer: ReadBuffer::default(),
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
        }
    }

    fn connect(&mut self) -> (Key, Client) {
        let (client, socket, tls) = established_over(&self.listener);
        let key = self.event_loop.add_with_tls(socket, b"", Some(tls), ());
        (key.unwrap(), client)
    }

    fn append(&mut self, bytes: &[u8]) -> LogRange {
        let log = self.logs.log_mut(0);
        let range = log.append(|out| out.extend_from_slice(bytes));
        LogRange { format: 0, range }
    }

    fn read_next(&mut self) -> Option<(ReadOutcome, Vec<u8>)> {
        let (key, outcome) = self.event_loop.read_next(&mut self.buffer)?;
        let bytes = self.buffer.unread().to_vec();
        self.buffer.consume(bytes.len());
        self.event_loop.store_rest(key, &mut self.buffer, 0);
        self.event_loop.recount(key, 0);
        Some((outcome, bytes))
    }

    /// Reads until `is_last` accepts all received bytes, or the connection is closed.
    fn read_until(&mut self, is_last: impl Fn(&[u8]) -> bool) -> (Vec<u8>, Option<ReadOutcome>) {
        let end = Instant::now() + DEADLINE;
        let mut all = Vec::new();
        while !is_last(&all) {
            match self.read_next() {
                Some((outcome @ (ReadOutcome::End | ReadOutcome::Failed(_)), _)) => {
                    return (all, Some(outcome));
                }
                Some((_, bytes)) => all.extend(bytes),
                None => {
                    assert!(Instant::now() < end, "nothing became readable");
                    self.event_loop
                        .poll(Some(Duration::from_millis(50)))
                        .unwrap();
                }
            }
        }
        (all, None)
    }

    /// A turn's end; gives the broken and the cut ones.
    fn end_turn(&mut self, bytes_max: usize) -> (Vec<Key>, Vec<Key>) {
        let (mut broken, mut settled) = (Vec::new(), Settled::default());
        self.logs.begin_turn();
        while self.event_loop.has_sends() {
            self.event_loop.submit_slice(&self.logs, &mut broken);
        }
        let marks = OutboxMarks::limit(bytes_max);
        self.event_loop.settle(&mut self.logs, &marks, &mut settled);
        (broken, settled.cut)
    }

    /// Continues to send until the client has this many bytes.
    fn send_to(&mut self, client: &mut Client, wanted: usize) -> Vec<u8> {
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let mut received = vec![0; wanted];
                client.read_exact(&mut received).unwrap();
                received
            });
            while !reader.is_finished() {
                self.event_loop
                    .poll(Some(Duration::from_millis(5)))
                    .unwrap();
                self.end_turn(usize::MAX);
            }
            reader.join().unwrap()
        })
    }

    fn outbox_bytes(&self, key: Key) -> usize {
        self.event_loop
            .connections()
            .get(key)
            .unwrap()
            .outbox_bytes()
    }
}

fn text(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|index| (index / 7) as u8 ^ seed).collect()
}

#[test]
fn ranges_and_own_bytes_arrive_in_order() {
    let mut fixture = Fixture::new();
    let (key, mut client) = fixture.connect();
    let mut expected = Vec::new();
    for turn in 0..4u8 {
        let mut ranges = Vec::new();
        for (part, length) in [3, 20_000, 500, 200_000].into_iter().enumerate() {
            let bytes = text(length, turn * 4 + part as u8);
            ranges.push(fixture.append(&bytes));
            fixture.append(b"of somebody else");
            expected.extend(bytes);
        }
        fixture.event_loop.push_ranges(key, ranges.into_iter());
        fixture.event_loop.push_bytes(key, b"its own");
        expected.extend(b"its own");
        fixture.end_turn(usize::MAX);
        let received = fixture.send_to(&mut client, expected.len());
        assert!(received == expected, "turn {turn}");
        expected.clear();
    }
    assert!(
        fixture
            .event_loop
            .connections()
            .get(key)
            .unwrap()
            .is_flushed()
    );
}

#[test]
fn a_slow_reader_keeps_its_ciphertext_and_is_counted() {
    let mut fixture = Fixture::new();
    let (key, mut client) = fixture.connect();
    let mut expected = Vec::new();
    // Until the kernel takes no more, and then some turns longer, so that ranges are copied.
    let mut turns_behind = 0;
    for turn in 0.. {
        let bytes = text(1 << 20, turn);
        expected.extend_from_slice(&bytes);
        let range = fixture.append(&bytes);
        fixture.event_loop.push_ranges(key, std::iter::once(range));
        let (broken, cut) = fixture.end_turn(usize::MAX);
        assert!(broken.is_empty() && cut.is_empty());
        turns_behind += usize::from(fixture.outbox_bytes(key) > 1 << 20);
        if turns_behind == 4 {
            break;
        }
    }
    let waiting = fixture.outbox_bytes(key);
    assert!(fixture.event_loop.outbox_bytes() > 1 << 20 && waiting >= 4 << 20);
    let shorts = fixture.event_loop.counts().short_sends;
    assert!(shorts > 0);
    let received = fixture.send_to(&mut client, expected.len());
    assert!(received == expected);
    fixture.end_turn(usize::MAX);
    assert_eq!(
        (fixture.outbox_bytes(key), fixture.event_loop.outbox_bytes()),
        (0, 0)
    );
}

#[test]
fn ciphertext_counts_for_the_limit_of_an_outbox() {
    let mut fixture = Fixture::new();
    let (key, _client) = fixture.connect();
    let end = Instant::now() + DEADLINE;
    loop {
        assert!(Instant::now() < end, "nobody was cut");
        let range = fixture.append(&text(64 << 10, 1));
        fixture.event_loop.push_ranges(key, std::iter::once(range));
        // Below one sealed send, so ciphertext alone exceeds it.
        let (_, cut) = fixture.end_turn(32 << 10);
        if cut.contains(&key) {
            return;
        }
    }
}

#[test]
fn bytes_that_come_one_by_one_are_read() {
    let mut fixture = Fixture::new();
    let (key, mut client) = fixture.connect();
    client.conn.writer().write_all(b"slowly").unwrap();
    for byte in sent(&mut client.conn) {
        assert!(fixture.read_next().is_none());
        write_raw(&client, &[byte]);
        let end = Instant::now() + DEADLINE;
        while fixture.event_loop.readable_count() == 0 {
            assert!(Instant::now() < end);
            fixture
                .event_loop
                .poll(Some(Duration::from_millis(50)))
                .unwrap();
        }
        let (_, plaintext) = fixture.read_next().unwrap();
        let inbound = fixture
            .event_loop
            .connections()
            .get(key)
            .unwrap()
            .inbound_bytes();
        if plaintext.is_empty() {
            assert!(inbound > 0, "an unfinished record is counted");
        } else {
            assert_eq!((&plaintext[..], inbound), (&b"slowly"[..], 0));
            return;
        }
    }
    panic!("the record never became whole");
}

#[test]
fn the_last_bytes_come_before_the_close_notify() {
    let mut fixture = Fixture::new();
    let (_, mut client) = fixture.connect();
    client.write_all(b"last words").unwrap();
    client.conn.send_close_notify();
    client.flush().unwrap();
    let (all, outcome) = fixture.read_until(|_| false);
    assert_eq!(all, b"last words");
    assert!(matches!(outcome, Some(ReadOutcome::End)), "{outcome:?}");
}

#[test]
fn a_close_notify_received_before_the_hand_over_counts() {
    let mut fixture = Fixture::new();
    let (mut client, socket, mut tls) = established_over(&fixture.listener);
    client.conn.send_close_notify();
    crate::peer::open(&mut tls, &sent(&mut client.conn)).unwrap();
    let key = fixture
        .event_loop
        .add_with_tls(socket, b"unread", Some(tls), ());
    assert!(key.is_ok());
    let (all, outcome) = fixture.read_until(|_| false);
    assert_eq!(all, b"unread");
    assert!(matches!(outcome, Some(ReadOutcome::End)), "{outcome:?}");
}

#[test]
fn a_peer_that_is_cut_off_is_an_end() {
    let mut fixture = Fixture::new();
    let (_, client) = fixture.connect();
    write_raw(&client, &[0x17, 3, 3]);
    client.sock.shutdown(Shutdown::Write).unwrap();
    let (all, outcome) = fixture.read_until(|_| false);
    assert!(
        all.is_empty() && matches!(outcome, Some(ReadOutcome::End)),
        "{outcome:?}"
    );
}

#[test]
fn a_broken_record_fails_and_the_peer_learns_why() {
    let mut fixture = Fixture::new();
    let (_, mut client) = fixture.connect();
    write_raw(&client, &[0x17, 3, 3, 0, 32]);
    write_raw(&client, &[0; 32]);
    let (_, outcome) = fixture.read_until(|_| false);
    assert!(
        matches!(outcome, Some(ReadOutcome::Failed(_))),
        "{outcome:?}"
    );
    let error = client.read(&mut [0; 16]).unwrap_err();
    assert!(error.to_string().contains("alert"), "{error}");
}

#[test]
fn the_close_notify_is_sent_after_the_last_bytes() {
    let mut fixture = Fixture::new();
    let (key, mut client) = fixture.connect();
    let range = fixture.append(b"messages ");
    fixture.event_loop.push_ranges(key, std::iter::once(range));
    fixture.event_loop.push_last(key, b"close frame");
    fixture.end_turn(usize::MAX);
    let mut received = Vec::new();
    // Without the goodbye the end of the stream would be an error.
    let connection = fixture.event_loop.connections().get(key).unwrap();
    connection.shut_down_sending();
    client.read_to_end(&mut received).unwrap();
    assert_eq!(received, b"messages close frame");
}

//! The loop with real sockets: the order of reads, the effect of a full socket on others, and the end of outboxes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tidewire_net::connection::Key;
use tidewire_net::event_loop::{EventLoop, OutboxMarks, SLICE_SENDS_MAX, Settled};
use tidewire_net::mailbox::Mailbox;
use tidewire_net::memory_budget::MemoryBudget;
use tidewire_net::outbox::LogRange;
use tidewire_net::read_buffer::{READ_BYTES_MAX, ReadBuffer, ReadOutcome};
use tidewire_net::send_batch::Sender;
use tidewire_net::turn_log::TurnLogs;

const DEADLINE: Duration = Duration::from_secs(20);

struct Fixture {
    event_loop: EventLoop<()>,
    logs: TurnLogs,
    buffer: ReadBuffer,
    listener: TcpListener,
    waker: Option<mio::Waker>,
}

impl Fixture {
    fn new() -> Self {
        Self::with_budget(MemoryBudget::new(usize::MAX))
    }

    fn with_budget(budget: MemoryBudget) -> Self {
        let (event_loop, waker) = EventLoop::new(&budget, Sender::detect()).unwrap();
        Self {
            event_loop,
            logs: TurnLogs::new(1),
            buffer: ReadBuffer::default(),
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
            waker: Some(waker),
        }
    }

    fn connect(&mut self, unread: &[u8]) -> (Key, TcpStream) {
        let client = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
        client.set_read_timeout(Some(DEADLINE)).unwrap();
        let (socket, _) = self.listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        (self.event_loop.add(socket, unread, ()).unwrap(), client)
    }

    /// Reads once, if a connection is readable.
    fn try_read(&mut self) -> Option<(Key, ReadOutcome, Vec<u8>)> {
        let (key, outcome) = self.event_loop.read_next(&mut self.buffer)?;
        let bytes = self.buffer.unread().to_vec();
        self.buffer.consume(bytes.len());
        self.event_loop.store_rest(key, &mut self.buffer, 0);
        Some((key, outcome, bytes))
    }

    /// Polls until a connection is readable, and reads once.
    fn read(&mut self) -> (Key, ReadOutcome, Vec<u8>) {
        let end = Instant::now() + DEADLINE;
        loop {
            if let Some(read) = self.try_read() {
                return read;
            }
            assert!(Instant::now() < end, "nothing became readable");
            self.event_loop
                .poll(Some(Duration::from_millis(100)))
                .unwrap();
        }
    }

    fn read_until(&mut self, wanted: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < wanted {
            all.extend(self.read().2);
        }
        all
    }

    fn append(&mut self, bytes: &[u8]) -> LogRange {
        let range = self
            .logs
            .log_mut(0)
            .append(|out| out.extend_from_slice(bytes));
        LogRange { format: 0, range }
    }

    /// Sends the queue and settles; returns the broken and the cut connections.
    fn end_turn(&mut self, bytes_max: usize) -> (Vec<Key>, Vec<Key>) {
        let (broken, settled) = self.end_turn_with(&OutboxMarks::limit(bytes_max));
        (broken, settled.cut)
    }

    fn end_turn_with(&mut self, marks: &OutboxMarks) -> (Vec<Key>, Settled) {
        let (mut broken, mut settled) = (Vec::new(), Settled::default());
        self.logs.begin_turn();
        while self.event_loop.has_sends() {
            self.event_loop.submit_slice(&self.logs, &mut broken);
        }
        self.event_loop.settle(&mut self.logs, marks, &mut settled);
        self.cut_largest(&mut settled.cut);
        (broken, settled)
    }

    /// Ends those who hold most while the budget is exceeded, as the owner of a loop does.
    fn cut_largest(&self, cut: &mut Vec<Key>) {
        let mut excess = self.event_loop.budget().excess_without_spare();
        let mut holders: Vec<_> = self.event_loop.holders().collect();
        holders.sort_unstable();
        while excess > 0
            && let Some((bytes, key)) = holders.pop()
        {
            cut.push(key);
            excess = excess.saturating_sub(bytes);
        }
    }
}

#[test]
fn unread_bytes_come_before_those_of_the_socket() {
    let mut fixture = Fixture::new();
    let (key, mut client) = fixture.connect(b"first");
    client.write_all(b"second").unwrap();
    let (read_key, _, bytes) = fixture.read();
    assert_eq!((read_key, bytes), (key, b"first".to_vec()));
    assert_eq!(fixture.read_until(6), b"second");
}

#[test]
fn a_flooding_socket_gives_its_share_and_goes_to_the_end_of_the_line() {
    let mut fixture = Fixture::new();
    let (flooding, mut flood) = fixture.connect(b"");
    let enough = Arc::new(AtomicBool::new(false));
    let stop = enough.clone();
    let writer = std::thread::spawn(move || {
        let mut written = 0;
        while !stop.load(Ordering::Relaxed) {
            flood.write_all(&vec![0; READ_BYTES_MAX]).unwrap();
            written += READ_BYTES_MAX;
        }
        (written, flood)
    });
    let end = Instant::now() + DEADLINE;
    // Until the socket holds more than one turn's share, its bytes are only counted.
    let mut total = 0;
    loop {
        let (_, outcome, bytes) = fixture.read();
        total += bytes.len();
        if matches!(outcome, ReadOutcome::More(_)) {
            assert_eq!(bytes.len(), READ_BYTES_MAX);
            break;
        }
        assert!(Instant::now() < end, "never more than one share at once");
    }
    let (quiet, mut client) = fixture.connect(b"");
    client.write_all(b"hello").unwrap();
    let mut order = Vec::new();
    while !order.contains(&quiet) {
        fixture
            .event_loop
            .poll(Some(Duration::from_millis(10)))
            .unwrap();
        let (key, _, bytes) = fixture.read();
        total += if key == flooding { bytes.len() } else { 0 };
        order.push(key);
        assert!(order.len() < 20, "the quiet connection starves: {order:?}");
    }
    enough.store(true, Ordering::Relaxed);
    while !writer.is_finished() {
        fixture
            .event_loop
            .poll(Some(Duration::from_millis(10)))
            .unwrap();
        total += fixture.try_read().map_or(0, |(_, _, bytes)| bytes.len());
    }
    let (written, _flood) = writer.join().unwrap();
    while total < written {
        total += fixture.read().2.len();
    }
}

#[test]
fn the_end_of_a_stream_is_seen_behind_its_last_bytes() {
    let mut fixture = Fixture::new();
    let (_, mut client) = fixture.connect(b"");
    client.write_all(b"bye").unwrap();
    drop(client);
    assert_eq!(fixture.read_until(3), b"bye");
    let (_, outcome, _) = fixture.read();
    assert!(matches!(outcome, ReadOutcome::End), "{outcome:?}");
}

#[test]
fn a_paused_connection_is_not_read_before_it_is_resumed() {
    let mut fixture = Fixture::new();
    let (key, mut client) = fixture.connect(b"");
    fixture.event_loop.pause(key);
    client.write_all(b"later").unwrap();
    for _ in 0..20 {
        fixture
            .event_loop
            .poll(Some(Duration::from_millis(5)))
            .unwrap();
        assert!(fixture.event_loop.read_next(&mut fixture.buffer).is_none());
    }
    fixture.event_loop.resume(key);
    assert_eq!(fixture.read_until(5), b"later");
}

#[test]
fn a_reset_is_detected_on_a_paused_connection() {
    let mut fixture = Fixture::new();
    let (key, mut client) = fixture.connect(b"");
    fixture.event_loop.pause(key);
    client.write_all(b"never read").unwrap();
    fixture.event_loop.push_bytes(key, b"unread");
    fixture.end_turn(1 << 20);
    // Closing a socket that has unread bytes resets its connection.
    assert_eq!(client.peek(&mut [0; 6]).unwrap(), 6);
    drop(client);
    // Its earlier bytes may come first.
    let mut outcome = ReadOutcome::Drained(0);
    while matches!(outcome, ReadOutcome::Drained(_) | ReadOutcome::More(_)) {
        outcome = fixture.read().1;
    }
    assert!(matches!(outcome, ReadOutcome::Failed(_)), "{outcome:?}");
}

#[test]
fn a_reset_is_detected_on_a_connection_that_is_about_to_be_paused() {
    let mut fixture = Fixture::new();
    let (key, client) = fixture.connect(b"kept back");
    fixture.event_loop.push_bytes(key, b"unread");
    fixture.end_turn(1 << 20);
    assert_eq!(client.peek(&mut [0; 6]).unwrap(), 6);
    drop(client);
    let end = Instant::now() + DEADLINE;
    loop {
        fixture
            .event_loop
            .poll(Some(Duration::from_millis(5)))
            .unwrap();
        // Its owner lets it say one message at a time, as with one that is too fast.
        while let Some((_, outcome)) = fixture.event_loop.read_next(&mut fixture.buffer) {
            if matches!(outcome, ReadOutcome::Failed(_)) {
                return;
            }
            fixture.event_loop.store_rest(key, &mut fixture.buffer, 0);
            fixture.event_loop.pause(key);
        }
        assert!(Instant::now() < end, "nobody learns of the reset");
    }
}

#[test]
fn ranges_and_own_bytes_leave_in_the_order_of_their_turns() {
    let mut fixture = Fixture::new();
    let (key, mut client) = fixture.connect(b"");
    for turn in 0..3 {
        let ranges = [fixture.append(format!("a{turn}").as_bytes()), {
            fixture.append(b"skipped");
            fixture.append(format!("b{turn}").as_bytes())
        }];
        fixture.event_loop.push_ranges(key, ranges.into_iter());
        fixture.event_loop.push_bytes(key, b"own,");
        fixture.end_turn(1 << 20);
    }
    let mut received = [0; 24];
    client.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"a0b0own,a1b1own,a2b2own,");
    assert_eq!(
        fixture.event_loop.counts().sends,
        3,
        "one send per connection and turn"
    );
}

#[test]
fn a_stuck_reader_is_cut_at_the_limit_and_no_other_reader_loses_a_byte() {
    let mut fixture = Fixture::new();
    let (stuck, _stuck_client) = fixture.connect(b"");
    let (reading, mut client) = fixture.connect(b"");
    let block = vec![b'x'; 64 << 10];
    let reader = std::thread::spawn(move || {
        let mut total = 0;
        let mut buffer = vec![0; 1 << 16];
        while let Ok(count) = client.read(&mut buffer) {
            if count == 0 {
                break;
            }
            total += count;
        }
        total
    });
    let mut sent = 0;
    let cut = loop {
        let range = fixture.append(&block);
        fixture
            .event_loop
            .push_ranges(stuck, std::iter::once(range.clone()));
        fixture
            .event_loop
            .push_ranges(reading, std::iter::once(range));
        sent += block.len();
        let (broken, cut) = fixture.end_turn(1 << 20);
        assert!(broken.is_empty());
        fixture.event_loop.poll(Some(Duration::ZERO)).unwrap();
        if !cut.is_empty() {
            break cut;
        }
        assert!(fixture.event_loop.outbox_bytes() <= 2 << 20);
        assert!(sent < 1 << 28, "the stuck reader was never cut");
        while !fixture
            .event_loop
            .connections()
            .get(reading)
            .unwrap()
            .is_flushed()
        {
            fixture
                .event_loop
                .poll(Some(Duration::from_millis(10)))
                .unwrap();
            fixture.end_turn(usize::MAX);
        }
    };
    assert_eq!(cut, [stuck]);
    assert!(fixture.event_loop.counts().short_sends > 0);
    fixture.event_loop.remove(stuck);
    while !fixture
        .event_loop
        .connections()
        .get(reading)
        .unwrap()
        .is_flushed()
    {
        fixture
            .event_loop
            .poll(Some(Duration::from_millis(10)))
            .unwrap();
        fixture.end_turn(1 << 20);
    }
    fixture.event_loop.remove(reading);
    assert_eq!(reader.join().unwrap(), sent);
    fixture.end_turn(1 << 20);
    assert_eq!(fixture.event_loop.outbox_bytes(), 0);
}

#[test]
fn a_reader_that_comes_back_gets_every_byte_in_order() {
    let mut fixture = Fixture::new();
    let (key, mut client) = fixture.connect(b"");
    let mut expected = Vec::new();
    let mut number = 0u32;
    while fixture.event_loop.outbox_bytes() < 500_000 {
        let block: Vec<u8> = (0..10_000)
            .flat_map(|offset: u32| (number + offset).to_le_bytes())
            .collect();
        number += 10_000;
        let range = fixture.append(&block);
        fixture.event_loop.push_ranges(key, std::iter::once(range));
        expected.extend(block);
        fixture.end_turn(usize::MAX);
    }
    let count = expected.len();
    let reader = std::thread::spawn(move || {
        let mut received = vec![0; count];
        client.read_exact(&mut received).unwrap();
        received
    });
    let end = Instant::now() + DEADLINE;
    while !fixture
        .event_loop
        .connections()
        .get(key)
        .unwrap()
        .is_flushed()
    {
        fixture
            .event_loop
            .poll(Some(Duration::from_millis(50)))
            .unwrap();
        fixture.end_turn(usize::MAX);
        assert!(Instant::now() < end);
    }
    assert!(reader.join().unwrap() == expected, "bytes changed or moved");
}

const MARKS: OutboxMarks = OutboxMarks {
    bytes_max: 1 << 20,
    lagging_bytes: 256 << 10,
    drained_bytes: 64 << 10,
};

impl Fixture {
    fn watch(&mut self, key: Key) {
        self.event_loop
            .connections_mut()
            .get_mut(key)
            .unwrap()
            .watch();
    }

    /// Gives a connection this many bytes in one turn, and ends the turn.
    fn give(&mut self, key: Key, bytes: usize) -> Settled {
        let range = self.append(&vec![b'x'; bytes]);
        self.event_loop.push_ranges(key, std::iter::once(range));
        let (broken, settled) = self.end_turn_with(&MARKS);
        assert!(broken.is_empty());
        settled
    }

    /// Gives a connection so much that the kernel takes no more, and some that wait.
    fn block(&mut self, key: Key) {
        while self.event_loop.connections().get(key).unwrap().is_flushed() {
            let range = self.append(&[b'x'; 10_000]);
            self.event_loop.push_ranges(key, std::iter::once(range));
            self.end_turn(usize::MAX);
        }
    }
}

#[test]
fn the_owner_learns_once_that_a_connection_lags_and_once_that_it_has_drained() {
    let mut fixture = Fixture::new();
    let (watched, mut client) = fixture.connect(b"");
    let (other, _other_client) = fixture.connect(b"");
    fixture.watch(watched);
    for key in [watched, other] {
        fixture.block(key);
        assert!(fixture.give(key, 100_000).lagging.is_empty());
    }
    assert_eq!(fixture.give(watched, 200_000).lagging, [watched]);
    assert!(fixture.give(watched, 200_000).lagging.is_empty());
    assert!(fixture.give(other, 200_000).lagging.is_empty());
    let sent = fixture.event_loop.counts().bytes_out;
    std::thread::spawn(move || std::io::copy(&mut client, &mut std::io::sink()));
    let end = Instant::now() + DEADLINE;
    let drained = loop {
        fixture
            .event_loop
            .poll(Some(Duration::from_millis(50)))
            .unwrap();
        let (_, settled) = fixture.end_turn_with(&MARKS);
        assert!(settled.cut.is_empty() && settled.lagging.is_empty());
        if !settled.drained.is_empty() {
            break settled.drained;
        }
        assert!(Instant::now() < end, "it never drained");
    };
    assert_eq!(drained, [watched]);
    let waiting = fixture.event_loop.connections().get(watched).unwrap();
    assert!(waiting.outbox_bytes() <= MARKS.drained_bytes);
    assert!(fixture.event_loop.counts().bytes_out > sent);
    assert!(fixture.end_turn_with(&MARKS).1.drained.is_empty());
}

#[test]
fn bytes_of_the_turn_in_which_a_connection_begins_to_lag_do_not_count_for_the_limit() {
    let mut fixture = Fixture::new();
    let (watched, _client) = fixture.connect(b"");
    let (other, _other_client) = fixture.connect(b"");
    fixture.watch(watched);
    for key in [watched, other] {
        fixture.block(key);
    }
    let settled = fixture.give(watched, 3 << 20);
    assert_eq!((settled.lagging, settled.cut), (vec![watched], vec![]));
    // Collected before the owner knew.
    assert!(fixture.give(watched, 3 << 20).cut.is_empty());
    assert!(fixture.give(watched, 500_000).cut.is_empty());
    assert!(fixture.give(watched, 500_000).cut.is_empty());
    fixture.give(watched, 500_000);
    assert_eq!(fixture.give(watched, 1).cut, [watched]);
    fixture.event_loop.remove(watched);
    fixture.give(other, 3 << 20);
    assert_eq!(fixture.give(other, 1).cut, [other]);
}

#[test]
fn an_awaited_connection_with_nothing_to_read_has_drained() {
    let mut fixture = Fixture::new();
    let (key, _client) = fixture.connect(b"");
    fixture.event_loop.await_drained(key);
    assert_eq!(fixture.end_turn_with(&MARKS).1.drained, [key]);
    assert!(fixture.end_turn_with(&MARKS).1.drained.is_empty());
    fixture.event_loop.await_drained(key);
    fixture.event_loop.remove(key);
    assert!(fixture.end_turn_with(&MARKS).1.drained.is_empty());
}

#[test]
fn over_the_nodes_budget_the_largest_outboxes_are_closed_first() {
    let mut fixture = Fixture::with_budget(MemoryBudget::new(600_000));
    let (thin, _thin_client) = fixture.connect(b"");
    let (fat, _fat_client) = fixture.connect(b"");
    let mut fill = |key: Key, wanted: usize| {
        let before = fixture.event_loop.outbox_bytes();
        loop {
            let range = fixture.append(&[b'x'; 50_000]);
            fixture.event_loop.push_ranges(key, std::iter::once(range));
            let (_, cut) = fixture.end_turn(usize::MAX);
            if !cut.is_empty() || fixture.event_loop.outbox_bytes() - before >= wanted {
                return cut;
            }
        }
    };
    assert!(fill(thin, 100_000).is_empty());
    assert_eq!(fill(fat, usize::MAX), [fat]);
}

#[test]
fn outboxes_that_would_outgrow_the_nodes_budget_are_named_before_they_take_its_memory() {
    let mut fixture = Fixture::with_budget(MemoryBudget::new(1_000_000));
    let readers: Vec<_> = (0..4).map(|_| fixture.connect(b"")).collect();
    let [small, large, largest, other] = [0, 1, 2, 3].map(|index: usize| readers[index].0);
    for key in [small, large, largest] {
        fixture.block(key);
    }
    let sizes = [(small, 100_000), (large, 700_000), (largest, 900_000)];
    for (key, bytes) in sizes {
        let range = fixture.append(&vec![b'x'; bytes]);
        fixture.event_loop.push_ranges(key, std::iter::once(range));
    }
    assert!(fixture.end_turn_with(&MARKS).1.cut.is_empty());
    let before = fixture.event_loop.outbox_bytes();
    fixture.append(b"the next turn");
    fixture.logs.begin_turn();
    let named = |fixture: &Fixture, least| -> Vec<Key> {
        let outgrowing = fixture.event_loop.outgrowing(&fixture.logs, least);
        outgrowing.into_iter().map(|(_, key)| key).collect()
    };
    assert_eq!(named(&fixture, 0), [largest], "the end of one is enough");
    assert_eq!(named(&fixture, 2_000_000), [], "all are small");
    assert_eq!(fixture.event_loop.outbox_bytes(), before);
    fixture.event_loop.remove(largest);
    assert_eq!(named(&fixture, 0), [], "the others have room");
    let mut settled = Settled::default();
    fixture
        .event_loop
        .settle(&mut fixture.logs, &MARKS, &mut settled);
    let held = fixture.event_loop.outbox_bytes();
    assert!((800_000..1_250_000).contains(&held), "{held} bytes");
    assert!(fixture.event_loop.connections().get(other).is_some());
}

#[test]
fn half_received_messages_count_against_the_nodes_budget() {
    let mut fixture = Fixture::with_budget(MemoryBudget::new(1000));
    let (small, _small_client) = fixture.connect(&[0; 400]);
    let (large, _large_client) = fixture.connect(&[0; 500]);
    assert!(fixture.end_turn(1 << 20).1.is_empty());
    fixture.event_loop.recount(large, 200);
    assert_eq!(fixture.event_loop.inbound_bytes(), 1100);
    assert_eq!(fixture.end_turn(1 << 20).1, [large]);
    fixture.event_loop.remove(large);
    assert!(fixture.end_turn(1 << 20).1.is_empty());
    fixture.event_loop.remove(small);
    assert_eq!(fixture.event_loop.inbound_bytes(), 0);
}

#[test]
fn memory_of_others_counts_against_connections_unless_it_can_be_spared() {
    let budget = MemoryBudget::new(1000);
    let mut others = budget.share();
    let mut fixture = Fixture::with_budget(budget);
    let (key, _client) = fixture.connect(&[0; 500]);
    others.report(800, 800);
    assert!(fixture.end_turn(1 << 20).1.is_empty());
    others.report(800, 299);
    assert_eq!(fixture.end_turn(1 << 20).1, [key]);
    drop(others);
    assert!(fixture.end_turn(1 << 20).1.is_empty());
}

#[test]
fn a_broken_socket_is_reported_once() {
    let mut fixture = Fixture::new();
    let (key, client) = fixture.connect(b"");
    drop(client);
    let end = Instant::now() + DEADLINE;
    loop {
        fixture.event_loop.push_bytes(key, b"x");
        let (broken, _) = fixture.end_turn(1 << 20);
        if !broken.is_empty() {
            assert_eq!(broken, [key]);
            assert!(fixture.event_loop.remove(key).is_some());
            assert!(fixture.event_loop.remove(key).is_none());
            return;
        }
        assert!(Instant::now() < end);
    }
}

#[test]
fn more_ranges_than_one_send_takes_leave_in_the_same_turn() {
    let mut fixture = Fixture::new();
    let (key, mut client) = fixture.connect(b"");
    let ranges: Vec<_> = (0..3000u32)
        .map(|number| {
            fixture.append(b"gap");
            fixture.append(&number.to_le_bytes())
        })
        .collect();
    fixture.event_loop.push_ranges(key, ranges.into_iter());
    fixture.end_turn(1 << 20);
    let mut received = vec![0; 12_000];
    client.read_exact(&mut received).unwrap();
    let expected: Vec<u8> = (0..3000u32).flat_map(u32::to_le_bytes).collect();
    assert!(received == expected);
    assert_eq!(fixture.event_loop.counts().sends, 3);
}

#[test]
fn a_large_flush_goes_out_in_slices_between_which_sockets_are_seen() {
    let mut fixture = Fixture::new();
    let mut connected: Vec<_> = (0..2 * SLICE_SENDS_MAX)
        .map(|_| fixture.connect(b""))
        .collect();
    let range = fixture.append(b"news");
    for (key, _) in &connected {
        fixture
            .event_loop
            .push_ranges(*key, std::iter::once(range.clone()));
    }
    fixture.logs.begin_turn();
    let mut broken = Vec::new();
    fixture.event_loop.submit_slice(&fixture.logs, &mut broken);
    assert_eq!(fixture.event_loop.counts().sends, SLICE_SENDS_MAX as u64);
    assert!(fixture.event_loop.has_sends());
    connected[0].1.write_all(b"between").unwrap();
    assert_eq!(fixture.read_until(7), b"between");
    fixture.event_loop.submit_slice(&fixture.logs, &mut broken);
    assert!(!fixture.event_loop.has_sends() && broken.is_empty());
    for (_, client) in &mut connected {
        let mut received = [0; 4];
        client.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"news");
    }
}

#[test]
fn bytes_for_an_ended_connection_do_not_reach_the_next_one_in_its_slot() {
    let mut fixture = Fixture::new();
    let (old, _old_client) = fixture.connect(b"");
    let range = fixture.append(b"for the old one");
    fixture.event_loop.push_ranges(old, std::iter::once(range));
    fixture.event_loop.remove(old);
    let (new, mut client) = fixture.connect(b"");
    assert_eq!(new.index, old.index);
    let range = fixture.append(b"new");
    fixture.event_loop.push_ranges(new, std::iter::once(range));
    fixture.end_turn(1 << 20);
    fixture.event_loop.remove(new);
    let mut received = Vec::new();
    client.read_to_end(&mut received).unwrap();
    assert_eq!(received, b"new");
}

#[test]
fn a_mailbox_wakes_a_sleeping_loop() {
    let mut fixture = Fixture::new();
    let mailbox = Arc::new(Mailbox::new(fixture.waker.take().unwrap()));
    let sender = mailbox.clone();
    let thread = std::thread::spawn(move || (0..1000).for_each(|number| sender.push(number)));
    let start = Instant::now();
    let mut received = Vec::new();
    while received.len() < 1000 {
        fixture.event_loop.poll(Some(DEADLINE)).unwrap();
        received.extend(mailbox.take());
    }
    assert!(start.elapsed() < DEADLINE, "woken by the timeout");
    assert_eq!(received, (0..1000).collect::<Vec<_>>());
    thread.join().unwrap();
}

#[test]
fn a_small_turn_goes_before_the_rest_of_a_large_flush() {
    tidewire_net::descriptors::raise_limit().unwrap();
    let mut fixture = Fixture::new();
    let mut recipients: Vec<_> = (0..3 * SLICE_SENDS_MAX)
        .map(|_| fixture.connect(b""))
        .collect();
    let (pair, mut client) = fixture.connect(b"");
    let news = fixture.append(b"news");
    for (key, _) in &recipients {
        fixture
            .event_loop
            .push_ranges(*key, std::iter::once(news.clone()));
    }
    fixture.logs.begin_turn();
    let mut broken = Vec::new();
    fixture.event_loop.submit_slice(&fixture.logs, &mut broken);
    // One recipient that has its messages, one that has not, and the pair, in a separate turn.
    let small = fixture.append(b"more");
    let last = recipients.len() - 1;
    let before = fixture.event_loop.send_count();
    for key in [recipients[0].0, recipients[last].0, pair] {
        fixture
            .event_loop
            .push_ranges(key, std::iter::once(small.clone()));
    }
    fixture.logs.begin_turn();
    let added = fixture.event_loop.send_count() - before;
    assert_eq!(added, 2, "who waits in the queue keeps its place");
    fixture.event_loop.send_first(added);
    fixture.event_loop.submit_slice(&fixture.logs, &mut broken);
    assert!(fixture.event_loop.has_sends());
    let mut received = [0; 4];
    client.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"more");
    while fixture.event_loop.has_sends() {
        fixture.event_loop.submit_slice(&fixture.logs, &mut broken);
    }
    let mut settled = Settled::default();
    let marks = OutboxMarks::limit(usize::MAX);
    fixture
        .event_loop
        .settle(&mut fixture.logs, &marks, &mut settled);
    for index in [0, last] {
        let mut received = [0; 8];
        recipients[index].1.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"newsmore");
    }
    assert!(broken.is_empty() && settled.cut.is_empty());
}

#[test]
fn repeated_polling_finds_new_input_without_waiting() {
    let mut fixture = Fixture::new();
    let (_, mut client) = fixture.connect(b"");
    let drained = fixture.event_loop.poll_repeatedly(1000).unwrap();
    assert!(!drained, "nobody has sent anything");
    client.write_all(b"news").unwrap();
    let few = fixture.event_loop.poll_repeatedly(3).unwrap();
    assert!(!few, "few sends are not worth a poll");
    // The bytes may take a moment from one end to the other.
    let came = (0..1_000_000).any(|_| fixture.event_loop.poll_repeatedly(1000).unwrap());
    assert!(came);
    assert_eq!(fixture.event_loop.readable_count(), 1);
}

#[test]
fn a_small_flush_polls_less_often_while_no_input_comes() {
    const SMALL: usize = 8;
    const LARGE: usize = 1000;
    /// After this many empty polls, one flush in as many polls.
    const VAIN: usize = 16;
    let mut fixture = Fixture::new();
    let (_, mut client) = fixture.connect(b"");
    let mut poll_in_vain = |fixture: &mut Fixture| {
        for _ in 0..=VAIN {
            assert!(!fixture.event_loop.poll_repeatedly(SMALL).unwrap());
        }
        client.write_all(b"news").unwrap();
        fixture.event_loop.poll(Some(DEADLINE)).unwrap();
        assert_eq!(fixture.event_loop.readable_count(), 1);
    };
    poll_in_vain(&mut fixture);
    let found = (1..=VAIN).find(|_| fixture.event_loop.poll_repeatedly(SMALL).unwrap());
    assert_eq!(found, Some(VAIN), "then one polls that finds the peer");
    assert!(
        fixture.event_loop.poll_repeatedly(SMALL).unwrap(),
        "once somebody came, each polls again"
    );
    assert_eq!(fixture.read_until(4), b"news");
    poll_in_vain(&mut fixture);
    assert!(
        fixture.event_loop.poll_repeatedly(LARGE).unwrap(),
        "a large one always polls"
    );
}

#[test]
fn a_wait_ends_at_its_deadline_also_when_a_later_one_was_asked_for_before() {
    let mut fixture = Fixture::new();
    let (_, mut client) = fixture.connect(b"");
    // Ended by the peer, so the timer stays set for the far deadline.
    client.write_all(b"news").unwrap();
    let far = Instant::now() + DEADLINE;
    fixture.event_loop.poll_until(far).unwrap();
    assert_eq!(fixture.read_until(4), b"news");
    for wait in [30, 10, 0, 20] {
        let (start, wait) = (Instant::now(), Duration::from_millis(wait));
        let deadline = start + wait;
        while Instant::now() < deadline {
            fixture.event_loop.poll_until(deadline).unwrap();
        }
        // The poll that a past deadline ends at once.
        fixture.event_loop.poll_until(deadline).unwrap();
        assert!(start.elapsed() < DEADLINE / 2, "it waited for the far one");
    }
}

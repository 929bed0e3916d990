//! A flush to many recipients, with real sockets: the input that it waits for, and the input that it does not wait
//! for.

use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use tidewire_net::event_loop::{EventLoop, SLICE_SENDS_MAX};
use tidewire_net::flush_policy::{self, Owner};
use tidewire_net::memory_budget::MemoryBudget;
use tidewire_net::read_buffer::{READ_BYTES_MAX, ReadBuffer, ReadOutcome};
use tidewire_net::send_batch::Sender;

/// Owes many sends, and counts what it has read.
struct Fixture {
    event_loop: EventLoop<()>,
    buffer: ReadBuffer,
    peers: Vec<TcpStream>,
    owed_count: usize,
    turn_bytes: usize,
    turn_time: Duration,
    /// Peers who send a byte, one when something was read, the next when that was.
    followers: Vec<TcpStream>,
    /// Bytes that were read before each slice.
    read_before_slices: Vec<usize>,
}

impl Fixture {
    fn new(owed_count: usize, peer_count: usize) -> Self {
        let (mut event_loop, _) =
            EventLoop::new(&MemoryBudget::new(usize::MAX), Sender::plain()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peers = Vec::new();
        for _ in 0..peer_count {
            let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (socket, _) = listener.accept().unwrap();
            socket.set_nonblocking(true).unwrap();
            event_loop.add(socket, &[], ()).unwrap();
            peers.push(peer);
        }
        Self {
            event_loop,
            buffer: ReadBuffer::default(),
            peers,
            owed_count,
            turn_bytes: 0,
            turn_time: Duration::ZERO,
            followers: Vec::new(),
            read_before_slices: Vec::new(),
        }
    }
}

impl Owner for Fixture {
    type State = ();

    fn event_loop(&mut self) -> &mut EventLoop<()> {
        &mut self.event_loop
    }

    fn owed_count(&self) -> usize {
        self.owed_count
    }

    fn turn_bytes(&self) -> usize {
        self.turn_bytes
    }

    fn turn_time(&self) -> Duration {
        self.turn_time
    }

    fn take_input(&mut self) -> io::Result<()> {
        for _ in 0..self.event_loop.readable_count() {
            let Some((key, outcome)) = self.event_loop.read_next(&mut self.buffer) else {
                return Ok(());
            };
            let (ReadOutcome::Drained(count) | ReadOutcome::More(count)) = outcome else {
                panic!("{outcome:?}");
            };
            self.turn_bytes += count;
            self.buffer.consume(count);
            self.event_loop.store_rest(key, &mut self.buffer, 0);
            if let Some(mut follower) = self.followers.pop().filter(|_| count > 0) {
                follower.write_all(b"x")?;
                self.peers.push(follower);
            }
        }
        Ok(())
    }

    fn send_slice(&mut self) {
        self.read_before_slices.push(self.turn_bytes);
        self.owed_count -= SLICE_SENDS_MAX;
    }
}

#[test]
fn a_flush_begins_when_no_more_input_comes() {
    for owed_count in [200, 2000] {
        let mut fixture = Fixture::new(owed_count, 4);
        fixture.followers = fixture.peers.split_off(1);
        fixture.peers[0].write_all(b"x").unwrap();
        flush_policy::flush(&mut fixture).unwrap();
        let slices = owed_count.div_ceil(SLICE_SENDS_MAX) - 1;
        assert_eq!(
            fixture.read_before_slices,
            vec![4; slices],
            "of {owed_count} sends all but those of the last slice are sent, after everybody was read"
        );
    }
}

#[test]
fn few_sends_do_not_wait() {
    let mut fixture = Fixture::new(3, 1);
    fixture.peers[0].write_all(b"x").unwrap();
    flush_policy::flush(&mut fixture).unwrap();
    assert_eq!((fixture.turn_bytes, fixture.owed_count), (0, 3));
}

#[test]
fn a_flush_after_a_turn_that_took_longer_does_not_wait() {
    let mut fixture = Fixture::new(200, 1);
    fixture.turn_time = Duration::from_millis(10);
    fixture.peers[0].write_all(b"x").unwrap();
    flush_policy::flush(&mut fixture).unwrap();
    assert_eq!(fixture.read_before_slices[0], 0, "the first slice");
}

#[test]
fn a_flood_delays_a_flush_by_a_bounded_number_of_bytes() {
    const FLOODS: usize = 16;
    /// The largest input that a flush waits for, plus the excess of one more read.
    const BYTES_MAX: usize = (256 << 10) + FLOODS * READ_BYTES_MAX;
    let mut fixture = Fixture::new(10_000, FLOODS);
    let mut waiting = 0;
    for peer in &mut fixture.peers {
        peer.set_nonblocking(true).unwrap();
        while let Ok(count) = peer.write(&[0; 1 << 16]) {
            waiting += count;
        }
    }
    assert!(waiting > 2 * BYTES_MAX, "only {waiting} bytes wait");
    flush_policy::flush(&mut fixture).unwrap();
    let before = fixture.read_before_slices[0];
    assert!(
        before <= BYTES_MAX,
        "{before} bytes were read before the flush"
    );
}

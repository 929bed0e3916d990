//! Events with history against the real program: a subscriber that is disconnected at random, under load, receives every event exactly
//! once and in order, or exactly one gap.
//!
//! The events of the load count up from 1, so the data of each must be its offset. `HISTORY_CUTS` changes how often the
//! subscriber is disconnected; one disconnect in ten lasts longer than the history covers.

mod client;
mod process;

use std::io::Write as _;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use client::{Client, subscribe, wait_until};
use process::Server;
use rustix::process::Signal;
use tidewire_core::message::{Event, EventBulk, Message, Position};
use tidewire_wire::protocol::deepstream::Deepstream;

/// Number of events that the server keeps.
const KEPT: u64 = 400;
/// Maximum number of events that the load publishes before its own subscriber receives them.
const WINDOW: u64 = KEPT / 4;
/// Number of connections of a load: its publisher and its subscriber.
const LOAD_CONNECTIONS: u64 = 2;
/// Name of the load's events, and the options of its history.
const NAME: &str = "load/1";
const HISTORY: [&str; 2] = ["--event-history", "load/* count=400 age=1h"];

/// A small generator of numbers (xorshift64*), so that a run can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }
}

/// Publishes without a pause, as fast as the load's subscriber receives the events, up to a limit.
struct Load {
    /// The last number that the load may publish.
    limit: Arc<AtomicU64>,
    /// The last number that the load has written to the connection.
    sent: Arc<AtomicU64>,
    /// The last number that the load's subscriber has received.
    seen: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    is_cut: Arc<AtomicBool>,
    has_ended: Arc<AtomicBool>,
    watched: TcpStream,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(server: &Server, first: u64) -> Self {
        let limit = Arc::new(AtomicU64::new(u64::MAX));
        let sent = Arc::new(AtomicU64::new(first - 1));
        let seen = Arc::new(AtomicU64::new(first - 1));
        let [stop, is_cut, has_ended] = [(); 3].map(|()| Arc::<AtomicBool>::default());
        let (mut publisher, mut watcher) = (server.log_in(), server.log_in());
        watcher.send(&subscribe(NAME));
        watcher.expect_ack(EventBulk::Subscribe);
        let watched = watcher.stream.try_clone().expect("a second handle");
        let publish = {
            let (limit, sent) = (limit.clone(), sent.clone());
            let (seen, stop, is_cut) = (seen.clone(), stop.clone(), is_cut.clone());
            move || {
                let mut number = first;
                while !stop.load(Ordering::Acquire) {
                    let window = seen.load(Ordering::Acquire) + WINDOW;
                    if number > window.min(limit.load(Ordering::Acquire)) {
                        thread::yield_now();
                        continue;
                    }
                    sent.store(number, Ordering::Release);
                    let data = number.to_string();
                    if !publish(&mut publisher, &data) {
                        return;
                    }
                    number += 1;
                }
                if !is_cut.load(Ordering::Acquire) {
                    publish(&mut publisher, "0");
                }
            }
        };
        let watch = {
            let (seen, has_ended) = (seen.clone(), has_ended.clone());
            move || {
                let mut expected = first;
                watcher.receive_all(|message| {
                    let (offset, data) = numbered(message);
                    assert_eq!(offset, expected);
                    expected += 1;
                    seen.store(offset, Ordering::Release);
                    has_ended.fetch_or(data == 0, Ordering::AcqRel);
                });
            }
        };
        Self {
            limit,
            sent,
            seen,
            stop,
            is_cut,
            has_ended,
            watched,
            threads: vec![thread::spawn(publish), thread::spawn(watch)],
        }
    }

    fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Release);
    }

    fn sent(&self) -> u64 {
        self.sent.load(Ordering::Acquire)
    }

    fn seen(&self) -> u64 {
        self.seen.load(Ordering::Acquire)
    }

    /// Stops the load, and returns the offset of the last event, whose data is 0.
    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Release);
        wait_until(|| self.has_ended.load(Ordering::Acquire));
        // The load's subscriber has received all events.
        self.watched.shutdown(Shutdown::Both).expect("it is open");
        self.join()
    }

    /// Waits for the end of the load after the end of the server, and returns the last offset that the load's subscriber received.
    fn cut(self) -> u64 {
        self.is_cut.store(true, Ordering::Release);
        self.stop.store(true, Ordering::Release);
        self.join()
    }

    fn join(self) -> u64 {
        for thread in self.threads {
            thread.join().expect("the load went well");
        }
        self.seen.load(Ordering::Acquire)
    }
}

/// Publishes an event of the load. Returns false if the server has ended.
fn publish(client: &mut Client, data: &str) -> bool {
    let mut bytes = Vec::new();
    Deepstream::encode_masked_frame(&client::emit(NAME, data), [1, 2, 3, 4], &mut bytes);
    client.stream.write_all(&bytes).is_ok()
}

/// Offset and data of an event.
#[track_caller]
fn numbered(message: &Message<'_>) -> (u64, u64) {
    match message {
        Message::Event(Event::Publication(publication)) if publication.name == NAME => {
            let number = publication.data.and_then(|data| data.parse().ok());
            let offset = publication.offset().expect("an event with history");
            (offset, number.expect("a number"))
        }
        other => panic!("{other:?} instead of an event"),
    }
}

fn resume(position: Option<Position>) -> Message<'static> {
    Message::Event(Event::Subscribe {
        names: vec![NAME],
        correlation: Some("7"),
        positions: vec![(NAME, position)],
    })
}

/// The first answer to a subscriber that reconnects.
#[derive(Debug, PartialEq, Eq)]
enum Begin {
    At(Position),
    Gap {
        missed: Option<u32>,
        first: Option<Position>,
    },
}

/// A subscriber that keeps its position.
struct Subscriber {
    client: Client,
    position: Position,
    /// Data of the last event.
    data: u64,
}

impl Subscriber {
    /// Connects, with a position if it has one, and returns the server's first answer.
    fn come(server: &Server, position: Option<Position>) -> (Self, Begin) {
        let mut client = server.log_in();
        client.send(&resume(position));
        let mut begin = None;
        client.receive_until(|message| {
            begin = match message {
                Message::Event(Event::Position {
                    name: NAME,
                    position,
                }) => Some(Begin::At(*position)),
                Message::Event(Event::HistoryGap {
                    name: NAME,
                    missed,
                    first,
                }) => Some(Begin::Gap {
                    missed: *missed,
                    first: *first,
                }),
                other => panic!("{other:?} instead of where it begins"),
            };
            true
        });
        let begin = begin.expect("it was told");
        let position = match begin {
            Begin::At(position) => position,
            Begin::Gap { first, .. } => {
                let first = first.expect("the name has history");
                Position {
                    offset: first.offset - 1,
                    ..first
                }
            }
        };
        let data = position.offset;
        let subscriber = Self {
            client,
            position,
            data,
        };
        (subscriber, begin)
    }

    /// Receives `count` events, and further ones until the history covers all events that the load has published.
    fn take_under(&mut self, load: &Load, count: u64) {
        let enough = self.position.offset + count;
        loop {
            // The load may have published one event more than the limit.
            let covered = self.position.offset + KEPT - 1;
            load.set_limit(covered - 1);
            if self.position.offset >= enough && load.sent() < covered {
                return;
            }
            self.take(1);
        }
    }

    /// Receives all events up to one that it publishes itself.
    fn catch_up(&mut self, server: &Server) {
        assert!(publish(&mut server.log_in(), "0"));
        self.take(1);
        while self.data != 0 {
            self.take(1);
        }
    }

    /// Receives `count` events. Each must be the next one.
    fn take(&mut self, count: u64) {
        let mut left = count;
        while left > 0 {
            let (position, last, mut taken) = (&mut self.position, &mut self.data, 0);
            self.client.receive_until(|message| {
                if let Message::Event(Event::Ack { .. }) = message {
                    return true;
                }
                let (offset, data) = numbered(message);
                assert_eq!(offset, position.offset + 1, "not the next one");
                assert!(data == offset || data == 0, "{data} at {offset}");
                (position.offset, *last) = (offset, data);
                taken += 1;
                taken == left
            });
            left -= taken;
        }
    }
}

#[test]
fn a_subscriber_that_is_cut_off_gets_every_event_once_or_one_gap() {
    let cuts = std::env::var("HISTORY_CUTS").map_or(1_000, |cuts| cuts.parse().expect("a number"));
    let server = Server::start(&HISTORY);
    let load = Load::start(&server, 1);
    let mut random = Random(0x5eed);
    let (mut subscriber, begin) = Subscriber::come(&server, None);
    assert!(matches!(begin, Begin::At(_)), "{begin:?}");
    let (mut gaps, mut replayed) = (0, 0);
    for cut in 0..cuts {
        subscriber.take_under(&load, 1 + random.below(40));
        // The connection ends while events may be in flight.
        let position = subscriber.position;
        drop(subscriber);
        let is_long = cut % 10 == 9;
        let lasts = match is_long {
            true => KEPT + 1 + random.below(KEPT),
            false => random.below(KEPT - 2),
        };
        if is_long {
            load.set_limit(u64::MAX);
        }
        wait_until(|| load.seen() >= position.offset + lasts);
        let (seen, head) = (load.seen(), load.sent());
        if !is_long && random.below(5) == 0 {
            // Disconnect again before the first answer.
            let mut client = server.log_in();
            client.send(&resume(Some(position)));
            drop(client);
            // Pause the load until the server has read this RESUME: on a busy server the history would no longer cover its position.
            wait_until(|| server.metric("tidewire_connections") == Some(LOAD_CONNECTIONS));
        }
        let begin;
        (subscriber, begin) = Subscriber::come(&server, Some(position));
        if is_long {
            gaps += 1;
            let Begin::Gap { missed, first } = begin else {
                panic!("no gap after {lasts} events");
            };
            let first = first.expect("the name has history");
            assert_eq!(first.epoch, position.epoch);
            assert_eq!(
                u64::from(missed.expect("it is known")),
                first.offset - 1 - position.offset
            );
            // The history was full, and its head was between these two numbers.
            let heads = seen..=load.sent();
            let kept_to = first.offset + KEPT - 1;
            assert!(heads.contains(&kept_to), "{kept_to} is not in {heads:?}");
        } else {
            assert_eq!(begin, Begin::At(position), "head {head}, {lasts} events");
            replayed += head - position.offset;
        }
    }
    load.set_limit(u64::MAX);
    let last = load.stop();
    subscriber.take(last - subscriber.position.offset);
    assert_eq!(gaps, cuts / 10);
    assert!(replayed > cuts, "hardly anything was missed");
    // A shard publishes its metrics at the end of a turn.
    wait_until(|| server.metric("tidewire_history_gaps_total") == Some(gaps));
    wait_until(|| server.metric("tidewire_history_events") == Some(KEPT));
}

#[test]
fn a_restart_forgets_what_is_kept_in_memory_and_says_so() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = folder.path().join("kept");
    let store = store.to_str().expect("text");
    let arguments = [&HISTORY[..], &["--data", store]].concat();
    let mut server = Server::start_in(tempfile::tempdir().expect("a folder"), &arguments);
    let load = Load::start(&server, 1);
    let (mut subscriber, _) = Subscriber::come(&server, None);
    subscriber.take(30);
    load.stop();
    let position = subscriber.position;
    server.signal(Signal::TERM);
    server.expect_end();
    let server = Server::start_in(tempfile::tempdir().expect("a folder"), &arguments);
    let load = Load::start(&server, 1);
    wait_until(|| load.seen() > 5);
    let (mut subscriber, begin) = Subscriber::come(&server, Some(position));
    let Begin::Gap {
        missed: None,
        first: Some(first),
    } = begin
    else {
        panic!("{begin:?} instead of a gap");
    };
    assert_ne!(first.epoch, position.epoch);
    assert!(first.offset == 1 || load.sent() > KEPT, "{first:?}");
    subscriber.take(30);
    let last = load.stop();
    subscriber.take(last - subscriber.position.offset);
}

#[test]
fn a_subscriber_without_offsets_gets_the_same_events() {
    let server = Server::start(&HISTORY);
    let mut plain = server.log_in();
    plain.send(&subscribe(NAME));
    plain.expect_ack(EventBulk::Subscribe);
    let mut publisher = server.log_in();
    for number in 1..=3 {
        publisher.send(&client::emit(NAME, &number.to_string()));
    }
    let mut count = 0;
    plain.receive_until(|message| {
        count += 1;
        assert_eq!(numbered(message), (count, count));
        count == 3
    });
    plain.send(&Message::Event(Event::Unsubscribe {
        names: vec![NAME],
        correlation: Some("7"),
    }));
    plain.expect_ack(EventBulk::Unsubscribe);
    publisher.send(&client::emit(NAME, "4"));
    publisher.ping();
    plain.ping();
}

const STORED: [&str; 2] = ["--event-history", "load/* count=400 age=1h keep=store"];

#[test]
fn a_restart_makes_no_gap_in_what_the_store_keeps() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = folder.path().join("kept");
    let arguments = [&STORED[..], &["--data", store.to_str().expect("text")]].concat();
    let start = || Server::start_in(tempfile::tempdir().expect("a folder"), &arguments);
    let mut server = start();
    let (mut subscriber, begin) = Subscriber::come(&server, None);
    assert!(matches!(begin, Begin::At(_)), "{begin:?}");
    for signal in [Signal::TERM, Signal::KILL, Signal::KILL] {
        let load = Load::start(&server, subscriber.position.offset + 1);
        subscriber.take_under(&load, 50);
        let position = subscriber.position;
        drop(subscriber);
        wait_until(|| load.sent() >= position.offset + 100);
        // During the load. Events that are not durable yet are lost, but no subscriber has received them.
        server.signal(signal);
        let seen = load.cut();
        server.wait();
        server = start();
        let begin;
        (subscriber, begin) = Subscriber::come(&server, Some(position));
        assert_eq!(begin, Begin::At(position));
        subscriber.catch_up(&server);
        let last = subscriber.position.offset - 1;
        assert!(last >= seen, "{seen} was seen, and the last one is {last}");
    }
    // Disconnected for longer than the history covers: one gap of known length, also after a restart.
    let position = subscriber.position;
    drop(subscriber);
    let load = Load::start(&server, position.offset + 1);
    wait_until(|| load.seen() > position.offset + KEPT + 10);
    let last = load.stop();
    server.signal(Signal::KILL);
    server.wait();
    let server = start();
    let (mut subscriber, begin) = Subscriber::come(&server, Some(position));
    let first = Position {
        offset: last - KEPT + 1,
        ..position
    };
    let missed = u32::try_from(first.offset - 1 - position.offset).expect("few");
    let gap = Begin::Gap {
        missed: Some(missed),
        first: Some(first),
    };
    assert_eq!(begin, gap);
    subscriber.take(KEPT);
}

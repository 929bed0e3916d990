//! Events with history in a cluster: publishers and subscribers whose connections go to any node. An event is stored before any subscriber
//! receives it, so each offset has the same event for all subscribers, whatever node they use and whichever node owns the history.
//!
//! A publisher gets no acknowledgement: events that a node had not stored when it was lost are missing, and later ones follow.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use tidewire_core::message::{Connection, Event, Message};

use super::super::pulse::Pulse;
use super::super::random::Random;
use super::super::test_client::TestClient;
use super::event_log::{EventId, EventLog, Figures};
use super::reader::Reader;
use super::{AUDIT, KEPT, PUBLISHERS, SUBSCRIBERS, publisher};

/// A node that does not accept a login, or does not answer a publisher, within this time is silent.
const SILENCE: Duration = Duration::from_secs(4);
/// The most events of one burst.
const BURST_MAX: u64 = 6;
/// The longest pause between two bursts.
const BURST_PAUSE_MAX: Duration = Duration::from_millis(30);
/// The longest pause before a publisher or subscriber reconnects.
const RETURN_PAUSE_MAX: Duration = Duration::from_millis(100);
/// A subscriber leaves its node once in this many reads that had no message or some.
const LEAVE_ONE_IN: u64 = 400;
/// All subscribers receive the last event within this time.
const LAST_EVENT: Duration = Duration::from_secs(30);
/// The test publishes the last event again after this time, because a node may have lost it.
const LAST_AGAIN: Duration = Duration::from_secs(3);

/// The publishers and subscribers of a cluster, over all rounds.
#[derive(Debug)]
pub(crate) struct NodeEvents {
    publishers: [NodePublisher; PUBLISHERS],
    subscribers: [NodeSubscriber; SUBSCRIBERS],
    event_log: EventLog,
    /// The number of the last events of rounds.
    last: u64,
}

#[derive(Debug)]
struct NodePublisher {
    source: usize,
    random: Random,
    /// Counts the connections. The numbers of events begin at 1 in each.
    run: u64,
}

#[derive(Debug)]
struct NodeSubscriber {
    number: usize,
    random: Random,
    reader: Reader,
}

/// The work of a round, while its threads run.
pub(crate) struct Running<'scope, 'env> {
    subscribers: Vec<ScopedJoinHandle<'scope, ()>>,
    publishers: Vec<ScopedJoinHandle<'scope, ()>>,
    are_publishers_over: &'env AtomicBool,
    event_log: &'env EventLog,
    last: &'env mut u64,
}

impl NodeEvents {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            publishers: std::array::from_fn(|source| NodePublisher {
                source,
                random: Random::new(seed, 10 + source as u64),
                run: 0,
            }),
            subscribers: std::array::from_fn(|number| NodeSubscriber {
                number,
                random: Random::new(seed, 20 + number as u64),
                reader: Reader::of_cluster(),
            }),
            event_log: EventLog::default(),
            last: 0,
        }
    }

    /// The figures of all rounds.
    pub(crate) fn figures(&self) -> Figures {
        self.event_log.figures()
    }

    /// Starts the threads of all publishers and subscribers.
    pub(crate) fn work<'scope, 'env>(
        &'env mut self,
        scope: &'scope Scope<'scope, 'env>,
        addresses: &'env [SocketAddr],
        pulse: &'env Pulse,
        are_publishers_over: &'env AtomicBool,
    ) -> Running<'scope, 'env> {
        let event_log = &self.event_log;
        let publishers = self.publishers.iter_mut().map(|publisher| {
            scope.spawn(move || publisher.work(addresses, event_log, are_publishers_over))
        });
        let publishers = publishers.collect();
        let subscribers = self
            .subscribers
            .iter_mut()
            .map(|subscriber| scope.spawn(move || subscriber.work(addresses, event_log, pulse)));
        Running {
            subscribers: subscribers.collect(),
            publishers,
            are_publishers_over,
            event_log,
            last: &mut self.last,
        }
    }
}

impl Running<'_, '_> {
    /// Ends the publishers, and publishes a last event under each name until all subscribers have received one.
    ///
    /// # Errors
    /// A subscriber does not receive it.
    pub(crate) fn finish(self, address: SocketAddr, pulse: &Pulse) -> Result<(), String> {
        self.are_publishers_over.store(true, Ordering::Relaxed);
        for publisher in self.publishers {
            publisher
                .join()
                .map_err(|_| "a publisher failed".to_owned())?;
        }
        let failed = |error: std::io::Error| format!("can't publish the last event: {error}");
        let mut peer = TestClient::open(address).map_err(failed)?;
        let start = Instant::now();
        let first = *self.last + 1;
        let mut published = None;
        while !self.event_log.has_reached_all(AUDIT, first) {
            if let Some(fault) = pulse.fault() {
                return Err(fault);
            }
            if start.elapsed() > LAST_EVENT {
                return Err(format!(
                    "a subscriber did not receive the last event within {LAST_EVENT:?}"
                ));
            }
            if published.is_none_or(|published: Instant| published.elapsed() > LAST_AGAIN) {
                published = Some(Instant::now());
                *self.last += 1;
                let id = EventId {
                    source: AUDIT,
                    run: 1,
                    number: *self.last,
                };
                for index in 0..KEPT.len() {
                    self.event_log.ask(index);
                    peer.push(&publisher::emit(index, &id.text()));
                }
                peer.flush().map_err(failed)?;
            }
            // Answers the pings of the server, and waits for a moment.
            peer.receive(&mut |_, _| {}).map_err(failed)?;
        }
        pulse.end();
        for subscriber in self.subscribers {
            subscriber
                .join()
                .map_err(|_| "a subscriber failed".to_owned())?;
        }
        Ok(())
    }
}

/// Connects to any node.
fn open(addresses: &[SocketAddr], random: &mut Random) -> std::io::Result<TestClient> {
    let node = usize::try_from(random.below(addresses.len() as u64)).unwrap_or(0);
    TestClient::open_within(addresses[node], SILENCE)
}

impl NodePublisher {
    fn work(&mut self, addresses: &[SocketAddr], event_log: &EventLog, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            if let Ok(mut peer) = open(addresses, &mut self.random) {
                self.run += 1;
                // An error ends the connection, as its end does.
                let _ = self.publish(&mut peer, event_log, is_over);
            }
            std::thread::sleep(self.random.pause(RETURN_PAUSE_MAX));
        }
    }

    /// Publishes until the connection ends or is silent.
    fn publish(
        &mut self,
        peer: &mut TestClient,
        event_log: &EventLog,
        is_over: &AtomicBool,
    ) -> std::io::Result<()> {
        let mut numbers = [0; KEPT.len()];
        while !is_over.load(Ordering::Relaxed) {
            for _ in 0..=self.random.below(BURST_MAX) {
                let index = usize::from(self.random.one_in(2));
                numbers[index] += 1;
                event_log.ask(index);
                let id = EventId {
                    source: self.source,
                    run: self.run,
                    number: numbers[index],
                };
                peer.push(&publisher::emit(index, &id.text()));
            }
            // When the node answers the ping, it has handled the events before it.
            peer.push(&Message::Connection(Connection::Ping));
            peer.flush()?;
            let sent = Instant::now();
            let (mut is_answered, mut is_refused) = (false, false);
            while !is_answered {
                let is_open = peer.receive(&mut |message, _| match message {
                    Message::Connection(Connection::Pong) => is_answered = true,
                    // The node is about to stop, or has lost its part in the cluster.
                    Message::Event(Event::Error(_)) => is_refused = true,
                    _ => {}
                })?;
                if !is_open || is_refused || sent.elapsed() > SILENCE {
                    return Ok(());
                }
            }
            std::thread::sleep(self.random.pause(BURST_PAUSE_MAX));
        }
        Ok(())
    }
}

impl NodeSubscriber {
    fn work(&mut self, addresses: &[SocketAddr], event_log: &EventLog, pulse: &Pulse) {
        while !pulse.is_over() {
            if let Ok(mut peer) = open(addresses, &mut self.random) {
                event_log.resume();
                // An error ends the connection, as its end does.
                let _ = self.read(&mut peer, event_log, pulse);
            }
            std::thread::sleep(self.random.pause(RETURN_PAUSE_MAX));
        }
    }

    /// Reads until the connection ends or is silent, or the subscriber leaves it.
    fn read(
        &mut self,
        peer: &mut TestClient,
        event_log: &EventLog,
        pulse: &Pulse,
    ) -> std::io::Result<()> {
        let mut reading = self.reader.resume(&mut peer.outbox(), &mut self.random);
        let mut heard = Instant::now();
        let mut asked = Instant::now();
        peer.flush()?;
        while !pulse.is_over() && !self.random.one_in(LEAVE_ONE_IN) {
            let (reader, number) = (&mut self.reader, self.number);
            let mut is_refused = false;
            let is_open = peer.receive(&mut |message, _| {
                heard = Instant::now();
                match message {
                    Message::Event(Event::Error(_)) => is_refused = true,
                    Message::Event(event) => match reader.take(event, &mut reading, event_log) {
                        Ok(Some((index, offset))) => event_log.reach(index, number, offset),
                        Ok(None) => {}
                        Err(fault) => pulse.fail(fault),
                    },
                    _ => {}
                }
            })?;
            if !is_open || is_refused || reading.is_stale() || heard.elapsed() > SILENCE {
                return Ok(());
            }
            if asked.elapsed() > SILENCE / 4 {
                asked = Instant::now();
                peer.push(&Message::Connection(Connection::Ping));
                peer.flush()?;
            }
        }
        Ok(())
    }
}

//! Events with history in the store: publishers, subscribers that resume from their positions after cuts, kills and power cuts,
//! and an audit after each start. An event that one subscriber received is durable, so every other subscriber must receive the
//! same event at its offset.

mod event_log;
mod of_nodes;
mod publisher;
mod reader;
mod subscriber;

use std::net::SocketAddr;
use std::thread::Scope;
use std::time::{Duration, Instant};

use tidewire_core::message::Message;

use super::operation_history::Ending;
use super::proxy::Targets;
use super::pulse::Pulse;
use super::random::Random;
use super::test_client::TestClient;
pub(super) use event_log::Figures;
use event_log::{EventId, EventLog};
pub(super) use of_nodes::NodeEvents;
use publisher::Publisher;
use reader::Reader;
use subscriber::Subscriber;

/// A name with history.
#[derive(Debug)]
struct Kept {
    name: &'static str,
    /// How many of its last events the server keeps.
    count: u64,
}

/// The names with history. The first history is longer than a subscriber can fall behind, see `publisher::AHEAD_MAX` and
/// `reader::AGAIN`. The second is shorter, so that subscribers have gaps.
const KEPT: [Kept; 2] = [
    Kept {
        name: "torture/long",
        count: 1_000,
    },
    Kept {
        name: "torture/short",
        count: 24,
    },
];

/// The number of publishers, each with its own connection.
const PUBLISHERS: usize = 2;
/// The number of the audit as a source: it publishes too.
const AUDIT: usize = PUBLISHERS;
/// The number of sources of events.
const SOURCES: usize = PUBLISHERS + 1;
/// The number of subscribers: one with a direct connection and one behind the proxy.
const SUBSCRIBERS: usize = 2;
/// The audit must read all events within this time after a start.
const AUDIT_TIMEOUT: Duration = Duration::from_secs(30);

/// The publishers, subscribers and ledger of one data folder, over all runs.
#[derive(Debug)]
pub(super) struct Events {
    publishers: [Publisher; PUBLISHERS],
    subscribers: [Subscriber; SUBSCRIBERS],
    event_log: EventLog,
    random: Random,
    run: u64,
}

/// The history rules of a server, as the value of its option.
pub(super) fn history() -> String {
    let rules = KEPT
        .iter()
        .map(|Kept { name, count }| format!("{name} count={count} bytes=16MiB age=1h keep=store"));
    rules.collect::<Vec<String>>().join(",")
}

/// The index of a name in [`KEPT`].
fn index_of(name: &str) -> Option<usize> {
    KEPT.iter().position(|kept| kept.name == name)
}

impl Events {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            publishers: std::array::from_fn(|source| {
                Publisher::new(source, Random::new(seed, 10 + source as u64))
            }),
            subscribers: std::array::from_fn(|number| {
                Subscriber::new(number, Random::new(seed, 20 + number as u64))
            }),
            event_log: EventLog::default(),
            random: Random::new(seed, 30),
            run: 0,
        }
    }

    /// The figures of all runs.
    pub(super) fn figures(&self) -> Figures {
        self.event_log.figures()
    }

    /// Reads all events after a start and compares them with the events that subscribers received before.
    ///
    /// # Errors
    /// The server lost or changed an event, or did not answer in time.
    pub(super) fn audit(&mut self, address: SocketAddr, ending: Ending) -> Result<(), String> {
        self.run += 1;
        let failed =
            |error: std::io::Error| format!("can't read the events after the start: {error}");
        let mut auditor = Reader::behind(self.event_log.begin_audit());
        let mut peer = TestClient::open(address).map_err(failed)?;
        let mut reading = auditor.resume(&mut peer.outbox(), &mut self.random);
        peer.flush().map_err(failed)?;
        // An event that is published now comes after all stored events.
        let end = EventId {
            source: AUDIT,
            run: self.run,
            number: 1,
        };
        let mut publisher = None;
        let deadline = Instant::now() + AUDIT_TIMEOUT;
        while !auditor.is_at(end) {
            let mut fault = None;
            let is_open = peer.receive(&mut |message, _| {
                if let Message::Event(event) = message {
                    let taken = auditor.take(event, &mut reading, &self.event_log);
                    fault = fault.take().or_else(|| taken.err());
                }
            });
            if let Some(fault) = fault {
                return Err(format!("after a restart: {fault}"));
            }
            if !is_open.map_err(failed)? || Instant::now() > deadline {
                return Err("the server did not deliver all events after its start".to_owned());
            }
            if publisher.is_none() && reading.has_begun() {
                let mut peer = TestClient::open(address).map_err(failed)?;
                for index in 0..KEPT.len() {
                    self.event_log.ask(index);
                    peer.push(&publisher::emit(index, &end.text()));
                }
                peer.flush().map_err(failed)?;
                publisher = Some(peer);
            }
        }
        self.event_log.settle();
        for subscriber in &mut self.subscribers {
            subscriber.reader.begin_behind(&auditor);
        }
        if ending == Ending::Clean {
            for handled in self.publishers.iter().flat_map(Publisher::handled) {
                self.event_log.find_handled(handled)?;
            }
        }
        Ok(())
    }

    /// Starts the threads of all publishers and subscribers. Publishers run until the server ends, subscribers until the pulse ends.
    pub(super) fn work<'scope, 'env>(
        &'env mut self,
        scope: &'scope Scope<'scope, 'env>,
        targets: Targets,
        pulse: &'env Pulse,
    ) {
        let (event_log, run) = (&self.event_log, self.run);
        for publisher in &mut self.publishers {
            scope.spawn(move || publisher.work(targets.direct, run, event_log, pulse));
        }
        for (subscriber, address) in self
            .subscribers
            .iter_mut()
            .zip([targets.direct, targets.proxied])
        {
            scope.spawn(move || subscriber.work(address, event_log, pulse));
        }
    }
}

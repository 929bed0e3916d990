//! The load on a server while the test injects faults: writers, and an observer that subscribes to their records. Each connection
//! has its own thread. The histories outlive the runs of the server.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use tidewire_core::message::{Message, Reason, Record};

use super::direct::{Direct, MessageResult};
use super::events::{self, Events};
use super::keyed::Keyed;
use super::observer::Observer;
use super::operation_history::{Ending, OperationHistory, ReadRecord};
use super::proxy::Targets;
use super::pulse::Pulse;
use super::random::Random;
use super::test_client::{Outbox, TestClient};

/// The number of direct connections, which end only with the server, and of records that each writes.
const DIRECT: (usize, usize) = (3, 8);
/// The number of connections behind the proxy, and of records that each writes.
const KEYED: (usize, usize) = (2, 6);
/// The pause before a client whose connection was cut reconnects.
const RETURN_PAUSE: Duration = Duration::from_millis(2);
/// The server must answer the reads of all records within this time after a start.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// A name that no client writes.
const NEVER: &str = "torture/never";

/// The figures of all runs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    pub(super) acknowledged: u64,
    pub(super) refused: u64,
    pub(super) repeated: u64,
    pub(super) shown: u64,
    pub(super) events: events::Figures,
    pub(super) checked: u64,
}

impl std::ops::Add for Work {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            acknowledged: self.acknowledged + other.acknowledged,
            refused: self.refused + other.refused,
            repeated: self.repeated + other.repeated,
            shown: self.shown + other.shown,
            events: self.events + other.events,
            checked: self.checked + other.checked,
        }
    }
}

/// All writers, publishers and subscribers of one data folder.
pub(super) struct Load {
    direct: Vec<Vec<Direct>>,
    keyed: Vec<Vec<Keyed>>,
    events: Events,
    pub(super) work: Work,
}

impl Load {
    pub(super) fn new(seed: u64) -> Self {
        let mut stream = 100;
        let mut random = || {
            stream += 1;
            Random::new(seed, stream)
        };
        let direct = |connection| {
            let name = move |record| format!("torture/direct/{connection}/{record}");
            (0..DIRECT.1)
                .map(|record| Direct::new(name(record), random()))
                .collect()
        };
        let direct = (0..DIRECT.0).map(direct).collect();
        let keyed = |connection| {
            let name = move |record| format!("torture/keyed/{connection}/{record}");
            (0..KEYED.1)
                .map(|record| Keyed::new(name(record), random()))
                .collect()
        };
        Self {
            direct,
            keyed: (0..KEYED.0).map(keyed).collect(),
            events: Events::new(seed),
            work: Work::default(),
        }
    }

    fn histories(&mut self) -> impl Iterator<Item = &mut OperationHistory> {
        let direct = self
            .direct
            .iter_mut()
            .flatten()
            .map(|writer| &mut writer.history);
        direct.chain(
            self.keyed
                .iter_mut()
                .flatten()
                .map(|writer| &mut writer.history),
        )
    }

    /// Reads all records and events after a start and compares them with the histories.
    ///
    /// # Errors
    /// The server broke a promise. The text describes the first such record or event.
    pub(super) fn verify(&mut self, address: SocketAddr, ending: Ending) -> Result<(), String> {
        let names: Vec<String> = self
            .histories()
            .map(|history| history.record().to_owned())
            .collect();
        let seen = read(address, &names)?;
        self.work.checked += seen.len() as u64;
        for (history, seen) in self.histories().zip(&seen) {
            history.settle(seen.as_ref(), ending)?;
        }
        if let Some(Some(seen)) = seen.last() {
            return Err(format!(
                "{NEVER}: exists at version {}, although no client wrote it",
                seen.version
            ));
        }
        self.events.audit(address, ending)
    }

    /// Runs all clients while `inject_faults` runs. It must end the server and then the pulse.
    pub(super) fn during<T>(
        &mut self,
        targets: Targets,
        pulse: &Pulse,
        inject_faults: impl FnOnce() -> T,
    ) -> T {
        let names: Vec<String> = self
            .histories()
            .map(|history| history.record().to_owned())
            .collect();
        let (direct, keyed, events) = (&mut self.direct, &mut self.keyed, &mut self.events);
        let (done, observer) = thread::scope(|scope| {
            events.work(scope, targets, pulse);
            let observer = scope.spawn(|| observe(targets.direct, &names, pulse));
            for writers in direct.iter_mut() {
                scope.spawn(|| write_directly(targets.direct, writers, pulse));
            }
            for writers in keyed.iter_mut() {
                scope.spawn(|| write_with_keys(targets.proxied, writers, pulse));
            }
            let done = inject_faults();
            (done, observer.join().ok().flatten())
        });
        if let Some(observer) = observer {
            self.work.shown += observer.count;
            for (name, number) in observer.shown_numbers() {
                if let Some(history) = self.histories().find(|history| history.record() == name) {
                    history.show(number);
                }
            }
        }
        self.work.events = self.events.figures();
        self.work.acknowledged += pulse.acknowledged();
        self.work.refused += pulse.refused();
        self.work.repeated = self
            .keyed
            .iter()
            .flatten()
            .map(|writer| writer.repeated_count)
            .sum();
        done
    }
}

/// The outcomes of one read from a connection.
#[derive(Default)]
struct ReadOutcomes {
    acknowledged: u64,
    refused: u64,
}

impl ReadOutcomes {
    fn note(&mut self, taken: Result<MessageResult, String>, pulse: &Pulse) {
        match taken {
            Ok(MessageResult::Acknowledged) => self.acknowledged += 1,
            Ok(MessageResult::Refused) => self.refused += 1,
            Ok(MessageResult::Nothing) => {}
            Err(fault) => pulse.fail(fault),
        }
    }
}

/// Handles the messages of a connection until it ends.
fn handle_messages(
    peer: &mut TestClient,
    pulse: &Pulse,
    take: &mut dyn FnMut(&Record<'_>, &mut Outbox<'_>) -> Result<MessageResult, String>,
) {
    loop {
        let mut outcomes = ReadOutcomes::default();
        let is_open = peer.receive(&mut |message, out| {
            if let Message::Record(record) = message {
                outcomes.note(take(record, out), pulse);
            }
        });
        pulse.note(outcomes.acknowledged, outcomes.refused);
        if !matches!(is_open, Ok(true)) {
            return;
        }
    }
}

fn write_directly(address: SocketAddr, writers: &mut [Direct], pulse: &Pulse) {
    // If the server has already ended, there is nothing to do.
    let Ok(mut peer) = TestClient::open(address) else {
        return;
    };
    for writer in writers.iter_mut() {
        writer.begin(&mut peer.outbox());
    }
    if peer.flush().is_ok() {
        handle_messages(&mut peer, pulse, &mut |record, out| {
            let writer = writers
                .iter_mut()
                .find(|writer| Some(writer.history.record()) == name_of(record));
            writer.map_or(Ok(MessageResult::Nothing), |writer| {
                writer.take(record, out)
            })
        });
    }
}

fn write_with_keys(address: SocketAddr, writers: &mut [Keyed], pulse: &Pulse) {
    writers.iter_mut().for_each(Keyed::begin);
    while !pulse.is_over() {
        let Ok(mut peer) = TestClient::open(address) else {
            pulse.pause(RETURN_PAUSE);
            continue;
        };
        for writer in writers.iter_mut() {
            writer.connect(&mut peer.outbox());
        }
        if peer.flush().is_ok() {
            handle_messages(&mut peer, pulse, &mut |record, out| {
                let writer = writers
                    .iter_mut()
                    .find(|writer| Some(writer.history.record()) == name_of(record));
                writer.map_or(Ok(MessageResult::Nothing), |writer| {
                    writer.take(record, out)
                })
            });
        }
    }
}

fn observe(address: SocketAddr, names: &[String], pulse: &Pulse) -> Option<Observer> {
    let mut peer = TestClient::open(address).ok()?;
    let mut observer = Observer::begin(names, &mut peer.outbox());
    if peer.flush().is_ok() {
        handle_messages(&mut peer, pulse, &mut |record, out| {
            observer.take(record, out).map(|()| MessageResult::Nothing)
        });
    }
    Some(observer)
}

/// The record that a message is about.
fn name_of<'a>(message: &Record<'a>) -> Option<&'a str> {
    match message {
        Record::WriteAck { name, .. }
        | Record::DeleteSuccess { name }
        | Record::Fetched { name, .. }
        | Record::Stored { name, .. }
        | Record::PreconditionFailed { name, .. } => Some(name),
        Record::Error(refusal) => match refusal.reason {
            Reason::VersionExists
            | Reason::InvalidVersion
            | Reason::DeleteFailed
            | Reason::UpdateFailed
            | Reason::LoadFailed
            | Reason::LoadTimeout => refusal.name,
            _ => None,
        },
        _ => None,
    }
}

/// Reads these records and then the one that no client writes.
pub(super) fn read(
    address: SocketAddr,
    names: &[String],
) -> Result<Vec<Option<ReadRecord>>, String> {
    let failed = |error: std::io::Error| format!("can't read the records after the start: {error}");
    let mut peer = TestClient::open(address).map_err(failed)?;
    let names: Vec<&str> = names.iter().map(String::as_str).chain([NEVER]).collect();
    for (index, name) in names.iter().enumerate() {
        peer.push(&Message::Record(Record::Fetch {
            name,
            correlation: &index.to_string(),
        }));
    }
    peer.flush().map_err(failed)?;
    let mut found: Vec<Option<Option<ReadRecord>>> = vec![None; names.len()];
    let mut fault = None;
    let deadline = Instant::now() + READ_TIMEOUT;
    while found.iter().any(Option::is_none) && fault.is_none() {
        let is_open = peer.receive(&mut |message, _| match message {
            Message::Record(Record::Fetched {
                correlation, state, ..
            }) => {
                let slot = correlation
                    .parse()
                    .ok()
                    .and_then(|slot: usize| found.get_mut(slot));
                let seen = state.map(|(tag, text)| ReadRecord {
                    version: tag.version,
                    text: text.to_owned(),
                });
                if let Some(slot) = slot {
                    *slot = Some(seen);
                }
            }
            other => fault = Some(format!("the server answered a read with {other:?}")),
        });
        if !is_open.map_err(failed)? || Instant::now() > deadline {
            return Err("the server did not answer all reads after its start".to_owned());
        }
    }
    match fault {
        Some(fault) => Err(fault),
        None => Ok(found.into_iter().flatten().collect()),
    }
}

//! `tidewire torture --nodes N`: the torture test on a cluster of real processes with a shared store. Clients of all nodes write, read and
//! publish while the test injects faults, and after each round the test decides from the answers alone whether the cluster kept what it
//! promises. See `docs/torture.md`.

mod client;
mod fault_injector;
mod history;
mod linearizability;
mod members;
mod network;
mod probe;
mod remote_url;
mod report;
mod store;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidewire_core::message::{Message, Only, Record};
use tidewire_server::exit::{Exit, Failure};

use super::events::NodeEvents;
use super::operation_history::{ReadRecord, text};
use super::pulse::Pulse;
use super::random::Random;
use super::test_client::TestClient;
use super::{Settings, WorkFolder, load, watch_signals};
use client::{Client, Scene, Work};
use fault_injector::FaultInjector;
use history::{FIRST_VALUE, History, Start, value_of};
use linearizability::{Action, Operation, State};
use members::Members;
use probe::Probe;
pub use remote_url::RemoteUrl;
use report::{Fault, Report};

/// The number of clients that write records.
const CLIENTS: usize = 9;
/// The number of records of a round. Several clients write each.
const RECORDS: usize = 18;
/// The number of faults of a round. Its records are new, so that the time to decide their order is bounded.
const FAULTS: usize = 5;
/// The cluster answers the first and the last request of a round within this time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// How often the test reads all records at the end of a round until the view is the same before and after it.
const LAST_READS: u32 = 5;

/// The settings of a run on several nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSettings {
    /// The number of nodes.
    pub node_count: usize,
    /// The shared store, which must be empty.
    pub store: RemoteUrl,
    /// The broker of the links; `None` if the nodes are linked directly.
    pub link: Option<RemoteUrl>,
    /// The run ends after this number of faults.
    pub fault_count: Option<u64>,
    /// A shell command that restarts the store.
    pub restart_store: Option<String>,
    /// A shell command that restarts the broker.
    pub restart_link: Option<String>,
}

/// Runs the torture test on a cluster. Returns the verdict as text, and its exit code.
///
/// # Errors
/// The test can't begin.
pub(super) fn run(
    settings: &Settings,
    cluster: &ClusterSettings,
    seed: u64,
) -> Result<(String, Exit), Failure> {
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        let line = format!("can't start the torture test: {what}: {error}");
        Failure::new(Exit::Unproven, line)
    };
    let found = store::Reader::open(&cluster.store).and_then(|mut reader| reader.first_name());
    match found.map_err(|error| failed("the store", &error))? {
        None => {}
        Some(name) => {
            let line = format!(
                "the store has records, as {name:?}; the torture test needs an empty database"
            );
            return Err(Failure::new(Exit::DataFolder, line));
        }
    }
    let folder = WorkFolder::make(seed).map_err(|error| failed("no work folder", &error))?;
    let is_interrupted = watch_signals().map_err(|error| failed("no signal handler", &error))?;
    println!(
        "tidewire torture: seed {seed}, {} nodes, in {}",
        cluster.node_count,
        folder.path.display()
    );
    let members = Members::start(cluster, settings.broken, &folder.path).map_err(|error| {
        folder.remove();
        failed("no cluster", &error)
    })?;
    let start = Instant::now();
    let mut run = Run {
        settings: cluster,
        members,
        probe: Probe::default(),
        clients: (1..=CLIENTS)
            .map(|number| Client::new(number, Random::new(seed, 100 + number as u64)))
            .collect(),
        events: NodeEvents::new(seed),
        random: Random::new(seed, 0),
        faults: Vec::new(),
        report: Report::new(seed, settings.broken, skipped(cluster)),
        clock: start,
        histories: Vec::new(),
    };
    let is_over = |injected: u64| {
        let is_done = cluster.fault_count.is_some_and(|count| injected >= count);
        let is_late = settings.time.is_some_and(|time| start.elapsed() >= time);
        is_done || is_late || is_interrupted.load(Ordering::Relaxed)
    };
    let mut loss = None;
    while loss.is_none() && !is_over(run.report.count()) {
        loss = run.round(&is_over).err();
    }
    let loss = loss.or_else(|| run.end().err());
    let mut report = run.into_report();
    report.loss = loss;
    report.time = start.elapsed();
    report.cut_short = is_interrupted
        .load(Ordering::Relaxed)
        .then_some("a signal stopped it");
    let mut verdict = report.to_string();
    match report.loss {
        Some(_) => verdict.push_str(&format!("kept for inspection: {}\n", folder.path.display())),
        None => folder.remove(),
    }
    Ok((verdict, report.exit()))
}

/// The faults that a run with these settings can't inject, with the reason.
fn skipped(settings: &ClusterSettings) -> Vec<(Fault, &'static str)> {
    let is_kafka = settings
        .link
        .as_ref()
        .is_some_and(|link| link.scheme() == "kafka");
    let mut skipped = Vec::new();
    if is_kafka {
        let reason = "Kafka gives its clients its own address, which no proxy can replace";
        skipped.extend(
            [Fault::CutOneWay, Fault::CutFromNodes, Fault::CutFromAll].map(|fault| (fault, reason)),
        );
    }
    if settings.restart_store.is_none() {
        skipped.push((Fault::RestartStore, "needs --restart-store"));
    }
    match (&settings.link, &settings.restart_link) {
        (None, _) => skipped.push((Fault::RestartLink, "the nodes are linked directly")),
        (Some(_), None) => skipped.push((Fault::RestartLink, "needs --restart-link")),
        (Some(_), Some(_)) => {}
    }
    skipped
}

/// The state of a run.
struct Run<'a> {
    settings: &'a ClusterSettings,
    members: Members,
    probe: Probe,
    clients: Vec<Client>,
    events: NodeEvents,
    random: Random,
    /// The faults of this pass that were not injected yet.
    faults: Vec<Fault>,
    report: Report,
    clock: Instant,
    /// The histories of the records of all rounds.
    histories: Vec<History>,
}

impl Run<'_> {
    /// Makes new records, injects some faults while clients use them, and decides whether their histories have an order.
    fn round(&mut self, is_over: &dyn Fn(u64) -> bool) -> Result<(), String> {
        let addresses = self.members.addresses();
        let records = self.create(addresses[0])?;
        let pulse = Pulse::default();
        let are_publishers_over = AtomicBool::new(false);
        let answered: Vec<AtomicU64> = self.clients.iter().map(|_| AtomicU64::new(0)).collect();
        let scene = Scene {
            addresses: &addresses,
            records: &records,
            pulse: &pulse,
            answered: &answered,
            clock: self.clock,
        };
        let faults: Vec<Fault> = (0..FAULTS).map(|_| self.next_fault()).collect();
        let (clients, events) = (&mut self.clients, &mut self.events);
        let mut injector = FaultInjector {
            settings: self.settings,
            members: &mut self.members,
            probe: &mut self.probe,
            pulse: &pulse,
            answered: &answered,
            random: &mut self.random,
            report: &mut self.report,
        };
        let (injected, histories) = std::thread::scope(|scope| {
            let works = clients
                .iter_mut()
                .map(|client| scope.spawn(move || Work::new(client, scene).run()));
            let works: Vec<_> = works.collect();
            let events = events.work(scope, &addresses, &pulse, &are_publishers_over);
            let mut injected = Ok(());
            for fault in faults {
                if injected.is_ok() && !is_over(injector.report.count()) {
                    injected = injector.run(fault);
                }
            }
            let finished = injected.and_then(|()| events.finish(addresses[0], &pulse));
            are_publishers_over.store(true, Ordering::Relaxed);
            pulse.end();
            let histories: Vec<Vec<History>> = works
                .into_iter()
                .filter_map(|work| work.join().ok())
                .collect();
            (finished, histories)
        });
        let first = self.histories.len();
        self.histories.extend(records.into_iter().map(History::new));
        for part in histories {
            for (history, part) in self.histories[first..].iter_mut().zip(part) {
                history.operations.extend(part.operations);
                history.doubtful.extend(part.doubtful);
            }
        }
        injected.and_then(|()| pulse.fault().map_or(Ok(()), Err))?;
        self.read_all(first)?;
        self.check(first)
    }

    fn next_fault(&mut self) -> Fault {
        loop {
            if let Some(fault) = self.faults.pop() {
                return fault;
            }
            // Kills are the most frequent faults of real nodes.
            let mut pass: Vec<Fault> = [&Fault::ALL[..], &[Fault::Kill]].concat();
            pass.retain(|fault| self.report.is_possible(*fault));
            self.random.shuffle(&mut pass);
            self.faults = pass;
        }
    }

    /// Makes the records of a round.
    fn create(&mut self, address: SocketAddr) -> Result<Vec<Start>, String> {
        let failed = |error: std::io::Error| format!("can't make the records of a round: {error}");
        let round = self.histories.len() / RECORDS;
        let names: Vec<String> = (0..RECORDS)
            .map(|record| format!("torture/{round}/{record}"))
            .collect();
        let mut peer = TestClient::open(address).map_err(failed)?;
        for name in &names {
            let data = text(name, FIRST_VALUE, FIRST_VALUE);
            peer.push(&Message::Record(Record::Put {
                name,
                correlation: name,
                only: Only::Missing,
                data: Some(&data),
            }));
        }
        peer.flush().map_err(failed)?;
        let mut starts: Vec<Option<Start>> = vec![None; names.len()];
        let mut refused = None;
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        while starts.contains(&None) {
            let is_open = peer.receive(&mut |message, _| match message {
                Message::Record(Record::Stored {
                    name,
                    tag: Some(tag),
                    ..
                }) => {
                    if let Some(index) = names.iter().position(|known| known == name) {
                        starts[index] = Some(Start {
                            name: (*name).to_owned(),
                            incarnation: tag.incarnation,
                            version: tag.version,
                        });
                    }
                }
                other => {
                    refused = Some(format!(
                        "a healthy cluster answered a new record with {other:?}"
                    ))
                }
            });
            if let Some(refused) = refused {
                return Err(refused);
            }
            if !is_open.map_err(failed)? || Instant::now() > deadline {
                return Err(format!(
                    "a healthy cluster did not acknowledge {RECORDS} new records within {ANSWER_TIMEOUT:?}"
                ));
            }
        }
        Ok(starts.into_iter().flatten().collect())
    }

    /// Reads the records of a round through every node, while no client writes and no view changes.
    fn read_all(&mut self, first: usize) -> Result<(), String> {
        for _ in 0..LAST_READS {
            let view = self.members.await_all()?;
            let mut operations = Vec::new();
            for address in self.members.addresses() {
                operations.push(self.read(address, first)?);
            }
            // Nodes that were members of one view all the time can't have served a stale read.
            if self.members.common_view() == Some(view) {
                for part in operations {
                    for (history, operation) in self.histories[first..].iter_mut().zip(part) {
                        history.operations.push(operation);
                    }
                }
                return Ok(());
            }
        }
        Err(format!(
            "the view changed during each of {LAST_READS} reads of all records, although no fault was injected"
        ))
    }

    fn read(&self, address: SocketAddr, first: usize) -> Result<Vec<Operation>, String> {
        let histories = &self.histories[first..];
        let names: Vec<String> = histories
            .iter()
            .map(|history| history.start.name.clone())
            .collect();
        let now = || u64::try_from(self.clock.elapsed().as_micros()).unwrap_or(u64::MAX);
        let requested = now();
        let seen = load::read(address, &names)?;
        let answered = Some(now());
        let reads = histories.iter().zip(seen).map(|(history, seen)| {
            let action = Action::Read(state(&history.start.name, seen)?);
            Ok(Operation {
                client: 0,
                action,
                requested,
                answered,
            })
        });
        reads.collect()
    }

    /// Decides whether the histories of a round have an order. Keeps the history of the first record that has none.
    fn check(&mut self, first: usize) -> Result<(), String> {
        for history in &self.histories[first..] {
            self.report.checked += history.operations.len() as u64;
            history
                .check()
                .inspect_err(|_| self.members.note(&history.lines()))?;
        }
        Ok(())
    }

    /// Stops all nodes, reads all records from the store itself, and decides once more whether the histories have an order.
    fn end(&mut self) -> Result<(), String> {
        for index in 0..self.members.count() {
            self.members.stop(index)?;
        }
        let names: Vec<&str> = self
            .histories
            .iter()
            .map(|history| history.start.name.as_str())
            .collect();
        let mut reader = store::Reader::open(&self.settings.store)?;
        let stored = reader.read(&names)?;
        self.report.stored = stored.len() as u64;
        let now = u64::try_from(self.clock.elapsed().as_micros()).unwrap_or(u64::MAX);
        for (history, stored) in self.histories.iter_mut().zip(stored) {
            let state = state(&history.start.name, stored)?;
            let is_known = |operation: &Operation| operation.action == Action::Read(state);
            let is_unchanged = history.operations.last().is_some_and(is_known);
            history.operations.push(Operation {
                client: 0,
                action: Action::Read(state),
                requested: now,
                answered: Some(now),
            });
            if !is_unchanged {
                history
                    .check()
                    .map_err(|fault| format!("read from the store after the last stop: {fault}"))?;
            }
        }
        Ok(())
    }

    fn into_report(mut self) -> Report {
        for client in &self.clients {
            self.report.clients += client.figures;
        }
        self.report.events = self.events.figures();
        self.report.rejoins = self.members.rejoin_count();
        self.report
    }
}

/// The state of a record as it was read.
fn state(name: &str, read: Option<ReadRecord>) -> Result<State, String> {
    let Some(read) = read else {
        return Err(format!(
            "{name}: is missing, although it was created and never removed"
        ));
    };
    Ok(State {
        version: read.version,
        value: value_of(name, &read.text)?,
    })
}

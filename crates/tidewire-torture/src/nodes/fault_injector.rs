//! Injects faults into the nodes of a cluster, its network and its servers, and waits until it has recovered.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::super::pulse::Pulse;
use super::super::random::Random;
use super::ClusterSettings;
use super::members::Members;
use super::network::Place;
use super::probe::Probe;
use super::report::{Fault, Report};

/// The answers before a fault: the minimum, and the range of the random rest.
const ANSWERED: (u64, u64) = (100, 400);
/// The cluster answers requests within this time when no fault is injected, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// A node that is silent for less than this time is not suspect.
const SHORT_MAX: Duration = Duration::from_millis(1_400);
/// The longest cut. A node is evicted after at most 5 s.
const CUT_MAX: Duration = Duration::from_secs(6);
/// The longest time between the end of a node and its next start, or by which a silence outlasts the eviction.
const LATER_MAX: Duration = Duration::from_millis(1_500);

/// The parts that the injection of faults needs.
pub(super) struct FaultInjector<'a> {
    pub(super) settings: &'a ClusterSettings,
    pub(super) members: &'a mut Members,
    pub(super) probe: &'a mut Probe,
    pub(super) pulse: &'a Pulse,
    /// How many requests of each client were answered.
    pub(super) answered: &'a [AtomicU64],
    pub(super) random: &'a mut Random,
    pub(super) report: &'a mut Report,
}

impl FaultInjector<'_> {
    /// Waits while the load runs, injects the fault, repairs what it did, and waits until the cluster and all clients are back.
    ///
    /// # Errors
    /// The cluster broke a promise.
    pub(super) fn run(&mut self, fault: Fault) -> Result<(), String> {
        let count = ANSWERED.0 + self.random.below(ANSWERED.1);
        if !self.pulse.await_more(count, PATIENCE) {
            return Err(self.pulse.fault().unwrap_or_else(|| {
                format!("the nodes did not answer {count} requests within {PATIENCE:?}")
            }));
        }
        let node = self.below(self.members.count());
        let what = match fault.has_node() {
            true => format!("{} of node {}", fault.name(), node + 1),
            false => fault.name().to_owned(),
        };
        self.members.note(&what);
        let start = Instant::now();
        self.inject(fault, node)
            .and_then(|()| {
                self.report.add(fault);
                self.members.await_all()?;
                self.await_clients()
            })
            .map_err(|error| format!("{what}: {error}"))?;
        let seconds = start.elapsed().as_secs_f64();
        println!("{what:<28} recovered after {seconds:.1} s");
        self.pulse.fault().map_or(Ok(()), Err)
    }

    fn inject(&mut self, fault: Fault, node: usize) -> Result<(), String> {
        match fault {
            Fault::Kill => self.kill(node),
            Fault::KillStopped => {
                self.members.signal(node, Signal::STOP);
                self.pause(SHORT_MAX);
                self.kill(node)
            }
            Fault::ShortStop => {
                self.members.signal(node, Signal::STOP);
                self.pause(SHORT_MAX);
                self.members.signal(node, Signal::CONT);
                Ok(())
            }
            Fault::LongStop => {
                let silenced = self.silence(node, |members| members.signal(node, Signal::STOP));
                self.members.signal(node, Signal::CONT);
                silenced
            }
            Fault::CutFromAll => {
                let silenced = self.silence(node, |members| {
                    members.isolate(node);
                    members.network.cut(Place::Node(node), Place::Store);
                });
                self.members.network.restore();
                silenced
            }
            Fault::CutOneWay => {
                let to = match self.settings.link {
                    Some(_) => Place::Broker,
                    None => Place::Node(self.other_than(node)),
                };
                self.members.network.cut_one_way(Place::Node(node), to);
                self.restore_later()
            }
            Fault::CutFromNodes => {
                self.members.isolate(node);
                self.restore_later()
            }
            Fault::CutFromStore => {
                self.members.network.cut(Place::Node(node), Place::Store);
                self.restore_later()
            }
            Fault::ResetStore => {
                self.members.network.reset(Place::Store);
                Ok(())
            }
            Fault::Drain => {
                self.members.stop(node)?;
                self.pause(LATER_MAX);
                self.members.run(node)
            }
            Fault::RestartStore => run(self.settings.restart_store.as_deref()),
            Fault::RestartLink => run(self.settings.restart_link.as_deref()),
        }
    }

    /// Kills a node, measures how long its names can't be written, and starts it again.
    fn kill(&mut self, node: usize) -> Result<(), String> {
        let others = self.others(node);
        let peer = self.probe.connect(&others)?;
        let start = Instant::now();
        self.members.kill(node);
        let time = self.probe.write_all(peer, &others, start)?;
        self.report.writable_after_kill(time);
        self.pause(LATER_MAX);
        self.members.run(node)
    }

    /// Makes a node silent, measures how long its names can't be written, and leaves it silent for a little longer.
    fn silence(&mut self, node: usize, begin: impl FnOnce(&Members)) -> Result<(), String> {
        let others = self.others(node);
        let peer = self.probe.connect(&others)?;
        let start = Instant::now();
        begin(self.members);
        let time = self.probe.write_all(peer, &others, start)?;
        self.report.writable_after_silence(time);
        self.pause(LATER_MAX);
        Ok(())
    }

    fn restore_later(&mut self) -> Result<(), String> {
        self.pause(CUT_MAX);
        self.members.network.restore();
        Ok(())
    }

    /// Waits until each client has an answer to a request that it made after the fault.
    fn await_clients(&self) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        // The next answer may be to an earlier request; the one after it is not.
        let enough: Vec<u64> = self.answered.iter().map(|count| load(count) + 2).collect();
        loop {
            let missing = std::iter::zip(self.answered, &enough)
                .position(|(count, enough)| load(count) < *enough);
            let Some(client) = missing else {
                return Ok(());
            };
            if Instant::now() > deadline {
                return Err(format!(
                    "client {} has no answers {PATIENCE:?} after the fault",
                    client + 1
                ));
            }
            if let Some(fault) = self.pulse.fault() {
                return Err(fault);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.random.below(bound as u64)).unwrap_or(0)
    }

    fn other_than(&mut self, node: usize) -> usize {
        let count = self.members.count();
        (node + 1 + self.below(count - 1)) % count
    }

    /// The addresses of the other nodes, from a random one on.
    fn others(&mut self, node: usize) -> Vec<SocketAddr> {
        let first = self.other_than(node);
        let mut addresses = self.members.addresses();
        addresses.rotate_left(first);
        let count = addresses.len();
        addresses.remove((node + count - first) % count);
        addresses
    }

    fn pause(&mut self, longest: Duration) {
        self.pulse.pause(self.random.pause(longest));
    }
}

fn load(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

/// Runs a command of the operator.
fn run(command: Option<&str>) -> Result<(), String> {
    let command = command.unwrap_or("true");
    let status = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?} failed: {status}")),
        Err(error) => Err(format!("{command:?} failed: {error}")),
    }
}

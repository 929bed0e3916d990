//! Injects faults into one server under load and ends it.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::disk::{Disk, SmallDisk, Volume};
use super::operation_history::Ending;
use super::proxy::Proxy;
use super::pulse::Pulse;
use super::random::Random;
use super::run_report::{Fault, Tally};
use super::server::Server;
use super::syncs::Syncs;

/// The acknowledgements before the end of a round: the minimum, and the range of the random rest. The first writes still create
/// their records.
const ACKNOWLEDGED: (u64, u64) = (30, 400);
/// The longest random pause before the end, so that the end comes at any time between two acknowledgements.
const LATER: Duration = Duration::from_millis(25);
/// A round injects fewer faults than this before its end.
const TROUBLES_MAX: u64 = 4;
/// The longest time that a server stays stopped by SIGSTOP.
const STOP_MAX: Duration = Duration::from_millis(60);
/// The longest time that a disk continues to fail after the server has noticed.
const FAILING_MAX: Duration = Duration::from_millis(300);
/// A healthy server acknowledges a write within this time, even on a busy machine. The longest pause between two attempts to
/// commit is 5 s.
const PATIENCE: Duration = Duration::from_secs(30);
/// A server under load notices a failing disk within this time, unless it is broken on purpose.
const NOTICE_TIMEOUT: Duration = Duration::from_secs(3);
/// How often the test checks whether the server has noticed.
const NOTICE_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The server's counter of failed commits.
const FAILED_COMMITS: &str = "tidewire_store_failed_commits_total";

/// The fault that ends a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InjectedFault {
    /// The round ends with SIGKILL.
    Kill,
    /// The round ends with SIGKILL while the server is stopped by SIGSTOP.
    KillStopped,
    /// The round ends with a power cut.
    PowerCut,
    /// The round ends with SIGTERM, as an operator stops a server.
    Drain,
    /// Syncs fail. The round ends with a crash while they fail, or after the server has recovered.
    FailSyncs,
    /// The disk is full. The round ends with a kill while it is full, or after the server has recovered.
    FillDisk,
}

/// The parts that the injection of faults needs.
pub(super) struct FaultInjector<'a> {
    pub(super) pulse: &'a Pulse,
    pub(super) proxy: &'a Proxy,
    pub(super) disk: &'a Disk,
    pub(super) syncs: Option<&'a Syncs>,
    pub(super) tally: &'a mut Tally,
    pub(super) random: &'a mut Random,
}

impl FaultInjector<'_> {
    /// Waits while the load runs, injects faults and ends the server.
    ///
    /// # Errors
    /// The server broke a promise.
    pub(super) fn run(
        mut self,
        fault: InjectedFault,
        mut server: Server,
    ) -> Result<Ending, String> {
        let (least, span) = ACKNOWLEDGED;
        let count = least + self.random.below(span);
        self.await_more(count, &mut server)?;
        for _ in 0..self.random.below(TROUBLES_MAX) {
            self.trouble(&server);
            let count = 1 + self.random.below(least);
            self.await_more(count, &mut server)?;
        }
        self.pulse.pause(self.random.pause(LATER));
        match (fault, self.disk, self.syncs) {
            (InjectedFault::Drain, ..) => {
                server.stop()?;
                self.tally.add(Fault::Drain, 1);
                return Ok(Ending::Clean);
            }
            (InjectedFault::KillStopped, ..) => {
                self.stop(&server);
                self.kill(server);
            }
            (InjectedFault::PowerCut, Disk::Volume(volume), _) => self.cut_power(volume, server)?,
            (InjectedFault::FailSyncs, _, Some(syncs)) => self.fail_syncs(syncs, server)?,
            (InjectedFault::FillDisk, Disk::Small(disk), _) => self.fill_disk(disk, server)?,
            (
                InjectedFault::Kill
                | InjectedFault::PowerCut
                | InjectedFault::FailSyncs
                | InjectedFault::FillDisk,
                ..,
            ) => self.kill(server),
        }
        Ok(Ending::Crash)
    }

    /// Injects a fault that the server and its clients must survive: a short stop, or cut connections.
    fn trouble(&mut self, server: &Server) {
        if self.random.one_in(2) {
            self.stop(server);
            server.signal(Signal::CONT);
            return;
        }
        let random = &mut *self.random;
        let count = self.proxy.cut(|| random.one_in(2));
        self.tally.add(Fault::CutConnection, count);
    }

    fn stop(&mut self, server: &Server) {
        server.signal(Signal::STOP);
        self.tally.add(Fault::Stop, 1);
        self.pulse.pause(self.random.pause(STOP_MAX));
    }

    fn kill(&mut self, server: Server) {
        server.kill();
        self.tally.add(Fault::Kill, 1);
    }

    /// Cuts the power of the disk and of the server at the same moment. The server must send nothing after the cut: a machine without
    /// power could not, and ext4 may report success for a sync that the cut interrupted.
    fn cut_power(&mut self, volume: &Volume, server: Server) -> Result<(), String> {
        server.freeze()?;
        volume.cut()?;
        server.kill();
        self.tally.add(Fault::PowerCut, 1);
        volume.recover()
    }

    /// Ends the server with a power cut, if its disk allows that, or a kill.
    fn crash(&mut self, server: Server) -> Result<(), String> {
        match self.disk {
            Disk::Volume(volume) if self.random.one_in(2) => self.cut_power(volume, server),
            _ => {
                self.kill(server);
                Ok(())
            }
        }
    }

    fn fail_syncs(&mut self, syncs: &Syncs, mut server: Server) -> Result<(), String> {
        let percent = if self.random.one_in(2) {
            100
        } else {
            10 + self.random.below(80)
        };
        syncs.fail(server.id(), percent)?;
        let count = self.await_failures(&server);
        self.pulse.pause(self.random.pause(FAILING_MAX));
        self.tally
            .add(Fault::FailedSync, server.counter(FAILED_COMMITS).max(count));
        if self.random.one_in(2) {
            syncs.repair(server.id())?;
            self.await_recovery(&mut server)?;
        }
        self.crash(server)
    }

    fn fill_disk(&mut self, disk: &SmallDisk, mut server: Server) -> Result<(), String> {
        disk.fill()?;
        let count = self.await_failures(&server);
        self.pulse.pause(self.random.pause(FAILING_MAX));
        self.tally.add(Fault::FullDisk, u64::from(count > 0));
        if self.random.one_in(2) {
            disk.clear();
            self.await_recovery(&mut server)?;
        }
        self.kill(server);
        // The server can't start on a full disk.
        disk.clear();
        Ok(())
    }

    /// Waits until a commit of the server has failed. Returns the number of failed commits.
    fn await_failures(&self, server: &Server) -> u64 {
        let deadline = Instant::now() + NOTICE_TIMEOUT;
        loop {
            let count = server.counter(FAILED_COMMITS);
            if count > 0 || Instant::now() > deadline || self.pulse.fault().is_some() {
                return count;
            }
            self.pulse.pause(NOTICE_POLL_INTERVAL);
        }
    }

    /// Waits until the server acknowledges writes again without a restart.
    fn await_recovery(&mut self, server: &mut Server) -> Result<(), String> {
        let count = 1 + self.random.below(ACKNOWLEDGED.0);
        self.await_more(count, server)
    }

    /// Waits for `count` more acknowledgements, or for the first broken promise.
    fn await_more(&self, count: u64, server: &mut Server) -> Result<(), String> {
        if self.pulse.await_more(count, PATIENCE) {
            return Ok(());
        }
        if let Some(fault) = self.pulse.fault() {
            return Err(fault);
        }
        match server.ended() {
            Some(how) => Err(format!("the server ended by itself with {how}")),
            None => Err(format!(
                "the server did not acknowledge {count} writes within {PATIENCE:?}"
            )),
        }
    }
}

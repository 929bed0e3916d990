//! A data folder with its load and the end of its last server. A round starts a server in the folder, checks the stored records and
//! events, runs the load, injects faults and ends the server.

use std::path::PathBuf;

use super::broken_store::MARK;
use super::disk::Disk;
use super::fault_injector::{FaultInjector, InjectedFault};
use super::load::Load;
use super::operation_history::Ending;
use super::proxy::{Proxy, Targets};
use super::pulse::Pulse;
use super::random::Random;
use super::run_report::Tally;
use super::server::{Launch, Server};
use super::syncs::Syncs;

/// The test checks all stored records once in this many rounds.
const CHECK_EVERY: u64 = 8;

/// A data folder and its state over all rounds.
pub(super) struct Site {
    launch: Launch,
    disk: Disk,
    /// Makes syncs fail, if the system has the tool for it.
    syncs: Option<Syncs>,
    pub(super) load: Load,
    /// How its last server ended.
    ending: Ending,
    random: Random,
    rounds: u64,
}

impl Site {
    /// Makes the data folder.
    ///
    /// # Errors
    /// The folder can't be made.
    pub(super) fn make(
        launch: Launch,
        disk: Disk,
        syncs: Option<Syncs>,
        seed: u64,
    ) -> Result<Self, String> {
        let made = std::fs::create_dir_all(&launch.data)
            .and_then(|()| std::fs::write(launch.data.join(MARK), ""));
        made.map_err(|error| format!("can't create {}: {error}", launch.data.display()))?;
        Ok(Self {
            launch,
            disk,
            syncs,
            load: Load::new(seed),
            ending: Ending::Crash,
            random: Random::new(seed, 1),
            rounds: 0,
        })
    }

    /// The data folder.
    pub(super) fn data(&self) -> &PathBuf {
        &self.launch.data
    }

    /// Starts a server, checks its data, runs the load and ends the server.
    ///
    /// # Errors
    /// The server broke a promise.
    pub(super) fn round(
        &mut self,
        fault: InjectedFault,
        proxy: &Proxy,
        tally: &mut Tally,
    ) -> Result<(), String> {
        self.rounds += 1;
        if self.rounds.is_multiple_of(CHECK_EVERY) {
            self.check_store()?;
        }
        self.launch
            .note(&format!("round {}: {fault:?}", self.rounds));
        let launcher = self
            .syncs
            .as_ref()
            .filter(|_| fault == InjectedFault::FailSyncs);
        let server = self.start(launcher.map(Syncs::launcher).unwrap_or_default())?;
        let targets = Targets {
            direct: server.address,
            proxied: proxy.address(),
        };
        proxy.lead_to(Some(server.address));
        let pulse = Pulse::default();
        let injector = FaultInjector {
            pulse: &pulse,
            proxy,
            disk: &self.disk,
            syncs: self.syncs.as_ref(),
            tally,
            random: &mut self.random,
        };
        let ended = self.load.during(targets, &pulse, || {
            let ended = injector.run(fault, server);
            proxy.lead_to(None);
            proxy.cut(|| true);
            pulse.end();
            ended
        });
        self.ending = ended?;
        pulse.fault().map_or(Ok(()), Err)
    }

    /// Starts a server, checks its data and kills it.
    ///
    /// # Errors
    /// A server broke a promise.
    pub(super) fn verify(&mut self) -> Result<(), String> {
        self.check_store()?;
        self.start(Vec::new()).map(Server::kill)
    }

    fn start(&mut self, launcher: Vec<String>) -> Result<Server, String> {
        let launch = Launch {
            launcher,
            ..self.launch.clone()
        };
        let server = Server::start(&launch)?;
        self.load.verify(server.address, self.ending)?;
        Ok(server)
    }

    /// Checks all stored records while no server runs.
    fn check_store(&self) -> Result<(), String> {
        if self.rounds < 2 {
            return Ok(());
        }
        let report = tidewire_store::check(self.data()).map_err(|error| error.to_string())?;
        match report.is_sound() {
            true => Ok(()),
            false => Err(format!("the stored records are damaged: {report}")),
        }
    }
}

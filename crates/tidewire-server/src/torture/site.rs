//! A data folder and all that is known of it: what works on it, and how its last server has ended. A round starts a server in
//! it, checks what is there, lets it work, torments it and ends it.

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;

use super::book::Ending;
use super::dice::Dice;
use super::load::{Doors, Load};
use super::proxy::Proxy;
use super::pulse::Pulse;
use super::sabotage::MARK;
use super::server::{Launch, Server};
use super::verdict::{Fault, Tally};

/// Acknowledgements before a round's end; the first ones come while records are still being created.
const ACKNOWLEDGED: (u64, u64) = (30, 400);
/// Up to this long after an acknowledgement, so that the end falls anywhere between two of them.
const LATER: Duration = Duration::from_millis(25);
/// Troubles before the end of a round, at most.
const TROUBLES_MAX: u64 = 4;
/// How long a stopped server stays so, at most.
const STOP_MAX: Duration = Duration::from_millis(60);
/// A healthy server acknowledges something within this time, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// Everything stored is looked at once in so many rounds.
const CHECK_EVERY: u64 = 8;

/// How a round ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Card {
    /// With SIGKILL.
    Kill,
    /// With SIGKILL, while the server is stopped.
    KillStopped,
    /// With SIGTERM, as an operator stops it.
    Drain,
}

/// The data folder of a server, and its history.
pub(super) struct Site {
    launch: Launch,
    pub(super) load: Load,
    /// How its last server has ended.
    ending: Ending,
    dice: Dice,
    rounds: u64,
}

impl Site {
    /// Makes the data folder.
    ///
    /// # Errors
    /// The folder can't be made.
    pub(super) fn make(launch: Launch, seed: u64) -> Result<Self, String> {
        let made = std::fs::create_dir_all(&launch.data)
            .and_then(|()| std::fs::write(launch.data.join(MARK), ""));
        made.map_err(|error| format!("{}: can't be made: {error}", launch.data.display()))?;
        Ok(Self {
            launch,
            load: Load::new(seed),
            ending: Ending::Crash,
            dice: Dice::new(seed, 1),
            rounds: 0,
        })
    }

    /// Where its data lies.
    pub(super) fn data(&self) -> &PathBuf {
        &self.launch.data
    }

    /// Starts a server, checks what it has, lets it work and ends it.
    ///
    /// # Errors
    /// The promise that it broke.
    pub(super) fn round(
        &mut self,
        card: Card,
        proxy: &Proxy,
        tally: &mut Tally,
    ) -> Result<(), String> {
        self.rounds += 1;
        if self.rounds.is_multiple_of(CHECK_EVERY) {
            self.check_store()?;
        }
        let server = self.start()?;
        let doors = Doors {
            direct: server.address,
            proxied: proxy.address(),
        };
        proxy.lead_to(Some(server.address));
        let pulse = Pulse::default();
        let torment = Torment {
            pulse: &pulse,
            proxy,
            tally,
            dice: &mut self.dice,
        };
        let ended = self.load.during(doors, &pulse, || {
            let ended = torment.run(card, server);
            proxy.lead_to(None);
            proxy.cut(|| true);
            pulse.end();
            ended
        });
        self.ending = ended?;
        pulse.fault().map_or(Ok(()), Err)
    }

    /// Starts a server and checks what it has.
    ///
    /// # Errors
    /// The promise that was broken.
    pub(super) fn verify(&mut self) -> Result<(), String> {
        self.check_store()?;
        self.start().map(Server::kill)
    }

    fn start(&mut self) -> Result<Server, String> {
        let server = Server::start(&self.launch)?;
        self.load.verify(server.address, self.ending)?;
        Ok(server)
    }

    /// Looks at everything that is stored while no server runs.
    fn check_store(&self) -> Result<(), String> {
        if self.rounds < 2 {
            return Ok(());
        }
        let report = crate::store::check(self.data()).map_err(|error| error.to_string())?;
        match report.is_sound() {
            true => Ok(()),
            false => Err(format!("the stored records are damaged: {report}")),
        }
    }
}

/// What is done to one server.
struct Torment<'a> {
    pulse: &'a Pulse,
    proxy: &'a Proxy,
    tally: &'a mut Tally,
    dice: &'a mut Dice,
}

impl Torment<'_> {
    fn run(mut self, card: Card, mut server: Server) -> Result<Ending, String> {
        let (least, span) = ACKNOWLEDGED;
        let count = least + self.dice.below(span);
        self.await_more(count, &mut server)?;
        for _ in 0..self.dice.below(TROUBLES_MAX) {
            self.trouble(&server);
            let count = 1 + self.dice.below(least);
            self.await_more(count, &mut server)?;
        }
        self.pulse.pause(self.dice.pause(LATER));
        match card {
            Card::Kill => {
                server.kill();
                self.tally.add(Fault::Kill, 1);
            }
            Card::KillStopped => {
                self.stop(&server);
                server.kill();
                self.tally.add(Fault::Kill, 1);
            }
            Card::Drain => {
                server.stop()?;
                self.tally.add(Fault::Drain, 1);
                return Ok(Ending::Clean);
            }
        }
        Ok(Ending::Crash)
    }

    /// What a server and its clients get over.
    fn trouble(&mut self, server: &Server) {
        if self.dice.one_in(2) {
            self.stop(server);
            server.signal(Signal::CONT);
            return;
        }
        let dice = &mut *self.dice;
        let count = self.proxy.cut(|| dice.one_in(2));
        self.tally.add(Fault::CutConnection, count);
    }

    fn stop(&mut self, server: &Server) {
        server.signal(Signal::STOP);
        self.tally.add(Fault::Stop, 1);
        self.pulse.pause(self.dice.pause(STOP_MAX));
    }

    /// Waits for so many acknowledgements, or for the first broken promise.
    fn await_more(&self, count: u64, server: &mut Server) -> Result<(), String> {
        if self.pulse.await_more(count, PATIENCE) {
            return Ok(());
        }
        if let Some(fault) = self.pulse.fault() {
            return Err(fault);
        }
        match server.ended() {
            Some(how) => Err(format!("the server has ended by itself with {how}")),
            None => Err(format!(
                "the server has not acknowledged {count} writes within {PATIENCE:?}"
            )),
        }
    }
}

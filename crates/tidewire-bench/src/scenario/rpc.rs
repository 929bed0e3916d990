//! Requests per second: some connections call one rpc, others provide it and answer with its argument.

use std::time::{Duration, Instant};

use clap::{ArgMatches, Command};

use super::{Scenario, unexpected};
use crate::arguments;
use crate::connection::Subscription;
use crate::driver::Incoming;
use crate::failure::Failure;
use crate::meter::Meter;
use crate::result::{Cell, Status};
use crate::swarm::Swarm;
use crate::target::Target;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "rpc",
    about: "Requests per second from callers to providers and back",
    arguments,
    is_pinned: true,
    run,
};

/// The rpc.
const NAME: &str = "bench/rpc";
/// Part of the requests that only warms up.
const WARM_UP_PART: u64 = 20;

fn arguments(command: Command) -> Command {
    super::cell_arguments(arguments::server_arguments(command, "1"))
        .arg(arguments::number("callers", "10", "Connections that call"))
        .arg(arguments::number(
            "providers",
            "10",
            "Connections that answer",
        ))
        .arg(arguments::number(
            "pending",
            "10",
            "Unanswered requests of each caller",
        ))
        .arg(arguments::number("requests", "100000", "Total requests"))
}

fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let calls = Calls {
        callers: arguments::take_count(matches, "callers", 1)?,
        providers: arguments::take_count(matches, "providers", 1)?,
        pending: arguments::take_count(matches, "pending", 1)?,
        count: arguments::take_count(matches, "requests", 1)? as u64,
        patience: super::take_patience(matches)?,
        time_max: super::take_time_max(matches)?,
    };
    super::measure(matches, true, |target| {
        super::require(target, target.protocol.abilities().rpc, "rpc")?;
        Ok(vec![calls.run(target)?])
    })
}

/// Requests and responses.
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    /// Connections that call.
    pub callers: usize,
    /// Connections that answer.
    pub providers: usize,
    /// Unanswered requests of each caller.
    pub pending: usize,
    /// Requests in all.
    pub count: u64,
    /// If nothing arrives for this time, the rest counts as lost.
    pub patience: Duration,
    /// The cell ends after this time.
    pub time_max: Duration,
}

/// The requests of one caller: numbers from 1, and the unanswered ones.
#[derive(Debug, Default)]
struct Caller {
    sent: u64,
    unanswered: Vec<u64>,
}

impl Caller {
    fn next(&mut self) -> u64 {
        self.sent += 1;
        self.unanswered.push(self.sent);
        self.sent
    }

    /// Whether this is the first answer to one of its requests.
    fn take(&mut self, number: u64) -> bool {
        let index = self.unanswered.iter().position(|&other| other == number);
        index
            .map(|index| self.unanswered.swap_remove(index))
            .is_some()
    }
}

impl Calls {
    /// Calls as fast as answers come.
    ///
    /// # Errors
    /// An answer is missing, doubled or at the wrong caller, or a connection fails.
    pub fn run(&self, target: &Target) -> Result<Cell, Failure> {
        let end = Instant::now() + self.time_max;
        let mut swarm = Swarm::new(target)?;
        swarm.open(self.callers, |_| Subscription::Nothing)?;
        swarm.open(self.providers, |_| Subscription::Rpc(NAME.to_owned()))?;
        let mut callers: Vec<Caller> = (0..self.callers).map(|_| Caller::default()).collect();
        let mut free: Vec<usize> = (0..self.callers * self.pending)
            .map(|index| index % self.callers)
            .collect();
        let warm_up = self.count / WARM_UP_PART;
        let all = warm_up + self.count;
        let (mut sent, mut answered, mut before) = (0, 0, 0);
        let mut meter = Meter::start(target)?;
        let mut is_warm = false;
        while answered < all && Instant::now() < end {
            if !is_warm && answered >= warm_up {
                (is_warm, before, meter) = (true, answered, Meter::start(target)?);
            }
            for caller in free.drain(..) {
                if sent < all {
                    sent += 1;
                    let number = callers[caller].next();
                    swarm.send(caller, |driver, out| driver.call(NAME, number, out))?;
                }
            }
            let deadline = Instant::now() + self.patience;
            swarm.receive(
                deadline,
                "responses",
                |connection, incoming| match incoming {
                    Incoming::Served if connection >= self.callers => Ok(()),
                    Incoming::Response { number }
                        if callers
                            .get_mut(connection)
                            .is_some_and(|caller| caller.take(number)) =>
                    {
                        answered += 1;
                        free.push(connection);
                        Ok(())
                    }
                    other => Err(unexpected(connection, other)),
                },
            )?;
        }
        let usage = meter.read()?;
        let name = format!("{} x {} to {}", self.callers, self.pending, self.providers);
        let mut cell = Cell::new("rpc", name, target.protocol.name(), &usage);
        if answered < all {
            cell.status = Status::OverTime;
        }
        cell.set_rate("requests", answered - before, &usage);
        Ok(cell)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_once_and_only_to_its_caller() {
        let mut caller = Caller::default();
        assert_eq!((caller.next(), caller.next()), (1, 2));
        assert!(caller.take(2));
        assert!(!caller.take(2), "doubled");
        assert!(!caller.take(3), "not its own");
        assert!(caller.take(1) && caller.unanswered.is_empty());
    }
}

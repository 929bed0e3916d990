//! Records: patches of one record to many subscribers, and write acknowledgements, which mean that a write is on disk.
//! The null server has no records, so these figures stand alone and have no threshold.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use clap::{ArgMatches, Command};

use super::{Scenario, unexpected};
use crate::cli::{self, Chosen};
use crate::connection::Subscription;
use crate::driver::Incoming;
use crate::failure::Failure;
use crate::process;
use crate::statistics::per_second;
use crate::swarm::Swarm;
use crate::target::Target;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "records",
    about: "Patches to many subscribers, and writes acknowledged when they are on disk",
    arguments,
    is_pinned: true,
    run,
};

/// The record that is patched.
const PATCHED: &str = "bench/records/patched";
/// Answers come within this time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Patches ahead of the slowest subscriber.
const WINDOW: u64 = 500;

fn arguments(command: Command) -> Command {
    cli::server_arguments(command, "1")
        .arg(cli::number(
            "subscribers",
            "100",
            "Subscribers of the patched record",
        ))
        .arg(cli::number("patches", "20000", "Patches"))
        .arg(cli::number(
            "writers",
            "10",
            "Connections that ask for acks",
        ))
        .arg(cli::number(
            "pending",
            "50",
            "Unacknowledged writes of each",
        ))
        .arg(cli::number("acks", "20000", "Acknowledged writes in all"))
}

fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let subscribers = cli::take_count(matches, "subscribers", 1)?;
    let patches = cli::take_count(matches, "patches", 1)? as u64;
    let writers = cli::take_count(matches, "writers", 1)?;
    let pending = cli::take_count(matches, "pending", 1)?;
    let acks = cli::take_count(matches, "acks", 1)?;
    if acks < writers * pending {
        let what = "there must be at least as many acks as writers x pending";
        return Err(Failure::Argument(what.to_owned()));
    }
    let server = Chosen::from_arguments(matches, true)?;
    println!("machine: {}", process::machine());

    let time = patch_many(server.target(), subscribers, patches)?;
    println!(
        "records: {:.0} patches in a second to {subscribers} subscribers, {:.2} million deliveries in a second, each version once and in order",
        per_second(patches, time).unwrap_or_default(),
        per_second(patches * subscribers as u64, time).unwrap_or_default() / 1e6
    );
    let time = write_acknowledged(server.target(), writers, pending, acks)?;
    println!(
        "records: {:.0} acknowledged writes in a second by {writers} connections with {pending} pending each",
        per_second(acks as u64, time).unwrap_or_default()
    );
    Ok(())
}

/// The time in which `patches` patches of one connection reach all subscribers.
fn patch_many(target: &Target, subscribers: usize, patches: u64) -> Result<Duration, Failure> {
    let mut swarm = Swarm::new(target)?;
    swarm.open(subscribers, |_| Subscription::Record(PATCHED.to_owned()))?;
    swarm.open(1, |_| Subscription::Nothing)?;
    let patcher = subscribers;
    let mut progress = Progress::new(subscribers);
    let mut sent = 0;
    let start = Instant::now();
    while progress.slowest() < patches {
        let goal = patches.min(progress.slowest() + WINDOW);
        let connection = swarm.connection_mut(patcher);
        while sent < goal {
            sent += 1;
            connection.push(|driver, out| driver.patch(PATCHED, &sent.to_string(), out));
        }
        connection.flush()?;
        swarm.receive(
            Instant::now() + ANSWER_TIMEOUT,
            "patches",
            |connection, incoming| match incoming {
                Incoming::Patched {
                    version, payload, ..
                } => progress.take(connection, version, payload.parse().ok()),
                other => Err(unexpected(connection, other)),
            },
        )?;
    }
    Ok(start.elapsed())
}

/// What each subscriber has seen.
struct Progress {
    /// Patches by subscriber.
    counts: Vec<u64>,
    /// The last version by subscriber.
    versions: Vec<Option<i32>>,
    /// Patches that all have seen.
    slowest: u64,
    /// Subscribers that have seen no more than that.
    at_slowest: usize,
}

impl Progress {
    fn new(subscribers: usize) -> Self {
        Self {
            counts: vec![0; subscribers],
            versions: vec![None; subscribers],
            slowest: 0,
            at_slowest: subscribers,
        }
    }

    /// Patches that all have seen.
    fn slowest(&self) -> u64 {
        self.slowest
    }

    /// A patch to the value `count` has reached a subscriber.
    fn take(
        &mut self,
        subscriber: usize,
        version: Option<i32>,
        count: Option<u64>,
    ) -> Result<(), Failure> {
        let expected = self.counts[subscriber] + 1;
        let last = std::mem::replace(&mut self.versions[subscriber], version);
        let is_next = |(last, version)| last + 1 == version;
        if count != Some(expected) || !last.zip(version).is_none_or(is_next) {
            return Err(Failure::Peer {
                connection: subscriber,
                what: format!(
                    "received patch {count:?} with version {version:?}, not patch {expected} behind version {last:?}"
                ),
            });
        }
        self.counts[subscriber] = expected;
        if expected == self.slowest + 1 {
            self.at_slowest -= 1;
        }
        while self.at_slowest == 0 {
            self.slowest += 1;
            let slowest = self.slowest;
            self.at_slowest = self
                .counts
                .iter()
                .filter(|&&count| count == slowest)
                .count();
        }
        Ok(())
    }
}

/// The time in which `acks` writes are acknowledged, each writer writing a record of its own.
fn write_acknowledged(
    target: &Target,
    writers: usize,
    pending: usize,
    acks: usize,
) -> Result<Duration, Failure> {
    let mut swarm = Swarm::new(target)?;
    swarm.open(writers, |_| Subscription::Nothing)?;
    let names: Vec<String> = (0..writers)
        .map(|number| format!("bench/records/written/{number}"))
        .collect();
    let mut sent = 0;
    let mut unacknowledged = HashSet::new();
    let mut free: Vec<usize> = (0..writers * pending)
        .map(|place| place % writers)
        .collect();
    let start = Instant::now();
    while sent < acks || !unacknowledged.is_empty() {
        for writer in free.drain(..) {
            if sent < acks {
                sent += 1;
                let number = sent as u64;
                let value = format!("{{\"count\":{number}}}");
                swarm.send(writer, |driver, out| {
                    driver.write(&names[writer], &value, Some(number), out);
                })?;
                unacknowledged.insert(number);
            }
        }
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        swarm.receive(deadline, "write acks", |writer, incoming| match incoming {
            Incoming::Written { name, number }
                if *name == names[writer] && unacknowledged.remove(&number) =>
            {
                free.push(writer);
                Ok(())
            }
            other => Err(unexpected(writer, other)),
        })?;
    }
    Ok(start.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_that_of_the_slowest() {
        let mut progress = Progress::new(2);
        progress.take(0, Some(5), Some(1)).unwrap();
        progress.take(0, Some(6), Some(2)).unwrap();
        assert_eq!(progress.slowest(), 0);
        progress.take(1, Some(5), Some(1)).unwrap();
        assert_eq!(progress.slowest(), 1);
        progress.take(1, Some(6), Some(2)).unwrap();
        assert_eq!(progress.slowest(), 2);
    }

    #[test]
    fn what_is_not_the_next_patch_is_found() {
        let check = |version, count| {
            let mut progress = Progress::new(1);
            progress.take(0, Some(1), Some(1)).unwrap();
            assert!(
                progress.take(0, Some(version), count).is_err(),
                "{version} {count:?}"
            );
        };
        check(1, Some(1));
        check(2, Some(3));
        check(3, Some(2));
        check(2, None);
    }
}

//! One connection that writes many records in turn, alone and together with a busy neighbour: fails when the
//! neighbour takes more than a fair part of its speed.
//!
//! The records have different owners, so a server that waits for one owner before it uses the next becomes slow at
//! once when an owner is busy. There are as many neighbours as shards, one busy at a time: connections are spread
//! evenly, so one of them shares the writer's shard and one does not, and the worse of the two counts.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Arg, ArgMatches, Command, value_parser};

use super::{Scenario, unexpected};
use crate::arguments::{self, Chosen};
use crate::connection::Subscription;
use crate::driver::Incoming;
use crate::failure::Failure;
use crate::process;
use crate::statistics::{Summary, per_second};
use crate::swarm::Swarm;
use crate::target::Target;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "fairness",
    about: "Writes of one connection with a busy neighbour; fails below a share of its speed",
    arguments,
    is_pinned: false,
    run,
};

/// Bytes that wait in the generator for a socket, so that the socket is never idle.
const OUTBOX_BYTES: usize = 64 << 10;
/// The time limit for answers to the last queries.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The value of every write.
const VALUE: &str = r#"{"text":"a short text","count":1,"list":[1,2,3]}"#;
/// The event that the neighbours publish without subscribers.
const EVENT: &str = "bench/fairness/event";

fn arguments(command: Command) -> Command {
    arguments::server_arguments(command, "2")
        .arg(arguments::number(
            "records",
            "1000",
            "Records that the writer writes in turn",
        ))
        .arg(arguments::number(
            "neighbours",
            "2",
            "Neighbours, one busy at a time",
        ))
        .arg(arguments::number(
            "phase-ms",
            "500",
            "Milliseconds of a phase",
        ))
        .arg(arguments::number(
            "repetitions",
            "7",
            "Repetitions for each neighbour",
        ))
        .arg(
            Arg::new("share-min")
                .long("share-min")
                .default_value("0.25")
                .value_parser(value_parser!(f64))
                .help("Share of its speed that the writer must keep"),
        )
}

fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let record_count = arguments::take_count(matches, "records", 1)?;
    let neighbour_count = arguments::take_count(matches, "neighbours", 1)?;
    let phase = Duration::from_millis(arguments::take_count(matches, "phase-ms", 1)? as u64);
    let repetitions = arguments::take_count(matches, "repetitions", 1)?;
    let share_min: f64 = arguments::take(matches, "share-min")?;
    let server = Chosen::from_arguments(matches, true)?;
    println!("machine: {}", process::machine());

    let mut neighbours = (0..neighbour_count)
        .map(|number| Writer::open(server.target(), &format!("neighbour{number}"), 1))
        .collect::<Result<Vec<_>, _>>()?;
    let mut writer = Writer::open(server.target(), "writer", record_count)?;
    println!("fairness: one connection, {record_count} records in turn, writes counted by version");
    let mut worst = f64::INFINITY;
    for (number, neighbour) in neighbours.iter_mut().enumerate() {
        let mut rates = Rates::default();
        for _ in 0..repetitions {
            rates.alone.push(writer.write_for(phase)?);
            let (with_neighbour, noise) = write_with_neighbour(&mut writer, neighbour, phase)?;
            rates.with_neighbour.push(with_neighbour);
            rates.noise.push(noise);
        }
        worst = worst.min(rates.report(number)?);
    }
    check_share(worst, share_min)
}

/// The results of the repetitions with one neighbour, in writes per second.
#[derive(Debug, Default)]
struct Rates {
    alone: Vec<f64>,
    with_neighbour: Vec<f64>,
    /// The neighbour's own rate, at the same time.
    noise: Vec<f64>,
}

impl Rates {
    /// Prints them and returns the share that the writer kept.
    fn report(&self, neighbour: usize) -> Result<f64, Failure> {
        let summary = |rates: &[f64]| {
            Summary::of(rates).ok_or_else(|| Failure::Argument("no repetitions".to_owned()))
        };
        let (alone, with_neighbour) = (summary(&self.alone)?, summary(&self.with_neighbour)?);
        let noise = summary(&self.noise)?;
        let share = with_neighbour.median / alone.median;
        println!(
            "with neighbour {neighbour}: {share:.2} of the speed alone; {}, alone {}, the neighbour {}",
            rate(with_neighbour),
            rate(alone),
            rate(noise)
        );
        Ok(share)
    }
}

fn rate(rates: Summary) -> String {
    format!(
        "{:.0} writes/s ({:.0} to {:.0})",
        rates.median, rates.min, rates.max
    )
}

fn check_share(share: f64, share_min: f64) -> Result<(), Failure> {
    // A share that is not a number fails.
    if share >= share_min {
        return Ok(());
    }
    Err(Failure::Threshold(format!(
        "with a busy neighbour, a connection keeps {share:.2} of its speed, less than {share_min}"
    )))
}

/// The rates of the writer and of the neighbour, which is busy from before the first write until after the last.
fn write_with_neighbour(
    writer: &mut Writer,
    neighbour: &mut Writer,
    phase: Duration,
) -> Result<(f64, f64), Failure> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let noise = scope.spawn(|| neighbour.write_until(|| is_over.load(Ordering::Relaxed), true));
        let own = writer.write_for(phase);
        is_over.store(true, Ordering::Relaxed);
        let noise = noise.join();
        let noise = noise.map_err(|_| Failure::Server("the neighbour panicked".to_owned()))?;
        Ok((own?, noise?))
    })
}

/// A connection that writes its own records in turn as fast as the server accepts.
struct Writer {
    swarm: Swarm,
    names: Vec<String>,
    /// The expected version of each record.
    versions: HashMap<String, i32>,
    /// The next record.
    next: usize,
}

impl Writer {
    fn open(target: &Target, name: &str, record_count: usize) -> Result<Self, Failure> {
        let mut swarm = Swarm::new(target)?;
        swarm.open(1, |_| Subscription::Nothing)?;
        let mut writer = Self {
            swarm,
            names: (0..record_count)
                .map(|number| format!("bench/fairness/{name}/{number}"))
                .collect(),
            versions: HashMap::new(),
            next: 0,
        };
        writer.versions = writer.ask_versions()?;
        Ok(writer)
    }

    fn write_for(&mut self, phase: Duration) -> Result<f64, Failure> {
        let end = Instant::now() + phase;
        self.write_until(|| Instant::now() >= end, false)
    }

    /// Writes until `is_over`, then waits until all writes are applied and checks the versions. Returns the rate,
    /// including that wait. With `events` each write is followed by the publication of an event.
    fn write_until(&mut self, is_over: impl Fn() -> bool, events: bool) -> Result<f64, Failure> {
        let start = Instant::now();
        let mut count = 0;
        while !is_over() {
            let connection = self.swarm.connection_mut(0);
            if connection.outbox_bytes() > 0 {
                // It ends by itself when the server does not read for this time.
                let deadline = Instant::now() + ANSWER_TIMEOUT;
                self.swarm
                    .receive(deadline, "room in the socket", |connection, incoming| {
                        Err(unexpected(connection, incoming))
                    })?;
                continue;
            }
            while connection.outbox_bytes() < OUTBOX_BYTES {
                let name = &self.names[self.next];
                connection.push(|driver, out| driver.write(name, VALUE, None, out));
                if events {
                    connection.push(|driver, out| driver.publish(EVENT, VALUE, out));
                }
                if let Some(version) = self.versions.get_mut(name) {
                    *version += 1;
                }
                self.next = (self.next + 1) % self.names.len();
                count += 1;
            }
            connection.flush()?;
        }
        let versions = self.ask_versions()?;
        let elapsed = start.elapsed();
        if let Some((name, expected)) = self
            .versions
            .iter()
            .find(|(name, version)| versions.get(*name) != Some(version))
        {
            let found = versions.get(name);
            return Err(Failure::Server(format!(
                "{name} has version {found:?}, but the writes lead to version {expected}"
            )));
        }
        Ok(per_second(count, elapsed).unwrap_or_default())
    }

    /// The versions of all records, which each owner answers after the writes before; 0 for missing ones.
    fn ask_versions(&mut self) -> Result<HashMap<String, i32>, Failure> {
        let connection = self.swarm.connection_mut(0);
        for name in &self.names {
            connection.push(|driver, out| driver.head(name, out));
        }
        connection.flush()?;
        let mut versions = HashMap::new();
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        while versions.len() < self.names.len() {
            self.swarm.receive(
                deadline,
                "versions",
                |connection, incoming| match incoming {
                    Incoming::Version { name, version } => {
                        versions.insert(name.to_owned(), version.max(0));
                        Ok(())
                    }
                    other => Err(unexpected(connection, other)),
                },
            )?;
        }
        Ok(versions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_below_the_asked_one_fails() {
        assert!(check_share(0.25, 0.25).is_ok());
        assert!(check_share(0.24, 0.25).is_err());
        assert!(check_share(f64::NAN, 0.25).is_err());
    }
}

//! Records: patches to their subscribers, of one record or of many, and write acknowledgements, which mean that a
//! write is on disk. The null server knows records with `--rooms` and stores nothing; its acks are only the upper
//! bound.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use clap::{ArgMatches, Command};

use super::{Scenario, unexpected};
use crate::arguments;
use crate::connection::Subscription;
use crate::driver::Incoming;
use crate::failure::Failure;
use crate::meter::{Meter, Usage};
use crate::result::{Cell, Status};
use crate::swarm::Swarm;
use crate::target::Target;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "records",
    about: "Patches to subscribers, and acknowledged writes",
    arguments,
    is_pinned: true,
    run,
};

/// Patches ahead of those that all subscribers together have received.
const WINDOW: u64 = 500;
/// Part of the patches that only warms up.
const WARM_UP_PART: u64 = 20;

fn arguments(command: Command) -> Command {
    super::cell_arguments(arguments::server_arguments(command, "1"))
        .arg(arguments::number(
            "records",
            "1",
            "Records to patch in turn",
        ))
        .arg(arguments::number(
            "subscribers",
            "100",
            "Subscribers of each record",
        ))
        .arg(arguments::number("patches", "20000", "Patches"))
        .arg(arguments::number(
            "writers",
            "10",
            "Connections that request write acks",
        ))
        .arg(arguments::number(
            "pending",
            "50",
            "Pending writes of each writer",
        ))
        .arg(arguments::number(
            "acks",
            "20000",
            "Total acknowledged writes; may be 0",
        ))
}

fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let patches = Patches {
        records: arguments::take_count(matches, "records", 1)?,
        subscribers: arguments::take_count(matches, "subscribers", 1)?,
        count: arguments::take_count(matches, "patches", 1)? as u64,
        patience: super::take_patience(matches)?,
        time_max: super::take_time_max(matches)?,
    };
    let acks = Acks {
        writers: arguments::take_count(matches, "writers", 1)?,
        pending: arguments::take_count(matches, "pending", 1)?,
        count: arguments::take_count(matches, "acks", 0)?,
        patience: patches.patience,
        time_max: patches.time_max,
    };
    if acks.count > 0 && acks.count < acks.writers * acks.pending {
        let what = "--acks must be at least --writers x --pending, or 0";
        return Err(Failure::Argument(what.to_owned()));
    }
    super::measure(matches, true, |target| {
        super::require(target, target.protocol.abilities().records, "records")?;
        let mut cells = vec![patches.run(target)?];
        if acks.count > 0 {
            cells.push(acks.run(target)?);
        }
        Ok(cells)
    })
}

/// Patches of records to their subscribers.
#[derive(Clone, Copy, Debug)]
pub struct Patches {
    /// Records that are patched in turn.
    pub records: usize,
    /// Subscribers of each, every one a separate connection.
    pub subscribers: usize,
    /// Patches in all.
    pub count: u64,
    /// If nothing arrives for this time, the rest counts as lost.
    pub patience: Duration,
    /// The cell ends after this time.
    pub time_max: Duration,
}

impl Patches {
    /// Patches as fast as all subscribers receive them.
    ///
    /// # Errors
    /// A version or value is skipped, doubled or out of order, or a connection fails.
    pub fn run(&self, target: &Target) -> Result<Cell, Failure> {
        let end = Instant::now() + self.time_max;
        let names: Vec<String> = (0..self.records)
            .map(|record| format!("bench/records/patched/{record}"))
            .collect();
        let connections = self.records * self.subscribers;
        let mut swarm = Swarm::new(target)?;
        swarm.open(connections, |number| {
            Subscription::Record(names[number % self.records].clone())
        })?;
        swarm.open(1, |_| Subscription::Nothing)?;
        let patcher = connections;
        let mut progress = Progress::new(connections);
        let width = self.subscribers as u64;
        let warm_up = self.count / WARM_UP_PART;
        let all = warm_up + self.count;
        let (mut sent, mut before) = (0, 0);
        let mut meter = Meter::start(target)?;
        while progress.received < all * width && Instant::now() < end {
            let is_warm = progress.received >= warm_up * width;
            if is_warm && sent == warm_up {
                meter = Meter::start(target)?;
                before = progress.received;
            }
            let goal = if is_warm { all } else { warm_up };
            let goal = goal.min(progress.received / width + WINDOW);
            let connection = swarm.connection_mut(patcher);
            while sent < goal {
                let record = (sent % self.records as u64) as usize;
                let value = (sent / self.records as u64 + 1).to_string();
                connection.push(|driver, out| driver.patch(&names[record], &value, out));
                sent += 1;
            }
            connection.flush()?;
            let deadline = Instant::now() + self.patience;
            swarm.receive(deadline, "patches", |connection, incoming| match incoming {
                Incoming::Patched {
                    version, payload, ..
                } => progress.take(connection, version, payload.parse().ok()),
                other => Err(unexpected(connection, other)),
            })?;
        }
        let usage = meter.read()?;
        let deliveries = progress.received - before;
        let name = format!("patches of {} x {}", self.records, self.subscribers);
        let mut cell = Cell::new("records", name, target.protocol.name(), &usage);
        cell.status = done(progress.received == all * width);
        cell.set_rate("deliveries", deliveries, &usage);
        cell.set("patches_per_second", usage.per_second(deliveries / width));
        Ok(cell)
    }
}

fn done(is_done: bool) -> Status {
    match is_done {
        true => Status::Complete,
        false => Status::OverTime,
    }
}

/// The progress of each subscriber.
struct Progress {
    /// Patches by subscriber.
    counts: Vec<u64>,
    /// The last version by subscriber.
    versions: Vec<Option<i32>>,
    /// Patches that all together have received.
    received: u64,
}

impl Progress {
    fn new(subscribers: usize) -> Self {
        Self {
            counts: vec![0; subscribers],
            versions: vec![None; subscribers],
            received: 0,
        }
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
                    "received patch {count:?} with version {version:?}, not patch {expected} after version {last:?}"
                ),
            });
        }
        self.counts[subscriber] = expected;
        self.received += 1;
        Ok(())
    }
}

/// Writes that are acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct Acks {
    /// Writing connections, each with a separate record.
    pub writers: usize,
    /// Unacknowledged writes of each.
    pub pending: usize,
    /// Acknowledged writes in all.
    pub count: usize,
    /// If nothing arrives for this time, the rest counts as lost.
    pub patience: Duration,
    /// The cell ends after this time.
    pub time_max: Duration,
}

impl Acks {
    /// Writes as fast as acks come.
    ///
    /// # Errors
    /// An ack is wrong or missing, or a connection fails.
    pub fn run(&self, target: &Target) -> Result<Cell, Failure> {
        let end = Instant::now() + self.time_max;
        let Self {
            writers, pending, ..
        } = *self;
        let mut swarm = Swarm::new(target)?;
        swarm.open(writers, |_| Subscription::Nothing)?;
        let names: Vec<String> = (0..writers)
            .map(|number| format!("bench/records/written/{number}"))
            .collect();
        let mut sent = 0;
        let mut unacknowledged = HashSet::new();
        let mut free: Vec<usize> = (0..writers * pending)
            .map(|index| index % writers)
            .collect();
        let meter = Meter::start(target)?;
        while (sent < self.count || !unacknowledged.is_empty()) && Instant::now() < end {
            for writer in free.drain(..) {
                if sent < self.count {
                    sent += 1;
                    let number = sent as u64;
                    let value = format!("{{\"count\":{number}}}");
                    swarm.send(writer, |driver, out| {
                        driver.write(&names[writer], &value, Some(number), out);
                    })?;
                    unacknowledged.insert(number);
                }
            }
            let deadline = Instant::now() + self.patience;
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
        let usage: Usage = meter.read()?;
        let acks = (sent - unacknowledged.len()) as u64;
        let name = format!("acks of {writers} x {pending}");
        let mut cell = Cell::new("records", name, target.protocol.name(), &usage);
        cell.status = done(acks == self.count as u64);
        cell.set_rate("acks", acks, &usage);
        Ok(cell)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_that_of_all_together() {
        let mut progress = Progress::new(2);
        progress.take(0, Some(5), Some(1)).unwrap();
        progress.take(0, Some(6), Some(2)).unwrap();
        progress.take(1, Some(5), Some(1)).unwrap();
        assert_eq!(progress.received, 3);
        // A protocol without versions.
        progress.take(1, None, Some(2)).unwrap();
        assert_eq!(progress.received, 4);
    }

    #[test]
    fn a_patch_out_of_order_is_found() {
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

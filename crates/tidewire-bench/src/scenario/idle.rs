//! Idle connections: the server's memory for each. Each is logged in as a separate user and subscribed to one common
//! and one private name. Measured after a while with heartbeats, and after many others have connected and
//! disconnected.

use std::time::{Duration, Instant};

use clap::{ArgMatches, Command};

use super::{Scenario, first_part};
use crate::arguments;
use crate::connection::Subscription;
use crate::delivery_log::DeliveryLog;
use crate::driver::Incoming;
use crate::failure::Failure;
use crate::meter::Meter;
use crate::payload::Content;
use crate::process::Memory;
use crate::result::{Cell, Status};
use crate::swarm::Swarm;
use crate::target::Target;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "idle",
    about: "Memory of idle connections, with heartbeats and after churn; then one publication to all",
    arguments,
    is_pinned: true,
    run,
};

/// The common name.
const COMMON: &str = "bench/idle";
/// Connections that churn at the same time.
const CHURN_WIDTH: usize = 250;
/// The churn runs in parts, between which the idle connections send their heartbeats.
const CHURN_PART: usize = 2500;
/// Much less than a server's heartbeat timeout: with TLS on a busy machine a part would take longer.
const CHURN_PART_TIME: Duration = Duration::from_secs(2);
/// This many are opened between two checks of the time: a second's work of a slow server.
const OPENING_PART: usize = 250;
/// Connections before the first reading, so that the server's one-time setup does not count.
const WARM_UP_MAX: usize = 1000;
/// A delivery that has not arrived after this time is lost.
const PATIENCE: Duration = Duration::from_secs(30);

fn arguments(command: Command) -> Command {
    super::cell_arguments(arguments::server_arguments(command, "1"))
        .arg(arguments::number("connections", "10000", "Connections"))
        .arg(arguments::number(
            "seconds",
            "60",
            "Seconds of idling before the memory is read",
        ))
        .arg(arguments::number(
            "churn",
            "100000",
            "Connections that connect and disconnect afterwards; may be 0",
        ))
        .arg(arguments::flag(
            "one-user",
            "All connections log in as one user, so that the difference to the usual run is the memory of a user",
        ))
}

/// The parameters of the mode.
#[derive(Clone, Copy, Debug)]
pub struct Idle {
    /// Connections that are measured.
    pub connections: usize,
    /// How long they idle before the memory is read.
    pub time: Duration,
    /// The number of others that connect and disconnect afterwards.
    pub churn: usize,
    /// The time limit of everything. If only the waiting fits, further connections and churn are skipped.
    pub time_max: Duration,
}

fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let idle = Idle {
        connections: arguments::take_count(matches, "connections", 2)?,
        time: Duration::from_secs(arguments::take(matches, "seconds")?),
        churn: arguments::take_count(matches, "churn", 0)?,
        time_max: super::take_time_max(matches)?,
    };
    let has_one_user = matches.get_flag("one-user");
    super::measure(matches, true, |target| {
        let mut target = target.clone();
        target.link.has_one_user = has_one_user;
        Ok(vec![idle.run(&target)?])
    })
}

impl Idle {
    /// Opens the connections, waits and reads the memory; runs the churn, waits and reads the memory again.
    ///
    /// # Errors
    /// A connection fails, or the publication at the end does not reach all of them once.
    pub fn run(&self, target: &Target) -> Result<Cell, Failure> {
        let meter = Meter::start(target)?;
        // The same wait after the churn, because a server may free the others' memory only with its next heartbeat.
        let churn_wait = match self.churn {
            0 => Duration::ZERO,
            _ => self.time,
        };
        let churn_end = Instant::now() + self.time_max.saturating_sub(churn_wait);
        let opening_end = churn_end - self.time.min(self.time_max);
        let mut swarm = Swarm::new(target)?;
        swarm.open(first_part(self.connections).min(WARM_UP_MAX), subscription)?;
        let before = memory(target)?;
        let opened_count = self.open(&mut swarm, opening_end)?;
        let opened = memory(target)?;
        idle(&mut swarm, self.time)?;
        let idled = memory(target)?;
        let mut churn_count = 0;
        while churn_count < self.churn && Instant::now() < churn_end {
            let part = (self.churn - churn_count).min(CHURN_PART);
            let part_end = churn_end.min(Instant::now() + CHURN_PART_TIME);
            churn_count += Swarm::new(target)?.churn(part, CHURN_WIDTH, part_end, subscription)?;
            swarm.receive_waiting(super::nothing)?;
        }
        idle(&mut swarm, churn_wait)?;
        let churned = memory(target)?;
        let usage = meter.read()?;
        let users = match target.link.has_one_user {
            true => " of one user",
            false => "",
        };
        let name = format!("{} connections{users}", self.connections);
        let mut cell = Cell::new("idle", name, target.protocol.name(), &usage);
        let each = |after: Option<Memory>, part: fn(Memory) -> u64| {
            let (before, after) = before.zip(after)?;
            let grown = part(after).saturating_sub(part(before));
            Some(grown as f64 / opened_count as f64)
        };
        cell.set(
            "connection_bytes_opened",
            each(opened, |memory| memory.proportional_bytes),
        );
        cell.set(
            "connection_bytes",
            each(idled, |memory| memory.proportional_bytes),
        );
        cell.set(
            "connection_bytes_anonymous",
            each(idled, |memory| memory.anonymous_bytes),
        );
        if self.churn > 0 {
            let churned = each(churned, |memory| memory.proportional_bytes);
            cell.set("connection_bytes_after_churn", churned);
        }
        if churn_count < self.churn || opened_count < self.connections {
            cell.status = Status::OverTime;
        }
        cell.set("opened_connections", opened_count as f64);
        cell.set("churned_connections", churn_count as f64);
        cell.set("idle_s", self.time.as_secs_f64());
        cell.set("publication_ms", publish(&mut swarm)?.as_secs_f64() * 1e3);
        Ok(cell)
    }

    /// Opens the measured connections, as many as the time allows, at least one part. Returns their number.
    fn open(&self, swarm: &mut Swarm, end: Instant) -> Result<usize, Failure> {
        let mut count = 0;
        while count < self.connections && (count == 0 || Instant::now() < end) {
            let part = (self.connections - count).min(OPENING_PART);
            swarm.open(part, subscription)?;
            count += part;
        }
        Ok(count)
    }
}

/// The common name and a private one.
fn subscription(number: usize) -> Subscription {
    Subscription::Names(vec![COMMON.to_owned(), format!("{COMMON}/{number}")])
}

fn memory(target: &Target) -> Result<Option<Memory>, Failure> {
    let memory = target.process.as_ref().map(|process| process.memory());
    memory
        .transpose()
        .map_err(Failure::system("memory of the server"))
}

/// Sends heartbeats for this time.
fn idle(swarm: &mut Swarm, time: Duration) -> Result<(), Failure> {
    let end = Instant::now() + time;
    loop {
        swarm.receive_until(end, super::nothing)?;
        if Instant::now() >= end {
            return Ok(());
        }
    }
}

/// One publication of the first connection, which every other one receives once. Returns the time until the last has
/// it.
fn publish(swarm: &mut Swarm) -> Result<Duration, Failure> {
    let mut delivery_log = DeliveryLog::new(swarm.len(), vec![0], false);
    delivery_log.begin_round();
    let start = Instant::now();
    let payload = delivery_log.payload(0, Content::Number);
    swarm.send(0, |driver, out| driver.publish(COMMON, &payload, out))?;
    while !delivery_log.is_complete() {
        let received = swarm.receive(start + PATIENCE, "deliveries", |receiver, incoming| {
            match incoming {
                // The publisher's own message, from servers that return it.
                Incoming::Delivery { .. } if receiver == 0 => Ok(()),
                Incoming::Delivery { payload, .. } => Ok(delivery_log.take(receiver, payload)?),
                other => Err(super::unexpected(receiver, other)),
            }
        });
        match received {
            Err(Failure::Deadline(_)) => return Err(delivery_log.missing().into()),
            result => result?,
        }
    }
    Ok(start.elapsed())
}

//! Presence with state: members of scopes that change their states at a steady rate, each seen by all members of its scope. A latency counts
//! from the planned time of an update, as in `rate`. The server may skip a state that a newer one replaces; the newer one then counts for both.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use clap::{ArgMatches, Command};
use serde::Deserialize;
use tidewire_net::scheduling;

use super::{Scenario, unexpected};
use crate::arguments;
use crate::connection::Subscription;
use crate::driver::Incoming;
use crate::failure::Failure;
use crate::histogram::Histogram;
use crate::meter::Meter;
use crate::result::{Cell, Status};
use crate::swarm::Swarm;
use crate::target::Target;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "presence",
    about: "Members of scopes that change their states at a steady rate: latency of each update at each member",
    arguments,
    is_pinned: true,
    run,
};

/// The time between the last preparation and the first update.
const LEAD: Duration = Duration::from_millis(20);
/// The updates of this time leave together, so that a thousand members do not cost the generator a wake-up each.
const TICK: Duration = Duration::from_millis(1);
/// Not measured at the start.
const WARM_UP: Duration = Duration::from_millis(500);

fn arguments(command: Command) -> Command {
    super::cell_arguments(arguments::server_arguments(command, "1"))
        .arg(arguments::number(
            "members",
            "1000",
            "Connections, each a member of one scope",
        ))
        .arg(arguments::number("scopes", "20", "Scopes"))
        .arg(arguments::number(
            "updates",
            "20",
            "Updates per second of each member",
        ))
        .arg(arguments::number(
            "seconds",
            "10",
            "Seconds of the measurement",
        ))
}

fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let presence = Presence {
        members: arguments::take_count(matches, "members", 1)?,
        scopes: arguments::take_count(matches, "scopes", 1)?,
        updates_per_second: arguments::take_count(matches, "updates", 1)?,
        time: Duration::from_secs(arguments::take_count(matches, "seconds", 1)? as u64),
        patience: super::take_patience(matches)?,
        time_max: super::take_time_max(matches)?,
    };
    if !presence.members.is_multiple_of(presence.scopes) {
        let what = "--members must be a multiple of --scopes";
        return Err(Failure::Argument(what.to_owned()));
    }
    super::measure(matches, false, |target| {
        super::require(
            target,
            target.protocol.abilities().scopes,
            "presence in scopes",
        )?;
        Ok(vec![presence.run(target)?])
    })
}

/// The parameters of the scenario.
#[derive(Clone, Copy, Debug)]
pub struct Presence {
    members: usize,
    scopes: usize,
    updates_per_second: usize,
    time: Duration,
    patience: Duration,
    time_max: Duration,
}

/// A change of a member.
#[derive(Deserialize)]
struct Change<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    id: &'a str,
    state: State,
}

#[derive(Deserialize)]
struct State {
    /// The number of the update.
    n: u32,
}

/// Changes that a member has got and others of its scope may get, too.
struct Shared {
    text: Box<str>,
    /// Places of members in the scope, and the numbers of their updates.
    updates: Vec<(usize, u32)>,
    taken: usize,
}

/// The changes of a scope, which all of its members get alike. So they are parsed once, and no member misses or reorders any.
#[derive(Default)]
struct Log {
    changes: VecDeque<Shared>,
    /// The number of the first of them.
    first: usize,
}

/// The members and their progress.
struct Run {
    presence: Presence,
    swarm: Swarm,
    /// The number of each member, by its id.
    by_id: HashMap<Box<str>, usize>,
    logs: Vec<Log>,
    /// The next changes of each member in the log of its scope.
    positions: Vec<usize>,
    /// The newest update of each member of the scope that each member has got.
    seen: Vec<u32>,
    /// Updates that some member has not got.
    missing: u64,
    start: Instant,
    /// Updates planned before it are not measured.
    from: Instant,
    latencies: Histogram,
    skipped: u64,
    messages: u64,
    last: Instant,
}

impl Presence {
    /// Joins and subscribes all members, and sends their updates at the planned times.
    ///
    /// # Errors
    /// A change is lost, doubled or wrong, or a connection fails.
    pub fn run(&self, target: &Target) -> Result<Cell, Failure> {
        let end = Instant::now() + self.time_max;
        let mut run = Run::open(*self, target)?;
        // As for streams: the system's threads on this processor do not count, if the system permits it.
        let _ = scheduling::realtime();
        let warm_up = self.count(WARM_UP);
        let all = warm_up + self.count(self.time);
        run.start = Instant::now() + LEAD;
        run.from = run.due(warm_up);
        run.last = run.start;
        let mut meter = Meter::start(target)?;
        let mut sent = 0;
        let mut status = Status::Complete;
        while sent < all || run.missing > 0 {
            let now = Instant::now();
            while sent < all && run.due(sent) <= now {
                run.update(sent);
                sent += 1;
                if sent == warm_up {
                    meter = Meter::start(target)?;
                    run.messages = 0;
                }
            }
            run.swarm.send_burst()?;
            if now >= end {
                status = Status::OverTime;
                break;
            }
            if now >= run.last.max(run.due(sent)) + self.patience {
                let what = format!("{} updates at members of their scopes", run.missing);
                return Err(Failure::Deadline(what));
            }
            let next = match sent < all {
                true => run.due(sent),
                false => now + self.patience,
            };
            run.receive(next.min(end))?;
        }
        let usage = meter.read()?;
        let Self {
            members,
            scopes,
            updates_per_second,
            ..
        } = self;
        let name = format!("{members} members of {scopes} scopes at {updates_per_second}/s");
        let mut cell = Cell::new("presence", name, target.protocol.name(), &usage);
        cell.status = status;
        cell.set_rate("deliveries", run.latencies.count(), &usage);
        cell.set("messages", run.messages as f64);
        cell.set("skipped_states", run.skipped as f64);
        cell.set("busiest_node_share", usage.busiest_share());
        cell.set_latencies(&run.latencies);
        Ok(cell)
    }

    /// Updates of all members in a time.
    fn count(&self, time: Duration) -> u32 {
        (time.as_secs_f64() * (self.members * self.updates_per_second) as f64) as u32
    }

    /// The time between two updates of all members.
    fn interval(&self) -> Duration {
        Duration::from_secs(1) / (self.members * self.updates_per_second) as u32
    }

    /// From the start to the planned time of an update.
    fn offset(&self, update: u32) -> Duration {
        let ticks = (self.interval() * update).as_nanos() / TICK.as_nanos();
        TICK * u32::try_from(ticks).unwrap_or(u32::MAX)
    }

    fn members_of_scope(&self) -> usize {
        self.members / self.scopes
    }
}

fn scope_name(scope: usize) -> String {
    format!("bench/presence/{scope}")
}

/// A state like that of a cursor.
fn state(member: usize, number: u32) -> String {
    let (x, y) = ((member * 7 + number as usize) % 1920, number % 1080);
    format!("{{\"x\":{x},\"y\":{y},\"n\":{number}}}")
}

impl Run {
    fn open(presence: Presence, target: &Target) -> Result<Self, Failure> {
        let members = presence.members;
        let mut swarm = Swarm::new(target)?;
        swarm.open(members, |_| Subscription::Nothing)?;
        let mut by_id = HashMap::new();
        for member in 0..members {
            swarm.prepare(member, |driver, out| {
                driver.join_scope(
                    &scope_name(member % presence.scopes),
                    &state(member, 0),
                    out,
                );
            });
        }
        swarm.send_burst()?;
        while by_id.len() < members {
            let deadline = Instant::now() + presence.patience;
            swarm.receive(deadline, "joins", |member, incoming| match incoming {
                Incoming::Joined { id } => {
                    by_id.insert(id.trim_matches('"').into(), member);
                    Ok(())
                }
                other => Err(unexpected(member, other)),
            })?;
        }
        for member in 0..members {
            swarm.prepare(member, |driver, out| {
                driver.subscribe_scope(&scope_name(member % presence.scopes), out);
            });
        }
        swarm.send_burst()?;
        let mut subscribed = 0;
        while subscribed < members {
            let deadline = Instant::now() + presence.patience;
            swarm.receive(
                deadline,
                "lists of members",
                |member, incoming| match incoming {
                    Incoming::Snapshot { number: None, .. } => {
                        subscribed += 1;
                        Ok(())
                    }
                    other => Err(unexpected(member, other)),
                },
            )?;
        }
        let now = Instant::now();
        Ok(Self {
            presence,
            swarm,
            by_id,
            logs: (0..presence.scopes).map(|_| Log::default()).collect(),
            positions: vec![0; members],
            seen: vec![0; members * presence.members_of_scope()],
            missing: 0,
            start: now,
            from: now,
            latencies: Histogram::default(),
            skipped: 0,
            messages: 0,
            last: now,
        })
    }

    /// The planned time of an update. Members update in turn.
    fn due(&self, update: u32) -> Instant {
        self.start + self.presence.offset(update)
    }

    fn update(&mut self, update: u32) {
        let Presence {
            members, scopes, ..
        } = self.presence;
        let member = update as usize % members;
        let number = update / members as u32 + 1;
        self.missing += self.presence.members_of_scope() as u64;
        self.swarm.prepare(member, |driver, out| {
            driver.update_scope(&scope_name(member % scopes), &state(member, number), out);
        });
    }

    fn receive(&mut self, until: Instant) -> Result<(), Failure> {
        let Self {
            presence,
            swarm,
            by_id,
            logs,
            positions,
            seen,
            missing,
            start,
            from,
            latencies,
            skipped,
            messages,
            last,
        } = self;
        let width = presence.members_of_scope();
        swarm.receive_until(until, |member, incoming| {
            let Incoming::Delivery { payload, .. } = incoming else {
                return Err(unexpected(member, incoming));
            };
            *last = Instant::now();
            *messages += 1;
            let scope = member % presence.scopes;
            let place_of = |id: &str| {
                let other = by_id.get(id).copied()?;
                (other % presence.scopes == scope).then_some(other / presence.scopes)
            };
            let log = &mut logs[scope];
            let updates = log.take(positions[member], payload, width, place_of);
            let updates = updates.ok_or_else(|| unexpected(member, incoming))?;
            positions[member] += 1;
            for (place, number) in updates {
                let seen = &mut seen[member * width + place];
                let news = number.checked_sub(*seen).filter(|news| *news > 0);
                let news = news.ok_or_else(|| unexpected(member, incoming))?;
                for round in *seen..number {
                    let update =
                        round * presence.members as u32 + (place * presence.scopes + scope) as u32;
                    let due = *start + presence.offset(update);
                    if due >= *from {
                        latencies.add(last.saturating_duration_since(due));
                    }
                }
                *skipped += u64::from(news) - 1;
                *missing -= u64::from(news);
                *seen = number;
            }
            Ok(())
        })
    }
}

impl Log {
    /// The updates of the changes at a position. `None` if the text is not that of the other members, or not an array of updates.
    fn take(
        &mut self,
        position: usize,
        text: &str,
        members: usize,
        place_of: impl Fn(&str) -> Option<usize>,
    ) -> Option<Vec<(usize, u32)>> {
        let index = position - self.first;
        if index == self.changes.len() {
            let changes: Vec<Change<'_>> = serde_json::from_str(text).ok()?;
            let updates = changes.iter().map(|change| {
                let place = place_of(change.id).filter(|_| change.kind == "updated")?;
                Some((place, change.state.n))
            });
            self.changes.push_back(Shared {
                text: text.into(),
                updates: updates.collect::<Option<_>>()?,
                taken: 0,
            });
        }
        let shared = &mut self.changes[index];
        if *shared.text != *text {
            return None;
        }
        shared.taken += 1;
        let updates = shared.updates.clone();
        while self
            .changes
            .front()
            .is_some_and(|first| first.taken == members)
        {
            self.changes.pop_front();
            self.first += 1;
        }
        Some(updates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_a_scope_get_the_same_changes() {
        let mut log = Log::default();
        let place_of = |id: &str| id.parse().ok();
        let text = |number| {
            format!(
                "[{{\"type\":\"updated\",\"id\":\"3\",\"state\":{}}}]",
                state(3, number)
            )
        };
        let mut take = |position, text: &str| log.take(position, text, 2, place_of);
        assert_eq!(take(0, &text(1)), Some(vec![(3, 1)]));
        assert_eq!(take(1, &text(2)), Some(vec![(3, 2)]));
        assert_eq!(take(0, &text(2)), None, "another member got 1 first");
        assert_eq!(take(0, &text(1)), Some(vec![(3, 1)]));
        assert_eq!(take(1, &text(2)), Some(vec![(3, 2)]));
        assert_eq!(take(2, "[{\"type\":\"left\",\"id\":\"3\"}]"), None);
        assert!(log.changes.is_empty() && log.first == 2);
    }
}

//! One sorted window of a live query with many subscribers, compared with events: rounds of both in turn, on the same connections, with
//! payloads of the same length.

use std::time::{Duration, Instant};

use clap::{ArgMatches, Command};

use super::{Scenario, unexpected};
use crate::arguments;
use crate::connection::Subscription;
use crate::driver::Incoming;
use crate::failure::Failure;
use crate::meter::{Meter, Usage};
use crate::random::split_mix;
use crate::result::{Cell, Status};
use crate::swarm::Swarm;
use crate::target::Target;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "window",
    about: "A sorted window of a live query with many subscribers, compared with events",
    arguments,
    is_pinned: true,
    run,
};

const COLLECTION: &str = "bench/window";
const EVENT: &str = "bench/window-event";
/// The first number of a write, so that all have equally many digits.
const NUMBERS_FROM: u64 = 1_000_000;
/// Precedes the number of a write in its value.
const NUMBER_KEY: &str = "\"n\":";
const NUMBER_DIGITS: usize = 7;
const TEXT: &str =
    "a score with a title, some words of a description and a few other fields that no query reads";
/// Rounds of each kind before the measurement.
const WARM_UP_ROUNDS: usize = 2;

fn arguments(command: Command) -> Command {
    super::cell_arguments(arguments::server_arguments(command, "1"))
        .arg(arguments::number(
            "clients",
            "10000",
            "Connections with the query",
        ))
        .arg(arguments::number("limit", "50", "Records of the window"))
        .arg(arguments::number(
            "writes",
            "50",
            "Writes of a round, sent at once",
        ))
        .arg(arguments::number(
            "rounds",
            "10",
            "Measured rounds of each kind",
        ))
        .arg(
            clap::Arg::new("share-min")
                .long("share-min")
                .default_value("0.7")
                .value_parser(clap::value_parser!(f64))
                .help("Minimum deliveries per server-CPU-second, as a share of the events'"),
        )
}

fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let window = Window {
        clients: arguments::take_count(matches, "clients", 1)?,
        limit: arguments::take_count(matches, "limit", 1)?,
        writes: arguments::take_count(matches, "writes", 1)?,
        rounds: arguments::take_count(matches, "rounds", 1)?,
        patience: super::take_patience(matches)?,
        time_max: super::take_time_max(matches)?,
    };
    let share_min: f64 = arguments::take(matches, "share-min")?;
    let mut share = None;
    super::measure(matches, true, |target| {
        super::require(target, target.protocol.abilities().queries, "queries")?;
        let cell = window.run(target)?;
        share = cell.figures.get(SHARE).copied();
        Ok(vec![cell])
    })?;
    match share {
        Some(share) if share < share_min => Err(Failure::Threshold(format!(
            "a window reaches {share:.2} of the events' deliveries per server-CPU-second, less than {share_min}"
        ))),
        _ => Ok(()),
    }
}

/// The figure that the comparison is about.
const SHARE: &str = "share_of_events";

/// The parameters of the scenario.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    clients: usize,
    limit: usize,
    writes: usize,
    rounds: usize,
    patience: Duration,
    time_max: Duration,
}

/// The messages of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Writes of records that enter the window or move within it.
    Writes,
    /// Publications.
    Events,
}

/// The connections and their progress.
struct Run {
    window: Window,
    swarm: Swarm,
    /// The next number of each client.
    expected: Vec<u64>,
    next: u64,
    random: u64,
    /// The newest changes, whose text is that of the events.
    text: String,
}

impl Window {
    /// Runs rounds of both kinds in turn.
    ///
    /// # Errors
    /// A delivery is lost, doubled or out of order, or a connection fails.
    pub fn run(&self, target: &Target) -> Result<Cell, Failure> {
        let end = Instant::now() + self.time_max;
        let mut run = Run::open(*self, target)?;
        let mut usages = [Usage::default(); 2];
        let mut rounds = 0;
        while rounds < WARM_UP_ROUNDS + self.rounds && Instant::now() < end {
            for (kind, usage) in [Kind::Writes, Kind::Events].into_iter().zip(&mut usages) {
                let meter = Meter::start(target)?;
                run.round(kind)?;
                if rounds >= WARM_UP_ROUNDS {
                    *usage = sum(usage, &meter.read()?);
                }
            }
            rounds += 1;
        }
        let Self { clients, limit, .. } = *self;
        let name = format!("{limit} records, {clients} clients");
        let [writes, events] = &usages;
        let mut cell = Cell::new("window", name, target.protocol.name(), writes);
        if rounds < WARM_UP_ROUNDS + self.rounds {
            cell.status = Status::OverTime;
        }
        let measured = rounds.saturating_sub(WARM_UP_ROUNDS);
        let deliveries = (measured * self.writes * clients) as u64;
        cell.set_rate("deliveries", deliveries, writes);
        let of_writes = writes.per_server_second(deliveries);
        let of_events = events.per_server_second(deliveries);
        cell.set("events_per_server_cpu_second", of_events);
        let share = of_writes
            .zip(of_events)
            .map(|(writes, events)| writes / events);
        cell.set(SHARE, share);
        cell.set("payload_bytes", run.text.len() as f64);
        Ok(cell)
    }
}

fn sum(one: &Usage, other: &Usage) -> Usage {
    let add = |one: Option<Duration>, other: Option<Duration>| {
        other.map(|other| one.unwrap_or_default() + other)
    };
    Usage {
        elapsed: one.elapsed + other.elapsed,
        server: add(one.server, other.server),
        busiest: add(one.busiest, other.busiest),
        generator: one.generator + other.generator,
        stolen: one.stolen + other.stolen,
    }
}

impl Run {
    /// Opens the connections, creates twice as many records as the window has, and subscribes.
    fn open(window: Window, target: &Target) -> Result<Self, Failure> {
        let mut swarm = Swarm::new(target)?;
        swarm.open(window.clients, |_| {
            Subscription::Names(vec![EVENT.to_owned()])
        })?;
        swarm.open(1, |_| Subscription::Nothing)?;
        let mut run = Self {
            window,
            swarm,
            expected: Vec::new(),
            next: NUMBERS_FROM,
            random: 1,
            text: String::new(),
        };
        for record in 0..2 * window.limit {
            run.write(record);
        }
        run.swarm
            .prepare(window.clients, |driver, out| driver.head(COLLECTION, out));
        run.swarm.send_burst()?;
        run.await_each(1, "the records", |incoming| {
            matches!(incoming, Incoming::Version { .. })
        })?;
        let limit = window.limit;
        for client in 0..window.clients {
            run.swarm.prepare(client, |driver, out| {
                let query = format!(
                    "{{\"where\":{{\"open\":true}},\"sort\":{{\"n\":-1}},\"limit\":{limit}}}"
                );
                driver.subscribe_query(COLLECTION, &query, 0, out);
            });
        }
        run.swarm.send_burst()?;
        run.await_each(window.clients, "the results", |incoming| {
            matches!(incoming, Incoming::Snapshot { .. })
        })?;
        run.expected = vec![run.next; window.clients];
        Ok(run)
    }

    /// Prepares a write that moves a record to the start of the window.
    fn write(&mut self, record: usize) {
        let number = self.next;
        self.next += 1;
        let name = format!("{COLLECTION}/{record:03}");
        let value = format!("{{\"open\":true,{NUMBER_KEY}{number},\"text\":\"{TEXT}\"}}");
        self.swarm.prepare(self.window.clients, |driver, out| {
            driver.write(&name, &value, None, out);
        });
    }

    fn await_each(
        &mut self,
        count: usize,
        awaited: &str,
        is_awaited: impl Fn(Incoming<'_>) -> bool,
    ) -> Result<(), Failure> {
        let mut arrived = 0;
        while arrived < count {
            let deadline = Instant::now() + self.window.patience;
            self.swarm
                .receive(deadline, awaited, |connection, incoming| {
                    arrived += 1;
                    match is_awaited(incoming) {
                        true => Ok(()),
                        false => Err(unexpected(connection, incoming)),
                    }
                })?;
        }
        Ok(())
    }

    /// One round: all clients receive all of its messages, in order.
    fn round(&mut self, kind: Kind) -> Result<(), Failure> {
        let Window {
            clients,
            limit,
            writes,
            patience,
            ..
        } = self.window;
        for _ in 0..writes {
            if kind == Kind::Events {
                let payload = with_number(&self.text, self.next);
                self.next += 1;
                let publish = |driver: &mut crate::driver::Driver, out: &mut Vec<u8>| {
                    driver.publish(EVENT, &payload, out);
                };
                self.swarm.prepare(clients, publish);
            } else {
                // Half of the records are in the window, so some move and some enter while another one leaves.
                let record = split_mix(&mut self.random) % (2 * limit as u64);
                self.write(record as usize);
            }
        }
        self.swarm.send_burst()?;
        let Self {
            swarm,
            expected,
            next,
            text,
            ..
        } = self;
        let mut missing = writes * clients;
        while missing > 0 {
            let deadline = Instant::now() + patience;
            swarm.receive(deadline, "deliveries", |client, incoming| {
                let Incoming::Delivery { payload, .. } = incoming else {
                    return Err(unexpected(client, incoming));
                };
                let expected = expected.get_mut(client);
                let expected = expected.filter(|it| Some(**it) == number(payload) && **it < *next);
                *expected.ok_or_else(|| unexpected(client, incoming))? += 1;
                missing -= 1;
                if missing == 0 && kind == Kind::Writes {
                    payload.clone_into(text);
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// The place of the number in changes or an event.
fn number_place(payload: &str) -> Option<std::ops::Range<usize>> {
    let start = payload.rfind(NUMBER_KEY)? + NUMBER_KEY.len();
    Some(start..start + NUMBER_DIGITS)
}

fn number(payload: &str) -> Option<u64> {
    payload.get(number_place(payload)?)?.parse().ok()
}

/// The same text with another number.
fn with_number(text: &str, number: u64) -> String {
    let mut text = text.to_owned();
    if let Some(place) = number_place(&text) {
        text.replace_range(place, &number.to_string());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_the_text_of_changes_with_another_number() {
        let text = "[{\"type\":\"removed\",\"id\":\"1\"},{\"data\":{\"n\":1000001,\"text\":\"\"}}]";
        assert_eq!(number(text), Some(1_000_001));
        let event = with_number(text, 1_000_002);
        assert_eq!((number(&event), event.len()), (Some(1_000_002), text.len()));
        assert_eq!(number("[]"), None);
    }
}

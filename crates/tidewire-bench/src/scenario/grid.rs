//! The publish/subscribe grid: S connections subscribe to one name, P of them publish to it once in each round, and a
//! round ends when every subscriber has every message.

use std::time::{Duration, Instant};

use clap::{ArgMatches, Command};

use super::{Scenario, first_part, unexpected};
use crate::arguments;
use crate::connection::Subscription;
use crate::delivery_log::DeliveryLog;
use crate::driver::{Incoming, Protocol};
use crate::failure::Failure;
use crate::meter::{Meter, Usage};
use crate::payload::{CHAT_BYTES, Content};
use crate::process::Process;
use crate::random::split_mix;
use crate::result::{Cell, Status};
use crate::swarm::Swarm;
use crate::target::Target;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "grid",
    about: "Publish/subscribe: time of a round, server time per delivery",
    arguments,
    is_pinned: true,
    run,
};

/// If nothing arrives for this time, the missing deliveries count as lost.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// A cell ends after this time, complete or not.
pub(super) const CELL_TIME_MAX: Duration = Duration::from_secs(120);
/// The usual pairs of subscribers and publishers in this field.
pub const CELLS: [(usize, usize); 8] = [
    (10, 1),
    (10, 5),
    (100, 10),
    (100, 50),
    (1000, 100),
    (1000, 500),
    (10_000, 1000),
    (10_000, 5000),
];
/// The published name.
const NAME: &str = "bench/grid";
/// A pattern that matches the published name.
const PATTERN: &str = "bench/*";
/// The published name of a chat.
const ROOM: &str = "chat/open-1";

/// The medium of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// An event of that name.
    Event,
    /// The same, and the subscribers use a pattern that matches the name.
    Pattern,
    /// Patches of the record of that name.
    Record,
}

/// The parameters of a grid.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    /// Events or patches.
    pub medium: Medium,
    /// Connections, all of which subscribe.
    pub subscribers: usize,
    /// The number of publishers among them.
    pub publishers: usize,
    /// Messages that each of them publishes in a round, in one write, so that a server reads them in one turn.
    pub burst: usize,
    /// The content of the payloads.
    pub content: Content,
    /// Rounds before the measured ones, which fill caches and buffers.
    pub warm_up_rounds: usize,
    /// Measured rounds.
    pub rounds: usize,
    /// Selects the publishers.
    pub seed: u64,
    /// If nothing arrives for this time, the missing deliveries count as lost.
    pub patience: Duration,
    /// The cell ends after this time, including the opening of the connections.
    pub time_max: Duration,
}

/// The result of a grid.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The time of each measured round, from its first publication to its last delivery; for an unfinished one the
    /// time so far.
    pub rounds: Vec<Duration>,
    /// Deliveries in all measured rounds.
    pub deliveries: u64,
    /// Bytes received in all measured rounds, decrypted and still compressed; of finished cells only.
    pub bytes: u64,
    /// Whether all rounds were finished within the cell's time.
    pub status: Status,
    /// The cost of the measured rounds.
    pub usage: Usage,
    /// The server's anonymous memory for one more connection, open and subscribed, before the first round.
    pub connection_bytes: Option<f64>,
}

impl Outcome {
    /// The server's nanoseconds for each delivery.
    #[must_use]
    pub fn server_nanos(&self) -> Option<f64> {
        self.usage.server_nanos(self.deliveries)
    }
}

impl Grid {
    /// Opens the connections and runs all rounds.
    ///
    /// # Errors
    /// A delivery is missing, doubled or wrong, or a connection fails.
    pub fn run(&self, target: &Target) -> Result<Outcome, Failure> {
        let end = Instant::now() + self.time_max;
        let subscription = |_| match self.medium {
            Medium::Event => Subscription::Names(vec![self.name().to_owned()]),
            Medium::Pattern => Subscription::Pattern(PATTERN.to_owned()),
            Medium::Record => Subscription::Record(self.name().to_owned()),
        };
        let first = first_part(self.subscribers);
        let mut swarm = Swarm::new(target)?;
        swarm.open(first, subscription)?;
        let memory_before = anonymous_bytes(target)?;
        swarm.open(self.subscribers - first, subscription)?;
        let memory_after = anonymous_bytes(target)?;
        let publishers = choose(self.publishers, self.subscribers, self.seed);
        let publications = publishers
            .iter()
            .flat_map(|publisher| std::iter::repeat_n(*publisher, self.burst));
        let grown = |(before, after): (u64, u64)| after.saturating_sub(before) as f64;
        let mut run = Run {
            delivery_log: DeliveryLog::new(
                self.subscribers,
                publications.collect(),
                target.has_echo,
            ),
            swarm,
            medium: self.medium,
            name: self.name(),
            content: self.content,
            patience: self.patience,
            end,
        };
        let mut outcome = Outcome {
            rounds: Vec::new(),
            deliveries: 0,
            bytes: 0,
            status: Status::Complete,
            usage: Usage::default(),
            connection_bytes: memory_before
                .zip(memory_after)
                .map(|pair| grown(pair) / (self.subscribers - first) as f64),
        };
        for _ in 0..self.warm_up_rounds {
            let meter = Meter::start(target)?;
            if let Round::OverTime(time) = run.round()? {
                outcome.add_unfinished(time, &run.delivery_log, &meter)?;
                return Ok(outcome);
            }
        }
        let bytes_before = run.swarm.bytes_received();
        let meter = Meter::start(target)?;
        for _ in 0..self.rounds {
            match run.round()? {
                Round::Complete(time) => outcome.rounds.push(time),
                Round::OverTime(time) => {
                    outcome.deliveries =
                        run.delivery_log.round_deliveries() * outcome.rounds.len() as u64;
                    outcome.add_unfinished(time, &run.delivery_log, &meter)?;
                    return Ok(outcome);
                }
            }
        }
        outcome.usage = meter.read()?;
        outcome.bytes = run.swarm.bytes_received() - bytes_before;
        outcome.deliveries = run.delivery_log.round_deliveries() * outcome.rounds.len() as u64;
        // One more round finds doubled deliveries of the last one, because each connection's messages come in order.
        run.round()?;
        Ok(outcome)
    }

    fn name(&self) -> &'static str {
        match self.content {
            Content::Chat => ROOM,
            Content::Number | Content::Ticks(_) => NAME,
        }
    }

    /// The result of a run.
    #[must_use]
    pub fn cell(&self, target: &Target, outcome: &Outcome) -> Cell {
        let medium = match self.medium {
            Medium::Event => "",
            Medium::Pattern => " by a pattern",
            Medium::Record => " records",
        };
        let burst = match self.burst {
            1 => String::new(),
            burst => format!(", {burst} at once"),
        };
        let payload = match self.content {
            Content::Number => String::new(),
            Content::Ticks(bytes) => format!(" of {bytes} bytes"),
            Content::Chat => format!(" chat messages of {CHAT_BYTES} bytes"),
        };
        let (subscribers, publishers) = (self.subscribers, self.publishers);
        let name = format!("{subscribers}/{publishers}{burst}{medium}{payload}");
        let mut cell = Cell::new("grid", name, target.protocol.name(), &outcome.usage);
        cell.status = outcome.status;
        cell.set("rounds", outcome.rounds.len() as f64);
        cell.set_rate("deliveries", outcome.deliveries, &outcome.usage);
        cell.set_times("round", &outcome.rounds);
        if outcome.bytes > 0 {
            let each = outcome.bytes as f64 / outcome.deliveries as f64;
            cell.set("bytes_per_delivery", each);
        }
        cell.set("connection_bytes_anonymous", outcome.connection_bytes);
        cell
    }
}

impl Outcome {
    /// Adds a round that the end of the cell's time interrupted.
    fn add_unfinished(
        &mut self,
        time: Duration,
        delivery_log: &DeliveryLog,
        meter: &Meter,
    ) -> Result<(), Failure> {
        self.rounds.push(time);
        self.deliveries += delivery_log.delivered();
        self.status = Status::OverTime;
        self.usage = meter.read()?;
        Ok(())
    }
}

fn anonymous_bytes(target: &Target) -> Result<Option<u64>, Failure> {
    let memory = target.process.as_ref().map(Process::memory).transpose();
    let memory = memory.map_err(Failure::system("memory of the server"))?;
    Ok(memory.map(|memory| memory.anonymous_bytes))
}

/// The common state of a grid's rounds.
struct Run {
    swarm: Swarm,
    delivery_log: DeliveryLog,
    medium: Medium,
    name: &'static str,
    content: Content,
    patience: Duration,
    end: Instant,
}

/// The result of a round, with its time.
enum Round {
    Complete(Duration),
    OverTime(Duration),
}

impl Run {
    /// One round: each publisher publishes its burst, and all receive all of it.
    fn round(&mut self) -> Result<Round, Failure> {
        self.delivery_log.begin_round();
        let (medium, own_name) = (self.medium, self.name);
        for (message, &publisher) in self.delivery_log.publishers().iter().enumerate() {
            let payload = self.delivery_log.payload(message, self.content);
            self.swarm.prepare(publisher, |driver, out| match medium {
                Medium::Event | Medium::Pattern => driver.publish(own_name, &payload, out),
                Medium::Record => driver.patch(own_name, &payload, out),
            });
        }
        let start = Instant::now();
        self.swarm.send_burst()?;
        let (mut delivered, mut progress) = (0, start);
        while !self.delivery_log.is_complete() {
            let now = Instant::now();
            if now >= self.end {
                return Ok(Round::OverTime(now - start));
            }
            if self.delivery_log.delivered() > delivered {
                (delivered, progress) = (self.delivery_log.delivered(), now);
            }
            let delivery_log = &mut self.delivery_log;
            let deadline = (progress + self.patience).min(self.end);
            let received =
                self.swarm.receive(
                    deadline,
                    "deliveries",
                    |receiver, incoming| match incoming {
                        Incoming::Delivery { name, payload }
                            if name.is_none_or(|name| name == own_name) =>
                        {
                            Ok(delivery_log.take(receiver, payload)?)
                        }
                        Incoming::Patched { name, payload, .. } if name == own_name => {
                            Ok(delivery_log.take(receiver, payload)?)
                        }
                        other => Err(unexpected(receiver, other)),
                    },
                );
            match received {
                Err(Failure::Deadline(_)) if deadline < self.end => {
                    return Err(self.delivery_log.missing().into());
                }
                Err(Failure::Deadline(_)) => {}
                result => result?,
            }
        }
        Ok(Round::Complete(start.elapsed()))
    }
}

/// `count` different ones of `0..of`, by a partial Fisher-Yates shuffle.
pub(super) fn choose(count: usize, of: usize, seed: u64) -> Vec<usize> {
    let mut state = seed;
    let mut all: Vec<usize> = (0..of).collect();
    for index in 0..count.min(of) {
        let left = (of - index) as u64;
        all.swap(index, index + (split_mix(&mut state) % left) as usize);
    }
    all.truncate(count);
    all
}

fn arguments(command: Command) -> Command {
    let command = super::cell_arguments(arguments::server_arguments(command, "1"));
    command
        .arg(arguments::number("subscribers", "100", "Connections"))
        .arg(arguments::number(
            "publishers",
            "10",
            "Connections that publish",
        ))
        .arg(arguments::number(
            "burst",
            "1",
            "Messages that each publisher sends at once in a round",
        ))
        .arg(
            arguments::flag("all", "The eight cells from 10/1 to 10000/5000")
                .conflicts_with_all(["subscribers", "publishers"]),
        )
        .arg(arguments::flag(
            "records",
            "Send patches of a record instead of events",
        ))
        .arg(
            arguments::flag(
                "pattern",
                "Subscribe by a pattern of events instead of a name; Tidewire only",
            )
            .conflicts_with_all(["records", "chat"]),
        )
        .arg(arguments::number(
            "payload-bytes",
            "0",
            "Payloads are market ticks of about this size; 0: a number",
        ))
        .arg(
            arguments::flag(
                "chat",
                "Publish chat messages of 200 bytes, to which --rules apply",
            )
            .conflicts_with_all(["payload-bytes", "records"]),
        )
        .arg(arguments::number("rounds", "10", "Measured rounds"))
        .arg(arguments::number(
            "warm-up",
            "3",
            "Rounds before the measurement",
        ))
        .arg(arguments::number(
            "seed",
            "1",
            "Seed that selects the publishers",
        ))
}

fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let is_record = matches.get_flag("records");
    let content = match arguments::take_count(matches, "payload-bytes", 0)? {
        _ if matches.get_flag("chat") => Content::Chat,
        0 => Content::Number,
        bytes => Content::Ticks(bytes),
    };
    let grid = Grid {
        medium: match matches.get_flag("pattern") {
            true => Medium::Pattern,
            false if is_record => Medium::Record,
            false => Medium::Event,
        },
        subscribers: arguments::take_count(matches, "subscribers", 2)?,
        publishers: arguments::take_count(matches, "publishers", 1)?,
        burst: arguments::take_count(matches, "burst", 1)?,
        content,
        warm_up_rounds: arguments::take_count(matches, "warm-up", 0)?,
        rounds: arguments::take_count(matches, "rounds", 1)?,
        seed: arguments::take(matches, "seed")?,
        patience: super::take_patience(matches)?,
        time_max: super::take_time_max(matches)?,
    };
    if grid.publishers > grid.subscribers {
        let what = "--publishers must be at most --subscribers";
        return Err(Failure::Argument(what.to_owned()));
    }
    let single = [(grid.subscribers, grid.publishers)];
    let cells: &[_] = if matches.get_flag("all") {
        &CELLS
    } else {
        &single
    };
    super::measure(matches, is_record, |target| {
        if grid.medium == Medium::Pattern {
            let has_them = target.protocol == Protocol::Deepstream;
            super::require(target, has_them, "patterns of events")?;
        }
        cells
            .iter()
            .map(|&(subscribers, publishers)| {
                let grid = Grid {
                    subscribers,
                    publishers,
                    ..grid
                };
                Ok(grid.cell(target, &grid.run(target)?))
            })
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_are_different_and_depend_on_the_seed() {
        let chosen = choose(50, 100, 7);
        let mut sorted = chosen.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 50);
        assert!(sorted.iter().all(|&number| number < 100));
        assert_eq!(chosen, choose(50, 100, 7));
        assert_ne!(chosen, choose(50, 100, 8));
        assert_eq!(choose(3, 3, 1).len(), 3);
    }

    #[test]
    fn a_server_that_is_too_slow_is_cut_off_with_its_time_so_far() {
        // It accepts no publication, so the second round never ends.
        let options = crate::null_server::Options::default();
        let address = std::net::SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, 0));
        let mut options = options;
        options.faults.lose_one_in = 1;
        let server = crate::null_server::NullServer::bind(address, options).unwrap();
        let target = Target::local(server.local_address().unwrap(), std::process::id(), false);
        std::thread::spawn(move || server.run());
        let grid = Grid {
            medium: Medium::Event,
            subscribers: 3,
            publishers: 1,
            burst: 2,
            content: Content::Ticks(155),
            warm_up_rounds: 0,
            rounds: 2,
            seed: 1,
            patience: PATIENCE,
            time_max: Duration::from_millis(300),
        };
        let outcome = grid.run(&target).unwrap();
        let cell = grid.cell(&target, &outcome);
        assert_eq!(cell.status, Status::OverTime);
        assert_eq!((outcome.rounds.len(), outcome.deliveries), (1, 0));
        assert!(cell.text().contains("incomplete, > 0."), "{}", cell.text());
    }
}

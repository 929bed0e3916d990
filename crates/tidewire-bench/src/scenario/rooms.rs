//! Many names: each connection subscribes to several of them, chosen at random. In each round some connections
//! publish to one name each, and the round ends when exactly the members of the names have everything.

use std::time::{Duration, Instant};

use clap::{ArgMatches, Command};

use super::grid::{PATIENCE, choose};
use super::{Scenario, unexpected};
use crate::arguments;
use crate::connection::Subscription;
use crate::delivery_log::Fault;
use crate::driver::Incoming;
use crate::failure::Failure;
use crate::meter::Meter;
use crate::random::split_mix;
use crate::result::{Cell, Status};
use crate::swarm::Swarm;
use crate::target::Target;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "rooms",
    about: "Publish/subscribe with many names, several per connection",
    arguments,
    is_pinned: true,
    run,
};

/// The first number, so that all numbers have equally many digits.
const NUMBERS_FROM: u64 = 1_000_000;

fn arguments(command: Command) -> Command {
    super::cell_arguments(arguments::server_arguments(command, "1"))
        .arg(arguments::number("connections", "10000", "Connections"))
        .arg(arguments::number("names", "1000", "Names"))
        .arg(arguments::number("each", "10", "Names of each connection"))
        .arg(arguments::number(
            "publishers",
            "1000",
            "Connections that publish in a round",
        ))
        .arg(arguments::number("rounds", "10", "Measured rounds"))
        .arg(arguments::number(
            "warm-up",
            "3",
            "Rounds before the measurement",
        ))
        .arg(arguments::number(
            "seed",
            "1",
            "Seed that selects the names and the publishers",
        ))
}

fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let rooms = Rooms {
        connections: arguments::take_count(matches, "connections", 1)?,
        names: arguments::take_count(matches, "names", 1)?,
        each: arguments::take_count(matches, "each", 1)?,
        publishers: arguments::take_count(matches, "publishers", 1)?,
        warm_up_rounds: arguments::take_count(matches, "warm-up", 0)?,
        rounds: arguments::take_count(matches, "rounds", 1)?,
        seed: arguments::take(matches, "seed")?,
        time_max: super::take_time_max(matches)?,
    };
    if rooms.publishers > rooms.connections || rooms.each > rooms.names {
        let what = "--publishers must be at most --connections, and --each at most --names";
        return Err(Failure::Argument(what.to_owned()));
    }
    super::measure(matches, true, |target| Ok(vec![rooms.run(target)?]))
}

/// The parameters of the mode.
#[derive(Clone, Copy, Debug)]
pub struct Rooms {
    /// Connections.
    pub connections: usize,
    /// Names.
    pub names: usize,
    /// Names of each connection.
    pub each: usize,
    /// Connections that publish in a round.
    pub publishers: usize,
    /// Rounds before the measured ones.
    pub warm_up_rounds: usize,
    /// Measured rounds.
    pub rounds: usize,
    /// Selects the names and the publishers.
    pub seed: u64,
    /// The cell ends after this time.
    pub time_max: Duration,
}

impl Rooms {
    /// Opens the connections and runs all rounds.
    ///
    /// # Errors
    /// A delivery is missing, doubled, or at a connection without that name; or a connection fails.
    pub fn run(&self, target: &Target) -> Result<Cell, Failure> {
        let end = Instant::now() + self.time_max;
        let names: Vec<String> = (0..self.names)
            .map(|name| format!("bench/room/{name}"))
            .collect();
        let members = Members::choose(self);
        let mut swarm = Swarm::new(target)?;
        swarm.open(self.connections, |number| {
            let own = members.names_of[number].iter();
            Subscription::Names(own.map(|&name| names[name].clone()).collect())
        })?;
        let mut deliveries = Deliveries::new(self, members, target.has_echo);
        let (mut times, mut count) = (Vec::new(), 0);
        let mut meter = Meter::start(target)?;
        let mut status = Status::Complete;
        for round in 0..self.warm_up_rounds + self.rounds {
            if round == self.warm_up_rounds {
                meter = Meter::start(target)?;
                (times, count) = (Vec::new(), 0);
            }
            deliveries.begin_round();
            for message in 0..deliveries.round.len() {
                let (publisher, name) = deliveries.round[message];
                let payload = deliveries.number(message).to_string();
                swarm.prepare(publisher, |driver, out| {
                    driver.publish(&names[name], &payload, out);
                });
            }
            let start = Instant::now();
            swarm.send_burst()?;
            let all = deliveries.missing;
            receive_all(&mut swarm, &mut deliveries, &names, end)?;
            times.push(start.elapsed());
            count += all - deliveries.missing;
            if deliveries.missing > 0 {
                status = Status::OverTime;
                break;
            }
        }
        let usage = meter.read()?;
        let name = format!(
            "{} on {} of {} names",
            self.connections, self.each, self.names
        );
        let mut cell = Cell::new("rooms", name, target.protocol.name(), &usage);
        cell.status = status;
        cell.set("rounds", times.len() as f64);
        cell.set_rate("deliveries", count, &usage);
        cell.set_times("round", &times);
        Ok(cell)
    }
}

/// Receives until no delivery is missing or the cell's time has passed.
fn receive_all(
    swarm: &mut Swarm,
    deliveries: &mut Deliveries,
    names: &[String],
    end: Instant,
) -> Result<(), Failure> {
    let (mut missing, mut progress) = (deliveries.missing, Instant::now());
    while deliveries.missing > 0 {
        let now = Instant::now();
        if deliveries.missing < missing {
            (missing, progress) = (deliveries.missing, now);
        }
        let deadline = (progress + PATIENCE).min(end);
        let received = swarm.receive(
            deadline,
            "deliveries",
            |receiver, incoming| match incoming {
                Incoming::Delivery { name, payload } => {
                    Ok(deliveries.take(receiver, name, payload, names)?)
                }
                other => Err(unexpected(receiver, other)),
            },
        );
        match received {
            Err(Failure::Deadline(_)) if deadline < end => {
                return Err(deliveries.lost().into());
            }
            Err(Failure::Deadline(_)) => return Ok(()),
            result => result?,
        }
    }
    Ok(())
}

/// The names of each connection and the members of each name.
#[derive(Debug)]
struct Members {
    /// By connection.
    names_of: Vec<Vec<usize>>,
    /// By name, in order.
    of_name: Vec<Vec<usize>>,
}

impl Members {
    fn choose(rooms: &Rooms) -> Self {
        let mut state = rooms.seed;
        let names_of: Vec<Vec<usize>> = (0..rooms.connections)
            .map(|_| choose(rooms.each, rooms.names, split_mix(&mut state)))
            .collect();
        let mut of_name = vec![Vec::new(); rooms.names];
        for (connection, names) in names_of.iter().enumerate() {
            names
                .iter()
                .for_each(|&name| of_name[name].push(connection));
        }
        Self { names_of, of_name }
    }
}

/// The deliveries of a round.
#[derive(Debug)]
struct Deliveries {
    members: Members,
    publishers: usize,
    has_echo: bool,
    state: u64,
    /// Publisher and name of each message.
    round: Vec<(usize, usize)>,
    /// One bit for each member of each message's name, and the start of each message's bits.
    seen: Vec<bool>,
    starts: Vec<usize>,
    /// The number of the round's first message.
    first: u64,
    missing: u64,
}

impl Deliveries {
    fn new(rooms: &Rooms, members: Members, has_echo: bool) -> Self {
        Self {
            members,
            publishers: rooms.publishers,
            has_echo,
            state: rooms.seed,
            round: Vec::new(),
            seen: Vec::new(),
            starts: Vec::new(),
            first: NUMBERS_FROM,
            missing: 0,
        }
    }

    fn begin_round(&mut self) {
        self.first += self.round.len() as u64;
        let connections = self.members.names_of.len();
        let publishers = choose(self.publishers, connections, split_mix(&mut self.state));
        let names = self.members.of_name.len() as u64;
        let state = &mut self.state;
        self.round = publishers
            .into_iter()
            .map(|publisher| (publisher, (split_mix(state) % names) as usize))
            .collect();
        (self.starts, self.missing) = (Vec::new(), 0);
        let mut end = 0;
        for &(publisher, name) in &self.round {
            let members = &self.members.of_name[name];
            let is_member = members.binary_search(&publisher).is_ok();
            self.missing += (members.len() - usize::from(is_member && !self.has_echo)) as u64;
            self.starts.push(end);
            end += members.len();
        }
        self.seen.clear();
        self.seen.resize(end, false);
    }

    fn number(&self, message: usize) -> u64 {
        self.first + message as u64
    }

    fn take(
        &mut self,
        receiver: usize,
        name: Option<&str>,
        payload: &str,
        names: &[String],
    ) -> Result<(), Fault> {
        let unknown = || Fault::Unknown {
            receiver,
            payload: payload.to_owned(),
        };
        let number: u64 = payload.parse().map_err(|_| unknown())?;
        let Some(message) = number.checked_sub(self.first) else {
            let message = number;
            return Err(Fault::Late { receiver, message });
        };
        let message = message as usize;
        let &(publisher, room) = self.round.get(message).ok_or_else(unknown)?;
        let index = self.members.of_name[room].binary_search(&receiver);
        let index = index.map_err(|_| unknown())?;
        if name.is_some_and(|name| name != names[room]) {
            return Err(unknown());
        }
        if publisher == receiver && !self.has_echo {
            let message = number;
            return Err(Fault::Own { receiver, message });
        }
        let seen = &mut self.seen[self.starts[message] + index];
        if std::mem::replace(seen, true) {
            return Err(Fault::Doubled {
                receiver,
                publisher,
                message: number,
            });
        }
        self.missing -= 1;
        Ok(())
    }

    fn lost(&self) -> Fault {
        let is_lost = |&message: &usize| {
            let (publisher, room) = self.round[message];
            let members = self.members.of_name[room].iter().enumerate();
            let start = self.starts[message];
            members
                .filter(|&(_, &member)| self.has_echo || member != publisher)
                .any(|(index, _)| !self.seen[start + index])
        };
        let first = (0..self.round.len()).find(is_lost).unwrap_or_default();
        Fault::Lost {
            count: self.missing,
            message: self.number(first),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_members_of_the_name_get_it_once() {
        let rooms = Rooms {
            connections: 12,
            names: 5,
            each: 2,
            publishers: 6,
            warm_up_rounds: 0,
            rounds: 1,
            seed: 3,
            time_max: PATIENCE,
        };
        let members = Members::choose(&rooms);
        assert!(members.names_of.iter().all(|names| names.len() == 2));
        assert_eq!(members.of_name.iter().map(Vec::len).sum::<usize>(), 24);
        let mut deliveries = Deliveries::new(&rooms, members, false);
        deliveries.begin_round();
        let names: Vec<String> = (0..5).map(|name| name.to_string()).collect();
        assert!(matches!(
            deliveries.lost(),
            Fault::Lost {
                message: NUMBERS_FROM,
                ..
            }
        ));
        for message in 0..6 {
            let payload = deliveries.number(message).to_string();
            let (publisher, room) = deliveries.round[message];
            for receiver in 0..12 {
                let is_member = deliveries.members.names_of[receiver].contains(&room);
                let other = deliveries.take(receiver, Some("other"), &payload, &names);
                assert!(other.is_err());
                let taken = deliveries.take(receiver, Some(&names[room]), &payload, &names);
                assert_eq!(
                    taken.is_ok(),
                    is_member && receiver != publisher,
                    "{taken:?}"
                );
                assert!(deliveries.take(receiver, None, &payload, &names).is_err());
            }
        }
        assert_eq!(deliveries.missing, 0);
        deliveries.begin_round();
        let late = deliveries.take(0, None, &NUMBERS_FROM.to_string(), &names);
        assert!(matches!(late, Err(Fault::Late { .. })), "{late:?}");
    }
}

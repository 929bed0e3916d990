//! The workloads: how many names and subscribers one node and a cluster get, and at which rate.

use std::time::Duration;

use crate::failure::Failure;
use crate::result::{Cell, Status};
use crate::run_results::Role;
use crate::scenario::records::Patches;
use crate::scenario::rooms::Rooms;
use crate::scenario::stream::{Stream, Traffic};
use crate::target::Target;

/// Subscribers of a room, for each node.
const ROOM_SUBSCRIBERS: usize = 10;
/// Subscribers of a record, on any nodes.
const RECORD_SUBSCRIBERS: usize = 10;
/// Names of a saturated cluster.
const SATURATED_NAMES: usize = 30;
/// More patches than a turn makes. Their warm-up does not end either, so all of the turn counts.
const SATURATED_PATCHES: u64 = 20_000_000;
/// Rivals get this part of the publications; the rate of each name is the same.
const RIVAL_PART: usize = 10;
/// Not measured at the start.
const WARM_UP: Duration = Duration::from_millis(500);
/// A turn ends after this time in addition to its own, complete or not.
const PATIENCE: Duration = Duration::from_secs(30);

/// The kind of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Names with many subscribers, publishers anywhere. All names are on each node, with a share of their subscribers.
    Rooms,
    /// Records with subscribers anywhere, patched from anywhere.
    Records,
    /// One subscriber and one publisher, both anywhere.
    Pairs,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Rooms, Self::Records, Self::Pairs];

    /// Its name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Rooms => "rooms",
            Self::Records => "records",
            Self::Pairs => "pairs",
        }
    }

    /// The least deliveries per processor second of a cluster, as a share of one node's. Most messages of a pair pass two nodes.
    #[must_use]
    pub fn goal(self) -> f64 {
        match self {
            Self::Rooms | Self::Records => 0.9,
            Self::Pairs => 0.6,
        }
    }
}

/// Publications per second to each name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// This many.
    PerName(usize),
    /// As many as the subscribers receive. There is no goal: the generator or a processor that several nodes share can be the limit.
    Max,
}

impl Rate {
    /// From the command line: a number or `max`.
    ///
    /// # Errors
    /// It is neither, or 0.
    pub fn parse(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("max", _) => Ok(Self::Max),
            (_, Ok(rate)) if rate > 0 => Ok(Self::PerName(rate)),
            _ => Err("must be a positive number or `max`".to_owned()),
        }
    }
}

/// A workload of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its kind.
    pub kind: Kind,
    /// The nodes of the cluster.
    pub nodes: usize,
    /// Publications per second to all names together.
    pub publications: usize,
    /// Publications per second to each name.
    pub rate: Rate,
    /// The time of a turn.
    pub time: Duration,
}

impl Workload {
    /// Its name in files.
    #[must_use]
    pub fn id(&self) -> String {
        match self.rate {
            Rate::PerName(rate) => format!("cluster-{}-{rate}", self.kind.name()),
            Rate::Max => format!("cluster-{}-max", self.kind.name()),
        }
    }

    /// Its title.
    #[must_use]
    pub fn title(&self) -> String {
        match self.rate {
            Rate::PerName(rate) => format!("{}, {rate}/s per name", self.kind.name()),
            Rate::Max => format!("{}, saturated", self.kind.name()),
        }
    }

    /// The least deliveries per processor second of the cluster, as a share of one node's; absent without a goal.
    #[must_use]
    pub fn goal(&self) -> Option<f64> {
        match self.rate {
            Rate::PerName(_) => Some(self.kind.goal()),
            Rate::Max => None,
        }
    }

    /// The workload for a contender of this role.
    #[must_use]
    pub fn for_contender(self, role: Role) -> Self {
        match role {
            Role::Rival => Self {
                publications: self.publications.div_ceil(RIVAL_PART),
                ..self
            },
            _ => self,
        }
    }

    /// The names of the cluster, a multiple of its nodes.
    fn names(&self) -> usize {
        let names = match self.rate {
            Rate::PerName(rate) => self.publications / rate,
            Rate::Max => SATURATED_NAMES,
        };
        (names / self.nodes).max(1) * self.nodes
    }

    /// Names and subscribers for one node or for all.
    fn traffic(&self, nodes: usize) -> Traffic {
        let share = self.names() / self.nodes * nodes;
        match self.kind {
            Kind::Rooms => Traffic::Rooms {
                names: self.names(),
                subscribers: ROOM_SUBSCRIBERS * nodes,
            },
            Kind::Records => Traffic::Records {
                records: share,
                subscribers: RECORD_SUBSCRIBERS,
            },
            Kind::Pairs => Traffic::Pairs(share),
        }
    }

    fn stream(&self, nodes: usize, rate: usize) -> Stream {
        let traffic = self.traffic(nodes);
        let names = match traffic {
            Traffic::Rooms { names, .. } => names,
            Traffic::Records { records, .. } => records,
            Traffic::Pairs(pairs) => pairs,
            Traffic::Fan { .. } => 1,
        };
        let per_second = names * rate;
        let messages = |time: Duration| (time.as_secs_f64() * per_second as f64) as u64;
        Stream {
            traffic,
            interval: Duration::from_secs(1) / per_second as u32,
            warm_up: messages(WARM_UP),
            messages: messages(self.time).max(1),
            neighbour: None,
            time_max: WARM_UP + self.time + PATIENCE,
        }
    }

    /// One turn on a server with this many nodes.
    ///
    /// # Errors
    /// A delivery is lost, doubled or wrong, or a connection fails.
    pub fn run(&self, nodes: usize, target: &Target) -> Result<Cell, Failure> {
        if let Rate::PerName(rate) = self.rate {
            let title = format!("{}, {nodes} nodes", self.title());
            return self.stream(nodes, rate).run(super::GROUP, &title, target);
        }
        let mut cell = match self.traffic(nodes) {
            Traffic::Records {
                records,
                subscribers,
            } => self.patches(records, subscribers).run(target)?,
            Traffic::Rooms { names, subscribers } => self.rounds(names, subscribers).run(target)?,
            Traffic::Pairs(pairs) => self.rounds(pairs, 1).run(target)?,
            Traffic::Fan { .. } => return Err(Failure::Argument("no such workload".to_owned())),
        };
        super::GROUP.clone_into(&mut cell.mode);
        // The work has no end, so each turn ends when its time has passed.
        cell.status = Status::Complete;
        Ok(cell)
    }

    /// Rounds in which one subscriber of each name on average publishes to a random name.
    fn rounds(&self, names: usize, subscribers: usize) -> Rooms {
        Rooms {
            connections: names * subscribers,
            names,
            each: 1,
            publishers: names,
            warm_up_rounds: 1,
            rounds: usize::MAX - 1,
            seed: 1,
            time_max: self.time,
        }
    }

    fn patches(&self, records: usize, subscribers: usize) -> Patches {
        Patches {
            records,
            subscribers,
            count: SATURATED_PATCHES,
            patience: PATIENCE,
            time_max: self.time,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(kind: Kind, publications: usize, rate: usize) -> Workload {
        Workload {
            kind,
            nodes: 3,
            publications,
            rate: Rate::PerName(rate),
            time: Duration::from_secs(2),
        }
    }

    #[test]
    fn each_node_of_a_cluster_has_the_deliveries_of_one_node() {
        for kind in Kind::ALL {
            for (publications, rate) in [(3000, 50), (3000, 500), (10, 7), (1, 500)] {
                let workload = workload(kind, publications, rate);
                let deliveries = |nodes| {
                    let stream = workload.stream(nodes, rate);
                    let width = match stream.traffic {
                        Traffic::Rooms { subscribers, .. }
                        | Traffic::Records { subscribers, .. } => subscribers,
                        _ => 1,
                    };
                    stream.messages * width as u64
                };
                assert_eq!(deliveries(3), 3 * deliveries(1), "{workload:?}");
            }
        }
    }

    #[test]
    fn a_rate_is_a_number_or_max() {
        assert_eq!(Rate::parse("50"), Ok(Rate::PerName(50)));
        assert_eq!(Rate::parse("max"), Ok(Rate::Max));
        assert!(Rate::parse("0").is_err() && Rate::parse("much").is_err());
    }

    #[test]
    fn a_name_has_its_rate_on_one_node_and_on_several() {
        let stream = |nodes| workload(Kind::Pairs, 3000, 50).stream(nodes, 50);
        assert_eq!(stream(1).traffic, Traffic::Pairs(20));
        assert_eq!(stream(1).interval, Duration::from_millis(1));
        assert_eq!(stream(3).traffic, Traffic::Pairs(60));
        assert_eq!(stream(3).messages, 6000);
        let rival = workload(Kind::Pairs, 3000, 50).for_contender(Role::Rival);
        assert_eq!(rival.stream(3, 50).traffic, Traffic::Pairs(6));
    }
}

//! A steady stream of messages and the latency of each delivery, for `pairs`, `rate` and `cluster`.
//!
//! Every message has a planned time, which the server can't move: a latency counts from there, not from the actual
//! send. So if a server stalls, all messages that should have been sent during the stall are late, and a percentile
//! shows it (no coordinated omission). A delivery that is missing when the cell ends counts with its time so far.

use std::time::{Duration, Instant};

use tidewire_net::scheduling;

use super::neighbour::Neighbour;
use super::unexpected;
use crate::connection::Subscription;
use crate::delivery_log::Fault;
use crate::driver::Incoming;
use crate::failure::Failure;
use crate::histogram::Histogram;
use crate::meter::Meter;
use crate::result::{Cell, Status};
use crate::swarm::Swarm;
use crate::target::Target;

/// The first number, so that all numbers have equally many digits.
const NUMBERS_FROM: u64 = 1_000_000;
/// The time between the opening of the connections and the first message.
const LEAD: Duration = Duration::from_millis(20);
/// If nothing arrives for this time after the last planned message, the missing deliveries count as lost.
const PATIENCE: Duration = Duration::from_secs(10);

/// The senders and receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// This many pairs, of which one end sends to the other, in turn.
    Pairs(usize),
    /// All subscribers get the messages of the publishers, which do not subscribe and send in turn.
    Fan {
        /// The number of subscribers.
        subscribers: usize,
        /// The number of publishers.
        publishers: usize,
    },
    /// All subscribers of a name get the messages of the name's publisher, which does not subscribe. The names are in
    /// turn.
    Rooms {
        /// The number of names.
        names: usize,
        /// The number of subscribers of each.
        subscribers: usize,
    },
    /// The same with records: their patches.
    Records {
        /// The number of records.
        records: usize,
        /// The number of subscribers of each.
        subscribers: usize,
    },
}

impl Traffic {
    /// The number of receiving connections; they are the first ones.
    fn receivers(self) -> usize {
        match self {
            Self::Pairs(pairs) => pairs,
            Self::Fan { subscribers, .. } => subscribers,
            Self::Rooms { names, subscribers } => names * subscribers,
            Self::Records {
                records,
                subscribers,
            } => records * subscribers,
        }
    }

    fn senders(self) -> usize {
        match self {
            Self::Pairs(pairs) => pairs,
            Self::Fan { publishers, .. } => publishers,
            Self::Rooms { names, .. } => names,
            Self::Records { records, .. } => records,
        }
    }

    /// The names: one for each sender, or one for all senders.
    fn names(self) -> Vec<String> {
        let numbered = |prefix: &str, count| {
            (0..count)
                .map(|number| format!("bench/{prefix}/{number}"))
                .collect()
        };
        match self {
            Self::Pairs(pairs) => numbered("pair", pairs),
            Self::Fan { .. } => vec!["bench/rate".to_owned()],
            Self::Rooms { names, .. } => numbered("stream", names),
            Self::Records { records, .. } => numbered("streamed-record", records),
        }
    }

    /// The subscription of a receiver.
    fn subscription(self, name: &str) -> Subscription {
        match self {
            Self::Records { .. } => Subscription::Record(name.to_owned()),
            _ => Subscription::Names(vec![name.to_owned()]),
        }
    }

    /// Deliveries of each message.
    fn width(self) -> usize {
        match self {
            Self::Pairs(_) => 1,
            Self::Fan { subscribers, .. }
            | Self::Rooms { subscribers, .. }
            | Self::Records { subscribers, .. } => subscribers,
        }
    }

    /// The index of a receiver among the receivers of a message; `None` if it is not one of them.
    fn recipient_index(self, message: u64, receiver: usize) -> Option<usize> {
        match self {
            Self::Pairs(pairs) => (message % pairs as u64 == receiver as u64).then_some(0),
            Self::Fan { subscribers, .. } => (receiver < subscribers).then_some(receiver),
            Self::Rooms {
                names: count,
                subscribers,
            }
            | Self::Records {
                records: count,
                subscribers,
            } => {
                let is_of_name = message % count as u64 == (receiver % count) as u64;
                (is_of_name && receiver < count * subscribers).then_some(receiver / count)
            }
        }
    }
}

/// The parameters of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// The senders and receivers.
    pub traffic: Traffic,
    /// The time between two messages of all senders together.
    pub interval: Duration,
    /// Messages that are not measured, at the start.
    pub warm_up: u64,
    /// Measured messages.
    pub messages: u64,
    /// Additional load on the server.
    pub neighbour: Option<Neighbour>,
    /// The cell ends after this time.
    pub time_max: Duration,
}

impl Stream {
    /// Sends all messages at their time and waits for all deliveries.
    ///
    /// # Errors
    /// A delivery is lost, doubled or wrong, or a connection fails.
    pub fn run(&self, mode: &str, cell: &str, target: &Target) -> Result<Cell, Failure> {
        let end = Instant::now() + self.time_max;
        let names = self.traffic.names();
        let mut swarm = Swarm::new(target)?;
        swarm.open(self.traffic.receivers(), |number| {
            self.traffic.subscription(&names[number % names.len()])
        })?;
        swarm.open(self.traffic.senders(), |_| Subscription::Nothing)?;
        let neighbour = self.neighbour.map(|neighbour| neighbour.start(target));
        let neighbour = neighbour.transpose()?;
        // The measurement should not include neighbours and the system on this thread's processor. If the system
        // refuses this, the figures include them. A stream leaves a fifth of the processor idle at least.
        let _ = scheduling::realtime();
        let mut arrivals = Arrivals::new(self, Instant::now() + LEAD);
        let mut meter = Meter::start(target)?;
        let mut sent = 0;
        let all = self.warm_up + self.messages;
        while sent < all || arrivals.missing > 0 {
            let now = Instant::now();
            while sent < all && arrivals.due(sent) <= now {
                if sent == self.warm_up {
                    meter = Meter::start(target)?;
                }
                self.send(sent, &names, &mut swarm)?;
                sent += 1;
            }
            if now >= end {
                break;
            }
            let next = match sent < all {
                true => arrivals.due(sent),
                false => arrivals.last.max(arrivals.due(all)) + PATIENCE,
            };
            if sent == all && now >= next {
                return Err(arrivals.lost().into());
            }
            swarm.receive_until(next.min(end), |receiver, incoming| match incoming {
                Incoming::Delivery { payload, .. } | Incoming::Patched { payload, .. } => {
                    Ok(arrivals.take(receiver, payload)?)
                }
                other => Err(unexpected(receiver, other)),
            })?;
        }
        let usage = meter.read()?;
        let status = match arrivals.missing {
            0 => Status::Complete,
            _ => Status::OverTime,
        };
        arrivals.count_missing(sent, Instant::now());
        let name = cell.to_owned() + &self.neighbour.map_or_else(String::new, Neighbour::label);
        let mut cell = Cell::new(mode, name, target.protocol.name(), &usage);
        cell.status = status;
        cell.set("messages", self.messages as f64);
        let messages = self.messages.min(sent.saturating_sub(self.warm_up));
        let server_us = usage.server_nanos(messages).map(|nanos| nanos / 1e3);
        cell.set("server_us_per_message", server_us);
        cell.set_rate("deliveries", arrivals.latencies.count(), &usage);
        cell.set("busiest_node_share", usage.busiest_share());
        cell.set_latencies(&arrivals.latencies);
        if let Some(neighbour) = neighbour {
            cell.set("neighbour_messages", neighbour.end()? as f64);
        }
        Ok(cell)
    }

    fn send(&self, message: u64, names: &[String], swarm: &mut Swarm) -> Result<(), Failure> {
        let sender = (message % self.traffic.senders() as u64) as usize;
        let name = &names[sender % names.len()];
        let payload = (NUMBERS_FROM + message).to_string();
        let is_patch = matches!(self.traffic, Traffic::Records { .. });
        swarm.send(
            self.traffic.receivers() + sender,
            |driver, out| match is_patch {
                true => driver.patch(name, &payload, out),
                false => driver.publish(name, &payload, out),
            },
        )
    }
}

/// The arrived deliveries.
struct Arrivals {
    traffic: Traffic,
    start: Instant,
    interval: Duration,
    /// The first counted message.
    warm_up: u64,
    /// One bit for each message and receiver.
    seen: Vec<u64>,
    messages: u64,
    missing: u64,
    /// The time of the last arrival.
    last: Instant,
    latencies: Histogram,
}

impl Arrivals {
    fn new(stream: &Stream, start: Instant) -> Self {
        let messages = stream.warm_up + stream.messages;
        let missing = messages * stream.traffic.width() as u64;
        Self {
            traffic: stream.traffic,
            start,
            interval: stream.interval,
            warm_up: stream.warm_up,
            seen: vec![0; missing.div_ceil(64) as usize],
            messages,
            missing,
            last: start,
            latencies: Histogram::default(),
        }
    }

    /// The planned time of a message.
    fn due(&self, message: u64) -> Instant {
        self.start + Duration::from_nanos(self.interval.as_nanos() as u64 * message)
    }

    fn take(&mut self, receiver: usize, payload: &str) -> Result<(), Fault> {
        let unknown = || Fault::Unknown {
            receiver,
            payload: payload.to_owned(),
        };
        let number: u64 = payload.parse().map_err(|_| unknown())?;
        let message = number.checked_sub(NUMBERS_FROM).ok_or_else(unknown)?;
        if message >= self.messages {
            return Err(unknown());
        }
        let index = self
            .traffic
            .recipient_index(message, receiver)
            .ok_or_else(unknown)?;
        let bit = message * self.traffic.width() as u64 + index as u64;
        let word = &mut self.seen[(bit / 64) as usize];
        if *word & (1 << (bit % 64)) != 0 {
            let publisher = (message % self.traffic.senders() as u64) as usize;
            return Err(Fault::Doubled {
                receiver,
                publisher: self.traffic.receivers() + publisher,
                message: number,
            });
        }
        *word |= 1 << (bit % 64);
        self.missing -= 1;
        self.last = Instant::now();
        if message >= self.warm_up {
            let due = self.due(message);
            self.latencies.add(self.last.saturating_duration_since(due));
        }
        Ok(())
    }

    /// Counts sent messages that have not arrived with their time so far.
    fn count_missing(&mut self, sent: u64, now: Instant) {
        let width = self.traffic.width() as u64;
        for bit in self.warm_up * width..sent * width {
            if self.seen[(bit / 64) as usize] & (1 << (bit % 64)) == 0 {
                let due = self.due(bit / width);
                self.latencies.add(now.saturating_duration_since(due));
            }
        }
    }

    fn lost(&self) -> Fault {
        let width = self.traffic.width() as u64;
        let bits = 0..self.messages * width;
        let first = bits
            .into_iter()
            .find(|bit| self.seen[(bit / 64) as usize] & (1 << (bit % 64)) == 0);
        Fault::Lost {
            count: self.missing,
            message: NUMBERS_FROM + first.unwrap_or_default() / width,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(traffic: Traffic, start: Instant) -> Arrivals {
        let stream = Stream {
            traffic,
            interval: Duration::from_millis(10),
            warm_up: 1,
            messages: 3,
            neighbour: None,
            time_max: Duration::from_secs(1),
        };
        Arrivals::new(&stream, start)
    }

    #[test]
    fn pairs_get_their_own_messages_only() {
        let mut arrivals = arrivals(Traffic::Pairs(2), Instant::now());
        for message in 0..4 {
            let payload = (NUMBERS_FROM + message).to_string();
            let other = arrivals.take((message as usize + 1) % 2, &payload);
            assert!(matches!(other, Err(Fault::Unknown { .. })), "{other:?}");
            arrivals.take(message as usize % 2, &payload).unwrap();
            let again = arrivals.take(message as usize % 2, &payload);
            assert!(matches!(again, Err(Fault::Doubled { .. })), "{again:?}");
        }
        assert_eq!(arrivals.missing, 0);
        assert_eq!(arrivals.latencies.count(), 3, "the warm-up is not measured");
        assert!(arrivals.take(0, "1000004").is_err());
        assert!(arrivals.take(0, "999999").is_err());
        assert!(arrivals.take(0, "news").is_err());
    }

    #[test]
    fn rooms_get_the_messages_of_their_name() {
        for traffic in [
            Traffic::Rooms {
                names: 2,
                subscribers: 3,
            },
            Traffic::Records {
                records: 2,
                subscribers: 3,
            },
        ] {
            let mut arrivals = arrivals(traffic, Instant::now());
            assert_eq!((arrivals.missing, traffic.receivers()), (12, 6));
            for message in 0..4_u64 {
                let payload = (NUMBERS_FROM + message).to_string();
                for receiver in 0..7 {
                    let is_of_name = receiver % 2 == message as usize % 2 && receiver < 6;
                    let taken = arrivals.take(receiver, &payload);
                    assert_eq!(taken.is_ok(), is_of_name, "{message} at {receiver}");
                }
            }
            assert_eq!(arrivals.missing, 0);
        }
    }

    #[test]
    fn latency_counts_from_the_intended_time() {
        let start = Instant::now() - Duration::from_secs(1);
        let fan = Traffic::Fan {
            subscribers: 2,
            publishers: 2,
        };
        let mut arrivals = arrivals(fan, start);
        // Due 990 ms ago, whenever it was sent.
        arrivals.take(0, "1000001").unwrap();
        let latency = arrivals.latencies.percentile(100.0).unwrap();
        assert!(latency >= Duration::from_millis(990), "{latency:?}");
        assert!(latency < Duration::from_secs(20), "{latency:?}");
    }

    #[test]
    fn lost_messages_are_named_and_count_with_their_time_so_far() {
        let start = Instant::now();
        let fan = Traffic::Fan {
            subscribers: 2,
            publishers: 1,
        };
        let mut arrivals = arrivals(fan, start);
        for (receiver, payload) in [(0, "1000000"), (1, "1000000"), (1, "1000001")] {
            arrivals.take(receiver, payload).unwrap();
        }
        let expected = Fault::Lost {
            count: 5,
            message: 1_000_001,
        };
        assert_eq!(arrivals.lost(), expected);
        arrivals.count_missing(3, start + Duration::from_secs(5));
        // One delivery that came, one of the same message and two of the next that did not; the last was not sent.
        assert_eq!(arrivals.latencies.count(), 4);
        assert_eq!(arrivals.latencies.max(), Duration::from_millis(4990));
    }
}

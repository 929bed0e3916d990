//! Rates: the number of operations of one session, and of one user in all of its sessions.
//!
//! The server does not refuse a message that exceeds a rate. The message waits, together with all later messages of its connection. So no
//! message is lost, and the peer's own socket slows the peer down. A user's rate is exact although its sessions are on several shards:
//! the owner of the user's name keeps the bucket, and shards fetch a few permits at a time from it.

use std::time::Duration;

use crate::message::{Event, Listen, Message, Presence, Query, Record, RecordBulk, Rpc, Scope};
use crate::time::Instant;

/// An operation that has a rate. Each message uses one `Message` permit and one permit for its operation. A message with many names uses
/// one permit for each name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Any message except heartbeats.
    Message,
    /// Publish an event, or the state of a member of a scope.
    Publish,
    /// Create, change or delete a record, or load it again.
    Write,
    /// Read a record, query presence.
    Read,
    /// Subscribe to, listen for or provide a name.
    Subscribe,
    /// Call an rpc.
    Call,
}

impl Operation {
    /// All operations, each at the index of its number.
    pub const ALL: [Self; 6] = [
        Self::Message,
        Self::Publish,
        Self::Write,
        Self::Read,
        Self::Subscribe,
        Self::Call,
    ];
}

/// A value for each operation.
pub type ByOperation<T> = [T; Operation::ALL.len()];

/// A rate: one permit per interval, and up to `burst` permits at once after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Time for one permit; between 1 ns and 10 s.
    pub interval: Duration,
    /// Permits of a caller that was idle for long; at least 1.
    pub burst: u32,
}

/// The rates of a shard, by the number of the operation. Default none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// For each connection.
    pub connection: ByOperation<Option<Rate>>,
    /// For each user, over all connections of the node. Sessions without a user name do not share a rate.
    pub user: ByOperation<Option<Rate>>,
}

impl Rates {
    /// Whether no rate is configured.
    pub fn is_off(&self) -> bool {
        let mut all = self.connection.iter().chain(&self.user);
        all.all(Option::is_none)
    }
}

/// The largest debt of a caller: one message with many names must not block a caller for hours.
const DEBT_MAX: Duration = Duration::from_secs(10);

/// A token bucket, kept as the time at which it is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    full_at: Instant,
}

impl Bucket {
    /// When it has `count` permits, or the whole burst if that is less.
    #[must_use]
    pub fn ready_at(self, rate: Rate, count: u32) -> Instant {
        let spare = rate.burst.saturating_sub(count);
        Instant(
            self.full_at
                .0
                .saturating_sub(times(rate.interval, spare).as_nanos() as u64),
        )
    }

    /// Takes permits, including ones that it does not have yet.
    pub fn take(&mut self, now: Instant, rate: Rate, count: u32) {
        let full_at = self.full_at.max(now) + times(rate.interval, count);
        let latest = now + times(rate.interval, rate.burst) + DEBT_MAX;
        self.full_at = full_at.min(latest);
    }

    /// Whether it equals a new bucket.
    #[must_use]
    pub fn is_full(self, now: Instant) -> bool {
        self.full_at <= now
    }
}

/// The use of a connection's rates by one caller, over all of its short sessions, such as requests over HTTP.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallerBuckets(ByOperation<Bucket>);

/// The messages of a session for which a caller pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charged {
    /// All of them.
    All,
    /// Messages that subscribe. The other messages of a long session depend on the messages published to it.
    Subscriptions,
}

impl CallerBuckets {
    /// Takes the permits that a message costs.
    ///
    /// # Errors
    /// The time at which the caller has enough permits, if it has too few now. No permit is taken then.
    pub fn take(
        &mut self,
        now: Instant,
        rates: &Rates,
        message: &Message<'_>,
        charged: Charged,
    ) -> Result<(), Instant> {
        let Some((operation, count)) = cost(message) else {
            return Ok(());
        };
        if charged == Charged::Subscriptions && operation != Some(Operation::Subscribe) {
            return Ok(());
        }
        let costs = [
            Some((Operation::Message, 1)),
            operation.map(|of| (of, count)),
        ];
        let costs = costs.into_iter().flatten().filter_map(|(of, count)| {
            let number = of as usize;
            rates.connection[number].map(|rate| (number, rate, count))
        });
        let ready = costs
            .clone()
            .map(|(number, rate, _)| self.0[number].ready_at(rate, 1));
        if let Some(ready) = ready.max().filter(|ready| *ready > now) {
            return Err(ready);
        }
        for (number, rate, count) in costs {
            self.0[number].take(now, rate, count);
        }
        Ok(())
    }

    /// Whether they equal new buckets.
    #[must_use]
    pub fn are_full(&self, now: Instant) -> bool {
        self.0.iter().all(|bucket| bucket.is_full(now))
    }
}

fn times(interval: Duration, count: u32) -> Duration {
    interval.checked_mul(count).unwrap_or(Duration::MAX)
}

/// Cost of a message: its operation in addition to `Message`, if it has one, and the number of these operations. `None` is free.
pub fn cost(message: &Message<'_>) -> Option<(Option<Operation>, u32)> {
    let many = |names: &[&str]| u32::try_from(names.len()).unwrap_or(u32::MAX).max(1);
    let (operation, count) = match message {
        Message::Connection(_) => return None,
        Message::Event(Event::Publication(_) | Event::Publish { .. })
        | Message::Scope(Scope::Join { .. } | Scope::Update { .. }) => (Operation::Publish, 1),
        Message::Event(Event::Subscribe { names, .. })
        | Message::Event(Event::SubscribePatterns {
            patterns: names, ..
        })
        | Message::Presence(Presence::Subscribe { names, .. })
        | Message::Rpc(Rpc::Provide { names, .. }) => (Operation::Subscribe, many(names)),
        Message::Event(Event::Listen(Listen::Listen { .. }))
        | Message::Record(Record::Listen(Listen::Listen { .. }))
        | Message::Presence(Presence::SubscribeAll)
        | Message::Query(Query::Subscribe { .. })
        | Message::Scope(Scope::Subscribe { .. }) => (Operation::Subscribe, 1),
        Message::Record(Record::Bulk { action, names, .. }) => match action {
            RecordBulk::Unsubscribe => return Some((None, 1)),
            RecordBulk::Notify => (Operation::Write, many(names)),
            _ => (Operation::Subscribe, many(names)),
        },
        Message::Record(Record::Read { .. } | Record::Head { .. } | Record::Fetch { .. })
        | Message::Presence(Presence::QueryAll)
        | Message::Query(Query::Read { .. }) => (Operation::Read, 1),
        Message::Presence(Presence::Query { names, .. }) => (Operation::Read, many(names)),
        Message::Record(Record::Write(..) | Record::Delete { .. } | Record::Put { .. }) => {
            (Operation::Write, 1)
        }
        Message::Record(Record::Commit { names, .. }) => (Operation::Write, many(names)),
        Message::Rpc(Rpc::Request { .. }) => (Operation::Call, 1),
        _ => return Some((None, 1)),
    };
    Some((Some(operation), count))
}

/// Whether a message contains a pattern that must be compiled.
pub fn is_compiled(message: &Message<'_>) -> bool {
    matches!(
        message,
        Message::Event(Event::Listen(Listen::Listen { .. }))
            | Message::Record(Record::Listen(Listen::Listen { .. }))
    )
}

/// The use of rates by one session.
#[derive(Debug, Default)]
pub struct Spending {
    /// The last turn in which patterns of it were compiled, and their number.
    pub compiled: (Option<Instant>, u32),
    /// Its bucket for each operation.
    pub buckets: ByOperation<Bucket>,
    /// Whether the message that waits for something else has paid already.
    pub has_paid: bool,
    /// Whether a message waits for permits.
    pub is_waiting: bool,
    /// When its next message is due, if one waits for the rate of the connection.
    pub waits_until: Option<Instant>,
    /// Whether it is counted among its user's sessions.
    pub is_counted: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate {
        interval: Duration::from_millis(100),
        burst: 3,
    };

    fn at(millis: u64) -> Instant {
        Instant(0) + Duration::from_millis(millis)
    }

    /// The number of single permits that are available.
    fn spend(bucket: &mut Bucket, now: Instant) -> u32 {
        let mut count = 0;
        while bucket.ready_at(RATE, 1) <= now {
            bucket.take(now, RATE, 1);
            count += 1;
        }
        count
    }

    #[test]
    fn a_bucket_gives_its_burst_and_then_one_permit_per_interval() {
        let mut bucket = Bucket::default();
        assert_eq!(spend(&mut bucket, at(1_000)), 3);
        assert_eq!(bucket.ready_at(RATE, 1), at(1_100));
        assert_eq!(spend(&mut bucket, at(1_099)), 0);
        assert_eq!(spend(&mut bucket, at(1_250)), 2);
        assert!(!bucket.is_full(at(1_300)));
        assert_eq!(
            spend(&mut bucket, at(60_000)),
            3,
            "a long pause saves no more"
        );
    }

    #[test]
    fn several_permits_are_waited_for_together() {
        let mut bucket = Bucket::default();
        assert_eq!(spend(&mut bucket, at(1_000)), 3);
        assert_eq!(bucket.ready_at(RATE, 2), at(1_200));
        assert_eq!(bucket.ready_at(RATE, 3), at(1_300));
        assert!(
            bucket.ready_at(RATE, 9) <= at(1_300),
            "more than the burst never comes"
        );
    }

    #[test]
    fn a_debt_is_bounded_and_paid_later() {
        let mut bucket = Bucket::default();
        bucket.take(at(1_000), RATE, 10);
        assert_eq!(bucket.ready_at(RATE, 1), at(1_800));
        bucket.take(at(1_000), RATE, u32::MAX);
        assert!(bucket.ready_at(RATE, 1) <= at(1_200) + DEBT_MAX);
    }

    #[test]
    fn the_rates_of_a_caller_cover_all_its_sessions() {
        let mut rates = Rates::default();
        rates.connection[Operation::Read as usize] = Some(RATE);
        let read = Message::Record(Record::Read { name: "a" });
        let subscribe = Message::Event(Event::Subscribe {
            names: vec!["a"],
            correlation: None,
            positions: Vec::new(),
        });
        let mut buckets = CallerBuckets::default();
        let mut take =
            |now, message: &Message<'_>, charged| buckets.take(at(now), &rates, message, charged);
        for _ in 0..3 {
            assert_eq!(take(1_000, &read, Charged::All), Ok(()));
        }
        assert_eq!(take(1_000, &read, Charged::All), Err(at(1_100)));
        assert_eq!(take(1_000, &read, Charged::Subscriptions), Ok(()));
        assert_eq!(take(1_000, &subscribe, Charged::All), Ok(()));
        assert_eq!(take(1_100, &read, Charged::All), Ok(()));
        assert!(!buckets.are_full(at(1_100)) && buckets.are_full(at(1_400)));
    }

    #[test]
    fn the_cost_of_a_message_follows_from_its_operation() {
        let check = |message: &Message<'_>, expected| assert_eq!(cost(message), expected);
        check(&Message::Connection(crate::message::Connection::Ping), None);
        let publish = Message::Event(Event::publication("a", None));
        check(&publish, Some((Some(Operation::Publish), 1)));
        let subscribe = Message::Event(Event::Subscribe {
            names: vec!["a", "b", "c"],
            correlation: None,
            positions: Vec::new(),
        });
        check(&subscribe, Some((Some(Operation::Subscribe), 3)));
        let notify = Message::Record(Record::Bulk {
            action: RecordBulk::Notify,
            names: vec!["a", "b"],
            correlation: None,
        });
        check(&notify, Some((Some(Operation::Write), 2)));
        check(
            &Message::Presence(Presence::UnsubscribeAll),
            Some((None, 1)),
        );
    }
}

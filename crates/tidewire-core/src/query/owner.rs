//! Live queries at their owner, which the slot of their normal form selects. Equal queries of principals with the same rights are one.
//!
//! A live query first asks all shards to report the writes of its collection that change its selection (`Watch`), and then reads its first
//! rows like a query that is evaluated once. A report that arrives while the rows are read is newer than the rows.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;
use smallvec::SmallVec;
use tidewire_query::{Query, QueryLimits};

use super::collection::id_of;
use super::live::LiveQuery;
use super::reader::QueryReader;
use super::rights::may_read;
use super::rows::{LoadedRow, TooLarge};
use super::run::{Failure, Purpose, Run};
use crate::address::{Address, SessionId};
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::entry::{Entry, QueryEntry, UnsavedRow};
use crate::permission::QueryRight;
use crate::principal::Principal;
use crate::text::{Name, Payload};

/// The live queries that a shard owns.
#[derive(Debug)]
pub(super) struct LiveQueries {
    // Boxed, because half of the places in a tree's nodes are empty.
    pub(super) queries: BTreeMap<u64, Box<LiveQuery>>,
    /// By the hash of [`key_text`], which is longer than all else that a query keeps.
    by_hash: BTreeMap<u64, SmallVec<[u64; 2]>>,
    /// The query of each subscriber.
    by_subscriber: BTreeMap<(SessionId, u32), u64>,
    /// Subscribers whose shards have adopted a later view than this one.
    deferred: Vec<Subscriber>,
    next: u64,
    bytes: usize,
}

impl LiveQueries {
    /// Creates it without queries. The seed decides the first number: a client must not take the changes of a query of this life of the node for
    /// those of an earlier one.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            queries: BTreeMap::new(),
            by_hash: BTreeMap::new(),
            by_subscriber: BTreeMap::new(),
            deferred: Vec::new(),
            next: seed & u64::from(u32::MAX),
            bytes: 0,
        }
    }
}

/// A subscription of a session, at the owner of the query.
#[derive(Debug)]
pub(crate) struct Subscriber {
    pub(crate) session: SessionId,
    pub(crate) serial: u32,
    pub(crate) principal: Arc<Principal>,
    pub(crate) prefix: Name,
    pub(crate) text: Payload,
}

impl QueryReader {
    /// Keeps a subscription until this shard adopts the view of the subscriber's shard. The queries of the view before end then, and that shard
    /// does not subscribe again.
    pub(crate) fn defer(&mut self, subscriber: Subscriber) {
        self.live.deferred.push(subscriber);
    }

    /// Subscribes those that have waited for the adopted view.
    pub(super) fn subscribe_deferred<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>) {
        for subscriber in std::mem::take(&mut self.live.deferred) {
            self.subscribe(turn, subscriber);
        }
    }

    /// Subscribes a session to a live query.
    pub(crate) fn subscribe<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        subscriber: Subscriber,
    ) {
        let Subscriber {
            session,
            serial,
            principal,
            prefix,
            text,
        } = subscriber;
        let Ok(query) = Query::parse(text.as_str(), &QueryLimits::default()) else {
            return;
        };
        let Some(key) = key_text(turn, &prefix, &query, &principal) else {
            // The session's shard learns of the new rules soon, and ends the subscription.
            return;
        };
        let hash = FixedState::with_seed(turn.shard.seed).hash_one(&key);
        let lives = &mut self.live;
        let number = match lives.find(turn, hash, &key) {
            Some(number) => number,
            None => {
                let number = lives.next;
                lives.next += 1;
                lives.by_hash.entry(hash).or_default().push(number);
                let live = LiveQuery::new(
                    hash,
                    prefix,
                    text,
                    query,
                    principal,
                    turn.shard.settings.limits.query_result_bytes_max,
                    turn.shard.seed,
                );
                turn.post_all(&Entry::Query(live.watch(number, turn.shard.address)));
                lives.queries.insert(number, Box::new(live));
                number
            }
        };
        lives.by_subscriber.insert((session, serial), number);
        if let Some(live) = lives.queries.get_mut(&number)
            && live.subscribers.insert((session, serial), ()).is_none()
        {
            live.shards.add(session.address);
            live.waiting.push((session, serial));
        }
        self.continue_live(turn, number);
    }

    /// Sends a subscriber the whole result again.
    pub(crate) fn refresh<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        session: SessionId,
        serial: u32,
    ) {
        let Some(&number) = self.live.by_subscriber.get(&(session, serial)) else {
            return;
        };
        if let Some(live) = self.live.queries.get_mut(&number)
            && !live.waiting.contains(&(session, serial))
        {
            live.waiting.push((session, serial));
        }
        self.continue_live(turn, number);
    }

    /// The number of live queries that this shard owns.
    pub(crate) fn live_count(&self) -> usize {
        self.live.queries.len()
    }

    /// Bytes of these queries.
    pub(super) fn live_bytes(&self) -> usize {
        self.live.bytes
    }

    /// Ends a subscription, and the query with its last one.
    pub(crate) fn release<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        session: SessionId,
        serial: u32,
    ) {
        let deferred = &mut self.live.deferred;
        deferred.retain(|waiting| (waiting.session, waiting.serial) != (session, serial));
        let Some(number) = self.live.by_subscriber.remove(&(session, serial)) else {
            return;
        };
        let Some(live) = self.live.queries.get_mut(&number) else {
            return;
        };
        live.subscribers.remove((session, serial));
        live.waiting.retain(|waiting| *waiting != (session, serial));
        let was_counted = live.shards.remove(session.address);
        debug_assert!(was_counted, "each subscriber is counted");
        if live.subscribers.is_empty() {
            self.drop_live(turn, number);
        }
    }

    /// Takes records whose newest values shards have reported, each authorized here as well.
    pub(crate) fn reported<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        number: u64,
        rows: Vec<UnsavedRow>,
    ) {
        for row in rows {
            let Some(live) = self.live.queries.get_mut(&number) else {
                return;
            };
            let Some(id) = id_of(&live.prefix, &row.name) else {
                continue;
            };
            let value = row.value.as_ref().filter(|value| {
                may_read(
                    turn.shard,
                    turn.now,
                    &live.principal,
                    &row.name,
                    &value.data,
                )
            });
            let value = value.map(|value| (value.version, value.data.as_str()));
            turn.shard
                .count_work(value.map_or(0, |(_, data)| data.len()));
            let outcome = live.write(&mut self.tape, id, value);
            self.show(turn, number, outcome);
        }
        self.continue_live(turn, number);
    }

    /// Takes the rows that a live query has requested.
    pub(super) fn live_loaded<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        number: u64,
        outcome: Result<Vec<LoadedRow>, Failure>,
    ) {
        let Some(live) = self.live.queries.get_mut(&number) else {
            return;
        };
        match outcome {
            Ok(rows) => {
                let outcome = live.loaded(rows);
                self.show(turn, number, outcome);
                self.continue_live(turn, number);
            }
            Err(failure) => self.end_live(turn, number, failure),
        }
    }

    /// Forgets all live queries: they were authorized by earlier rules, or the shards that report to them have changed. The shards of the
    /// subscribers subscribe them again.
    pub(crate) fn drop_all_live<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>) {
        for number in self.live.queries.keys().copied().collect::<Vec<_>>() {
            self.drop_live(turn, number);
        }
    }

    /// Forgets the subscribers of a lost node.
    pub(crate) fn lose_subscribers<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        node: u16,
    ) {
        let deferred = &mut self.live.deferred;
        deferred.retain(|waiting| waiting.session.address.node != node);
        let subscribers = self.live.by_subscriber.keys();
        let lost = subscribers.filter(|(session, _)| session.address.node == node);
        for (session, serial) in lost.copied().collect::<Vec<_>>() {
            self.release(turn, session, serial);
        }
    }

    /// Requests the writes of a node that was not linked when a query began.
    pub(super) fn watch_node<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, node: u16) {
        let context = turn.shard;
        for (number, live) in &self.live.queries {
            for shard in context.shards().filter(|shard| shard.node == node) {
                turn.post(shard, Entry::Query(live.watch(*number, context.address)));
            }
        }
    }

    /// Posts the changes of a query to the shards of its subscribers.
    fn show<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        number: u64,
        outcome: Result<Option<Payload>, TooLarge>,
    ) {
        let Some(live) = self.live.queries.get(&number) else {
            return;
        };
        match outcome {
            Ok(None) => {}
            Ok(Some(data)) => {
                for shard in live.shards.shards() {
                    let changed = QueryEntry::Changed {
                        owner: turn.shard.address,
                        query: number,
                        data: data.clone(),
                    };
                    turn.post(shard, Entry::Query(changed));
                }
            }
            Err(TooLarge) => self.end_live(turn, number, Failure::Result),
        }
    }

    /// Requests the rows that a query needs; without such, sends its result to the subscribers that wait for it.
    fn continue_live<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, number: u64) {
        let Some(live) = self.live.queries.get_mut(&number) else {
            return;
        };
        let bytes = live.bytes();
        self.live.bytes = self.live.bytes - live.counted_bytes + bytes;
        live.counted_bytes = bytes;
        if let Some(refill) = live.request()
            && let Some(query) = live.query()
        {
            let run = Run::new(
                Purpose::Live(number),
                Arc::clone(&live.principal),
                live.prefix.clone(),
                live.text.as_str(),
                query,
                Some(refill),
                turn.shard,
            );
            let run_number = self.add(run);
            return self.start(turn, run_number);
        }
        if live.is_loading() || live.waiting.is_empty() {
            return;
        }
        match live.snapshot() {
            Ok(data) => {
                for (session, serial) in std::mem::take(&mut live.waiting) {
                    let snapshot = QueryEntry::Snapshot {
                        session,
                        serial,
                        owner: turn.shard.address,
                        query: number,
                        data: data.clone(),
                    };
                    turn.post(session.address, Entry::Query(snapshot));
                }
            }
            Err(TooLarge) => self.end_live(turn, number, Failure::Result),
        }
    }

    /// Ends a query for all of its subscribers.
    fn end_live<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        number: u64,
        failure: Failure,
    ) {
        let (reason, data) = failure.refusal(turn.shard);
        if let Some(live) = self.live.queries.get(&number) {
            for (session, serial) in live.subscribers.keys() {
                let ended = QueryEntry::Ended {
                    session,
                    serial,
                    reason,
                    data: Payload::from_checked(&data),
                };
                turn.post(session.address, Entry::Query(ended));
            }
        }
        self.drop_live(turn, number);
    }

    fn drop_live<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, number: u64) {
        let Some(live) = self.live.queries.remove(&number) else {
            return;
        };
        if let Some(numbers) = self.live.by_hash.get_mut(&live.hash) {
            numbers.retain(|known| *known != number);
            if numbers.is_empty() {
                self.live.by_hash.remove(&live.hash);
            }
        }
        self.live.bytes -= live.counted_bytes;
        for subscriber in live.subscribers.keys() {
            self.live.by_subscriber.remove(&subscriber);
        }
        self.forget_live_run(number);
        let unwatch = QueryEntry::Unwatch {
            query: number,
            owner: turn.shard.address,
            prefix: live.prefix,
        };
        turn.post_all(&Entry::Query(unwatch));
    }
}

impl LiveQueries {
    /// The query whose key has this text.
    fn find<E: Effects>(&self, turn: &TurnContext<'_, E>, hash: u64, key: &str) -> Option<u64> {
        let numbers = self.by_hash.get(&hash)?;
        numbers.iter().copied().find(|number| {
            let text = self
                .queries
                .get(number)
                .and_then(|live| key_text(turn, &live.prefix, &live.query()?, &live.principal));
            text.is_some_and(|text| text == key)
        })
    }
}

/// The text that equal queries of principals with the same rights have in common. `None` if the rules allow no live query. New rules end all
/// live queries, so the text of a query does not change while it lives.
fn key_text<E: Effects>(
    turn: &TurnContext<'_, E>,
    prefix: &Name,
    query: &Query,
    principal: &Principal,
) -> Option<String> {
    let mut key = format!("{prefix:?}\n{}", query.normal_form());
    match turn.shard.permission.query_right(prefix) {
        // The rules do not decide the rights of an operator.
        QueryRight::Common if principal.is_operator() => key.push_str(&class_of(principal)),
        QueryRight::Common => {}
        QueryRight::ByPrincipal => key.push_str(&class_of(principal)),
        QueryRight::ByOthers => return None,
    }
    Some(key)
}

/// The parts of a principal that decide its rights, as text: those that rules can distinguish, and whether it is an operator. Rules do
/// not decide about operators.
fn class_of(principal: &Principal) -> String {
    format!(
        "\n{:?}\n{:?}\n{:?}\n{}",
        principal.user_id.as_str(),
        principal.server_data().map(Payload::as_str),
        principal.client_data().map(Payload::as_str),
        principal.is_operator(),
    )
}

/// The shard and the number of a live query, by which its changes find their subscribers.
pub(crate) type LiveId = (Address, u64);

//! The live queries of the sessions of a shard: which owner has each, and which sessions get its changes.

use std::collections::BTreeMap;

use tidewire_query::{Query, QueryLimits};

use super::collection::prefix_of;
use super::owner::LiveId;
use super::rows::refusal;
use crate::address::{Address, SessionId};
use crate::context::{ShardContext, TurnContext};
use crate::effect::Effects;
use crate::entry::{Entry, QueryEntry};
use crate::message::{self, Message, QueryReason};
use crate::permission::QueryRight;
use crate::small_map::SmallMap;
use crate::text::{Name, Payload, RESERVED};
use crate::time::Instant;
use crate::timer::DeadlineQueue;

/// A live query of a session.
#[derive(Debug)]
struct Subscription {
    correlation: Box<str>,
    prefix: Name,
    text: Payload,
    owner: Address,
    /// The query, once its result has arrived.
    live: Option<LiveId>,
    /// Whether the session has missed changes because it lags. It gets the whole result when it has read its messages.
    has_missed: bool,
    /// Whether it was requested again after a change of rights, and has no result yet.
    is_unsettled: bool,
}

/// The live queries of the sessions of a shard.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    // Boxed, because half of the places in a tree's nodes are empty.
    sessions: BTreeMap<SessionId, BTreeMap<u32, Box<Subscription>>>,
    /// The sessions that get the changes of a query, each with the number of its subscriptions to it.
    members: BTreeMap<LiveId, SmallMap<SessionId, u32>>,
    next_serial: u32,
    count: usize,
    bytes: usize,
    /// Subscriptions that were requested again after a change of rights and have no result yet.
    unsettled: usize,
    /// When subscriptions without a result whose owner is lost or not linked yet end.
    deadlines: DeadlineQueue<(SessionId, u32)>,
}

/// Approximate bytes of a subscription here and at the owner, in addition to its texts.
const SUBSCRIPTION_BYTES: usize = 320;

impl Subscription {
    fn bytes(&self) -> usize {
        SUBSCRIPTION_BYTES + self.correlation.len() + self.prefix.len() + self.text.len()
    }
}

/// Why a query or its collection is invalid: the text, and where and which fault.
pub(super) fn invalid(message: &str, at: &str, fault: &str) -> (QueryReason, String) {
    (QueryReason::Invalid, refusal(message, Some((at, fault))))
}

/// The prefix of a collection that clients may query.
pub(super) fn checked_prefix<E: Effects>(
    turn: &TurnContext<'_, E>,
    collection: &str,
) -> Result<Name, (QueryReason, String)> {
    let name_bytes_max = turn.shard.settings.limits.name_bytes_max;
    prefix_of(collection)
        .filter(|prefix| !prefix.starts_with(RESERVED) && prefix.len() < name_bytes_max)
        .ok_or_else(|| {
            let message = "collection is not the name of records without their last segment";
            invalid(message, "", "bad-collection")
        })
}

/// Parses a query of a client.
pub(super) fn checked_query<E: Effects>(
    turn: &TurnContext<'_, E>,
    text: &str,
) -> Result<Query, (QueryReason, String)> {
    turn.shard.count_work(text.len() * 4);
    Query::parse(text, &QueryLimits::default()).map_err(|error| {
        turn.shard.count(|refused| refused.malformed += 1);
        invalid(&error.what, &error.at, error.code.word())
    })
}

/// The refusal of a live query whose rules depend on more than the record and the user.
fn unsupported_rule() -> (QueryReason, String) {
    let message = "the read rule of the collection uses other records or the time, so its results can't be kept current; query once, or change the rule";
    (QueryReason::Rule, refusal(message, None))
}

impl Subscriptions {
    /// The number of live queries of all sessions.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Bytes that they keep.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether some subscriptions were requested again after a change of rights and have no result yet.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.unsettled > 0
    }

    /// Subscribes a session.
    pub(super) fn subscribe<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        session: SessionId,
        collection: &str,
        text: &str,
        correlation: Option<&str>,
    ) -> Result<(), (QueryReason, String)> {
        let prefix = checked_prefix(turn, collection)?;
        let query = checked_query(turn, text)?;
        let Some(correlation) = correlation else {
            let message = "a live query has no correlation id; add one";
            return Err(invalid(message, "", "bad-correlation"));
        };
        let known = self.sessions.get(&session);
        if known.is_some_and(|known| known.values().any(|it| *it.correlation == *correlation)) {
            let message = "the session has a live query with this correlation id; use another one";
            return Err(invalid(message, "", "bad-correlation"));
        }
        let live_max = turn.shard.settings.limits.live_queries_max;
        if known.is_some_and(|known| known.len() >= live_max) {
            turn.shard.count(|refused| refused.queries += 1);
            let message = format!(
                "session has {live_max} live queries (limits.live_queries_max); end one that is not needed"
            );
            return Err((QueryReason::TooMany, refusal(&message, None)));
        }
        if turn.shard.permission.query_right(&prefix) == QueryRight::ByOthers {
            return Err(unsupported_rule());
        }
        if let Some(principal) = turn.principal(session) {
            turn.shard.permission.begin_query(&principal, &prefix);
        }
        let owner = owner_of(turn, &prefix, &query);
        let subscription = Subscription {
            correlation: correlation.into(),
            prefix,
            text: Payload::from_checked(text),
            owner,
            live: None,
            has_missed: false,
            is_unsettled: false,
        };
        self.request(turn, session, subscription);
        Ok(())
    }

    /// Posts a subscription to the owner of its query.
    fn request<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        session: SessionId,
        subscription: Subscription,
    ) {
        let Some(principal) = turn.principal(session) else {
            return;
        };
        let serial = self.next_serial;
        self.next_serial = serial.wrapping_add(1);
        let subscribe = QueryEntry::Subscribe {
            session,
            serial,
            principal,
            prefix: subscription.prefix.clone(),
            query: subscription.text.clone(),
        };
        turn.post(subscription.owner, Entry::Query(subscribe));
        if turn.is_lost(subscription.owner) {
            self.await_owner(turn.shard, turn.now.monotonic, (session, serial));
        }
        self.count += 1;
        self.bytes += subscription.bytes();
        let known = self.sessions.entry(session).or_default();
        known.insert(serial, Box::new(subscription));
    }

    /// Ends the subscription with this correlation id.
    pub(super) fn unsubscribe<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        session: SessionId,
        correlation: &str,
    ) {
        let known = self.sessions.get(&session);
        let serial = known.and_then(|known| {
            let mut known = known.iter();
            let found = known.find(|(_, it)| *it.correlation == *correlation);
            found.map(|(serial, _)| *serial)
        });
        if let Some(serial) = serial {
            self.end(turn, session, serial);
        }
    }

    /// Ends the subscriptions of a session that has ended.
    pub(super) fn session_ended<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        session: SessionId,
    ) {
        for serial in self.serials(session) {
            self.end(turn, session, serial);
        }
    }

    fn serials(&self, session: SessionId) -> Vec<u32> {
        let known = self.sessions.get(&session);
        known.map_or_else(Vec::new, |known| known.keys().copied().collect())
    }

    /// Ends a subscription and releases it at its owner.
    fn end<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        session: SessionId,
        serial: u32,
    ) -> Option<Box<Subscription>> {
        let ended = self.remove(session, serial)?;
        let release = QueryEntry::Release { session, serial };
        turn.post(ended.owner, Entry::Query(release));
        Some(ended)
    }

    fn remove(&mut self, session: SessionId, serial: u32) -> Option<Box<Subscription>> {
        let known = self.sessions.get_mut(&session)?;
        let ended = known.remove(&serial)?;
        if known.is_empty() {
            self.sessions.remove(&session);
        }
        self.count -= 1;
        self.bytes -= ended.bytes();
        self.unsettled -= usize::from(ended.is_unsettled);
        if let Some(live) = ended.live {
            self.leave(session, live);
        }
        Some(ended)
    }

    fn leave(&mut self, session: SessionId, live: LiveId) {
        let Some(members) = self.members.get_mut(&live) else {
            return;
        };
        if let Some(count) = members.get_mut(session) {
            *count -= 1;
            if *count == 0 {
                members.remove(session);
            }
        }
        if members.is_empty() {
            self.members.remove(&live);
        }
    }

    /// Handles the whole result of a query for a subscription.
    pub(crate) fn snapshot<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        (session, serial): (SessionId, u32),
        live: LiveId,
        data: &Payload,
    ) {
        let is_behind = turn.is_behind(session);
        let Some(subscription) = self
            .sessions
            .get_mut(&session)
            .and_then(|known| known.get_mut(&serial))
        else {
            return;
        };
        let before = subscription.live.replace(live);
        // Answers are sent to a lagging session, too; a later result replaces this one.
        subscription.has_missed = is_behind;
        self.unsettled -= usize::from(std::mem::take(&mut subscription.is_unsettled));
        let key = key_of(live);
        let snapshot = message::Query::Snapshot {
            correlation: Some(&subscription.correlation),
            key: &key,
            data: data.as_str(),
        };
        if !is_behind {
            turn.send(session, &Message::Query(snapshot));
        }
        if before != Some(live) {
            if let Some(before) = before {
                self.leave(session, before);
            }
            let members = self.members.entry(live).or_default();
            match members.get_mut(session) {
                Some(count) => *count += 1,
                None => drop(members.insert(session, 1)),
            }
        }
    }

    /// Sends the changes of a query to its sessions. A lagging session gets the whole result later.
    pub(crate) fn changed<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        live: LiveId,
        data: &Payload,
    ) {
        let Some(members) = self.members.get(&live) else {
            return;
        };
        let mut recipients = Vec::with_capacity(members.len());
        for session in members.keys() {
            if !turn.is_behind(session) && !self.has_missed(session, live) {
                recipients.push(session);
            } else if let Some(known) = self.sessions.get_mut(&session) {
                for subscription in known.values_mut().filter(|it| it.live == Some(live)) {
                    subscription.has_missed = true;
                }
            }
        }
        let key = key_of(live);
        let changed = message::Query::Changed {
            key: &key,
            data: data.as_str(),
        };
        turn.send_to_all(&recipients, &Message::Query(changed));
    }

    /// Whether the session waits for the whole result of a query.
    fn has_missed(&self, session: SessionId, live: LiveId) -> bool {
        let known = self.sessions.get(&session);
        known.is_some_and(|known| {
            let mut of_query = known.values().filter(|it| it.live == Some(live));
            of_query.any(|it| it.has_missed)
        })
    }

    /// Handles that the owner has ended a subscription.
    pub(crate) fn ended<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        (session, serial): (SessionId, u32),
        reason: QueryReason,
        data: &Payload,
    ) {
        if let Some(ended) = self.remove(session, serial) {
            refuse(
                turn,
                session,
                Some(&ended.correlation),
                reason,
                data.as_str(),
            );
        }
    }

    /// Handles that a session has read its messages: it gets the results of which it has missed changes.
    pub(crate) fn drained<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        session: SessionId,
    ) {
        if turn.is_behind(session) {
            return;
        }
        let Some(known) = self.sessions.get(&session) else {
            return;
        };
        for (serial, subscription) in known.iter().filter(|(_, it)| it.has_missed) {
            let serial = *serial;
            let refresh = QueryEntry::Refresh { session, serial };
            turn.post(subscription.owner, Entry::Query(refresh));
        }
    }

    /// Requests subscriptions again: the subscriptions of one session whose principal has changed, or after a change of rules or of the view all of
    /// them. The session keeps its result until the new one arrives.
    pub(super) fn request_again<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        session: Option<SessionId>,
    ) {
        let sessions: Vec<SessionId> = match session {
            Some(session) => vec![session],
            None => self.sessions.keys().copied().collect(),
        };
        for session in sessions {
            for serial in self.serials(session) {
                let Some(ended) = self.end(turn, session, serial) else {
                    continue;
                };
                if turn.shard.permission.query_right(&ended.prefix) == QueryRight::ByOthers {
                    let (reason, data) = unsupported_rule();
                    refuse(turn, session, Some(&ended.correlation), reason, &data);
                    continue;
                }
                let Ok(query) = Query::parse(ended.text.as_str(), &QueryLimits::default()) else {
                    continue;
                };
                let again = Subscription {
                    owner: owner_of(turn, &ended.prefix, &query),
                    live: None,
                    has_missed: false,
                    is_unsettled: true,
                    ..*ended
                };
                self.unsettled += 1;
                self.request(turn, session, again);
            }
        }
    }

    /// Handles the link to a node: it has got none of the subscriptions to it.
    pub(super) fn node_joined<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, node: u16) {
        for (session, serial) in self.owned_by(node) {
            if let Some(ended) = self.end(turn, session, serial) {
                self.unsettled += usize::from(ended.is_unsettled);
                self.request(turn, session, *ended);
            }
        }
    }

    /// Handles the loss of a node. Sessions keep the results of its queries: they get the whole results of the next owner, or of this node when
    /// it is linked again. Its changes belong to no result here, because a later life of the node may use the same numbers.
    pub(super) fn node_lost(&mut self, context: &ShardContext, now: Instant, node: u16) {
        for (session, serial) in self.owned_by(node) {
            let Some(subscription) = self
                .sessions
                .get_mut(&session)
                .and_then(|known| known.get_mut(&serial))
            else {
                continue;
            };
            match subscription.live.take() {
                Some(live) => self.leave(session, live),
                None => self.await_owner(context, now, (session, serial)),
            }
        }
    }

    fn owned_by(&self, node: u16) -> Vec<(SessionId, u32)> {
        let mut owned = Vec::new();
        for (session, known) in &self.sessions {
            let of_node = known.iter().filter(|(_, it)| it.owner.node == node);
            owned.extend(of_node.map(|(serial, _)| (*session, *serial)));
        }
        owned
    }

    /// Ends a subscription after a time if it has no result then. If the view can't change, another owner may not be found.
    fn await_owner(&mut self, context: &ShardContext, now: Instant, id: (SessionId, u32)) {
        self.deadlines.push(now + context.settings.load_timeout, id);
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    pub(super) fn deadline_reached<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>) {
        while let Some((session, serial)) = self.deadlines.pop_due(turn.now.monotonic) {
            let known = self.sessions.get(&session);
            let subscription = known.and_then(|known| known.get(&serial));
            if subscription.is_none_or(|it| it.live.is_some()) {
                continue;
            }
            if let Some(ended) = self.end(turn, session, serial) {
                let message = "the node that keeps the result can't be reached; subscribe again";
                let data = refusal(message, None);
                let reason = QueryReason::Unavailable;
                refuse(turn, session, Some(&ended.correlation), reason, &data);
            }
        }
    }
}

/// The shard that keeps the result of a query: equal queries have the same one.
fn owner_of<E: Effects>(turn: &TurnContext<'_, E>, prefix: &Name, query: &Query) -> Address {
    turn.shard
        .owner(&format!("{prefix}{}", query.normal_form()))
}

/// The text by which a client recognizes the changes of a query.
fn key_of((owner, number): LiveId) -> String {
    format!("{}.{}.{number}", owner.node, owner.shard)
}

/// Answers that a query is refused or has ended.
pub(super) fn refuse<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    session: SessionId,
    correlation: Option<&str>,
    reason: QueryReason,
    data: &str,
) {
    let error = message::Query::Error {
        reason,
        correlation,
        data,
    };
    turn.send(session, &Message::Query(error));
}

//! The means that every primitive needs to act: the turn's time, the sessions, the hub and the output.
//!
//! [`TurnContext`] lasts for one call of the engine, [`ShardContext`] and [`ShardState`] as long as the shard. None of them decides anything.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU64;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::address::{Address, SessionId};
use crate::awaited::{Awaited, visit_refusals};
use crate::bulk::Progress;
use crate::effect::{Effects, Format, InterestChange, Span};
use crate::entry::{
    Asker, BulkReply, DelayedAck, Entry, Listening, PendingReplyId, ReplyAction, ReplyPart,
};
use crate::event_pattern::literal_prefix;
use crate::event_rights::EventRights;
use crate::hub::{Hub, HubTopic};
use crate::json;
use crate::limits::{LagCounts, Refused};
use crate::message::{
    Event, Message, Presence, PresenceAction, Publication, RareAttributes, Reason, Refusal,
};
use crate::permission::{Access, Authorization, Decision, Permission, Question, RequestedAction};
use crate::principal::Principal;
use crate::publication::InterestTopic;
use crate::quota::Quotas;
use crate::rights::Revocations;
use crate::session::scopes::SessionScopes;
use crate::session::{BulkAuthorization, NameReads, Session, Sessions};
use crate::settings::{Liveness, Settings};
use crate::slot::SlotTable;
use crate::table::Map;
use crate::text::{Name, RESERVED};
use crate::time::{Instant, Now};
use crate::view::ClusterView;
use crate::work::NAME_WORK;

/// Names of one bulk message whose rules wait for other records at the same time. It limits the requests of one message in a turn, and
/// the number of names that are compared with each value that arrives. It is not an option, because it refuses nothing: all names are
/// authorized, this many at a time.
const READS_AT_ONCE_MAX: usize = 256;

/// Memory that a session may use however full the node's memory budget is: a thousand sessions use at most 64 MB this way.
const SMALL_SESSION_BYTES: usize = 64 << 10;

/// State that lasts for a shard and that every primitive may read: its address, settings and permission, and the counters of refusals.
#[derive(Debug)]
pub(crate) struct ShardContext {
    pub(crate) address: Address,
    /// Whether any rates are configured.
    pub(crate) is_rated: bool,
    pub(crate) slots: Arc<SlotTable>,
    /// All shards of all members, in ascending order. Members that join or leave own no slots.
    pub(crate) shards: Vec<Address>,
    /// While a view changes, the owners to which the sessions of this shard have announced what they have.
    pub(crate) placed: Option<Arc<SlotTable>>,
    /// Whether the shard has adopted a view, so that names may pass to other owners.
    pub(crate) is_clustered: bool,
    /// The version of the protocol that all nodes speak.
    pub(crate) level: u16,
    pub(crate) settings: Settings,
    pub(crate) permission: Arc<dyn Permission>,
    /// The number of changes of rules.
    pub(crate) rules_round: u64,
    /// The seed of the tables.
    pub(crate) seed: u64,
    /// Whether the shard is draining and refuses new calls.
    pub(crate) draining: bool,
    pub(crate) quotas: Quotas,
    /// Bytes that may still be used before the node exceeds its memory budget. Set at the start of each turn.
    pub(crate) room: Cell<usize>,
    /// Bytes for which there was no room since the driver last asked.
    pub(crate) lacking: Cell<usize>,
    /// Counters of refusals. A cell, because limits are checked in places that change nothing else.
    pub(crate) refused: Cell<Refused>,
    /// The same for sessions that lag.
    pub(crate) lag: Cell<LagCounts>,
    /// Counts that would have fallen below zero.
    pub(crate) underflows: Cell<u64>,
    /// Bytes that this shard has touched since it began, see [`crate::work`].
    pub(crate) work: Cell<u64>,
    /// Sessions that were ended because their login had expired.
    pub(crate) expired: u64,
    /// Sessions that were ended because their login was revoked.
    pub(crate) revoked: u64,
    pub(crate) revocations: Revocations,
}

impl ShardContext {
    /// The shard that owns a name.
    pub(crate) fn owner(&self, name: &str) -> Address {
        self.slots.owner(self.settings.tags.tag(name))
    }

    /// All shards of all nodes.
    pub(crate) fn shards(&self) -> impl Iterator<Item = Address> + '_ {
        self.shards.iter().copied()
    }

    /// The number of all shards.
    pub(crate) fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// The slot of a name.
    pub(crate) fn slot(&self, name: &str) -> u16 {
        self.slots.slot(self.settings.tags.tag(name))
    }

    /// Takes the owners and the shards of a view.
    pub(crate) fn adopt(&mut self, view: &ClusterView) {
        self.placed.get_or_insert_with(|| Arc::clone(&self.slots));
        self.slots = Arc::clone(&view.slots);
        self.shards = view.shards();
        self.is_clustered = true;
        self.level = view.level;
    }

    /// The liveness of a session of this format. It costs the session no memory.
    pub(crate) fn liveness(&self, format: Format) -> Liveness {
        let liveness = self.settings.liveness.get(usize::from(format.0));
        liveness.copied().unwrap_or_default()
    }

    /// Adds to the bytes that the shard has touched.
    pub(crate) fn count_work(&self, bytes: usize) {
        self.work.set(self.work.get().wrapping_add(bytes as u64));
    }

    /// Whether `bytes` more may be used within the node's memory budget for a session that uses `kept` already. If so, reserves them. A
    /// session that uses little always gets them, so that sessions that fill the budget do not stop the others.
    pub(crate) fn has_memory(&self, kept: u32, bytes: usize) -> bool {
        let room = self.room.get();
        let is_small = kept as usize + bytes <= SMALL_SESSION_BYTES;
        let has_memory = is_small || bytes <= room;
        if has_memory {
            self.room.set(room.saturating_sub(bytes));
        } else {
            self.lacking.set(self.lacking.get().saturating_add(bytes));
            self.count(|refused| refused.memory += 1);
        }
        has_memory
    }

    /// Counts a refusal.
    pub(crate) fn count(&self, count: impl FnOnce(&mut Refused)) {
        let mut refused = self.refused.get();
        count(&mut refused);
        self.refused.set(refused);
    }

    /// Counts something about lagging sessions.
    pub(crate) fn count_lag(&self, count: impl FnOnce(&mut LagCounts)) {
        let mut lag = self.lag.get();
        count(&mut lag);
        self.lag.set(lag);
    }

    /// Notes that a count of subscriptions, users or calls would have fallen below zero, which is a bug. The count stays as it is, and the
    /// shard continues: a wrong count affects one name, and the end of the process would affect all.
    pub(crate) fn count_underflow(&self) {
        self.underflows.set(self.underflows.get() + 1);
    }

    /// Counts a refusal by the permission.
    pub(crate) fn count_denial(&self, authorization: Authorization) {
        self.count(|refused| match authorization {
            Authorization::Deny => refused.denied += 1,
            Authorization::Failed => refused.rule_failed += 1,
            Authorization::Allow | Authorization::Wait => {}
        });
    }

    /// Whether the text can be a name.
    pub(crate) fn is_name(&self, text: &str) -> bool {
        let is_name = !text.is_empty() && text.len() <= self.settings.limits.name_bytes_max;
        if !is_name {
            self.count(|refused| refused.names += 1);
        }
        is_name
    }

    /// Whether the text can be the name of a client's record.
    pub(crate) fn is_record_name(&self, text: &str) -> bool {
        if text.starts_with(RESERVED) {
            self.count(|refused| refused.names += 1);
            return false;
        }
        self.is_name(text)
    }

    /// Whether the bulk message is within the limit of names.
    pub(crate) fn is_bulk(&self, names: &[&str]) -> bool {
        let is_bulk = names.len() <= self.settings.limits.bulk_names_max;
        if !is_bulk {
            self.count(|refused| refused.bulk_names += 1);
        }
        is_bulk
    }

    /// Whether the text is JSON within the limits.
    pub(crate) fn json_kind(&self, text: &str) -> Result<json::JsonKind, json::JsonError> {
        self.count_work(text.len());
        json::check(text, self.json_limits()).inspect_err(|error| {
            self.count(|refused| match error {
                json::JsonError::Malformed { .. } => refused.malformed += 1,
                json::JsonError::TooDeep => refused.too_deep += 1,
                json::JsonError::TooLarge => refused.too_large += 1,
            });
        })
    }

    /// Whether the text, if present, is JSON within the limits.
    pub(crate) fn is_json(&self, text: Option<&str>) -> bool {
        text.is_none_or(|text| self.json_kind(text).is_ok())
    }

    /// Whether the payload of a publication is JSON, bytes, or JSON with attachments, and within the limits.
    pub(crate) fn is_payload(&self, publication: &Publication<'_>) -> bool {
        let binary_bytes = RareAttributes::payload_size(publication.rare.as_deref());
        if binary_bytes == 0 {
            return self.is_json(publication.data);
        }
        self.count_work(binary_bytes);
        let is_large = publication.payload_bytes() > self.settings.limits.record_bytes_max;
        self.count(|refused| refused.too_large += u64::from(is_large));
        !is_large && self.is_json(publication.data) && publication.has_consistent_payload()
    }

    /// The limits of a document.
    pub(crate) fn json_limits(&self) -> json::JsonLimits {
        let limits = &self.settings.limits;
        json::JsonLimits {
            nesting_max: limits.nesting_max,
            bytes_max: limits.record_bytes_max,
            array_gap_max: limits.array_gap_max,
        }
    }
}

/// This shard's interest changes and the acknowledgements that wait for them.
#[derive(Debug, Default)]
pub(crate) struct Interest {
    /// The last number assigned.
    given: u64,
    visible: u64,
    delayed_acks: VecDeque<(u64, SessionId, DelayedAck)>,
    /// The owners that need to know the events with subscribers on this shard, with the number of their census.
    censuses: BTreeMap<Address, u64>,
    /// While users pass to other owners: the changes of their numbers of sessions since the view was adopted.
    pub(crate) withheld: BTreeMap<Name, i32>,
    /// The answers to censuses that are not complete, each with the next index of the hub's table to visit.
    census_walks: VecDeque<(Address, u64, usize)>,
}

impl Interest {
    /// When the next part of an answer to a census is due: at once.
    pub(crate) fn next(&self) -> Option<Instant> {
        (!self.census_walks.is_empty()).then_some(Instant(0))
    }
}

/// Entries of the hub's table that one part of an answer to a census visits. About a tenth of a millisecond.
const CENSUS_ENTRIES: usize = 1_000;

/// Replies of this shard that wait for parts from other shards, by number.
#[derive(Debug)]
pub(crate) struct PendingReplies {
    pub(crate) next: NonZeroU64,
    pub(crate) running: Map<NonZeroU64, PendingReply>,
}

impl PendingReplies {
    /// The session that waits for a reply.
    pub(crate) fn session(&self, reply: PendingReplyId) -> Option<SessionId> {
        self.running
            .get(&reply.number)
            .map(|running| running.session)
    }

    /// The bulk action of records that a part belongs to.
    pub(crate) fn records_mut(&mut self, reply: PendingReplyId) -> Option<&mut BulkReply> {
        match self
            .running
            .get_mut(&reply.number)
            .map(|running| &mut running.what)
        {
            Some(ReplyAction::Record(records)) => Some(records),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct PendingReply {
    pub(crate) session: SessionId,
    pub(crate) missing: usize,
    pub(crate) what: ReplyAction,
}

/// The access that a message requests, at its session's shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccessRequest {
    access: Access,
    by: RequestedAction,
    /// Whether the names are patterns of events.
    is_pattern: bool,
}

impl AccessRequest {
    /// A subscription to patterns of events.
    pub(crate) const EVENT_PATTERN: Self = Self {
        access: Access::EventSubscribe,
        by: RequestedAction::Plainly,
        is_pattern: true,
    };
}

impl From<Access> for AccessRequest {
    fn from(access: Access) -> Self {
        Self {
            access,
            by: RequestedAction::Plainly,
            is_pattern: false,
        }
    }
}

impl From<PresenceAction> for AccessRequest {
    fn from(action: PresenceAction) -> Self {
        Self {
            access: Access::Presence,
            by: RequestedAction::Presence(action),
            is_pattern: false,
        }
    }
}

/// Why a session has lost a right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LostRight {
    /// A rule denies it.
    Denied,
    /// Its rule failed.
    RuleFailed,
}

impl LostRight {
    /// The message to the session: a refusal of the action that it had the right to, without a correlation id.
    pub(crate) fn refusal<A>(self, action: A, name: Option<&str>) -> Refusal<'_, A> {
        let refusal = Refusal::new(self.reason(), action);
        Refusal { name, ..refusal }
    }

    pub(crate) fn reason(self) -> Reason {
        match self {
            Self::Denied => Reason::Denied,
            Self::RuleFailed => Reason::RuleFailed,
        }
    }
}

/// The reason why a name of a bulk message is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeniedName<'n> {
    /// Denied by a rule or by a limit.
    Denied(&'n str),
    /// Its rule failed.
    RuleFailed(&'n str),
    /// Not a pattern of events. The answer does not repeat it if it is too long.
    NoPattern(Option<&'n str>),
    /// Not a valid name. The answer does not repeat it, because it may be too long.
    NoName,
}

impl<'n> DeniedName<'n> {
    /// The refusal of the name by the same action as `refusal`.
    pub(crate) fn refusal<A>(self, refusal: Refusal<'n, A>) -> Refusal<'n, A> {
        let (reason, name) = match self {
            Self::Denied(name) => (Reason::Denied, Some(name)),
            Self::RuleFailed(name) => (Reason::RuleFailed, Some(name)),
            Self::NoPattern(pattern) => (Reason::InvalidPattern, pattern),
            Self::NoName => (Reason::InvalidData, None),
        };
        Refusal {
            reason,
            name,
            ..refusal
        }
    }
}

/// The names of a bulk message after they were authorized.
#[derive(Debug)]
pub(crate) struct AuthorizedNames<'n> {
    pub(crate) allowed: Vec<&'n str>,
    pub(crate) denied: Vec<DeniedName<'n>>,
}

impl AuthorizedNames<'_> {
    /// Whether the message is acknowledged: if some name is allowed, or the message had no names.
    pub(crate) fn is_acknowledged(&self) -> bool {
        !self.allowed.is_empty() || self.denied.is_empty()
    }
}

/// The state of a shard from which each call of the engine makes its [`TurnContext`]. The owners of names are not part of it, so the engine
/// can pass both to a primitive, and an owner can act while it has one of its names borrowed (decision 0066).
#[derive(Debug)]
pub(crate) struct ShardState {
    pub(crate) context: ShardContext,
    pub(crate) sessions: Sessions,
    pub(crate) hub: Hub,
    pub(crate) interest: Interest,
    pub(crate) scopes: SessionScopes,
    pub(crate) event_rights: EventRights,
    pub(crate) pending_replies: PendingReplies,
    pub(crate) awaited: Awaited,
    /// Entries for this shard itself, in order.
    pub(crate) local: VecDeque<Entry>,
}

impl ShardState {
    /// The context of one call of the engine.
    pub(crate) fn turn<'a, E>(&'a mut self, now: Now, out: &'a mut E) -> TurnContext<'a, E> {
        TurnContext {
            now,
            shard: &self.context,
            sessions: &mut self.sessions,
            hub: &mut self.hub,
            interest: &mut self.interest,
            scopes: &mut self.scopes,
            event_rights: &mut self.event_rights,
            pending_replies: &mut self.pending_replies,
            awaited: &mut self.awaited,
            local: &mut self.local,
            bulk: None,
            out,
        }
    }
}

/// The context of one call of the engine: the time, the sessions, the hub and the output.
pub(crate) struct TurnContext<'a, E> {
    pub(crate) now: Now,
    pub(crate) shard: &'a ShardContext,
    pub(crate) sessions: &'a mut Sessions,
    pub(crate) hub: &'a mut Hub,
    pub(crate) interest: &'a mut Interest,
    pub(crate) scopes: &'a mut SessionScopes,
    pub(crate) event_rights: &'a mut EventRights,
    pub(crate) pending_replies: &'a mut PendingReplies,
    pub(crate) awaited: &'a mut Awaited,
    /// Entries for this shard itself, in order.
    pub(crate) local: &'a mut VecDeque<Entry>,
    /// The long message of which a piece is handled.
    pub(crate) bulk: Option<&'a mut Progress>,
    pub(crate) out: &'a mut E,
}

impl<E: Effects> TurnContext<'_, E> {
    /// Whether the server pings this session.
    pub(crate) fn pings(&self, id: SessionId) -> bool {
        let session = self.sessions.find(id);
        session.is_some_and(|session| self.shard.liveness(session.format).has_pings())
    }

    /// Whether the session lags, so that no publication is sent to it.
    pub(crate) fn is_behind(&mut self, id: SessionId) -> bool {
        let lag = self.sessions.lag_mut(id);
        lag.is_some_and(|lag| lag.is_behind)
    }

    /// Sends a message to one session, unless it has ended.
    pub(crate) fn send(&mut self, to: SessionId, message: &Message<'_>) {
        if let Some(session) = self.sessions.find(to) {
            let format = session.format;
            let span = self.out.append(format, message);
            self.shard
                .count_work(span.len() as usize + self.out.take_compressed_bytes());
            // Some protocols have no form for some messages.
            if !span.is_empty() {
                self.hub.answer(to.index, format, span);
            }
        }
    }

    /// Sends a message to several sessions. It is encoded once for each of their formats.
    pub(crate) fn send_to_all(&mut self, to: &[SessionId], message: &Message<'_>) {
        let mut encoded: SmallVec<[(Format, Span); 4]> = SmallVec::new();
        for session in to.iter().filter_map(|id| self.sessions.find(*id)) {
            let format = session.format;
            let known = encoded.iter().find(|(of, _)| *of == format);
            let span = match known {
                Some((_, span)) => *span,
                None => {
                    let span = self.out.append(format, message);
                    let compressed = self.out.take_compressed_bytes();
                    self.shard.count_work(span.len() as usize + compressed);
                    encoded.push((format, span));
                    span
                }
            };
            if !span.is_empty() {
                self.hub.answer(session.id.index, format, span);
            }
        }
    }

    /// Sends a message to all members of a name on this shard except one. Lagging members miss it.
    pub(crate) fn fan_out(
        &mut self,
        topic: HubTopic,
        name: &str,
        except: Option<SessionId>,
        message: &Message<'_>,
    ) {
        self.fan_out_to_readers(topic, name, except, message, None);
    }

    /// The same for a record's new value of this size.
    pub(crate) fn fan_out_value(
        &mut self,
        name: &str,
        except: Option<SessionId>,
        message: &Message<'_>,
        value_bytes: usize,
    ) {
        self.fan_out_to_readers(HubTopic::Record, name, except, message, Some(value_bytes));
    }

    /// Sends to all members that do not lag, and counts the message as missed for the others.
    fn fan_out_to_readers(
        &mut self,
        topic: HubTopic,
        name: &str,
        except: Option<SessionId>,
        message: &Message<'_>,
        value_bytes: Option<usize>,
    ) {
        if self.hub.has_lagging() {
            self.skip(topic, name, except);
        }
        self.publish(topic, name, except, message, value_bytes);
    }

    /// The same without some sessions, given by their index.
    pub(crate) fn fan_out_without(
        &mut self,
        topic: HubTopic,
        name: &str,
        except: Option<SessionId>,
        withheld: &[u32],
        message: &Message<'_>,
    ) {
        if withheld.is_empty() {
            return self.fan_out(topic, name, except, message);
        }
        if self.hub.has_lagging() {
            self.skip(topic, name, except);
        }
        let Some(channel) = self.hub.find(topic, name) else {
            return;
        };
        let except = except.and_then(|id| self.sessions.find(id));
        let except = except.map(|session| session.id.index);
        let except = except.filter(|index| !withheld.contains(index));
        for format in self.hub.formats(channel) {
            let span = self.out.append(format, message);
            self.hub.publish(channel, format, span, None);
            for index in withheld.iter().copied().chain(except) {
                let session = self.sessions.at(index);
                if session.is_some_and(|session| session.format == format) {
                    self.hub.withhold(index, span);
                }
            }
        }
    }

    /// The same for a message that a later one can't replace: lagging members get it, too.
    pub(crate) fn fan_out_to_all(
        &mut self,
        topic: HubTopic,
        name: &str,
        except: Option<SessionId>,
        message: &Message<'_>,
    ) {
        if self.hub.has_lagging() {
            for session in self.hub.lagging_sessions(topic, name, self.sessions) {
                if Some(session) != except {
                    self.send(session, message);
                }
            }
        }
        self.publish(topic, name, except, message, None);
    }

    /// Counts the message as missed for the lagging sessions.
    pub(crate) fn skip(&mut self, topic: HubTopic, name: &str, except: Option<SessionId>) {
        let except = except.and_then(|id| self.sessions.find(id));
        let except = except.map(|session| session.id.index);
        let missed = self.hub.skip(topic, name, except) as u64;
        self.shard.count_lag(|lag| match topic {
            HubTopic::Record => lag.skipped_updates += missed,
            HubTopic::Interest(_) => lag.skipped_events += missed,
        });
    }

    /// Encodes a message once for each format of a name's members and adds it to their ranges.
    fn publish(
        &mut self,
        topic: HubTopic,
        name: &str,
        except: Option<SessionId>,
        message: &Message<'_>,
        value_bytes: Option<usize>,
    ) {
        let Some(channel) = self.hub.find(topic, name) else {
            return;
        };
        if let Some(bytes) = value_bytes {
            self.hub.set_value_bytes(channel, bytes, self.sessions);
        }
        let except = except
            .and_then(|id| self.sessions.find(id))
            .map(|session| (session.id.index, session.format));
        for format in self.hub.formats(channel) {
            let span = self.out.append(format, message);
            self.shard
                .count_work(span.len() as usize + self.out.take_compressed_bytes());
            let except = except
                .filter(|(_, own)| *own == format)
                .map(|(index, _)| index);
            self.hub.publish(channel, format, span, except);
        }
    }

    /// Posts an entry to a shard, which may be this one.
    pub(crate) fn post(&mut self, to: Address, entry: Entry) {
        if to == self.shard.address {
            self.local.push_back(entry);
        } else if to.node == self.shard.address.node || !self.awaited.has_nodes() {
            self.out.post(to, entry);
        } else {
            self.post_to_node(to, entry);
        }
    }

    /// Posts an entry to a shard of another node. If the node is lost, the entry's requests are refused.
    fn post_to_node(&mut self, to: Address, entry: Entry) {
        if self.awaited.is_lost(to.node) {
            return visit_refusals(to, &entry, |refusal| self.local.push_back(refusal));
        }
        self.awaited.sent(to, &entry);
        self.out.post(to, entry);
    }

    /// Whether a shard is of a node that is lost or not linked yet.
    pub(crate) fn is_lost(&self, shard: Address) -> bool {
        shard.node != self.shard.address.node && self.awaited.is_lost(shard.node)
    }

    /// Posts an entry to every shard.
    pub(crate) fn post_all(&mut self, entry: &Entry) {
        let context = self.shard;
        for shard in context.shards() {
            self.post(shard, entry.clone());
        }
    }

    /// The principal of an open session.
    pub(crate) fn principal(&self, id: SessionId) -> Option<Arc<Principal>> {
        self.sessions.find(id)?.principal().cloned()
    }

    /// Whether the session may hold `more` names in addition to those it has.
    pub(crate) fn has_room(&self, id: SessionId, more: usize) -> bool {
        let held = self
            .sessions
            .find(id)
            .map_or(0, Session::subscription_count);
        let has_room = held + more <= self.shard.settings.limits.subscriptions_max;
        if !has_room {
            self.shard.count(|refused| refused.subscriptions += 1);
        }
        has_room
    }

    /// Announces that this shard has its first member of a name, or has lost its last one.
    pub(crate) fn change_interest(&mut self, topic: InterestTopic, name: Name, wanted: bool) {
        self.interest.given += 1;
        let number = self.interest.given;
        self.hub
            .set_interest(HubTopic::Interest(topic), &name, number);
        self.out.interest(
            number,
            InterestChange {
                topic,
                name,
                wanted,
            },
        );
    }

    /// Reports to the owner of an event that this shard has its first subscriber or has lost its last one, if the owner takes a census.
    pub(crate) fn report_interest(&mut self, name: Name, wanted: bool) {
        let owner = self.shard.owner(&name);
        if let Some(&round) = self.interest.censuses.get(&owner) {
            let interest = Listening::Interest {
                round,
                shard: self.shard.address,
                name,
                wanted,
            };
            self.post(owner, Entry::Listening(interest));
        }
    }

    /// Answers an owner's census, in parts if there are many names, and reports later changes to the owner.
    pub(crate) fn take_part_in_census(&mut self, owner: Address, round: u64) {
        self.leave_census(owner);
        self.interest.censuses.insert(owner, round);
        self.interest.census_walks.push_back((owner, round, 0));
        if self.interest.census_walks.len() == 1 {
            self.continue_census();
        }
    }

    /// Reports the events with subscribers here to their new owners, if these take a census.
    pub(crate) fn announce_events(&mut self, is_moved: impl Fn(&str) -> bool) {
        let shard = self.shard.address;
        let mut moved: BTreeMap<Address, Vec<Name>> = BTreeMap::new();
        for (topic, name, _) in self.hub.names_at(0..self.hub.table_len()) {
            if topic == HubTopic::Interest(InterestTopic::Event) && is_moved(name) {
                let owner = self.shard.owner(name);
                moved.entry(owner).or_default().push(name.clone());
            }
        }
        for (owner, names) in moved {
            if let Some(&round) = self.interest.censuses.get(&owner) {
                let present = Listening::Present {
                    round,
                    shard,
                    names,
                };
                self.post(owner, Entry::Listening(present));
            }
        }
    }

    /// Visits the next entries for the first answer that is not complete.
    pub(crate) fn continue_census(&mut self) {
        let Some((owner, round, first)) = self.interest.census_walks.pop_front() else {
            return;
        };
        let table_len = self.hub.table_len();
        let end = table_len.min(first + CENSUS_ENTRIES);
        let shard_context = self.shard;
        let names: Vec<Name> = self
            .hub
            .names_at(first.min(end)..end)
            .filter(|(topic, name, _)| {
                *topic == HubTopic::Interest(InterestTopic::Event)
                    && shard_context.owner(name) == owner
            })
            .map(|(_, name, _)| name.clone())
            .collect();
        if end < table_len {
            self.interest.census_walks.push_back((owner, round, end));
        }
        if !names.is_empty() {
            let shard = shard_context.address;
            let present = Listening::Present {
                round,
                shard,
                names,
            };
            self.post(owner, Entry::Listening(present));
        }
    }

    /// Stops reporting to the owners of a lost node.
    pub(crate) fn leave_censuses(&mut self, node: u16) {
        self.interest.censuses.retain(|owner, _| owner.node != node);
        let walks = &mut self.interest.census_walks;
        walks.retain(|(owner, _, _)| owner.node != node);
    }

    /// Stops reporting to an owner.
    pub(crate) fn leave_census(&mut self, owner: Address) {
        self.interest.censuses.remove(&owner);
        let walks = &mut self.interest.census_walks;
        walks.retain(|(of, _, _)| *of != owner);
    }

    /// Sends an acknowledgement as soon as the interest change `number` is visible. Acknowledgements are sent in the order of these
    /// numbers.
    pub(crate) fn ack_when_visible(&mut self, number: u64, id: SessionId, ack: DelayedAck) {
        if number <= self.interest.visible {
            self.send_ack(id, &ack);
            return;
        }
        // The queue is sorted by number, so the ones that become visible are at its front.
        let index = self
            .interest
            .delayed_acks
            .partition_point(|(held, _, _)| *held <= number);
        self.interest.delayed_acks.insert(index, (number, id, ack));
    }

    /// Handles that interest changes up to this number are visible.
    pub(crate) fn interest_visible(&mut self, up_to: u64) {
        self.interest.visible = self.interest.visible.max(up_to);
        while self
            .interest
            .delayed_acks
            .front()
            .is_some_and(|(number, _, _)| *number <= self.interest.visible)
        {
            if let Some((_, id, ack)) = self.interest.delayed_acks.pop_front() {
                self.send_ack(id, &ack);
            }
        }
    }

    pub(crate) fn send_ack(&mut self, id: SessionId, ack: &DelayedAck) {
        match ack {
            DelayedAck::Event {
                action,
                correlation,
            } => {
                self.send(
                    id,
                    &Message::Event(Event::Ack {
                        action: *action,
                        correlation: correlation.as_deref(),
                    }),
                );
            }
            DelayedAck::Part(reply) => self.part_done(*reply, ReplyPart::Done),
            DelayedAck::Presence {
                action,
                correlation,
            } => {
                let correlation = correlation.as_deref();
                self.send(
                    id,
                    &Message::Presence(Presence::Ack {
                        action: *action,
                        correlation,
                    }),
                );
            }
        }
    }

    /// Whether the names that a handler received are a part of a longer message.
    pub(crate) fn is_piece(&self) -> bool {
        self.bulk.is_some()
    }

    /// Whether these are the last names of the message.
    pub(crate) fn is_last_piece(&self) -> bool {
        self.bulk.as_ref().is_none_or(|bulk| bulk.is_last)
    }

    /// Starts a reply to a bulk message that waits for `missing` parts, or adds them to the reply that its earlier pieces started.
    pub(crate) fn begin_bulk_reply(
        &mut self,
        id: SessionId,
        missing: usize,
        what: ReplyAction,
    ) -> PendingReplyId {
        let Some(bulk) = &mut self.bulk else {
            return self.begin_reply(id, missing, what);
        };
        if let Some(reply) = bulk.reply
            && let Some(running) = self.pending_replies.running.get_mut(&reply.number)
        {
            running.missing += missing;
            running.what.add_names(what);
            return reply;
        }
        // The extra part represents the message itself. It is done with the last piece, so the reply can't complete between two pieces.
        let reply = self.begin_reply(id, missing + 1, what);
        if let Some(bulk) = &mut self.bulk {
            bulk.reply = Some(reply);
        }
        reply
    }

    /// Acknowledges a bulk message as soon as all its pieces have taken effect and the interest changes up to `number` are visible.
    pub(crate) fn ack_bulk(&mut self, id: SessionId, number: u64, ack: DelayedAck) {
        let ack = if self.is_piece() {
            DelayedAck::Part(self.begin_bulk_reply(id, 1, ReplyAction::Ack(ack)))
        } else {
            ack
        };
        self.ack_when_visible(number, id, ack);
    }

    /// Starts a reply that waits for `missing` parts.
    pub(crate) fn begin_reply(
        &mut self,
        session: SessionId,
        missing: usize,
        what: ReplyAction,
    ) -> PendingReplyId {
        let number = self.pending_replies.next;
        self.pending_replies.next = number.saturating_add(1);
        self.pending_replies.running.insert(
            number,
            PendingReply {
                session,
                missing,
                what,
            },
        );
        PendingReplyId {
            address: self.shard.address,
            index: 0,
            number,
        }
    }

    /// Reports to the shard with the pending reply that one part is done.
    pub(crate) fn part_done(&mut self, reply: PendingReplyId, part: ReplyPart) {
        self.post(reply.address, Entry::ReplyPart { reply, part });
    }

    /// Authorizes a message about one name, or without a name, at its session's shard. At most one read for it is in flight.
    pub(crate) fn authorize(
        &mut self,
        id: SessionId,
        request: impl Into<AccessRequest>,
        name: Option<&str>,
        data: Option<&str>,
    ) -> Authorization {
        self.authorize_with(id, request.into(), name, data, |permission, question| {
            permission.decide(question)
        })
    }

    /// Authorizes a pattern whose matches begin with `prefix`.
    pub(crate) fn authorize_pattern(
        &mut self,
        id: SessionId,
        access: Access,
        pattern: &str,
        prefix: &str,
    ) -> Authorization {
        self.authorize_with(
            id,
            access.into(),
            Some(pattern),
            None,
            |permission, question| permission.decide_pattern(question, prefix),
        )
    }

    fn authorize_with(
        &mut self,
        id: SessionId,
        request: AccessRequest,
        name: Option<&str>,
        data: Option<&str>,
        decide: impl FnOnce(&dyn Permission, &Question<'_>) -> Decision,
    ) -> Authorization {
        let Some(session) = self.sessions.find(id) else {
            return Authorization::Deny;
        };
        let Some(principal) = session.principal() else {
            return Authorization::Deny;
        };
        let reads = session.state.as_ref().map(|with| &with.rule_reads);
        let values = reads.map_or(&[][..], |reads| reads.values.as_slice());
        let wall = self.now.wall;
        let question = Question {
            principal,
            access: request.access,
            by: request.by,
            name,
            data,
            old_data: None,
            now: wall,
            values,
        };
        let authorization = match decide(&*self.shard.permission, &question) {
            Decision::Allow => return Authorization::Allow,
            Decision::Deny => Authorization::Deny,
            Decision::Failed => Authorization::Failed,
            Decision::Need(_) if reads.is_some_and(|reads| reads.failed) => Authorization::Failed,
            Decision::Need(record) => self.ask_value(id, record),
        };
        self.shard.count_denial(authorization);
        authorization
    }

    /// Authorizes every name of a bulk message and separates the ones that can't be used. Returns `None` if the message has to wait. No
    /// name takes effect before all are authorized. When the message is handled again, it continues with the remaining names.
    pub(crate) fn authorize_names<'n>(
        &mut self,
        id: SessionId,
        request: impl Into<AccessRequest>,
        names: &[&'n str],
    ) -> Option<AuthorizedNames<'n>> {
        let request = request.into();
        let round = self.shard.rules_round;
        let principal = self.principal(id)?;
        let session = self.sessions.find_mut(id)?;
        let state = session.state.as_mut();
        let begun = state.and_then(|with| with.rule_reads.bulk_authorization.take());
        // Decisions by other rules or for another principal no longer count.
        let begun = begun.filter(|begun| begun.is_of(round, &principal));
        let mut bulk_authorization = begun
            .unwrap_or_else(|| Box::new(BulkAuthorization::new(round, &principal, names.len())));
        for waiting in std::mem::take(&mut bulk_authorization.waiting) {
            self.authorize_name(id, &mut bulk_authorization, request, names, waiting);
        }
        while bulk_authorization.next < names.len()
            && bulk_authorization.waiting.len() < READS_AT_ONCE_MAX
        {
            let waiting = NameReads::new(bulk_authorization.next);
            bulk_authorization.next += 1;
            self.authorize_name(id, &mut bulk_authorization, request, names, waiting);
        }
        if !bulk_authorization.waiting.is_empty() {
            let session = self.sessions.find_mut(id)?;
            session.state(self.shard.seed).rule_reads.bulk_authorization = Some(bulk_authorization);
            return None;
        }
        // Each allowed name costs as much again where it takes effect.
        self.shard.count_work(names.len() * NAME_WORK);
        let mut authorized = AuthorizedNames {
            allowed: Vec::with_capacity(names.len()),
            denied: Vec::new(),
        };
        for (name, authorization) in names.iter().zip(&bulk_authorization.results) {
            let why = match authorization {
                Authorization::Allow if self.shard.is_name(name) => {
                    authorized.allowed.push(*name);
                    continue;
                }
                Authorization::Allow => DeniedName::NoName,
                Authorization::Failed => DeniedName::RuleFailed(name),
                Authorization::Deny | Authorization::Wait => DeniedName::Denied(name),
            };
            self.shard.count_denial(*authorization);
            authorized.denied.push(why);
        }
        Some(authorized)
    }

    /// Authorizes one name of a bulk message. If its rule needs another record, that value is requested once for all names that need it.
    fn authorize_name(
        &mut self,
        id: SessionId,
        bulk_authorization: &mut BulkAuthorization,
        request: AccessRequest,
        names: &[&str],
        mut reads: NameReads,
    ) {
        let question = Question {
            principal: &bulk_authorization.principal,
            access: request.access,
            by: request.by,
            name: names.get(reads.index).copied(),
            data: None,
            old_data: None,
            now: self.now.wall,
            values: &reads.values,
        };
        let reads_max = self.shard.settings.limits.rule_reads_max;
        let permission = &self.shard.permission;
        let decision = match question.name {
            Some(pattern) if request.is_pattern => {
                permission.decide_pattern(&question, literal_prefix(pattern))
            }
            _ => permission.decide(&question),
        };
        let authorization = match decision {
            Decision::Allow => Authorization::Allow,
            Decision::Deny => Authorization::Deny,
            Decision::Failed => Authorization::Failed,
            Decision::Need(_) if reads.failed || reads.values.len() >= reads_max => {
                Authorization::Failed
            }
            Decision::Need(name) => {
                if !bulk_authorization.asks_for(&name) {
                    self.read_value(name.clone(), Asker::Session(id));
                }
                reads.needs = Some(name);
                return bulk_authorization.waiting.push(reads);
            }
        };
        bulk_authorization.results[reads.index] = authorization;
    }

    /// Denies the names that exceed the session's limit.
    pub(crate) fn fit(&mut self, id: SessionId, authorized: &mut AuthorizedNames<'_>) {
        let limit = self.shard.settings.limits.subscriptions_max;
        let held = self
            .sessions
            .find(id)
            .map_or(0, Session::subscription_count);
        let room = limit.saturating_sub(held).min(authorized.allowed.len());
        for name in authorized.allowed.drain(room..) {
            self.shard.count(|refused| refused.subscriptions += 1);
            authorized.denied.push(DeniedName::Denied(name));
        }
    }

    fn ask_value(&mut self, id: SessionId, record: Name) -> Authorization {
        let reads_max = self.shard.settings.limits.rule_reads_max;
        let Some(session) = self.sessions.find_mut(id) else {
            return Authorization::Deny;
        };
        let reads = &session.state(self.shard.seed).rule_reads;
        if reads.values.len() >= reads_max {
            return Authorization::Failed;
        }
        self.read_value(record, Asker::Session(id));
        Authorization::Wait
    }

    /// Requests the value of a record from its owner, which answers with [`Entry::Value`].
    pub(crate) fn read_value(&mut self, name: Name, asker: Asker) {
        let owner = self.shard.owner(&name);
        self.post(owner, Entry::ReadValue { name, asker });
    }
}

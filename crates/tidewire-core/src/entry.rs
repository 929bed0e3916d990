//! Messages between shards: they own their data, and wait in a mailbox until the other shard's next turn.
//!
//! A mailbox is one FIFO queue for all senders. All messages about a name go to the shard that owns the name, and its results come from
//! there. All shards therefore see the owner's decisions in the order in which the owner made them.

use std::sync::Arc;

use regex::Regex;

use crate::address::{Address, SessionId};
use crate::json::Path;
use crate::message::{Only, Position, PresenceAction, RecordAction, RecordBulk, Tag, Topic};
use crate::principal::Principal;
use crate::publication::Publication;
use crate::rate::Operation;
use crate::rights::RightsChange;
use crate::store::{StoredRecord, Version};
use crate::text::{Name, Payload};
use crate::trace::Trace;
use crate::work::PATCH_WORK;

/// An entry of a mailbox.
#[derive(Clone, Debug)]
pub enum Entry {
    /// For this shard's members of an event or of presence.
    Publication(Publication),
    /// Events with history.
    History(HistoryEntry),
    /// To the owner of records: a request of one session for one or many of them.
    RecordRequest(RecordRequest),
    /// To the owner of a record: one granted subscription of a shard has ended.
    RecordRelease {
        /// The record.
        name: Name,
        /// The epoch of the grant; a release with an older one is ignored.
        epoch: u64,
        /// The session that had it.
        session: SessionId,
        /// The serial of the subscription.
        serial: u32,
    },
    /// To a session's shard: the owner's answer.
    RecordAnswer(RecordAnswer),
    /// To a shard with subscribers of a record.
    RecordPublished {
        /// The record.
        name: Name,
        /// What happened to it.
        what: Published,
        /// The session that caused it, and does not get it.
        except: Option<SessionId>,
    },
    /// To the owner of a record: a read of its value, which does not wait behind the requests for the record.
    ReadValue {
        /// The record.
        name: Name,
        /// Where the value goes.
        asker: Asker,
    },
    /// The answer to `ReadValue`.
    Value {
        /// The record.
        name: Name,
        /// As in the request.
        asker: Asker,
        /// Version and value, `Ok(None)` if the record does not exist, or an error if it could not be read.
        value: Result<Option<(Version, Payload)>, ReadFailed>,
    },
    /// To the owner of a name, or to all shards: listening.
    Listening(Listening),
    /// To a provider's shard: a notice to a listening provider.
    ListenNotice {
        /// The provider.
        provider: SessionId,
        /// Events or records.
        topic: Topic,
        /// The provider's pattern.
        pattern: Name,
        /// The name.
        name: Name,
        /// The notice.
        notice: ListenNotice,
    },
    /// To the owner of an rpc name.
    Rpc(RpcEntry),
    /// To a session's shard: a message of a call.
    RpcDelivery(RpcDelivery),
    /// To the owner of a user id: a session of that user has opened.
    Online {
        /// The user.
        user: Name,
        /// The session, which gets no message that its own user is online.
        session: SessionId,
    },
    /// To the owner of a user id: a session of that user has ended.
    Offline {
        /// The user.
        user: Name,
    },
    /// To a shard: which users are online?
    PresenceQuery {
        /// The pending reply.
        reply: PendingReplyId,
        /// The users to check; `None` for all users that this shard owns.
        users: Option<Vec<Name>>,
    },
    /// To the shard with a pending reply: one part is done.
    ReplyPart {
        /// The pending reply.
        reply: PendingReplyId,
        /// The content of the part.
        part: ReplyPart,
    },
    /// To the owner of a user id: a shard asks for some permits of a rate.
    RateAsked {
        /// The user.
        user: Name,
        /// The operation that the permits are for.
        operation: Operation,
        /// The shard that asks.
        shard: Address,
    },
    /// To the shard that asked: the permits.
    RateGranted {
        /// The user.
        user: Name,
        /// The operation that the permits are for.
        operation: Operation,
        /// The number of permits.
        count: u32,
    },
    /// To every other shard: a change of rights. It follows all messages that the sender posted before it knew of the change.
    Rights {
        /// The sender.
        from: Address,
        /// The number of the change.
        number: u64,
        /// The change, for a shard that does not know it yet.
        change: RightsChange,
    },
    /// To every other shard: the sender has received all markers of a change, and so has handled everything that was authorized before it.
    RightsPassed {
        /// The sender.
        from: Address,
        /// The number of the change.
        number: u64,
    },
    /// Between a session's shard and the owners that handle its requests: the session has caused too much work.
    Work(WorkEntry),
    /// To every shard: the session has ended, with all its offers and requests.
    SessionEnded {
        /// The session.
        session: SessionId,
    },
}

/// Requests that an owner defers because their session has caused too much work, see [`crate::limits::Limits::connection_work_max`].
#[derive(Clone, Copy, Debug)]
pub enum WorkEntry {
    /// To the session's shard: the owner has started to defer the session's requests.
    Deferred {
        /// The session.
        session: SessionId,
        /// The owner that defers them.
        owner: Address,
        /// The work that the session has caused there in this turn.
        work: u64,
    },
    /// To the owner: it may do the next of the session's requests.
    Proceed {
        /// The session.
        session: SessionId,
    },
    /// To the session's shard: the answer to `Proceed`.
    Proceeded {
        /// The session.
        session: SessionId,
        /// The owner that has done some requests.
        owner: Address,
        /// The work that these requests have caused.
        work: u64,
        /// Whether no request of the session is deferred any longer.
        is_done: bool,
    },
    /// To the owner: the session has ended, so its shard sends no further `Proceed`. Its requests that change records are still done.
    SessionEnded {
        /// The session.
        session: SessionId,
    },
}

/// Messages about events with history, between their owner and other shards.
#[derive(Clone, Debug)]
pub enum HistoryEntry {
    /// To the owner: a session publishes an event.
    Emit {
        /// The event.
        name: Name,
        /// Its data.
        data: Option<Payload>,
        /// The session that publishes, and does not get it.
        publisher: SessionId,
        /// Its position in a trace.
        trace: Option<Box<Trace>>,
    },
    /// To the owner: a session requests the events after a position.
    Read(Box<HistoryRead>),
    /// To a publisher's shard: its event was refused, because too much data waits for the store.
    Refused {
        /// The session that published it.
        publisher: SessionId,
        /// The event.
        name: Name,
    },
    /// To the owner: one granted subscription of a shard has ended.
    Release {
        /// The event.
        name: Name,
        /// The shard that had it.
        shard: u16,
    },
    /// To the owner: the store has rows of the name that may be too old.
    Sweep(Name),
    /// To a shard with subscribers: an event was published.
    Published {
        /// The event.
        name: Name,
        /// Its number.
        offset: u64,
        /// Its data.
        data: Option<Payload>,
        /// The session that published it, and does not get it.
        except: SessionId,
        /// Its position in a trace.
        trace: Option<Box<Trace>>,
    },
    /// To a session's shard: the answer to `Read`.
    Page(Box<HistoryPage>),
}

/// A request for the events after a position.
#[derive(Clone, Debug)]
pub struct HistoryRead {
    /// The session that requests them.
    pub session: SessionId,
    /// The event.
    pub name: Name,
    /// The serial of the subscription.
    pub serial: u32,
    /// The position; if absent, the session requests only later events.
    pub after: Option<Position>,
    /// The bytes that the answer may have. A single event may have more.
    pub bytes_max: usize,
    /// The pending reply that waits for the answer.
    pub reply: Option<PendingReplyId>,
}

/// Some of the events of a name, in order.
#[derive(Clone, Debug)]
pub struct HistoryPage {
    /// The session that requested them.
    pub session: SessionId,
    /// The event.
    pub name: Name,
    /// As in the request.
    pub serial: u32,
    /// Whether a position was given.
    pub is_resumed: bool,
    /// As in the request.
    pub reply: Option<PendingReplyId>,
    /// The position before the first of the events.
    pub before: Position,
    /// The events that are missing between the requested position and `before`.
    pub gap: Option<HistoryGap>,
    /// The data of the events.
    pub events: Vec<Option<Payload>>,
    /// Whether the page reaches the end and grants the subscription, which then gets everything that is published later.
    pub is_granted: bool,
}

/// Events that are no longer available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryGap {
    /// Their number, if it is known.
    pub missed: Option<u64>,
}

impl HistoryPage {
    /// Approximate bytes that an event takes of a page: its name, its data, and its fields and frame.
    pub(crate) fn event_bytes(name: &str, data: Option<&Payload>) -> usize {
        const OVERHEAD_BYTES: usize = 32;
        name.len() + data.map_or(0, Payload::len) + OVERHEAD_BYTES
    }
}

/// A reply that waits for parts from several owners, with the number that its shard gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingReplyId {
    /// The shard that sends the reply.
    pub address: Address,
    /// The name of a bulk message of records that this part is about, as its index in the message. 0 for all other parts.
    pub index: u32,
    /// The number of the reply at that shard.
    pub number: u64,
}

/// A name of a bulk message of records.
#[derive(Clone, Debug)]
pub struct BulkName {
    /// The record.
    pub name: Name,
    /// Its index in the message.
    pub index: u32,
    /// The serial of the new subscription; `None` if the session is already subscribed.
    pub serial: Option<u32>,
}

/// The content of one part of a pending reply.
#[derive(Clone, Debug)]
pub enum ReplyPart {
    /// The part is done.
    Done,
    /// Users that are online.
    Users(Vec<Name>),
}

/// The reason for the read of a value, and the place to which the value goes.
#[derive(Clone, Debug)]
pub enum Asker {
    /// A session whose message waits.
    Session(SessionId),
    /// A session that has missed changes of the record. The answer is posted like a change: it covers all changes before it and none after
    /// it.
    Lagging(SessionId, Arc<LaggingReader>),
    /// The search for a listening provider of a name, whose `listen` rule needs the value.
    Listening {
        /// The owner of the name.
        owner: Address,
        /// Events or records.
        topic: Topic,
        /// The name.
        name: Name,
        /// The number that the owner gave to the read.
        number: u64,
    },
    /// A right that is reauthorized.
    Reauthorize {
        /// The shard that reauthorizes.
        address: Address,
        /// The number of the reauthorization there.
        ticket: u64,
    },
    /// A record whose first waiting request has a rule that needs the value.
    Record {
        /// Its owner.
        owner: Address,
        /// Its name.
        name: Name,
    },
}

/// The data that an owner needs to authorize a lagging session to read the current value.
#[derive(Clone, Debug)]
pub struct LaggingReader {
    /// The session's principal.
    pub principal: Arc<Principal>,
    /// The serial of the subscription.
    pub serial: u32,
}

/// The value could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadFailed;

/// A request to the owner of records.
#[derive(Clone, Debug)]
pub struct RecordRequest {
    /// The session that makes the request.
    pub session: SessionId,
    /// The session's principal.
    pub principal: Arc<Principal>,
    /// The request itself.
    pub what: RecordRequestKind,
}

/// The requests to an owner of records.
#[derive(Clone, Debug)]
pub enum RecordRequestKind {
    /// A bulk action on the names that this shard owns.
    Bulk {
        /// The action for each record.
        action: RecordBulk,
        /// The records.
        names: Vec<BulkName>,
        /// The pending reply that waits until all are done.
        reply: Option<PendingReplyId>,
        /// The correlation id, for refusals.
        correlation: Option<Box<str>>,
    },
    /// An operation on one record.
    One(Name, RecordOperation),
}

/// An operation of a session on one record.
#[derive(Clone, Debug)]
pub enum RecordOperation {
    /// Reads.
    Read(RecordRead),
    /// Deletes.
    Delete,
    /// Writes.
    Write(Box<OwnedWrite>),
    /// Replaces or removes the record if it is in a certain state.
    Put(Box<OwnedPut>),
}

/// A part of a record that a session reads, or its right to read.
#[derive(Clone, Debug)]
pub enum RecordRead {
    /// A snapshot.
    Value,
    /// The version.
    Version,
    /// The value with its state, for the answer with this correlation id.
    State(Box<str>),
    /// Only its right to read a record that it is subscribed to.
    Right(Reauthorization),
}

/// A subscription that is reauthorized.
#[derive(Clone, Copy, Debug)]
pub struct Reauthorization {
    /// The number under which the session's shard waits for the answer.
    pub ticket: u64,
    /// The serial of the subscription.
    pub serial: u32,
    /// The epoch of the grant; absent if the subscription has ended in the meantime.
    pub epoch: Option<u64>,
}

/// A checked `Put`.
#[derive(Clone, Debug)]
pub struct OwnedPut {
    /// The correlation id, for the answer.
    pub correlation: Box<str>,
    /// The state that the record must have.
    pub only: Only,
    /// The new value; absent to remove the record.
    pub data: Option<Payload>,
}

/// The result of a durable `Put`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Whether the record existed before.
    pub existed: bool,
    /// The new state; absent if the record was removed.
    pub tag: Option<Tag>,
}

/// A checked write.
#[derive(Clone, Debug)]
pub struct OwnedWrite {
    /// The version that it expects to make; `None` for the next one, whichever it is.
    pub version: Option<Version>,
    /// As in the request.
    pub correlation: Option<Box<str>>,
    /// Whether the session requests a write acknowledgement.
    pub write_ack: bool,
    /// The client's action.
    pub action: RecordAction,
    /// The change.
    pub change: OwnedChange,
    /// For a `Put`: whether the record existed before.
    pub put: Option<bool>,
    /// A write of the same user with the same key is not made again.
    pub key: Option<Box<str>>,
}

/// A checked change.
#[derive(Clone, Debug)]
pub enum OwnedChange {
    /// Replaces the whole value.
    Update(Payload),
    /// Sets or deletes one path.
    Patch(OwnedPatch),
    /// Several patches, one version step.
    PatchMulti {
        /// The text as the client sent it; `None` if a path is a list of steps, which only the server can read. Subscribers then get the
        /// whole value.
        text: Option<Payload>,
        /// The patches.
        patches: Arc<[OwnedPatch]>,
    },
}

impl OwnedChange {
    /// Bytes that it touches when it is applied to a document.
    pub(crate) fn work(&self, before: &str) -> usize {
        match self {
            Self::Update(_) => 0,
            // The document is scanned and copied.
            Self::Patch(_) => 2 * before.len(),
            // The same, once for all patches. Their paths are sorted before.
            Self::PatchMulti { patches, .. } => 2 * before.len() + patches.len() * PATCH_WORK,
        }
    }

    /// Bytes that it keeps in memory.
    pub(crate) fn kept_bytes(&self) -> usize {
        let of_patch = |patch: &OwnedPatch| {
            let data = patch.data.as_ref().map_or(0, Payload::len);
            size_of::<OwnedPatch>() + 2 * patch.text.len() + data
        };
        match self {
            Self::Update(data) => data.len(),
            Self::Patch(patch) => of_patch(patch),
            Self::PatchMulti { text, patches } => {
                // The steps of lists are kept only in the paths.
                let of_paths = || patches.iter().map(|patch| patch.path.kept_bytes()).sum();
                let text = text.as_ref().map_or_else(of_paths, Payload::len);
                text + patches.iter().map(of_patch).sum::<usize>()
            }
        }
    }
}

/// One checked patch.
#[derive(Clone, Debug)]
pub struct OwnedPatch {
    /// The path as the client wrote it.
    pub text: Name,
    /// The path.
    pub path: Arc<Path<'static>>,
    /// The value, absent to delete.
    pub data: Option<Payload>,
}

/// An owner's answer to a session.
#[derive(Clone, Debug)]
pub struct RecordAnswer {
    /// The session that made the request.
    pub session: SessionId,
    /// The record.
    pub name: Name,
    /// The pending reply that waits until all names are done.
    pub reply: Option<PendingReplyId>,
    /// The answer.
    pub what: Answer,
}

/// The answer for one record.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The subscription begins here: the session gets everything that is published later.
    Granted {
        /// As in the request.
        serial: u32,
        /// The epoch of the grant, which the release repeats.
        epoch: u64,
        /// Whether a session provides the record.
        provided: bool,
        /// Bytes of its value, which the owner keeps for its subscribers.
        value_bytes: usize,
        /// The snapshot that the session requested.
        snapshot: Snapshot,
        /// As in the request, for a shard that has to ask again.
        action: RecordBulk,
        /// As in the request.
        correlation: Option<Box<str>>,
    },
    /// The answer to `Reauthorize`.
    Reauthorized {
        /// As in the request.
        ticket: u64,
        /// Why the subscription has to end; `None` if it may stay.
        lost: Option<RecordRefusal>,
    },
    /// Not an answer: the session has lost the right to read, because this record or another one has changed. The subscription ends.
    Lost {
        /// The serial of the subscription.
        serial: u32,
        /// Why.
        why: RecordRefusal,
    },
    /// An answer without a subscription.
    Snapshot(Snapshot),
    /// The answer to a read of a record that does not exist.
    NotFound,
    /// The deletion is durable.
    Deleted,
    /// The write is durable.
    Written {
        /// As in the request.
        correlation: Option<Box<str>>,
    },
    /// The answer to a `Fetch`.
    Fetched {
        /// As in the request.
        correlation: Box<str>,
        /// The record, if it exists.
        state: Option<Box<StoredRecord>>,
    },
    /// The `Put` is durable.
    Stored {
        /// As in the request.
        correlation: Box<str>,
        /// The result of the `Put`.
        stored: Stored,
    },
    /// The record is not in the state that the `Put` requires.
    PreconditionFailed {
        /// As in the request.
        correlation: Box<str>,
        /// The state of the record, if it exists.
        tag: Option<Tag>,
    },
    /// The version exists already.
    VersionExists {
        /// The current version.
        version: Version,
        /// The current value, for a session that may read it; an empty value if the record does not exist.
        data: Option<Payload>,
        /// The refused action.
        action: RecordAction,
        /// As in the request.
        correlation: Option<Box<str>>,
        /// As in the request.
        write_ack: bool,
    },
    /// The version is later than the next one.
    InvalidVersion {
        /// The current version.
        version: Version,
        /// The refused action.
        action: RecordAction,
        /// As in the request.
        correlation: Option<Box<str>>,
        /// As in the request.
        write_ack: bool,
    },
    /// Refused; a subscription with this serial does not begin.
    Refused {
        /// Why.
        why: RecordRefusal,
        /// The refused action.
        action: RecordAction,
        /// The serial of the requested subscription.
        serial: Option<u32>,
        /// As in the request.
        correlation: Option<Box<str>>,
        /// As in the request.
        write_ack: bool,
    },
}

impl Answer {
    /// Bytes of the value that it carries.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Granted { snapshot, .. } | Self::Snapshot(snapshot) => match snapshot {
                Snapshot::Read(Some((_, data))) => data.len(),
                _ => 0,
            },
            Self::Fetched {
                state: Some(record),
                ..
            } => record.data.len(),
            Self::VersionExists { data, .. } => data.as_ref().map_or(0, Payload::len),
            _ => 0,
        }
    }
}

/// The state of a record that an owner reports: its value, its version or nothing.
#[derive(Clone, Debug)]
pub enum Snapshot {
    /// Version and value; `None` if it does not exist.
    Read(Option<(Version, Payload)>),
    /// The version; `None` if it does not exist.
    Head(Option<Version>),
    /// Nothing.
    Nothing,
}

/// Why an owner refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordRefusal {
    /// A rule has denied it.
    Denied,
    /// A rule failed.
    RuleFailed,
    /// The store did not answer in time.
    LoadTimeout,
    /// The store failed, the record is corrupt, or too many requests wait for it.
    LoadFailed,
    /// The record could not be created.
    CreateFailed,
    /// The write could not be accepted, its outcome is unknown, or its record does not exist.
    UpdateFailed,
    /// The delete could not be accepted, or its outcome is unknown.
    DeleteFailed,
    /// The change can't be applied to the value, or the result exceeds a limit.
    InvalidData,
    /// Patches are refused under a hot-path prefix.
    PatchOnHotPath,
}

/// A change of a record, for its subscribers.
#[derive(Clone, Debug)]
pub enum Published {
    /// It was written.
    Changed {
        /// The new version.
        version: Version,
        /// The change.
        change: OwnedChange,
        /// The new value.
        full: Payload,
    },
    /// It was deleted; all subscriptions end.
    Deleted,
    /// It has got, or lost, its provider.
    Provided(bool),
}

/// Messages about listening, between shards.
#[derive(Clone, Debug)]
pub enum Listening {
    /// A provider has registered a pattern; to all shards.
    Add {
        /// Events or records.
        topic: Topic,
        /// The pattern as text.
        pattern: Name,
        /// The pattern.
        regex: Arc<Regex>,
        /// The steps that a match with it takes.
        weight: u8,
        /// The session that listens.
        provider: SessionId,
        /// Its principal: a name is offered if the rules allow this principal to listen for it.
        principal: Arc<Principal>,
        /// The pending reply that waits until all shards know it.
        reply: PendingReplyId,
    },
    /// A provider takes a pattern back; to all shards.
    Remove {
        /// Events or records.
        topic: Topic,
        /// The pattern.
        pattern: Name,
        /// The session that listened.
        provider: SessionId,
        /// The pending reply that waits until all shards know it, and so have sent their last message about it; `None` if the right to
        /// listen was lost.
        reply: Option<PendingReplyId>,
    },
    /// A session with patterns has another principal; to all shards.
    Renewed {
        /// The session.
        provider: SessionId,
        /// The principal with which it listens now.
        principal: Arc<Principal>,
    },
    /// A provider answers; to the name's owner.
    Answered {
        /// Events or records.
        topic: Topic,
        /// The provider's pattern.
        pattern: Name,
        /// The name.
        name: Name,
        /// The provider that answers.
        provider: SessionId,
        /// Whether it will provide the name.
        accepted: bool,
    },
    /// An owner has its first pattern of events, so it needs to know which of its events have subscribers on each shard, now and later; to
    /// all shards. An owner without patterns does not need these reports.
    Census {
        /// The owner.
        owner: Address,
        /// Counts the owner's censuses. Messages of an earlier census are ignored.
        round: u64,
    },
    /// An owner no longer has a pattern of events; to all shards.
    CensusEnded {
        /// The owner.
        owner: Address,
    },
    /// A part of a shard's answer to a census: events of the owner with subscribers there. It may repeat events that the shard has reported
    /// since the census began.
    Present {
        /// The number of the census.
        round: u64,
        /// The shard.
        shard: u16,
        /// The events.
        names: Vec<Name>,
    },
    /// A shard has its first, or lost its last, subscriber of an event; to the name's owner.
    Interest {
        /// The number of the census.
        round: u64,
        /// The shard.
        shard: u16,
        /// The event.
        name: Name,
        /// Whether the shard has subscribers now.
        wanted: bool,
    },
}

/// A notice to a listening provider about a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenNotice {
    /// The name has a subscriber, and the provider has to answer whether it provides the name.
    Found,
    /// The name has no subscribers any longer, or the provider may no longer provide it.
    Removed,
    /// The provider did not answer in time.
    TimedOut,
}

/// Messages to the owner of an rpc name.
#[derive(Clone, Debug)]
pub enum RpcEntry {
    /// A session provides these names.
    Provide {
        /// The rpcs.
        names: Vec<Name>,
        /// The session that provides them.
        provider: SessionId,
        /// The pending reply that waits until all owners know it.
        reply: PendingReplyId,
    },
    /// A session no longer provides these names.
    Unprovide {
        /// The rpcs.
        names: Vec<Name>,
        /// The session that provided them.
        provider: SessionId,
        /// The pending reply that waits until all owners know it.
        reply: PendingReplyId,
    },
    /// A session has lost the right to provide this name: its calls go to the next provider.
    Revoke {
        /// The rpc.
        name: Name,
        /// The session that provided it.
        provider: SessionId,
    },
    /// A call.
    Request(Box<OwnedCall>),
    /// A provider's answer.
    Answer {
        /// The rpc.
        name: Name,
        /// The correlation id, as the provider got it.
        correlation: Box<str>,
        /// The provider that answers.
        provider: SessionId,
        /// The kind of the answer.
        what: CallAnswer,
        /// Any JSON value, for results and errors.
        data: Option<Payload>,
    },
}

/// A call on its way.
#[derive(Clone, Debug)]
pub struct OwnedCall {
    /// The rpc.
    pub name: Name,
    /// Chosen by the requestor.
    pub correlation: Box<str>,
    /// The session that calls.
    pub requestor: SessionId,
    /// Any JSON value.
    pub data: Option<Payload>,
    /// The requestor's user id, if configured.
    pub requestor_name: Option<Name>,
    /// The requestor's client data, if configured.
    pub requestor_data: Option<Payload>,
}

/// A provider's answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallAnswer {
    /// It works on the call.
    Accept,
    /// It does not take the call.
    Reject,
    /// It has a result.
    Response,
    /// It has an error.
    Error,
    /// Its shard did not send it the call, because it no longer provides the name.
    Withdrawn,
}

/// A message of a call for one session.
#[derive(Clone, Debug)]
pub struct RpcDelivery {
    /// The session that gets the message.
    pub session: SessionId,
    /// The rpc.
    pub name: Name,
    /// The correlation id of the call for that session.
    pub correlation: Box<str>,
    /// Bytes that were kept for the call, if it has ended for its requestor.
    pub kept_bytes: usize,
    /// The message.
    pub what: CallNotice,
}

/// A message about a call to its requestor or its provider.
#[derive(Clone, Debug)]
pub enum CallNotice {
    /// To a provider: the call.
    Request {
        /// Any JSON value.
        data: Option<Payload>,
        /// The requestor's user id, if configured.
        requestor_name: Option<Name>,
        /// The requestor's client data, if configured.
        requestor_data: Option<Payload>,
    },
    /// To the requestor: a provider works on the call.
    Accepted,
    /// To the requestor: the result; the call has ended.
    Response(Option<Payload>),
    /// To the requestor: the provider's error; the call has ended.
    Error(Option<Payload>),
    /// To the requestor: the call has ended without an answer.
    Failed(CallFailure),
    /// To a provider: it accepted twice.
    MultipleAccept,
    /// To a provider: the call does not exist, or the provider may not answer it.
    Unknown(CallAnswer),
}

/// Why a call ended without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFailure {
    /// No session provides it, or all providers have rejected the call or have ended.
    NoProvider,
    /// The provider did not accept in time.
    AcceptTimeout,
    /// The provider did not respond in time.
    ResponseTimeout,
    /// The requestor has a running call with the same correlation id.
    Duplicate,
}

/// A bulk action of records whose names are not all done.
#[derive(Clone, Debug)]
pub(crate) struct BulkReply {
    pub(crate) action: RecordBulk,
    /// The names that some acknowledgements echo.
    pub(crate) names: Vec<Name>,
    pub(crate) correlation: Option<Box<str>>,
    /// Whether a name was allowed.
    pub(crate) allowed: bool,
    /// Whether the acknowledgement comes last. Actions that read are acknowledged first.
    pub(crate) acknowledges: bool,
    /// The names that rules have denied, with their indexes. They are sent together, because the order in which owners decide depends on
    /// which records exist and are in memory.
    pub(crate) denied: Vec<(u32, Name, RecordRefusal)>,
    /// Whether all names are done, and `denied` is sorted: the last index first.
    pub(crate) is_sorted: bool,
    /// The pending reply of the whole message, if these names are a piece of it.
    pub(crate) whole: Option<PendingReplyId>,
}

/// The action when the last part of a pending reply has arrived.
#[derive(Clone, Debug)]
pub(crate) enum ReplyAction {
    /// Sends the denials of a bulk action of records, and acknowledges it unless every name was refused.
    Record(BulkReply),
    /// Acknowledges subscriptions to events or users that are not all made at the same time.
    Ack(DelayedAck),
    /// Acknowledges a new pattern.
    Listen { topic: Topic, pattern: Name },
    /// Acknowledges that a pattern was taken back.
    Unlisten { topic: Topic, pattern: Name },
    /// Acknowledges registrations, or their end.
    Provide {
        provide: bool,
        correlation: Option<Box<str>>,
    },
    /// Answers which users are online.
    Presence {
        action: PresenceAction,
        correlation: Option<Box<str>>,
        asked: Vec<Name>,
        online: Vec<Name>,
    },
}

impl ReplyAction {
    /// Adds the names of a later piece of the same message.
    pub(crate) fn add_names(&mut self, later: Self) {
        match (self, later) {
            (Self::Record(records), Self::Record(later)) => records.names.extend(later.names),
            (Self::Presence { asked, .. }, Self::Presence { asked: later, .. }) => {
                asked.extend(later);
            }
            _ => {}
        }
    }
}

/// An acknowledgement that is held back until the interest is visible to publishers.
#[derive(Clone, Debug)]
pub(crate) enum DelayedAck {
    Event {
        correlation: Option<Box<str>>,
    },
    Presence {
        action: PresenceAction,
        correlation: Option<Box<str>>,
    },
    /// It is one part of a larger reply.
    Part(PendingReplyId),
}

//! What shards tell each other: owned messages that lie in a mailbox until the other shard's next turn.
//!
//! A mailbox is one FIFO for all senders. Everything about one name goes to the shard that owns the name and comes
//! back from there, so the order in which the owner decided is the order in which everybody learns of it.

use std::sync::Arc;

use regex::Regex;

use crate::address::{Address, SessionId};
use crate::effect::{Principal, Publication};
use crate::json::Path;
use crate::message::{Only, Position, PresenceAction, RecordAction, RecordBulk, Tag, Topic};
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
        /// As it was granted; an older one is ignored.
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
        /// What happened.
        what: Published,
        /// Who caused it and does not get it.
        except: Option<SessionId>,
    },
    /// To the owner of a record: somebody wants to know its value, whatever waits there.
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
        /// Version and value, `None` inside if there is no such record; an error if it could not be read.
        value: Result<Option<(Version, Payload)>, ReadFailed>,
    },
    /// To the owner of a name, or to all shards: listening.
    Listening(Listening),
    /// To a provider's shard: something to tell a listening provider.
    ListenNotice {
        /// The provider.
        provider: SessionId,
        /// Events or records.
        topic: Topic,
        /// The provider's pattern.
        pattern: Name,
        /// The name.
        name: Name,
        /// What about it.
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
        /// The session, which is not told that its own user has come.
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
        /// The users to look at, all that this shard owns if `None`.
        users: Option<Vec<Name>>,
    },
    /// To the shard with a pending reply: one part is done.
    ReplyPart {
        /// Which reply.
        reply: PendingReplyId,
        /// What the part brings.
        part: ReplyPart,
    },
    /// To the owner of a user id: a shard asks for some permits of a rate.
    RateAsked {
        /// The user.
        user: Name,
        /// What for.
        operation: Operation,
        /// Who asks.
        shard: Address,
    },
    /// To the shard that asked: the permits.
    RateGranted {
        /// The user.
        user: Name,
        /// What for.
        operation: Operation,
        /// How many.
        count: u32,
    },
    /// To every other shard: a change of rights, behind everything that was posted before it was known.
    Rights {
        /// Who says so.
        from: Address,
        /// The number of the change.
        number: u64,
        /// The change, for who does not know it yet.
        change: RightsChange,
    },
    /// To every other shard: the sender has all markers of a change, and so has handled everything that was authorized before it.
    RightsPassed {
        /// Who says so.
        from: Address,
        /// The number of the change.
        number: u64,
    },
    /// Between a session's shard and the owners of what its requests are about: the session has cost too much.
    Work(WorkEntry),
    /// To every shard: the session is gone, with all that it offered and asked.
    SessionEnded {
        /// Which.
        session: SessionId,
    },
}

/// Requests that an owner defers because their session has cost too much, see [`crate::limits::Limits::connection_work_max`].
#[derive(Clone, Copy, Debug)]
pub enum WorkEntry {
    /// To the session's shard: the owner defers the session's requests from now on.
    Deferred {
        /// Whose.
        session: SessionId,
        /// Who defers them.
        owner: Address,
        /// What the session has cost there in this turn.
        work: u64,
    },
    /// To the owner: the next of the session's requests may be done.
    Proceed {
        /// Whose.
        session: SessionId,
    },
    /// To the session's shard: the answer to `Proceed`.
    Proceeded {
        /// Whose.
        session: SessionId,
        /// Who has done some.
        owner: Address,
        /// What they have cost.
        work: u64,
        /// Nothing is deferred any longer.
        is_done: bool,
    },
    /// To the owner: the session has ended, so nobody asks to proceed. Its requests to change records are done all the same.
    SessionEnded {
        /// Which.
        session: SessionId,
    },
}

/// About events with history, between their owner and the others.
#[derive(Clone, Debug)]
pub enum HistoryEntry {
    /// To the owner: somebody publishes.
    Emit {
        /// The event.
        name: Name,
        /// Its data.
        data: Option<Payload>,
        /// Who does not get it.
        publisher: SessionId,
        /// Where in a trace it stands.
        trace: Option<Box<Trace>>,
    },
    /// To the owner: a session wants what follows a position.
    Read(Box<HistoryRead>),
    /// To a publisher's shard: there is no room for what it has published, because too much waits for the store.
    Refused {
        /// Who published.
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
        /// Who published it and does not get it.
        except: SessionId,
        /// Where in a trace it stands.
        trace: Option<Box<Trace>>,
    },
    /// To a session's shard: the answer to `Read`.
    Page(Box<HistoryPage>),
}

/// The request for what follows a position.
#[derive(Clone, Debug)]
pub struct HistoryRead {
    /// Who wants it.
    pub session: SessionId,
    /// The event.
    pub name: Name,
    /// Of the subscription.
    pub serial: u32,
    /// The position; only what is published from now on if absent.
    pub after: Option<Position>,
    /// Bytes that the answer may have; one event may have more.
    pub bytes_max: usize,
    /// The pending reply that waits for the answer.
    pub reply: Option<PendingReplyId>,
}

/// Some of the events of a name, in their order.
#[derive(Clone, Debug)]
pub struct HistoryPage {
    /// Who wanted it.
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
    /// What is missing between the wanted position and that.
    pub gap: Option<HistoryGap>,
    /// The data of the events.
    pub events: Vec<Option<Payload>>,
    /// The page reaches the end, and the subscription is granted with it: everything published later is for it.
    pub is_granted: bool,
}

/// Events that are not to be had any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryGap {
    /// How many, if that is known.
    pub missed: Option<u64>,
}

impl HistoryPage {
    /// What an event takes of a page, about: its fields and frame beside name and data.
    pub(crate) fn event_bytes(name: &str, data: Option<&Payload>) -> usize {
        const OVERHEAD_BYTES: usize = 32;
        name.len() + data.map_or(0, Payload::len) + OVERHEAD_BYTES
    }
}

/// A reply that waits for parts from several owners, by the number that its shard gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingReplyId {
    /// The shard that sends the reply.
    pub address: Address,
    /// Which name of a bulk message of records this part is about: its index in the message. 0 for all other parts.
    pub index: u32,
    /// Its number there.
    pub number: u64,
}

/// A name of a bulk message of records.
#[derive(Clone, Debug)]
pub struct BulkName {
    /// The record.
    pub name: Name,
    /// Its index in the message.
    pub index: u32,
    /// The serial of the new subscription; none if there is one already.
    pub serial: Option<u32>,
}

/// What one part of a pending reply brings.
#[derive(Clone, Debug)]
pub enum ReplyPart {
    /// It is done.
    Done,
    /// Users that are online.
    Users(Vec<Name>),
}

/// Who asked for a value.
#[derive(Clone, Debug)]
pub enum Asker {
    /// A session whose message waits.
    Session(SessionId),
    /// A session that has missed changes of the record. The answer is posted like them, so it stands for all before it
    /// and for none behind it.
    Lagging(SessionId, Arc<LaggingReader>),
    /// The search for a listening provider of a name, whose `listen` rule needs the value.
    Listening {
        /// The owner of the name.
        owner: Address,
        /// Events or records.
        topic: Topic,
        /// The name.
        name: Name,
        /// Its number there.
        number: u64,
    },
    /// A right that is reauthorized.
    Reauthorize {
        /// The shard that reauthorizes.
        address: Address,
        /// Its number there.
        ticket: u64,
    },
    /// A record whose first waiting operation waits.
    Record {
        /// Its owner.
        owner: Address,
        /// Its name.
        name: Name,
    },
}

/// What an owner needs to authorize a session to read what it has missed.
#[derive(Clone, Debug)]
pub struct LaggingReader {
    /// As whom the session has logged in.
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
    /// Who asks.
    pub session: SessionId,
    /// As whom.
    pub principal: Arc<Principal>,
    /// What.
    pub what: RecordRequestKind,
}

/// What is asked of an owner of records.
#[derive(Clone, Debug)]
pub enum RecordRequestKind {
    /// A bulk action on the names that this shard owns.
    Bulk {
        /// What to do with each.
        action: RecordBulk,
        /// The records.
        names: Vec<BulkName>,
        /// The pending reply that waits until all are done.
        reply: Option<PendingReplyId>,
        /// For refusals.
        correlation: Option<Box<str>>,
    },
    /// Reauthorizes a session to read what it is subscribed to.
    Reauthorize(Name, Reauthorization),
    /// Reads a snapshot.
    Read(Name),
    /// Asks for a version.
    Head(Name),
    /// Deletes.
    Delete(Name),
    /// Writes.
    Write(Name, Box<OwnedWrite>),
    /// Asks for the value with its state.
    Fetch(Name, Box<str>),
    /// Replaces or removes the record if it is in a certain state.
    Put(Name, Box<OwnedPut>),
}

/// A subscription that is reauthorized.
#[derive(Clone, Copy, Debug)]
pub struct Reauthorization {
    /// The number under which the session's shard waits.
    pub ticket: u64,
    /// The serial of the subscription.
    pub serial: u32,
    /// As it was granted.
    pub epoch: u64,
}

/// A checked `Put`.
#[derive(Clone, Debug)]
pub struct OwnedPut {
    /// For the answer.
    pub correlation: Box<str>,
    /// In which state.
    pub only: Only,
    /// The new value; absent to remove the record.
    pub data: Option<Payload>,
}

/// What a durable `Put` has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Whether there was such a record before.
    pub existed: bool,
    /// The state that was made, absent if the record is gone.
    pub tag: Option<Tag>,
}

/// A checked write.
#[derive(Clone, Debug)]
pub struct OwnedWrite {
    /// The version that it expects to make, `None` for whatever is next.
    pub version: Option<Version>,
    /// As in the request.
    pub correlation: Option<Box<str>>,
    /// Whether a write acknowledgement is asked for.
    pub write_ack: bool,
    /// The client's action.
    pub action: RecordAction,
    /// What changes.
    pub change: OwnedChange,
    /// For a `Put`: whether there was such a record before.
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
        /// The text as the client sent it; `None` if a path is a list of steps, which only the server reads. Subscribers get
        /// the whole value then.
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
            // The same once for all patches, whose paths are sorted before.
            Self::PatchMulti { patches, .. } => 2 * before.len() + patches.len() * PATCH_WORK,
        }
    }

    /// Bytes that it keeps.
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
    /// Who asked.
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
    /// The subscription begins here; everything published later is for it.
    Granted {
        /// As in the request.
        serial: u32,
        /// To be given back with the release.
        epoch: u64,
        /// Whether somebody provides the record.
        provided: bool,
        /// Bytes of its value, which the owner keeps for its subscribers.
        value_bytes: usize,
        /// What the session asked to know of the record.
        snapshot: Snapshot,
        /// As in the request, for who has to ask once more.
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
    /// Not an answer: the right to read was lost to what the record, or another one, has become. The subscription ends.
    Lost {
        /// The serial of the subscription.
        serial: u32,
        /// Why.
        why: RecordRefusal,
    },
    /// An answer without a subscription.
    Snapshot(Snapshot),
    /// To a read of what does not exist.
    NotFound,
    /// The record is gone, durably.
    Deleted,
    /// The write is durable.
    Written {
        /// As in the request.
        correlation: Option<Box<str>>,
    },
    /// To a `Fetch`.
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
        /// What it has made.
        stored: Stored,
    },
    /// The record is in another state than a `Put` wants.
    PreconditionFailed {
        /// As in the request.
        correlation: Box<str>,
        /// The state, if there is such a record.
        tag: Option<Tag>,
    },
    /// The version exists already.
    VersionExists {
        /// The current version.
        version: Version,
        /// The current value, for a session that may read it; an empty one if there is no record.
        data: Option<Payload>,
        /// The refused action.
        action: RecordAction,
        /// As in the request.
        correlation: Option<Box<str>>,
        /// As in the request.
        write_ack: bool,
    },
    /// The version lies ahead.
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
        /// Of the subscription that was asked for.
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

/// What an owner reports of a record: its value, its version or nothing.
#[derive(Clone, Debug)]
pub enum Snapshot {
    /// Version and value; `None` if it does not exist.
    Read(Option<(Version, Payload)>),
    /// The version; `None` if it does not exist.
    Head(Option<Version>),
    /// Nothing.
    Nothing,
}

/// Why an owner refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordRefusal {
    /// A rule said no.
    Denied,
    /// A rule failed.
    RuleFailed,
    /// The store did not answer in time.
    LoadTimeout,
    /// The store failed, or the record is corrupt, or too much waits for it.
    LoadFailed,
    /// The record could not be created.
    CreateFailed,
    /// The write could not be taken, its outcome is unknown, or its record is missing.
    UpdateFailed,
    /// The delete could not be taken, or its outcome is unknown.
    DeleteFailed,
    /// The change can't be applied to the value, or the result passes a limit.
    InvalidData,
    /// Patches are refused under a hot-path prefix.
    PatchOnHotPath,
}

/// What happened to a record.
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

/// Listening, between shards.
#[derive(Clone, Debug)]
pub enum Listening {
    /// A provider has a new pattern; to all shards.
    Add {
        /// Events or records.
        topic: Topic,
        /// The pattern as text.
        pattern: Name,
        /// The pattern.
        regex: Arc<Regex>,
        /// The steps that it takes to match a name with it.
        weight: u8,
        /// Who listens.
        provider: SessionId,
        /// As whom: a name is offered if the rules allow this principal to listen for it.
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
        /// Who listened.
        provider: SessionId,
        /// The pending reply that waits until all shards know it, and so have sent their last message about it; `None` if the right to listen was lost.
        reply: Option<PendingReplyId>,
    },
    /// A session with patterns has another principal; to all shards.
    Renewed {
        /// The session.
        provider: SessionId,
        /// As whom it listens from now on.
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
        /// Who answers.
        provider: SessionId,
        /// Whether it will provide the name.
        accepted: bool,
    },
    /// An owner has its first pattern of events, so it wants to know which of its events have subscribers on each
    /// shard, now and from now on; to all shards. Without listeners nobody has to be told.
    Census {
        /// The owner.
        owner: Address,
        /// Counts its censuses: what belongs to an earlier one comes too late.
        round: u64,
    },
    /// An owner has no pattern of events any more; to all shards.
    CensusEnded {
        /// The owner.
        owner: Address,
    },
    /// A part of a shard's answer to a census: events of the owner with subscribers there. What the shard has reported since the
    /// census began may be among them.
    Present {
        /// Of which census.
        round: u64,
        /// The shard.
        shard: u16,
        /// The events.
        names: Vec<Name>,
    },
    /// A shard has its first, or lost its last, subscriber of an event; to the name's owner.
    Interest {
        /// Of which census.
        round: u64,
        /// The shard.
        shard: u16,
        /// The event.
        name: Name,
        /// Whether the shard that says so has subscribers now.
        wanted: bool,
    },
}

/// What a listening provider is told of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenNotice {
    /// Somebody subscribed; will you provide it?
    Found,
    /// Nobody wants it any more.
    Removed,
    /// You did not answer in time.
    TimedOut,
}

/// To the owner of an rpc name.
#[derive(Clone, Debug)]
pub enum RpcEntry {
    /// A session provides these names.
    Provide {
        /// The rpcs.
        names: Vec<Name>,
        /// Who.
        provider: SessionId,
        /// The pending reply that waits until all owners know it.
        reply: PendingReplyId,
    },
    /// A session provides these names no longer.
    Unprovide {
        /// The rpcs.
        names: Vec<Name>,
        /// Who.
        provider: SessionId,
        /// The pending reply that waits until all owners know it.
        reply: PendingReplyId,
    },
    /// A session has lost the right to provide this name: its calls go to the next provider.
    Revoke {
        /// The rpc.
        name: Name,
        /// Who.
        provider: SessionId,
    },
    /// A call.
    Request(Box<OwnedCall>),
    /// A provider's answer.
    Answer {
        /// The rpc.
        name: Name,
        /// As the provider got it.
        correlation: Box<str>,
        /// Who answers.
        provider: SessionId,
        /// What.
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
    /// Who calls.
    pub requestor: SessionId,
    /// Any JSON value.
    pub data: Option<Payload>,
    /// The requestor's user id, if configured.
    pub requestor_name: Option<Name>,
    /// The requestor's client data, if configured.
    pub requestor_data: Option<Payload>,
}

/// What a provider says of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallAnswer {
    /// It works on it.
    Accept,
    /// It does not want it.
    Reject,
    /// It has a result.
    Response,
    /// It has an error.
    Error,
    /// Its shard did not ask it, because it provides the name no longer.
    Withdrawn,
}

/// A message of a call for one session.
#[derive(Clone, Debug)]
pub struct RpcDelivery {
    /// For whom.
    pub session: SessionId,
    /// The rpc.
    pub name: Name,
    /// As that session knows the call.
    pub correlation: Box<str>,
    /// What was kept of the call, if it has ended for its requestor.
    pub kept_bytes: usize,
    /// What.
    pub what: CallNotice,
}

/// What a requestor or provider is told of a call.
#[derive(Clone, Debug)]
pub enum CallNotice {
    /// To a provider: please.
    Request {
        /// Any JSON value.
        data: Option<Payload>,
        /// The requestor's user id, if configured.
        requestor_name: Option<Name>,
        /// The requestor's client data, if configured.
        requestor_data: Option<Payload>,
    },
    /// To the requestor: somebody works on it.
    Accepted,
    /// To the requestor: the result; the call has ended.
    Response(Option<Payload>),
    /// To the requestor: the provider's error; the call has ended.
    Error(Option<Payload>),
    /// To the requestor: the call has ended without an answer.
    Failed(CallFailure),
    /// To a provider: it accepted twice.
    MultipleAccept,
    /// To a provider: there is no such call, or it is not its to answer.
    Unknown(CallAnswer),
}

/// Why a call ended without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFailure {
    /// Nobody provides it, or all have declined or gone.
    NoProvider,
    /// The provider did not accept in time.
    AcceptTimeout,
    /// The provider did not respond in time.
    ResponseTimeout,
    /// The requestor has a running call with that correlation id.
    Duplicate,
}

/// A bulk action of records whose names are not all done.
#[derive(Clone, Debug)]
pub(crate) struct BulkReply {
    pub(crate) action: RecordBulk,
    /// Echoed by some acks.
    pub(crate) names: Vec<Name>,
    pub(crate) correlation: Option<Box<str>>,
    /// Whether a name was allowed.
    pub(crate) allowed: bool,
    /// Whether the last answer is an acknowledgement. Actions that read are acknowledged first.
    pub(crate) acknowledges: bool,
    /// The names that rules have denied, with their indexes. They are sent together: the order in which owners decide depends on which
    /// records exist and are in memory.
    pub(crate) denied: Vec<(u32, Name, RecordRefusal)>,
    /// Whether all names are done, and `denied` is sorted: the last index first.
    pub(crate) is_sorted: bool,
    /// The pending reply of the message that these names are a piece of.
    pub(crate) whole: Option<PendingReplyId>,
}

/// What happens when the last part of a pending reply has arrived.
#[derive(Clone, Debug)]
pub(crate) enum ReplyAction {
    /// Sends the denials of a bulk action of records, and acknowledges it unless every name was refused.
    Record(BulkReply),
    /// Acknowledges subscriptions to events or users, of which not all are made at the same time.
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
    /// Answers who is online.
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

/// An acknowledgement that is held back until interest is visible.
#[derive(Clone, Debug)]
pub(crate) enum DelayedAck {
    Event {
        correlation: Option<Box<str>>,
    },
    Presence {
        action: PresenceAction,
        correlation: Option<Box<str>>,
    },
    /// It is one part of several.
    Part(PendingReplyId),
}

//! The one `Message` inside: what every protocol decodes to and encodes from, in both directions.
//!
//! Texts are borrowed from the read buffer or from the owner of the value, so a message never outlives the turn.
//! `data` is JSON text; in a message that a peer sent it is not checked yet, the engine does that once where it
//! enters. An absent `data` means *undefined*, which is not the same as `null` or as an empty text.

use crate::trace::Trace;

/// A decoded unit of meaning.
#[derive(Clone, Debug, PartialEq)]
pub enum Message<'a> {
    /// Getting connected, heartbeats.
    Connection(Connection<'a>),
    /// Getting identified.
    Auth(Auth<'a>),
    /// Publish and subscribe.
    Event(Event<'a>),
    /// Versioned documents.
    Record(Record<'a>),
    /// Requests and responses.
    Rpc(Rpc<'a>),
    /// Who is online.
    Presence(Presence<'a>),
    /// The peer sent what this server does not understand; the session goes on.
    UnknownTopic,
    /// A known topic with an action that nobody sends to a server. It is counted and gets no answer.
    UnknownAction {
        /// The topic.
        topic: Topic,
        /// The number on the wire.
        action: u32,
    },
}

/// The primitives that have actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Topic {
    /// Getting connected.
    Connection,
    /// Getting identified.
    Auth,
    /// Publish and subscribe.
    Event,
    /// Versioned documents.
    Record,
    /// Requests and responses.
    Rpc,
    /// Who is online.
    Presence,
}

/// Messages before login, and heartbeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection<'a> {
    /// Proof of life, to be answered with `Pong`.
    Ping,
    /// The answer to `Ping`.
    Pong,
    /// The peer introduces itself.
    Challenge {
        /// The address that the application was configured with.
        url: Option<&'a str>,
        /// Version of the protocol.
        protocol_version: Option<&'a str>,
        /// Version of the peer's library.
        sdk_version: Option<&'a str>,
        /// Kind of the peer's library.
        sdk_type: Option<&'a str>,
        /// Whether the peer reads several messages in one frame.
        batches: bool,
        /// Whether the peer follows jumps: after it was slow it takes the newest whole value of a record in place of
        /// the steps to it, and the number of the events that it missed.
        jumps: bool,
    },
    /// The peer may go on to authenticate.
    Accept,
    /// The peer must go away for good.
    Reject,
    /// The peer must connect elsewhere.
    Redirect {
        /// Where.
        url: &'a str,
    },
    /// No login within the time allowed; a close follows.
    AuthenticationTimeout,
    /// A message that has no place before the challenge.
    InvalidMessage,
}

impl Connection<'_> {
    /// The introduction of a peer that tells nothing of itself, but perhaps that it follows jumps.
    #[must_use]
    pub const fn challenge(jumps: bool) -> Self {
        Self::Challenge {
            url: None,
            protocol_version: None,
            sdk_version: None,
            sdk_type: None,
            batches: false,
            jumps,
        }
    }
}

/// Messages of the login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth<'a> {
    /// Credentials, a JSON object.
    Request {
        /// The object given to `login()`.
        data: Option<&'a str>,
    },
    /// The session is open.
    Successful {
        /// What the auth handler wants the client to know.
        data: Option<&'a str>,
    },
    /// Refused; another attempt may follow.
    Unsuccessful {
        /// The reason.
        data: Option<&'a str>,
    },
    /// Refused once too often; a close follows.
    TooManyAttempts,
    /// A message that has no place before the login.
    InvalidMessage,
    /// A login that can't be read; a close follows.
    InvalidMessageData,
}

/// An ordered list of names in a bulk message.
pub type Names<'a> = Vec<&'a str>;

/// A correlation id: chosen by the peer, unique only in that peer's use of it.
pub type Correlation<'a> = Option<&'a str>;

impl<'a> Event<'a> {
    /// A publication, with what is said of it besides.
    #[must_use]
    pub fn published(
        name: &'a str,
        data: Option<&'a str>,
        offset: Option<u64>,
        trace: Option<&Trace>,
    ) -> Self {
        match (trace, offset) {
            (Some(trace), offset) => Self::Traced {
                name,
                data,
                offset,
                trace: *trace,
            },
            (None, Some(offset)) => Self::Numbered { name, data, offset },
            (None, None) => Self::Emit { name, data },
        }
    }
}

/// Messages of events.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<'a> {
    /// Publish; from the server: a publication of somebody else.
    Emit {
        /// The event.
        name: &'a str,
        /// Any JSON value.
        data: Option<&'a str>,
    },
    /// A publication of an event with history, as `Emit`; only from the server.
    Numbered {
        /// The event.
        name: &'a str,
        /// Any JSON value.
        data: Option<&'a str>,
        /// Its number among all of this name.
        offset: u64,
    },
    /// A publication that belongs to a trace: as `Emit`, or with an offset as `Numbered`.
    Traced {
        /// The event.
        name: &'a str,
        /// Any JSON value.
        data: Option<&'a str>,
        /// Its number, if it has history.
        offset: Option<u64>,
        /// Where in the trace it stands.
        trace: Trace,
    },
    /// Bulk subscribe, to be acknowledged.
    Subscribe {
        /// The events.
        names: Names<'a>,
        /// For the ack.
        correlation: Correlation<'a>,
    },
    /// The same of a peer that knows offsets.
    Resume {
        /// The events.
        names: Names<'a>,
        /// For the ack.
        correlation: Correlation<'a>,
        /// Those of them of which it wants to know where they begin, with the position up to which it has them, if it has.
        positions: Vec<(&'a str, Option<Position>)>,
    },
    /// What follows of an event with history begins behind this position. Only for peers that have asked.
    Position {
        /// The event.
        name: &'a str,
        /// Where.
        position: Position,
    },
    /// A peer that came back can't be given all that it missed. Only for peers that have asked.
    HistoryGap {
        /// The event.
        name: &'a str,
        /// How many are missing, at most [`GAP_MAX`], if that is known.
        missed: Option<u32>,
        /// The position of the first event that follows; none if the event has no history.
        first: Option<Position>,
    },
    /// Bulk unsubscribe, to be acknowledged.
    Unsubscribe {
        /// The events.
        names: Names<'a>,
        /// For the ack.
        correlation: Correlation<'a>,
    },
    /// Acknowledges a bulk message.
    Ack {
        /// Which of the bulk actions.
        action: EventBulk,
        /// As in the request.
        correlation: Correlation<'a>,
    },
    /// Listening; the vocabulary is shared with records.
    Listen(Listen<'a>),
    /// Here events were left out, because the peer was slow. Only for peers that follow jumps.
    Gap {
        /// The event.
        name: &'a str,
        /// How many were left out, at most [`GAP_MAX`].
        missed: u32,
    },
    /// An error answer.
    Error(EventError<'a>),
}

/// Where an event stands among all of its name: offsets count up by one within an epoch. Those of different epochs can't be
/// compared. Both are at most 2^53 - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    /// Which counting.
    pub epoch: u64,
    /// The number of the event, from 1 on; 0 stands before the first.
    pub offset: u64,
}

/// The largest number that a gap tells: numbers on the wire have a sign.
pub const GAP_MAX: u32 = i32::MAX as u32;

/// The bulk actions of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventBulk {
    /// Subscribe.
    Subscribe,
    /// Unsubscribe.
    Unsubscribe,
}

/// The actions of an event message that an error answer can refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventAction {
    /// Publish.
    Emit,
    /// Subscribe.
    Subscribe,
    /// Listen.
    Listen,
}

/// Error answers of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventError<'a> {
    /// A rule said no.
    Denied(Refusal<'a, EventAction>),
    /// A rule failed.
    PermissionError(Refusal<'a, EventAction>),
    /// The session has that name already.
    MultipleSubscriptions {
        /// The event.
        name: &'a str,
    },
    /// The data is not JSON, or a limit of name, size or depth was passed.
    InvalidData(Refusal<'a, EventAction>),
}

/// What a denial or a failed rule tells the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal<'a, A> {
    /// The action of the refused message.
    pub action: A,
    /// The name that was checked; absent for requests without a name.
    pub name: Option<&'a str>,
    /// As in the request.
    pub correlation: Correlation<'a>,
    /// Whether the request asked for a write acknowledgement.
    pub write_ack: bool,
}

/// Listening, for events and for records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen<'a> {
    /// A provider registers a pattern.
    Listen {
        /// A JavaScript regular expression, matched anywhere in the name.
        pattern: &'a str,
    },
    /// A provider takes its pattern back.
    Unlisten {
        /// The pattern.
        pattern: &'a str,
    },
    /// Acknowledges `Listen`.
    ListenAck {
        /// As in the request.
        pattern: &'a str,
    },
    /// Acknowledges `Unlisten`.
    UnlistenAck {
        /// As in the request.
        pattern: &'a str,
    },
    /// The provider will provide the name.
    Accept {
        /// The provider's pattern.
        pattern: &'a str,
        /// The name.
        subscription: &'a str,
    },
    /// The provider will not.
    Reject {
        /// The provider's pattern.
        pattern: &'a str,
        /// The name.
        subscription: &'a str,
    },
    /// Asks a provider for a name that somebody subscribed to.
    Found {
        /// The provider's pattern.
        pattern: &'a str,
        /// The name.
        subscription: &'a str,
    },
    /// The last subscriber of a provided name has left.
    Removed {
        /// The provider's pattern.
        pattern: &'a str,
        /// The name.
        subscription: &'a str,
    },
    /// The provider did not answer in time; somebody else is asked.
    ResponseTimeout {
        /// The name.
        subscription: &'a str,
    },
    /// The pattern is not a regular expression that this server can run in linear time.
    InvalidPattern {
        /// The pattern.
        pattern: &'a str,
    },
    /// The session has that pattern already.
    AlreadyListening {
        /// The pattern.
        pattern: &'a str,
    },
}

/// The version of a record: -1 means "does not exist" in reads and "whatever is next" in writes.
pub type WireVersion = i32;

/// A state of a record: which creation of its name, and how often it was written since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag {
    /// Which creation.
    pub incarnation: u64,
    /// Its version.
    pub version: WireVersion,
}

/// The state in which a record must be for a change to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Only {
    /// Any, or none.
    Always,
    /// It does not exist.
    Missing,
    /// It exists.
    Present,
    /// It is in this state.
    Is(Tag),
}

/// What every write of a record has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// The record.
    pub name: &'a str,
    /// The version that the write expects to make, or -1.
    pub version: WireVersion,
    /// As in the request; identifies the write acknowledgement.
    pub correlation: Correlation<'a>,
    /// Whether a write acknowledgement is asked for.
    pub write_ack: bool,
}

/// What a write does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// Replaces the whole record.
    Update {
        /// An object or array.
        data: Option<&'a str>,
    },
    /// Sets one path; absent data deletes it.
    Patch {
        /// The path, see `spec/deepstream.md`.
        path: &'a str,
        /// Any JSON value.
        data: Option<&'a str>,
    },
    /// Deletes one path.
    Erase {
        /// The path; its absence is an error that the engine reports.
        path: Option<&'a str>,
    },
    /// An ordered list of patches, one version step.
    PatchMulti {
        /// A JSON array of `{"path":…,"data":…}`.
        data: Option<&'a str>,
        /// The whole new value, only in messages of the server: for peers that do not know this change.
        full: Option<&'a str>,
    },
    /// As `Update`, and creates the record if it is missing.
    CreateAndUpdate {
        /// An object or array.
        data: Option<&'a str>,
    },
    /// As `Patch`, and creates the record if it is missing.
    CreateAndPatch {
        /// The path; its absence is an error that the engine reports.
        path: Option<&'a str>,
        /// Any JSON value.
        data: Option<&'a str>,
    },
}

/// Messages of records.
#[derive(Clone, Debug, PartialEq)]
pub enum Record<'a> {
    /// Subscribe and its relatives, for many names at once.
    Bulk {
        /// What to do with the names.
        action: RecordBulk,
        /// The records.
        names: Names<'a>,
        /// For the ack.
        correlation: Correlation<'a>,
    },
    /// Acknowledges a bulk message.
    Ack {
        /// Which of the bulk actions.
        action: RecordBulk,
        /// Echoed for `SubscribeCreateAndRead`, `SubscribeAndRead` and `Notify`, else empty.
        names: Names<'a>,
        /// As in the request.
        correlation: Correlation<'a>,
    },
    /// Reads a snapshot.
    Read {
        /// The record.
        name: &'a str,
    },
    /// Asks for a version.
    Head {
        /// The record.
        name: &'a str,
    },
    /// Deletes the record.
    Delete {
        /// The record.
        name: &'a str,
    },
    /// A write, of a client or of somebody else.
    Write(Write<'a>, Change<'a>),
    /// An acknowledged write that is made once, however often it comes with this key: the peer may repeat it where it does not
    /// know whether it was made.
    RepeatableWrite {
        /// The write.
        write: Write<'a>,
        /// What it does.
        change: Change<'a>,
        /// The peer's own.
        key: &'a str,
    },
    /// Asks for the value with its state.
    Fetch {
        /// The record.
        name: &'a str,
        /// For the answer.
        correlation: &'a str,
    },
    /// The answer to `Fetch`.
    Fetched {
        /// The record.
        name: &'a str,
        /// As in the request.
        correlation: &'a str,
        /// State and value, absent if it does not exist.
        state: Option<(Tag, &'a str)>,
    },
    /// Replaces or removes a record if it is in a certain state; answered when that is durable.
    Put {
        /// The record.
        name: &'a str,
        /// For the answer.
        correlation: &'a str,
        /// In which state.
        only: Only,
        /// An object or array; absent to remove the record.
        data: Option<&'a str>,
    },
    /// The answer to `Put`: done, and durable.
    Stored {
        /// The record.
        name: &'a str,
        /// As in the request.
        correlation: &'a str,
        /// Whether there was such a record before.
        existed: bool,
        /// The state that was made, absent if the record is gone.
        tag: Option<Tag>,
    },
    /// The answer to `Put`: nothing was done, because the record is in another state.
    Unmet {
        /// The record.
        name: &'a str,
        /// As in the request.
        correlation: &'a str,
        /// The state, absent if there is no such record.
        tag: Option<Tag>,
    },
    /// The answer to a read.
    ReadResponse {
        /// The record.
        name: &'a str,
        /// Its version.
        version: WireVersion,
        /// Its value.
        data: &'a str,
    },
    /// The answer to `Head`.
    HeadResponse {
        /// The record.
        name: &'a str,
        /// Its version, -1 if it does not exist.
        version: WireVersion,
    },
    /// The answer to `SubscribeAndHead`.
    HeadResponseBulk {
        /// Names and versions.
        versions: Vec<(&'a str, WireVersion)>,
    },
    /// The record is gone; to who asked for it.
    DeleteSuccess {
        /// The record.
        name: &'a str,
    },
    /// The record is gone; to its other subscribers, whose subscriptions end.
    Deleted {
        /// The record.
        name: &'a str,
    },
    /// The write is on disk.
    WriteAck {
        /// The record.
        name: &'a str,
        /// As in the request.
        correlation: Correlation<'a>,
    },
    /// Whether somebody provides the record.
    HasProvider {
        /// The record.
        name: &'a str,
        /// Whether somebody does.
        provided: bool,
    },
    /// Listening; the vocabulary is shared with events.
    Listen(Listen<'a>),
    /// An error answer.
    Error(RecordError<'a>),
}

/// The bulk actions of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordBulk {
    /// Subscribe only.
    Subscribe,
    /// Unsubscribe.
    Unsubscribe,
    /// Subscribe, create what is missing, read.
    SubscribeCreateAndRead,
    /// Subscribe and read.
    SubscribeAndRead,
    /// Subscribe and ask for versions.
    SubscribeAndHead,
    /// The data changed behind the server's back: load again, tell the subscribers.
    Notify,
}

/// The actions of a record message that an error answer can refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordAction {
    /// A bulk action.
    Bulk(RecordBulk),
    /// Read.
    Read,
    /// Head.
    Head,
    /// Delete.
    Delete,
    /// Update.
    Update,
    /// Patch.
    Patch,
    /// Erase.
    Erase,
    /// Patch multi.
    PatchMulti,
    /// Create and update.
    CreateAndUpdate,
    /// Create and patch.
    CreateAndPatch,
    /// Listen.
    Listen,
}

impl Change<'_> {
    /// The action that an error answer to this change refers to.
    #[must_use]
    pub fn action(&self) -> RecordAction {
        match self {
            Self::Update { .. } => RecordAction::Update,
            Self::Patch { .. } => RecordAction::Patch,
            Self::Erase { .. } => RecordAction::Erase,
            Self::PatchMulti { .. } => RecordAction::PatchMulti,
            Self::CreateAndUpdate { .. } => RecordAction::CreateAndUpdate,
            Self::CreateAndPatch { .. } => RecordAction::CreateAndPatch,
        }
    }
}

/// Error answers of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError<'a> {
    /// A rule said no.
    Denied(Refusal<'a, RecordAction>),
    /// A rule failed.
    PermissionError(Refusal<'a, RecordAction>),
    /// The session has that name already.
    MultipleSubscriptions {
        /// The record.
        name: &'a str,
    },
    /// The version exists already; the peer merges.
    VersionExists {
        /// The record.
        name: &'a str,
        /// The current version.
        version: WireVersion,
        /// The current value.
        data: &'a str,
        /// The refused action.
        action: RecordAction,
        /// As in the request.
        correlation: Correlation<'a>,
        /// As in the request.
        write_ack: bool,
    },
    /// The version lies ahead of the next one.
    InvalidVersion {
        /// The record.
        name: &'a str,
        /// The current version.
        version: WireVersion,
        /// The refused action.
        action: RecordAction,
        /// As in the request.
        correlation: Correlation<'a>,
        /// As in the request.
        write_ack: bool,
    },
    /// The data, path or name can't be used, or a limit was passed. Unparsable data is never echoed.
    InvalidData(Refusal<'a, RecordAction>),
    /// A read of a record that does not exist.
    NotFound {
        /// The record.
        name: &'a str,
        /// The refused action.
        action: RecordAction,
    },
    /// The store did not answer in time.
    RetrievalTimeout(Refusal<'a, RecordAction>),
    /// The store failed, or the record is corrupt.
    Load(Refusal<'a, RecordAction>),
    /// The record could not be created.
    Create(Refusal<'a, RecordAction>),
    /// The write failed, may be tried again, or its record is missing.
    Update(Refusal<'a, RecordAction>),
    /// The delete failed and may be tried again.
    Delete {
        /// The record.
        name: &'a str,
    },
    /// A notify failed.
    Notify {
        /// A JSON string.
        data: &'a str,
        /// As in the request.
        correlation: Correlation<'a>,
    },
    /// A patch of a record whose prefix takes whole values only.
    PatchOnHotPath(Refusal<'a, RecordAction>),
}

/// What every message of a call has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// The rpc.
    pub name: &'a str,
    /// Chosen by the requestor; identifies the call within its session.
    pub correlation: &'a str,
}

/// Messages of rpc.
#[derive(Clone, Debug, PartialEq)]
pub enum Rpc<'a> {
    /// Bulk registration as provider, to be acknowledged.
    Provide {
        /// The rpcs.
        names: Names<'a>,
        /// For the ack.
        correlation: Correlation<'a>,
    },
    /// Takes registrations back, to be acknowledged.
    Unprovide {
        /// The rpcs.
        names: Names<'a>,
        /// For the ack.
        correlation: Correlation<'a>,
    },
    /// Acknowledges `Provide` or `Unprovide`.
    Ack {
        /// True for `Provide`.
        provide: bool,
        /// As in the request.
        correlation: Correlation<'a>,
    },
    /// A call; from the server: to a provider.
    Request {
        /// Which call.
        call: Call<'a>,
        /// Any JSON value.
        data: Option<&'a str>,
        /// The requestor's user id, if configured; only from the server.
        requestor_name: Option<&'a str>,
        /// The requestor's client data, if configured; only from the server.
        requestor_data: Option<&'a str>,
    },
    /// The provider works on it.
    Accept(Call<'a>),
    /// The provider does not want it.
    Reject(Call<'a>),
    /// The result.
    Response {
        /// Which call.
        call: Call<'a>,
        /// Any JSON value.
        data: Option<&'a str>,
    },
    /// The provider's error.
    RequestError {
        /// Which call.
        call: Call<'a>,
        /// Any JSON value.
        data: Option<&'a str>,
    },
    /// An error answer.
    Error(RpcError<'a>),
}

/// The actions of an rpc message that an error answer can refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RpcAction {
    /// Provide.
    Provide,
    /// Request.
    Request,
    /// Accept.
    Accept,
    /// Response.
    Response,
    /// Request error.
    RequestError,
    /// Reject.
    Reject,
}

/// Error answers of rpc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RpcError<'a> {
    /// A rule said no.
    Denied(Refusal<'a, RpcAction>),
    /// A rule failed.
    PermissionError(Refusal<'a, RpcAction>),
    /// The session provides that name already.
    MultipleProviders {
        /// The rpc.
        name: &'a str,
    },
    /// Nobody provides it, or all that do have declined.
    NoProvider(Call<'a>),
    /// The provider did not accept in time.
    AcceptTimeout(Call<'a>),
    /// The provider did not respond in time.
    ResponseTimeout(Call<'a>),
    /// The provider accepted twice.
    MultipleAccept(Call<'a>),
    /// There is no such call, or it is not this session's to answer.
    InvalidCorrelation {
        /// Which call.
        call: Call<'a>,
        /// The refused action.
        action: RpcAction,
    },
    /// The data is not JSON, or a limit of name, size or depth was passed.
    InvalidData(Refusal<'a, RpcAction>),
}

/// Messages of presence.
#[derive(Clone, Debug, PartialEq)]
pub enum Presence<'a> {
    /// Who is online?
    QueryAll,
    /// The users, without the one who asked.
    QueryAllResponse {
        /// User ids.
        names: Names<'a>,
    },
    /// Are these online?
    Query {
        /// User ids.
        names: Names<'a>,
        /// For the answer.
        correlation: Correlation<'a>,
    },
    /// The answer to `Query`.
    QueryResponse {
        /// As in the request.
        correlation: Correlation<'a>,
        /// A JSON object of booleans by user id.
        data: &'a str,
    },
    /// Tell me of these users, to be acknowledged.
    Subscribe {
        /// User ids.
        names: Names<'a>,
        /// For the ack.
        correlation: Correlation<'a>,
    },
    /// No longer, to be acknowledged.
    Unsubscribe {
        /// User ids.
        names: Names<'a>,
        /// For the ack.
        correlation: Correlation<'a>,
    },
    /// Tell me of all users, to be acknowledged.
    SubscribeAll,
    /// No longer, to be acknowledged.
    UnsubscribeAll,
    /// Acknowledges one of these.
    Ack {
        /// Which.
        action: PresenceAction,
        /// As in the request.
        correlation: Correlation<'a>,
    },
    /// A user's first session opened or last session ended.
    Changed {
        /// The user id.
        name: &'a str,
        /// Whether the user is online now.
        online: bool,
        /// For those who subscribed to all, else for those who subscribed to this user.
        all: bool,
    },
    /// An error answer.
    Error(PresenceError<'a>),
}

/// The actions of presence that an ack or an error answer can refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PresenceAction {
    /// Query all.
    QueryAll,
    /// Query.
    Query,
    /// Subscribe.
    Subscribe,
    /// Unsubscribe.
    Unsubscribe,
    /// Subscribe all.
    SubscribeAll,
    /// Unsubscribe all.
    UnsubscribeAll,
}

/// Error answers of presence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PresenceError<'a> {
    /// A rule said no.
    Denied(Refusal<'a, PresenceAction>),
    /// A rule failed.
    PermissionError(Refusal<'a, PresenceAction>),
    /// The session is subscribed to that user, or to all, already.
    MultipleSubscriptions {
        /// The user id, or `%_EVERYONE_%`.
        name: &'a str,
        /// Subscribe or subscribe all.
        action: PresenceAction,
    },
    /// A limit of names was passed.
    InvalidData(Refusal<'a, PresenceAction>),
}

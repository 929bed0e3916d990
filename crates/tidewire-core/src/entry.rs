//! Messages between shards: they own their data, and wait in a mailbox until the other shard's next turn.
//!
//! A mailbox is one FIFO queue for all senders. All messages about a name go to the shard that owns the name, and its results come from
//! there. All shards therefore see the owner's decisions in the order in which the owner made them.

mod backend;
mod exchange;
mod history;
mod interest;
mod listen;
mod query;
mod record;
mod reply;
mod rpc;
mod scope;
mod view;

use std::sync::Arc;

use crate::address::{Address, SessionId};
use crate::message::Topic;
use crate::principal::Principal;
use crate::publication::OwnedPublication;
use crate::rate::Operation;
use crate::rights::RightsChange;
use crate::store::Version;
use crate::text::{Name, Payload};

pub use backend::{BackendEntry, OwnedBackend};
pub use exchange::{ExchangeEntry, ExchangeReply, ExchangeRequest};
pub use history::{HistoryEntry, HistoryGap, HistoryPage, HistoryRead};
pub use interest::InterestEntry;
pub use listen::{ListenNotice, Listening};
pub use query::{QueryEntry, UnsavedRow, UnsavedValue};
pub use record::{
    Answer, BulkName, OperationChange, OwnedChange, OwnedKey, OwnedOperation, OwnedPatch, OwnedPut,
    OwnedTransaction, OwnedWrite, Published, Reauthorization, RecordAnswer, RecordOperation,
    RecordRead, RecordRefusal, RecordRequest, RecordRequestKind, Resumed, Snapshot, Stored,
    TransactionResult,
};
pub(crate) use reply::{BulkReply, DelayedAck, ReplyAction};
pub use reply::{PendingReplyId, ReplyPart};
pub(crate) use rpc::call_bytes;
pub use rpc::{CallAnswer, CallNotice, OwnedCall, RpcDelivery, RpcEntry};
pub use scope::ScopeEntry;
pub use view::{AnnouncedRecord, AnnouncedUser, ViewEntry};

/// An entry of a mailbox.
#[derive(Clone, Debug)]
pub enum Entry {
    /// For this shard's subscribers of an event without history.
    Publication(OwnedPublication),
    /// For this shard's sessions that watch a user or all users: the user came online or went offline.
    PresenceChanged(PresenceChange),
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
        /// The pending reply to the login, if it waits until the owner has counted the session.
        reply: Option<PendingReplyId>,
    },
    /// To the owner of a user id: a session of that user has ended.
    Offline {
        /// The user.
        user: Name,
        /// The shard that had the session.
        shard: Address,
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
    Rights(RightsMarker),
    /// To every other shard: the sender has received all markers of a change, and so has handled everything that was authorized before it.
    RightsPassed {
        /// The sender.
        from: Address,
        /// The number of the change.
        number: u64,
    },
    /// To every shard of other nodes: a change is settled at the sender, and all its messages that were decided before have left.
    RightsSent {
        /// The sender.
        from: Address,
        /// The number of the change.
        number: u64,
    },
    /// The interest of the shards of another node. The shard handles it outside of the engine.
    Interest(InterestEntry),
    /// A request of another node for a session of exchanges, or its reply. The shard handles it outside of the engine.
    Exchange(ExchangeEntry),
    /// Between a session's shard and the owners that handle its requests: the session has caused too much work.
    Work(WorkEntry),
    /// To every shard: the session has ended, with all its offers and requests.
    SessionEnded {
        /// The session.
        session: SessionId,
    },
    /// To every shard of a view: its change.
    View(ViewEntry),
    /// Between the shard that evaluates a query and the owners of records.
    Query(QueryEntry),
    /// Between the shards of sessions and the shards of the backends that serve them.
    Backend(BackendEntry),
    /// Between the shards of sessions and the owners of scopes.
    Scope(ScopeEntry),
}

impl Entry {
    /// Whether a session of the shard has opened or ended.
    pub(crate) fn changes_presence_of(&self, of: Address) -> bool {
        match self {
            Self::Online { session, .. } => session.address == of,
            Self::Offline { shard, .. } => *shard == of,
            _ => false,
        }
    }

    /// Whether it requests the check of a subscription that its session has.
    pub(crate) fn is_reauthorization(&self) -> bool {
        use {RecordOperation::Read, RecordRead::Right};
        matches!(
            self,
            Self::RecordRequest(RecordRequest {
                what: RecordRequestKind::One(_, Read(Right(_))),
                ..
            })
        )
    }
}

/// The marker of a change of rights, see the module `barrier`.
#[derive(Clone, Debug)]
pub struct RightsMarker {
    /// The sender.
    pub from: Address,
    /// The number of the change.
    pub number: u64,
    /// The change, for a shard that does not know it yet.
    pub change: RightsChange,
}

/// A change of a user's presence.
#[derive(Clone, Debug)]
pub struct PresenceChange {
    /// Whether it goes to the sessions that watch all users, else to the sessions that watch this user.
    pub everyone: bool,
    /// The user id.
    pub user: Name,
    /// Whether the user is online now.
    pub online: bool,
    /// The session with which the user came online, and which does not get the change.
    pub except: Option<SessionId>,
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
    /// A decision about an event for subscribers of patterns.
    EventRight {
        /// The shard that decides.
        address: Address,
        /// The number of the decision there.
        ticket: u64,
    },
    /// A right that is reauthorized.
    Reauthorize {
        /// The shard that reauthorizes.
        address: Address,
        /// The number of the reauthorization there.
        ticket: u64,
    },
    /// A query that selects records whose rules need the value.
    Query {
        /// The shard that evaluates it.
        address: Address,
        /// The number of the query there.
        run: u64,
    },
    /// A record whose first waiting request has a rule that needs the value.
    Record {
        /// Its owner.
        owner: Address,
        /// Its name.
        name: Name,
    },
}

impl Asker {
    /// The shard to which the value goes.
    pub(crate) fn address(&self) -> Address {
        match self {
            Self::Session(session) | Self::Lagging(session, _) => session.address,
            Self::Record { owner, .. } | Self::Listening { owner, .. } => *owner,
            Self::Reauthorize { address, .. }
            | Self::EventRight { address, .. }
            | Self::Query { address, .. } => *address,
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A larger one is moved by a call of `memcpy`, which took 2 % of the instructions of a patch with 100 subscribers.
    #[test]
    fn an_entry_stays_small() {
        assert!(size_of::<Entry>() <= 128, "{}", size_of::<Entry>());
    }
}

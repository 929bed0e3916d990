//! Queries: entries between the shards of sessions, the owners of live queries and the owners of records.

use std::sync::Arc;

use crate::address::{Address, SessionId};
use crate::message::QueryReason;
use crate::principal::Principal;
use crate::store::Version;
use crate::text::{Name, Payload};

/// Messages about queries, between shards.
#[derive(Clone, Debug)]
pub enum QueryEntry {
    /// To every shard: the records of a collection which the shard owns and whose store does not have their newest value.
    Collect {
        /// The number of the query at the shard that evaluates it.
        run: u64,
        /// This shard.
        reader: Address,
        /// The collection with a slash: the prefix of the names of its records.
        prefix: Name,
        /// The query.
        query: Payload,
    },
    /// The answer to `Collect`, in parts.
    Collected {
        /// As in the request.
        run: u64,
        /// The shard that answers.
        shard: Address,
        /// The records.
        rows: Vec<UnsavedRow>,
        /// Whether no further part follows.
        is_last: bool,
    },
    /// To the owner of a live query: a session subscribes to it.
    Subscribe {
        /// The session.
        session: SessionId,
        /// Distinguishes the subscriptions of a shard.
        serial: u32,
        /// The principal of the session.
        principal: Arc<Principal>,
        /// The collection, as in `Collect`.
        prefix: Name,
        /// The query.
        query: Payload,
    },
    /// To the owner of a live query: a subscription has ended.
    Release {
        /// The session.
        session: SessionId,
        /// As in `Subscribe`.
        serial: u32,
    },
    /// To the owner of a live query: a subscriber needs the whole result again.
    Refresh {
        /// The session.
        session: SessionId,
        /// As in `Subscribe`.
        serial: u32,
    },
    /// To a subscriber's shard: the whole result. Its changes follow.
    Snapshot {
        /// The session.
        session: SessionId,
        /// As in `Subscribe`.
        serial: u32,
        /// The owner of the query.
        owner: Address,
        /// The number of the query there.
        query: u64,
        /// A JSON object with the rows.
        data: Payload,
    },
    /// To a subscriber's shard: the subscription is refused or has ended.
    Ended {
        /// The session.
        session: SessionId,
        /// As in `Subscribe`.
        serial: u32,
        /// Why.
        reason: QueryReason,
        /// A JSON object.
        data: Payload,
    },
    /// To each shard with subscribers of a live query: changes of its result.
    Changed {
        /// The owner of the query.
        owner: Address,
        /// The number of the query there.
        query: u64,
        /// A JSON array.
        data: Payload,
    },
    /// To every shard: a live query needs the writes that change its selection.
    Watch {
        /// The number of the query.
        query: u64,
        /// Its owner.
        owner: Address,
        /// The collection, as in `Collect`.
        prefix: Name,
        /// The query.
        text: Payload,
        /// The principal whose rights count.
        principal: Arc<Principal>,
    },
    /// To every shard: the live query has ended.
    Unwatch {
        /// The number of the query.
        query: u64,
        /// Its owner.
        owner: Address,
        /// The collection, as in `Collect`.
        prefix: Name,
    },
    /// To the owner of a live query: a record that was in its selection, or is now, was written.
    Written {
        /// The number of the query.
        query: u64,
        /// The record.
        row: UnsavedRow,
    },
}

/// A record's newest value, which the store may not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsavedRow {
    /// The record.
    pub name: Name,
    /// Its newest value; `None` if the query does not select it or the record is deleted.
    pub value: Option<UnsavedValue>,
}

/// The newest value of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsavedValue {
    /// Its version.
    pub version: Version,
    /// Its JSON.
    pub data: Payload,
}

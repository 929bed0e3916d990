//! Queries: the records of a collection by their content.
//!
//! A record belongs to the collection that is its name without the last segment. A query is evaluated at the shard of its session, in
//! three steps. First all shards send the records of the collection whose newest value the store does not have. Then pages of the store
//! are read, or the records that an index of the store lists; a record that a shard has sent counts as it was sent. Each selected record is
//! authorized for the session's principal before it is counted or kept. So a record that the principal may not read changes
//! neither the order nor the count of the others.
//!
//! A live query is kept by its owner (`owner`), which the slot of its normal form selects. All shards report to the owner the writes that
//! change the selection (`record/watched.rs`); the owner keeps a window of the rows and posts its changes to the shards of the subscribers.
//!
//! - [`collection`]: the names of a collection's records.
//! - [`run`]: the state of one query.
//! - [`indexed`]: how a query reads an index of the store instead of the whole collection.
//! - [`reader`]: the queries of the sessions of a shard, and the pages that they wait for.
//! - [`rights`]: whether a principal may read a record.
//! - [`rows`]: the selected records in their order, and their text.
//! - [`live`]: one live query: window, values, the text of its changes.
//! - [`owner`]: the live queries that a shard owns.
//! - [`subscriber`]: the live queries of the sessions of a shard.
//! - [`unsaved`]: the walk over the records that a shard has and its store does not.

pub(crate) mod collection;
mod indexed;
mod live;
pub(crate) mod owner;
pub(crate) mod reader;
pub(crate) mod rights;
mod rows;
mod run;
pub(crate) mod subscriber;
pub(crate) mod unsaved;

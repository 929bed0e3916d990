//! Live queries: which records a query selects, in which order, and which queries a write changes. Contract: `spec/query.md`.
//!
//! Everything here is a pure function or a data structure: no store, no clock, no session. A record is read once per write into a
//! [`Tape`], and all candidate queries are matched on it.

mod collection_index;
mod condition;
mod constant;
mod entrance;
mod error;
mod index;
pub mod indexes;
mod interval;
mod key;
mod limits;
mod normal;
mod number;
mod order;
mod path;
mod pattern;
mod projection;
mod query;
mod selector;
mod shape;
mod sort;
mod tape;
mod window;

pub use collection_index::{
    CollectionIndex, EntryKind, INDEX_PATHS_MAX, IndexPlan, KeyRange, key_values,
};
pub use error::{QueryError, QueryErrorCode};
pub use index::{Membership, PredicateIndex, QueryId};
pub use key::{INDEX_KEY_BYTES_MAX, IndexKey, encode as encode_key, index_key};
pub use limits::QueryLimits;
pub use order::{compare, equal};
pub use projection::Projection;
pub use query::Query;
pub use shape::Selector;
pub use sort::Sort;
pub use tape::{Document, Kind, Tape, Value};
pub use window::{Change, Refill, Row, Window, WindowSize};

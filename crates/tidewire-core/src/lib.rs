//! The decisions of the server: primitives, permission, sessions and fan-out.
//!
//! Nothing here opens a socket, reads a clock, starts a thread or draws a random number. Time and seeds are arguments. Everything that
//! the engine needs from outside is requested through [`effect::Effects`].

use tidewire_collections::{grace, membership, shard_counts, small_map, sweep, table, timer, work};
/// JSON as text, of which records and payloads consist.
pub use tidewire_json as json;
/// The indexes of collections.
pub use tidewire_query::indexes;

/// Messages between clients and the server, and the addresses of sessions, shards and the owners of names.
pub use tidewire_message::{
    address, attachments, binary, event_pattern, hex, history_rules, identity, latency, limits,
    listen_pattern, message, name_pattern, namespace, permission, principal, publication, rate,
    route, slot, store, text, time, trace, view,
};

pub mod effect;
pub mod engine;
pub mod entry;
pub mod history;
pub mod inspect;
#[doc(hidden)]
pub mod rights;
pub mod settings;

pub mod awaited;
mod backend;
mod barrier;
mod bulk;
mod catch_up;
mod context;
mod event;
mod event_rights;
mod expiry;
mod footprint;
mod handover;
mod hub;
mod lag;
mod listen;
mod login;
mod presence;
mod query;
pub mod quota;
mod rate_limiter;
mod reauthorize;
mod record;
mod rpc;
mod scope;
mod session;

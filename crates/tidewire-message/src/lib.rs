//! Messages between clients and the server, free of every protocol: names, payloads, patterns of names; and the addresses that messages
//! travel to: sessions, shards, nodes, and the owner of each name; and the view of a cluster.
//!
//! Nothing here decides. The engine is above this crate, and so is each protocol.

pub mod address;
pub mod attachments;
pub mod binary;
pub mod event_pattern;
pub mod hex;
pub mod history_rules;
pub mod identity;
pub mod latency;
pub mod limits;
pub mod listen_pattern;
pub mod listen_prefix;
pub mod message;
pub mod name_pattern;
pub mod namespace;
pub mod permission;
pub mod principal;
pub mod publication;
pub mod rate;
pub mod route;
pub mod slot;
pub mod store;
pub mod text;
pub mod time;
pub mod trace;
pub mod view;

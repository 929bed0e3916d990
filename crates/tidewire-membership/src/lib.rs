//! The membership of a node in a cluster, as a state machine: when it joins and leaves, which members it suspects and evicts, and when it
//! stops deciding. Contract: `spec/cluster.md`, decision 0103.
//!
//! Nothing here opens a socket or reads a clock. The driver passes the time, the answers of the registry and the signs of life of the links.
//! The view in the registry decides who is a member; the machine only proposes.

mod link;
mod membership;

pub use membership::{
    EVICTION_WAIT_MS, HEARTBEAT_MS, Input, JOIN_WAIT_MS, Membership, Output, RELINK_MS, STOP_MS,
    Settings,
};

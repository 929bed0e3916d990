//! Links between the processes of a cluster: between two births, each entry is delivered exactly once and in order.
//!
//! A [`link::Link`] is a state machine. It reads neither clocks nor sockets: times, frames and the state of the carrier are inputs, frames
//! and deliveries are outputs. A carrier below it may lose, duplicate, reorder or delay frames, and may break. Contract: `spec/links.md`.

pub mod frame;
mod incoming;
pub mod limits;
pub mod link;
mod liveness;
mod outgoing;

use siphasher::sip::SipHasher13;

/// The text whose hash identifies the cluster.
const IDENTITY: &[u8] = b"tidewire cluster";

/// Identifies a cluster in a hello without its key: SipHash-1-3 of "tidewire cluster".
#[must_use]
pub fn cluster_identity(key: &[u8; 16]) -> u64 {
    SipHasher13::new_with_key(key).hash(IDENTITY)
}

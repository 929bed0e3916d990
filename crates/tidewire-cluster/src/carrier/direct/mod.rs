//! The direct carrier: one TCP connection with TLS between two processes, which both dial.
//!
//! Each process makes a certificate when it starts. The view has its fingerprint, so both sides accept exactly the certificates of their
//! peers, and there is no secret to configure. There is no connection without TLS. A frame on the stream has its length in front, in four
//! bytes (little-endian).

mod connection;
mod endpoint;
mod identity;
mod pinned;

pub use self::endpoint::{Direct, Endpoint, PeerAddress};
pub use self::identity::{Fingerprint, Identity};

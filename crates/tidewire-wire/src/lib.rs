//! How bytes become messages and back: framing and protocols.
//!
//! Nothing here reads a socket or a clock. A frame codec finds the messages in a stream of bytes, a protocol codec
//! translates each into the one [`tidewire_core::message::Message`] and back. Both ends use the same files: the
//! tests and the bench speak as clients through them.

pub mod frame;
pub mod protocol;

/// What the protocols translate to, for peers that speak them without an engine.
pub use tidewire_core::message;

//! Converts bytes to messages and back: framing and protocols, and the entries that nodes send to each other.
//!
//! This crate reads neither sockets nor clocks. A frame codec finds the messages in a stream of bytes, a protocol
//! codec translates each to and from [`tidewire_core::message::Message`]. Both ends use the same files: the tests and
//! the bench act as clients through them.

pub mod entry;
pub mod frame;
pub mod protobuf;
pub mod protocol;
pub mod traceparent;

/// The target of the protocols, for peers without an engine.
pub use tidewire_core::message;

//! Protocols: what the bytes of one frame mean. Each protocol translates to and from the one
//! [`tidewire_core::message::Message`] and has a page in `spec/`.

pub mod deepstream;

//! Protocols: the meaning of the bytes of one frame. Each protocol translates to and from
//! [`tidewire_core::message::Message`] and has a page in `spec/`.

pub mod deepstream;

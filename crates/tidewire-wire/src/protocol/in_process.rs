//! The form of messages between parts of the server: between the tasks of HTTP requests and the shards. It never leaves the process, so it
//! has no version. Messages follow each other without frames, and nothing is rewritten for a client.

use tidewire_core::message::Message;

use super::deepstream::{Deepstream, Dialect};

/// Appends `message`.
pub fn encode(message: &Message<'_>, out: &mut Vec<u8>) {
    Deepstream::encode(Dialect::Server, message, out);
}

/// Bytes of the first message; `None` if there is none.
#[must_use]
pub fn first_bytes(messages: &[u8]) -> Option<usize> {
    Deepstream::message_bytes(messages)
}

/// The message that was encoded as exactly these bytes; `None` if they are no message.
#[must_use]
pub fn decode(message: &[u8]) -> Option<Message<'_>> {
    Deepstream::decode(message).ok()
}

/// The messages of `bytes`, in order.
pub fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let (message, rest) = bytes.split_at(first_bytes(bytes)?);
        bytes = rest;
        decode(message)
    })
}

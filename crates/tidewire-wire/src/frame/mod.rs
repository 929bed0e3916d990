//! Framing: finds the end of each message in a byte stream. It does not know the meaning of a message.

pub mod deflate;
pub mod offer;
pub mod websocket;

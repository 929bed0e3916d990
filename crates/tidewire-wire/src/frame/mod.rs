//! Framing: where one message of a byte stream ends and the next begins. What a message means is not known here.

pub mod deflate;
pub mod offer;
pub mod websocket;

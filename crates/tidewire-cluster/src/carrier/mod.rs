//! The interface of a carrier, and the list of its kinds. Each file or folder here is one of them; `bus` has the common part of the carriers
//! over message brokers.

#[cfg(feature = "amqp")]
mod amqp;
#[cfg(feature = "bus")]
pub mod bus;
pub mod direct;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "redis")]
mod redis;
mod settings;

use std::task::{Context, Poll};

pub use self::settings::{Settings, UrlError, from_url};

/// An event of a carrier.
#[derive(Debug, PartialEq, Eq)]
pub enum CarrierEvent {
    /// The carrier is connected. Frames that were sent before may be lost.
    Up,
    /// The carrier has lost its connection, and is connecting again.
    Down,
    /// A frame has arrived, whole.
    Frame(Vec<u8>),
}

/// Transports the frames of one link. It may lose, duplicate, reorder or delay them; it never changes, joins or splits them, and bounds its memory.
pub trait Carrier: Send {
    /// The next event. Also sends the frames that wait, so the driver must poll it after [`Carrier::send`], unless [`Carrier::flush`] has sent it.
    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<CarrierEvent>;

    /// Takes a frame. A carrier without a connection or without room drops it.
    fn send(&mut self, frame: &[u8]);

    /// Sends the frames that wait, as far as that blocks no thread. Any thread may call it. Returns whether all were sent: otherwise the carrier must
    /// be polled.
    fn flush(&mut self) -> bool;

    /// The peer is silent: gives up the connection, which may be dead without an error, and connects again. A carrier that shares its
    /// connection with other peers checks the connection itself and does nothing.
    fn reset(&mut self);
}

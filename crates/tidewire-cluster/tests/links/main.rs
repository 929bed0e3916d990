//! The link suite: the same cases over every carrier, against the real network or broker with faults in between.

#[cfg(all(
    feature = "amqp",
    feature = "kafka",
    feature = "nats",
    feature = "redis"
))]
mod broker;
#[cfg(all(
    feature = "amqp",
    feature = "kafka",
    feature = "nats",
    feature = "redis"
))]
mod bus;
mod cases;
mod direct;
mod proxy;
mod side;
#[cfg(all(
    feature = "amqp",
    feature = "kafka",
    feature = "nats",
    feature = "redis"
))]
mod speed;

use tidewire_cluster::carrier::Carrier;
use tidewire_link::frame::Process;

/// Two processes that a kind of carrier connects, and the faults of their network.
pub trait Ground: Send + Sync {
    /// A carrier of a process of side 0 or 1, whose node has the number of the side, to the first life of the other one.
    fn carrier(&self, local: Process) -> Box<dyn Carrier>;
    /// Breaks all connections and refuses new ones, until `repair`.
    fn cut(&self);
    /// Frames from this side do not arrive, without an error, until `repair`.
    fn stall(&self, from: usize);
    /// All open connections die without an error. New ones work.
    fn abandon(&self);
    /// Ends the faults.
    fn repair(&self);
}

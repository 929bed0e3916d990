//! The link suite: the same cases over every carrier, against the real network or broker with faults in between.

mod cases;
mod direct;
mod proxy;
mod side;
mod speed;

use tidewire_cluster::carrier::Carrier;

/// Two processes that a kind of carrier connects, and the faults of their network.
pub trait Ground: Send + Sync {
    /// A carrier of side 0 or 1 to the other one. A second one of a side belongs to its next life.
    fn carrier(&self, side: usize) -> Box<dyn Carrier>;
    /// Breaks all connections and refuses new ones, until `repair`.
    fn cut(&self);
    /// Frames from this side do not arrive, without an error, until `repair`.
    fn stall(&self, from: usize);
    /// Ends the faults.
    fn repair(&self);
}

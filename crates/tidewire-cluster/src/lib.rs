//! Carriers of links between the nodes of a cluster, and the task that drives a link over one of them.
//!
//! A carrier transports frames and decides nothing. Order, repetition and the detection of silent peers are in `tidewire-link`.

pub mod carrier;
pub mod driver;
pub mod member;

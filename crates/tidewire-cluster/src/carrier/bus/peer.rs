//! The carrier to one peer over the connection of this process to its broker.

use std::sync::Arc;
use std::task::{Context, Poll};

use tidewire_link::frame::Process;

use super::shared::Shared;
use crate::carrier::{Carrier, CarrierEvent};

/// See the documentation of this module.
#[derive(Debug)]
pub struct BusCarrier {
    shared: Arc<Shared>,
    node: u16,
    id: u64,
    /// The changes of the connection that were reported as events.
    seen: u64,
}

impl BusCarrier {
    pub(super) fn new(shared: Arc<Shared>, peer: Process) -> Self {
        Self {
            id: shared.add(peer),
            shared,
            node: peer.node,
            seen: 0,
        }
    }
}

impl Carrier for BusCarrier {
    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<CarrierEvent> {
        self.shared
            .poll_event(context, self.node, self.id, &mut self.seen)
    }

    fn send(&mut self, frame: &[u8]) {
        self.shared.send(self.node, frame);
    }

    /// The task of the connection publishes what waits, without the carrier.
    fn flush(&mut self) -> bool {
        true
    }

    /// Does nothing: the peer is silent, but the connection belongs to all peers, and the messages to the own inbox check it.
    fn reset(&mut self) {}
}

impl Drop for BusCarrier {
    fn drop(&mut self) {
        self.shared.remove(self.node, self.id);
    }
}

//! Messages that go to a congested shard or node: their connections wait until it has caught up, and all others are read.
//!
//! A message waits before the engine sees it if one of its names belongs to a congested shard or has subscribers there. Other messages
//! that make the engine post to a congested shard are recognized by their posts. Then the connection waits after the message.

use tidewire_core::engine::Shard;
use tidewire_core::message::Message;
use tidewire_core::publication::InterestTopic;
use tidewire_net::connection::Key;

use super::Conductor;
use crate::connection::PauseReasons;
use crate::credit::Confirmations;
use crate::sink::{Sink, Target};
use crate::stats::add;

impl Conductor {
    /// Whether this shard may read sockets. All messages of its connections use its engine, so none is read while it is congested.
    pub(super) fn may_read(&self) -> bool {
        !self.confirmations.is_congested(self.address.shard)
    }

    /// Reports the receivers of too many bytes to the node. If one is no longer congested, wakes the shards.
    pub(super) fn report_congestion(&mut self) {
        if self.credit.report(&self.confirmations) {
            for handle in self.handles.iter() {
                handle.0.mailbox.wake();
            }
        }
    }

    /// Stops reading a connection until a congested shard has caught up.
    pub(super) fn await_shard(&mut self, key: Key, target: Target) {
        let Some(connection) = self.event_loop.connections_mut().get_mut(key) else {
            return;
        };
        if !connection.state.pause_reasons.has(PauseReasons::CONGESTION) {
            self.congested.push((key, target));
            add(&self.own.stats().congestion_waits, 1);
            self.hold(key, PauseReasons::CONGESTION);
        }
    }

    /// Continues with the connections whose shards have caught up.
    pub(super) fn release_congested(&mut self) {
        let nodes = self.sink.nodes.as_ref();
        let has_congested_node = nodes.is_some_and(|nodes| nodes.has_congested());
        let has_congested = self.confirmations.has_congested() || has_congested_node;
        self.sink.has_congested = has_congested;
        self.exchanges.retry_congested();
        self.forward_held();
        if self.congested.is_empty() {
            return;
        }
        for (key, target) in std::mem::take(&mut self.congested) {
            if has_congested && self.sink.is_congested(&self.confirmations, target) {
                self.congested.push((key, target));
                continue;
            }
            if self.resumable.has_waiting(key) {
                self.give_earlier(key);
                continue;
            }
            let Some(connection) = self.event_loop.connections_mut().get_mut(key) else {
                continue;
            };
            let state = &mut connection.state;
            // While a message waits for the engine as well, the engine requests it (`give_again`).
            if state.waiting.is_some() && !state.pause_reasons.has(PauseReasons::WAITING) {
                state.pause_reasons.add(PauseReasons::WAITING);
                state.pause_reasons.remove(PauseReasons::CONGESTION);
                self.give_again(key);
            } else {
                self.release(key, PauseReasons::CONGESTION);
            }
        }
    }
}

impl Sink {
    /// Whether a receiver of posts is congested.
    fn is_congested(&self, confirmations: &Confirmations, target: Target) -> bool {
        match target {
            Target::Shard(shard) => confirmations.is_congested(shard),
            Target::Node(node) => self
                .nodes
                .as_ref()
                .is_some_and(|nodes| nodes.is_congested(node)),
        }
    }

    /// The congested shard or node, if any, to which a message goes because of its names.
    pub(crate) fn congested_target(
        &self,
        engine: &Shard,
        confirmations: &Confirmations,
        message: &Message<'_>,
    ) -> Option<Target> {
        let mut found = None;
        let own = self.node();
        let mut visit = |target| {
            if self.is_congested(confirmations, target) {
                found = Some(target);
            }
        };
        engine.visit_owners(message, |owner| {
            visit(match owner.node == own {
                true => Target::Shard(owner.shard),
                false => Target::Node(owner.node),
            });
        });
        if let Message::Event(event) = message
            && let Some(publication) = event.published()
        {
            let name = publication.name;
            self.visit_interested(InterestTopic::Event, name, |shard| {
                visit(Target::Shard(shard));
            });
            let node = self.nodes.as_ref().and_then(|nodes| nodes.congested(name));
            found = found.or(node.map(Target::Node));
        }
        found
    }
}

//! Other nodes: their entries, and the end of everything that a shard has for a node that is lost.
//!
//! `awaited` answers what this shard has requested from the node. Here ends what the shard keeps for the node's sessions and shards.

use super::Shard;
use crate::address::Address;
use crate::awaited::BirthRepeated;
use crate::effect::Effects;
use crate::entry::Entry;
use crate::scope::session as scope;
use crate::time::Now;

impl Shard {
    /// Links a node. From its entries the shard handles those with this birth. If the node is linked in an earlier life, that is lost.
    ///
    /// # Errors
    /// If the birth is not later than all births of the node that the shard knows. Otherwise the shard could not distinguish the entries of two lives.
    pub fn node_joined(
        &mut self,
        now: Now,
        node: u16,
        birth: u64,
        out: &mut impl Effects,
    ) -> Result<(), BirthRepeated> {
        self.state.awaited.check_birth(node, birth)?;
        self.node_lost(now, node, out);
        self.state.awaited.join(node, birth);
        let shards = self.state.context.shards();
        self.barrier
            .add_shards(shards.filter(|shard| shard.node == node));
        self.greet(now, node, out);
        self.queries
            .node_joined(&mut self.state.turn(now, out), node);
        self.tell_self(now, out);
        Ok(())
    }

    /// Handles an entry of another node's shard, unless that life of the node has ended.
    pub(super) fn linked<E: Effects>(
        &mut self,
        now: Now,
        from: Address,
        birth: u64,
        entry: Entry,
        out: &mut E,
    ) {
        if self.state.awaited.is_linked(from.node, birth) {
            self.state.awaited.answered(from, &entry);
            self.backends.linked(from, &entry);
            self.entry(now, entry, out);
        }
    }

    /// Ends everything that waits for a node or that the shard keeps for it.
    pub(super) fn node_lost<E: Effects>(&mut self, now: Now, node: u16, out: &mut E) {
        // First the node counts as lost, so nothing below waits for it again. Then its state ends: what follows, such as a call for another
        // provider, is posted as if all its sessions had ended. The answers to this shard's own requests come last. They are entries
        // like those that the node would have sent, and they follow the local entries that are already on their way.
        let Some(refusals) = self.state.awaited.lose(node) else {
            return;
        };
        let turn = &mut self.state.turn(now, out);
        let scopes_until = now.monotonic + turn.shard.settings.presence_grace;
        self.scopes.node_lost(node, scopes_until);
        scope::node_lost(turn, node);
        self.queries.node_lost(turn, node);
        self.records.lose_watchers(node);
        turn.leave_censuses(node);
        let until = now.monotonic + turn.shard.settings.presence_grace;
        self.presences.node_lost(node, until);
        self.records.node_lost(turn, &mut self.listens, node);
        self.histories.node_lost(turn, node);
        self.rpcs.node_lost(turn, node);
        self.listens.node_lost(turn, node);
        self.backends.node_lost(turn, node);
        self.user_rates.node_lost(node);
        self.state.local.extend(refusals);
        // A member of the view may still serve its clients: a change is settled without it when a view without it is adopted.
        if !self.state.context.is_clustered {
            self.barrier.remove_node(node);
        }
        self.handover.node_lost(node);
        self.pass_on(out);
    }
}

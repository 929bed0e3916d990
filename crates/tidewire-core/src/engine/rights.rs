//! Changes of rights: applied in one order, passed to the other shards, and settled when no decision by older rules is on its way.

use std::collections::BTreeSet;

use super::Shard;
use crate::address::{Address, SessionId};
use crate::effect::{CloseReason, Effects};
use crate::entry::{Entry, RightsMarker};
use crate::event;
use crate::rights::{Revoked, RightsChange};
use crate::time::Now;

impl Shard {
    /// The newest change of rights that is settled here: no session of this shard holds a subscription that it forbids, and no decision
    /// by older rules is on its way to the shard.
    #[must_use]
    pub fn settled(&self) -> u64 {
        self.barrier.settled()
    }

    /// The newest change before which all messages of all shards of other nodes have left, [`u64::MAX`] without other nodes. Together with
    /// the same of all shards of this node, a change up to this one may be acknowledged.
    #[must_use]
    pub fn sent_elsewhere(&self) -> u64 {
        self.barrier.sent_elsewhere()
    }

    /// Notes that a change is settled here and that all messages which were decided before have left, or never will. The shards of other
    /// nodes learn of it.
    pub fn rights_sent(&mut self, number: u64, out: &mut impl Effects) {
        if !self.barrier.has_sent(number) {
            return;
        }
        let from = self.state.context.address;
        for shard in self.other_shards().filter(|shard| shard.node != from.node) {
            out.post(shard, Entry::RightsSent { from, number });
        }
    }

    /// The entries by which the shards of a node that is linked learn of this shard's changes. Before the first change the list is empty: the
    /// node may be of a version that does not know these entries.
    pub(super) fn introduced_rights(&self) -> Vec<Entry> {
        let from = self.state.context.address;
        let [applied, passed, sent] = self.barrier.own();
        if applied == 0 {
            return Vec::new();
        }
        // The marker represents all changes up to it. The node reads the ones that it lacks from the store.
        let change = RightsChange::Rules(self.state.context.permission.clone());
        let number = applied;
        vec![
            Entry::Rights(RightsMarker {
                from,
                number,
                change,
            }),
            Entry::RightsPassed {
                from,
                number: passed,
            },
            Entry::RightsSent { from, number: sent },
        ]
    }

    /// The sessions that have lost a right to a change since the last call.
    pub fn take_losers(&mut self) -> BTreeSet<SessionId> {
        self.reauthorizer.take_losers()
    }

    /// Applies a change of rights, unless the shard knows it, and posts it to all other shards behind everything posted before.
    pub(super) fn change<E: Effects>(
        &mut self,
        now: Now,
        number: u64,
        change: RightsChange,
        out: &mut E,
    ) {
        if !self.barrier.is_new(number) {
            return;
        }
        // The change is applied before the markers are posted. So everything that this shard posts behind a marker was decided by the new
        // rules, and everything decided by older rules is in front of it. The mailboxes keep this order, which is the whole proof of the
        // barrier. A revocation ends its sessions at once and leaves nothing to reauthorize.
        match &change {
            RightsChange::Rules(permission) => {
                self.state.context.permission = permission.clone();
                self.state.context.rules_round += 1;
                self.reauthorizer.begin();
                self.listens.rules_changed();
                self.barrier.take_over(number, true);
                event::rules_changed(&mut self.state.turn(now, out));
            }
            RightsChange::Revoke(revocation) => {
                self.state
                    .context
                    .revocations
                    .add(revocation.clone(), now.wall);
                self.revoke(now, &revocation.what, out);
                self.barrier.take_over(number, false);
            }
            RightsChange::Restore(what) => {
                self.state.context.revocations.remove(what);
                self.barrier.take_over(number, false);
            }
        }
        let from = self.state.context.address;
        for shard in self.other_shards() {
            let change = change.clone();
            let marker = RightsMarker {
                from,
                number,
                change,
            };
            out.post(shard, Entry::Rights(marker));
        }
        // The owners of live queries get the subscriptions behind the marker, so they authorize them by the new rules.
        if matches!(change, RightsChange::Rules(_)) {
            self.queries
                .rights_changed(&mut self.state.turn(now, out), None);
        }
        self.pass_on(out);
    }

    /// If all markers of a change have arrived, reports that to all other shards, behind everything posted before.
    pub(super) fn pass_on<E: Effects>(&mut self, out: &mut E) {
        let Some(number) = self.barrier.newly_passed() else {
            return;
        };
        let from = self.state.context.address;
        for shard in self.other_shards() {
            out.post(shard, Entry::RightsPassed { from, number });
        }
    }

    /// All other shards that are not lost.
    fn other_shards(&self) -> impl Iterator<Item = Address> + '_ {
        let state = &self.state;
        let own = state.context.address;
        let shards = state.context.shards();
        shards.filter(move |shard| *shard != own && !state.awaited.is_lost(shard.node))
    }

    /// Ends the sessions of a revoked user or credential.
    fn revoke<E: Effects>(&mut self, now: Now, what: &Revoked, out: &mut E) {
        for index in 0..self.state.sessions.table_len() as u32 {
            let session = self.state.sessions.at(index);
            let revoked = session.filter(|session| {
                let principal = session.principal();
                principal.is_some_and(|principal| what.covers(principal))
            });
            if let Some(id) = revoked.map(|session| session.id) {
                self.state.context.revoked += 1;
                self.end_session(now, id, CloseReason::Revoked, out);
            }
        }
    }
}

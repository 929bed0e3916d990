//! Tells when no decision by older rules is still on its way between the shards after a change of rights.
//!
//! A shard that receives a change, from the node or from another shard, applies it at once. It then posts a marker to all other shards,
//! behind everything that it has posted before. The marker contains the change itself, so a receiver handles all later posts of that
//! shard by rules at least as new. When a shard has the markers of all others and has reauthorized all its sessions, no decision by older
//! rules is on its way to it. But the consequences of such a decision may still be on their way to a third shard: a call goes from its
//! requestor's shard to the owner, and from there to a provider. So a shard that has all markers posts a second message to all others,
//! again behind everything that it has posted, and treats the change as settled when all others have sent theirs. When all shards have
//! settled the change, the node may acknowledge it.
//!
//! In a cluster the shards of all members take part. The node that has made the change learns from its own shards when they have sent their
//! earlier messages. Of the others it learns it by a third post: a shard reports that its earlier messages have left.

use crate::address::Address;

/// The progress of this shard with the changes of rights.
#[derive(Debug)]
pub(crate) struct Barrier {
    /// All shards, in ascending order.
    shards: Vec<Address>,
    own: usize,
    /// By shard, the newest change whose marker has arrived. For this shard, the newest change that it has applied.
    markers: Vec<u64>,
    /// By shard, the newest change of which that shard has all markers.
    passed: Vec<u64>,
    /// By shard, the newest change before which all its messages have left. It counts for shards of other nodes only.
    sent: Vec<u64>,
    /// The oldest change after which not all sessions were reauthorized.
    unsettled_rights: Option<u64>,
}

impl Barrier {
    /// Creates the barrier of the shard `own`, one of `shards`, before the first change. `shards` are in ascending order.
    pub(crate) fn new(own: Address, shards: impl Iterator<Item = Address>) -> Self {
        let shards: Vec<Address> = shards.collect();
        Self {
            own: index_of(&shards, own),
            markers: vec![0; shards.len()],
            passed: vec![0; shards.len()],
            sent: vec![0; shards.len()],
            unsettled_rights: None,
            shards,
        }
    }

    /// Expects nothing further of the shards of a lost node.
    pub(crate) fn remove_node(&mut self, node: u16) {
        let own = self.shards[self.own];
        for index in (0..self.shards.len()).rev() {
            if self.shards[index].node == node {
                self.shards.remove(index);
                self.markers.remove(index);
                self.passed.remove(index);
                self.sent.remove(index);
            }
        }
        self.own = index_of(&self.shards, own);
    }

    /// Adds the shards of a node that has joined. Its rules are at least as new as this shard's.
    pub(crate) fn add_shards(&mut self, shards: impl Iterator<Item = Address>) {
        let own = self.shards[self.own];
        let newest = self.markers[self.own];
        for shard in shards {
            if let Err(index) = self.shards.binary_search(&shard) {
                self.shards.insert(index, shard);
                self.markers.insert(index, newest);
                self.passed.insert(index, newest);
                self.sent.insert(index, newest);
            }
        }
        self.own = index_of(&self.shards, own);
    }

    /// Expects the shards of a view, in ascending order, and no others. A member that was not expected before serves no client before it has
    /// the rules of this shard: it gets the newest change when it is linked, and its first view is complete later.
    pub(crate) fn adopt(&mut self, shards: &[Address]) {
        let known = std::mem::take(&mut self.shards);
        let of = |values: &[u64], shard: &Address, newest| {
            let index = known.binary_search(shard).ok();
            index.map_or(newest, |index| values[index])
        };
        let newest = self.markers[self.own];
        let own = known[self.own];
        self.markers = shards
            .iter()
            .map(|shard| of(&self.markers, shard, newest))
            .collect();
        self.passed = shards
            .iter()
            .map(|shard| of(&self.passed, shard, newest))
            .collect();
        self.sent = shards
            .iter()
            .map(|shard| of(&self.sent, shard, newest))
            .collect();
        self.shards = shards.to_vec();
        self.own = index_of(&self.shards, own);
    }

    /// The newest change that this shard has applied, the newest of which it has all markers, and the newest before which its messages have left.
    pub(crate) fn own(&self) -> [u64; 3] {
        [&self.markers, &self.passed, &self.sent].map(|values| values[self.own])
    }

    /// Whether this shard has not applied the change yet. A change arrives from the node and from each other shard.
    pub(crate) fn is_new(&self, number: u64) -> bool {
        number > self.markers[self.own]
    }

    /// Notes that this shard has applied a change. `reauthorizes` means that all sessions have to be reauthorized for it.
    pub(crate) fn take_over(&mut self, number: u64, reauthorizes: bool) {
        self.markers[self.own] = number;
        if reauthorizes {
            self.unsettled_rights.get_or_insert(number);
        }
    }

    /// Notes the marker of another shard.
    pub(crate) fn mark(&mut self, from: Address, number: u64) {
        if let Ok(index) = self.shards.binary_search(&from) {
            self.markers[index] = self.markers[index].max(number);
        }
    }

    /// Returns the change of which this shard now has all markers, once each. The caller posts it to all others.
    pub(crate) fn newly_passed(&mut self) -> Option<u64> {
        let marked = self.markers.iter().copied().min().unwrap_or(0);
        let own = &mut self.passed[self.own];
        (marked > std::mem::replace(own, marked)).then_some(marked)
    }

    /// Notes that another shard has all markers of a change.
    pub(crate) fn pass(&mut self, from: Address, number: u64) {
        if let Ok(index) = self.shards.binary_search(&from) {
            self.passed[index] = self.passed[index].max(number);
        }
    }

    /// Notes that all messages of this shard before a change have left. Returns whether that is new.
    pub(crate) fn has_sent(&mut self, number: u64) -> bool {
        let own = &mut self.sent[self.own];
        let is_new = number > *own;
        *own = number.max(*own);
        is_new
    }

    /// Notes the same of another shard.
    pub(crate) fn sent(&mut self, from: Address, number: u64) {
        if let Ok(index) = self.shards.binary_search(&from) {
            self.sent[index] = self.sent[index].max(number);
        }
    }

    /// The newest change before which all messages of all shards of other nodes have left.
    pub(crate) fn sent_elsewhere(&self) -> u64 {
        let own = self.shards[self.own].node;
        let shards = self.shards.iter().zip(&self.sent);
        let others = shards.filter(|(shard, _)| shard.node != own);
        others.map(|(_, sent)| *sent).min().unwrap_or(u64::MAX)
    }

    /// Notes that all sessions were reauthorized by the newest rules.
    pub(crate) fn all_reauthorized(&mut self) {
        self.unsettled_rights = None;
    }

    /// The newest change that is settled here. All earlier ones are settled, too.
    pub(crate) fn settled(&self) -> u64 {
        // Both conditions are needed. The second round (`passed`) proves that no post by older rules is on its way to this shard, also
        // none that passed through a third shard. The reauthorization ends the subscriptions that older rules allowed. While it is in
        // progress, neither its own change nor a later one is settled: a later change keeps the number of the oldest one.
        let passed = self.passed.iter().copied().min().unwrap_or(0);
        match self.unsettled_rights {
            Some(number) => passed.min(number - 1),
            None => passed,
        }
    }
}

fn index_of(shards: &[Address], own: Address) -> usize {
    let index = shards.binary_search(&own);
    index.expect("the shard is one of all shards")
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Odd shards are on another node, so that a shard number alone identifies none.
    fn shard(number: u16) -> Address {
        let (node, shard) = (number % 2, number / 2);
        Address { node, shard }
    }

    fn barrier(own: u16, count: u16) -> Barrier {
        let mut shards: Vec<Address> = (0..count).map(shard).collect();
        shards.sort_unstable();
        Barrier::new(shard(own), shards.into_iter())
    }

    #[test]
    fn a_change_is_settled_when_all_have_all_markers_and_all_are_reauthorized() {
        let mut barrier = barrier(1, 3);
        assert!(barrier.is_new(1));
        barrier.take_over(1, true);
        assert!(!barrier.is_new(1));
        barrier.mark(shard(0), 1);
        assert_eq!(barrier.newly_passed(), None);
        // Shard 0 already has all markers, before this shard has.
        barrier.pass(shard(0), 1);
        barrier.mark(shard(2), 1);
        assert_eq!(barrier.newly_passed(), Some(1));
        assert_eq!(barrier.newly_passed(), None);
        barrier.all_reauthorized();
        assert_eq!(barrier.settled(), 0);
        barrier.pass(shard(2), 1);
        assert_eq!(barrier.settled(), 1);
    }

    /// A message in a mailbox of the model below.
    #[derive(Clone, Copy)]
    enum Mail {
        /// From the node.
        Change(u64),
        Marker(Address, u64),
        Passed(Address, u64),
        /// A decision by the rules of this number. It leads to `leads_to` more posts, each caused by the one before.
        Decided {
            by: u64,
            leads_to: usize,
        },
    }

    /// Shards with one FIFO mailbox each. They post decisions while rights change.
    struct Shards {
        barriers: Vec<Barrier>,
        mailboxes: Vec<VecDeque<Mail>>,
        random: u64,
    }

    impl Shards {
        fn new(count: u16, seed: u64) -> Self {
            Self {
                barriers: (0..count).map(|own| barrier(own, count)).collect(),
                mailboxes: vec![VecDeque::new(); usize::from(count)],
                random: seed,
            }
        }

        fn below(&mut self, bound: usize) -> usize {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005);
            self.random = self.random.wrapping_add(1_442_695_040_888_963_407);
            (self.random >> 33) as usize % bound
        }

        fn post_others(&mut self, own: usize, mail: Mail) {
            for (to, mailbox) in self.mailboxes.iter_mut().enumerate() {
                if to != own {
                    mailbox.push_back(mail);
                }
            }
        }

        fn post_anywhere(&mut self, own: usize, mail: Mail) {
            let to = (own + 1 + self.below(self.barriers.len() - 1)) % self.barriers.len();
            self.mailboxes[to].push_back(mail);
        }

        /// A client of the shard sends a request that goes to its owner, and from there to another shard.
        fn ask(&mut self, own: usize) {
            let barrier = &self.barriers[own];
            let by = barrier.markers[barrier.own];
            self.post_anywhere(own, Mail::Decided { by, leads_to: 1 });
        }

        fn change(&mut self, own: usize, number: u64) {
            if self.barriers[own].is_new(number) {
                self.barriers[own].take_over(number, true);
                self.post_others(own, Mail::Marker(shard(own as u16), number));
            }
        }

        /// Shard `own` handles the next message of its mailbox.
        fn turn(&mut self, own: usize) {
            match self.mailboxes[own].pop_front() {
                Some(Mail::Change(number)) => self.change(own, number),
                Some(Mail::Marker(from, number)) => {
                    self.change(own, number);
                    self.barriers[own].mark(from, number);
                }
                Some(Mail::Passed(from, number)) => self.barriers[own].pass(from, number),
                Some(Mail::Decided { by, leads_to }) if leads_to > 0 => {
                    let leads_to = leads_to - 1;
                    self.post_anywhere(own, Mail::Decided { by, leads_to });
                }
                Some(Mail::Decided { .. }) => {}
                None if self.below(2) == 0 => self.barriers[own].all_reauthorized(),
                None => {}
            }
            if let Some(number) = self.barriers[own].newly_passed() {
                self.post_others(own, Mail::Passed(shard(own as u16), number));
            }
        }

        /// The oldest rules of a decision that is on its way.
        fn oldest(&self) -> Option<u64> {
            let oldest = self
                .mailboxes
                .iter()
                .flatten()
                .filter_map(|mail| match mail {
                    Mail::Decided { by, .. } => Some(*by),
                    _ => None,
                });
            oldest.min()
        }
    }

    /// Runs changes of rights under load until `settled` reports them as settled on all shards. Returns how often a decision older than a
    /// settled change was on its way at that time.
    fn old_on_the_way(seeds: u64, settled: impl Fn(&Barrier) -> u64) -> usize {
        let mut found = 0;
        for seed in 0..seeds {
            let mut shards = Shards::new(2 + (seed % 4) as u16, seed);
            let count = shards.barriers.len();
            for number in 1..=2 {
                for mailbox in &mut shards.mailboxes {
                    mailbox.push_back(Mail::Change(number));
                }
                for _ in 0..20_000 {
                    let own = shards.below(count);
                    // Some shards are slow, and the load continues during the change.
                    if shards.below(3) > 0 {
                        shards.turn(own);
                    }
                    if shards.below(4) == 0 {
                        shards.ask(own);
                    }
                    let everywhere = shards.barriers.iter().map(&settled).min().unwrap_or(0);
                    if everywhere >= number {
                        found += usize::from(shards.oldest().is_some_and(|by| by < number));
                        break;
                    }
                }
            }
            let everywhere = shards.barriers.iter().map(&settled).min();
            assert_eq!(everywhere, Some(2), "seed {seed} does not settle");
        }
        found
    }

    #[test]
    fn once_a_change_is_settled_no_message_authorized_before_it_is_in_flight() {
        assert_eq!(old_on_the_way(2_000, Barrier::settled), 0);
        // One round is not enough: the posts that the markers have pushed out lead to more posts.
        let after_one_round =
            |barrier: &Barrier| barrier.markers.iter().copied().min().unwrap_or(0);
        assert!(old_on_the_way(2_000, after_one_round) > 100);
    }

    #[test]
    fn a_shard_alone_settles_when_all_are_reauthorized() {
        let mut barrier = barrier(0, 1);
        barrier.take_over(1, true);
        assert_eq!(barrier.newly_passed(), Some(1));
        assert_eq!(barrier.settled(), 0);
        barrier.all_reauthorized();
        assert_eq!(barrier.settled(), 1);
    }

    #[test]
    fn a_second_change_during_the_first_settles_both_at_its_end() {
        let mut barrier = barrier(0, 2);
        let other_marks = |barrier: &mut Barrier, number| {
            barrier.mark(shard(1), number);
            assert_eq!(barrier.newly_passed(), Some(number));
            barrier.pass(shard(1), number);
        };
        barrier.take_over(1, true);
        other_marks(&mut barrier, 1);
        barrier.take_over(2, true);
        assert_eq!(barrier.settled(), 0);
        other_marks(&mut barrier, 2);
        barrier.all_reauthorized();
        assert_eq!(barrier.settled(), 2);
        barrier.take_over(3, false);
        assert_eq!(barrier.settled(), 2);
        other_marks(&mut barrier, 3);
        assert_eq!(barrier.settled(), 3);
    }
}

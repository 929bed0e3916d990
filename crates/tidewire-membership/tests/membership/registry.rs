//! The registry: it does one request after the other, as the store does.

use std::collections::BTreeSet;

use tidewire_message::address::Epoch;
use tidewire_message::view::{Generation, Heartbeat, Proposal, StoredView, View};

/// The outcome of a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proposed {
    Made,
    /// Another view is current.
    Stale,
    /// A member has not opened the store, or was removed.
    Unknown,
}

pub struct Registry {
    pub view: StoredView,
    pub generation: Generation,
    opening: u64,
    opened: BTreeSet<u64>,
}

impl Registry {
    pub fn new() -> Self {
        let generation = Generation("0".to_owned());
        let mut view = StoredView::empty();
        view.generation = generation.clone();
        Self {
            view,
            generation,
            opening: 0,
            opened: BTreeSet::new(),
        }
    }

    pub fn open(&mut self) -> u64 {
        self.opening += 1;
        self.opened.insert(self.opening);
        self.opening
    }

    pub fn heartbeat(&self) -> Heartbeat {
        Heartbeat {
            view: self.view.number,
            generation: self.generation.clone(),
        }
    }

    pub fn propose(&mut self, expected: View, proposal: &Proposal) -> Proposed {
        let is_open = |birth| self.opened.contains(&birth);
        if expected != self.view.number {
            return Proposed::Stale;
        }
        if !proposal.members.iter().all(|it| is_open(it.id.birth)) {
            return Proposed::Unknown;
        }
        for gone in self.view.ids() {
            if !proposal.members.iter().any(|member| member.id == gone) {
                self.opened.remove(&gone.birth);
            }
        }
        let mut members = proposal.members.clone();
        members.sort_by_key(|member| member.id.birth);
        let mut epochs = self.view.epochs.clone();
        let next = Epoch(epochs.latest().0 + 1);
        if self.generation == self.view.generation {
            epochs.raise(&proposal.raised, next);
        } else {
            epochs.epoch = next;
            epochs.raised.clear();
        }
        self.opening += 1;
        self.view = StoredView {
            number: View(self.opening),
            key: proposal.key,
            level: proposal.level,
            members,
            epochs,
            generation: self.generation.clone(),
        };
        Proposed::Made
    }
}

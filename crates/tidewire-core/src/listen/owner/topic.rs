//! The names and patterns of one topic.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::state::{Asking, Search, Wanted};
use crate::text::Name;

/// The names and patterns of one topic.
#[derive(Debug, Default)]
pub(super) struct TopicState {
    /// The names with subscribers: records always, events while there are patterns of events.
    pub(super) wanted: BTreeMap<Name, Wanted>,
    /// The listener of each pattern.
    pub(super) patterns: BTreeMap<u64, u64>,
    /// Names whose search is to continue. A name that is no longer queued is skipped.
    pub(super) queue: VecDeque<Name>,
    /// Names whose search was postponed, in this order.
    pub(super) postponed: VecDeque<Name>,
    /// Number of questions that have ended since names were postponed.
    pub(super) ended_questions: usize,
    pub(super) walk: Option<Walk>,
    /// The walk that begins after this one: its `offers_again`.
    pub(super) next_walk: Option<bool>,
}

/// A walk through all names of a topic.
#[derive(Debug)]
pub(super) struct Walk {
    /// The name after which it continues.
    pub(super) after: Option<Name>,
    /// Whether names that were declined are offered again, or only names with new patterns.
    pub(super) offers_again: bool,
}

impl TopicState {
    /// Ends the question about a name, if `is_meant` holds for it. Returns the name's entry, whose search is then idle, and the question.
    pub(super) fn take_asking(
        &mut self,
        name: &Name,
        is_meant: impl Fn(&Asking) -> bool,
    ) -> Option<(&mut Wanted, Asking)> {
        let wanted = self.wanted.get_mut(name)?;
        if !matches!(&wanted.search, Search::Asking(asking) if is_meant(asking)) {
            return None;
        }
        match std::mem::replace(&mut wanted.search, Search::Idle) {
            Search::Asking(asking) => Some((wanted, *asking)),
            _ => None,
        }
    }

    /// Whether a pattern was added whose number is `tried` or above.
    pub(super) fn has_new(&self, tried: u64) -> bool {
        let last = self.patterns.last_key_value();
        last.is_some_and(|(number, _)| *number >= tried)
    }

    pub(super) fn walk(&mut self, offers_again: bool) {
        if self.walk.is_none() {
            let after = None;
            self.walk = Some(Walk {
                after,
                offers_again,
            });
        } else {
            self.next_walk = Some(offers_again || self.next_walk == Some(true));
        }
    }

    /// Drops queue entries of names that have left the queue in another way, before they greatly outnumber the names.
    pub(super) fn trim(&mut self) {
        let max = 2 * self.wanted.len() + 1_000;
        let wanted = &self.wanted;
        let search = |name: &Name| wanted.get(name).map(|wanted| &wanted.search);
        if self.queue.len() > max {
            let mut known = BTreeSet::new();
            self.queue.retain(|name| {
                matches!(
                    search(name),
                    Some(Search::Queued { .. } | Search::Running(_))
                ) && known.insert(name.clone())
            });
        }
        if self.postponed.len() > max {
            let mut known = BTreeSet::new();
            self.postponed.retain(|name| {
                matches!(search(name), Some(Search::Postponed)) && known.insert(name.clone())
            });
        }
    }
}

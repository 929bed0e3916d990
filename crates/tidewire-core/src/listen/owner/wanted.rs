//! Names that get or lose subscribers, and the queue of their searches.

use smallvec::SmallVec;

use super::ListenOwner;
use super::state::{Progress, Search, Wanted};
use crate::address::Address;
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::entry::ListenNotice;
use crate::message::Topic;
use crate::text::Name;

impl ListenOwner {
    /// Notes that a record has its first subscriber, on that node.
    pub(crate) fn record_wanted<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        name: &Name,
        node: u16,
    ) {
        self.add_name(Topic::Record, name.clone(), node);
        self.work(turn);
    }

    /// Notes that a record has lost its last subscriber.
    pub(crate) fn record_unwanted<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        name: &Name,
    ) {
        self.remove_name(turn, Topic::Record, name);
    }

    /// Notes that a shard has got its first subscriber of an event, or lost its last.
    pub(super) fn interest_changed<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        round: u64,
        shard: Address,
        name: Name,
        wanted: bool,
    ) {
        if round != self.census || self.events.patterns.is_empty() {
            return;
        }
        if wanted && !self.events.wanted.contains_key(&name) {
            self.add_name(Topic::Event, name.clone(), shard.node);
        }
        let Some(known) = self.events.wanted.get_mut(&name) else {
            return;
        };
        // A census goes through a shard's names while they change, so it may repeat what the shard has reported already.
        let index = known.shards.iter().position(|known| *known == shard);
        match (index, wanted) {
            (None, true) => known.shards.push(shard),
            (Some(index), false) => {
                known.shards.swap_remove(index);
            }
            _ => {}
        }
        if known.shards.is_empty() {
            self.remove_name(turn, Topic::Event, &name);
        }
    }

    /// Lets go of events. A listener that provides one, or has the question about it, gets a notice. The next owner searches again.
    pub(crate) fn leave<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        is_leaving: impl Fn(&str) -> bool,
    ) {
        let wanted = self.events.wanted.keys();
        let leaving: Vec<Name> = wanted.filter(|name| is_leaving(name)).cloned().collect();
        for name in leaving {
            self.remove_name(turn, Topic::Event, &name);
        }
        self.work(turn);
    }

    /// Adds a name with its first subscriber on that node, and queues its search if there are patterns.
    pub(super) fn add_name(&mut self, topic: Topic, name: Name, node: u16) {
        let tried = self.next_pattern;
        let state = self.topic_state_mut(topic);
        let has_patterns = !state.patterns.is_empty();
        let search = if has_patterns {
            state.queue.push_back(name.clone());
            Search::Queued { all: true }
        } else {
            Search::Idle
        };
        let wanted = Wanted {
            shards: SmallVec::new(),
            node,
            tried,
            has_matched: false,
            search,
        };
        state.wanted.insert(name, wanted);
        state.trim();
    }

    /// Removes a name without subscribers. The listener that has its question or provides it gets a notice.
    pub(super) fn remove_name<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        topic: Topic,
        name: &Name,
    ) {
        let Some(wanted) = self.topic_state_mut(topic).wanted.remove(name) else {
            return;
        };
        // A listener that has not answered yet gets the notice too: its acceptance would come too late.
        let candidate = match wanted.search {
            Search::Provided(candidate) => candidate,
            Search::Asking(asking) => {
                self.question_ended(asking.candidate.listener);
                asking.candidate
            }
            _ => return,
        };
        self.notify(turn, topic, &candidate, name, ListenNotice::Removed);
        self.forget_name(&candidate, name);
    }

    /// Queues a new search: among all listeners, or only among the new patterns.
    pub(super) fn queue_search(&mut self, topic: Topic, name: &Name, all: bool) {
        let state = self.topic_state_mut(topic);
        if let Some(wanted) = state.wanted.get_mut(name) {
            wanted.search = Search::Queued { all };
            state.queue.push_back(name.clone());
        }
    }

    /// Queues a search, so that it continues with its next candidate.
    pub(super) fn continue_later(&mut self, topic: Topic, name: Name, progress: Progress) {
        let state = self.topic_state_mut(topic);
        if let Some(wanted) = state.wanted.get_mut(&name) {
            wanted.search = Search::Running(Box::new(progress));
            state.queue.push_back(name);
        }
    }
}

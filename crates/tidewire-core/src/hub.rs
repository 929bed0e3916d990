//! Fan-out: who on this shard gets what, as ranges of the turn log.
//!
//! A publication is encoded once and its name keeps the range. [`Hub::collect`] lists who is owed something, and
//! [`Hub::flush_some`] visits them in that order: each gets the ranges of its names from the offset at which it joined,
//! without those it published itself, plus its own answers, by offset, joined where they touch. The work is recipients
//! times names, not recipients times messages. What is published while recipients still wait goes to them with the rest,
//! and to the others once more.

mod channel;
mod due;
mod flush;
mod joining;
mod lagging;
mod membership;
mod published;
mod span;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use crate::effect::InterestTopic;
use crate::table::{self, Map};

use channel::Channel;
use due::{Due, HeavyDue};
use flush::Joined;
use lagging::LaggingMembers;
pub(crate) use membership::Memberships;
use published::Touched;

/// Kind of name that has members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum HubTopic {
    /// Publications looked up through the interest map.
    Interest(InterestTopic),
    /// Subscribers of a record; its owner knows which shards have some.
    Record,
}

/// A name with members, by its index.
pub(crate) type ChannelId = u32;

/// The members of names on this shard, and this turn's ranges.
#[derive(Debug)]
pub(crate) struct Hub {
    /// The channels by topic and name, which are read where they lie.
    keys: Box<[HashTable<ChannelId>]>,
    hasher: FixedState,
    seed: u64,
    channels: Vec<Option<Channel>>,
    /// Indexes without a channel. The first ones are used first, so that the others can be given back.
    free: BinaryHeap<Reverse<ChannelId>>,
    /// Channels with ranges in this turn; those behind `touched_count` wait to be used again.
    touched: Vec<Touched>,
    touched_count: usize,
    /// Those of them to be listed, in the order of their sends.
    order: Vec<ChannelId>,
    /// Who joined which channel in this turn, with the end of the format's log at that moment: earlier ranges are not
    /// for that session. Whoever joined in an earlier turn gets all.
    fresh: Map<(ChannelId, u32), u64>,
    /// By session: one more than its index in `due`, 0 for nothing.
    marks: Vec<u32>,
    due: Vec<Due>,
    /// How many of them are listed, visited in their order, and sent.
    listed_count: usize,
    visited_count: usize,
    sent_count: usize,
    /// Members of names that something was published to since the members were listed, at that moment.
    unlisted_count: usize,
    /// Indexes of those that go before the others.
    urgent: VecDeque<u32>,
    heavy: Vec<HeavyDue>,
    heavy_count: usize,
    joined: Joined,
    /// The end of each format's log, as far as known.
    ends: Vec<u64>,
    /// The lagging members of the channels that have some.
    lagging: Map<ChannelId, LaggingMembers>,
    /// Bytes of the channels and memberships, without the values of records.
    bytes: usize,
}

/// What a leave or join changed for the rest of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edge {
    /// The name has its first member, or has lost its last.
    Crossed,
    /// It had members before, or has some left.
    Inside,
    /// The session was a member already, or was none.
    Unchanged,
}

impl Hub {
    /// No names.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            keys: (0..table::PARTS).map(|_| HashTable::new()).collect(),
            hasher: FixedState::with_seed(seed),
            seed,
            channels: Vec::new(),
            free: BinaryHeap::new(),
            touched: Vec::new(),
            touched_count: 0,
            order: Vec::new(),
            fresh: table::map(seed),
            marks: Vec::new(),
            due: Vec::new(),
            listed_count: 0,
            visited_count: 0,
            sent_count: 0,
            unlisted_count: 0,
            urgent: VecDeque::new(),
            heavy: Vec::new(),
            heavy_count: 0,
            joined: Joined::default(),
            ends: Vec::new(),
            lagging: table::map(seed),
            bytes: 0,
        }
    }
}

#[cfg(test)]
mod tests;

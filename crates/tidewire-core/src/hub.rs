//! Fan-out: the sessions of this shard that get a message, as ranges of the turn log.
//!
//! A publication is encoded once, and its name keeps the range. [`Hub::collect`] lists the sessions to send to, and [`Hub::flush_some`]
//! visits them in that order. Each session gets, sorted by offset and joined where they touch or overlap, the ranges of its names from the
//! offset at which it joined, without its own publications, and its own answers. If several of its names have the same range, it gets the
//! range once. The work is recipients times names, not recipients times messages. If more is published while sessions still wait, these
//! get it with the rest, and the others are listed again.

mod channel;
mod due;
mod flush;
mod formats;
mod joining;
mod lagging;
mod pattern;
mod span;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use crate::membership::ChannelId;
use crate::publication::InterestTopic;
use crate::table::{self, Map};

pub(crate) use channel::first_member_bytes;
use channel::{Channel, Key};
use due::{Due, HeavyDue};
use flush::{Joined, Touched};
use formats::FormatCounts;
pub(crate) use formats::{format_bit, formats_of};
use lagging::LaggingMembers;
pub(crate) use pattern::PATTERN;
use tidewire_collections::pattern_trie::PatternTrie;

/// Kind of name that has members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum HubTopic {
    /// Publications looked up through the interest map.
    Interest(InterestTopic),
    /// Subscribers of a record; its owner knows which shards have some.
    Record,
}

/// The members of names on this shard, and this turn's ranges.
#[derive(Debug)]
pub(crate) struct Hub {
    /// The channels by topic and name. The channel itself holds the name.
    keys: Box<[HashTable<Key>]>,
    hasher: FixedState,
    seed: u64,
    channels: Vec<Option<Channel>>,
    /// Indexes without a channel. The lowest ones are used first, so that the end of the table can be freed.
    free: BinaryHeap<Reverse<ChannelId>>,
    /// Channels with ranges in this turn. Those after `touched_count` are kept for reuse.
    touched: Vec<Touched>,
    touched_count: usize,
    /// The channels to be listed, in the order of their sends.
    order: Vec<ChannelId>,
    /// The sessions that joined a channel in this turn, with the end of the format's log at that moment: earlier ranges are not for that
    /// session. A session that joined in an earlier turn gets all ranges.
    fresh: Map<(ChannelId, u32), u64>,
    /// By session: one more than its index in `due`, or 0 if it has no entry.
    marks: Vec<u32>,
    /// The listed sessions with their ranges; `None` once a session was sent its ranges.
    due: Vec<Option<Due>>,
    /// The number of dues that are listed, visited in order, and sent.
    listed_count: usize,
    visited_count: usize,
    sent_count: usize,
    /// Members of names that were published to since the last listing, counted at the time of the publication.
    unlisted_count: usize,
    /// Indexes of the dues that are sent before the others.
    urgent: VecDeque<u32>,
    heavy: Vec<HeavyDue>,
    heavy_count: usize,
    joined: Joined,
    /// The end of each format's log, as far as known.
    ends: Vec<u64>,
    /// The formats of the members, for the channels whose members have several.
    format_counts: Map<ChannelId, FormatCounts>,
    /// The lagging members of the channels that have some.
    lagging: Map<ChannelId, LaggingMembers>,
    /// The channels of event patterns, by what they match.
    patterns: PatternTrie<ChannelId>,
    /// Counts changes of the members of patterns, see [`Hub::changed`].
    changes: u64,
    /// The last change of the members of each pattern. It is not in the channel, because other channels are as many as sessions.
    pattern_changes: Map<ChannelId, u64>,
    /// The state that the members of a name have received, if its owner may change: the incarnation and version of a record, or the epoch and the
    /// offset of an event with history.
    shown: Map<ChannelId, Shown>,
    /// Bytes of the channels and memberships, without the values of records.
    bytes: usize,
}

/// The state that the members of a name have received last.
type Shown = (u64, u64);

/// The effect of a join or leave on other shards' view of the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edge {
    /// The name has its first member, or has lost its last one.
    Crossed,
    /// The name had members before, or still has some.
    Inside,
    /// The session was already a member, or was not a member.
    Unchanged,
}

impl Hub {
    /// Creates a hub without names.
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
            format_counts: table::map(seed),
            lagging: table::map(seed),
            patterns: PatternTrie::new(seed),
            changes: 0,
            pattern_changes: table::map(seed),
            shown: table::map(seed),
            bytes: 0,
        }
    }
}

#[cfg(test)]
mod tests;

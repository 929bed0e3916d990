//! Fan-out: who on this shard gets what, as ranges of the turn log.
//!
//! A publication is encoded once and its name keeps the range. [`Hub::collect`] lists who is owed something, and
//! [`Hub::flush_some`] visits them in that order: each gets the ranges of its names from the offset at which it joined,
//! without those it published itself, plus its own answers, by offset, joined where they touch. The work is recipients
//! times names, not recipients times messages. What is published while recipients still wait goes to them with the rest,
//! and to the others once more.

mod membership;
mod parked;

use std::collections::VecDeque;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use smallvec::SmallVec;

use crate::address::SessionId;
use crate::effect::{Format, InterestTopic, Span};
use crate::session::Sessions;
use crate::table::{self, Map};
use crate::text::Name;

pub(crate) use membership::Memberships;
use membership::PARKED;
use parked::Parked;

/// Kind of name that has members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum HubTopic {
    /// Publications looked up through the interest map.
    Interest(InterestTopic),
    /// Subscribers of a record; its owner knows which shards have some.
    Record,
}

/// A name with members, by its place.
pub(crate) type ChannelId = u32;

/// No channel: the due is answers only.
const NO_CHANNEL: ChannelId = u32::MAX;
/// The due has more than fits; `start` is its place among the heavy ones.
const HEAVY: ChannelId = u32::MAX - 1;
/// The session of a due that was sent. No session has this place: the descriptor limit is far below.
const SENT: u32 = u32::MAX;

/// A name with at most so many members does not wait for the crowds of others.
const FEW_MEMBERS_MAX: usize = 128;

/// The ranges of one format that were published to a name in this turn.
#[derive(Debug)]
struct Published {
    format: Format,
    spans: SmallVec<[Span; 2]>,
    /// The members that were there then have been listed for what lies before this offset.
    collected: u64,
}

/// A channel with ranges in this turn.
#[derive(Debug)]
struct Touched {
    channel: ChannelId,
    published: SmallVec<[Published; 1]>,
    /// Whether something was published since the members were listed last.
    is_new: bool,
}

/// A name with members. There may be as many as sessions, so what only a turn needs lies elsewhere.
#[derive(Debug)]
struct Channel {
    topic: HubTopic,
    name: Name,
    members: SmallVec<[u32; 4]>,
    /// The formats that some member has had since the channel began, one bit each.
    formats: u64,
    /// One more than the place of its ranges of this turn among the touched ones, 0 for none.
    touched: u32,
    /// Whether a member joined in this turn.
    has_fresh: bool,
    /// Whether some members are parked. They don't stand in `members`, so fan-out costs nothing for them.
    has_parked: bool,
    /// The interest change that made the name visible, see [`crate::effect::Effects::interest`].
    interest: u64,
}

impl Channel {
    fn is_empty(&self) -> bool {
        self.members.is_empty() && !self.has_parked
    }
}

/// What a session is owed at the end of the turn, in its usual, small form: one channel, or one range of answers.
#[derive(Clone, Copy, Debug)]
struct Due {
    session: u32,
    channel: ChannelId,
    /// Without channel the start of the answers; with one the offset since which ranges are owed.
    start: u64,
    end: u64,
}

/// What a session is owed when it is more than one thing.
#[derive(Debug, Default)]
struct HeavyDue {
    channels: SmallVec<[(ChannelId, u64); 4]>,
    /// Answers, and ranges of channels that it has left since.
    answers: SmallVec<[Span; 4]>,
    /// Ranges that it published itself.
    own: SmallVec<[Span; 2]>,
}

impl HeavyDue {
    fn clear(&mut self) {
        self.channels.clear();
        self.answers.clear();
        self.own.clear();
    }
}

/// The members of names on this shard, and this turn's ranges.
#[derive(Debug)]
pub(crate) struct Hub {
    /// The channels by topic and name, which are read where they lie.
    keys: HashTable<ChannelId>,
    hasher: FixedState,
    seed: u64,
    channels: Vec<Option<Channel>>,
    free: Vec<ChannelId>,
    /// Channels with ranges in this turn; those behind `touched_count` wait to be used again.
    touched: Vec<Touched>,
    touched_count: usize,
    /// Those of them to be listed, in the order of their sends.
    order: Vec<ChannelId>,
    /// Who joined which channel in this turn, with the end of the format's log at that moment: earlier ranges are not
    /// for that session. Whoever joined in an earlier turn gets all.
    fresh: Map<(ChannelId, u32), u64>,
    /// By session: one more than its place in `due`, 0 for nothing.
    marks: Vec<u32>,
    due: Vec<Due>,
    /// How many of them are listed, visited in their order, and sent.
    listed_count: usize,
    visited_count: usize,
    sent_count: usize,
    /// Members of names that something was published to since the members were listed, at that moment.
    unlisted_count: usize,
    /// Places of those that go before the others.
    urgent: VecDeque<u32>,
    heavy: Vec<HeavyDue>,
    heavy_count: usize,
    /// The end of each format's log, as far as known.
    ends: Vec<u64>,
    /// The parked members of the channels that have some.
    parked: Map<ChannelId, Parked>,
}

/// After a turn in which more names were published to, the memory for their ranges shrinks to this many.
const TOUCHED_KEPT_MAX: usize = 4096;

/// After a turn in which more sessions joined, the table of them shrinks to this many.
const FRESH_KEPT_MAX: usize = 4096;

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
            keys: HashTable::new(),
            hasher: FixedState::with_seed(seed),
            seed,
            channels: Vec::new(),
            free: Vec::new(),
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
            ends: Vec::new(),
            parked: table::map(seed),
        }
    }

    /// How many names have members.
    pub(crate) fn name_count(&self) -> usize {
        self.keys.len()
    }

    /// The formats in which the members of a name want it, empty if it has none. The caller encodes once for each.
    pub(crate) fn formats(
        &self,
        topic: HubTopic,
        name: &str,
    ) -> impl Iterator<Item = Format> + use<> {
        let mut left = self
            .find(topic, name)
            .map(|channel| self.channel(channel))
            .filter(|channel| !channel.members.is_empty())
            .map_or(0, |channel| channel.formats);
        std::iter::from_fn(move || {
            let format = Format(u8::try_from(left.trailing_zeros()).ok()?);
            (left != 0).then(|| {
                left &= left - 1;
                format
            })
        })
    }

    /// Makes `session` a member.
    pub(crate) fn join(
        &mut self,
        topic: HubTopic,
        name: &Name,
        id: SessionId,
        sessions: &mut Sessions,
    ) -> Edge {
        let Some(session) = sessions.find_mut(id) else {
            return Edge::Unchanged;
        };
        let channel_id = match self.find(topic, name) {
            Some(known) if session.memberships.contains(known) => return Edge::Unchanged,
            Some(known) => known,
            None => self.add_channel(topic, name),
        };
        let (since, seed) = (self.end(session.format), self.seed);
        let channel = self.channel_mut(channel_id);
        let first = channel.is_empty();
        let place = channel.members.len() as u32;
        session.memberships.add(channel_id, place, seed);
        channel.members.push(id.index);
        channel.formats |= format_bit(session.format);
        channel.has_fresh = true;
        self.fresh.insert((channel_id, id.index), since);
        if first { Edge::Crossed } else { Edge::Inside }
    }

    /// Ends a membership. What was published before it stays owed.
    pub(crate) fn leave(
        &mut self,
        topic: HubTopic,
        name: &str,
        id: SessionId,
        sessions: &mut Sessions,
    ) -> Edge {
        match self.find(topic, name) {
            Some(channel) => self.leave_channel(channel, id.index, sessions),
            None => Edge::Unchanged,
        }
    }

    /// Ends a membership whose right was lost: what was published and not sent before is not owed any more.
    pub(crate) fn expel(
        &mut self,
        topic: HubTopic,
        name: &str,
        id: SessionId,
        sessions: &mut Sessions,
    ) -> Edge {
        match self.find(topic, name) {
            Some(channel) => self.end_membership(channel, id.index, sessions, false),
            None => Edge::Unchanged,
        }
    }

    /// The names that a session is a member of, in an order that does not depend on a hash table.
    pub(crate) fn memberships(&self, id: SessionId, sessions: &Sessions) -> Vec<(HubTopic, Name)> {
        let session = sessions.find(id).into_iter();
        let channels = session.flat_map(|session| session.memberships.channels());
        channels
            .map(|id| {
                let channel = self.channel(id);
                (channel.topic, channel.name.clone())
            })
            .collect()
    }

    /// Ends all memberships of a name and says whose they were.
    pub(crate) fn dissolve(
        &mut self,
        topic: HubTopic,
        name: &str,
        sessions: &mut Sessions,
    ) -> Vec<SessionId> {
        let Some(channel) = self.find(topic, name) else {
            return Vec::new();
        };
        let mut members = self.channel(channel).members.clone();
        members.extend(self.parked_in(channel));
        for session in &members {
            self.leave_channel(channel, *session, sessions);
        }
        members
            .iter()
            .filter_map(|session| sessions.at(*session).map(|session| session.id))
            .collect()
    }

    /// Ends all memberships of a session that is still in the table, and forgets what it is owed. Returns the
    /// names that lost their last member.
    pub(crate) fn leave_all(
        &mut self,
        id: SessionId,
        sessions: &mut Sessions,
    ) -> Vec<(HubTopic, Name)> {
        let Some(session) = sessions.find(id) else {
            return Vec::new();
        };
        let mut emptied = Vec::new();
        for channel in session.memberships.channels() {
            let Channel { topic, name, .. } = self.channel(channel);
            let key = (*topic, name.clone());
            if self.leave_channel(channel, id.index, sessions) == Edge::Crossed {
                emptied.push(key);
            }
        }
        self.forget(id.index);
        emptied
    }

    /// The names of a topic that have members, in an order that does not depend on a hash table.
    pub(crate) fn names(&self, topic: HubTopic) -> impl Iterator<Item = &Name> {
        let channels = self.channels.iter().flatten();
        channels
            .filter(move |channel| channel.topic == topic && !channel.is_empty())
            .map(|channel| &channel.name)
    }

    /// The interest change that a subscription to the name has to wait for.
    pub(crate) fn interest(&self, topic: HubTopic, name: &str) -> u64 {
        self.find(topic, name)
            .map_or(0, |channel| self.channel(channel).interest)
    }

    /// Notes which interest change makes the name visible.
    pub(crate) fn set_interest(&mut self, topic: HubTopic, name: &str, number: u64) {
        if let Some(channel) = self.find(topic, name) {
            self.channel_mut(channel).interest = number;
        }
    }

    /// Takes note of a range that was published to a name; `except`, a session of the same format, does not get it.
    pub(crate) fn publish(
        &mut self,
        topic: HubTopic,
        name: &str,
        format: Format,
        span: Span,
        except: Option<u32>,
    ) {
        self.grow_log(format, span);
        let Some(id) = self.find(topic, name) else {
            return;
        };
        append(self.touch(id, format), span);
        if let Some(session) = except {
            let heavy = self.heavy(session);
            append(&mut heavy.own, span);
        }
    }

    /// Takes note of a range that is for one session alone.
    pub(crate) fn answer(&mut self, session: u32, format: Format, span: Span) {
        self.grow_log(format, span);
        let mark = self.mark(session);
        if mark == 0 {
            self.due.push(Due {
                session,
                channel: NO_CHANNEL,
                start: span.start,
                end: span.end,
            });
            self.marks[session as usize] = self.due.len() as u32;
            return;
        }
        let due = &mut self.due[mark as usize - 1];
        if due.channel == NO_CHANNEL && due.end == span.start {
            due.end = span.end;
        } else {
            append(&mut self.heavy(session).answers, span);
        }
    }

    /// About how many sends are owed.
    pub(crate) fn owed_count(&self) -> usize {
        self.due.len() - self.sent_count + self.unlisted_count
    }

    /// Lists who is owed what was published since the last time. Names with few members go first: theirs would else wait
    /// behind the thousands of another one. So they go before those that were listed earlier.
    pub(crate) fn collect(&mut self, sessions: &Sessions) {
        let is_first = self.listed_count == 0;
        let first_new = self.listed_count;
        let mut order = std::mem::take(&mut self.order);
        let touched = self.touched[..self.touched_count].iter();
        let new = touched.filter(|touched| touched.is_new);
        order.extend(new.map(|touched| touched.channel));
        order.sort_unstable_by_key(|id| (self.channel(*id).members.len(), *id));
        let mut urgent_end = self.due.len();
        for id in order.drain(..) {
            self.collect_channel(id, sessions);
            if self.channel(id).members.len() <= FEW_MEMBERS_MAX {
                urgent_end = self.due.len();
            }
        }
        order.shrink_to(TOUCHED_KEPT_MAX);
        self.order = order;
        if !is_first {
            self.urgent.extend(first_new as u32..urgent_end as u32);
        }
        self.listed_count = self.due.len();
        self.unlisted_count = 0;
    }

    /// Gives at most `count` of the listed sessions their ranges, by offset and joined where they touch. Nothing may have
    /// been published since they were listed. With the last one the turn is over.
    pub(crate) fn flush_some(
        &mut self,
        count: usize,
        sessions: &Sessions,
        mut send: impl FnMut(SessionId, Format, &[Span]),
    ) {
        debug_assert_eq!(self.listed_count, self.due.len(), "not all are listed");
        let mut joined: Vec<Span> = Vec::new();
        // The others get on however many small turns come between.
        let mut urgent_left = count / 2;
        for _ in 0..count {
            let Some(due) = self.next_due(&mut urgent_left) else {
                return self.start_turn();
            };
            let Some(session) = sessions.at(due.session) else {
                continue;
            };
            match due.channel {
                NO_CHANNEL if due.start < due.end => {
                    send(
                        session.id,
                        session.format,
                        &[Span {
                            start: due.start,
                            end: due.end,
                        }],
                    );
                }
                NO_CHANNEL => {}
                HEAVY => {
                    self.join_heavy(&self.heavy[due.start as usize], session.format, &mut joined);
                    if !joined.is_empty() {
                        send(session.id, session.format, &joined);
                    }
                }
                channel => self.send_channel(
                    channel,
                    due.start,
                    session.id,
                    session.format,
                    &mut joined,
                    &mut send,
                ),
            }
        }
        if self.sent_count == self.due.len() {
            self.start_turn();
        }
    }

    /// Takes the next due, of which `urgent_left` may be urgent ones while others wait.
    fn next_due(&mut self, urgent_left: &mut usize) -> Option<Due> {
        loop {
            let has_others = self.visited_count < self.due.len();
            let place = match self.urgent.front() {
                Some(_) if *urgent_left > 0 || !has_others => {
                    *urgent_left = urgent_left.saturating_sub(1);
                    self.urgent.pop_front()? as usize
                }
                _ if has_others => {
                    self.visited_count += 1;
                    self.visited_count - 1
                }
                _ => return None,
            };
            let due = self.due[place];
            if due.session != SENT {
                self.due[place].session = SENT;
                self.sent_count += 1;
                self.marks[due.session as usize] = 0;
                return Some(due);
            }
        }
    }

    fn send_channel(
        &self,
        channel: ChannelId,
        since: u64,
        id: SessionId,
        format: Format,
        joined: &mut Vec<Span>,
        send: &mut impl FnMut(SessionId, Format, &[Span]),
    ) {
        let spans = self.spans(channel, format);
        if spans.first().is_some_and(|first| first.start >= since) {
            send(id, format, spans);
        } else {
            joined.clear();
            joined.extend(clip(spans, since));
            if !joined.is_empty() {
                send(id, format, joined);
            }
        }
    }

    /// Adds the new ranges of a touched channel to what its members are owed. Who still waits for its earlier ones gets
    /// both at once.
    fn collect_channel(&mut self, id: ChannelId, sessions: &Sessions) {
        let Some(channel) = self.channels[id as usize].take() else {
            return;
        };
        let place = channel.touched as usize - 1;
        let is_first = self.touched[place]
            .published
            .iter()
            .all(|published| published.collected == 0);
        for &session in &channel.members {
            let mut since = 0;
            if channel.has_fresh {
                since = self.fresh.get(&(id, session)).copied().unwrap_or(0);
            }
            let mark = self.mark(session);
            if !is_first {
                if mark != 0 && self.waits_for(mark, id) {
                    continue;
                }
                since = since.max(self.collected(place, session, sessions));
            }
            if mark == 0 {
                self.due.push(Due {
                    session,
                    channel: id,
                    start: since,
                    end: 0,
                });
                self.marks[session as usize] = self.due.len() as u32;
            } else {
                self.heavy(session).channels.push((id, since));
            }
        }
        let touched = &mut self.touched[place];
        touched.is_new = false;
        for published in &mut touched.published {
            published.collected = published.spans.last().map_or(0, |span| span.end);
        }
        self.channels[id as usize] = Some(channel);
    }

    /// Whether the due with this mark has ranges of the channel already.
    fn waits_for(&self, mark: u32, id: ChannelId) -> bool {
        let due = self.due[mark as usize - 1];
        match due.channel {
            HEAVY => {
                let channels = &self.heavy[due.start as usize].channels;
                channels.iter().any(|(channel, _)| *channel == id)
            }
            channel => channel == id,
        }
    }

    /// The offset before which a member was listed for the ranges of a touched channel.
    fn collected(&self, place: usize, session: u32, sessions: &Sessions) -> u64 {
        let format = sessions.at(session).map(|session| session.format);
        let mut published = self.touched[place].published.iter();
        published
            .find(|published| Some(published.format) == format)
            .map_or(0, |published| published.collected)
    }

    /// All ranges of a heavy due in order, without its own.
    fn join_heavy(&self, heavy: &HeavyDue, format: Format, joined: &mut Vec<Span>) {
        joined.clear();
        joined.extend_from_slice(&heavy.answers);
        for (channel, since) in &heavy.channels {
            if self.channels[*channel as usize].is_some() {
                joined.extend(clip(self.spans(*channel, format), *since));
            }
        }
        if heavy.channels.len() + heavy.answers.len() > 1 {
            joined.sort_unstable_by_key(|span| span.start);
        }
        subtract(joined, &heavy.own);
        join_touching(joined);
    }

    fn start_turn(&mut self) {
        self.due.clear();
        self.urgent.clear();
        (self.listed_count, self.visited_count, self.sent_count) = (0, 0, 0);
        for heavy in &mut self.heavy[..self.heavy_count] {
            heavy.clear();
        }
        self.heavy_count = 0;
        for place in 0..std::mem::take(&mut self.touched_count) {
            let touched = &mut self.touched[place];
            for published in &mut touched.published {
                published.spans.clear();
                published.collected = 0;
            }
            let id = touched.channel;
            let Some(channel) = &mut self.channels[id as usize] else {
                continue;
            };
            channel.touched = 0;
            if channel.is_empty() {
                self.remove_channel(id);
            }
        }
        self.touched.truncate(TOUCHED_KEPT_MAX);
        for (id, _) in self.fresh.keys() {
            if let Some(channel) = &mut self.channels[*id as usize] {
                channel.has_fresh = false;
            }
        }
        self.fresh.clear();
        if self.fresh.capacity() > FRESH_KEPT_MAX {
            self.fresh.shrink_to(FRESH_KEPT_MAX);
        }
    }

    fn leave_channel(&mut self, id: ChannelId, index: u32, sessions: &mut Sessions) -> Edge {
        self.end_membership(id, index, sessions, true)
    }

    /// Ends a membership; what was published before stays owed if it `keeps` that.
    fn end_membership(
        &mut self,
        id: ChannelId,
        index: u32,
        sessions: &mut Sessions,
        keeps: bool,
    ) -> Edge {
        let Some(session) = sessions.at_mut(index) else {
            return Edge::Unchanged;
        };
        let Some(position) = session.memberships.remove(id) else {
            return Edge::Unchanged;
        };
        let format = session.format;
        if position == PARKED {
            self.forget_parked(id, index);
        } else {
            let owed = self.take_member(id, index, position, format, sessions);
            if keeps {
                self.still_owe(index, &owed);
            }
        }
        let channel = self.channel(id);
        let (emptied, silent) = (channel.is_empty(), channel.touched == 0);
        if emptied && silent {
            self.remove_channel(id);
        }
        if emptied { Edge::Crossed } else { Edge::Inside }
    }

    /// Takes a session out of the members of a channel. Returns what was published before and not sent to it.
    fn take_member(
        &mut self,
        id: ChannelId,
        index: u32,
        position: u32,
        format: Format,
        sessions: &mut Sessions,
    ) -> SmallVec<[Span; 4]> {
        let channel = self.channel_mut(id);
        channel.members.swap_remove(position as usize);
        if let Some(&moved) = channel.members.get(position as usize)
            && let Some(session) = sessions.at_mut(moved)
            && let Some(place) = session.memberships.place_mut(id)
        {
            *place = position;
        }
        let touched = (channel.touched as usize).checked_sub(1);
        let joined_at = self.fresh.remove(&(id, index)).unwrap_or(0);
        let since = self.take_due(id, index).unwrap_or_else(|| {
            let listed = touched.map_or(0, |place| self.collected(place, index, sessions));
            joined_at.max(listed)
        });
        clip(self.spans(id, format), since).collect()
    }

    /// Owes ranges to a session that is no longer a member of their name.
    fn still_owe(&mut self, index: u32, owed: &[Span]) {
        if !owed.is_empty() {
            let heavy = self.heavy(index);
            for span in owed {
                append(&mut heavy.answers, *span);
            }
        }
    }

    /// Takes the ranges of a channel out of what a listed session waits for, and says since which offset it was owed them.
    fn take_due(&mut self, id: ChannelId, session: u32) -> Option<u64> {
        let mark = self.mark(session);
        let due = &mut self.due[(mark as usize).checked_sub(1)?];
        if due.channel == HEAVY {
            let channels = &mut self.heavy[due.start as usize].channels;
            let position = channels.iter().position(|(channel, _)| *channel == id)?;
            return Some(channels.remove(position).1);
        }
        (due.channel == id).then(|| {
            let since = due.start;
            (due.channel, due.start, due.end) = (NO_CHANNEL, 0, 0);
            since
        })
    }

    fn add_channel(&mut self, topic: HubTopic, name: &Name) -> ChannelId {
        let channel = Channel {
            topic,
            name: name.clone(),
            members: SmallVec::new(),
            formats: 0,
            touched: 0,
            has_fresh: false,
            has_parked: false,
            interest: 0,
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.channels[id as usize] = Some(channel);
                id
            }
            None => {
                self.channels.push(Some(channel));
                (self.channels.len() - 1) as ChannelId
            }
        };
        let (channels, hasher) = (&self.channels, &self.hasher);
        let hash = hash(hasher, topic, name);
        self.keys.insert_unique(hash, id, |id| {
            channels[*id as usize].as_ref().map_or(0, |channel| {
                self::hash(hasher, channel.topic, &channel.name)
            })
        });
        id
    }

    fn remove_channel(&mut self, id: ChannelId) {
        if let Some(Channel { topic, name, .. }) = self.channels[id as usize].take() {
            let hash = hash(&self.hasher, topic, &name);
            if let Ok(entry) = self.keys.find_entry(hash, |known| *known == id) {
                entry.remove();
            }
            self.free.push(id);
        }
    }

    fn find(&self, topic: HubTopic, name: &str) -> Option<ChannelId> {
        let hash = hash(&self.hasher, topic, name);
        let is_it = |id: &ChannelId| {
            let channel = self.channels[*id as usize].as_ref();
            channel.is_some_and(|channel| channel.topic == topic && *channel.name == *name)
        };
        self.keys.find(hash, is_it).copied()
    }

    /// The ranges of a channel's format in this turn, to be added to.
    fn touch(&mut self, id: ChannelId, format: Format) -> &mut SmallVec<[Span; 2]> {
        let count = self.touched_count;
        let channel = self.channel_mut(id);
        let place = match channel.touched {
            0 => {
                channel.touched = count as u32 + 1;
                self.touched_count += 1;
                match self.touched.get_mut(count) {
                    Some(used) => used.channel = id,
                    None => self.touched.push(Touched {
                        channel: id,
                        published: SmallVec::new(),
                        is_new: false,
                    }),
                }
                count
            }
            place => place as usize - 1,
        };
        if !std::mem::replace(&mut self.touched[place].is_new, true) {
            self.unlisted_count += self.channel(id).members.len();
        }
        let published = &mut self.touched[place].published;
        let known = published.iter().position(|known| known.format == format);
        // What an earlier turn has left is empty and used again, with its memory.
        let index = known.or_else(|| published.iter().position(|known| known.spans.is_empty()));
        let index = index.unwrap_or_else(|| {
            published.push(Published {
                format,
                spans: SmallVec::new(),
                collected: 0,
            });
            published.len() - 1
        });
        published[index].format = format;
        &mut published[index].spans
    }

    /// The ranges of a channel's format in this turn.
    fn spans(&self, id: ChannelId, format: Format) -> &[Span] {
        let place = self.channel(id).touched as usize;
        let published = place
            .checked_sub(1)
            .map(|place| &self.touched[place].published);
        published
            .into_iter()
            .flatten()
            .find(|published| published.format == format)
            .map_or(&[], |published| published.spans.as_slice())
    }

    fn channel(&self, id: ChannelId) -> &Channel {
        self.channels[id as usize]
            .as_ref()
            .expect("ids come from `keys` and memberships, which hold live ones only")
    }

    fn channel_mut(&mut self, id: ChannelId) -> &mut Channel {
        self.channels[id as usize]
            .as_mut()
            .expect("ids come from `keys` and memberships, which hold live ones only")
    }

    fn mark(&mut self, session: u32) -> u32 {
        if self.marks.len() <= session as usize {
            self.marks.resize(session as usize + 1, 0);
        }
        self.marks[session as usize]
    }

    /// Owes the session nothing any more; its place may be taken by another one within the turn.
    fn forget(&mut self, session: u32) {
        let mark = self.mark(session);
        if mark == 0 {
            return;
        }
        let due = &mut self.due[mark as usize - 1];
        if due.channel == HEAVY {
            self.heavy[due.start as usize].clear();
        } else {
            *due = Due {
                session,
                channel: NO_CHANNEL,
                start: 0,
                end: 0,
            };
        }
    }

    /// The heavy due of a session; a small one is taken over.
    fn heavy(&mut self, session: u32) -> &mut HeavyDue {
        let mark = self.mark(session);
        let small = match mark {
            0 => {
                self.due.push(Due {
                    session,
                    channel: NO_CHANNEL,
                    start: 0,
                    end: 0,
                });
                self.marks[session as usize] = self.due.len() as u32;
                self.due.len() - 1
            }
            mark => mark as usize - 1,
        };
        let due = self.due[small];
        if due.channel == HEAVY {
            return &mut self.heavy[due.start as usize];
        }
        if self.heavy.len() == self.heavy_count {
            self.heavy.push(HeavyDue::default());
        }
        let place = self.heavy_count;
        self.heavy_count += 1;
        let heavy = &mut self.heavy[place];
        if due.channel != NO_CHANNEL {
            heavy.channels.push((due.channel, due.start));
        } else if due.start < due.end {
            heavy.answers.push(Span {
                start: due.start,
                end: due.end,
            });
        }
        self.due[small] = Due {
            session,
            channel: HEAVY,
            start: place as u64,
            end: 0,
        };
        heavy
    }

    fn end(&self, format: Format) -> u64 {
        self.ends.get(format.0 as usize).copied().unwrap_or(0)
    }

    fn grow_log(&mut self, format: Format, span: Span) {
        let format = format.0 as usize;
        if self.ends.len() <= format {
            self.ends.resize(format + 1, 0);
        }
        self.ends[format] = span.end;
    }
}

fn hash(hasher: &FixedState, topic: HubTopic, name: &str) -> u64 {
    hasher.hash_one((topic, name))
}

/// The bit of a format in [`Channel::formats`].
fn format_bit(format: Format) -> u64 {
    debug_assert!(format.0 < 64, "a set of formats is one word");
    1 << format.0
}

/// Adds a range at the end, joined with the last one if they touch.
fn append<const N: usize>(spans: &mut SmallVec<[Span; N]>, span: Span) {
    match spans.last_mut() {
        Some(last) if last.end == span.start => last.end = span.end,
        _ => spans.push(span),
    }
}

/// The parts of sorted ranges that start at `since` or later.
fn clip(spans: &[Span], since: u64) -> impl Iterator<Item = Span> + '_ {
    spans
        .iter()
        .filter(move |span| span.end > since)
        .map(move |span| Span {
            start: span.start.max(since),
            end: span.end,
        })
}

/// Takes the ranges `own`, sorted, out of `spans`, sorted and not overlapping.
fn subtract(spans: &mut Vec<Span>, own: &[Span]) {
    if own.is_empty() {
        return;
    }
    let mut left = Vec::with_capacity(spans.len() + own.len());
    let mut own = own.iter().peekable();
    for span in spans.iter() {
        let mut start = span.start;
        while let Some(cut) = own.peek() {
            if cut.end <= start {
                own.next();
            } else if cut.start < span.end {
                if start < cut.start {
                    left.push(Span {
                        start,
                        end: cut.start,
                    });
                }
                start = cut.end.min(span.end);
                if cut.end > span.end {
                    break;
                }
                own.next();
            } else {
                break;
            }
        }
        if start < span.end {
            left.push(Span {
                start,
                end: span.end,
            });
        }
    }
    *spans = left;
}

/// Joins ranges that touch.
fn join_touching(spans: &mut Vec<Span>) {
    spans.dedup_by(|next, last| {
        let touches = last.end == next.start;
        if touches {
            last.end = next.end;
        }
        touches
    });
}

#[cfg(test)]
mod tests;

//! Fan-out: who on this shard gets what, as ranges of the turn log.
//!
//! A publication is encoded once and its name keeps the range. Recipients are visited once per turn, in
//! [`Hub::flush`]: each gets the ranges of its names from the offset at which it joined, without those it
//! published itself, plus its own answers, by offset, joined where they touch. The work is recipients times names,
//! not recipients times messages.

use smallvec::SmallVec;

use crate::address::SessionId;
use crate::effect::{Format, InterestTopic, Span};
use crate::session::Sessions;
use crate::table::{self, Map};
use crate::text::Name;

/// Kind of name that has members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum HubTopic {
    /// Publications looked up through the interest map.
    Interest(InterestTopic),
    /// Subscribers of a record; its owner knows which shards have some.
    Record,
}

/// A name with members, by its place.
type ChannelId = u32;

/// No channel: the due is answers only.
const NO_CHANNEL: ChannelId = u32::MAX;
/// The due has more than fits; `start` is its place among the heavy ones.
const HEAVY: ChannelId = u32::MAX - 1;

/// The channels of one session, with its place among their members.
#[derive(Debug)]
pub(crate) struct Memberships(Map<ChannelId, u32>);

impl Memberships {
    /// None.
    pub(crate) fn new(seed: u64) -> Self {
        Self(table::map(seed))
    }

    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[derive(Debug)]
struct Member {
    session: u32,
    /// The end of the format's log when it joined: earlier ranges are not for it.
    since: u64,
}

/// The ranges of one format that were published to a name in this turn.
#[derive(Debug)]
struct Published {
    format: Format,
    spans: SmallVec<[Span; 2]>,
}

#[derive(Debug)]
struct Channel {
    key: (HubTopic, Name),
    members: Vec<Member>,
    published: SmallVec<[Published; 1]>,
    /// The interest change that made the name visible, see [`crate::effect::Effects::interest`].
    interest: u64,
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
    keys: Map<(HubTopic, Name), ChannelId>,
    channels: Vec<Option<Channel>>,
    free: Vec<ChannelId>,
    /// Channels with ranges in this turn.
    touched: Vec<ChannelId>,
    /// By session: one more than its place in `due`, 0 for nothing.
    marks: Vec<u32>,
    due: Vec<Due>,
    heavy: Vec<HeavyDue>,
    heavy_count: usize,
    /// The end of each format's log, as far as known.
    ends: Vec<u64>,
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
            keys: table::map(seed),
            channels: Vec::new(),
            free: Vec::new(),
            touched: Vec::new(),
            marks: Vec::new(),
            due: Vec::new(),
            heavy: Vec::new(),
            heavy_count: 0,
            ends: Vec::new(),
        }
    }

    /// How many names have members.
    pub(crate) fn name_count(&self) -> usize {
        self.keys.len()
    }

    /// The formats in which the members of a name want it, empty if it has none. The caller encodes once for each.
    pub(crate) fn formats(&self, topic: HubTopic, name: &str) -> SmallVec<[Format; 4]> {
        match self.find(topic, name) {
            Some(channel) => self
                .channel(channel)
                .published
                .iter()
                .map(|published| published.format)
                .collect(),
            None => SmallVec::new(),
        }
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
        let key = (topic, name.clone());
        let id = match self.keys.get(&key) {
            Some(id) => *id,
            None => self.add_channel(key),
        };
        let since = self.end(session.format);
        let channel = self.channel_mut(id);
        if session.memberships.0.contains_key(&id) {
            return Edge::Unchanged;
        }
        let first = channel.members.is_empty();
        session
            .memberships
            .0
            .insert(id, channel.members.len() as u32);
        channel.members.push(Member {
            session: session.id.index,
            since,
        });
        if !channel
            .published
            .iter()
            .any(|published| published.format == session.format)
        {
            channel.published.push(Published {
                format: session.format,
                spans: SmallVec::new(),
            });
        }
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
        let members: Vec<u32> = self
            .channel(channel)
            .members
            .iter()
            .map(|member| member.session)
            .collect();
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
        let mut channels: Vec<ChannelId> = session.memberships.0.keys().copied().collect();
        // The order of the posts that follow must not depend on the hash table.
        channels.sort_unstable();
        let mut emptied = Vec::new();
        for channel in channels {
            let key = self.channel(channel).key.clone();
            if self.leave_channel(channel, id.index, sessions) == Edge::Crossed {
                emptied.push(key);
            }
        }
        self.forget(id.index);
        emptied
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
        let channel = self.channel_mut(id);
        let was_silent = channel
            .published
            .iter()
            .all(|published| published.spans.is_empty());
        if let Some(published) = channel
            .published
            .iter_mut()
            .find(|published| published.format == format)
        {
            append(&mut published.spans, span);
        }
        if was_silent {
            self.touched.push(id);
        }
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

    /// Gives each session that is owed something its ranges, by offset and joined where they touch, and starts a
    /// new turn.
    pub(crate) fn flush(
        &mut self,
        sessions: &Sessions,
        mut send: impl FnMut(SessionId, Format, &[Span]),
    ) {
        for touched in 0..self.touched.len() {
            self.collect(self.touched[touched]);
        }
        let mut joined: Vec<Span> = Vec::new();
        for due in &self.due {
            self.marks[due.session as usize] = 0;
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
        self.start_turn();
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
        let spans = self.channel(channel).spans(format);
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

    /// Adds the ranges of a touched channel to what its members are owed.
    fn collect(&mut self, id: ChannelId) {
        let Some(channel) = self.channels[id as usize].take() else {
            return;
        };
        for member in &channel.members {
            let mark = self.mark(member.session);
            if mark == 0 {
                self.due.push(Due {
                    session: member.session,
                    channel: id,
                    start: member.since,
                    end: 0,
                });
                self.marks[member.session as usize] = self.due.len() as u32;
            } else {
                self.heavy(member.session).channels.push((id, member.since));
            }
        }
        self.channels[id as usize] = Some(channel);
    }

    /// All ranges of a heavy due in order, without its own.
    fn join_heavy(&self, heavy: &HeavyDue, format: Format, joined: &mut Vec<Span>) {
        joined.clear();
        joined.extend_from_slice(&heavy.answers);
        for (channel, since) in &heavy.channels {
            if let Some(channel) = &self.channels[*channel as usize] {
                joined.extend(clip(channel.spans(format), *since));
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
        for heavy in &mut self.heavy[..self.heavy_count] {
            heavy.clear();
        }
        self.heavy_count = 0;
        for touched in std::mem::take(&mut self.touched) {
            if let Some(channel) = &mut self.channels[touched as usize] {
                channel
                    .published
                    .iter_mut()
                    .for_each(|published| published.spans.clear());
                if channel.members.is_empty() {
                    self.remove_channel(touched);
                }
            }
        }
    }

    fn leave_channel(&mut self, id: ChannelId, index: u32, sessions: &mut Sessions) -> Edge {
        let Some(session) = sessions.at_mut(index) else {
            return Edge::Unchanged;
        };
        let Some(position) = session.memberships.0.remove(&id) else {
            return Edge::Unchanged;
        };
        let format = session.format;
        let channel = self.channel_mut(id);
        let left = channel.members.swap_remove(position as usize);
        if let Some(moved) = channel.members.get(position as usize)
            && let Some(session) = sessions.at_mut(moved.session)
        {
            session.memberships.0.insert(id, position);
        }
        let owed: SmallVec<[Span; 4]> = clip(channel.spans(format), left.since).collect();
        let silent = channel
            .published
            .iter()
            .all(|published| published.spans.is_empty());
        let emptied = channel.members.is_empty();
        if !owed.is_empty() {
            let heavy = self.heavy(index);
            for span in owed {
                append(&mut heavy.answers, span);
            }
        }
        if emptied && silent {
            self.remove_channel(id);
        }
        if emptied { Edge::Crossed } else { Edge::Inside }
    }

    fn add_channel(&mut self, key: (HubTopic, Name)) -> ChannelId {
        let channel = Channel {
            key: key.clone(),
            members: Vec::new(),
            published: SmallVec::new(),
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
        self.keys.insert(key, id);
        id
    }

    fn remove_channel(&mut self, id: ChannelId) {
        if let Some(channel) = self.channels[id as usize].take() {
            self.keys.remove(&channel.key);
            self.free.push(id);
        }
    }

    fn find(&self, topic: HubTopic, name: &str) -> Option<ChannelId> {
        self.keys.get(&KeyRef(topic, name)).copied()
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

impl Channel {
    fn spans(&self, format: Format) -> &[Span] {
        self.published
            .iter()
            .find(|published| published.format == format)
            .map_or(&[], |published| published.spans.as_slice())
    }
}

/// Looks a key up without owning its name.
#[derive(PartialEq, Eq, Hash)]
struct KeyRef<'a>(HubTopic, &'a str);

impl hashbrown::Equivalent<(HubTopic, Name)> for KeyRef<'_> {
    fn equivalent(&self, key: &(HubTopic, Name)) -> bool {
        self.0 == key.0 && *self.1 == *key.1
    }
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

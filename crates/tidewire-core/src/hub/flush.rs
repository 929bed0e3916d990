//! The ranges of a turn: messages published to names and answers to single sessions, and at the turn's end the list of the sessions to
//! send to and their ranges.

use smallvec::SmallVec;

use super::Hub;
use super::due::{Due, HeavyDue};
use super::span::{append, clip, join_sorted, subtract};
use crate::address::SessionId;
use crate::effect::{Format, Span};
use crate::membership::ChannelId;
use crate::session::Sessions;

/// A name with at most this many members does not wait for names with many members.
pub(super) const FEW_MEMBERS_MAX: usize = 128;

/// After a turn in which more names were published to, the memory for their ranges shrinks to this many.
const TOUCHED_KEPT_MAX: usize = 4096;

/// After a turn in which more sessions joined, the table of them shrinks to this many.
const FRESH_KEPT_MAX: usize = 4096;

/// After a turn in which a session had more ranges, the memory in which they are joined shrinks to this many.
const JOINED_KEPT_MAX: usize = 4096;

/// The ranges of one format that were published to a name in this turn.
#[derive(Debug)]
pub(super) struct Published {
    pub(super) format: Format,
    pub(super) spans: SmallVec<[Span; 2]>,
    /// The members that the name had then are listed for the messages before this offset.
    pub(super) collected: u64,
}

/// A channel with ranges in this turn.
#[derive(Debug)]
pub(super) struct Touched {
    pub(super) channel: ChannelId,
    pub(super) published: SmallVec<[Published; 1]>,
    /// Whether a message was published since the members were listed last.
    pub(super) is_new: bool,
}

/// The ranges of one session while they are joined. The memory is reused.
#[derive(Debug, Default)]
pub(super) struct Joined {
    pub(super) spans: Vec<Span>,
    /// Scratch memory.
    left: Vec<Span>,
}

impl Hub {
    /// Adds a range that was published to a name. `except`, a session of the same format, does not get it.
    pub(crate) fn publish(
        &mut self,
        id: ChannelId,
        format: Format,
        span: Span,
        except: Option<u32>,
    ) {
        self.grow_log(format, span);
        append(self.touch(id, format), span);
        if let Some(session) = except {
            let heavy = self.heavy(session);
            append(&mut heavy.own, span);
        }
    }

    /// Excludes a session of the same format from a range that was just published.
    pub(crate) fn withhold(&mut self, session: u32, span: Span) {
        append(&mut self.heavy(session).own, span);
    }

    /// Adds a range that is for one session alone.
    pub(crate) fn answer(&mut self, session: u32, format: Format, span: Span) {
        self.grow_log(format, span);
        match self.due_mut(session) {
            None => self.list(Due::Answers { session, span }),
            Some(Due::Answers { span: owed, .. }) if owed.end == span.start => owed.end = span.end,
            Some(_) => append(&mut self.heavy(session).answers, span),
        }
    }

    /// The ranges of a channel and format in this turn, for appending.
    fn touch(&mut self, id: ChannelId, format: Format) -> &mut SmallVec<[Span; 2]> {
        let count = self.touched_count;
        let channel = self.channel_mut(id);
        let touched_index = match channel.touched {
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
            touched_index => touched_index as usize - 1,
        };
        if !std::mem::replace(&mut self.touched[touched_index].is_new, true) {
            self.unlisted_count += self.channel(id).members.len();
        }
        let published = &mut self.touched[touched_index].published;
        let known = published.iter().position(|known| known.format == format);
        // A buffer of an earlier turn is empty, and this turn uses it again with its memory.
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

    /// The ranges of a channel and format in this turn.
    #[inline]
    pub(super) fn spans(&self, id: ChannelId, format: Format) -> &[Span] {
        let touched_index = self.channel(id).touched as usize;
        let published = touched_index
            .checked_sub(1)
            .map(|touched_index| &self.touched[touched_index].published);
        published
            .into_iter()
            .flatten()
            .find(|published| published.format == format)
            .map_or(&[], |published| published.spans.as_slice())
    }

    pub(super) fn end(&self, format: Format) -> u64 {
        self.ends.get(format.0 as usize).copied().unwrap_or(0)
    }

    fn grow_log(&mut self, format: Format, span: Span) {
        let format = format.0 as usize;
        if self.ends.len() <= format {
            self.ends.resize(format + 1, 0);
        }
        self.ends[format] = span.end;
    }

    /// Lists the sessions to which the hub must send messages published since the last call. Names with few members are listed first,
    /// because they would otherwise wait behind the thousands of members of another name. They also overtake sessions that the hub listed
    /// earlier.
    pub(crate) fn collect(&mut self, sessions: &Sessions) {
        // This may run several times in a turn: a large fan-out is sent in parts, and messages published between the parts are listed by
        // the next call. Invariant: a session has at most one due at a time (`marks`). A session that was sent already gets a new due,
        // which starts where its last listing ended, so no range is sent twice. Dues are only appended, because `marks` and `urgent` hold
        // indexes into `due` that must stay valid until the last send. The sort order includes the id, so that the order of sends does
        // not depend on a hash table.
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

    /// Sends at most `count` of the listed sessions their ranges, sorted by offset and joined where they touch. No message may have been
    /// published since the listing. The last send ends the turn.
    pub(crate) fn flush_some(
        &mut self,
        count: usize,
        sessions: &Sessions,
        mut send: impl FnMut(SessionId, Format, &[Span]),
    ) {
        // A due names a channel, and its ranges are read from the channel here, not at the listing. So a member that waits through
        // several listings gets everything with one send. It is also why nothing may be published between listing and sends: a member
        // that is sent in between would get the new range here and once more after the next listing. Ranges, marks and dues are reused
        // only after the last send, because until then each of them may be read.
        debug_assert_eq!(
            self.listed_count,
            self.due.len(),
            "every due channel is listed"
        );
        let mut joined = std::mem::take(&mut self.joined);
        // At most half of the sends are urgent ones. The other sessions make progress even if small publications keep arriving.
        let mut urgent_left = count / 2;
        for _ in 0..count {
            let Some(due) = self.next_due(&mut urgent_left) else {
                break;
            };
            let Some(session) = sessions.at(due.session()) else {
                continue;
            };
            match due {
                Due::Answers { span, .. } if !span.is_empty() => {
                    send(session.id, session.format, &[span]);
                }
                Due::Answers { .. } => {}
                Due::Channel { id, since, .. } => self.send_channel(
                    id,
                    since,
                    session.id,
                    session.format,
                    &mut joined,
                    &mut send,
                ),
                Due::Heavy { index, .. } => {
                    self.join_heavy(&self.heavy[index as usize], session.format, &mut joined);
                    if !joined.spans.is_empty() {
                        send(session.id, session.format, &joined.spans);
                    }
                }
            }
        }
        for spans in [&mut joined.spans, &mut joined.left] {
            spans.clear();
            spans.shrink_to(JOINED_KEPT_MAX);
        }
        self.joined = joined;
        if self.sent_count == self.due.len() {
            self.start_turn();
        }
    }

    fn send_channel(
        &self,
        channel: ChannelId,
        since: u64,
        id: SessionId,
        format: Format,
        joined: &mut Joined,
        send: &mut impl FnMut(SessionId, Format, &[Span]),
    ) {
        let spans = self.spans(channel, format);
        if spans.first().is_some_and(|first| first.start >= since) {
            send(id, format, spans);
        } else {
            joined.spans.clear();
            joined.spans.extend(clip(spans, since));
            if !joined.spans.is_empty() {
                send(id, format, &joined.spans);
            }
        }
    }

    /// Adds the new ranges of a touched channel to the outstanding ranges of its members. A member that still waits for its earlier
    /// ranges gets both with one send.
    fn collect_channel(&mut self, id: ChannelId, sessions: &Sessions) {
        let Some(channel) = self.channels[id as usize].take() else {
            return;
        };
        let touched_index = channel.touched as usize - 1;
        let is_first = self.touched[touched_index]
            .published
            .iter()
            .all(|published| published.collected == 0);
        // `since` is the offset of the first range owed to the member. It is the larger of two offsets: a member that joined in this turn
        // gets nothing older than its join, and a member that was listed before gets nothing older than that listing. A member that still
        // waits for this channel needs no entry, because its due already covers the new ranges. A member that waits for something else
        // gets a heavy due.
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
                since = since.max(self.collected(touched_index, session, sessions));
            }
            if mark == 0 {
                self.list(Due::Channel { session, id, since });
            } else {
                self.heavy(session).channels.push((id, since));
            }
        }
        let touched = &mut self.touched[touched_index];
        touched.is_new = false;
        for published in &mut touched.published {
            published.collected = published.spans.last().map_or(0, |span| span.end);
        }
        self.channels[id as usize] = Some(channel);
    }

    /// The offset up to which a member was listed for the ranges of a touched channel.
    pub(super) fn collected(&self, touched_index: usize, session: u32, sessions: &Sessions) -> u64 {
        let format = sessions.at(session).map(|session| session.format);
        let mut published = self.touched[touched_index].published.iter();
        published
            .find(|published| Some(published.format) == format)
            .map_or(0, |published| published.collected)
    }

    /// Collects all ranges of a heavy due in order, without the session's own publications.
    pub(super) fn join_heavy(&self, heavy: &HeavyDue, format: Format, joined: &mut Joined) {
        let Joined {
            spans: joined,
            left,
        } = joined;
        joined.clear();
        joined.extend_from_slice(&heavy.answers);
        for (channel, since) in &heavy.channels {
            if self.has_channel(*channel) {
                joined.extend(clip(self.spans(*channel, format), *since));
            }
        }
        if heavy.channels.len() + heavy.answers.len() > 1 {
            joined.sort_unstable_by_key(|span| span.start);
            // A publication can reach the session through several names, each of which has its range. The session gets it once. The
            // subtraction follows, because it expects ranges that do not overlap.
            join_sorted(joined);
        }
        subtract(joined, &heavy.own, left);
    }

    fn start_turn(&mut self) {
        // The channel of a name that lost its last member in this turn is removed only here: `touched` refers to it by index, and another
        // name could get the index. `fresh` is cleared here because its offsets matter only to ranges of this turn.
        self.due.clear();
        self.urgent.clear();
        (self.listed_count, self.visited_count, self.sent_count) = (0, 0, 0);
        for heavy in &mut self.heavy[..self.heavy_count] {
            heavy.clear();
        }
        self.heavy.truncate(TOUCHED_KEPT_MAX);
        self.heavy_count = 0;
        for touched_index in 0..std::mem::take(&mut self.touched_count) {
            let touched = &mut self.touched[touched_index];
            for published in &mut touched.published {
                published.spans.clear();
                published.collected = 0;
            }
            let id = touched.channel;
            let Some(Some(channel)) = self.channels.get_mut(id as usize) else {
                continue;
            };
            channel.touched = 0;
            if channel.is_empty() {
                self.remove_channel(id);
            }
        }
        self.touched.truncate(TOUCHED_KEPT_MAX);
        for (id, _) in self.fresh.keys() {
            if let Some(Some(channel)) = self.channels.get_mut(*id as usize) {
                channel.has_fresh = false;
            }
        }
        self.fresh.clear();
        if self.fresh.capacity() > FRESH_KEPT_MAX {
            self.fresh.shrink_to(FRESH_KEPT_MAX);
        }
    }
}

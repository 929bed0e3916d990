//! The end of a turn: listing who is owed what, and giving it to them.

use super::due::{Due, HEAVY, HeavyDue, NO_CHANNEL};
use super::span::{clip, join_touching, subtract};
use super::{ChannelId, Hub};
use crate::address::SessionId;
use crate::effect::{Format, Span};
use crate::session::Sessions;

/// A name with at most this many members does not wait for names with many members.
pub(super) const FEW_MEMBERS_MAX: usize = 128;

/// After a turn in which more names were published to, the memory for their ranges shrinks to this many.
const TOUCHED_KEPT_MAX: usize = 4096;

/// After a turn in which more sessions joined, the table of them shrinks to this many.
const FRESH_KEPT_MAX: usize = 4096;

/// After a turn in which a session had more ranges, the memory in which they are joined shrinks to this many.
const JOINED_KEPT_MAX: usize = 4096;

/// The ranges of one session while they are joined, in memory that is used again.
#[derive(Debug, Default)]
pub(super) struct Joined {
    pub(super) spans: Vec<Span>,
    /// To work in.
    left: Vec<Span>,
}

impl Hub {
    /// Lists the sessions to which the hub must send messages published since the last call. Names with few members go first,
    /// because they would otherwise wait behind the thousands of members of another name. So they go before sessions that the hub
    /// listed earlier.
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

    /// Gives at most `count` of the listed sessions their ranges, by offset and joined where they touch. Since the listing, no
    /// message may have been published. The last session ends the turn.
    pub(crate) fn flush_some(
        &mut self,
        count: usize,
        sessions: &Sessions,
        mut send: impl FnMut(SessionId, Format, &[Span]),
    ) {
        debug_assert_eq!(self.listed_count, self.due.len(), "not all are listed");
        let mut joined = std::mem::take(&mut self.joined);
        // The others get on however many small turns come between.
        let mut urgent_left = count / 2;
        for _ in 0..count {
            let Some(due) = self.next_due(&mut urgent_left) else {
                break;
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
                    if !joined.spans.is_empty() {
                        send(session.id, session.format, &joined.spans);
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
    /// ranges gets both at once.
    fn collect_channel(&mut self, id: ChannelId, sessions: &Sessions) {
        let Some(channel) = self.channels[id as usize].take() else {
            return;
        };
        let touched_index = channel.touched as usize - 1;
        let is_first = self.touched[touched_index]
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
                since = since.max(self.collected(touched_index, session, sessions));
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
        let touched = &mut self.touched[touched_index];
        touched.is_new = false;
        for published in &mut touched.published {
            published.collected = published.spans.last().map_or(0, |span| span.end);
        }
        self.channels[id as usize] = Some(channel);
    }

    /// The offset before which a member was listed for the ranges of a touched channel.
    pub(super) fn collected(&self, touched_index: usize, session: u32, sessions: &Sessions) -> u64 {
        let format = sessions.at(session).map(|session| session.format);
        let mut published = self.touched[touched_index].published.iter();
        published
            .find(|published| Some(published.format) == format)
            .map_or(0, |published| published.collected)
    }

    /// All ranges of a heavy due in order, without its own.
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
        }
        subtract(joined, &heavy.own, left);
        join_touching(joined);
    }

    fn start_turn(&mut self) {
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

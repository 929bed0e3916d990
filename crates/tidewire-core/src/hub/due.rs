//! The ranges to send to each session at the end of the turn.

use smallvec::SmallVec;

use super::Hub;
use super::flush::Joined;
use crate::effect::{Format, Span};
use crate::membership::{ChannelId, NO_CHANNEL};

/// In place of a channel: the due does not fit the small form. `start` is its index in `Hub::heavy`.
pub(super) const HEAVY: ChannelId = u32::MAX - 1;

/// If a due had more answers than this, their memory is freed after the turn.
const SPANS_KEPT_MAX: usize = 1024;

/// The session of a due that was sent. No session has this index: the descriptor limit is far below.
const SENT: u32 = u32::MAX;

/// Ranges to send to a session at the end of the turn, in the usual, small form: one channel, or one range of answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    pub(super) session: u32,
    pub(super) channel: ChannelId,
    /// Without a channel, the start of the answers. With a channel, the offset of the first range that is owed.
    pub(super) start: u64,
    pub(super) end: u64,
}

/// Ranges to send to a session with more than one channel or range of answers.
#[derive(Debug, Default)]
pub(super) struct HeavyDue {
    pub(super) channels: SmallVec<[(ChannelId, u64); 4]>,
    /// Answers, and ranges of channels that the session has left since.
    pub(super) answers: SmallVec<[Span; 4]>,
    /// Ranges that the session published itself.
    pub(super) own: SmallVec<[Span; 2]>,
}

impl HeavyDue {
    pub(super) fn clear(&mut self) {
        self.channels.clear();
        self.answers.clear();
        self.own.clear();
        // Otherwise the buffer of a message with many names would keep its capacity forever.
        if self.answers.capacity() > SPANS_KEPT_MAX {
            self.answers = SmallVec::new();
        }
    }
}

impl Hub {
    /// The approximate number of outstanding sends.
    pub(crate) fn owed_count(&self) -> usize {
        self.due.len() - self.sent_count + self.unlisted_count
    }

    /// Takes the next due. While other dues wait, at most `urgent_left` of the returned ones are urgent.
    #[inline]
    pub(super) fn next_due(&mut self, urgent_left: &mut usize) -> Option<Due> {
        loop {
            let has_others = self.visited_count < self.due.len();
            let entry = match self.urgent.front() {
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
            let due = self.due[entry];
            if due.session != SENT {
                self.due[entry].session = SENT;
                self.sent_count += 1;
                self.marks[due.session as usize] = 0;
                return Some(due);
            }
        }
    }

    /// Whether the due with this mark already covers the channel.
    pub(super) fn waits_for(&self, mark: u32, id: ChannelId) -> bool {
        let due = self.due[mark as usize - 1];
        match due.channel {
            HEAVY => {
                let channels = &self.heavy[due.start as usize].channels;
                channels.iter().any(|(channel, _)| *channel == id)
            }
            channel => channel == id,
        }
    }

    /// Removes a channel from the due of a listed session. Returns the offset of the first range that it was owed.
    pub(super) fn take_due(&mut self, id: ChannelId, session: u32) -> Option<u64> {
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

    pub(super) fn mark(&mut self, session: u32) -> u32 {
        if self.marks.len() <= session as usize {
            self.marks.resize(session as usize + 1, 0);
        }
        self.marks[session as usize]
    }

    /// Takes the outstanding answers in `format` of a session without memberships.
    pub(crate) fn take_answers(&mut self, session: u32, format: Format) -> Vec<Span> {
        let mark = self.mark(session);
        let Some(due) = (mark as usize).checked_sub(1).map(|entry| self.due[entry]) else {
            return Vec::new();
        };
        let mut answers = Joined::default();
        if due.channel == HEAVY {
            self.join_heavy(&self.heavy[due.start as usize], format, &mut answers);
        } else if due.start < due.end {
            answers.spans.push(Span {
                start: due.start,
                end: due.end,
            });
        }
        self.forget(session);
        answers.spans
    }

    /// Drops all outstanding ranges of the session, because another session may get its index within the turn.
    pub(crate) fn forget(&mut self, session: u32) {
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

    /// The heavy due of a session. A small due is converted.
    pub(super) fn heavy(&mut self, session: u32) -> &mut HeavyDue {
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
        let entry = self.heavy_count;
        self.heavy_count += 1;
        let heavy = &mut self.heavy[entry];
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
            start: entry as u64,
            end: 0,
        };
        heavy
    }
}

//! The ranges to send to each session at the end of the turn.

use smallvec::SmallVec;

use super::Hub;
use super::flush::Joined;
use crate::effect::{Format, Span};
use crate::membership::ChannelId;

/// If a due had more answers than this, their memory is freed after the turn.
const SPANS_KEPT_MAX: usize = 1024;

/// Ranges to send to a session at the end of the turn. The first two forms are the usual ones. The session is in each of them, and not in
/// a struct around them, because the tag then shares a word with it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Due {
    /// One range of answers, empty if the session is owed nothing.
    Answers { session: u32, span: Span },
    /// The ranges of one channel, from the offset `since` on.
    Channel {
        session: u32,
        id: ChannelId,
        since: u64,
    },
    /// More than that: the due in `Hub::heavy` at this index.
    Heavy { session: u32, index: u32 },
}

impl Due {
    /// Nothing, for a session that keeps its place in the order of the sends.
    fn nothing(session: u32) -> Self {
        Self::Answers {
            session,
            span: Span { start: 0, end: 0 },
        }
    }

    #[inline]
    pub(super) fn session(self) -> u32 {
        match self {
            Self::Answers { session, .. }
            | Self::Channel { session, .. }
            | Self::Heavy { session, .. } => session,
        }
    }
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
            if let Some(due) = self.due[entry].take() {
                self.sent_count += 1;
                self.marks[due.session() as usize] = 0;
                return Some(due);
            }
        }
    }

    /// Adds the due of a session that has none. The mark of the session must exist.
    #[inline]
    pub(super) fn list(&mut self, due: Due) {
        self.due.push(Some(due));
        self.marks[due.session() as usize] = self.due.len() as u32;
    }

    /// The due of a session that waits for its send.
    pub(super) fn due_mut(&mut self, session: u32) -> Option<&mut Due> {
        let entry = (self.mark(session) as usize).checked_sub(1)?;
        self.due[entry].as_mut()
    }

    /// Whether the due with this mark already covers the channel.
    pub(super) fn waits_for(&self, mark: u32, id: ChannelId) -> bool {
        match self.due[mark as usize - 1] {
            Some(Due::Channel { id: channel, .. }) => channel == id,
            Some(Due::Heavy { index, .. }) => {
                let channels = &self.heavy[index as usize].channels;
                channels.iter().any(|(channel, _)| *channel == id)
            }
            Some(Due::Answers { .. }) | None => false,
        }
    }

    /// Removes a channel from the due of a listed session. Returns the offset of the first range that it was owed.
    pub(super) fn take_due(&mut self, id: ChannelId, session: u32) -> Option<u64> {
        let due = self.due_mut(session)?;
        match *due {
            Due::Channel {
                id: channel, since, ..
            } if channel == id => {
                *due = Due::nothing(session);
                Some(since)
            }
            Due::Heavy { index, .. } => {
                let channels = &mut self.heavy[index as usize].channels;
                let position = channels.iter().position(|(channel, _)| *channel == id)?;
                Some(channels.remove(position).1)
            }
            Due::Channel { .. } | Due::Answers { .. } => None,
        }
    }

    pub(super) fn mark(&mut self, session: u32) -> u32 {
        if self.marks.len() <= session as usize {
            self.marks.resize(session as usize + 1, 0);
        }
        self.marks[session as usize]
    }

    /// Takes the outstanding answers in `format` of a session without memberships.
    pub(crate) fn take_answers(&mut self, session: u32, format: Format) -> Vec<Span> {
        let Some(due) = self.due_mut(session).copied() else {
            return Vec::new();
        };
        let mut answers = Joined::default();
        match due {
            Due::Heavy { index, .. } => {
                self.join_heavy(&self.heavy[index as usize], format, &mut answers);
            }
            Due::Answers { span, .. } if !span.is_empty() => answers.spans.push(span),
            Due::Answers { .. } | Due::Channel { .. } => {}
        }
        self.forget(session);
        answers.spans
    }

    /// Drops all outstanding ranges of the session, because another session may get its index within the turn.
    pub(crate) fn forget(&mut self, session: u32) {
        match self.due_mut(session) {
            Some(&mut Due::Heavy { index, .. }) => self.heavy[index as usize].clear(),
            Some(due) => *due = Due::nothing(session),
            None => {}
        }
    }

    /// The heavy due of a session. A small due is converted.
    pub(super) fn heavy(&mut self, session: u32) -> &mut HeavyDue {
        if self.mark(session) == 0 {
            self.list(Due::nothing(session));
        }
        let entry = self.marks[session as usize] as usize - 1;
        let small = match self.due[entry] {
            Some(Due::Heavy { index, .. }) => return &mut self.heavy[index as usize],
            small => small,
        };
        if self.heavy.len() == self.heavy_count {
            self.heavy.push(HeavyDue::default());
        }
        let index = self.heavy_count;
        self.heavy_count += 1;
        self.due[entry] = Some(Due::Heavy {
            session,
            index: index as u32,
        });
        let heavy = &mut self.heavy[index];
        match small {
            Some(Due::Channel { id, since, .. }) => heavy.channels.push((id, since)),
            Some(Due::Answers { span, .. }) if !span.is_empty() => heavy.answers.push(span),
            _ => {}
        }
        heavy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_due_stays_small() {
        assert_eq!(size_of::<Option<Due>>(), 24);
    }
}

//! Messages published to names in this turn, and answers to single sessions.

use smallvec::SmallVec;

use super::Hub;
use super::due::Due;
use super::span::append;
use crate::effect::{Format, Span};
use crate::membership::ChannelId;

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
}

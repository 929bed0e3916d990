//! Messages with more names than can take effect in one turn.
//!
//! Such a message is copied, and its names take effect in pieces, each in a turn that its session has paid for. Later messages of the
//! session wait. A piece is handled like a separate message, with the rules of that moment. Only the acknowledgement is for the whole
//! message.

use std::ops::Range;

use crate::entry::PendingReplyId;
use crate::message::{Event, Message, Position, Presence, Record, RecordBulk, Rpc};
use crate::table;

/// Names that take effect in one turn: about two milliseconds.
const PIECE_NAMES: usize = 1_024;

/// The same for names of records, each of which is found or created at its owner, read and answered.
const PIECE_RECORDS: usize = 512;

/// The effect of a message on its names.
#[derive(Clone, Copy, Debug)]
enum BulkAction {
    SubscribeEvents,
    UnsubscribeEvents,
    SubscribePatterns,
    UnsubscribePatterns,
    Provide,
    Unprovide,
    SubscribeUsers,
    UnsubscribeUsers,
    QueryUsers,
    Records(RecordBulk),
}

impl BulkAction {
    fn piece_names(self) -> usize {
        match self {
            Self::Records(_) => PIECE_RECORDS,
            _ => PIECE_NAMES,
        }
    }
}

/// A message of many names of which a part has taken effect.
#[derive(Debug)]
pub(crate) struct LongBulk {
    copy: Copied,
    /// The names before this index have taken effect.
    next: usize,
    progress: Progress,
    /// Whether the session's next message has arrived and waits.
    pub(crate) has_waiting: bool,
}

/// The handler of a piece sees this of the whole message.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// No names follow.
    pub(crate) is_last: bool,
    /// The pending reply that acknowledges the message when all pieces are done.
    pub(crate) reply: Option<PendingReplyId>,
}

/// The message, independent of the text that it was decoded from.
#[derive(Debug)]
struct Copied {
    kind: BulkAction,
    correlation: Option<Box<str>>,
    /// All names, concatenated.
    text: Box<str>,
    /// Where each name ends in the text.
    ends: Box<[u32]>,
    /// The positions from which events are resumed, by the indexes of their names.
    positions: Box<[(usize, Option<Position>)]>,
}

impl LongBulk {
    /// A copy of the message, if it has more names than a piece and at most `names_max`.
    pub(crate) fn of(message: &Message<'_>, names_max: usize, seed: u64) -> Option<Box<Self>> {
        let (kind, names, correlation) = parts(message)?;
        if names.len() <= kind.piece_names() || names.len() > names_max {
            return None;
        }
        let mut text = String::with_capacity(names.iter().map(|name| name.len()).sum());
        let mut ends = Vec::with_capacity(names.len());
        for name in names {
            text.push_str(name);
            ends.push(u32::try_from(text.len()).ok()?);
        }
        let copy = Copied {
            kind,
            correlation: correlation.map(Box::from),
            text: text.into(),
            ends: ends.into(),
            positions: positions(message, names, seed),
        };
        Some(Box::new(Self {
            copy,
            next: 0,
            progress: Progress::default(),
            has_waiting: false,
        }))
    }

    /// All names.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.copy.names(0..self.copy.ends.len())
    }

    /// The action and the correlation, if the message is about records.
    pub(crate) fn of_records(&self) -> Option<(RecordBulk, Option<&str>)> {
        match self.copy.kind {
            BulkAction::Records(action) => Some((action, self.copy.correlation.as_deref())),
            _ => None,
        }
    }

    /// Bytes that it keeps in memory.
    pub(crate) fn kept_bytes(&self) -> usize {
        let Copied {
            text,
            ends,
            positions,
            ..
        } = &self.copy;
        size_of::<Self>() + text.len() + size_of_val(&**ends) + size_of_val(&**positions)
    }

    /// The next names as a message.
    pub(crate) fn piece(&mut self) -> (Message<'_>, &mut Progress) {
        let range = self.range();
        self.progress.is_last = range.end == self.copy.ends.len();
        (self.copy.message(range), &mut self.progress)
    }

    /// Notes that the piece has taken effect. Returns whether it was the last one.
    pub(crate) fn advance(&mut self) -> bool {
        self.next = self.range().end;
        self.next == self.copy.ends.len()
    }

    /// The pending reply that acknowledges the message.
    pub(crate) fn reply(&self) -> Option<PendingReplyId> {
        self.progress.reply
    }

    fn range(&self) -> Range<usize> {
        let end = self.next + self.copy.kind.piece_names();
        self.next..self.copy.ends.len().min(end)
    }
}

impl Copied {
    fn names(&self, range: Range<usize>) -> Vec<&str> {
        let mut start = match range.start.checked_sub(1) {
            Some(before) => self.ends[before] as usize,
            None => 0,
        };
        let ends = self.ends[range].iter();
        let name = |end: &u32| {
            let name = &self.text[start..*end as usize];
            start = *end as usize;
            name
        };
        ends.map(name).collect()
    }

    fn message(&self, range: Range<usize>) -> Message<'_> {
        let correlation = self.correlation.as_deref();
        let names = self.names(range.clone());
        match self.kind {
            BulkAction::SubscribeEvents => {
                let start = self
                    .positions
                    .partition_point(|(index, _)| *index < range.start);
                let end = self
                    .positions
                    .partition_point(|(index, _)| *index < range.end);
                let position = |(index, position): &(usize, Option<Position>)| {
                    (names[*index - range.start], *position)
                };
                let positions = self.positions[start..end].iter().map(position).collect();
                Message::Event(Event::Subscribe {
                    names,
                    correlation,
                    positions,
                })
            }
            BulkAction::UnsubscribeEvents => {
                Message::Event(Event::Unsubscribe { names, correlation })
            }
            BulkAction::SubscribePatterns => Message::Event(Event::SubscribePatterns {
                patterns: names,
                correlation,
            }),
            BulkAction::UnsubscribePatterns => Message::Event(Event::UnsubscribePatterns {
                patterns: names,
                correlation,
            }),
            BulkAction::Provide => Message::Rpc(Rpc::Provide { names, correlation }),
            BulkAction::Unprovide => Message::Rpc(Rpc::Unprovide { names, correlation }),
            BulkAction::SubscribeUsers => {
                Message::Presence(Presence::Subscribe { names, correlation })
            }
            BulkAction::UnsubscribeUsers => {
                Message::Presence(Presence::Unsubscribe { names, correlation })
            }
            BulkAction::QueryUsers => Message::Presence(Presence::Query { names, correlation }),
            BulkAction::Records(action) => Message::Record(Record::Bulk {
                action,
                names,
                correlation,
            }),
        }
    }
}

fn parts<'m, 'a>(message: &'m Message<'a>) -> Option<(BulkAction, &'m [&'a str], Option<&'a str>)> {
    let (kind, names, correlation) = match message {
        Message::Event(Event::Subscribe {
            names, correlation, ..
        }) => (BulkAction::SubscribeEvents, names, correlation),
        Message::Event(Event::Unsubscribe { names, correlation }) => {
            (BulkAction::UnsubscribeEvents, names, correlation)
        }
        Message::Event(Event::SubscribePatterns {
            patterns,
            correlation,
        }) => (BulkAction::SubscribePatterns, patterns, correlation),
        Message::Event(Event::UnsubscribePatterns {
            patterns,
            correlation,
        }) => (BulkAction::UnsubscribePatterns, patterns, correlation),
        Message::Rpc(Rpc::Provide { names, correlation }) => {
            (BulkAction::Provide, names, correlation)
        }
        Message::Rpc(Rpc::Unprovide { names, correlation }) => {
            (BulkAction::Unprovide, names, correlation)
        }
        Message::Presence(Presence::Subscribe { names, correlation }) => {
            (BulkAction::SubscribeUsers, names, correlation)
        }
        Message::Presence(Presence::Unsubscribe { names, correlation }) => {
            (BulkAction::UnsubscribeUsers, names, correlation)
        }
        Message::Presence(Presence::Query { names, correlation }) => {
            (BulkAction::QueryUsers, names, correlation)
        }
        Message::Record(Record::Bulk {
            action,
            names,
            correlation,
        }) => (BulkAction::Records(*action), names, correlation),
        _ => return None,
    };
    Some((kind, names, *correlation))
}

/// The positions of a message that resumes events, by the indexes of their names.
fn positions(message: &Message<'_>, names: &[&str], seed: u64) -> Box<[(usize, Option<Position>)]> {
    let positions = match message {
        Message::Event(Event::Subscribe { positions, .. }) if !positions.is_empty() => positions,
        _ => return Box::default(),
    };
    let mut by_name = table::map(seed);
    by_name.extend(positions.iter().copied());
    let indexed = names.iter().enumerate();
    indexed
        .filter_map(|(index, name)| Some((index, *by_name.get(name)?)))
        .collect()
}

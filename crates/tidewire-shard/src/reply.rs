//! The messages that a task of the front receives in a session without a socket.
//!
//! Each message of the engine for such sessions is copied once, into the [`ReplyLog`] of the turn. The sessions that get it share the copy.

use std::sync::Arc;

use tidewire_core::attachments::Attachments;
use tidewire_core::binary::Binary;
use tidewire_core::effect::Span;
use tidewire_core::message::{
    Auth, Connection, Event, EventAction, Message, Position, Presence, PresenceAction, Query,
    QueryReason, Reason, Record, RecordAction, RecordBulk, Refusal, Rpc, RpcAction, Tag,
    WireVersion,
};

use super::request::Text;

/// After a turn with more replies, the memory of the log shrinks to this many.
const REPLIES_KEPT_MAX: usize = 4096;

/// A message of the engine for a task of the front, as far as HTTP requests and streams use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedReply {
    /// The answer to a ping.
    Pong,
    /// The login is accepted.
    LoggedIn {
        /// Data of the auth handler for the client, as JSON.
        data: Option<Text>,
    },
    /// The login is refused.
    LoginRefused,
    /// The peer must not come back.
    Rejected,
    /// A publication of another session.
    Publication {
        /// The event.
        name: Text,
        /// JSON.
        data: Option<Text>,
        /// The payload, if it is bytes.
        binary: Option<Binary>,
        /// The attachments of the JSON.
        attachments: Option<Attachments>,
        /// Its number, if the event has history.
        offset: Option<u64>,
    },
    /// The publications of an event that follow begin behind this position.
    Position {
        /// The event.
        name: Text,
        /// The position.
        position: Position,
    },
    /// Publications are missing, because the history does not reach back to the requested position.
    HistoryGap {
        /// The event.
        name: Text,
        /// Number of missing publications, if that is known.
        missed: Option<u32>,
        /// The position of the first publication that follows.
        first: Option<Position>,
    },
    /// The session has missed publications, because its task was slow.
    Gap {
        /// The event.
        name: Text,
        /// Number of missed publications.
        missed: u32,
    },
    /// The same for the publications of a pattern.
    PatternGap {
        /// The pattern.
        pattern: Text,
        /// Number of missed publications.
        missed: u32,
    },
    /// A refused request about events.
    EventRefused(OwnedRefusal<EventAction>),
    /// The answer to [`super::request::OwnedRequest::Read`].
    Read {
        /// The record.
        name: Text,
        /// Its version.
        version: WireVersion,
        /// Its value, as JSON.
        data: Text,
    },
    /// The answer to [`super::request::OwnedRequest::Head`].
    Head {
        /// The record.
        name: Text,
        /// Its version, -1 if it does not exist.
        version: WireVersion,
    },
    /// The session has deleted a record.
    DeleteDone {
        /// The record.
        name: Text,
    },
    /// A write is on disk, or records were loaded again.
    RequestDone {
        /// As in the request.
        correlation: Option<Text>,
    },
    /// The answer to [`super::request::OwnedRequest::Fetch`].
    Fetched {
        /// The record.
        name: Text,
        /// Its state and value; `None` if it does not exist.
        state: Option<(Tag, Text)>,
    },
    /// The answer to [`super::request::OwnedRequest::Put`]: done, and on disk.
    Stored {
        /// Whether the record existed before.
        existed: bool,
        /// Its new state; `None` if it is gone.
        tag: Option<Tag>,
    },
    /// The answer to [`super::request::OwnedRequest::Commit`]: done, and on disk.
    Committed {
        /// JSON: an array with the new state of each record.
        data: Text,
    },
    /// The answer to [`super::request::OwnedRequest::Put`] or [`super::request::OwnedRequest::Commit`]: nothing was done, because a record is
    /// in another state.
    PreconditionFailed {
        /// The record.
        name: Text,
        /// Its state; `None` if it does not exist.
        tag: Option<Tag>,
    },
    /// Another session has changed a record. The value is not copied, because streams fetch it when their client reads.
    Changed {
        /// The record.
        name: Text,
    },
    /// Another session has deleted a record, and the subscription of it has ended.
    Deleted {
        /// The record.
        name: Text,
    },
    /// A refused request about records.
    RecordRefused(OwnedRefusal<RecordAction>),
    /// The result of a call.
    CallDone {
        /// As in the request.
        correlation: Text,
        /// JSON.
        data: Option<Text>,
    },
    /// The provider's error.
    CallFailed {
        /// As in the request.
        correlation: Text,
        /// JSON.
        data: Option<Text>,
    },
    /// A refused call.
    CallRefused(OwnedRefusal<RpcAction>),
    /// The answer to [`super::request::OwnedRequest::QueryAllUsers`].
    AllUsers {
        /// The users that are online.
        names: Vec<Text>,
    },
    /// The answer to [`super::request::OwnedRequest::QueryUsers`].
    Users {
        /// As in the request.
        correlation: Option<Text>,
        /// A JSON object of booleans by user.
        data: Text,
    },
    /// A refused request about presence.
    PresenceRefused(OwnedRefusal<PresenceAction>),
    /// The answer to [`super::request::OwnedRequest::Query`].
    QueryResult {
        /// A JSON object.
        data: Text,
    },
    /// The whole result of [`super::request::OwnedRequest::FollowQuery`].
    QuerySnapshot {
        /// The key of its changes.
        key: Text,
        /// A JSON object.
        data: Text,
    },
    /// Changes of a result.
    QueryChanged {
        /// The key of the result.
        key: Text,
        /// A JSON array.
        data: Text,
    },
    /// A refused query.
    QueryRefused {
        /// Why.
        reason: QueryReason,
        /// A JSON object.
        data: Text,
    },
    /// A message that no task uses, such as the acknowledgement of a subscription.
    Other,
}

/// A refusal that owns its texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedRefusal<A> {
    reason: Reason,
    action: A,
    name: Option<Text>,
    correlation: Option<Text>,
    write_ack: bool,
    version: Option<WireVersion>,
    data: Option<Text>,
}

impl<A: Copy> OwnedRefusal<A> {
    /// The refusal.
    #[must_use]
    pub fn refusal(&self) -> Refusal<'_, A> {
        Refusal {
            reason: self.reason,
            action: self.action,
            name: self.name.as_deref(),
            correlation: self.correlation.as_deref(),
            write_ack: self.write_ack,
            version: self.version,
            data: self.data.as_deref(),
        }
    }
}

/// Copies texts and counts their bytes.
#[derive(Debug, Default)]
struct Copier {
    bytes: usize,
}

impl Copier {
    fn text(&mut self, text: &str) -> Text {
        self.bytes += text.len();
        text.into()
    }

    fn optional(&mut self, text: Option<&str>) -> Option<Text> {
        text.map(|text| self.text(text))
    }

    /// Bytes are shared, and count as if they were copied.
    fn binary(&mut self, binary: Option<&Binary>) -> Option<Binary> {
        self.bytes += binary.map_or(0, Binary::size);
        binary.cloned()
    }

    /// The same for attachments.
    fn attachments(&mut self, attachments: Option<&Attachments>) -> Option<Attachments> {
        self.bytes += attachments.map_or(0, Attachments::size);
        attachments.cloned()
    }

    fn refusal<A: Copy>(&mut self, refusal: &Refusal<'_, A>) -> OwnedRefusal<A> {
        OwnedRefusal {
            reason: refusal.reason,
            action: refusal.action,
            name: self.optional(refusal.name),
            correlation: self.optional(refusal.correlation),
            write_ack: refusal.write_ack,
            version: refusal.version,
            data: self.optional(refusal.data),
        }
    }

    fn reply(&mut self, message: &Message<'_>) -> OwnedReply {
        match message {
            Message::Connection(Connection::Pong) => OwnedReply::Pong,
            Message::Connection(Connection::Reject) => OwnedReply::Rejected,
            Message::Auth(Auth::Successful { data }) => OwnedReply::LoggedIn {
                data: self.optional(*data),
            },
            Message::Auth(
                Auth::Unsuccessful { .. } | Auth::TooManyAttempts | Auth::InvalidMessageData,
            ) => OwnedReply::LoginRefused,
            Message::Event(event) => self.event(event),
            Message::Record(record) => self.record(record),
            Message::Rpc(Rpc::Response { call, data }) => OwnedReply::CallDone {
                correlation: self.text(call.correlation),
                data: self.optional(*data),
            },
            Message::Rpc(Rpc::RequestError { call, data }) => OwnedReply::CallFailed {
                correlation: self.text(call.correlation),
                data: self.optional(*data),
            },
            Message::Rpc(Rpc::Error(refusal)) => OwnedReply::CallRefused(self.refusal(refusal)),
            Message::Presence(Presence::QueryAllResponse { names }) => OwnedReply::AllUsers {
                names: names.iter().map(|name| self.text(name)).collect(),
            },
            Message::Presence(Presence::QueryResponse { correlation, data }) => OwnedReply::Users {
                correlation: self.optional(*correlation),
                data: self.text(data),
            },
            Message::Presence(Presence::Error(refusal)) => {
                OwnedReply::PresenceRefused(self.refusal(refusal))
            }
            Message::Query(Query::Result { data, .. }) => OwnedReply::QueryResult {
                data: self.text(data),
            },
            Message::Query(Query::Snapshot { key, data, .. }) => OwnedReply::QuerySnapshot {
                key: self.text(key),
                data: self.text(data),
            },
            Message::Query(Query::Changed { key, data }) => OwnedReply::QueryChanged {
                key: self.text(key),
                data: self.text(data),
            },
            Message::Query(Query::Error { reason, data, .. }) => OwnedReply::QueryRefused {
                reason: *reason,
                data: self.text(data),
            },
            _ => OwnedReply::Other,
        }
    }

    fn event(&mut self, event: &Event<'_>) -> OwnedReply {
        match event {
            Event::Publication(publication) => OwnedReply::Publication {
                name: self.text(publication.name),
                data: self.optional(publication.data),
                binary: self.binary(publication.binary()),
                attachments: self.attachments(publication.attachments()),
                offset: publication.offset(),
            },
            Event::Position { name, position } => OwnedReply::Position {
                name: self.text(name),
                position: *position,
            },
            Event::HistoryGap {
                name,
                missed,
                first,
            } => OwnedReply::HistoryGap {
                name: self.text(name),
                missed: *missed,
                first: *first,
            },
            Event::Gap { name, missed } => OwnedReply::Gap {
                name: self.text(name),
                missed: *missed,
            },
            Event::PatternGap { pattern, missed } => OwnedReply::PatternGap {
                pattern: self.text(pattern),
                missed: *missed,
            },
            Event::Error(refusal) => OwnedReply::EventRefused(self.refusal(refusal)),
            _ => OwnedReply::Other,
        }
    }

    fn record(&mut self, record: &Record<'_>) -> OwnedReply {
        match record {
            Record::ReadResponse {
                name,
                version,
                data,
                ..
            } => OwnedReply::Read {
                name: self.text(name),
                version: *version,
                data: self.text(data),
            },
            Record::HeadResponse { name, version } => OwnedReply::Head {
                name: self.text(name),
                version: *version,
            },
            Record::DeleteSuccess { name } => OwnedReply::DeleteDone {
                name: self.text(name),
            },
            Record::WriteAck { correlation, .. }
            | Record::Ack {
                action: RecordBulk::Notify,
                correlation,
                ..
            } => OwnedReply::RequestDone {
                correlation: self.optional(*correlation),
            },
            Record::Fetched { name, state, .. } => OwnedReply::Fetched {
                name: self.text(name),
                state: state.map(|(tag, data)| (tag, self.text(data))),
            },
            Record::Stored { existed, tag, .. } => OwnedReply::Stored {
                existed: *existed,
                tag: *tag,
            },
            Record::Committed { data, .. } => OwnedReply::Committed {
                data: self.text(data),
            },
            Record::PreconditionFailed { name, tag, .. } => OwnedReply::PreconditionFailed {
                name: self.text(name),
                tag: *tag,
            },
            Record::Write(write, _) => OwnedReply::Changed {
                name: self.text(write.name),
            },
            Record::Deleted { name } => OwnedReply::Deleted {
                name: self.text(name),
            },
            Record::Error(refusal) => OwnedReply::RecordRefused(self.refusal(refusal)),
            _ => OwnedReply::Other,
        }
    }
}

/// Replies that a task gets at once, in order. Sessions that get the same replies share them.
#[derive(Clone, Debug, Default)]
pub struct Replies {
    list: Arc<[Arc<OwnedReply>]>,
    bytes: usize,
}

impl Replies {
    /// The replies.
    pub fn iter(&self) -> impl Iterator<Item = &OwnedReply> {
        self.list.iter().map(|reply| &**reply)
    }

    /// The memory that they use.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The replies of one turn. For the engine it is a log like that of an encoding: a reply is a range of as many bytes as it uses of the
/// memory.
#[derive(Debug, Default)]
pub(crate) struct ReplyLog {
    /// Each reply with the end of its range.
    replies: Vec<(u64, Arc<OwnedReply>)>,
    /// The start of the turn, and the end of the last range.
    start: u64,
    end: u64,
}

impl ReplyLog {
    /// Appends a copy of the message, and returns its range.
    pub(crate) fn append(&mut self, message: &Message<'_>) -> Span {
        let mut copier = Copier::default();
        let reply = copier.reply(message);
        let start = self.end;
        self.end += (size_of::<OwnedReply>() + copier.bytes) as u64;
        self.replies.push((self.end, Arc::new(reply)));
        Span {
            start,
            end: self.end,
        }
    }

    /// The replies in these ranges of the turn. A range begins and ends between replies.
    pub(crate) fn replies(&self, spans: &[Span]) -> Replies {
        let until = |offset: u64| self.replies.partition_point(|(end, _)| *end <= offset);
        let ranges = spans.iter().map(|span| until(span.start)..until(span.end));
        let found = ranges.flat_map(|range| &self.replies[range]);
        Replies {
            list: found.map(|(_, reply)| Arc::clone(reply)).collect(),
            bytes: spans.iter().map(|span| span.len() as usize).sum(),
        }
    }

    /// Memory that its replies use.
    pub(crate) fn bytes(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Forgets the turn. Its replies must have been passed on.
    pub(crate) fn begin_turn(&mut self) {
        self.start = self.end;
        self.replies.clear();
        self.replies.shrink_to(REPLIES_KEPT_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publication(name: &str) -> OwnedReply {
        OwnedReply::Publication {
            name: name.into(),
            data: Some("1".into()),
            binary: None,
            attachments: None,
            offset: None,
        }
    }

    #[test]
    fn ranges_hold_the_replies_of_the_turn() {
        let mut log = ReplyLog::default();
        let append = |log: &mut ReplyLog, name| {
            log.append(&Message::Event(Event::publication(name, Some("1"))))
        };
        let [first, second, third] = ["a", "bb", "ccc"].map(|name| append(&mut log, name));
        assert_eq!(second.len() as usize, size_of::<OwnedReply>() + 3);
        let joined = Span {
            start: first.start,
            end: second.end,
        };
        let found = log.replies(&[joined]);
        let expected = ["a", "bb"].map(publication);
        assert!(found.iter().eq(&expected));
        assert_eq!(found.bytes(), (first.len() + second.len()) as usize);
        let apart = log.replies(&[first, third]);
        assert!(apart.iter().eq(&["a", "ccc"].map(publication)));
        log.begin_turn();
        assert_eq!(log.bytes(), 0);
        let next = append(&mut log, "d");
        assert_eq!(next.start, third.end);
        assert!(log.replies(&[next]).iter().eq(&[publication("d")]));
        assert_eq!(log.bytes(), next.len() as usize);
        assert!(found.iter().eq(&expected), "what a session has stays");
    }

    #[test]
    fn a_refusal_keeps_all_its_fields() {
        let refusal = Refusal {
            reason: Reason::VersionExists,
            action: RecordAction::Patch,
            name: Some("r"),
            correlation: Some("7"),
            write_ack: true,
            version: Some(3),
            data: Some("{}"),
        };
        let mut copier = Copier::default();
        let reply = copier.reply(&Message::Record(Record::Error(refusal)));
        let OwnedReply::RecordRefused(owned) = reply else {
            panic!("{reply:?}");
        };
        assert_eq!(owned.refusal(), refusal);
        assert_eq!(copier.bytes, 4);
    }
}

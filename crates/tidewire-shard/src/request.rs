//! The messages that a task of the front sends in a session without a socket.
//!
//! A message of the engine refers to texts that end with the turn. These are the messages of HTTP requests and streams, which own their
//! texts, so that they can wait in a mailbox. [`OwnedRequest::message`] is the engine's message, and no bytes are decoded for it.

use tidewire_core::attachments::Attachments;
use tidewire_core::binary::Binary;
use tidewire_core::message::{
    Auth, Call, Change, Connection, Event, Message, Names, Only, Position, Presence, Publication,
    Query, Record, RecordBulk, Rpc, WireVersion, Write,
};
use tidewire_core::trace::Trace;

/// A text of a request.
pub type Text = Box<str>;

/// The correlation id of requests whose answers name their record.
const NO_CORRELATION: &str = "0";

/// A message from a task to its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedRequest {
    /// Logs in.
    LogIn {
        /// The credentials, a JSON object.
        data: Text,
    },
    /// Gets a [`super::reply::OwnedReply::Pong`] after the answers to the messages before it, unless these wait.
    Ping,
    /// Publishes an event.
    Publish {
        /// The event.
        name: Text,
        /// JSON.
        data: Option<Text>,
        /// The payload, if it is bytes.
        binary: Option<Binary>,
        /// The attachments of the JSON.
        attachments: Option<Attachments>,
        /// The trace that the publication continues.
        trace: Option<Trace>,
    },
    /// Subscribes to events.
    SubscribeEvents {
        /// The events, each with the position up to which the peer has it, if any.
        events: Vec<(Text, Option<Position>)>,
    },
    /// Unsubscribes from an event.
    UnsubscribeEvent {
        /// The event.
        name: Text,
    },
    /// Subscribes to patterns of events.
    SubscribePatterns {
        /// The patterns.
        patterns: Vec<Text>,
    },
    /// Subscribes to records.
    SubscribeRecords {
        /// The records.
        names: Vec<Text>,
    },
    /// Reads a record; a missing one is an error.
    Read {
        /// The record.
        name: Text,
    },
    /// Reads the version of a record.
    Head {
        /// The record.
        name: Text,
    },
    /// Deletes a record.
    Delete {
        /// The record.
        name: Text,
    },
    /// Reads a record with its state.
    Fetch {
        /// The record.
        name: Text,
    },
    /// Replaces or removes a record if it is in a certain state.
    Put {
        /// The record.
        name: Text,
        /// The state.
        only: Only,
        /// JSON; `None` to remove the record.
        data: Option<Text>,
    },
    /// Checks, replaces and removes several records in one step.
    Commit {
        /// The records.
        names: Vec<Text>,
        /// JSON: an array with an operation for each name.
        data: Text,
    },
    /// Writes a record, and creates it if it is missing. The answer is sent when the write is on disk.
    Write {
        /// The record.
        name: Text,
        /// The path in the record; `None` for the whole value.
        path: Option<Text>,
        /// JSON.
        data: Text,
        /// The version that the write expects to make, or -1.
        version: WireVersion,
        /// For the answer.
        correlation: Text,
    },
    /// Loads records again from the store.
    Notify {
        /// The records.
        names: Vec<Text>,
        /// For the answer.
        correlation: Text,
    },
    /// Calls an rpc.
    Call {
        /// The rpc.
        name: Text,
        /// JSON.
        data: Option<Text>,
        /// For the answer.
        correlation: Text,
    },
    /// Evaluates a query.
    Query {
        /// The collection.
        collection: Text,
        /// The query, as JSON.
        query: Text,
        /// Whether all selected records are counted.
        counts: bool,
        /// Whether the answer says how the records were found.
        explains: bool,
    },
    /// Subscribes to the result of a query. A session has at most one of these subscriptions.
    FollowQuery {
        /// The collection.
        collection: Text,
        /// The query, as JSON.
        query: Text,
    },
    /// Asks which users are online.
    QueryAllUsers,
    /// Asks which of these users are online.
    QueryUsers {
        /// The users.
        names: Vec<Text>,
        /// For the answer.
        correlation: Text,
    },
}

impl OwnedRequest {
    /// The message for the engine.
    #[must_use]
    pub fn message(&self) -> Message<'_> {
        match self {
            Self::LogIn { data } => Message::Auth(Auth::Request { data: Some(data) }),
            Self::Ping => Message::Connection(Connection::Ping),
            Self::Publish {
                name,
                data,
                binary,
                attachments,
                trace,
            } => Message::Event(Event::Publication(
                Publication::new(name, data.as_deref(), None, *trace)
                    .with_binary(binary.clone())
                    .with_attachments(attachments.clone()),
            )),
            Self::SubscribeEvents { events } => Message::Event(Event::Subscribe {
                names: events.iter().map(|(name, _)| &**name).collect(),
                correlation: None,
                positions: events.iter().map(|(name, at)| (&**name, *at)).collect(),
            }),
            Self::UnsubscribeEvent { name } => Message::Event(Event::Unsubscribe {
                names: vec![&**name],
                correlation: None,
            }),
            Self::SubscribePatterns { patterns } => Message::Event(Event::SubscribePatterns {
                patterns: borrowed(patterns),
                correlation: None,
            }),
            Self::Call {
                name,
                data,
                correlation,
            } => Message::Rpc(Rpc::Request {
                call: Call { name, correlation },
                data: data.as_deref(),
                requestor_name: None,
                requestor_data: None,
            }),
            Self::QueryAllUsers => Message::Presence(Presence::QueryAll),
            Self::QueryUsers { names, correlation } => Message::Presence(Presence::Query {
                names: borrowed(names),
                correlation: Some(correlation),
            }),
            Self::SubscribeRecords { names } => Message::Record(Record::Bulk {
                action: RecordBulk::Subscribe,
                names: borrowed(names),
                correlation: None,
            }),
            Self::Notify { names, correlation } => Message::Record(Record::Bulk {
                action: RecordBulk::Notify,
                names: borrowed(names),
                correlation: Some(correlation),
            }),
            Self::Query {
                collection,
                query,
                counts,
                explains,
            } => Message::Query(Query::Read {
                collection,
                query,
                correlation: None,
                counts: *counts,
                explains: *explains,
            }),
            Self::FollowQuery { collection, query } => Message::Query(Query::Subscribe {
                collection,
                query,
                correlation: Some(NO_CORRELATION),
            }),
            Self::Read { name } => Message::Record(Record::Read { name }),
            Self::Head { name } => Message::Record(Record::Head { name }),
            Self::Delete { name } => Message::Record(Record::Delete { name }),
            Self::Fetch { name } => Message::Record(Record::Fetch {
                name,
                correlation: NO_CORRELATION,
            }),
            Self::Put { name, only, data } => Message::Record(Record::Put {
                name,
                correlation: NO_CORRELATION,
                only: *only,
                data: data.as_deref(),
            }),
            Self::Commit { names, data } => Message::Record(Record::Commit {
                names: borrowed(names),
                correlation: NO_CORRELATION,
                data: Some(data),
            }),
            Self::Write {
                name,
                path,
                data,
                version,
                correlation,
            } => {
                let write = Write {
                    name,
                    version: *version,
                    correlation: Some(correlation),
                    write_ack: true,
                    key: None,
                };
                let data = Some(&**data);
                let change = match path.as_deref() {
                    Some(path) => Change::CreateAndPatch {
                        path: Some(path),
                        data,
                    },
                    None => Change::CreateAndUpdate { data },
                };
                Message::Record(Record::Write(write, change))
            }
        }
    }

    /// Bytes of its texts.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let optional = |text: &Option<Text>| text.as_ref().map_or(0, |text| text.len());
        let all = |texts: &[Text]| texts.iter().map(|text| text.len()).sum::<usize>();
        match self {
            Self::Ping | Self::QueryAllUsers => 0,
            Self::Query {
                collection, query, ..
            }
            | Self::FollowQuery { collection, query } => collection.len() + query.len(),
            Self::LogIn { data: text }
            | Self::UnsubscribeEvent { name: text }
            | Self::Read { name: text }
            | Self::Head { name: text }
            | Self::Delete { name: text }
            | Self::Fetch { name: text } => text.len(),
            Self::Publish {
                name,
                data,
                binary,
                attachments,
                ..
            } => {
                let binary = binary.as_ref().map_or(0, Binary::size);
                let attachments = attachments.as_ref().map_or(0, Attachments::size);
                name.len() + optional(data) + binary + attachments
            }
            Self::Put { name, data, .. } | Self::Call { name, data, .. } => {
                name.len() + optional(data)
            }
            Self::Write {
                name, path, data, ..
            } => name.len() + optional(path) + data.len(),
            Self::Commit { names, data } => all(names) + data.len(),
            Self::SubscribeEvents { events } => events.iter().map(|(name, _)| name.len()).sum(),
            Self::SubscribePatterns { patterns: texts }
            | Self::SubscribeRecords { names: texts }
            | Self::Notify { names: texts, .. }
            | Self::QueryUsers { names: texts, .. } => all(texts),
        }
    }
}

fn borrowed(texts: &[Text]) -> Names<'_> {
    texts.iter().map(|text| &**text).collect()
}

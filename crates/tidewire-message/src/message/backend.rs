//! Messages between backends, which are programs with application logic, and the sessions that they serve. Contract: `spec/backend.md`.

use super::{Correlation, Names};
use crate::address::SessionId;
use crate::attachments::Attachments;

/// A message of a backend, to one, or of a session that a backend serves. Which fields have a meaning depends on the kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Backend<'a> {
    /// The kind.
    pub kind: BackendKind,
    /// The session that it is about.
    pub session: Option<SessionId>,
    /// A namespace, the public id of a session, or the reason of its end.
    pub name: Option<&'a str>,
    /// JSON text.
    pub data: Option<&'a str>,
    /// The number of an acknowledgement, or the correlation id of a request.
    pub correlation: Correlation<'a>,
    /// Namespaces or rooms.
    pub names: Names<'a>,
    /// Rooms whose members do not get a broadcast or an ask.
    pub except: Names<'a>,
    /// The attachments of the data.
    pub attachments: Option<Attachments>,
    /// A number of messages, backends or sessions. Of an event, the number of lost backends that it was sent to.
    pub count: u32,
    /// Milliseconds in which sessions may answer an ask.
    pub timeout: u32,
    /// Whether a broadcast or an ask stays on this node.
    pub is_local: bool,
}

impl<'a> Backend<'a> {
    /// A message without fields.
    #[must_use]
    pub fn new(kind: BackendKind) -> Self {
        Self {
            kind,
            session: None,
            name: None,
            data: None,
            correlation: None,
            names: Vec::new(),
            except: Vec::new(),
            attachments: None,
            count: 0,
            timeout: 0,
            is_local: false,
        }
    }

    /// A message about a session.
    #[must_use]
    pub fn about(kind: BackendKind, session: SessionId) -> Self {
        Self {
            session: Some(session),
            ..Self::new(kind)
        }
    }

    /// A refusal of a message of this sender.
    #[must_use]
    pub fn refusal(&self, kind: BackendKind, data: &'a str) -> Self
    where
        Self: 'a,
    {
        Self {
            session: self.session,
            data: Some(data),
            correlation: self.correlation,
            ..Self::new(kind)
        }
    }
}

macro_rules! kinds {
    ($($(#[$about:meta])* $kind:ident = $number:literal,)*) => {
        /// The kind of a message of backends. Its number is the one on the wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum BackendKind {
            $($(#[$about])* $kind = $number,)*
        }

        impl BackendKind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// The kind of a number.
            #[must_use]
            pub fn of(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$kind),)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    /// From a backend: it serves the namespaces in `names`.
    Serve = 1,
    /// The answer to `Serve`, with the same correlation id. Without one, the number of backends of the node is `count` now.
    Served = 2,
    /// To a backend: a session wants to open in the namespace `name`. The data has its handshake. If another backend had served the
    /// session, `correlation` is its public id, and `names` has its rooms. From a session: the same.
    Opened = 3,
    /// From a backend, and to the session: the session is open, with the public id `name`.
    Accept = 4,
    /// From a backend, and to the session: it is refused, with the data as the reason.
    Refuse = 5,
    /// From a session, and to its backend: an event, whose data is an array. With a correlation id its sender waits for `Answer`.
    Event = 6,
    /// From a backend, and to the session: the answer to an event.
    Answer = 7,
    /// From a backend, and to the session: an event. With a correlation id the backend waits for `Answered`.
    Send = 8,
    /// From a session, and to its backend: the answer to `Send`.
    Answered = 9,
    /// From a backend: an event for the rooms in `names`, or without rooms for all sessions of the namespace `name`. Members of the rooms
    /// in `except` do not get it, and neither does `session`.
    Broadcast = 10,
    /// From a backend: the session joins rooms.
    Join = 11,
    /// From a backend: the session leaves rooms.
    Leave = 12,
    /// From a backend: the session ends.
    End = 13,
    /// From a backend: the connection of the session ends, with its other sessions.
    EndConnection = 14,
    /// To a backend: the session has ended. `name` is the reason: `left`, `silent` or `lost`.
    Closed = 15,
    /// From a backend: it has handled `count` further messages.
    Confirm = 16,
    /// From a backend: an event as in `Broadcast`, which each session answers. The backend gets a `Response` for each answer, and `Asked` or
    /// `AskFailed` at the end, with its correlation id.
    Ask = 17,
    /// To a backend: the answer of one session to an `Ask`, or of a backend to a `Tell`.
    Response = 18,
    /// To a backend: all sessions or backends have answered, or have got a `Tell` without a timeout. `count` is their number.
    Asked = 19,
    /// From a backend: data for the other backends that serve the namespace `name`. With a timeout each of them answers with `Reply`. The
    /// backend gets a `Response` for each, and `Asked` or `AskFailed` at the end.
    Tell = 20,
    /// To a backend: data of another one. With a correlation id the other one waits for `Reply`.
    Told = 21,
    /// From a backend: the answer to `Told`.
    Reply = 22,
    /// From a backend: it ends soon, and gets no further sessions. With a session: it gets no further events of this one.
    HandOver = 23,
    /// To a backend: all sessions, or all events of the session, that it gets were sent before. The answer to `HandOver`.
    HandedOver = 24,
    /// From a backend after `HandedOver`: it has handled all messages of the session. Another backend continues.
    Release = 25,
    /// From a backend: if it is lost, the next backend gets the events of the namespaces in `names` again that it has not confirmed.
    DeliverAgain = 26,
    /// From a backend: data of the session, which the next backend gets with `Opened`.
    SetData = 27,
    /// A backend says how many messages of a shard it has received over an earlier connection.
    Received = 28,
    /// The sender has no right to send messages of backends.
    NotABackend = 100,
    /// The message can't be executed.
    InvalidCommand = 101,
    /// An `Ask` or `Tell` has ended before all sessions or backends have answered. `count` is the number of them that got it, as far as it is
    /// known.
    AskFailed = 102,
}

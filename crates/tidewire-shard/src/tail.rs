//! Live tails for operators: one line for each event that clients publish, or for each message of one session.
//!
//! A shard has no tail while no operator follows one, and then a message costs one check of a pointer. A tail keeps a limited number of
//! lines of each shard until the operator's page takes them. Further lines are lost and counted, so a slow page delays nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tidewire_core::address::SessionId;
use tidewire_core::effect::{Format, Span};
use tidewire_core::message::{
    Auth, Backend, BackendKind, Change, Connection, Event, EventBulk, Listen, Message, Presence,
    PresenceAction, Query, Record, RecordBulk, Rpc, Scope,
};
use tidewire_core::text::Name;
use tidewire_core::time::WallTime;
use tidewire_net::connection::Key;

use crate::stats::{TOPICS, topic_index};

/// Lines of one shard that wait for the page.
pub const LINES_MAX: usize = 1_000;
/// Bytes of a name in a line. The rest of a longer name is omitted.
const NAME_BYTES_MAX: usize = 256;
/// A tail whose lines were not taken for this time has ended.
const UNREAD_MS_MAX: u64 = 10_000;
/// Messages of one turn that may be messages of a followed session. Which of them it gets is known at the end of the turn.
const TURN_MESSAGES_MAX: usize = 4_096;

/// The messages that a tail follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Followed {
    /// Events that sessions of the shard publish, if their names begin with this text.
    Events(String),
    /// All messages from and to the session of a connection.
    Session(Key),
}

/// A message without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// When the turn began that handled it.
    pub at: WallTime,
    /// Whether the server sent it; otherwise it came from the session.
    pub is_sent: bool,
    /// Its topic, one of [`TOPICS`].
    pub topic: &'static str,
    /// Its action.
    pub action: &'static str,
    /// The name that it is about, or the first of them; empty if it has none.
    pub name: Box<str>,
    /// Number of further names.
    pub more: usize,
    /// Bytes of its data.
    pub bytes: usize,
    /// The user of the session, once it is logged in.
    pub user: Option<Name>,
}

/// Lines that wait for the page.
#[derive(Debug, Default)]
struct Waiting {
    lines: Vec<Line>,
    lost: u64,
}

/// A tail on one shard, shared by the shard and the page.
#[derive(Debug)]
pub struct Tail {
    followed: Followed,
    waiting: Mutex<Waiting>,
    /// When the page last took lines.
    taken: AtomicU64,
}

impl Tail {
    /// Creates a tail, for [`crate::handle::ShardHandle::follow`].
    #[must_use]
    pub fn new(followed: Followed, now: WallTime) -> Self {
        Self {
            followed,
            waiting: Mutex::default(),
            taken: AtomicU64::new(now.0),
        }
    }

    /// Takes the lines since the last call, in their order, and the number of lines that were lost.
    pub fn take(&self, now: WallTime) -> (Vec<Line>, u64) {
        self.taken.store(now.0, Ordering::Relaxed);
        let Waiting { lines, lost } = std::mem::take(&mut *self.waiting.lock());
        (lines, lost)
    }

    /// Whether the page has stopped taking lines. The shard then drops the tail.
    #[must_use]
    pub fn has_ended(&self, now: WallTime) -> bool {
        now.0.saturating_sub(self.taken.load(Ordering::Relaxed)) > UNREAD_MS_MAX
    }

    /// Ends the tail.
    pub fn end(&self) {
        self.taken.store(0, Ordering::Relaxed);
    }

    /// Adds a line, or counts it as lost.
    fn add(&self, line: impl FnOnce() -> Line) {
        let mut waiting = self.waiting.lock();
        match waiting.lines.len() < LINES_MAX {
            true => waiting.lines.push(line()),
            false => waiting.lost += 1,
        }
    }

    fn lose(&self, count: u64) {
        self.waiting.lock().lost += count;
    }

    fn is_of(&self, session: SessionId) -> bool {
        matches!(self.followed, Followed::Session(Key { index, generation })
            if (index, generation) == (session.index, session.generation))
    }

    fn follows(&self, session: SessionId, message: &Message<'_>) -> bool {
        match (&self.followed, message) {
            (Followed::Events(prefix), Message::Event(event)) => event
                .published()
                .is_some_and(|publication| publication.name.starts_with(prefix.as_str())),
            (Followed::Events(_), _) => false,
            (Followed::Session(_), _) => self.is_of(session),
        }
    }
}

/// The tails of a shard.
#[derive(Debug, Default)]
pub(crate) struct Tails {
    tails: Vec<Arc<Tail>>,
    /// The messages of this turn that a followed session may get, with their ranges in the log of their format.
    encoded: Vec<(Format, Span, Line)>,
}

impl Tails {
    pub(crate) fn add(&mut self, tail: Arc<Tail>) {
        self.tails.push(tail);
    }

    /// Notes a message from a session.
    pub(crate) fn note_received(
        &mut self,
        now: WallTime,
        session: SessionId,
        user: Option<&Name>,
        message: &Message<'_>,
    ) {
        for tail in &self.tails {
            if tail.follows(session, message) {
                tail.add(|| line(now, false, user, message));
            }
        }
    }

    /// Notes a message that was encoded for one or more sessions.
    pub(crate) fn note_encoded(&mut self, format: Format, span: Span, message: &Message<'_>) {
        let mut sessions = self.tails.iter();
        if self.encoded.len() < TURN_MESSAGES_MAX
            && sessions.any(|tail| matches!(tail.followed, Followed::Session(_)))
        {
            let line = line(WallTime::default(), true, None, message);
            self.encoded.push((format, span, line));
        }
    }

    /// Notes the ranges that a session gets. They contain `count` messages.
    pub(crate) fn note_sent(
        &mut self,
        now: WallTime,
        session: SessionId,
        format: Format,
        spans: &[Span],
        count: u64,
    ) {
        for tail in self.tails.iter().filter(|tail| tail.is_of(session)) {
            let mut found = 0;
            for (of, range, line) in &self.encoded {
                let is_in = |span: &Span| span.start <= range.start && range.end <= span.end;
                if *of == format && spans.iter().any(is_in) {
                    found += 1;
                    tail.add(|| Line {
                        at: now,
                        ..line.clone()
                    });
                }
            }
            tail.lose(count.saturating_sub(found));
        }
    }

    /// Ends a turn, and drops the tails that have ended. Returns whether some are left.
    pub(crate) fn end_turn(&mut self, now: WallTime) -> bool {
        self.encoded.clear();
        self.tails.retain(|tail| !tail.has_ended(now));
        !self.tails.is_empty()
    }
}

fn line(at: WallTime, is_sent: bool, user: Option<&Name>, message: &Message<'_>) -> Line {
    let Parts {
        action,
        name,
        more,
        bytes,
    } = parts(message);
    let end = name.floor_char_boundary(NAME_BYTES_MAX);
    Line {
        at,
        is_sent,
        topic: TOPICS[topic_index(message)],
        action,
        name: name[..end].into(),
        more,
        bytes,
        user: user.cloned(),
    }
}

/// The parts of a message that a line shows.
#[derive(Default)]
struct Parts<'a> {
    action: &'static str,
    name: &'a str,
    more: usize,
    bytes: usize,
}

impl<'a> Parts<'a> {
    fn of(action: &'static str, name: &'a str) -> Self {
        Self {
            action,
            name,
            ..Self::default()
        }
    }

    fn names(action: &'static str, names: &[&'a str]) -> Self {
        Self {
            more: names.len().saturating_sub(1),
            ..Self::of(action, names.first().copied().unwrap_or_default())
        }
    }

    fn with(self, data: Option<&str>) -> Self {
        Self {
            bytes: data.map_or(0, str::len),
            ..self
        }
    }
}

fn parts<'a>(message: &Message<'a>) -> Parts<'a> {
    match message {
        Message::Connection(message) => connection(message),
        Message::Auth(message) => auth(message),
        Message::Event(message) => event(message),
        Message::Record(message) => record(message),
        Message::Rpc(message) => rpc(message),
        Message::Presence(message) => presence(message),
        Message::Query(message) => query(message),
        Message::Scope(message) => scope(message),
        Message::Backend(message) => backend(message),
        Message::UnknownTopic | Message::UnknownAction { .. } => Parts::of("unknown", ""),
    }
}

fn connection<'a>(message: &Connection<'a>) -> Parts<'a> {
    Parts::of(
        match message {
            Connection::Ping => "ping",
            Connection::Pong => "pong",
            Connection::Challenge { .. } => "challenge",
            Connection::Accept | Connection::AcceptWithin { .. } => "accept",
            Connection::Reject => "reject",
            Connection::Redirect { .. } => "redirect",
            Connection::AuthenticationTimeout => "authentication timeout",
            Connection::InvalidMessage => "invalid message",
        },
        "",
    )
}

/// The handshakes of sessions are not shown: they may have secrets.
fn backend<'a>(message: &Backend<'a>) -> Parts<'a> {
    let name = message.name.or(message.names.first().copied());
    let name = name.unwrap_or_default();
    match message.kind {
        BackendKind::Serve | BackendKind::Served => Parts::of("serve", name),
        BackendKind::DeliverAgain => Parts::of("deliver again", name),
        BackendKind::SetData => Parts::of("set data", name),
        BackendKind::Received => Parts::of("received", name),
        BackendKind::Opened => Parts::of("session opened", name),
        BackendKind::Accept => Parts::of("session accepted", name),
        BackendKind::Refuse => Parts::of("session refused", name).with(message.data),
        BackendKind::Event => Parts::of("event", name).with(message.data),
        BackendKind::Answer
        | BackendKind::Answered
        | BackendKind::Response
        | BackendKind::Reply => Parts::of("answer", name).with(message.data),
        BackendKind::Send => Parts::of("send", name).with(message.data),
        BackendKind::Broadcast => Parts::of("broadcast", name).with(message.data),
        BackendKind::Ask => Parts::of("ask", name).with(message.data),
        BackendKind::Asked => Parts::of("asked", name),
        BackendKind::Tell | BackendKind::Told => Parts::of("tell", name).with(message.data),
        BackendKind::Join => Parts::of("join", name),
        BackendKind::Leave => Parts::of("leave", name),
        BackendKind::End | BackendKind::EndConnection => Parts::of("end session", name),
        BackendKind::Closed => Parts::of("session closed", name),
        BackendKind::Confirm => Parts::of("confirm", name),
        BackendKind::HandOver | BackendKind::HandedOver => Parts::of("hand over", name),
        BackendKind::Release => Parts::of("session released", name),
        BackendKind::NotABackend | BackendKind::InvalidCommand | BackendKind::AskFailed => {
            Parts::of("refused", name).with(message.data)
        }
    }
}

fn query<'a>(message: &Query<'a>) -> Parts<'a> {
    match *message {
        Query::Read {
            collection, query, ..
        } => Parts::of("query", collection).with(Some(query)),
        Query::Subscribe {
            collection, query, ..
        } => Parts::of("query subscribe", collection).with(Some(query)),
        Query::Unsubscribe { .. } => Parts::of("query unsubscribe", ""),
        Query::Snapshot { key, data, .. } => Parts::of("query snapshot", key).with(Some(data)),
        Query::Changed { key, data } => Parts::of("query changed", key).with(Some(data)),
        Query::Result { data, .. } => Parts::of("query result", "").with(Some(data)),
        Query::Error { .. } => Parts::of("refused", ""),
    }
}

fn scope<'a>(message: &Scope<'a>) -> Parts<'a> {
    match *message {
        Scope::Join { name, state } => Parts::of("scope join", name).with(Some(state)),
        Scope::Joined { name, data } => Parts::of("scope joined", name).with(Some(data)),
        Scope::Update { name, state } => Parts::of("scope update", name).with(Some(state)),
        Scope::Leave { name } => Parts::of("scope leave", name),
        Scope::Subscribe { name } => Parts::of("scope subscribe", name),
        Scope::Unsubscribe { name } => Parts::of("scope unsubscribe", name),
        Scope::Snapshot { name, data } => Parts::of("scope snapshot", name).with(Some(data)),
        Scope::Changed { name, data } => Parts::of("scope changed", name).with(Some(data)),
        Scope::Error { name, .. } => Parts::of("refused", name),
    }
}

/// The sizes of logins are not shown: they would reveal the length of a password.
fn auth<'a>(message: &Auth<'a>) -> Parts<'a> {
    Parts::of(
        match message {
            Auth::Request { .. } => "request",
            Auth::Change { .. } => "change",
            Auth::Successful { .. } => "successful",
            Auth::Unsuccessful { .. } => "unsuccessful",
            Auth::TooManyAttempts => "too many attempts",
            Auth::InvalidMessage | Auth::InvalidMessageData => "invalid message",
        },
        "",
    )
}

fn event<'a>(message: &Event<'a>) -> Parts<'a> {
    match message {
        Event::Publication(publication) | Event::Publish { publication, .. } => {
            let parts = Parts::of("publish", publication.name).with(publication.data);
            let data_bytes = publication.data.map_or(0, str::len);
            Parts {
                bytes: parts.bytes + publication.payload_bytes() - data_bytes,
                ..parts
            }
        }
        Event::Subscribe { names, .. } => Parts::names("subscribe", names),
        Event::Unsubscribe { names, .. } => Parts::names("unsubscribe", names),
        Event::SubscribePatterns { patterns, .. } => Parts::names("subscribe pattern", patterns),
        Event::UnsubscribePatterns { patterns, .. } => {
            Parts::names("unsubscribe pattern", patterns)
        }
        Event::Ack { action, .. } => Parts::of(
            match action {
                EventBulk::Publish => "publish acknowledged",
                EventBulk::Subscribe => "subscribe acknowledged",
                EventBulk::Unsubscribe => "unsubscribe acknowledged",
                EventBulk::SubscribePatterns => "subscribe pattern acknowledged",
                EventBulk::UnsubscribePatterns => "unsubscribe pattern acknowledged",
            },
            "",
        ),
        Event::Position { name, .. } => Parts::of("position", name),
        Event::HistoryGap { name, .. } => Parts::of("history gap", name),
        Event::Gap { name, .. } => Parts::of("gap", name),
        Event::PatternGap { pattern, .. } => Parts::of("gap", pattern),
        Event::Listen(message) => listen(message),
        Event::Error(refusal) => Parts::of("refused", refusal.name.unwrap_or_default()),
    }
}

fn listen<'a>(message: &Listen<'a>) -> Parts<'a> {
    match *message {
        Listen::Listen { pattern } => Parts::of("listen", pattern),
        Listen::Unlisten { pattern } => Parts::of("unlisten", pattern),
        Listen::ListenAck { pattern } => Parts::of("listen acknowledged", pattern),
        Listen::UnlistenAck { pattern } => Parts::of("unlisten acknowledged", pattern),
        Listen::Accept { subscription, .. } => Parts::of("listen accept", subscription),
        Listen::Reject { subscription, .. } => Parts::of("listen reject", subscription),
        Listen::Found { subscription, .. } => Parts::of("subscription found", subscription),
        Listen::Removed { subscription, .. } => Parts::of("subscription removed", subscription),
        Listen::ResponseTimeout { subscription } => Parts::of("listen timeout", subscription),
        Listen::InvalidPattern { pattern } => Parts::of("invalid pattern", pattern),
        Listen::AlreadyListening { pattern } => Parts::of("already listening", pattern),
    }
}

fn record<'a>(message: &Record<'a>) -> Parts<'a> {
    match message {
        Record::Bulk { action, names, .. } => Parts::names(
            match action {
                RecordBulk::Subscribe => "subscribe",
                RecordBulk::Unsubscribe => "unsubscribe",
                RecordBulk::SubscribeCreateAndRead => "subscribe, create and read",
                RecordBulk::SubscribeAndRead => "subscribe and read",
                RecordBulk::SubscribeAndHead => "subscribe and head",
                RecordBulk::Notify => "notify",
            },
            names,
        ),
        Record::Ack { names, .. } => Parts::names("acknowledged", names),
        Record::Read { name } => Parts::of("read", name),
        Record::Fetch { name, .. } => Parts::of("read", name),
        Record::Head { name } => Parts::of("head", name),
        Record::Delete { name } => Parts::of("delete", name),
        Record::Write(write, change) => written(write.name, change),
        Record::Put { name, data, .. } => Parts::of("update", name).with(*data),
        Record::Fetched { name, state, .. } => {
            Parts::of("read response", name).with(state.map(|(_, data)| data))
        }
        Record::ReadResponse { name, data, .. } => {
            Parts::of("read response", name).with(Some(data))
        }
        Record::Stored { name, .. } | Record::WriteAck { name, .. } => {
            Parts::of("write acknowledged", name)
        }
        Record::Commit { names, data, .. } => Parts::names("transaction", names).with(*data),
        Record::Committed { data, .. } => Parts::of("transaction committed", "").with(Some(data)),
        Record::PreconditionFailed { name, .. } => Parts::of("precondition failed", name),
        Record::HeadResponse { name, .. } => Parts::of("head response", name),
        Record::HeadResponseBulk { versions } => Parts {
            more: versions.len().saturating_sub(1),
            ..Parts::of(
                "head response",
                versions.first().map_or("", |(name, _)| name),
            )
        },
        Record::DeleteSuccess { name } => Parts::of("delete acknowledged", name),
        Record::Deleted { name } => Parts::of("deleted", name),
        Record::HasProvider { name, .. } => Parts::of("provider changed", name),
        Record::Listen(message) => listen(message),
        Record::Error(refusal) => Parts::of("refused", refusal.name.unwrap_or_default()),
    }
}

fn written<'a>(name: &'a str, change: &Change<'_>) -> Parts<'a> {
    match *change {
        Change::Update { data } => Parts::of("update", name).with(data),
        Change::Patch { data, .. } => Parts::of("patch", name).with(data),
        Change::Erase { .. } => Parts::of("erase", name),
        Change::PatchMulti { data, .. } => Parts::of("patch", name).with(data),
        Change::CreateAndUpdate { data } => Parts::of("create and update", name).with(data),
        Change::CreateAndPatch { data, .. } => Parts::of("create and patch", name).with(data),
    }
}

fn rpc<'a>(message: &Rpc<'a>) -> Parts<'a> {
    match message {
        Rpc::Provide { names, .. } => Parts::names("provide", names),
        Rpc::Unprovide { names, .. } => Parts::names("unprovide", names),
        Rpc::Ack { provide: true, .. } => Parts::of("provide acknowledged", ""),
        Rpc::Ack { .. } => Parts::of("unprovide acknowledged", ""),
        Rpc::Request { call, data, .. } => Parts::of("request", call.name).with(*data),
        Rpc::Accept(call) => Parts::of("accept", call.name),
        Rpc::Reject(call) => Parts::of("reject", call.name),
        Rpc::Response { call, data } => Parts::of("response", call.name).with(*data),
        Rpc::RequestError { call, data } => Parts::of("error response", call.name).with(*data),
        Rpc::Error(refusal) => Parts::of("refused", refusal.name.unwrap_or_default()),
    }
}

fn presence<'a>(message: &Presence<'a>) -> Parts<'a> {
    match message {
        Presence::QueryAll => Parts::of("query all", ""),
        Presence::QueryAllResponse { names } => Parts::names("query response", names),
        Presence::Query { names, .. } => Parts::names("query", names),
        Presence::QueryResponse { data, .. } => Parts::of("query response", "").with(Some(data)),
        Presence::Subscribe { names, .. } => Parts::names("subscribe", names),
        Presence::Unsubscribe { names, .. } => Parts::names("unsubscribe", names),
        Presence::SubscribeAll => Parts::of("subscribe all", ""),
        Presence::UnsubscribeAll => Parts::of("unsubscribe all", ""),
        Presence::Ack { action, .. } => Parts::of(
            match action {
                PresenceAction::Subscribe | PresenceAction::SubscribeAll => {
                    "subscribe acknowledged"
                }
                _ => "unsubscribe acknowledged",
            },
            "",
        ),
        Presence::Changed { name, online, .. } => match online {
            true => Parts::of("online", name),
            false => Parts::of("offline", name),
        },
        Presence::Error(refusal) => Parts::of("refused", refusal.name.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use tidewire_core::address::Address;

    use super::*;

    const KEY: Key = Key {
        index: 3,
        generation: 1,
    };

    fn session() -> SessionId {
        SessionId {
            address: Address { node: 0, shard: 0 },
            index: KEY.index,
            generation: KEY.generation,
        }
    }

    fn tails(followed: Followed) -> (Tails, Arc<Tail>) {
        let tail = Arc::new(Tail::new(followed, WallTime(0)));
        let mut tails = Tails::default();
        tails.add(Arc::clone(&tail));
        (tails, tail)
    }

    fn publication(name: &str) -> Message<'_> {
        Message::Event(Event::publication(name, Some("[1]")))
    }

    #[test]
    fn a_page_that_takes_nothing_loses_lines_and_learns_how_many() {
        let (mut tails, tail) = tails(Followed::Events("a/".to_owned()));
        for name in ["a/1", "b/1"] {
            for _ in 0..LINES_MAX + 5 {
                tails.note_received(WallTime(1), session(), None, &publication(name));
            }
        }
        let (lines, lost) = tail.take(WallTime(2));
        assert_eq!((lines.len(), lost), (LINES_MAX, 5));
        let first = &lines[0];
        assert_eq!(
            (&*first.name, first.action, first.bytes),
            ("a/1", "publish", 3)
        );
        assert_eq!(tail.take(WallTime(3)), (Vec::new(), 0));
        assert!(tails.end_turn(WallTime(3 + UNREAD_MS_MAX)));
        assert!(
            !tails.end_turn(WallTime(4 + UNREAD_MS_MAX)),
            "its page has gone"
        );
    }

    #[test]
    fn a_session_gets_the_messages_in_its_ranges() {
        let (mut tails, tail) = tails(Followed::Session(KEY));
        let span = |start, end| Span { start, end };
        let (mine, other) = (Format(1), Format(2));
        tails.note_encoded(mine, span(0, 10), &publication("first"));
        tails.note_encoded(other, span(0, 10), &publication("other format"));
        tails.note_encoded(mine, span(10, 20), &publication("not for it"));
        tails.note_encoded(mine, span(20, 30), &publication("last"));
        let ranges = [span(0, 10), span(20, 40)];
        tails.note_sent(WallTime(5), session(), mine, &ranges, 3);
        let (lines, lost) = tail.take(WallTime(6));
        let names: Vec<&str> = lines.iter().map(|line| &*line.name).collect();
        assert_eq!(names, ["first", "last"]);
        assert_eq!(lost, 1, "the third message was not noted");
        assert!(lines.iter().all(|line| line.is_sent));
        tails.end_turn(WallTime(6));
        tails.note_sent(WallTime(7), session(), mine, &ranges, 0);
        assert_eq!(tail.take(WallTime(8)), (Vec::new(), 0));
    }

    #[test]
    fn a_long_name_is_cut_at_a_character() {
        let name = "ü".repeat(NAME_BYTES_MAX);
        let line = line(WallTime(1), false, None, &publication(&name));
        assert_eq!(line.name.len(), NAME_BYTES_MAX);
    }
}

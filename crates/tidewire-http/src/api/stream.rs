//! `GET /sse`: events and records as server-sent events.
//!
//! A stream is a session that outlives its request and coalesces changes. Each change of a record arrives at the client as a
//! whole value. The stream fetches a value only after memory for it is reserved, and sends a piece only after the kernel has
//! taken the one before. Until the value is fetched, changes of the record coalesce to its newest value.
//!
//! If the client does not read, the session's channel fills, and then the session lags like the session of a slow socket. It
//! then receives the newest value of each record. Of an event with history it receives the missed events, and of other events
//! their number.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use tidewire_core::json;
use tidewire_core::message::{EventAction, Position, Reason, RecordAction, Refusal, Tag};
use tidewire_core::text::RESERVED;
use tidewire_shard::carried_session::CarriedSession;
use tidewire_shard::outlet::Outlet;
use tidewire_shard::reply::{OwnedReply, Replies};
use tidewire_shard::request::{OwnedRequest, Text};
use tidewire_shard::share::{Caller as Holder, Refused, Standing};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::answer::{Body, HttpResponse};
use super::answer_room::{AnswerMemory, RETRY_INTERVAL, Reserved};
use super::caller::Caller;
use super::login::credentials_of_request;
use super::name::parameters;
use super::problem::Problem;
use super::stream_event::{PositionOrder, StreamEvents, StreamPayload, record_part};
use super::{Api, ApiRequest};
use crate::refusal::{RequestRefusal, RequestRefusals};

/// The path of streams.
pub(super) const PATH: &str = "/sse";
/// The methods of the path.
pub(super) const METHODS: &str = "GET, OPTIONS";

/// The stream sends something at least once in this interval, so that proxies and the session's shard do not consider it dead.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Pieces that may wait between the stream's task and its socket. All others wait in the session's channel, where the shard can
/// still take them back when the session loses a right.
const PIECES_MAX: usize = 1;
/// Limit of the events of one stream, of its patterns, and of its records.
pub(super) const NAMES_MAX: usize = 100;
/// Values that a stream fetches at the same time. With several, a slow store does not delay the values of other stores. The
/// limit bounds the memory for a client that does not read.
const FETCHES_MAX: usize = 4;
/// A stream fetches more than one value at a time only while its caller could reserve this number of further values.
const PLENTY: usize = 8;
/// How long a client may leave a piece unread while the node is short of memory. After that the stream ends. The client
/// reconnects by itself, and the id in its request tells the server what it had.
const UNREAD_TIME: Duration = Duration::from_secs(10);
/// How often the stream checks that.
const UNREAD_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes of one frame. The HTTP library holds a whole frame in memory until the client has read all of it.
const FRAME_BYTES: usize = 64 << 10;
/// If a version is this far behind the last one, the version counter has wrapped around; the state is not an old one.
const LATE_VERSIONS: i32 = 1 << 30;

/// The body of a stream's answer.
#[derive(Debug)]
pub struct EventStream {
    pieces: mpsc::Receiver<Bytes>,
    /// The rest of the piece that is being sent.
    rest: Bytes,
    outlet: Arc<Outlet>,
    _standing: Arc<Standing>,
}

impl EventStream {
    /// The next frame; `None` after the last piece.
    pub(super) fn poll_piece(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Bytes>> {
        if self.rest.is_empty() {
            match ready!(self.pieces.poll_recv(context)) {
                Some(piece) => self.rest = piece,
                None => return Poll::Ready(None),
            }
        }
        let bytes = self.rest.len().min(FRAME_BYTES);
        // The outlet reports that a piece has left when the last part of it is dropped, which includes this frame.
        let frame = match bytes < self.rest.len() {
            true => self.rest.split_to(bytes),
            false => std::mem::take(&mut self.rest),
        };
        Poll::Ready(Some(frame))
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.outlet.end_stream();
    }
}

/// The parameters of a request for a stream.
pub(super) struct StreamRequest {
    pub(super) events: Vec<String>,
    pub(super) patterns: Vec<String>,
    pub(super) records: Vec<String>,
    pub(super) ticket: Option<String>,
    /// The id of the last piece of an earlier stream, for a page that can't set the `Last-Event-ID` header.
    last_id: Option<String>,
}

impl Api {
    /// Answers a request for a stream.
    pub(super) async fn stream(&self, mut request: ApiRequest) -> HttpResponse {
        match self.try_stream(&mut request).await {
            Ok(answer) => answer,
            Err(problem) => self.refuse(problem),
        }
    }

    async fn try_stream(&self, request: &mut ApiRequest) -> Result<HttpResponse, Problem> {
        let wanted = wanted(
            request.parts.uri.query().unwrap_or(""),
            self.limits.name_bytes_max,
        )?;
        let credentials = match &wanted.ticket {
            Some(ticket) => {
                let credentials = self.tickets.take(ticket, Instant::now());
                if credentials.is_none() {
                    self.refused.count(RequestRefusal::Ticket);
                }
                credentials.ok_or(Problem::LOGIN_REFUSED)?
            }
            None => credentials_of_request(&request.parts)?,
        };
        let seat = self.streams.take(Holder::at(request.address.ip()), 1);
        let seat = seat.map_err(|refused| match refused {
            Refused::Full => {
                self.refused.count(RequestRefusal::Streams);
                Problem::BUSY
            }
            Refused::Share => {
                self.refused.count(RequestRefusal::StreamShare);
                Problem::SHARE
            }
        })?;
        let standing = Arc::new(Standing::new(seat));
        request.standing = Some(Arc::clone(&standing));
        let mut caller = self.stay(request, &credentials)?;
        let rest = logged_in(&mut caller).await?;
        let last_id = request.parts.headers.get("last-event-id");
        // An `EventSource` that reconnects by itself sends the header. The id in its URL is older: it is where the first
        // connection began.
        let known = last_id
            .and_then(|id| id.to_str().ok())
            .or(wanted.last_id.as_deref());
        let (sender, pieces) = mpsc::channel(PIECES_MAX);
        let session = caller.into_session();
        session.hand_on_to(Arc::clone(&request.outlet));
        let epoch = self.epochs.of_all(&wanted.records);
        let stream = Stream {
            session,
            sender,
            outlet: Arc::clone(&request.outlet),
            epoch,
            events: StreamEvents::new(wanted.events, known),
            patterns: wanted.patterns,
            records: records(&wanted.records, known.map(record_part), epoch),
            indexes: indexes(&wanted.records),
            memory: wanted.records.iter().map(|_| None).collect(),
            names: wanted.records,
            text: String::new(),
            text_memory: Vec::new(),
            wanted: VecDeque::new(),
            fetches: 0,
            answers: self.memory.clone(),
            caller: request.caller(),
            record_bytes_max: self.limits.record_bytes_max,
            refused: self.refused.clone(),
        };
        let keep_alive = KEEP_ALIVE_INTERVAL.min(self.limits.heartbeat_interval);
        tokio::spawn(stream.run(rest, keep_alive));
        request.outlet.begin_stream();
        let body = EventStream {
            pieces,
            rest: Bytes::new(),
            outlet: Arc::clone(&request.outlet),
            _standing: standing,
        };
        Ok(streaming(body))
    }
}

/// Parses the query string of a request for a stream.
pub(super) fn wanted(query: &str, name_bytes_max: usize) -> Result<StreamRequest, Problem> {
    let mut wanted = StreamRequest {
        events: Vec::new(),
        patterns: Vec::new(),
        records: Vec::new(),
        ticket: None,
        last_id: None,
    };
    let (mut event_count, mut pattern_count, mut record_count) = (0, 0, 0);
    for (key, value) in parameters(query).ok_or(Problem::BROKEN_QUERY)? {
        let (list, count) = match key.as_str() {
            "event" => (&mut wanted.events, &mut event_count),
            "pattern" => (&mut wanted.patterns, &mut pattern_count),
            "record" => (&mut wanted.records, &mut record_count),
            "ticket" => {
                wanted.ticket = Some(value);
                continue;
            }
            "last_event_id" => {
                wanted.last_id = Some(value);
                continue;
            }
            // A page may add its own parameters, such as one that prevents caching.
            _ => continue,
        };
        let is_reserved = key == "record" && value.starts_with(RESERVED);
        if value.is_empty() || value.len() > name_bytes_max || is_reserved {
            return Err(Problem::INVALID_NAME);
        }
        // Repeated names count too, so that the limit does not depend on which names the client sends.
        *count += 1;
        if *count > NAMES_MAX {
            return Err(Problem::TOO_MANY_NAMES);
        }
        if !list.contains(&value) {
            list.push(value);
        }
    }
    if event_count + pattern_count + record_count == 0 {
        return Err(Problem::NOTHING_TO_STREAM);
    }
    Ok(wanted)
}

/// Waits until the login has succeeded, and returns all replies of that turn.
async fn logged_in(caller: &mut Caller) -> Result<Replies, Problem> {
    loop {
        let replies = caller.receive().await?;
        let mut is_open = false;
        for reply in replies.iter() {
            caller.check_login(reply)?;
            is_open |= matches!(reply, OwnedReply::LoggedIn { .. });
        }
        if is_open {
            return Ok(replies);
        }
    }
}

fn texts(names: &[String]) -> Vec<Text> {
    names.iter().map(|name| Text::from(name.as_str())).collect()
}

fn streaming(body: EventStream) -> HttpResponse {
    let mut answer = HttpResponse::new(Body::Stream(body));
    *answer.status_mut() = StatusCode::OK;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // No proxy may cache the stream, or delay it to compress more of it at once.
    headers.insert(
        CACHE_CONTROL,
        HeaderValue::from_static("no-store, no-transform"),
    );
    let unbuffered = HeaderName::from_static("x-accel-buffering");
    headers.insert(unbuffered, HeaderValue::from_static("no"));
    answer
}

/// The state of one record of a stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Followed {
    /// The state that the client has; `None` if the client has none, or knows that the record does not exist.
    tag: Option<Tag>,
    /// Whether the client knows the state of the record, which may be that it does not exist.
    is_known: bool,
    /// The value must be fetched.
    is_wanted: bool,
    /// A fetch of the value is in flight.
    is_fetching: bool,
    /// The record has changed since that fetch was sent.
    is_stale: bool,
}

fn indexes(names: &[String]) -> HashMap<String, usize> {
    let names = names.iter().cloned();
    names
        .enumerate()
        .map(|(index, name)| (name, index))
        .collect()
}

/// The records of a new stream, with the states that a reconnecting client has.
fn records(names: &[String], id: Option<&str>, epoch: u64) -> Vec<Followed> {
    let known = id.and_then(|id| parse_id(id, epoch, names.len()));
    known.unwrap_or_else(|| vec![Followed::default(); names.len()])
}

/// The id of a piece: the epoch, then the states of all records in the order of the request.
pub(super) fn id(epoch: u64, records: &[Followed]) -> String {
    let states = records
        .iter()
        .map(|record| match (record.is_known, record.tag) {
            (false, _) => String::from("x"),
            (true, None) => String::from("0"),
            (true, Some(tag)) => format!("{:x}-{}", tag.incarnation, tag.version),
        });
    let states: Vec<String> = states.collect();
    format!("{epoch:x}_{}", states.join("_"))
}

pub(super) fn parse_id(id: &str, epoch: u64, count: usize) -> Option<Vec<Followed>> {
    let mut parts = id.split('_');
    if u64::from_str_radix(parts.next()?, 16) != Ok(epoch) {
        return None;
    }
    let records: Option<Vec<Followed>> = parts.map(parse_state).collect();
    records.filter(|records| records.len() == count)
}

fn parse_state(text: &str) -> Option<Followed> {
    let (is_known, tag) = match text {
        "x" => (false, None),
        "0" => (true, None),
        text => {
            let (incarnation, version) = text.split_once('-')?;
            let incarnation = u64::from_str_radix(incarnation, 16).ok()?;
            let version = version.parse().ok()?;
            (
                true,
                Some(Tag {
                    incarnation,
                    version,
                }),
            )
        }
    };
    Some(Followed {
        tag,
        is_known,
        ..Followed::default()
    })
}

/// A running stream.
struct Stream {
    session: CarriedSession,
    sender: mpsc::Sender<Bytes>,
    outlet: Arc<Outlet>,
    epoch: u64,
    events: StreamEvents,
    patterns: Vec<String>,
    names: Vec<String>,
    indexes: HashMap<String, usize>,
    records: Vec<Followed>,
    /// Text that is ready to be sent.
    text: String,
    /// The memory reserved for that text.
    text_memory: Vec<Reserved>,
    /// Records whose values must be fetched, in the order of their changes.
    wanted: VecDeque<usize>,
    /// Fetches in flight.
    fetches: usize,
    /// The memory reserved for each fetch, by record.
    memory: Vec<Option<Reserved>>,
    answers: AnswerMemory,
    /// The caller for which the memory counts.
    caller: Holder,
    record_bytes_max: usize,
    refused: RequestRefusals,
}

impl Stream {
    async fn run(mut self, first: Replies, keep_alive: Duration) {
        self.subscribe();
        self.take(&first);
        // An SSE comment comes first, so that the client notices at once that it is connected.
        self.text.push_str(": connected\n\n");
        let mut last_sent = Instant::now();
        loop {
            if !self.text.is_empty() {
                if !self.send_text().await {
                    return;
                }
                last_sent = Instant::now();
            }
            let patience = match self.fetch_wanted() {
                true => keep_alive.saturating_sub(last_sent.elapsed()),
                // A fetch waits for memory that others hold; try again soon.
                false => RETRY_INTERVAL,
            };
            let received = tokio::select! {
                received = timeout(patience, self.session.receive()) => received,
                () = self.sender.closed() => return,
            };
            match received {
                Ok(Ok(replies)) => self.take(&replies),
                Ok(Err(_)) => {
                    // The client reconnects by itself, and its credentials may still be valid then.
                    let _ = self
                        .sender
                        .send(Bytes::from_static(b"event: end\ndata: {}\n\n"))
                        .await;
                    return;
                }
                Err(_) if last_sent.elapsed() < keep_alive => {}
                Err(_) => {
                    self.text.push_str(": keep-alive\n\n");
                    self.say(OwnedRequest::Ping);
                }
            }
        }
    }

    /// Sends the text. Returns false if the client is gone, or if it has not read for [`UNREAD_TIME`] while memory is short.
    async fn send_text(&mut self) -> bool {
        let memory = std::mem::take(&mut self.text_memory);
        let (piece, left) = self.outlet.piece(std::mem::take(&mut self.text));
        if self.sender.send(piece).await.is_err() {
            return false;
        }
        // The stream takes no other chunk until the kernel has this piece. So a change of rights can wait for the bytes in
        // flight.
        let mut left = pin!(left);
        let offered = Instant::now();
        loop {
            match timeout(UNREAD_INTERVAL, left.as_mut()).await {
                Ok(has_left) => {
                    drop(memory);
                    return has_left.is_ok();
                }
                Err(_) if offered.elapsed() < UNREAD_TIME => {}
                Err(_) => {
                    let memory = self.answers.reserve(&self.caller, self.record_bytes_max);
                    let is_short = memory.is_none();
                    if is_short {
                        self.refused.count(RequestRefusal::UnreadStream);
                        self.outlet.shut();
                        return false;
                    }
                }
            }
        }
    }

    fn say(&self, request: OwnedRequest) {
        self.session.send(vec![request]);
    }

    fn subscribe(&mut self) {
        if !self.events.names().is_empty() {
            let wishes = self.events.wishes().into_iter();
            self.say(OwnedRequest::SubscribeEvents {
                events: wishes
                    .map(|(name, position)| (name.into(), position))
                    .collect(),
            });
        }
        if !self.patterns.is_empty() {
            self.say(OwnedRequest::SubscribePatterns {
                patterns: texts(&self.patterns),
            });
        }
        if !self.names.is_empty() {
            // In one message, so that refusals arrive in the order of the names, whatever the state of the records.
            self.follow(0..self.names.len());
        }
    }

    /// Subscribes to records and then fetches their values. In this order the client misses no change in between.
    fn follow(&mut self, indexes: Range<usize>) {
        self.say(OwnedRequest::SubscribeRecords {
            names: texts(&self.names[indexes.clone()]),
        });
        for index in indexes {
            self.fetch(index);
        }
    }

    /// Marks the value of a record to be fetched. Changes until the fetch coalesce.
    fn fetch(&mut self, index: usize) {
        let record = &mut self.records[index];
        if record.is_fetching {
            record.is_stale = true;
        } else if !std::mem::replace(&mut record.is_wanted, true) {
            self.wanted.push_back(index);
        }
    }

    /// Sends as many fetches as the limits allow. Returns false if none is in flight and the next one must wait for memory.
    fn fetch_wanted(&mut self) -> bool {
        while self.fetches < FETCHES_MAX
            && let Some(index) = self.wanted.front().copied()
        {
            let reserve = |bytes| self.answers.reserve(&self.caller, bytes);
            if self.fetches > 0 && reserve(self.record_bytes_max.saturating_mul(PLENTY)).is_none() {
                return true;
            }
            let Some(memory) = reserve(self.record_bytes_max) else {
                // The answer of a fetch in flight wakes the stream, which then tries again. Without one, it must poll for
                // memory.
                return self.fetches > 0;
            };
            self.wanted.pop_front();
            self.memory[index] = Some(memory);
            self.fetches += 1;
            let record = &mut self.records[index];
            (record.is_wanted, record.is_fetching) = (false, true);
            self.say(OwnedRequest::Fetch {
                name: self.names[index].as_str().into(),
            });
        }
        true
    }

    /// Ends a fetch: its answer has arrived, and `bytes` of it will be sent.
    fn end_fetch(&mut self, index: usize, bytes: usize) {
        let record = &mut self.records[index];
        if std::mem::take(&mut record.is_fetching) {
            self.fetches -= 1;
        }
        if let Some(mut memory) = self.memory[index].take()
            && bytes > 0
        {
            // The text already exists, so it is sent even if its full size can't be reserved.
            let _ = memory.try_resize(bytes);
            self.text_memory.push(memory);
        }
    }

    /// Processes replies of the session.
    fn take(&mut self, replies: &Replies) {
        for reply in replies.iter() {
            match reply {
                OwnedReply::Publication {
                    name,
                    data,
                    binary,
                    attachments,
                    offset,
                } => {
                    let payload = StreamPayload {
                        data: data.as_deref(),
                        binary: binary.as_ref(),
                        attachments: attachments.as_ref(),
                    };
                    self.take_publication(name, payload, *offset);
                }
                OwnedReply::Position { name, position } => {
                    self.events.begin(name, Some(*position));
                    // An id without data is not delivered to the page, but the client sends it when it reconnects.
                    self.push_id();
                    self.text.push('\n');
                }
                OwnedReply::HistoryGap {
                    name,
                    missed,
                    first,
                } => self.tell_history_gap(name, *missed, *first),
                OwnedReply::Gap { name, missed } => match self.events.resume(name) {
                    Some(position) => self.resume(name, position),
                    None => self.tell_gap(name, Some(*missed), None),
                },
                OwnedReply::PatternGap { pattern, missed } => {
                    self.tell_pattern_gap(pattern, *missed);
                }
                OwnedReply::EventRefused(refused) => self.tell_event_error(&refused.refusal()),
                OwnedReply::Fetched { name, state } => {
                    let state = state.as_ref().map(|(tag, data)| (*tag, &**data));
                    self.fetched(name, state);
                }
                OwnedReply::Changed { name } => {
                    if let Some(index) = self.indexes.get(&**name).copied() {
                        self.fetch(index);
                    }
                }
                OwnedReply::Deleted { name } => {
                    // The subscription has ended with the record. Subscribe again, so that the stream sees a new record with
                    // this name.
                    if let Some(index) = self.indexes.get(&**name).copied() {
                        self.follow(index..index + 1);
                    }
                }
                OwnedReply::RecordRefused(refused) => self.tell_record_error(&refused.refusal()),
                _ => {}
            }
        }
    }

    fn take_publication(&mut self, name: &str, payload: StreamPayload<'_>, offset: Option<u64>) {
        // The stream can't resume an event that it gets only because of a pattern, so the id has no position of it.
        if let Some(offset) = offset
            && self.events.contains(name)
        {
            if self.events.take(name, offset) != PositionOrder::Next {
                return;
            }
            self.push_id();
        }
        self.tell_event(name, payload, offset);
    }

    fn fetched(&mut self, name: &str, state: Option<(Tag, &str)>) {
        let Some(index) = self.indexes.get(name).copied() else {
            return;
        };
        let record = &mut self.records[index];
        let tag = state.map(|(tag, _)| tag);
        let is_news = !record.is_known || record.tag != tag && !is_late(record.tag, tag);
        let is_stale = std::mem::take(&mut record.is_stale);
        let bytes = state.map_or(0, |(_, data)| data.len());
        self.end_fetch(index, if is_news { bytes } else { 0 });
        if is_news {
            let record = &mut self.records[index];
            record.is_known = true;
            record.tag = tag;
            self.push_id();
            match state {
                Some((tag, data)) => {
                    self.begin("record", name);
                    self.text
                        .push_str(&format!(",\"version\":{},\"data\":", tag.version));
                    push_line(data, &mut self.text);
                    self.end();
                }
                None => {
                    self.begin("deleted", name);
                    self.end();
                }
            }
        }
        // The record has changed while this fetch was in flight, so its answer may be older than the change.
        if is_stale {
            self.fetch(index);
        }
    }

    /// Subscribes again to an event from `position`, because the session has skipped some of its messages.
    fn resume(&self, name: &str, position: Position) {
        self.say(OwnedRequest::UnsubscribeEvent { name: name.into() });
        self.say(OwnedRequest::SubscribeEvents {
            events: vec![(name.into(), Some(position))],
        });
    }

    fn tell_history_gap(&mut self, name: &str, missed: Option<u32>, first: Option<Position>) {
        let before = first.map(|first| Position {
            offset: first.offset.saturating_sub(1),
            ..first
        });
        self.events.begin(name, before);
        self.push_id();
        self.tell_gap(name, missed, first);
    }

    fn tell_gap(&mut self, name: &str, missed: Option<u32>, first: Option<Position>) {
        self.begin("gap", name);
        if let Some(missed) = missed {
            self.text.push_str(&format!(",\"missed\":{missed}"));
        }
        if let Some(Position { offset, .. }) = first {
            self.text.push_str(&format!(",\"offset\":{offset}"));
        }
        self.end();
    }

    fn tell_pattern_gap(&mut self, pattern: &str, missed: u32) {
        self.begin_with("gap", "pattern", pattern);
        self.text.push_str(&format!(",\"missed\":{missed}"));
        self.end();
    }

    fn tell_event(&mut self, name: &str, payload: StreamPayload<'_>, offset: Option<u64>) {
        self.begin("event", name);
        if let Some(offset) = offset {
            self.text.push_str(&format!(",\"offset\":{offset}"));
        }
        if let Some(data) = payload.data {
            self.text.push_str(",\"data\":");
            push_line(data, &mut self.text);
        }
        payload.push_binary(&mut self.text);
        self.end();
    }

    fn tell_event_error(&mut self, refusal: &Refusal<'_, EventAction>) {
        let code = match refusal.reason {
            Reason::Denied => "MESSAGE_DENIED",
            Reason::RuleFailed => "MESSAGE_PERMISSION_ERROR",
            Reason::InvalidData => "INVALID_MESSAGE_DATA",
            Reason::InvalidPattern => "INVALID_PATTERN",
            _ => return,
        };
        let topic = match refusal.action {
            EventAction::SubscribePatterns => "pattern",
            _ => "event",
        };
        self.tell_refusal(topic, refusal.name.unwrap_or_default(), code);
    }

    fn tell_record_error(&mut self, refusal: &Refusal<'_, RecordAction>) {
        let code = match refusal.reason {
            Reason::Denied => "MESSAGE_DENIED",
            Reason::RuleFailed => "MESSAGE_PERMISSION_ERROR",
            Reason::InvalidData => "INVALID_MESSAGE_DATA",
            Reason::LoadTimeout | Reason::LoadFailed => "RECORD_LOAD_ERROR",
            _ => return,
        };
        let name = refusal.name.unwrap_or_default();
        let Some(index) = self.indexes.get(name).copied() else {
            return;
        };
        let is_read = refusal.action == RecordAction::Read;
        if is_read {
            self.end_fetch(index, 0);
        }
        // A client that may not subscribe may not read either, so only the refused subscription is reported. A right that is
        // lost later is also reported once.
        if !is_read || code == "RECORD_LOAD_ERROR" {
            self.tell_refusal("record", name, code);
        }
    }

    fn tell_refusal(&mut self, topic: &str, name: &str, code: &str) {
        self.begin("refused", name);
        self.text
            .push_str(&format!(",\"topic\":\"{topic}\",\"code\":\"{code}\""));
        self.end();
    }

    fn push_id(&mut self) {
        let mut id = id(self.epoch, &self.records);
        self.events.append_id(&mut id);
        self.text.push_str(&format!("id: {id}\n"));
    }

    fn begin(&mut self, kind: &str, name: &str) {
        self.begin_with(kind, "name", name);
    }

    fn begin_with(&mut self, kind: &str, member: &str, name: &str) {
        self.text
            .push_str(&format!("event: {kind}\ndata: {{\"{member}\":"));
        json::string(name, &mut self.text);
    }

    fn end(&mut self) {
        self.text.push_str("}\n\n");
    }
}

/// Whether a state is older than the one that the client has. This happens when the fetch was answered before a change whose
/// state has already arrived.
fn is_late(had: Option<Tag>, tag: Option<Tag>) -> bool {
    let (Some(had), Some(tag)) = (had, tag) else {
        return false;
    };
    let behind = had.version.wrapping_sub(tag.version);
    had.incarnation == tag.incarnation && behind > 0 && behind < LATE_VERSIONS
}

/// Appends JSON without line ends, because a line end would end the field. JSON allows line ends only between tokens, where
/// they have no meaning.
fn push_line(data: &str, out: &mut String) {
    out.extend(data.chars().filter(|symbol| !matches!(symbol, '\n' | '\r')));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn followed(tag: Option<(u64, i32)>) -> Followed {
        Followed {
            tag: tag.map(|(incarnation, version)| Tag {
                incarnation,
                version,
            }),
            is_known: true,
            ..Followed::default()
        }
    }

    #[test]
    fn an_id_names_what_a_client_has() {
        let records = [
            followed(Some((0x2a, 7))),
            followed(None),
            Followed::default(),
        ];
        let text = id(9, &records);
        assert_eq!(text, "9_2a-7_0_x");
        let parsed = parse_id(&text, 9, 3).expect("it is of this server");
        for (parsed, record) in parsed.iter().zip(&records) {
            assert_eq!((parsed.tag, parsed.is_known), (record.tag, record.is_known));
        }
        for (text, epoch, count) in [
            ("9_2a-7_0_x", 8, 3),
            ("9_2a-7_0_x", 9, 2),
            ("9_2a-7_0_x", 9, 4),
            ("9_2a_0_x", 9, 3),
            ("9_g-1_0_x", 9, 3),
            ("", 9, 0),
        ] {
            assert!(
                parse_id(text, epoch, count).is_none(),
                "{text} {epoch} {count}"
            );
        }
    }

    #[test]
    fn only_older_versions_of_the_same_record_are_late() {
        let tag = |incarnation, version| {
            Some(Tag {
                incarnation,
                version,
            })
        };
        assert!(is_late(tag(1, 5), tag(1, 4)));
        assert!(!is_late(tag(1, 5), tag(1, 6)));
        assert!(!is_late(tag(1, 5), tag(2, 4)));
        assert!(!is_late(tag(1, i32::MAX), tag(1, 1)));
        assert!(!is_late(tag(1, 5), None));
    }
}

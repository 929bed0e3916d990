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

use tidewire_core::json;
use tidewire_core::message::{EventAction, Position, Reason, RecordAction, Refusal, Tag};
use tidewire_core::text::RESERVED;
use tidewire_shard::carried_session::CarriedSession;
use tidewire_shard::reply::{OwnedReply, Replies};
use tidewire_shard::request::{OwnedRequest, Text};

use super::answer::HttpResponse;
use super::answer_room::{RETRY_INTERVAL, Reserved};
use super::name::parameters;
use super::problem::Problem;
use super::stream_event::{PositionOrder, StreamEvents, StreamPayload, record_part};
use super::stream_output::{Next, StreamOutput, push_line};
use super::{Api, ApiRequest};

/// The path of streams.
pub(super) const PATH: &str = "/sse";
/// The methods of the path.
pub(super) const METHODS: &str = "GET, OPTIONS";

/// Limit of the events of one stream, of its patterns, and of its records.
pub(super) const NAMES_MAX: usize = 100;
/// Values that a stream fetches at the same time. With several, a slow store does not delay the values of other stores. The
/// limit bounds the memory for a client that does not read.
const FETCHES_MAX: usize = 4;
/// A stream fetches more than one value at a time only while its caller could reserve this number of further values.
const PLENTY: usize = 8;
/// If a version is this far behind the last one, the version counter has wrapped around; the state is not an old one.
const LATE_VERSIONS: i32 = 1 << 30;

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
        let opened = self.open_stream(request, wanted.ticket.as_deref()).await?;
        let last_id = request.parts.headers.get("last-event-id");
        // An `EventSource` that reconnects by itself sends the header. The id in its URL is older: it is where the first
        // connection began.
        let known = last_id
            .and_then(|id| id.to_str().ok())
            .or(wanted.last_id.as_deref());
        let first = opened.first.clone();
        let record_bytes_max = self.limits.record_bytes_max;
        let (session, output, answer) = self.begin_stream(request, opened, record_bytes_max);
        let epoch = self.epochs.of_all(&wanted.records);
        let stream = Stream {
            session,
            output,
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
            record_bytes_max,
        };
        tokio::spawn(stream.run(first));
        Ok(answer)
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

fn texts(names: &[String]) -> Vec<Text> {
    names.iter().map(|name| Text::from(name.as_str())).collect()
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
    output: StreamOutput,
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
    record_bytes_max: usize,
}

impl Stream {
    async fn run(mut self, first: Replies) {
        self.subscribe();
        self.take(&first);
        self.text.push_str(StreamOutput::CONNECTED);
        loop {
            if !self.text.is_empty() {
                let text = std::mem::take(&mut self.text);
                let memory = std::mem::take(&mut self.text_memory);
                if !self.output.send(text, memory).await {
                    return;
                }
            }
            // If a fetch waits for memory that others hold, the stream tries again soon.
            let patience = (!self.fetch_wanted()).then_some(RETRY_INTERVAL);
            match self.output.next(&mut self.session, patience).await {
                Next::Take(replies) => self.take(&replies),
                Next::Retry => {}
                Next::KeepAlive => {
                    self.text.push_str(StreamOutput::KEEP_ALIVE);
                    self.say(OwnedRequest::Ping);
                }
                Next::Ended => return self.output.end(StreamOutput::END.to_owned()).await,
                Next::Gone => return,
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
            let reserve = |bytes| self.output.reserve(bytes);
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

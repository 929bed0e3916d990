//! Asks: broadcasts of a backend that each session answers, in a time that the backend sets (decision 0114).
//!
//! The shard of the backend numbers its asks and posts each to every shard (`OwnAsks`). A shard awaits the answers of its sessions (`Asks`),
//! also of sessions that other backends serve, and posts each back. The shard of the backend passes them on as far as the backend confirms
//! them, and keeps the others up to a limit. At the limit the ask fails, so that a slow backend stops no session of another one.
//!
//! The event has the number of its acknowledgement, and a shard encodes it once for all sessions. So all sessions of a shard get the same
//! number, which the shard chooses. It has ten digits, and backends have the shorter numbers for their own events.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::command::{audience, published, recipients};
use super::nodes::{OfNode, OfNodes, awaited_of, without_lost};
use super::{Backends, Own, Source};
use crate::address::SessionId;
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::entry::{BackendEntry, Entry, OwnedBackend};
use crate::limits::Limits;
use crate::message::{Backend, BackendKind, Event, Message};
use crate::session::LocalSessionId;
use crate::text::Payload;
use crate::time::Instant;

/// The numbers of acknowledgements that shards choose. Some clients have numbers of 31 bits.
const NUMBERS: Range<u32> = 1_000_000_000..2_000_000_000;
/// Digits of the numbers that backends choose.
const FREE_DIGITS: usize = 9;

/// Bytes of the correlation id of an ask.
const CORRELATION_BYTES_MAX: usize = 128;
/// How long a message to other backends without answers may take. Only the loss of a node lets it pass.
const UNANSWERED_TIME: Duration = Duration::from_secs(10);
/// Memory of a session that has not answered.
const AWAITED_BYTES: usize = 16;

const NO_CORRELATION: &str = r#"{"message":"the message needs a correlationId of 1 to 128 bytes, and an ask a timeout of at least 1 millisecond"}"#;
const TOO_MANY_ASKS: &str = r#"{"message":"too many broadcasts or messages to backends wait for acknowledgements; wait for some of them, or raise limits.backend_asks_max"}"#;
const TOO_MANY_ANSWERS: &str = r#"{"message":"the acknowledgements and messages that a backend has not confirmed take too much memory; ask fewer sessions at a time, or raise limits.backend_answers_bytes_max","reason":"limit"}"#;
const NODE_LOST: &str = r#"{"message":"a node was lost before all of its clients and backends had answered","reason":"lost"}"#;
const TIMED_OUT: &str = r#"{"message":"not all have answered in time","reason":"timeout"}"#;

/// An ask by its backend and its number.
pub(super) type AskId = (SessionId, u64);

/// The number of an ask in the answer of a session.
pub(super) fn number_of(message: &Backend<'_>) -> Option<u32> {
    let is_answer = matches!(message.kind, BackendKind::Answered | BackendKind::Reply);
    let number = message.correlation.filter(|_| is_answer)?;
    let number = number.parse().ok()?;
    NUMBERS.contains(&number).then_some(number)
}

/// Whether a backend may use the number of an acknowledgement.
pub(super) fn is_free(number: &str) -> bool {
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    is_number && (1..=FREE_DIGITS).contains(&number.len())
}

/// An ask whose sessions or backends of this shard have not all answered.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) id: AskId,
    pub(super) until: Instant,
    pub(super) awaited: BTreeSet<LocalSessionId>,
}

/// The asks that sessions of a shard answer.
#[derive(Debug, Default)]
pub(super) struct Asks {
    asked: BTreeMap<u32, Asked>,
    deadlines: BTreeSet<(Instant, u32)>,
    /// The numbers that were used, modulo the length of their range.
    used: u32,
}

impl Asks {
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(until, _)| *until)
    }

    /// Sends an ask to the sessions of this shard. Members of its rooms without a backend get it as an event.
    pub(super) fn ask<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        id: AskId,
        timeout_ms: u32,
        message: &OwnedBackend,
    ) {
        let mut asked = Vec::new();
        let mut others = Vec::new();
        for (name, recipients) in recipients(turn, message) {
            let is_backed = |id: &SessionId| super::backed_mut(turn, *id).is_some();
            let (backed, of_room) = recipients.into_iter().partition::<Vec<_>, _>(is_backed);
            asked.extend(backed);
            others.push((name, of_room));
        }
        let is_refused = self.is_beyond_limit(&turn.shard.settings.limits, id, asked.len());
        let count = match is_refused {
            true => 0,
            false => u32::try_from(asked.len()).unwrap_or(u32::MAX),
        };
        let (backend, ask) = id;
        let handled = BackendEntry::Asked {
            backend,
            ask,
            count,
            is_refused,
        };
        turn.post(backend.address, Entry::Backend(handled));
        if is_refused {
            return;
        }
        for (name, recipients) in others {
            let event = Message::Event(Event::Publication(published(message, &name)));
            turn.send_to_all(&recipients, &event);
        }
        if asked.is_empty() {
            return;
        }
        let until = turn.now.monotonic + Duration::from_millis(timeout_ms.into());
        let number = self.next_number();
        let text = number.to_string();
        let event = Backend {
            data: message.data.as_ref().map(Payload::as_str),
            attachments: message.attachments.clone(),
            correlation: Some(&text),
            ..Backend::new(BackendKind::Send)
        };
        turn.send_to_all(&asked, &Message::Backend(Box::new(event)));
        let awaited = asked.into_iter().map(LocalSessionId::of).collect();
        self.await_answers(number, Asked { id, until, awaited });
    }

    pub(super) fn await_answers(&mut self, number: u32, asked: Asked) {
        self.deadlines.insert((asked.until, number));
        self.asked.insert(number, asked);
    }

    /// Whether a shard would await too many answers for a backend.
    fn is_beyond_limit(&self, limits: &Limits, (backend, _): AskId, more: usize) -> bool {
        let of_backend = self.asked.values().filter(|it| it.id.0 == backend);
        let awaited: usize = of_backend.map(|asked| asked.awaited.len()).sum();
        (awaited + more) * AWAITED_BYTES > limits.backend_answers_bytes_max
    }

    pub(super) fn next_number(&mut self) -> u32 {
        loop {
            let number = NUMBERS.start + self.used;
            self.used = (self.used + 1) % (NUMBERS.end - NUMBERS.start);
            if !self.asked.contains_key(&number) {
                return number;
            }
        }
    }

    /// Handles the answer of a session. A late one, a second one, and one of another session has no effect.
    pub(super) fn answer<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        id: SessionId,
        number: u32,
        message: &Backend<'_>,
    ) {
        turn.shard.count_work(message.data.map_or(0, str::len));
        let Some(asked) = self.asked.get_mut(&number) else {
            return;
        };
        if !asked.awaited.remove(&LocalSessionId::of(id)) {
            return;
        }
        let (backend, ask) = asked.id;
        if asked.awaited.is_empty() {
            self.forget(number);
        }
        let response = OwnedBackend {
            data: message.data.map(Payload::from_checked),
            attachments: message.attachments.clone(),
            ..OwnedBackend::of(&Backend::new(BackendKind::Response))
        };
        let response = BackendEntry::Response {
            backend,
            ask,
            message: Box::new(response),
        };
        turn.post(backend.address, Entry::Backend(response));
    }

    /// Handles that a backend does not wait for the answers of an ask, or of all its asks.
    pub(super) fn over(&mut self, backend: SessionId, ask: Option<u64>) {
        let is_over = |asked: &Asked| {
            let (of_backend, number) = asked.id;
            of_backend == backend && ask.is_none_or(|ask| ask == number)
        };
        let over = self.asked.iter().filter(|(_, asked)| is_over(asked));
        let over: Vec<u32> = over.map(|(number, _)| *number).collect();
        for number in over {
            self.forget(number);
        }
    }

    pub(super) fn deadline_reached(&mut self, now: Instant) {
        while let Some((until, number)) = self.deadlines.first().copied()
            && until <= now
        {
            self.forget(number);
        }
    }

    /// Forgets the asks of the backends of a lost node.
    pub(super) fn node_lost(&mut self, node: u16) {
        let over = self
            .asked
            .iter()
            .filter(|(_, asked)| asked.id.0.address.node == node);
        for number in over.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.forget(number);
        }
    }

    fn forget(&mut self, number: u32) {
        if let Some(asked) = self.asked.remove(&number) {
            self.deadlines.remove(&(asked.until, number));
        }
    }
}

/// An ask of a backend of this shard that has not ended.
#[derive(Debug)]
struct OwnAsk {
    correlation: Box<str>,
    until: Instant,
    /// Shards that have not handled it.
    shards: usize,
    /// Sessions or backends that got it.
    asked: u32,
    /// Those that have answered.
    answered: u32,
    /// Whether they answer.
    has_answers: bool,
    /// The answers that shards of other nodes owe.
    nodes: OfNodes,
    /// Whether a node was lost before all had answered there.
    is_partial: bool,
}

impl OwnAsk {
    fn is_complete(&self) -> bool {
        self.shards == 0 && (!self.has_answers || self.answered >= self.asked)
    }
}

/// A message for a backend about an ask.
#[derive(Debug)]
struct Notice {
    message: OwnedBackend,
    count: u32,
}

/// The asks of a backend of this shard.
#[derive(Debug, Default)]
pub(super) struct OwnAsks {
    begun: u64,
    waiting: BTreeMap<u64, OwnAsk>,
    deadlines: BTreeSet<(Instant, u64)>,
    /// Messages that the backend was not sent.
    unsent: VecDeque<Notice>,
    /// Bytes of each message that it has not confirmed, and their sum.
    unconfirmed: VecDeque<usize>,
    unconfirmed_bytes: usize,
    /// Bytes of all these messages.
    bytes: usize,
}

impl OwnAsks {
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(until, _)| *until)
    }

    /// Whether some sessions have not answered.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn begin(&mut self, ask: OwnAsk) -> u64 {
        let number = self.begun;
        self.begun += 1;
        let until = ask.until;
        self.waiting.insert(number, ask);
        self.deadlines.insert((until, number));
        number
    }

    /// Whether there is room for a message of this size.
    pub(super) fn can_keep(&self, limits: &Limits, bytes: usize) -> bool {
        self.bytes + bytes <= limits.backend_answers_bytes_max
    }

    fn has_room(&self, limits: &Limits) -> bool {
        self.unconfirmed.len() < limits.backend_messages_max
            && self.unconfirmed_bytes < limits.backend_bytes_max
    }

    /// Keeps a message until the backend has confirmed it.
    pub(super) fn keep(&mut self, message: OwnedBackend, count: u32) {
        self.bytes += message.bytes();
        self.unsent.push_back(Notice { message, count });
    }

    /// Ends an ask, with a refusal if not all sessions have answered.
    fn end(&mut self, number: u64, refusal: Option<&'static str>) {
        let Some(ask) = self.waiting.remove(&number) else {
            return;
        };
        self.deadlines.remove(&(ask.until, number));
        let kind = match refusal {
            None => BackendKind::Asked,
            Some(_) => BackendKind::AskFailed,
        };
        let ended = OwnedBackend {
            correlation: Some(ask.correlation),
            data: refusal.map(Payload::from_checked),
            ..OwnedBackend::of(&Backend::new(kind))
        };
        self.keep(ended, ask.asked);
    }

    /// Ends an ask after the last answer.
    fn end_if_complete(&mut self, number: u64) {
        let ask = self.waiting.get(&number);
        if let Some(ask) = ask.filter(|ask| ask.is_complete()) {
            self.end(number, ask.is_partial.then_some(NODE_LOST));
        }
    }

    /// The answers to an ask that the shards of another node owe.
    pub(super) fn of_node(&mut self, number: u64, node: u16) -> Option<&mut OfNode> {
        self.waiting.get_mut(&number)?.nodes.get_mut(&node)
    }

    /// Ends the waiting for the shards of a lost node. An ask fails behind the answers of the other nodes.
    pub(super) fn node_lost(&mut self, node: u16) {
        let numbers: Vec<u64> = self.waiting.keys().copied().collect();
        for number in numbers {
            if let Some(ask) = self.waiting.get_mut(&number)
                && let Some(lost) = ask.nodes.remove(&node)
            {
                ask.shards = ask.shards.saturating_sub(lost.shards);
                ask.answered = ask.answered.saturating_add(lost.asked);
                ask.is_partial |= ask.has_answers && (lost.shards > 0 || lost.asked > 0);
            }
            self.end_if_complete(number);
        }
    }
}

impl Own {
    /// Sends the backend messages about its asks, as far as it confirms them.
    pub(super) fn send_notices<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        backend: SessionId,
    ) {
        while self.asks.has_room(&turn.shard.settings.limits)
            && let Some(Notice { message, count }) = self.asks.unsent.pop_front()
        {
            let bytes = message.bytes();
            self.asks.unconfirmed.push_back(bytes);
            self.asks.unconfirmed_bytes += bytes;
            self.note_sent(Source::Asks);
            let message = Backend {
                count,
                ..message.message()
            };
            turn.send(backend, &Message::Backend(Box::new(message)));
        }
    }
}

impl Backends {
    /// Handles an ask of a backend, or a message to others.
    pub(super) fn begin_ask<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        id: SessionId,
        message: &Backend<'_>,
        publication: Arc<OwnedBackend>,
    ) -> Result<(), &'static str> {
        let correlation = message.correlation.unwrap_or_default();
        let is_correlation = (1..=CORRELATION_BYTES_MAX).contains(&correlation.len());
        let has_answers = message.timeout > 0;
        if !is_correlation || !(has_answers || message.kind == BackendKind::Tell) {
            return Err(NO_CORRELATION);
        }
        let limits = &turn.shard.settings.limits;
        let own = self.own.entry(id).or_default();
        let is_free = own.asks.waiting.len() < limits.backend_asks_max
            && own.asks.bytes < limits.backend_answers_bytes_max;
        if !is_free {
            return Err(TOO_MANY_ASKS);
        }
        let shards = without_lost(turn, audience(turn, message.is_local));
        let time = match message.timeout {
            0 => UNANSWERED_TIME,
            timeout => Duration::from_millis(timeout.into()),
        };
        let ask = own.asks.begin(OwnAsk {
            correlation: correlation.into(),
            until: turn.now.monotonic + time,
            shards: shards.len(),
            asked: 0,
            answered: 0,
            has_answers,
            nodes: awaited_of(turn, &shards),
            is_partial: false,
        });
        for shard in shards {
            let entry = BackendEntry::Ask {
                backend: id,
                ask,
                timeout_ms: message.timeout,
                message: Arc::clone(&publication),
            };
            turn.post(shard, Entry::Backend(entry));
        }
        Ok(())
    }

    /// Handles that a shard has sent an ask to its sessions.
    pub(super) fn asked<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        (backend, number): AskId,
        count: u32,
        is_refused: bool,
    ) {
        let Some(own) = self.own.get_mut(&backend) else {
            return;
        };
        let Some(ask) = own.asks.waiting.get_mut(&number) else {
            return;
        };
        ask.shards = ask.shards.saturating_sub(1);
        ask.asked = ask.asked.saturating_add(count);
        match is_refused {
            true => fail(own, turn, (backend, number)),
            false => own.asks.end_if_complete(number),
        }
        own.send_notices(turn, backend);
    }

    /// Handles the answer of a session to an ask.
    pub(super) fn response<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        (backend, number): AskId,
        message: OwnedBackend,
    ) {
        let Some(own) = self.own.get_mut(&backend) else {
            return;
        };
        let limits = &turn.shard.settings.limits;
        let can_keep = own.asks.can_keep(limits, message.bytes());
        let Some(ask) = own.asks.waiting.get_mut(&number) else {
            return;
        };
        if !can_keep {
            fail(own, turn, (backend, number));
        } else {
            ask.answered += 1;
            let response = OwnedBackend {
                correlation: Some(ask.correlation.clone()),
                ..message
            };
            own.asks.keep(response, 0);
            own.asks.end_if_complete(number);
        }
        own.send_notices(turn, backend);
    }

    /// Handles that a backend has confirmed some messages about its asks.
    pub(super) fn answers_confirmed<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        backend: SessionId,
        count: u32,
    ) {
        let Some(own) = self.own.get_mut(&backend) else {
            return;
        };
        let count = (count as usize).min(own.asks.unconfirmed.len());
        let confirmed: usize = own.asks.unconfirmed.drain(..count).sum();
        own.asks.unconfirmed_bytes -= confirmed;
        own.asks.bytes -= confirmed;
        own.send_notices(turn, backend);
    }

    /// Ends the asks whose time has passed.
    pub(super) fn own_asks_deadline_reached<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>) {
        for (backend, own) in &mut self.own {
            while let Some((until, number)) = own.asks.deadlines.first().copied()
                && until <= turn.now.monotonic
            {
                own.asks.end(number, Some(TIMED_OUT));
            }
            own.send_notices(turn, *backend);
        }
    }
}

/// Ends an ask at the limit, also at the other shards.
fn fail<E: Effects>(own: &mut Own, turn: &mut TurnContext<'_, E>, (backend, number): AskId) {
    own.asks.end(number, Some(TOO_MANY_ANSWERS));
    let over = BackendEntry::AskOver {
        backend,
        ask: Some(number),
    };
    turn.post_all(&Entry::Backend(over));
}

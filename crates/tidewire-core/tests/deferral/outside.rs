//! The world around the shards: mailboxes, the messages that sessions receive, and the engine's requests.

use std::collections::{BTreeSet, VecDeque};

use tidewire_core::address::{Address, SessionId};
use tidewire_core::effect::{
    AuthRequest, CloseReason, Effects, Format, InterestChange, Span, StoreRequest,
};
use tidewire_core::entry::{
    Answer, Asker, Entry, Published, RecordOperation, RecordRequestKind, WorkEntry,
};
use tidewire_core::message::{Change, Message, Reason, Record};
use tidewire_core::publication::InterestTopic;

use crate::fault::Fault;
use crate::nodes::index_of;
use crate::random::Random;

/// A fault adds this to a session's generation, so that the session's requests overtake its deferred ones.
pub const ALIAS: u32 = 1 << 20;

/// A message that a session receives, with the fields that the checks read.
#[derive(Clone, Debug)]
pub enum Heard {
    /// The write with this number is durable.
    Written(u64),
    /// A request for a record was refused, or a subscription has ended. Has the number of the write, if it was a write.
    Refused(String, u64),
    /// The write with this number has changed the record.
    Changed(String, u64),
    /// The record has the value of this write.
    Value(String, u64),
    Other,
}

/// The number of the write that produced a value, or 0 if no write did.
pub fn number_of(data: &str) -> u64 {
    let digits = data.trim_start_matches(|letter: char| !letter.is_ascii_digit());
    let end = digits.find(|letter: char| !letter.is_ascii_digit());
    digits[..end.unwrap_or(digits.len())].parse().unwrap_or(0)
}

fn heard(message: &Message<'_>) -> Heard {
    let id = |id: Option<&str>| id.and_then(|id| id.parse().ok()).unwrap_or(0);
    match message {
        Message::Record(Record::WriteAck { correlation, .. }) => Heard::Written(id(*correlation)),
        Message::Record(Record::ReadResponse { name, data, .. }) => {
            Heard::Value((*name).into(), number_of(data))
        }
        Message::Record(Record::Error(refusal)) => {
            let name = refusal.name.unwrap_or_default().into();
            match refusal.reason {
                Reason::NotFound => Heard::Value(name, 0),
                Reason::Denied | Reason::UpdateFailed => {
                    Heard::Refused(name, id(refusal.correlation))
                }
                _ => Heard::Other,
            }
        }
        Message::Record(Record::Write(write, Change::Update { data: Some(data) })) => {
            Heard::Changed(write.name.into(), number_of(data))
        }
        _ => Heard::Other,
    }
}

/// See the documentation of this module.
pub struct Outside {
    pub at: usize,
    pub log: Vec<Heard>,
    pub mailboxes: Vec<VecDeque<Entry>>,
    /// Store requests, each with the shard that sent it.
    pub store: Vec<(usize, StoreRequest)>,
    pub logins: Vec<AuthRequest>,
    pub resumed: Vec<SessionId>,
    pub awaited: BTreeSet<SessionId>,
    /// Records that owners have changed, each with the number of the write, in order.
    pub made: Vec<(String, u64)>,
    /// Sessions and the owners that defer requests of them.
    pub deferring: BTreeSet<(SessionId, Address)>,
    pub fault: Option<Fault>,
    pub random: Random,
}

impl Outside {
    pub fn new(shards: usize, fault: Option<Fault>, seed: u64) -> Self {
        Self {
            at: 0,
            log: Vec::new(),
            mailboxes: vec![VecDeque::new(); shards],
            store: Vec::new(),
            logins: Vec::new(),
            resumed: Vec::new(),
            awaited: BTreeSet::new(),
            made: Vec::new(),
            deferring: BTreeSet::new(),
            fault,
            random: Random::new(seed),
        }
    }

    /// Whether this fault is planted and strikes now.
    fn hits(&mut self, fault: Fault) -> bool {
        self.fault == Some(fault) && self.random.chance(50)
    }
}

impl Effects for Outside {
    fn append(&mut self, _format: Format, message: &Message<'_>) -> Span {
        self.log.push(heard(message));
        let end = self.log.len() as u64;
        Span {
            start: end - 1,
            end,
        }
    }

    fn post(&mut self, to: Address, mut entry: Entry) {
        match &mut entry {
            Entry::RecordPublished {
                name,
                what: Published::Changed { full, .. },
                ..
            } => {
                let made = (name.to_string(), number_of(full.as_str()));
                if !self.made.contains(&made) {
                    self.made.push(made);
                }
            }
            Entry::Work(WorkEntry::Deferred { session, owner, .. }) => {
                self.deferring.insert((*session, *owner));
            }
            Entry::Work(WorkEntry::Proceeded {
                session,
                owner,
                is_done: true,
                ..
            }) => {
                self.deferring.remove(&(*session, *owner));
            }
            Entry::Work(WorkEntry::Proceed { .. }) if self.hits(Fault::ProceedLost) => return,
            Entry::Work(WorkEntry::SessionEnded { .. }) if self.hits(Fault::EndForgotten) => return,
            Entry::RecordAnswer(answer)
                if matches!(answer.what, Answer::Lost { .. })
                    && self.hits(Fault::LossNoticeLost) =>
            {
                return;
            }
            Entry::Value {
                asker: Asker::Record { .. },
                value,
                ..
            } if self.hits(Fault::GateMisled) => *value = Ok(None),
            Entry::RecordAnswer(answer) if answer.session.generation >= ALIAS => {
                answer.session.generation -= ALIAS;
            }
            Entry::RecordRequest(request)
                if matches!(
                    request.what,
                    RecordRequestKind::One(_, RecordOperation::Write(_))
                ) && self.deferring.contains(&(request.session, to))
                    && self.hits(Fault::Overtaken) =>
            {
                request.session.generation += ALIAS;
            }
            _ => {}
        }
        self.mailboxes[index_of(to)].push_back(entry);
    }

    fn publish(&mut self, _topic: InterestTopic, _name: &str, _entry: impl Fn() -> Entry) {}

    fn visit_pattern_shards(&self, _event: &str, _visit: impl FnMut(Address)) {}

    fn interest(&mut self, _number: u64, _change: InterestChange) {}

    fn store(&mut self, request: StoreRequest) {
        self.store.push((self.at, request));
    }

    fn authenticate(&mut self, request: AuthRequest) {
        self.logins.push(request);
    }

    fn close(&mut self, _session: SessionId, _reason: CloseReason) {}

    fn resume(&mut self, session: SessionId) {
        self.resumed.push(session);
    }

    fn await_drained(&mut self, session: SessionId) {
        self.awaited.insert(session);
    }
}

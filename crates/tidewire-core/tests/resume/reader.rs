//! A subscriber that knows offsets, and the messages that it must never receive.

use std::collections::BTreeMap;

use tidewire_core::address::SessionId;
use tidewire_core::message::{Event, EventBulk, Message, Position, Record};

/// A broken promise.
#[derive(Debug)]
pub struct Violation(pub String);

pub type Checked = Result<(), Violation>;

/// The event at each position. All subscribers must agree on it.
pub type Truth = BTreeMap<(String, u64, u64), u64>;

/// A message in the form in which a client keeps it.
#[derive(Clone, Debug)]
pub enum Heard {
    At(Position),
    Gap {
        missed: Option<u32>,
        first: Option<Position>,
    },
    Event {
        number: u64,
        offset: Option<u64>,
    },
    Subscribed,
    Written(String),
    Refused,
    EventRefused,
    Other,
}

impl Heard {
    pub fn of(message: &Message<'_>) -> Self {
        let number = |data: &Option<&str>| data.and_then(|data| data.parse().ok()).unwrap_or(0);
        match message {
            Message::Event(Event::Position { position, .. }) => Self::At(*position),
            Message::Event(Event::HistoryGap { missed, first, .. }) => Self::Gap {
                missed: *missed,
                first: *first,
            },
            Message::Event(Event::Publication(publication)) => Self::Event {
                number: number(&publication.data),
                offset: publication.offset(),
            },
            Message::Event(Event::Ack {
                action: EventBulk::Subscribe,
                ..
            }) => Self::Subscribed,
            Message::Record(Record::WriteAck { correlation, .. }) => {
                Self::Written(correlation.unwrap_or_default().to_owned())
            }
            Message::Record(Record::Error(_)) => Self::Refused,
            Message::Event(Event::Error(_)) => Self::EventRefused,
            _ => Self::Other,
        }
    }
}

/// A client that follows one name and resumes at its position.
#[derive(Debug)]
pub struct Reader {
    pub name: &'static str,
    pub session: Option<SessionId>,
    pub position: Option<Position>,
    /// The client has received its first message since it resumed: a position or a gap.
    has_resumed: bool,
    pub gaps: u64,
    pub heard: u64,
}

impl Reader {
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            session: None,
            position: None,
            has_resumed: false,
            gaps: 0,
            heard: 0,
        }
    }

    /// The client has connected and requested the events after its position.
    pub fn comes(&mut self, session: SessionId) {
        self.session = Some(session);
        self.has_resumed = false;
    }

    /// A message of the client's connection. `published` is the maximum number of events of the name so far, and the history
    /// keeps `kept` of them. `lasts` is true if the history survives a crash.
    pub fn hear(
        &mut self,
        heard: &Heard,
        truth: &mut Truth,
        (published, kept, lasts): (u64, u64, bool),
    ) -> Checked {
        match *heard {
            Heard::At(position) => {
                let is_expected =
                    !self.has_resumed && self.position.is_none_or(|own| own == position);
                self.has_resumed = true;
                self.position = Some(position);
                self.ensure(is_expected, "another position", heard)
            }
            Heard::Gap { missed, first } => {
                let (Some(first), Some(own)) = (first, self.position) else {
                    return self.ensure(false, "a gap from nowhere", heard);
                };
                let before = Position {
                    offset: first.offset - 1,
                    ..first
                };
                let is_right = match missed {
                    // A gap of known length exists only if the history no longer has the position.
                    Some(missed) => {
                        own.epoch == first.epoch
                            && missed > 0
                            && before.offset == own.offset + u64::from(missed)
                            && published > own.offset + kept
                    }
                    None => own.epoch != first.epoch && (!lasts || own.offset == 0),
                };
                self.has_resumed = true;
                self.position = Some(before);
                self.gaps += 1;
                self.ensure(is_right, "a wrong gap", heard)
            }
            Heard::Event { number, offset } => {
                let (Some(offset), Some(own)) = (offset, &mut self.position) else {
                    return self.ensure(false, "an event from nowhere", heard);
                };
                let is_next = self.has_resumed && offset == own.offset + 1;
                own.offset = offset;
                let key = (self.name.to_owned(), own.epoch, offset);
                let is_true = *truth.entry(key).or_insert(number) == number;
                self.heard += 1;
                self.ensure(is_next, "not the next one", heard)?;
                self.ensure(is_true, "not what others heard", heard)
            }
            _ => Ok(()),
        }
    }

    fn ensure(&self, holds: bool, why: &str, heard: &Heard) -> Checked {
        if holds {
            return Ok(());
        }
        Err(Violation(format!("{why}: {heard:?} to {self:?}")))
    }
}

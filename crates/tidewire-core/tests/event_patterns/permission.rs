//! The rules of the simulation. Each round of rules decides differently about the events that are not `free`.

use tidewire_core::message::Message;
use tidewire_core::permission::{Access, Decision, EventRight, Permission, Question, Unknown};
use tidewire_core::text::Payload;

use crate::fault::Fault;

/// The record that an event's rule reads.
pub fn gate_of(event: &str) -> String {
    format!("gate/{event}")
}

/// The value of an open gate.
pub const OPEN: &str = r#"{"open":true}"#;

/// The rules of one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// All sessions may get all events.
    Open,
    /// No session may get an event that is not free.
    Closed,
    /// A user may get about half of the events.
    ByUser(u64),
    /// The event's gate decides.
    ByGate,
}

impl Rules {
    /// The right to an event, without a look at records; `None` if its gate decides.
    pub fn allows(self, user: &str, event: &str) -> Option<bool> {
        if event.starts_with("free/") {
            return Some(true);
        }
        match self {
            Self::Open => Some(true),
            Self::Closed => Some(false),
            Self::ByUser(salt) => {
                let letters = user.bytes().chain(event.bytes());
                let sum = letters.fold(salt, |sum, letter| {
                    sum.wrapping_mul(31).wrapping_add(u64::from(letter))
                });
                Some((sum >> 3).is_multiple_of(2))
            }
            Self::ByGate => None,
        }
    }
}

/// The permission of one round.
#[derive(Debug)]
pub struct RoundPermission {
    pub rules: Rules,
    pub fault: Option<Fault>,
}

impl Permission for RoundPermission {
    fn decide(&self, question: &Question<'_>) -> Decision {
        let event = question.name.unwrap_or_default();
        if question.access != Access::EventSubscribe {
            return Decision::Allow;
        }
        let is_allowed = match self
            .rules
            .allows(question.principal.user_id.as_str(), event)
        {
            Some(is_allowed) => is_allowed,
            None => match question.record(&gate_of(event)) {
                Ok(value) => value.map(Payload::as_str) == Some(OPEN),
                Err(need) => return need,
            },
        };
        match is_allowed {
            true => Decision::Allow,
            false => Decision::Deny,
        }
    }

    fn decide_without(&self, question: &Question<'_>, _unknown: Unknown) -> Option<Decision> {
        (question.access != Access::EventSubscribe).then_some(Decision::Allow)
    }

    fn event_right(&self, event: &str) -> EventRight {
        match self.rules {
            _ if event.starts_with("free/") => EventRight::Constant(true),
            Rules::Open => EventRight::Constant(true),
            Rules::Closed => EventRight::Constant(false),
            Rules::ByUser(_) if self.fault == Some(Fault::RightsOverstated) => {
                EventRight::Constant(true)
            }
            Rules::ByUser(_) => EventRight::ByPrincipal,
            Rules::ByGate => EventRight::ByOthers,
        }
    }

    fn decide_pattern(&self, _question: &Question<'_>, _prefix: &str) -> Decision {
        Decision::Allow
    }
}

/// The name and number of an event, if the message is one.
pub fn event_of(message: &Message<'_>) -> Option<(String, u64)> {
    use tidewire_core::message::Event;
    let Message::Event(Event::Publication(publication)) = message else {
        return None;
    };
    let number = publication.data?.parse().ok()?;
    Some((publication.name.to_owned(), number))
}

//! The judge of the simulation: events under `gated/` and writes under `ruled/` need a record, everything else is
//! allowed, but for what rules that change forbid. It writes down every ruling, because the model can't know which value a rule has read.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use tidewire_core::permission::{Access, Decision, Permission, Question};

use crate::wire::parse;

/// What the judge said to one question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    Allowed,
    Denied,
    /// The gate is needed first.
    Needs,
}

/// What was asked, and the answer.
#[derive(Clone, Debug)]
pub struct Ruling {
    pub name: String,
    pub said: Said,
}

/// The rulings since somebody took them.
#[derive(Clone, Debug, Default)]
pub struct Rulings(Arc<Mutex<Vec<Ruling>>>);

impl Rulings {
    pub fn take(&self) -> Vec<Ruling> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn push(&self, ruling: Ruling) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(ruling);
    }
}

/// The record that decides about a name.
pub fn gate_of(name: &str) -> Option<String> {
    let place = name
        .strip_prefix("gated/")
        .or_else(|| name.strip_prefix("ruled/"))?;
    Some(format!("gate/{place}"))
}

/// Rules of events that change.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Nobody may subscribe to these.
    pub closed: BTreeSet<String>,
    /// Nobody may publish these.
    pub mute: BTreeSet<String>,
}

/// See the head of this file.
#[derive(Debug)]
pub struct Judge {
    pub rulings: Rulings,
    pub rules: Arc<Rules>,
}

impl Permission for Judge {
    fn decide(&self, question: &Question<'_>) -> Decision {
        let name = question.name.unwrap_or_default();
        let forbidden = match question.access {
            Access::EventSubscribe => self.rules.closed.contains(name),
            Access::EventPublish => self.rules.mute.contains(name),
            _ => false,
        };
        if forbidden {
            return Decision::Deny;
        }
        let judged = matches!(
            question.access,
            Access::EventPublish | Access::RecordWrite | Access::RecordDelete
        );
        let Some((name, gate)) = question
            .name
            .filter(|_| judged)
            .and_then(|name| Some((name, gate_of(name)?)))
        else {
            return Decision::Allow;
        };
        let decision = match question.record(&gate) {
            Err(needed) => needed,
            Ok(Some(value)) if parse(value.as_str())["open"] == true => Decision::Allow,
            Ok(_) => Decision::Deny,
        };
        let said = match decision {
            Decision::Allow => Said::Allowed,
            Decision::Need(_) => Said::Needs,
            Decision::Deny | Decision::Failed => Said::Denied,
        };
        self.rulings.push(Ruling {
            name: name.into(),
            said,
        });
        decision
    }
}

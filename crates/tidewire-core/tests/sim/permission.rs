//! The permission of the simulation. Events under `gated/` and writes under `ruled/` need a record. All other operations are
//! allowed unless the changing rules forbid them. The permission records every ruling, because the model can't know which value a
//! rule has read.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use tidewire_core::message::PresenceAction;
use tidewire_core::permission::{
    Access, Decision, Permission, Question, ReadRight, RequestedAction, Unknown,
};
use tidewire_core::principal::Principal;

use crate::right::{Right, is_guarded};
use crate::rude::FAILING;
use crate::wire::parse;

/// The answer of the permission to one question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    Allowed,
    Denied,
    /// The rule needs the gate's record first.
    Needs,
}

/// A question's name and its answer.
#[derive(Clone, Debug)]
pub struct Ruling {
    pub name: String,
    pub said: Said,
}

/// The rulings since the last call of `take`.
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

/// The record that the rule of a name reads.
pub fn gate_of(name: &str) -> Option<String> {
    let number = name
        .strip_prefix("gated/")
        .or_else(|| name.strip_prefix("ruled/"))?;
    Some(format!("gate/{number}"))
}

/// The rules of a run that can change.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// No session may hold these.
    pub forbidden: BTreeSet<Right>,
    /// No session may publish these events, write these records or call these rpcs.
    pub mute: BTreeSet<String>,
}

impl Rules {
    /// Whether the rules forbid all sessions to hold this.
    pub fn forbids(&self, right: &Right) -> bool {
        self.forbidden.contains(right)
    }
}

/// The right that a question concerns, if it concerns a holding.
fn right_of(question: &Question<'_>) -> Option<Right> {
    let name = question.name.map(str::to_owned);
    match question.access {
        Access::EventSubscribe => name.map(Right::Event),
        Access::RecordRead => name.filter(|name| is_guarded(name)).map(Right::Record),
        Access::RpcProvide => name.map(Right::Provide),
        Access::RecordListen => name.map(|pattern| Right::Listen(true, pattern)),
        Access::EventListen => name.map(|pattern| Right::Listen(false, pattern)),
        Access::Presence => match question.by {
            RequestedAction::Presence(PresenceAction::Subscribe | PresenceAction::SubscribeAll) => {
                Some(Right::Watch(name))
            }
            _ => None,
        },
        _ => None,
    }
}

/// See the documentation of this module.
#[derive(Debug)]
pub struct TestPermission {
    pub rulings: Rulings,
    pub rules: Arc<Rules>,
}

impl Permission for TestPermission {
    fn decide(&self, question: &Question<'_>) -> Decision {
        let name = question.name.unwrap_or_default();
        if name == FAILING {
            return Decision::Failed;
        }
        let is_mute = matches!(
            question.access,
            Access::EventPublish | Access::RecordWrite | Access::RpcRequest
        ) && self.rules.mute.contains(name);
        if is_mute || right_of(question).is_some_and(|right| self.rules.forbids(&right)) {
            return Decision::Deny;
        }
        let decided = matches!(
            question.access,
            Access::EventPublish | Access::RecordWrite | Access::RecordDelete
        );
        let Some((name, gate)) = question
            .name
            .filter(|_| decided)
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

    fn decide_without(&self, question: &Question<'_>, _unknown: Unknown) -> Option<Decision> {
        // The model follows each ruling, so a name with a gate needs a question with all its data.
        let has_gate = question.name.is_some_and(|name| gate_of(name).is_some());
        (!has_gate).then(|| self.decide(question))
    }

    fn read_right(&self, _principal: &Principal, _name: &str) -> ReadRight {
        ReadRight::Fixed
    }

    fn tells_users_apart(&self, _principal: &Principal) -> bool {
        // The model of presence knows which sessions watch all users, and does not know which users a rule would hide from them.
        false
    }
}

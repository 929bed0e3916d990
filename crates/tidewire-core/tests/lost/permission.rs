//! Rules that read a record before they allow something whose name begins with `g/`. Only a failed read makes them refuse.

use tidewire_core::permission::{
    Access, Decision, EventRight, Permission, Question, ReadRight, Unknown,
};
use tidewire_core::principal::Principal;

/// The records that rules read. They have different owners.
pub const GATES: [&str; 4] = ["gate/0", "gate/1", "gate/2", "gate/3"];

/// See the documentation of this module. The number selects which gate the rule of a name reads.
#[derive(Debug)]
pub struct GatePermission(pub usize);

impl GatePermission {
    fn gate(&self, name: &str) -> Option<&'static str> {
        let sum: usize = name.bytes().map(usize::from).sum();
        name.starts_with("g/")
            .then(|| GATES[(sum + self.0) % GATES.len()])
    }
}

impl Permission for GatePermission {
    fn decide(&self, question: &Question<'_>) -> Decision {
        let gate = question.name.and_then(|name| self.gate(name));
        match gate.map(|gate| question.record(gate)) {
            Some(Err(needed)) => needed,
            _ => Decision::Allow,
        }
    }

    fn decide_without(&self, question: &Question<'_>, _unknown: Unknown) -> Option<Decision> {
        // The owner of a record decides when it has the record, so that the job waits there for the gate.
        let is_gated = question.name.is_some_and(|name| name.starts_with("g/"));
        (!is_gated).then(|| self.decide(question))
    }

    fn tells_users_apart(&self, _principal: &Principal) -> bool {
        false
    }

    fn read_right(&self, _principal: &Principal, name: &str) -> ReadRight {
        match name.starts_with("g/") {
            true => ReadRight::ByOthers,
            false => ReadRight::Fixed,
        }
    }

    fn event_right(&self, name: &str) -> EventRight {
        match name.starts_with("g/") {
            true => EventRight::ByOthers,
            false => EventRight::Constant(true),
        }
    }

    fn decide_pattern(&self, question: &Question<'_>, _prefix: &str) -> Decision {
        match question.access {
            Access::EventListen | Access::RecordListen => Decision::Allow,
            _ => self.decide(question),
        }
    }
}

//! Rules that forbid some users all writes, and let readers read open records while the gate is open.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use tidewire_core::permission::{Access, Decision, Permission, Question, ReadRight, Unknown};
use tidewire_core::principal::Principal;

use crate::outside::number_of;

/// The record that the readers' rule reads in addition to the requested one.
pub const GATE: &str = "gate";
/// The prefix of the user ids of readers.
pub const READER: &str = "reader";

/// Whether the write with this number hides the record from readers, or shuts the gate.
pub fn is_shut(name: &str, number: u64) -> bool {
    match name {
        GATE => number.is_multiple_of(3),
        _ => number % 10 == 7,
    }
}

/// The users that may not write.
pub type Muted = BTreeSet<String>;

/// By the number of a write: the rules under which a shard took it. Filled only if a fault makes these rules decide forever.
pub type TakenBy = Arc<Mutex<BTreeMap<u64, Arc<Muted>>>>;

/// See the documentation of this module.
#[derive(Debug)]
pub struct TestPermission {
    pub muted: Arc<Muted>,
    /// Whether the right of readers depends on data.
    pub is_sighted: bool,
    /// Empty, unless a fault is planted.
    pub taken_by: TakenBy,
}

impl TestPermission {
    fn reads_by_data(&self, principal: &Principal) -> bool {
        self.is_sighted && principal.user_id.starts_with(READER)
    }
}

impl Permission for TestPermission {
    fn decide(&self, question: &Question<'_>) -> Decision {
        if question.access == Access::RecordRead && self.reads_by_data(question.principal) {
            let name = question.name.unwrap_or_default();
            if is_shut(name, question.old_data.map_or(0, number_of)) {
                return Decision::Deny;
            }
            let gate = match question.record(GATE) {
                Ok(gate) => gate.map_or(0, |gate| number_of(gate.as_str())),
                Err(needed) => return needed,
            };
            return match gate > 0 && is_shut(GATE, gate) {
                true => Decision::Deny,
                false => Decision::Allow,
            };
        }
        if question.access != Access::RecordWrite {
            return Decision::Allow;
        }
        let number = question.data.map_or(0, number_of);
        let taken_by = self.taken_by.lock().unwrap_or_else(PoisonError::into_inner);
        let muted = taken_by.get(&number).unwrap_or(&self.muted);
        match muted.contains(question.principal.user_id.as_str()) {
            true => Decision::Deny,
            false => Decision::Allow,
        }
    }

    fn decide_without(&self, question: &Question<'_>, unknown: Unknown) -> Option<Decision> {
        let needs_unknown = match question.access {
            Access::RecordRead => unknown.old_data && self.reads_by_data(question.principal),
            _ => unknown.data,
        };
        (!needs_unknown).then(|| self.decide(question))
    }

    fn read_right(&self, principal: &Principal, _name: &str) -> ReadRight {
        match self.reads_by_data(principal) {
            true => ReadRight::ByRecord,
            false => ReadRight::Fixed,
        }
    }
}

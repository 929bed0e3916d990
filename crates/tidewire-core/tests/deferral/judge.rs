//! Rules under which some users may write nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use tidewire_core::effect::Principal;
use tidewire_core::permission::{Access, Decision, Permission, Question, ReadRight, Unknown};

use crate::outside::number_of;

/// The users that may not write.
pub type Muted = BTreeSet<String>;

/// The rules under which shards have taken each write, by its number, where a fault has them decide for ever.
pub type TakenBy = Arc<Mutex<BTreeMap<u64, Arc<Muted>>>>;

/// See the head of this file.
#[derive(Debug)]
pub struct Judge {
    pub muted: Arc<Muted>,
    /// Empty, unless a fault is planted.
    pub taken_by: TakenBy,
}

impl Permission for Judge {
    fn decide(&self, question: &Question<'_>) -> Decision {
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
        (!unknown.data).then(|| self.decide(question))
    }

    fn read_right(&self, _principal: &Principal, _name: &str) -> ReadRight {
        ReadRight::Fixed
    }
}

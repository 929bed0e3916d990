//! A permission whose rules come from the test, and which counts its questions. The user [`OWNER`] may perform every operation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidewire_core::permission::{Access, Decision, Permission, Question, ReadRight, Unknown};
use tidewire_core::principal::Principal;

/// The user that prepares the scene.
pub const OWNER: &str = "owner";

/// The condition of a right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// `true`
    Allow,
    /// `false`
    Deny,
    /// `undefined.member`
    Fail,
    /// `_(record).open === true`
    Record(&'static str),
    /// `_('gate/' + name).open === true`
    Gate,
    /// `oldData.open === true`, which fails if the record does not exist.
    Old,
    /// `data.open === true`
    New,
}

/// A permission where the first rule of an access decides. An access without a rule is allowed.
#[derive(Debug)]
pub struct TestPermission {
    rules: Vec<(Access, Rule)>,
    asked: AtomicUsize,
}

/// A permission with these rules.
pub fn permission_of(rules: &[(Access, Rule)]) -> Arc<TestPermission> {
    Arc::new(TestPermission {
        rules: rules.to_vec(),
        asked: AtomicUsize::new(0),
    })
}

fn by(is_open: bool) -> Decision {
    match is_open {
        true => Decision::Allow,
        false => Decision::Deny,
    }
}

fn is_open(document: &str) -> bool {
    let value: serde_json::Value = serde_json::from_str(document).expect("checked");
    value["open"] == true
}

impl TestPermission {
    /// The number of questions since the last call.
    pub fn take_asked(&self) -> usize {
        self.asked.swap(0, Ordering::Relaxed)
    }

    fn rule(&self, access: Access) -> Rule {
        let mut rules = self.rules.iter();
        let rule = rules.find(|(known, _)| *known == access);
        rule.map_or(Rule::Allow, |(_, rule)| *rule)
    }
}

impl Permission for TestPermission {
    fn decide(&self, question: &Question<'_>) -> Decision {
        if question.principal.user_id.as_str() == OWNER {
            return Decision::Allow;
        }
        self.asked.fetch_add(1, Ordering::Relaxed);
        let gate = format!("gate/{}", question.name.unwrap_or_default());
        let record = |name: &str| match question.record(name) {
            Ok(value) => by(value.is_some_and(|value| is_open(value.as_str()))),
            Err(need) => need,
        };
        match self.rule(question.access) {
            Rule::Allow => Decision::Allow,
            Rule::Deny => Decision::Deny,
            Rule::Fail => Decision::Failed,
            Rule::Record(name) => record(name),
            Rule::Gate => record(&gate),
            Rule::Old => match question.old_data {
                Some(old) => by(is_open(old)),
                None => Decision::Failed,
            },
            Rule::New => by(question.data.is_some_and(is_open)),
        }
    }

    fn decide_without(&self, question: &Question<'_>, unknown: Unknown) -> Option<Decision> {
        let needs_unknown = match self.rule(question.access) {
            Rule::Old => unknown.old_data,
            Rule::New => unknown.data,
            _ => false,
        };
        (!needs_unknown).then(|| self.decide(question))
    }

    fn read_right(&self, principal: &Principal, _name: &str) -> ReadRight {
        match self.rule(Access::RecordRead) {
            _ if principal.user_id.as_str() == OWNER => ReadRight::Fixed,
            Rule::Record(_) | Rule::Gate => ReadRight::ByOthers,
            Rule::Old => ReadRight::ByRecord,
            Rule::Allow | Rule::Deny | Rule::Fail | Rule::New => ReadRight::Fixed,
        }
    }
}

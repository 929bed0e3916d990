//! Permission in development mode with the demo and without configured rules: the rules of the demo apply to the names of the
//! demo, and everything else is allowed.

use std::sync::Arc;

use tidewire_config::Problem;
use tidewire_core::permission::{
    Decision, EventRight, Permission, QueryRight, Question, ReadRight, Unknown,
};
use tidewire_core::principal::Principal;
use tidewire_rules::limits::RuleLimits;
use tidewire_rules::load::parse;

use crate::denials::Denials;
use crate::permission_report::Reported;

/// The prefix of the demo's names.
const NAMES: &str = "tidewire-demo/";
const RULES: &str = include_str!("../../../examples/demo/permissions.yml");
/// The name of the rule file in logs.
const FILE: &str = "examples/demo/permissions.yml";

/// The rules of the demo.
#[derive(Debug)]
pub struct DemoRules(Reported);

impl DemoRules {
    /// Parses the rules in the binary; `denials` keeps their denials.
    ///
    /// # Errors
    /// The first problem of the rules; a test proves that they are valid.
    pub fn load(denials: Arc<Denials>) -> Result<Self, Problem> {
        match parse(RULES, FILE, &RuleLimits::default()) {
            Ok(rules) => Ok(Self(Reported::new(rules, Some(denials), true))),
            Err(errors) => Err(Problem::new(FILE, format!("{errors:?}"))),
        }
    }
}

impl Permission for DemoRules {
    fn decide(&self, question: &Question<'_>) -> Decision {
        match question.name {
            Some(name) if name.starts_with(NAMES) => self.0.decide(question),
            _ => Decision::Allow,
        }
    }

    fn decide_without(&self, question: &Question<'_>, unknown: Unknown) -> Option<Decision> {
        match question.name {
            Some(name) if name.starts_with(NAMES) => self.0.decide_without(question, unknown),
            _ => Some(Decision::Allow),
        }
    }

    fn read_fields(&self, principal: &Principal, name: &str) -> Option<&[Box<str>]> {
        match name.starts_with(NAMES) {
            true => self.0.read_fields(principal, name),
            false => Some(&[]),
        }
    }

    fn tells_users_apart(&self, principal: &Principal) -> bool {
        self.0.tells_users_apart(principal)
    }

    fn read_right(&self, principal: &Principal, name: &str) -> ReadRight {
        match name.starts_with(NAMES) {
            true => self.0.read_right(principal, name),
            false => ReadRight::Fixed,
        }
    }

    fn event_right(&self, name: &str) -> EventRight {
        match name.starts_with(NAMES) {
            true => self.0.event_right(name),
            false => EventRight::Constant(true),
        }
    }

    fn query_right(&self, prefix: &str) -> QueryRight {
        match prefix.starts_with(NAMES) {
            true => self.0.query_right(prefix),
            false => QueryRight::Common,
        }
    }

    fn decide_pattern(&self, question: &Question<'_>, prefix: &str) -> Decision {
        match prefix.starts_with(NAMES) {
            true => self.0.decide_pattern(question, prefix),
            false => self.decide(question),
        }
    }
}

#[cfg(test)]
mod tests {
    use tidewire_core::permission::{Access, RequestedAction};
    use tidewire_core::time::WallTime;

    use super::*;

    const OPEN: &str = r#"{"locked":false}"#;
    const LOCKED: &str = r#"{"locked":true}"#;

    #[test]
    fn live_queries_of_all_names_are_possible() {
        let rules = DemoRules::load(Arc::default()).expect("right");
        for prefix in [NAMES, "cards/"] {
            assert_eq!(rules.query_right(prefix), QueryRight::Common, "{prefix}");
        }
    }

    #[test]
    fn a_locked_list_can_only_be_unlocked() {
        let rules = DemoRules::load(Arc::default()).expect("right");
        let decide = |access, name, old_data, data| {
            rules.decide(&Question {
                principal: &Principal::new("ada".into()),
                access,
                by: RequestedAction::Plainly,
                name: Some(name),
                data,
                old_data,
                now: WallTime::default(),
                values: &[],
            })
        };
        let list = "tidewire-demo/todos";
        let check = |access, name, old_data, data, expected: Decision| {
            assert_eq!(
                decide(access, name, old_data, data),
                expected,
                "{access:?} {name} {old_data:?} {data:?}"
            );
        };
        for (access, data) in [
            (Access::RecordWrite, Some(LOCKED)),
            (Access::RecordDelete, None),
        ] {
            check(access, list, None, data, Decision::Allow);
            check(access, list, Some("{}"), data, Decision::Allow);
            check(access, list, Some(OPEN), data, Decision::Allow);
            check(access, list, Some(LOCKED), data, Decision::Deny);
            check(access, "todos", Some(LOCKED), data, Decision::Allow);
        }
        check(
            Access::RecordWrite,
            list,
            Some(LOCKED),
            Some(OPEN),
            Decision::Allow,
        );
        check(
            Access::RecordRead,
            list,
            Some(LOCKED),
            None,
            Decision::Allow,
        );
        check(
            Access::EventPublish,
            "tidewire-demo/cursor",
            None,
            Some("1"),
            Decision::Allow,
        );
    }
}

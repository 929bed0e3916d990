//! Permission for the permission tests, only in builds with the feature `test-rules`.
//!
//! The prefix of a name decides: `denied/` allows nothing, `noread/` denies reads and subscriptions, `nowrite/` denies changes
//! and publishing, and with `broken/` the rule fails. `needs/RECORD/...` is allowed while the field `open` of the record RECORD
//! is true.

use serde_json::Value;
use tidewire_core::effect::Principal;
use tidewire_core::permission::{Access, Decision, Permission, Question, ReadRight, Unknown};

/// A permission implementation that decides by the prefix of the name.
#[derive(Clone, Copy, Debug)]
pub struct TestRule;

impl Permission for TestRule {
    fn decide(&self, question: &Question<'_>) -> Decision {
        let Some(name) = question.name else {
            return Decision::Allow;
        };
        let (kind, rest) = name.split_once('/').unwrap_or((name, ""));
        let is_refused = match kind {
            "denied" => true,
            "noread" => matches!(question.access, Access::RecordRead | Access::EventSubscribe),
            "nowrite" => matches!(
                question.access,
                Access::RecordWrite | Access::RecordDelete | Access::EventPublish
            ),
            "broken" => return Decision::Failed,
            "needs" => return decide_by(question, rest.split('/').next().unwrap_or_default()),
            _ => false,
        };
        if is_refused {
            Decision::Deny
        } else {
            Decision::Allow
        }
    }

    fn decide_without(&self, question: &Question<'_>, _unknown: Unknown) -> Option<Decision> {
        // The decision depends on neither document of the record.
        Some(self.decide(question))
    }

    fn read_right(&self, _principal: &Principal, name: &str) -> ReadRight {
        match name.starts_with("needs/") {
            true => ReadRight::ByOthers,
            false => ReadRight::Fixed,
        }
    }
}

fn decide_by(question: &Question<'_>, record: &str) -> Decision {
    let value = match question.record(record) {
        Ok(value) => value,
        Err(needed) => return needed,
    };
    let value = value.and_then(|value| serde_json::from_str::<Value>(value.as_str()).ok());
    match value {
        Some(value) if value["open"] == Value::Bool(true) => Decision::Allow,
        _ => Decision::Deny,
    }
}

#[cfg(test)]
mod tests {
    use tidewire_core::permission::Asked;
    use tidewire_core::text::{Name, Payload};
    use tidewire_core::time::WallTime;

    use super::*;

    fn check(access: Access, name: &str, values: &[(Name, Option<Payload>)], expected: Decision) {
        let principal = Principal::new(Name::from("somebody"));
        let question = Question {
            principal: &principal,
            access,
            by: Asked::Plainly,
            name: Some(name),
            data: None,
            old_data: None,
            now: WallTime(0),
            values,
        };
        assert_eq!(TestRule.decide(&question), expected, "{access:?} {name}");
    }

    #[test]
    fn decides_by_the_beginning_of_the_name() {
        check(Access::RecordRead, "free", &[], Decision::Allow);
        check(Access::RecordRead, "denied/a", &[], Decision::Deny);
        check(Access::RecordRead, "noread/a", &[], Decision::Deny);
        check(Access::RecordWrite, "noread/a", &[], Decision::Allow);
        check(Access::RecordWrite, "nowrite/a", &[], Decision::Deny);
        check(Access::RecordRead, "nowrite/a", &[], Decision::Allow);
        check(Access::EventPublish, "nowrite/a", &[], Decision::Deny);
        check(Access::RpcRequest, "broken/a", &[], Decision::Failed);
    }

    #[test]
    fn asks_for_the_record_it_needs() {
        let value = |text: &str| [(Name::from("gate"), Some(Payload::from_checked(text)))];
        check(
            Access::RecordRead,
            "needs/gate/a",
            &[],
            Decision::Need(Name::from("gate")),
        );
        check(
            Access::RecordRead,
            "needs/gate/a",
            &value("{\"open\":true}"),
            Decision::Allow,
        );
        check(
            Access::RecordRead,
            "needs/gate/a",
            &value("{\"open\":1}"),
            Decision::Deny,
        );
        check(
            Access::RecordRead,
            "needs/gate/a",
            &[(Name::from("gate"), None)],
            Decision::Deny,
        );
    }
}

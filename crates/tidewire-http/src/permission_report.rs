//! Logs the denials of the rules, and keeps the last ones for development mode and the admin page.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidewire_core::permission::{
    Decision, EventRight, Permission, QueryRight, Question, ReadRight, RequestedAction, Unknown,
};
use tidewire_core::principal::Principal;
use tidewire_rules::decide::Explanation;
use tidewire_rules::set::{LocatedRule, RULE_KINDS, RuleSet};

use crate::denials::{Denial, Denials};

/// Denials that are logged and kept in one second. Further ones are only counted, so that a crowd of denied clients does not fill the
/// disk.
const REPORTS_PER_SECOND_MAX: u64 = 20;

/// Rules whose denials are logged together with the rule that denied: at `info` in development mode, else at `debug`.
#[derive(Debug)]
pub struct Reported {
    rules: RuleSet,
    /// Keeps the denials, in development mode and for the admin page.
    denials: Option<Arc<Denials>>,
    is_development: bool,
    /// The second of the last report. `count` is the number of reports in it.
    second: AtomicU64,
    count: AtomicU64,
}

impl Reported {
    /// Rules whose denials are logged, and kept in `denials`.
    #[must_use]
    pub fn new(rules: RuleSet, denials: Option<Arc<Denials>>, is_development: bool) -> Self {
        Self {
            rules,
            denials,
            is_development,
            second: AtomicU64::new(0),
            count: AtomicU64::new(0),
        }
    }

    /// The rules.
    #[must_use]
    pub fn rules(&self) -> &RuleSet {
        &self.rules
    }

    /// Whether another report may be logged in this second. If two shards begin a second at the same time, one more report gets
    /// through.
    fn may_report(&self, now_ms: u64) -> bool {
        let second = now_ms / 1000;
        if self.second.swap(second, Ordering::Relaxed) != second {
            self.count.store(0, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed) < REPORTS_PER_SECOND_MAX
    }

    /// Returns the decision, and logs it if it is a denial or the rule failed.
    fn reported(&self, question: &Question<'_>, explanation: Explanation<'_>) -> Decision {
        let is_refused = matches!(explanation.decision, Decision::Deny | Decision::Failed);
        // A query that passes over a record is not a denial.
        let is_requested = question.by != RequestedAction::Query;
        if is_refused
            && is_requested
            && (self.denials.is_some() || tracing::enabled!(tracing::Level::DEBUG))
        {
            self.report(question, &explanation);
        }
        explanation.decision
    }

    #[cold]
    fn report(&self, question: &Question<'_>, explanation: &Explanation<'_>) {
        if !self.may_report(question.now.0) {
            return;
        }
        let user = question.principal.user_id.as_str();
        let name = question.name.unwrap_or_default();
        let outcome = if explanation.decision == Decision::Failed {
            "the rule failed"
        } else {
            "denied"
        };
        let by = explanation.rule.map_or_else(
            || {
                format!(
                    "no path of {} that matches the name has this rule",
                    self.rules.file()
                )
            },
            |rule| describe(&self.rules, rule),
        );
        let allowing = allowing(&self.rules, question);
        let kind = kind_of(question);
        match self.is_development {
            true => tracing::info!(user, name, kind, by, allowing, "{outcome}"),
            false => tracing::debug!(user, name, kind, by, allowing, "{outcome}"),
        }
        let Some(denials) = &self.denials else {
            return;
        };
        denials.add(Denial {
            at: question.now.0,
            user: user.to_owned(),
            kind,
            name: name.to_owned(),
            outcome,
            by,
            allowing,
        });
    }
}

impl Permission for Reported {
    fn decide(&self, question: &Question<'_>) -> Decision {
        self.reported(question, self.rules.explain(question))
    }

    fn decide_without(&self, question: &Question<'_>, unknown: Unknown) -> Option<Decision> {
        let explanation = self.rules.explain_without(question, unknown)?;
        Some(self.reported(question, explanation))
    }

    fn read_fields(&self, principal: &Principal, name: &str) -> Option<&[Box<str>]> {
        self.rules.read_fields(principal, name)
    }

    fn tells_users_apart(&self, _principal: &Principal) -> bool {
        self.rules.tells_users_apart()
    }

    fn read_right(&self, principal: &Principal, name: &str) -> ReadRight {
        self.rules.read_right(principal, name)
    }

    fn event_right(&self, name: &str) -> EventRight {
        self.rules.event_right(name)
    }

    fn query_right(&self, prefix: &str) -> QueryRight {
        self.rules.query_right(prefix)
    }

    fn decide_pattern(&self, question: &Question<'_>, prefix: &str) -> Decision {
        let decision = self.rules.decide_pattern(question, prefix);
        let rule = None;
        self.reported(question, Explanation { decision, rule })
    }
}

/// Describes a rule like this: `permissions.yml:4:28 "profile/$id" write: user.id === $id`
pub fn describe(rules: &RuleSet, rule: &LocatedRule) -> String {
    let (place, path) = (rule.position, rule.path.as_str());
    let text = rule.text().trim();
    format!(
        "{}:{}:{} {path:?} {}: {text}",
        rules.file(),
        place.line,
        place.column,
        rule.kind.name
    )
}

/// Describes the next rule that applies to the name and would have allowed the action.
fn allowing(rules: &RuleSet, question: &Question<'_>) -> String {
    let mut candidates = rules.candidates(question);
    let allowing = candidates.find(|explanation| explanation.decision == Decision::Allow);
    allowing
        .and_then(|explanation| explanation.rule)
        .map_or_else(
            || "no rule of this name".to_owned(),
            |rule| describe(rules, rule),
        )
}

pub(crate) fn kind_of(question: &Question<'_>) -> String {
    let kind = RULE_KINDS
        .iter()
        .find(|kind| kind.access == question.access);
    kind.map_or_else(String::new, |kind| {
        format!("{}.{}", kind.section, kind.name)
    })
}

#[cfg(test)]
mod tests {
    use tidewire_rules::limits::RuleLimits;
    use tidewire_rules::load::parse;

    use super::*;

    #[test]
    fn reports_are_bounded_by_the_second() {
        let reported = Reported::new(
            parse(rules_text(), "f", &RuleLimits::default()).expect("valid"),
            None,
            false,
        );
        let count = |now| (0..100).filter(|_| reported.may_report(now)).count() as u64;
        assert_eq!(count(1_000), REPORTS_PER_SECOND_MAX);
        assert_eq!(count(1_999), 0);
        assert_eq!(count(2_000), REPORTS_PER_SECOND_MAX);
    }

    fn rules_text() -> &'static str {
        "record: {\"*\": {}}\nevent: {\"*\": {}}\nrpc: {\"*\": {}}\npresence: {\"*\": {}}\n"
    }
}

//! Creates the permission implementation that the option `permissions` names, and logs denials. The rule language itself is in
//! `tidewire-rules`.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidewire_config::Problem;
use tidewire_config::plan::Plan;
use tidewire_config::value::Rules;
use tidewire_core::effect::{Credential, Principal};
use tidewire_core::permission::{AllowAll, Decision, Permission, Question, ReadRight, Unknown};
use tidewire_rules::decide::Explanation;
use tidewire_rules::limits::RuleLimits;
use tidewire_rules::load::parse;
use tidewire_rules::set::{PlacedRule, RULE_KINDS, RuleSet};

use crate::audit;
use crate::permission_demo::DemoRules;

/// Denials that are logged in one second. Further ones are only counted, so that a crowd of denied clients does not fill the
/// disk.
const REPORTS_PER_SECOND_MAX: u64 = 20;

/// Reads the rules from a file, again on each call.
///
/// # Errors
/// All problems of the file, each with file, line and column. The list is never empty.
pub fn load(path: &Path) -> Result<RuleSet, Vec<Problem>> {
    let file = path.display().to_string();
    let text = fs::read_to_string(path).map_err(|error| {
        let reason = format!(
            "can't be read: {error}; set `permissions`, or create a file with `tidewire rules init`"
        );
        vec![Problem::new(&file, reason)]
    })?;
    parse(&text, &file, &RuleLimits::default()).map_err(|errors| {
        errors
            .into_iter()
            .map(|error| {
                let origin = format!("{}:{}:{}", error.file, error.place.line, error.place.column);
                Problem::new(origin, error.reason)
            })
            .collect()
    })
}

/// Creates the permission implementation that the options request.
///
/// # Errors
/// The first problem of the rule file.
pub fn open(plan: &Plan) -> Result<Arc<dyn Permission>, Problem> {
    let rules: Arc<dyn Permission> = match &plan.config.permissions {
        Rules::None if plan.has_demo => Arc::new(DemoRules::load()?),
        Rules::None | Rules::AllowAll => Arc::new(AllowAll),
        Rules::File(path) => {
            let rules = load(path).map_err(|mut problems| problems.remove(0))?;
            Arc::new(Reported::new(rules, plan.is_development))
        }
    };
    Ok(match plan.admin_page.is_on() {
        true => Arc::new(Audited(rules)),
        false => rules,
    })
}

/// Allows operators everything and writes each decision about them to the audit log. The rules decide about all other
/// principals.
#[derive(Debug)]
struct Audited(Arc<dyn Permission>);

impl Permission for Audited {
    fn decide(&self, question: &Question<'_>) -> Decision {
        match question.principal.credential() {
            Some(Credential::Operator(session)) => {
                let name = question.name.unwrap_or_default();
                audit::engine(session, &kind_of(question), name);
                Decision::Allow
            }
            _ => self.0.decide(question),
        }
    }

    fn decide_pattern(&self, question: &Question<'_>, prefix: &str) -> Decision {
        match question.principal.credential() {
            Some(Credential::Operator(_)) => self.decide(question),
            _ => self.0.decide_pattern(question, prefix),
        }
    }

    fn decide_without(&self, question: &Question<'_>, unknown: Unknown) -> Option<Decision> {
        match question.principal.credential() {
            // An operator's action is decided once, when all documents are known, so the audit log has one line for it.
            Some(Credential::Operator(_)) => None,
            _ => self.0.decide_without(question, unknown),
        }
    }

    fn tells_users_apart(&self, principal: &Principal) -> bool {
        !principal.is_operator() && self.0.tells_users_apart(principal)
    }

    fn read_right(&self, principal: &Principal, name: &str) -> ReadRight {
        match principal.is_operator() {
            // The audit log gets its one line when the operator subscribes.
            true => ReadRight::Fixed,
            false => self.0.read_right(principal, name),
        }
    }
}

/// Rules whose denials are logged together with the rule that denied: at `info` in development mode, else at `debug`.
#[derive(Debug)]
pub struct Reported {
    rules: RuleSet,
    is_development: bool,
    /// The second of the last report. `count` is the number of reports in it.
    second: AtomicU64,
    count: AtomicU64,
}

impl Reported {
    /// Rules whose denials are logged.
    #[must_use]
    pub fn new(rules: RuleSet, is_development: bool) -> Self {
        Self {
            rules,
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
        if is_refused && (self.is_development || tracing::enabled!(tracing::Level::DEBUG)) {
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
        if self.is_development {
            tracing::info!(user, name, kind, by, allowing, "{outcome}");
        } else {
            tracing::debug!(user, name, kind, by, allowing, "{outcome}");
        }
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

    fn tells_users_apart(&self, _principal: &Principal) -> bool {
        self.rules.tells_users_apart()
    }

    fn read_right(&self, principal: &Principal, name: &str) -> ReadRight {
        self.rules.read_right(principal, name)
    }

    fn decide_pattern(&self, question: &Question<'_>, prefix: &str) -> Decision {
        let decision = self.rules.decide_pattern(question, prefix);
        let rule = None;
        self.reported(question, Explanation { decision, rule })
    }
}

/// Describes a rule like this: `permissions.yml:4:28 "profile/$id" write: user.id === $id`
pub fn describe(rules: &RuleSet, rule: &PlacedRule) -> String {
    let (place, path) = (rule.place, rule.path.as_str());
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

fn kind_of(question: &Question<'_>) -> String {
    let kind = RULE_KINDS
        .iter()
        .find(|kind| kind.access == question.access);
    kind.map_or_else(String::new, |kind| {
        format!("{}.{}", kind.section, kind.name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_bounded_by_the_second() {
        let reported = Reported::new(
            parse(rules_text(), "f", &RuleLimits::default()).expect("valid"),
            true,
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

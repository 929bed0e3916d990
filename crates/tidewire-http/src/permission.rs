//! Creates the permission implementation that the option `permissions` names. The rule language itself is in
//! `tidewire-rules`.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use tidewire_config::Problem;
use tidewire_config::plan::Plan;
use tidewire_config::value::Rules;
use tidewire_core::permission::{
    AllowAll, Decision, EventRight, Permission, Question, ReadRight, Unknown,
};
use tidewire_core::principal::{Credential, Principal};
use tidewire_rules::limits::RuleLimits;
use tidewire_rules::load::parse;
use tidewire_rules::set::RuleSet;

use crate::audit;
use crate::denials::Denials;
use crate::permission_demo::DemoRules;
use crate::permission_report::{Reported, kind_of};

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
                let origin = format!(
                    "{}:{}:{}",
                    error.file, error.position.line, error.position.column
                );
                Problem::new(origin, error.reason)
            })
            .collect()
    })
}

/// Creates the permission implementation that the options request. In development mode, and if the admin page is on, `denials` keeps the
/// denials of the rules.
///
/// # Errors
/// The first problem of the rule file.
pub fn open(plan: &Plan, denials: &Arc<Denials>) -> Result<Arc<dyn Permission>, Problem> {
    let rules: Arc<dyn Permission> = match &plan.config.permissions {
        Rules::None if plan.has_demo => Arc::new(DemoRules::load(Arc::clone(denials))?),
        Rules::None | Rules::AllowAll => Arc::new(AllowAll),
        Rules::File(path) => {
            let rules = load(path).map_err(|mut problems| problems.remove(0))?;
            let has_reader = plan.is_development || plan.admin_page.is_on();
            let denials = has_reader.then(|| Arc::clone(denials));
            Arc::new(Reported::new(rules, denials, plan.is_development))
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

    fn event_right(&self, name: &str) -> EventRight {
        match self.0.event_right(name) {
            // The rules do not decide the rights of an operator.
            EventRight::Constant(false) => EventRight::ByPrincipal,
            right => right,
        }
    }

    fn read_right(&self, principal: &Principal, name: &str) -> ReadRight {
        match principal.is_operator() {
            // The audit log gets its one line when the operator subscribes.
            true => ReadRight::Fixed,
            false => self.0.read_right(principal, name),
        }
    }
}

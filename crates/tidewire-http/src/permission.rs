//! Creates the permission implementation that the option `permissions` names. The rule language itself is in
//! `tidewire-rules`.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use tidewire_config::Problem;
use tidewire_config::plan::Plan;
use tidewire_config::value::Rules;
use tidewire_core::permission::{
    AllowAll, Decision, EventRight, Permission, QueryRight, Question, ReadRight, RequestedAction,
    Unknown,
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
    let text = read(path).map_err(|problem| vec![problem])?;
    compile(&text, &path.display().to_string())
}

/// Reads the text of a file of rules.
///
/// # Errors
/// The file can't be read.
pub fn read(path: &Path) -> Result<String, Problem> {
    fs::read_to_string(path).map_err(|error| {
        let reason = format!(
            "can't be read: {error}; set `permissions`, or create a file with `tidewire rules init`"
        );
        Problem::new(path.display(), reason)
    })
}

/// Makes rules of a text; `file` is the name of its file in problems.
///
/// # Errors
/// All problems of the text, each with file, line and column. The list is never empty.
pub fn compile(text: &str, file: &str) -> Result<RuleSet, Vec<Problem>> {
    parse(text, file, &RuleLimits::default()).map_err(|errors| {
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
        Rules::File(path) => return of_text(plan, denials, &read(path)?, path),
    };
    Ok(audited(plan, rules))
}

/// Creates the permission implementation that uses these rules, with the options for denials and operators. `file` is the name of their file.
///
/// # Errors
/// The first problem of the text.
pub fn of_text(
    plan: &Plan,
    denials: &Arc<Denials>,
    text: &str,
    file: &Path,
) -> Result<Arc<dyn Permission>, Problem> {
    let rules = compile(text, &file.display().to_string());
    let rules = rules.map_err(|mut problems| problems.remove(0))?;
    let has_reader = plan.is_development || plan.admin_page.is_on();
    let denials = has_reader.then(|| Arc::clone(denials));
    let reported = Reported::new(rules, denials, plan.is_development);
    Ok(audited(plan, Arc::new(reported)))
}

fn audited(plan: &Plan, rules: Arc<dyn Permission>) -> Arc<dyn Permission> {
    match plan.admin_page.is_on() {
        true => Arc::new(Audited(rules)),
        false => rules,
    }
}

/// Allows operators everything and writes each decision about them to the audit log. The rules decide about all other
/// principals.
#[derive(Debug)]
struct Audited(Arc<dyn Permission>);

impl Permission for Audited {
    fn decide(&self, question: &Question<'_>) -> Decision {
        match question.principal.credential() {
            // The audit log got its one line when the query began.
            Some(Credential::Operator(_)) if question.by == RequestedAction::Query => {
                Decision::Allow
            }
            Some(Credential::Operator(session)) => {
                let name = question.name.unwrap_or_default();
                audit::engine(session, &kind_of(question), name);
                Decision::Allow
            }
            _ => self.0.decide(question),
        }
    }

    fn begin_query(&self, principal: &Principal, prefix: &str) {
        if let Some(Credential::Operator(session)) = principal.credential() {
            audit::engine(session, "record.query", prefix);
        }
    }

    fn query_right(&self, prefix: &str) -> QueryRight {
        self.0.query_right(prefix)
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

    fn read_fields(&self, principal: &Principal, name: &str) -> Option<&[Box<str>]> {
        match principal.is_operator() {
            // The values of records do not matter.
            true => Some(&[]),
            false => self.0.read_fields(principal, name),
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

//! The rules, and which of them decides a case. Where the case gives no value for a record, the server uses the current one.

use hyper::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tidewire_config::Problem;
use tidewire_config::value::Rules;
use tidewire_core::text::Payload;
use tidewire_rules::set::RuleSet;

use super::{BODY_BYTES_MAX, Outcome, Page, PageRequest, read, shown};
use crate::admin::api::{Refusal, invalid};
use crate::permission::{compile, load};
use crate::rule_case::{Case, CaseText, explained};

/// The body of a request to explain a case.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Question {
    /// Section and name of the rule, such as `record.write`.
    rule: String,
    name: Option<String>,
    user: String,
    /// The value of `user.data`.
    user_data: Option<Box<RawValue>>,
    data: Option<Box<RawValue>>,
    /// If it is absent, the record's current value is used.
    old_data: Option<Box<RawValue>>,
    action: Option<String>,
}

impl Page {
    pub(super) fn rules(&self, asked: &PageRequest) -> Outcome {
        self.log_view(asked, "rules");
        if let Some(now) = self.parts.admin.rights.rules() {
            let body = json!({
                "kind": "file",
                "file": format!("{} (change {} of the cluster)", now.rules.file(), now.number),
                "text": now.rules.text(),
                "problems": [],
            });
            return Ok(shown(StatusCode::OK, &body));
        }
        let Rules::File(path) = &self.parts.rules else {
            let body = json!({ "kind": word(&self.parts.rules) });
            return Ok(shown(StatusCode::OK, &body));
        };
        let text = std::fs::read_to_string(path);
        let problems = load(path).err().unwrap_or_default();
        let problems: Vec<String> = problems.iter().map(Problem::to_string).collect();
        let body = json!({
            "kind": "file",
            "file": path.display().to_string(),
            "text": text.ok(),
            "problems": problems,
        });
        Ok(shown(StatusCode::OK, &body))
    }

    /// Answers with the last denials, each with the rule that decided.
    pub(super) fn denials(&self, asked: &PageRequest) -> Outcome {
        self.log_view(asked, "denials");
        let body = json!({ "denials": self.parts.denials.list() });
        Ok(shown(StatusCode::OK, &body))
    }

    pub(super) async fn explain(&self, mut asked: PageRequest) -> Outcome {
        let body = read(&mut asked.request.body, BODY_BYTES_MAX).await?;
        let question: Question = serde_json::from_slice(&body)
            .map_err(|error| invalid(format!("the body is not a case: {error}")))?;
        let rules = self.rules_in_force()?;
        let about = format!(
            "{} {} as {}",
            question.rule,
            question.name.as_deref().unwrap_or_default(),
            question.user
        );
        asked.audit("explain", &about);
        let old = match (&question.old_data, &question.name) {
            (Some(old), _) => Some(old.get().to_owned()),
            (None, Some(name)) if question.rule.starts_with("record.") => {
                self.value(&asked, name).await?
            }
            _ => None,
        };
        let text = |value: Option<Box<RawValue>>| value.map(|value| value.get().to_owned());
        let mut case = Case::parse(CaseText {
            rule: question.rule,
            name: question.name,
            user: question.user,
            user_data: text(question.user_data),
            payload: text(question.data),
            old: old.clone(),
            action: question.action,
            others: Vec::new(),
        })
        .map_err(invalid)?;
        // Each round finds at least one more record that the rule reads. A decision reads few records.
        let explained = loop {
            let explained = explained(&rules, &case);
            let missing = explained.reads.iter().find(|(_, is_given)| !is_given);
            let Some((name, _)) = missing else {
                break explained;
            };
            let value = self.value(&asked, name).await?;
            case.add_record(name, value.map(Payload::from));
        };
        let others: Vec<Value> = explained
            .others
            .iter()
            .map(|(outcome, rule)| json!({ "outcome": outcome, "rule": rule }))
            .collect();
        let reads: Vec<&str> = explained
            .reads
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        let body = json!({
            "outcome": explained.outcome.trim_end_matches(','),
            "rule": explained.by,
            "reads": reads,
            "others": others,
            "oldData": old.and_then(|old| serde_json::from_str::<Value>(&old).ok()),
        });
        Ok(shown(StatusCode::OK, &body))
    }

    /// The rules of the cluster, or of the file of a node alone.
    fn rules_in_force(&self) -> Result<RuleSet, Refusal> {
        let loaded = match (self.parts.admin.rights.rules(), &self.parts.rules) {
            (Some(now), _) => compile(now.rules.text(), now.rules.file()),
            (None, Rules::File(path)) => load(path),
            (None, rules) => {
                let reason = format!("permissions is {}, so there are no rules", word(rules));
                return Err(Refusal::new(StatusCode::CONFLICT, "NO_RULES", reason));
            }
        };
        loaded.map_err(|problems| {
            let problems: Vec<String> = problems.iter().map(Problem::to_string).collect();
            let reason = format!(
                "the rule file is invalid, so older rules are in force: {}",
                problems.join("; ")
            );
            Refusal::new(StatusCode::CONFLICT, "RULES_WRONG", reason)
        })
    }

    /// The current value of a record.
    async fn value(&self, asked: &PageRequest, name: &str) -> Result<Option<String>, Refusal> {
        let login = self.login(asked.principal())?;
        let api = &self.parts.api;
        Ok(api.value_as(&asked.request, &login, name).await)
    }
}

fn word(rules: &Rules) -> &'static str {
    match rules {
        Rules::None => "none",
        Rules::AllowAll => "allow_all",
        Rules::File(_) => "file",
    }
}

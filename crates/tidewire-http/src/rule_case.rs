//! A case to try rules with: who asks for what, with which data. From the command line or a table.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use serde_saphyr::Spanned;
use tidewire_core::effect::Principal;
use tidewire_core::message::{PresenceAction, RecordAction, RecordBulk};
use tidewire_core::permission::{Access, Asked, Decision, Question};
use tidewire_core::text::{Name, Payload};
use tidewire_core::time::WallTime;
use tidewire_rules::set::{PlacedRule, RULE_KINDS, RuleSet};

use crate::permission::describe;

/// Other records that one case reads at most, as one decision of a running server.
const READS_MAX: usize = 10;

/// One case.
#[derive(Debug)]
pub struct Case {
    access: Access,
    by: Asked,
    name: Option<String>,
    principal: Principal,
    data: Option<String>,
    old_data: Option<String>,
    now: WallTime,
    records: BTreeMap<String, Option<Payload>>,
}

/// What is decided about a case.
pub struct Decided<'s> {
    /// Allowed, or how not.
    pub decision: Decision,
    /// The rule that decided; absent if no path that takes the name has it.
    pub rule: Option<&'s PlacedRule>,
    /// The records that were read, and whether the case has them.
    pub reads: Vec<(Name, bool)>,
    /// What the rules behind the first would say.
    pub others: Vec<(&'s PlacedRule, Decision)>,
}

/// The actions by which one rule is asked in several ways, under deepstream's names.
const ACTIONS: [(&str, Asked); 18] = [
    ("READ", Asked::Record(RecordAction::Read)),
    ("HEAD", Asked::Record(RecordAction::Head)),
    (
        "SUBSCRIBEANDHEAD",
        Asked::Record(RecordAction::Bulk(RecordBulk::SubscribeAndHead)),
    ),
    (
        "SUBSCRIBEANDREAD",
        Asked::Record(RecordAction::Bulk(RecordBulk::SubscribeAndRead)),
    ),
    (
        "SUBSCRIBECREATEANDREAD",
        Asked::Record(RecordAction::Bulk(RecordBulk::SubscribeCreateAndRead)),
    ),
    (
        "NOTIFY",
        Asked::Record(RecordAction::Bulk(RecordBulk::Notify)),
    ),
    ("DELETE", Asked::Record(RecordAction::Delete)),
    ("ERASE", Asked::Record(RecordAction::Erase)),
    (
        "CREATEANDUPDATE",
        Asked::Record(RecordAction::CreateAndUpdate),
    ),
    (
        "CREATEANDPATCH",
        Asked::Record(RecordAction::CreateAndPatch),
    ),
    ("UPDATE", Asked::Record(RecordAction::Update)),
    ("PATCH", Asked::Record(RecordAction::Patch)),
    ("PATCH_MULTI", Asked::Record(RecordAction::PatchMulti)),
    ("LISTEN", Asked::Record(RecordAction::Listen)),
    ("QUERY", Asked::Presence(PresenceAction::Query)),
    ("QUERY_ALL", Asked::Presence(PresenceAction::QueryAll)),
    ("SUBSCRIBE", Asked::Presence(PresenceAction::Subscribe)),
    (
        "SUBSCRIBE_ALL",
        Asked::Presence(PresenceAction::SubscribeAll),
    ),
];

fn access_of(rule: &str) -> Result<Access, String> {
    let kind = RULE_KINDS
        .iter()
        .find(|kind| rule.split_once('.') == Some((kind.section, kind.name)));
    kind.map(|kind| kind.access).ok_or_else(|| {
        let all: Vec<String> = RULE_KINDS
            .iter()
            .map(|kind| format!("{}.{}", kind.section, kind.name))
            .collect();
        format!("{rule:?} is none of {}", all.join(", "))
    })
}

fn asked_by(action: Option<&str>) -> Result<Asked, String> {
    let Some(action) = action else {
        return Ok(Asked::Plainly);
    };
    let found = ACTIONS.iter().find(|(name, _)| *name == action);
    found.map(|(_, asked)| *asked).ok_or_else(|| {
        let all: Vec<&str> = ACTIONS.iter().map(|(name, _)| *name).collect();
        format!("{action:?} is none of {}", all.join(", "))
    })
}

fn checked(what: &str, text: Option<String>) -> Result<Option<String>, String> {
    if let Some(text) = &text {
        serde_json::from_str::<serde::de::IgnoredAny>(text)
            .map_err(|error| format!("{what} is no JSON: {error}"))?;
    }
    Ok(text)
}

impl Case {
    /// A case of the command line.
    pub fn parse(text: CaseText) -> Result<Self, String> {
        let server_data = checked("--user-data", text.user_data)?;
        let mut records = BTreeMap::new();
        for other in text.others {
            let (name, json) = other
                .split_once('=')
                .ok_or_else(|| format!("--other {other:?} is not NAME=JSON"))?;
            let json = checked("--other", Some(json.to_owned()))?.map(Payload::from);
            records.insert(name.to_owned(), json.filter(|json| json.as_str() != "null"));
        }
        Ok(Self {
            access: access_of(&text.rule)?,
            by: asked_by(text.action.as_deref())?,
            name: text.name,
            principal: principal(&text.user, server_data),
            data: checked("--payload", text.payload)?,
            old_data: checked("--old", text.old)?,
            now: now(),
            records,
        })
    }

    /// Gives the case another record; `None` if there is no such record.
    pub fn add_record(&mut self, name: &str, value: Option<Payload>) {
        self.records.insert(name.to_owned(), value);
    }

    /// Decides the case, with the records that it has.
    pub fn decide<'s>(&self, rules: &'s RuleSet) -> Decided<'s> {
        let mut values: Vec<(Name, Option<Payload>)> = Vec::new();
        loop {
            let question = Question {
                principal: &self.principal,
                access: self.access,
                by: self.by,
                name: self.name.as_deref(),
                data: self.data.as_deref(),
                old_data: self.old_data.as_deref(),
                now: self.now,
                values: &values,
            };
            let mut explanation = rules.explain(&question);
            match explanation.decision {
                Decision::Need(name) if values.len() < READS_MAX => {
                    let value = self.records.get(name.as_str()).cloned().flatten();
                    values.push((name, value));
                    continue;
                }
                Decision::Need(_) => explanation.decision = Decision::Failed,
                _ => {}
            }
            let others = rules.candidates(&question).skip(1);
            let others = others.filter_map(|other| Some((other.rule?, other.decision)));
            return Decided {
                decision: explanation.decision,
                rule: explanation.rule,
                others: others.collect(),
                reads: values
                    .iter()
                    .map(|(name, _)| (name.clone(), self.records.contains_key(name.as_str())))
                    .collect(),
            };
        }
    }
}

fn principal(user: &str, server_data: Option<String>) -> Principal {
    Principal::new(Name::from(user)).with_data(server_data.map(Payload::from), None)
}

fn now() -> WallTime {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    WallTime(since.map_or(0, |since| since.as_millis() as u64))
}

/// What a case of a table expects.
#[derive(Debug)]
pub struct Expected {
    /// The decision that the case must have.
    pub decision: Decision,
    /// The line of the rule that decides.
    pub line: Option<u64>,
}

/// A table of cases.
pub struct CaseFile {
    /// The rules, beside the file.
    pub permissions: Option<String>,
    /// Each with the line where it begins.
    pub cases: Vec<(u64, Expected, Case)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    permissions: Option<String>,
    cases: Vec<Spanned<Row>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    allow: Option<String>,
    deny: Option<String>,
    fail: Option<String>,
    name: Option<String>,
    user: Option<User>,
    #[serde(default, deserialize_with = "given")]
    data: Option<Value>,
    #[serde(default, rename = "oldData", deserialize_with = "given")]
    old_data: Option<Value>,
    action: Option<String>,
    now: Option<u64>,
    #[serde(default)]
    records: BTreeMap<String, Value>,
    line: Option<u64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum User {
    Id(String),
    Full {
        id: String,
        #[serde(default)]
        data: Value,
    },
}

/// `null` is a value here, unlike what is not there.
fn given<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl CaseFile {
    /// Reads a table. The error begins with the place behind the file's name.
    pub fn parse(text: &str) -> Result<Self, String> {
        let table: Table = serde_saphyr::from_str(text).map_err(|error| {
            let place = error.location().map_or_else(String::new, |place| {
                format!(":{}:{}", place.line(), place.column())
            });
            let text = error.without_snippet().to_string();
            format!("{place}: {}", text.lines().next().unwrap_or_default())
        })?;
        let mut cases = Vec::with_capacity(table.cases.len());
        for row in table.cases {
            let line = row.referenced.line();
            let (expected, case) = row
                .value
                .into_case()
                .map_err(|reason| format!(":{line}: {reason}"))?;
            cases.push((line, expected, case));
        }
        Ok(Self {
            permissions: table.permissions,
            cases,
        })
    }
}

impl Row {
    fn into_case(self) -> Result<(Expected, Case), String> {
        let (decision, rule) = match (self.allow, self.deny, self.fail) {
            (Some(rule), None, None) => (Decision::Allow, rule),
            (None, Some(rule), None) => (Decision::Deny, rule),
            (None, None, Some(rule)) => (Decision::Failed, rule),
            _ => {
                return Err(
                    "one of `allow`, `deny` and `fail` is needed, as `allow: record.write`".into(),
                );
            }
        };
        let (user, data) = match self.user {
            None => ("open".to_owned(), Value::Null),
            Some(User::Id(id)) => (id, Value::Null),
            Some(User::Full { id, data }) => (id, data),
        };
        let records = self.records.into_iter().map(|(name, value)| {
            let value = (!value.is_null()).then(|| Payload::from(value.to_string()));
            (name, value)
        });
        let case = Case {
            access: access_of(&rule)?,
            by: asked_by(self.action.as_deref())?,
            name: self.name,
            principal: principal(&user, (!data.is_null()).then(|| data.to_string())),
            data: self.data.map(|data| data.to_string()),
            old_data: self
                .old_data
                .filter(|data| !data.is_null())
                .map(|data| data.to_string()),
            now: self.now.map_or_else(now, WallTime),
            records: records.collect(),
        };
        Ok((
            Expected {
                decision,
                line: self.line,
            },
            case,
        ))
    }
}
/// A case as it stands on the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaseText {
    /// `record.write`
    pub rule: String,
    /// The name that is asked for.
    pub name: Option<String>,
    /// The user id.
    pub user: String,
    /// `user.data` as JSON.
    pub user_data: Option<String>,
    /// `data` as JSON.
    pub payload: Option<String>,
    /// `oldData` as JSON.
    pub old: Option<String>,
    /// The action, where one rule guards several.
    pub action: Option<String>,
    /// Other records as `NAME=JSON`.
    pub others: Vec<String>,
}

/// Which rule decides a case, and how, in words.
pub struct Explained {
    /// `allowed`, or how not.
    pub outcome: &'static str,
    /// The rule; absent if no path that takes the name has it.
    pub by: Option<String>,
    /// The records that were read, and whether the case has them.
    pub reads: Vec<(Name, bool)>,
    /// What the rules behind the first would say.
    pub others: Vec<(&'static str, String)>,
}

/// Explains a case.
pub fn explained(rules: &RuleSet, case: &Case) -> Explained {
    let decided = case.decide(rules);
    let others = decided.others.into_iter();
    Explained {
        outcome: word(&decided.decision),
        by: decided.rule.map(|rule| describe(rules, rule)),
        reads: decided.reads,
        others: others
            .map(|(rule, decision)| (word(&decision), describe(rules, rule)))
            .collect(),
    }
}

/// A decision in words.
#[must_use]
pub fn word(decision: &Decision) -> &'static str {
    match decision {
        Decision::Allow => "allowed",
        Decision::Deny => "denied",
        Decision::Failed | Decision::Need(_) => "denied, because the rule fails,",
    }
}

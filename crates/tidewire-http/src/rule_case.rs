//! Test cases for rules: a principal, an action, a name and data. They come from the command line or a table.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use serde_saphyr::Spanned;
use tidewire_core::message::{PresenceAction, RecordAction, RecordBulk};
use tidewire_core::permission::{Access, Decision, Question, RequestedAction};
use tidewire_core::principal::Principal;
use tidewire_core::text::{Name, Payload};
use tidewire_core::time::WallTime;
use tidewire_rules::set::{LocatedRule, RULE_KINDS, RuleSet};

use crate::permission_report::describe;

/// Other records that one case may read, the same number as for a decision of a running server.
const READS_MAX: usize = 10;

/// One test case.
#[derive(Debug)]
pub struct Case {
    access: Access,
    by: RequestedAction,
    name: Option<String>,
    principal: Principal,
    data: Option<String>,
    old_data: Option<String>,
    now: WallTime,
    records: BTreeMap<String, Option<Payload>>,
}

/// The decision about a case.
pub struct Decided<'s> {
    /// The decision.
    pub decision: Decision,
    /// The rule that decided; `None` if no path that matches the name has a rule of this kind.
    pub rule: Option<&'s LocatedRule>,
    /// The records that were read, and whether the case contains them.
    pub reads: Vec<(Name, bool)>,
    /// The other rules that apply to the name, and the decision that each would make.
    pub others: Vec<(&'s LocatedRule, Decision)>,
}

/// The actions that share a rule, under deepstream's names.
const ACTIONS: [(&str, RequestedAction); 18] = [
    ("READ", RequestedAction::Record(RecordAction::Read)),
    ("HEAD", RequestedAction::Record(RecordAction::Head)),
    (
        "SUBSCRIBEANDHEAD",
        RequestedAction::Record(RecordAction::Bulk(RecordBulk::SubscribeAndHead)),
    ),
    (
        "SUBSCRIBEANDREAD",
        RequestedAction::Record(RecordAction::Bulk(RecordBulk::SubscribeAndRead)),
    ),
    (
        "SUBSCRIBECREATEANDREAD",
        RequestedAction::Record(RecordAction::Bulk(RecordBulk::SubscribeCreateAndRead)),
    ),
    (
        "NOTIFY",
        RequestedAction::Record(RecordAction::Bulk(RecordBulk::Notify)),
    ),
    ("DELETE", RequestedAction::Record(RecordAction::Delete)),
    ("ERASE", RequestedAction::Record(RecordAction::Erase)),
    (
        "CREATEANDUPDATE",
        RequestedAction::Record(RecordAction::CreateAndUpdate),
    ),
    (
        "CREATEANDPATCH",
        RequestedAction::Record(RecordAction::CreateAndPatch),
    ),
    ("UPDATE", RequestedAction::Record(RecordAction::Update)),
    ("PATCH", RequestedAction::Record(RecordAction::Patch)),
    (
        "PATCH_MULTI",
        RequestedAction::Record(RecordAction::PatchMulti),
    ),
    ("LISTEN", RequestedAction::Record(RecordAction::Listen)),
    ("QUERY", RequestedAction::Presence(PresenceAction::Query)),
    (
        "QUERY_ALL",
        RequestedAction::Presence(PresenceAction::QueryAll),
    ),
    (
        "SUBSCRIBE",
        RequestedAction::Presence(PresenceAction::Subscribe),
    ),
    (
        "SUBSCRIBE_ALL",
        RequestedAction::Presence(PresenceAction::SubscribeAll),
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
        format!("{rule:?} is unknown; use one of {}", all.join(", "))
    })
}

fn asked_by(action: Option<&str>) -> Result<RequestedAction, String> {
    let Some(action) = action else {
        return Ok(RequestedAction::Plainly);
    };
    let found = ACTIONS.iter().find(|(name, _)| *name == action);
    found.map(|(_, asked)| *asked).ok_or_else(|| {
        let all: Vec<&str> = ACTIONS.iter().map(|(name, _)| *name).collect();
        format!("{action:?} is unknown; use one of {}", all.join(", "))
    })
}

fn checked(what: &str, text: Option<String>) -> Result<Option<String>, String> {
    if let Some(text) = &text {
        serde_json::from_str::<serde::de::IgnoredAny>(text)
            .map_err(|error| format!("{what} is not valid JSON: {error}"))?;
    }
    Ok(text)
}

impl Case {
    /// Parses a case from the command line.
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

    /// Adds a record to the case; `None` means that the record does not exist.
    pub fn add_record(&mut self, name: &str, value: Option<Payload>) {
        self.records.insert(name.to_owned(), value);
    }

    /// Decides the case with the records that it contains.
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

/// The result that a row of a table expects.
#[derive(Debug)]
pub struct Expected {
    /// The decision that the case must have.
    pub decision: Decision,
    /// The line of the rule that must decide.
    pub line: Option<u64>,
}

/// A table of cases.
pub struct CaseFile {
    /// The rule file, relative to the file of the table.
    pub permissions: Option<String>,
    /// Each case with the line at which it begins.
    pub cases: Vec<(u64, Expected, Case)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    permissions: Option<String>,
    cases: Vec<Spanned<CaseRow>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseRow {
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

/// Keeps an explicit `null` as a value, so that it differs from an absent field.
fn given<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl CaseFile {
    /// Parses a table. The error text begins with line and column, to be appended to the file's name.
    pub fn parse(text: &str) -> Result<Self, String> {
        let table: Table = serde_saphyr::from_str(text).map_err(|error| {
            let position = error.location().map_or_else(String::new, |position| {
                format!(":{}:{}", position.line(), position.column())
            });
            let text = error.without_snippet().to_string();
            format!("{position}: {}", text.lines().next().unwrap_or_default())
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

impl CaseRow {
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
/// A case in the words of the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaseText {
    /// Section and name of the rule, such as `record.write`.
    pub rule: String,
    /// The name of the record, event or rpc.
    pub name: Option<String>,
    /// The user id.
    pub user: String,
    /// `user.data` as JSON.
    pub user_data: Option<String>,
    /// `data` as JSON.
    pub payload: Option<String>,
    /// `oldData` as JSON.
    pub old: Option<String>,
    /// The action, if the rule covers several.
    pub action: Option<String>,
    /// Other records as `NAME=JSON`.
    pub others: Vec<String>,
}

/// The rule that decides a case, and its decision, as text.
pub struct Explained {
    /// `allowed`, or the kind of denial.
    pub outcome: &'static str,
    /// The rule; `None` if no path that matches the name has a rule of this kind.
    pub by: Option<String>,
    /// The records that were read, and whether the case contains them.
    pub reads: Vec<(Name, bool)>,
    /// The other rules that apply to the name, and the decision that each would make.
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

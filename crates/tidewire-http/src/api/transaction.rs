//! `POST /transactions`: checks, replaces and removes several records in one step.
//!
//! The native protocol has the same operations (`spec/deepstream.md`, "Transactions"), but a state is an entity tag, as for one record.

use hyper::{Method, StatusCode};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tidewire_core::message::{Reason, RecordAction, Refusal, Tag};
use tidewire_core::text::RESERVED;
use tidewire_shard::reply::OwnedReply;
use tidewire_shard::request::OwnedRequest;

use super::answer::{self, HttpResponse};
use super::caller::Caller;
use super::command::Properties;
use super::condition::{entity_tag_text, tag_of};
use super::login::credentials_of_request;
use super::problem::{PROBLEM, Problem};
use super::{Api, ApiRequest, is_of_type};

/// The path of transactions.
pub(super) const PATH: &str = "/transactions";
/// The methods of the path.
pub(super) const METHODS: &str = "POST, OPTIONS";

const JSON: &str = "application/json";

/// A state that no record has, because incarnations begin with 1. It replaces the tag of another epoch, so that the engine checks the login and
/// the rules before it refuses the condition.
const NO_STATE: &str = "0-0";

/// The operations of a request, as the engine reads them.
#[derive(Debug, PartialEq, Eq)]
struct Operations {
    names: Vec<String>,
    /// JSON.
    data: String,
}

/// Why the operations are not sent to the engine.
#[derive(Debug, PartialEq, Eq)]
enum Fault {
    Malformed,
    InvalidName,
}

/// An answer of the engine.
enum Decision {
    /// The states of the records, as JSON.
    Committed(String),
    PreconditionFailed(String),
    Refused(HttpResponse),
}

impl Api {
    /// Answers a request for a transaction.
    pub(super) async fn transaction(&self, request: ApiRequest) -> HttpResponse {
        match self.try_transaction(request).await {
            Ok(answer) => answer,
            Err(problem) => self.refuse(problem),
        }
    }

    async fn try_transaction(&self, mut request: ApiRequest) -> Result<HttpResponse, Problem> {
        match request.parts.method {
            Method::POST => {}
            Method::OPTIONS => return Ok(answer::options(Some(METHODS))),
            _ => return Ok(answer::with_allow(Problem::METHOD.answer(), Some(METHODS))),
        }
        let credentials = credentials_of_request(&request.parts)?;
        if !is_of_type(&request.parts, JSON) {
            return Err(Problem::WRONG_TYPE);
        }
        let body = self.read(&mut request).await?;
        let text = std::str::from_utf8(&body.bytes).map_err(|_| Problem::NOT_JSON)?;
        let name_bytes_max = self.limits.name_bytes_max;
        let operations = match parse(text, name_bytes_max, |name| self.epochs.of(name)) {
            Ok(operations) => operations,
            Err(Fault::Malformed) => return Err(Problem::NOT_OPERATIONS),
            Err(Fault::InvalidName) => return Err(Problem::INVALID_NAME),
        };
        // Taken before the answer: a later epoch would name states that an owner may have shown before it was lost.
        let names = operations.names;
        let epochs: Vec<u64> = names.iter().map(|name| self.epochs.of(name)).collect();
        let commit = OwnedRequest::Commit {
            names: names.iter().map(|name| name.as_str().into()).collect(),
            data: operations.data.into(),
        };
        let mut caller = self.call(&request, &credentials, vec![commit])?;
        Ok(match decision(&mut caller).await? {
            Decision::Committed(states) => {
                answer::typed(StatusCode::OK, JSON, committed(&names, &epochs, &states))
            }
            Decision::PreconditionFailed(name) => precondition_failed(&name),
            Decision::Refused(answer) => answer,
        })
    }
}

/// Waits for the engine's answer.
async fn decision(caller: &mut Caller) -> Result<Decision, Problem> {
    loop {
        let replies = caller.receive().await?;
        for reply in replies.iter() {
            caller.check_login(reply)?;
            match reply {
                OwnedReply::Committed { data } => {
                    return Ok(Decision::Committed(data.to_string()));
                }
                OwnedReply::PreconditionFailed { name, .. } => {
                    return Ok(Decision::PreconditionFailed(name.to_string()));
                }
                OwnedReply::RecordRefused(refused) => return refusal(&refused.refusal()),
                _ => {}
            }
        }
    }
}

fn refusal(refusal: &Refusal<'_, RecordAction>) -> Result<Decision, Problem> {
    if refusal.reason != Reason::TransactionRefused {
        return Err(Problem::from(refusal));
    }
    let detail: Value = serde_json::from_str(refusal.data.unwrap_or("null")).unwrap_or_default();
    let answer = with_member(Problem::TRANSACTION_REFUSED, "detail", detail);
    Ok(Decision::Refused(answer))
}

/// The operations in a body. `epoch_of` returns the epoch of a record.
fn parse(
    text: &str,
    name_bytes_max: usize,
    epoch_of: impl Fn(&str) -> u64,
) -> Result<Operations, Fault> {
    let list: Vec<Properties<'_>> = serde_json::from_str(text).map_err(|_| Fault::Malformed)?;
    let mut names = Vec::with_capacity(list.len());
    let mut data = String::from("[");
    for properties in list {
        let mut name = None;
        let mut condition = None;
        let mut value = None;
        for (key, text) in properties {
            match key.as_str() {
                "name" => name = Some(string(text)?),
                "if" => condition = Some(string(text)?),
                "data" => value = Some(text.get()),
                _ => return Err(Fault::Malformed),
            }
        }
        let name = name.ok_or(Fault::Malformed)?;
        if name.is_empty() || name.len() > name_bytes_max || name.starts_with(RESERVED) {
            return Err(Fault::InvalidName);
        }
        if condition.is_none() && value.is_none() {
            return Err(Fault::Malformed);
        }
        let condition = match condition.as_deref() {
            None => None,
            Some(word @ ("missing" | "present")) => Some(word.to_owned()),
            Some(tag) => match tag_of(tag, epoch_of(&name)) {
                Some(Some(tag)) => Some(tag.to_string()),
                Some(None) => Some(NO_STATE.to_owned()),
                None => return Err(Fault::Malformed),
            },
        };
        if data.len() > 1 {
            data.push(',');
        }
        data.push('{');
        if let Some(condition) = &condition {
            data.push_str(&format!("\"if\":\"{condition}\""));
        }
        if let Some(value) = value {
            let comma = if condition.is_some() { "," } else { "" };
            data.push_str(&format!("{comma}\"data\":{value}"));
        }
        data.push('}');
        names.push(name);
    }
    data.push(']');
    Ok(Operations { names, data })
}

fn string(text: &RawValue) -> Result<String, Fault> {
    serde_json::from_str(text.get()).map_err(|_| Fault::Malformed)
}

/// The answer to a transaction that is done: each record with its entity tag.
fn committed(names: &[String], epochs: &[u64], states: &str) -> String {
    let states: Vec<Option<String>> = serde_json::from_str(states).unwrap_or_default();
    let records = names.iter().zip(epochs).zip(states);
    let records = records.map(|((name, epoch), state)| {
        let tag = state.and_then(|state| Tag::parse(&state));
        json!({ "name": name, "etag": tag.map(|tag| entity_tag_text(*epoch, tag)) })
    });
    Value::from_iter(records).to_string()
}

/// The problem of an unmet condition, with the record. Its state is not in it: the caller may lack the right to read the record.
fn precondition_failed(name: &str) -> HttpResponse {
    with_member(Problem::PRECONDITION_FAILED, "name", name.into())
}

/// The answer of a problem with a further member.
fn with_member(problem: Problem, member: &str, value: Value) -> HttpResponse {
    let Problem {
        status,
        code,
        title,
    } = problem;
    let body = json!({ "status": status.as_u16(), "code": code, "title": title, member: value });
    answer::typed(status, PROBLEM, format!("{body}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Operations, Fault> {
        parse(text, 8, |name| if name == "b/2" { 4 } else { 3 })
    }

    #[test]
    fn operations_are_translated_for_the_engine() {
        let text = r#"[{"name": "b/1", "if": "\"3-1a-7\"", "data": {"x": 1}}, {"name": "b/2", "data": null},
            {"if": "missing", "name": "b/3"}]"#;
        let expected = Operations {
            names: ["b/1", "b/2", "b/3"].map(str::to_owned).to_vec(),
            data: r#"[{"if":"1a-7","data":{"x": 1}},{"data":null},{"if":"missing"}]"#.to_owned(),
        };
        assert_eq!(parsed(text), Ok(expected));
        let nothing = parsed("[]").map(|operations| operations.data);
        assert_eq!(nothing, Ok("[]".to_owned()));
    }

    #[test]
    fn a_tag_of_another_epoch_is_an_unmet_condition() {
        let text = r#"[{"name":"b/2","if":"\"3-1a-7\"","data":{}}]"#;
        let expected = r#"[{"if":"0-0","data":{}}]"#.to_owned();
        assert_eq!(parsed(text).map(|it| it.data), Ok(expected));
    }

    #[test]
    fn other_bodies_are_refused() {
        for text in [
            "",
            "{}",
            "[1]",
            r#"[{"data":{}}]"#,
            r#"[{"name":"a"}]"#,
            r#"[{"name":1,"data":{}}]"#,
            r#"[{"name":"a","if":1}]"#,
            r#"[{"name":"a","if":"always"}]"#,
            r#"[{"name":"a","if":"W/\"3-1a-7\""}]"#,
            r#"[{"name":"a","if":"\"3-1a-7\", \"3-1a-8\""}]"#,
            r#"[{"name":"a","data":{},"If":"missing"}]"#,
        ] {
            assert_eq!(parsed(text), Err(Fault::Malformed), "{text}");
        }
        for name in ["", "123456789", "\u{1}"] {
            let text = json!([{ "name": name, "data": {} }]).to_string();
            assert_eq!(parsed(&text), Err(Fault::InvalidName), "{name}");
        }
    }

    #[test]
    fn the_answer_has_a_tag_for_each_record() {
        let names = ["a", "b"].map(str::to_owned);
        let text = committed(&names, &[3, 4], r#"["1a-7",null]"#);
        let expected = r#"[{"etag":"\"3-1a-7\"","name":"a"},{"etag":null,"name":"b"}]"#;
        assert_eq!(text, expected);
    }
}

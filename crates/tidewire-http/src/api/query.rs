//! `/records?collection=NAME`: the records of a collection by their content. The language is that of `spec/query.md`; each member of a
//! query is a parameter with the same JSON.

use hyper::header::{CACHE_CONTROL, HeaderValue, VARY};
use hyper::{Method, StatusCode};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tidewire_core::message::QueryReason;
use tidewire_shard::reply::OwnedReply;
use tidewire_shard::request::{OwnedRequest, Text};

use super::answer::{self, HttpResponse};
use super::answer_room::Pieces;
use super::caller::Caller;
use super::login::credentials_of_request;
use super::name::parameters;
use super::problem::{PROBLEM, Problem};
use super::{Api, ApiRequest};
use crate::refusal::RequestRefusal;

/// The path of queries.
pub(super) const PATH: &str = "/records";
/// The methods of the path.
pub(super) const METHODS: &str = "GET, HEAD, OPTIONS";

const JSON: &str = "application/json";

/// The members of a query, which are parameters of the same name.
const MEMBERS: [&str; 5] = ["where", "sort", "limit", "offset", "select"];

/// Whether a query is evaluated once or followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueryForm {
    Once,
    Live,
}

/// A query of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) collection: String,
    /// As JSON.
    pub(super) query: String,
    counts: bool,
    explains: bool,
    /// The ticket of a live query, for pages that can't set headers.
    pub(super) ticket: Option<String>,
}

/// Why the parameters are not a query.
#[derive(Debug, PartialEq, Eq)]
struct Fault {
    detail: String,
    /// The parameter, as a JSON Pointer into the query; empty if it is not a member of it.
    at: String,
    word: &'static str,
}

impl Fault {
    fn new(at: &str, word: &'static str, detail: impl Into<String>) -> Self {
        Self {
            detail: detail.into(),
            at: at.to_owned(),
            word,
        }
    }
}

impl Api {
    /// Answers a request for the records of a collection.
    pub(super) async fn query(&self, request: ApiRequest, form: QueryForm) -> HttpResponse {
        let mut answer = match self.try_query(request, form).await {
            Ok(answer) => answer,
            Err(problem) => self.refuse(problem),
        };
        // The same address has both forms.
        let headers = answer.headers_mut();
        headers.append(VARY, HeaderValue::from_static("accept"));
        answer
    }

    async fn try_query(
        &self,
        request: ApiRequest,
        form: QueryForm,
    ) -> Result<HttpResponse, Problem> {
        let method = &request.parts.method;
        if method == Method::OPTIONS {
            return Ok(answer::options(Some(METHODS)));
        }
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Ok(answer::with_allow(Problem::METHOD.answer(), Some(METHODS)));
        }
        let asked = match asked(request.parts.uri.query().unwrap_or(""), form) {
            Ok(asked) => asked,
            Err(None) => return Err(Problem::BROKEN_QUERY),
            Err(Some(fault)) => {
                self.refused.count(RequestRefusal::Malformed);
                let data = json!({ "message": fault.detail, "at": fault.at, "fault": fault.word });
                return Ok(refused(QueryReason::Invalid, &data.to_string()));
            }
        };
        if form == QueryForm::Live {
            return self.follow_query(request, asked).await;
        }
        let credentials = credentials_of_request(&request.parts)?;
        let memory = self
            .memory(&request, self.limits.query_result_bytes_max)
            .await?;
        let requests = vec![OwnedRequest::Query {
            collection: asked.collection.into(),
            query: asked.query.into(),
            counts: asked.counts,
            explains: asked.explains,
        }];
        let mut caller = self.call(&request, &credentials, requests)?;
        match reply(&mut caller).await? {
            Ok(data) => {
                let mut pieces = Pieces::default();
                pieces.push_reserved(data, memory);
                let mut answer = answer::typed_pieces(JSON, pieces);
                let headers = answer.headers_mut();
                headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
                Ok(answer)
            }
            Err((reason, data)) => {
                if reason == QueryReason::Invalid {
                    self.refused.count(RequestRefusal::Malformed);
                }
                Ok(refused(reason, &data))
            }
        }
    }
}

/// Waits for the engine's answer: the result, or why the query is refused.
async fn reply(caller: &mut Caller) -> Result<Result<String, (QueryReason, Text)>, Problem> {
    loop {
        let replies = caller.receive().await?;
        for reply in replies.iter() {
            caller.check_login(reply)?;
            match reply {
                OwnedReply::QueryResult { data } => return Ok(Ok(data.to_string())),
                OwnedReply::QueryRefused { reason, data } => {
                    return Ok(Err((*reason, data.clone())));
                }
                _ => {}
            }
        }
    }
}

/// The query of a query string. `None` as the fault if the string is malformed.
fn asked(query: &str, form: QueryForm) -> Result<Asked, Option<Fault>> {
    let mut collection = None;
    let mut ticket = None;
    let mut counts = None;
    let mut explains = None;
    let mut members: [Option<String>; MEMBERS.len()] = Default::default();
    for (key, value) in parameters(query).ok_or(None)? {
        let repeated = || {
            let detail = format!("parameter {key} occurs more than once; use it once");
            Fault::new("", "malformed", detail)
        };
        if let Some(index) = MEMBERS.iter().position(|member| *member == key) {
            check_json(&key, &value)?;
            if members[index].replace(value).is_some() {
                return Err(Some(repeated()));
            }
            continue;
        }
        match key.as_str() {
            "collection" => {
                if collection.replace(value).is_some() {
                    return Err(Some(repeated()));
                }
            }
            "count" | "explain" if form == QueryForm::Live => {
                let detail = format!(
                    "a live query has no {key}; send a request without Accept: text/event-stream for it"
                );
                return Err(Some(Fault::new("", "malformed", detail)));
            }
            "ticket" if form == QueryForm::Live => {
                if ticket.replace(value).is_some() {
                    return Err(Some(repeated()));
                }
            }
            "count" | "explain" => {
                let is_wanted = match value.as_str() {
                    "true" => true,
                    "false" => false,
                    _ => {
                        let detail =
                            format!("parameter {key} is neither true nor false; use one of them");
                        return Err(Some(Fault::new("", "malformed", detail)));
                    }
                };
                let wanted = match key.as_str() {
                    "count" => &mut counts,
                    _ => &mut explains,
                };
                if wanted.replace(is_wanted).is_some() {
                    return Err(Some(repeated()));
                }
            }
            // A misspelt parameter would select other records, so none is ignored.
            _ => {
                let detail = format!(
                    "parameter \"{key}\" is unknown; use collection, where, sort, limit, offset, select, count and explain"
                );
                return Err(Some(Fault::new("", "malformed", detail)));
            }
        }
    }
    let collection = collection.ok_or_else(|| {
        let detail =
            "parameter collection is missing; add the name of records without their last segment";
        Some(Fault::new("", "bad-collection", detail))
    })?;
    let mut text = String::from("{");
    for (member, value) in MEMBERS.iter().zip(members) {
        if let Some(value) = value {
            if text.len() > 1 {
                text.push(',');
            }
            text.push_str(&format!("\"{member}\":{value}"));
        }
    }
    text.push('}');
    Ok(Asked {
        collection,
        query: text,
        counts: counts.unwrap_or(false),
        explains: explains.unwrap_or(false),
        ticket,
    })
}

/// Checks that a parameter is one JSON value, so that it can't add members to the query.
fn check_json(key: &str, value: &str) -> Result<(), Option<Fault>> {
    let checked: Result<&RawValue, _> = serde_json::from_str(value);
    checked.map(drop).map_err(|error| {
        let column = error.column();
        let detail = format!(
            "parameter {key} is not JSON at character {column}: \"{}\"; write strings in quotes and percent-encode the value",
            shortened(value)
        );
        Some(Fault::new(&format!("/{key}"), "malformed", detail))
    })
}

/// The start of a text for a message.
fn shortened(text: &str) -> &str {
    let end = text.char_indices().nth(60).map_or(text.len(), |(at, _)| at);
    &text[..end]
}

/// The answer to a refused query.
pub(super) fn refused(reason: QueryReason, data: &str) -> HttpResponse {
    let (status, ..) = status_of(reason);
    let body = refused_body(reason, data);
    let answer = answer::typed(status, PROBLEM, format!("{body}\n"));
    match reason {
        QueryReason::TooMany | QueryReason::Unavailable => answer::retryable(answer),
        QueryReason::Invalid | QueryReason::TooLarge | QueryReason::Rule => answer,
    }
}

/// The problem of a refused query. Of `data`, a JSON object, it has the members that refusals of the engine have.
pub(super) fn refused_body(reason: QueryReason, data: &str) -> Value {
    let (status, code, title) = status_of(reason);
    let data: Value = serde_json::from_str(data).unwrap_or_default();
    let mut body = json!({ "status": status.as_u16(), "code": code, "title": title });
    for (member, from) in [("detail", "message"), ("at", "at"), ("fault", "fault")] {
        if let Some(value) = data.get(from) {
            body[member] = value.clone();
        }
    }
    body
}

/// The status, code and title of a refusal.
fn status_of(reason: QueryReason) -> (StatusCode, &'static str, &'static str) {
    match reason {
        QueryReason::Invalid => (
            StatusCode::BAD_REQUEST,
            "INVALID_QUERY",
            "the parameters are not a query",
        ),
        QueryReason::TooLarge => (
            StatusCode::UNPROCESSABLE_ENTITY,
            "QUERY_TOO_LARGE",
            "the query reads too many records, or its result is too large",
        ),
        QueryReason::TooMany => (
            StatusCode::TOO_MANY_REQUESTS,
            "TOO_MANY_QUERIES",
            "the session has too many queries",
        ),
        QueryReason::Rule => (
            StatusCode::UNPROCESSABLE_ENTITY,
            "QUERY_RULE",
            "the read rule of the collection does not allow live queries",
        ),
        QueryReason::Unavailable => (
            StatusCode::SERVICE_UNAVAILABLE,
            "QUERY_UNAVAILABLE",
            "a store can't be read now; try again later",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_the_members_of_a_query() {
        let found = asked(
            "collection=board%2F1&where=%7B%22a%22%3A%221%22%7D&limit=5&sort=%5B%22a%22%5D&count=true",
            QueryForm::Once,
        );
        let expected = Asked {
            collection: "board/1".to_owned(),
            query: r#"{"where":{"a":"1"},"sort":["a"],"limit":5}"#.to_owned(),
            counts: true,
            explains: false,
            ticket: None,
        };
        assert_eq!(found, Ok(expected));
        let whole =
            asked("collection=cards", QueryForm::Once).map(|asked| (asked.query, asked.counts));
        assert_eq!(whole, Ok(("{}".to_owned(), false)));
    }

    #[test]
    fn faults_name_the_parameter() {
        let cases = [
            ("where={}", "", "parameter collection is missing"),
            (
                "collection=c&collection=d",
                "",
                "parameter collection occurs more than once",
            ),
            (
                "collection=c&limit=1&limit=2",
                "",
                "parameter limit occurs more than once",
            ),
            ("collection=c&were={}", "", "parameter \"were\" is unknown"),
            ("collection=c&count=1", "", "parameter count is neither"),
            (
                "collection=c&where={a:1}",
                "/where",
                "parameter where is not JSON at character 2",
            ),
            // Two values would add a member to the query.
            (
                "collection=c&where={},%22limit%22:5",
                "/where",
                "parameter where is not JSON",
            ),
            (
                "collection=c&limit=",
                "/limit",
                "parameter limit is not JSON",
            ),
        ];
        for (query, at, start) in cases {
            let fault = asked(query, QueryForm::Once)
                .expect_err(query)
                .expect(query);
            assert_eq!(fault.at, at, "{query}");
            assert!(fault.detail.starts_with(start), "{query}: {}", fault.detail);
        }
        assert_eq!(asked("collection=%", QueryForm::Once), Err(None));
        let live = |query| asked(query, QueryForm::Live);
        let with_ticket = live("collection=c&ticket=t").map(|asked| asked.ticket);
        assert_eq!(with_ticket, Ok(Some("t".to_owned())));
        for query in ["collection=c&count=true", "collection=c&ticket=t&ticket=t"] {
            assert!(live(query).is_err(), "{query}");
        }
        let once = asked("collection=c&ticket=t", QueryForm::Once);
        assert!(once.is_err(), "a ticket is for streams");
    }
}

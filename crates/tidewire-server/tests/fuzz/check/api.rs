//! Checks the parsers of HTTP API requests. An input is one letter and its content:
//!
//! - `b` and the body of a batch; an independent model computes the commands that the API must send to a shard;
//! - `t` and a request target: the name of a record, and the parameters, compared with the crates of the URL standard;
//! - `a` and an `Authorization` header;
//! - `m` and lines of `If-Match`, then `!` and lines of `If-None-Match`;
//! - `i` and a `Last-Event-ID`.

use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use hyper::http::Uri;
use serde_json::{Map, Value, json};
use tidewire_core::attachments::Attachments;
use tidewire_core::binary::{Binary, from_base64};
use tidewire_core::json::{JsonLimits, check};
use tidewire_core::message::{
    Change, Event, Message, Only, Presence, Record, RecordBulk, Rpc, Tag, Write,
};
use tidewire_core::text::RESERVED;
use tidewire_http::api::fuzzing::{self, BatchError, OwnedRequest};

use super::{Reached, Target, check_by_letter};

/// The target.
pub const TARGET: Target = Target {
    name: "api",
    check_input,
    seeds,
    reachable: &[
        "not JSON",
        "batch refused",
        "batch accepted",
        "beyond the model",
        "emit",
        "make",
        "read",
        "head",
        "delete",
        "write",
        "write to a path",
        "notify",
        "query all",
        "query",
        "token",
        "auth data",
        "target refused",
        "record",
        "name refused",
        "other route",
        "no route",
        "parameters",
        "parameters refused",
        "stream",
        "stream refused",
        "login",
        "login refused",
        "condition refused",
        "condition met",
        "condition not met",
        "in one step",
        "stream id",
        "stream id refused",
    ],
};

const NAME_BYTES_MAX: usize = 20;
const COMMANDS_MAX: usize = 4;
const STREAM_NAMES_MAX: usize = 100;
const EPOCH: u64 = 3;
const TAG: Tag = Tag {
    incarnation: 0x1a,
    version: 7,
};
/// `TAG` as an entity tag.
const ENTITY_TAG: &str = "\"3-1a-7\"";

/// Panics if the input shows a fault.
pub fn check_input(input: &[u8]) -> Reached {
    check_by_letter(input, |letter, rest, reached| match letter {
        b'b' => check_batch(rest, reached),
        b't' => check_target(rest, reached),
        b'a' => check_authorization(rest, reached),
        b'm' => check_conditions(rest, reached),
        b'i' => check_stream_id(rest, reached),
        _ => {}
    })
}

fn check_batch(text: &str, reached: &mut Reached) {
    let found = fuzzing::batch(text, true, NAME_BYTES_MAX, COMMANDS_MAX);
    let limits = JsonLimits {
        array_gap_max: usize::MAX,
        nesting_max: usize::MAX,
        bytes_max: usize::MAX,
    };
    let is_json = check(text, limits).is_ok();
    assert_eq!(found == Err(BatchError::NotJson), !is_json, "{text:?}");
    if !is_json {
        reached.insert("not JSON");
        return;
    }
    // A batch accepts lone surrogates, numbers beyond doubles and deep nesting, but the values of this model can't hold them.
    let Ok(value) = serde_json::from_str::<Value>(text) else {
        reached.insert("beyond the model");
        return;
    };
    match (found, expect_batch(&value)) {
        (Ok(batch), Some((credentials, commands))) => {
            assert_eq!(
                serde_json::from_str::<Value>(&batch.credentials).ok(),
                Some(credentials),
                "{text}"
            );
            let found: Vec<Vec<String>> = batch.commands.iter().enumerate().map(show).collect();
            assert_eq!(found, commands, "{text}");
            reached.insert("batch accepted");
            reached.extend(commands.iter().flat_map(|command| {
                TARGET
                    .reachable
                    .iter()
                    .find(|branch| **branch == command[0])
            }));
            reached.extend(value.get("token").map(|_| "token"));
            reached.extend(value.get("authData").map(|_| "auth data"));
        }
        (Err(BatchError::Invalid(reason)), None) => {
            assert!(!reason.is_empty());
            reached.insert("batch refused");
        }
        (Err(BatchError::TooMany(max)), None) => {
            assert_eq!(max, COMMANDS_MAX, "{text}");
            reached.insert("batch refused");
        }
        (found, expected) => panic!("{found:?} is not {expected:?}: {text}"),
    }
}

/// The words of the request that a shard gets for a command.
fn show((index, request): (usize, &OwnedRequest)) -> Vec<String> {
    let canonical = |data: &str| {
        serde_json::from_str::<Value>(data)
            .expect("the data is JSON")
            .to_string()
    };
    let optional = |data: Option<&str>| data.map_or_else(String::new, canonical);
    let check_id = |id: Option<&str>| assert_eq!(id, Some(index.to_string().as_str()));
    let words = |name: &str, words: &[&str]| {
        [&[name], words]
            .concat()
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<String>>()
    };
    match request.message() {
        Message::Event(Event::Publication(publication)) => {
            assert_eq!((publication.offset(), publication.trace()), (None, None));
            let binary = publication.binary().map_or_else(String::new, show_binary);
            let attachments = publication.attachments();
            let attachments = attachments.map_or_else(String::new, show_attachments);
            words(
                "emit",
                &[
                    publication.name,
                    &optional(publication.data),
                    &binary,
                    &attachments,
                ],
            )
        }
        Message::Rpc(Rpc::Request { call, data, .. }) => {
            check_id(Some(call.correlation));
            words("make", &[call.name, &optional(data)])
        }
        Message::Record(Record::Read { name }) => words("read", &[name]),
        Message::Record(Record::Head { name }) => words("head", &[name]),
        Message::Record(Record::Delete { name }) => words("delete", &[name]),
        Message::Record(Record::Write(
            Write {
                name,
                version,
                correlation,
                write_ack,
                key: None,
            },
            change,
        )) => {
            check_id(correlation);
            assert!(write_ack, "it must request an acknowledgement");
            let version = version.to_string();
            match change {
                Change::CreateAndUpdate { data } => {
                    words("write", &[name, &optional(data), &version])
                }
                Change::CreateAndPatch { path, data } => words(
                    "write to a path",
                    &[name, path.unwrap_or_default(), &optional(data), &version],
                ),
                other => panic!("{other:?}"),
            }
        }
        Message::Record(Record::Bulk {
            action: RecordBulk::Notify,
            names,
            correlation,
        }) => {
            check_id(correlation);
            words("notify", &names)
        }
        Message::Presence(Presence::QueryAll) => words("query all", &[]),
        Message::Presence(Presence::Query { names, correlation }) => {
            check_id(correlation);
            words("query", &names)
        }
        other => panic!("{other:?}"),
    }
}

/// The credentials and commands of a batch; `None` if the API must refuse it.
fn expect_batch(batch: &Value) -> Option<(Value, Vec<Vec<String>>)> {
    let token = match batch.get("token") {
        None => json!({}),
        Some(Value::String(token)) if !token.is_empty() => json!({ "token": token }),
        Some(_) => return None,
    };
    let credentials = match batch.get("authData") {
        None => token,
        Some(data) => data.is_object().then(|| data.clone())?,
    };
    let list = batch.get("body")?.as_array()?;
    if list.is_empty() || list.len() > COMMANDS_MAX {
        return None;
    }
    let commands: Option<Vec<_>> = list
        .iter()
        .map(|command| expect_command(command.as_object()?))
        .collect();
    Some((credentials, commands?))
}

fn expect_command(command: &Map<String, Value>) -> Option<Vec<String>> {
    // By topic and action: the kind of the command, and its allowed properties in addition to these two.
    let (kind, properties): (&str, &[&str]) = match (
        command.get("topic")?.as_str()?,
        command.get("action")?.as_str()?,
    ) {
        ("event", "emit") => (
            "emit",
            &["eventName", "data", "base64", "contentType", "attachments"],
        ),
        ("rpc", "make") => ("make", &["rpcName", "data"]),
        ("record", "read") => ("read", &["recordName"]),
        ("list", "read") => ("read", &["listName"]),
        ("record", "head") => ("head", &["recordName"]),
        ("record", "delete") => ("delete", &["recordName"]),
        ("list", "delete") => ("delete", &["listName"]),
        ("record", "write") => ("write", &["recordName", "data", "version", "path"]),
        ("list", "write") => ("write", &["listName", "data", "version"]),
        ("record", "notify") => ("notify", &["recordNames"]),
        ("presence", "query") => ("query", &["names"]),
        _ => return None,
    };
    let is_known = |key: &String| {
        ["topic", "action"].contains(&key.as_str()) || properties.contains(&key.as_str())
    };
    if !command.keys().all(is_known) {
        return None;
    }
    let first = command.get(properties[0]);
    let is_of_record = properties[0].starts_with("record") || properties[0].starts_with("list");
    if is_of_record && first.is_some_and(has_reserved) {
        return None;
    }
    match kind {
        "notify" => names(kind, first?),
        "query" => first.map_or_else(
            || Some(vec!["query all".to_owned()]),
            |list| names(kind, list),
        ),
        "write" => expect_write(command, name(first?)?, properties[0] == "listName"),
        "emit" | "make" => {
            let data = command
                .get("data")
                .map_or_else(String::new, Value::to_string);
            let mut words = vec![kind.to_owned(), name(first?)?, data];
            if kind == "emit" {
                words.push(expect_binary(command)?);
                words.push(expect_attachments(command)?);
            }
            Some(words)
        }
        _ => Some(vec![kind.to_owned(), name(first?)?]),
    }
}

fn show_binary(binary: &Binary) -> String {
    format!("{} {}", binary.content_type(), binary.base64())
}

/// The bytes of an event; `None` if the API must refuse them.
fn expect_binary(command: &Map<String, Value>) -> Option<String> {
    let content_type = command.get("contentType").map(Value::as_str);
    let Some(bytes) = command.get("base64") else {
        return content_type.is_none().then(String::new);
    };
    if command.contains_key("data") || content_type == Some(None) {
        return None;
    }
    let bytes = from_base64(bytes.as_str()?)?;
    Some(show_binary(&Binary::new(content_type.flatten(), bytes)))
}

fn show_attachments(attachments: &Attachments) -> String {
    attachments
        .iter()
        .map(|bytes| format!("{bytes:?}"))
        .collect()
}

/// The attachments of an event; `None` if the API must refuse them.
fn expect_attachments(command: &Map<String, Value>) -> Option<String> {
    let Some(list) = command.get("attachments") else {
        return Some(String::new());
    };
    let list = list
        .as_array()
        .filter(|list| (1..=10).contains(&list.len()))?;
    let bytes = list.iter().map(|text| from_base64(text.as_str()?));
    let bytes: Vec<Vec<u8>> = bytes.collect::<Option<_>>()?;
    command.get("data")?;
    Attachments::new(bytes).as_ref().map(show_attachments)
}

fn expect_write(command: &Map<String, Value>, name: String, is_list: bool) -> Option<Vec<String>> {
    let version = match command.get("version") {
        None => -1,
        Some(version) => {
            let number = version.as_f64().filter(|number| number.fract() == 0.0)?;
            match number {
                0.0 => -1,
                -1.0..=2_147_483_647.0 => number as i32,
                _ => return None,
            }
        }
    };
    let path = match command.get("path") {
        Some(path) => path.as_str()?,
        None => "",
    };
    let data = command.get("data")?;
    let is_fit = match (is_list, path.is_empty()) {
        (true, _) => data.as_array()?.iter().all(Value::is_string),
        (false, true) => data.is_object() || data.is_array(),
        (false, false) => true,
    };
    let mut words = match path {
        "" => vec!["write".to_owned(), name],
        path => vec!["write to a path".to_owned(), name, path.to_owned()],
    };
    words.extend([data.to_string(), version.to_string()]);
    is_fit.then_some(words)
}

/// Whether a name, or a name in a list, is reserved for the server's internal records.
fn has_reserved(value: &Value) -> bool {
    let names = value
        .as_array()
        .map_or(std::slice::from_ref(value), Vec::as_slice);
    let mut names = names.iter().filter_map(Value::as_str);
    names.any(|name| name.starts_with(RESERVED))
}

fn name(value: &Value) -> Option<String> {
    let name = value.as_str()?;
    (1..=NAME_BYTES_MAX)
        .contains(&name.len())
        .then(|| name.to_owned())
}

fn names(kind: &str, list: &Value) -> Option<Vec<String>> {
    let list = list.as_array().filter(|list| !list.is_empty())?;
    let mut words = vec![kind.to_owned()];
    for value in list {
        words.push(name(value)?);
    }
    Some(words)
}

fn check_target(text: &str, reached: &mut Reached) {
    let Ok(uri) = text.parse::<Uri>() else {
        reached.insert("target refused");
        return;
    };
    check_path(uri.path(), reached);
    check_query(uri.query().unwrap_or_default(), reached);
}

fn check_path(path: &str, reached: &mut Reached) {
    let escaped = path.strip_prefix("/records/");
    let expected = match path {
        "/api" => Some("Batch"),
        "/api/auth" => Some("Login"),
        "/api/auth/sign-up" => Some("SignUp"),
        "/sse" => Some("Stream"),
        "/openapi.json" => Some("Description"),
        "/records" => Some("Query"),
        _ if path.starts_with("/events/") => Some("Event"),
        _ => escaped.map(|_| "Record"),
    };
    assert_eq!(fuzzing::route(path).as_deref(), expected, "{path}");
    reached.insert(if expected.is_some() {
        "other route"
    } else {
        "no route"
    });
    let Some(escaped) = escaped else { return };
    let found = fuzzing::record_name(path, NAME_BYTES_MAX);
    let is_name =
        |name: &String| (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.starts_with(RESERVED);
    let expected = decoded(escaped).filter(is_name);
    assert_eq!(found, expected, "{path}");
    let Some(name) = found else {
        reached.insert("name refused");
        return;
    };
    // The name, escaped in a URL, gives the same record.
    let own = format!("/records/{}", fuzzing::escape(&name));
    assert_eq!(
        own.parse::<Uri>().map(|uri| uri.path().to_owned()).ok(),
        Some(own.clone())
    );
    assert_eq!(fuzzing::record_name(&own, NAME_BYTES_MAX), Some(name));
    reached.insert("record");
}

/// Decodes percent-escapes with the crate of the URL standard. `None` if an escape is malformed, which that crate would keep as it is.
fn decoded(text: &str) -> Option<String> {
    let is_escape =
        |part: &str| part.len() >= 2 && part.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
    let is_whole = text.split('%').skip(1).all(is_escape);
    let decoded = percent_encoding::percent_decode_str(text)
        .decode_utf8()
        .ok()?;
    is_whole.then(|| decoded.into_owned())
}

fn check_query(query: &str, reached: &mut Reached) {
    let found = fuzzing::parameters(query);
    let is_readable = query.split(['&', '=']).all(|part| decoded(part).is_some());
    let expected: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .collect();
    assert_eq!(found, is_readable.then(|| expected.clone()), "{query}");
    reached.insert(if is_readable {
        "parameters"
    } else {
        "parameters refused"
    });
    let wanted = fuzzing::wanted(query, NAME_BYTES_MAX);
    let values = |name: &str| -> Vec<String> {
        let named = expected.iter().filter(|(key, _)| key == name);
        named.map(|(_, value)| value.clone()).collect()
    };
    let names = [values("event"), values("record")];
    let is_name = |name: &String| (1..=NAME_BYTES_MAX).contains(&name.len());
    let is_stream = is_readable
        && names.iter().flatten().all(is_name)
        && !names[1].iter().any(|name| name.starts_with(RESERVED))
        && names.iter().any(|list| !list.is_empty())
        && names.iter().all(|list| list.len() <= STREAM_NAMES_MAX);
    let [events, records] = names.map(|list| {
        let mut kept: Vec<String> = Vec::new();
        for name in list {
            if !kept.contains(&name) {
                kept.push(name);
            }
        }
        kept
    });
    let expected = is_stream.then(|| (events, records, values("ticket").pop()));
    assert_eq!(wanted, expected, "{query}");
    reached.insert(if is_stream {
        "stream"
    } else {
        "stream refused"
    });
}

fn check_authorization(text: &str, reached: &mut Reached) {
    let Ok(value) = HeaderValue::from_str(text) else {
        return;
    };
    let mut headers = HeaderMap::new();
    assert_eq!(fuzzing::credentials(&headers).as_deref(), Some("{}"));
    headers.insert(AUTHORIZATION, value);
    let Some(found) = fuzzing::credentials(&headers) else {
        reached.insert("login refused");
        return;
    };
    let found: Value = serde_json::from_str(&found).expect("credentials are JSON");
    let (scheme, value) = text.split_once(' ').expect("a scheme and what it needs");
    let part = |key: &str| found[key].as_str().unwrap_or_default();
    if scheme.eq_ignore_ascii_case("bearer") {
        assert_eq!(found, json!({ "token": value.trim() }));
    } else {
        use base64::Engine as _;
        let pair = format!("{}:{}", part("username"), part("password"));
        let encoded = base64::engine::general_purpose::STANDARD.encode(pair);
        assert_eq!(value.trim(), encoded, "{text}");
        assert!(
            scheme.eq_ignore_ascii_case("basic") && !part("username").contains(':'),
            "{text}"
        );
    }
    reached.insert("login");
}

/// The elements of a list of entity tags, or `*` as the only element; `None` if it is not a valid list.
fn tags(lines: &[HeaderValue]) -> Option<Vec<String>> {
    let texts: Option<Vec<&str>> = lines.iter().map(|line| line.to_str().ok()).collect();
    let whole = texts?.join(",");
    let is_space = |letter: char| letter == ' ' || letter == '\t';
    if whole.trim_matches(is_space) == "*" {
        return Some(vec!["*".to_owned()]);
    }
    let mut list = Vec::new();
    let mut tag = String::new();
    let mut is_open = false;
    // Letter by letter; a comma within quotes belongs to the tag. The extra comma ends the last element.
    for letter in whole.chars().chain([',']) {
        match letter {
            ',' if !is_open => {
                let text = tag.trim_matches(is_space).to_owned();
                tag.clear();
                let inner = text.strip_prefix("W/").unwrap_or(&text);
                let is_tag = inner.len() >= 2
                    && inner.starts_with('"')
                    && inner.matches('"').count() == 2
                    && inner.ends_with('"')
                    && !inner.contains(is_space);
                match is_tag {
                    true => list.push(text),
                    false if text.is_empty() => {}
                    false => return None,
                }
            }
            letter => {
                is_open ^= letter == '"';
                tag.push(letter);
            }
        }
    }
    (!is_open && !list.is_empty()).then_some(list)
}

fn check_conditions(text: &str, reached: &mut Reached) {
    let (matching, others) = text.split_once('!').unwrap_or((text, ""));
    let mut headers = HeaderMap::new();
    let mut read = |name: HeaderName, lines: &str| {
        let values = lines.split('\n').filter(|line| !line.is_empty());
        let values: Vec<HeaderValue> = values
            .filter_map(|line| HeaderValue::from_str(line).ok())
            .collect();
        for value in &values {
            headers.append(name.clone(), value.clone());
        }
        (!values.is_empty()).then(|| tags(&values))
    };
    let (matching, others) = (read(IF_MATCH, matching), read(IF_NONE_MATCH, others));
    let is_refused = [&matching, &others]
        .into_iter()
        .any(|list| *list == Some(None));
    let (matching, others) = (matching.flatten(), others.flatten());
    let other = Tag { version: 8, ..TAG };
    for (state, text) in [
        (None, ""),
        (Some(TAG), ENTITY_TAG),
        (Some(other), "\"3-1a-8\""),
    ] {
        let found = fuzzing::condition(&headers, EPOCH, state);
        assert_eq!(found.is_none(), is_refused, "{headers:?}");
        let Some((found, only)) = found else {
            reached.insert("condition refused");
            continue;
        };
        let weak = format!("W/{text}");
        let is_there = state.is_some();
        let has = |list: &[String], part: &str| is_there && list.iter().any(|entry| entry == part);
        let is_in = |list: &Vec<String>| has(list, "*") || has(list, text);
        let is_met = matching.as_ref().is_none_or(is_in)
            && !others
                .as_ref()
                .is_some_and(|list| is_in(list) || has(list, &weak));
        assert_eq!(found, is_met, "{headers:?} of {state:?}");
        reached.insert(if found {
            "condition met"
        } else {
            "condition not met"
        });
        let by_owner = only.map(|only| match only {
            Only::Always => true,
            Only::Present => is_there,
            Only::Missing => !is_there,
            Only::Is(tag) => state == Some(tag),
        });
        if let Some(by_owner) = by_owner {
            assert_eq!(by_owner, is_met, "{headers:?} of {state:?}");
            reached.insert("in one step");
        }
    }
}

fn check_stream_id(id: &str, reached: &mut Reached) {
    // The id of a stream without records contains no record states.
    let count = id.matches('_').count().max(1);
    let Some(again) = fuzzing::stream_id(id, EPOCH, count) else {
        reached.insert("stream id refused");
        return;
    };
    assert_eq!(
        fuzzing::stream_id(&again, EPOCH, count),
        Some(again.clone()),
        "{id}"
    );
    assert_eq!(fuzzing::stream_id(&again, EPOCH + 1, count), None, "{id}");
    assert_eq!(fuzzing::stream_id(&again, EPOCH, count + 1), None, "{id}");
    reached.insert("stream id");
}

fn seeds() -> Vec<Vec<u8>> {
    let commands = [
        r#"{"topic":"event","action":"emit","eventName":"e","data":{"a":1.0}}"#,
        r#"{"topic":"rpc","action":"make","rpcName":"r"}"#,
        r#"{"topic":"record","action":"read","recordName":"r"}"#,
        r#"{"topic":"list","action":"read","listName":"r"}"#,
        r#"{"topic":"record","action":"head","recordName":"r"}"#,
        r#"{"topic":"record","action":"delete","recordName":"r"}"#,
        r#"{"topic":"list","action":"delete","listName":"r"}"#,
        r#"{"topic":"record","action":"write","recordName":"r","data":{},"version":7}"#,
        r#"{"topic":"record","action":"write","recordName":"r","path":"a.b","data":null,"version":0}"#,
        r#"{"topic":"list","action":"write","listName":"r","data":["a"]}"#,
        r#"{"topic":"record","action":"notify","recordNames":["a","b"]}"#,
        r#"{"topic":"presence","action":"query"}"#,
        r#"{"topic":"presence","action":"query","names":["a"]}"#,
        r#"{"topic":"record","action":"listen","recordName":"r"}"#,
        r#"{"topic":"event","action":"emit","eventName":"e","base64":"AP8=","contentType":"a/b"}"#,
        r#"{"topic":"event","action":"emit","eventName":"e","base64":"AP8","data":0}"#,
        r#"{"topic":"event","action":"emit","eventName":"e","data":[{"_placeholder":true,"num":0}],"attachments":["AP8=",""]}"#,
        r#"{"topic":"event","action":"emit","eventName":"e","x":1}"#,
        r#"{"topic":"event","action":"emit","eventName":"\ud800"}"#,
        "7",
    ];
    let mut seeds: Vec<String> = commands
        .iter()
        .map(|command| format!("b{{\"body\":[{command}]}}"))
        .collect();
    let emit = commands[0];
    seeds.extend([
        format!(r#"b{{"token":"t","body":[{emit},{emit}]}}"#),
        format!(r#"b{{"token":"","body":[{emit}]}}"#),
        format!(r#"b{{"authData":{{"username":"u"}},"body":[{emit}]}}"#),
        format!(r#"b{{"body":[{}]}}"#, [emit; COMMANDS_MAX + 1].join(",")),
        r#"b{"body":[]}"#.into(),
        "b[]".into(),
        "b{".into(),
    ]);
    let others = [
        "t/records/a/b",
        "t/records/a%2Fb",
        "t/records/a%252Fb",
        "t/records/%C3%A4",
        "t/records/a+b",
        "t/records/%4G",
        "t/records/%FF",
        "t/records/..%2e/x",
        "t/records/",
        "t/records/123456789012345678901",
        "t/api",
        "t/api/auth",
        "t/openapi.json",
        "t/other",
        "t\u{e4}",
        "t/sse?event=a%26b&record=c+d&event=a&x",
        "t/sse?event=",
        "t/sse?record=%",
        "t/sse?event=a&ticket=7",
        "thttp://a.example/api?x=1",
        "aBearer abc",
        "abasic dTpw",
        "aBasic dQ==",
        "aDigest x",
        "aBearer",
        "m*",
        "m\"3-1a-7\"",
        "m\"x\", \"3-1a-7\"",
        "mx",
        "m\"a,b\",, \"3-1a-7\"",
        "m\"03-1a-7\"",
        "mW/\"3-1a-7\"",
        "m!*",
        "m!\"3-1a-7\"",
        "m!W/\"3-1a-8\"\n\"3-1a-7\"",
        "m*!\"3-1a-7\"",
        "m",
        "i3_x_0_1a-7",
        "i3_x",
        "i4_x",
        "i3",
        "i",
    ];
    seeds.extend(others.map(str::to_owned));
    seeds.into_iter().map(String::into_bytes).collect()
}

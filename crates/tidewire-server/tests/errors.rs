//! The table of errors is complete: every error in the sources of the server and the client has a row in `spec/errors.toml`, every
//! row belongs to an error in the sources, and `docs/errors.md` is generated from the table.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;
use serde::Deserialize;

/// A row of the table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorRow {
    name: String,
    number: Option<u16>,
    #[serde(default)]
    numbers: BTreeMap<String, u16>,
    kind: ErrorKind,
    retry: bool,
    closes: bool,
    cause: String,
    remedy: String,
}

/// The cause of an error: the peer, the environment, or a bug in Tidewire.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ErrorKind {
    Peer,
    World,
    Us,
}

/// A section of the page, with all rows of one kind.
struct Family {
    name: &'static str,
    title: &'static str,
    /// The text above its rows.
    text: &'static str,
    /// The heading of the column of numbers; empty if it has none.
    number: &'static str,
    /// Whether a column says that the error ends the connection.
    closes: bool,
}

const FAMILIES: [Family; 9] = [
    Family {
        name: "message",
        title: "Messages of deepstream's protocol",
        text: "The server sends these names to deepstream clients in error messages; the number is the action ([spec/deepstream.md](../spec/deepstream.md)). \
               `@tidewire/client` reports the same names in `code`.",
        number: "Action",
        closes: true,
    },
    Family {
        name: "command",
        title: "Commands of Socket.IO clients",
        text: "The acknowledgement of a refused command has this name or one of the above in `code` ([socketio.md](socketio.md)).",
        number: "",
        closes: false,
    },
    Family {
        name: "login",
        title: "Logins",
        text: "The data of a refused login has this name in `error` or `code` ([authentication.md](authentication.md)).",
        number: "",
        closes: true,
    },
    Family {
        name: "close",
        title: "Close frames",
        text: "The server closes a WebSocket with this code and reason ([spec/websocket.md](../spec/websocket.md)).",
        number: "Code",
        closes: false,
    },
    Family {
        name: "http",
        title: "HTTP",
        text: "The response has this status, and its `application/problem+json` body this `code` ([http-api.md](http-api.md)).",
        number: "Status",
        closes: false,
    },
    Family {
        name: "admin",
        title: "Admin API",
        text: "The response has this status, and its body this `error.code` ([admin-api.md](admin-api.md)).",
        number: "Status",
        closes: false,
    },
    Family {
        name: "client",
        title: "`@tidewire/client`",
        text: "The client reports these in the `code` of a `TidewireError`, in addition to the names of messages and logins above.",
        number: "",
        closes: false,
    },
    Family {
        name: "ready",
        title: "`/ready` and its warnings",
        text: "`/ready` reports these codes as reasons and warnings ([operations.md](operations.md)).",
        number: "",
        closes: false,
    },
    Family {
        name: "exit",
        title: "Exit codes",
        text: "The command `tidewire` exits with these codes.",
        number: "Code",
        closes: false,
    },
];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All sources below a folder as one text.
fn sources(folder: &str, ending: &str) -> String {
    let mut text = String::new();
    let mut folders = vec![repository().join(folder)];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).expect("a folder of sources");
        for path in entries.map(|entry| entry.expect("an entry").path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == ending) {
                text += &fs::read_to_string(path).expect("a source");
            }
        }
    }
    text
}

/// The sources of the server's crates, without core, wire and net.
fn server_sources() -> String {
    let crates = ["auth", "config", "http", "server", "shard", "store"];
    crates
        .map(|name| sources(&format!("crates/tidewire-{name}/src"), "rs"))
        .concat()
}

fn table() -> BTreeMap<String, Vec<ErrorRow>> {
    toml::from_str(&read("spec/errors.toml")).expect("the table can be read")
}

/// The texts that the groups of `pattern` match in `text`.
fn found<const N: usize>(pattern: &str, text: &str) -> BTreeSet<[String; N]> {
    let pattern = Regex::new(pattern).expect("a pattern");
    let all = pattern.captures_iter(text);
    all.map(|captures| captures.extract::<N>().1.map(str::to_owned))
        .collect()
}

fn names(rows: &[ErrorRow]) -> BTreeSet<[String; 1]> {
    rows.iter().map(|row| [row.name.clone()]).collect()
}

/// The names of rows with the names of their HTTP statuses.
fn statuses(rows: &[ErrorRow]) -> BTreeSet<[String; 2]> {
    let status = |row: &ErrorRow| {
        let word = match row.number.expect("a status") {
            400 => "BAD_REQUEST",
            401 => "UNAUTHORIZED",
            403 => "FORBIDDEN",
            404 => "NOT_FOUND",
            405 => "METHOD_NOT_ALLOWED",
            408 => "REQUEST_TIMEOUT",
            409 => "CONFLICT",
            412 => "PRECONDITION_FAILED",
            413 => "PAYLOAD_TOO_LARGE",
            415 => "UNSUPPORTED_MEDIA_TYPE",
            422 => "UNPROCESSABLE_ENTITY",
            429 => "TOO_MANY_REQUESTS",
            500 => "INTERNAL_SERVER_ERROR",
            503 => "SERVICE_UNAVAILABLE",
            504 => "GATEWAY_TIMEOUT",
            other => panic!("{}: {other} has no name here", row.name),
        };
        [word.to_owned(), row.name.clone()]
    };
    rows.iter().map(status).collect()
}

const REFUSAL: &str = r#"StatusCode::([A-Z_]+),\s*"([A-Z][A-Z_]+)","#;

#[test]
fn messages_have_the_actions_of_the_wire() {
    let wire = read("crates/tidewire-wire/src/protocol/deepstream/action.rs");
    let mut expected = BTreeSet::new();
    let mut topic = String::new();
    let module =
        Regex::new(r"^pub mod (\w+) \{|^\s*pub const ([A-Z_]+): u32 = (\d+);").expect("a pattern");
    for captures in wire.lines().filter_map(|line| module.captures(line)) {
        let group = |number| captures.get(number).map(|found| found.as_str());
        if let Some(name) = group(1) {
            topic = name.to_uppercase();
            continue;
        }
        let (name, number) = (group(2).expect("a name"), group(3).expect("a number"));
        let is_news = ["GAP", "PATTERN_GAP", "POSITION", "CACHE_RETRIEVAL_TIMEOUT"].contains(&name);
        let is_request = ["SUBSCRIBE_PATTERNS", "UNSUBSCRIBE_PATTERNS"].contains(&name);
        let is_refusal = ["UNKNOWN_TOPIC", "UNSUCCESSFUL"].contains(&name)
            || (topic == "CONNECTION" && name == "REJECT");
        let is_reserved = number.parse::<u16>().expect("a number") >= 100;
        let is_error = is_reserved && !is_news && !is_request;
        if is_error || is_refusal {
            expected.insert(format!("{topic} {number} {name}"));
        }
    }
    let listen = read("crates/tidewire-wire/src/protocol/deepstream/listen.rs");
    for (field, name) in [
        ("invalid_pattern", "INVALID_LISTEN_REGEX"),
        ("response_timeout", "LISTEN_RESPONSE_TIMEOUT"),
    ] {
        let pattern = format!(r"(?s)const (EVENT|RECORD):[^}}]*?{field}: (\d+),");
        let numbers = found::<2>(&pattern, &listen);
        assert_eq!(numbers.len(), 2, "{field}");
        let documented = numbers.iter();
        expected.extend(documented.map(|[topic, number]| format!("{topic} {number} {name}")));
    }
    let rows = &table()["message"];
    let documented: BTreeSet<String> = rows
        .iter()
        .flat_map(|row| {
            row.numbers
                .iter()
                .map(move |(topic, number)| format!("{topic} {number} {}", row.name))
        })
        .collect();
    assert_eq!(documented, expected);
}

#[test]
fn refused_commands_have_rows() {
    let folder = "crates/tidewire-wire/src/protocol/socketio";
    let sources = ["command.rs", "write.rs"].map(|file| read(&format!("{folder}/{file}")));
    let said = found::<1>(r#""([A-Z]+(?:_[A-Z]+)+)""#, &sources.concat());
    let table = table();
    let rows = names(&table["command"]);
    assert!(rows.is_subset(&said), "{said:?}");
    let known: BTreeSet<_> = rows.union(&names(&table["message"])).cloned().collect();
    let undocumented: Vec<_> = said.difference(&known).collect();
    assert_eq!(undocumented, Vec::<&[String; 1]>::new());
}

#[test]
fn refusals_of_http_have_rows() {
    let api = sources("crates/tidewire-http/src/api", "rs");
    assert_eq!(statuses(&table()["http"]), found(REFUSAL, &api));
    let admin = sources("crates/tidewire-http/src/admin", "rs");
    assert_eq!(statuses(&table()["admin"]), found(REFUSAL, &admin));
}

#[test]
fn outcomes_of_logins_have_rows() {
    let auth = sources("crates/tidewire-auth/src", "rs");
    let core = sources("crates/tidewire-core/src", "rs");
    let mut said = found::<1>(r#"const [A-Z_]+: &str = "([A-Z_]+)";"#, &auth);
    said.extend(found(r#""code":\s*"([A-Z_]+)""#, &core));
    // The name of users who log in without authentication, not an error.
    said.remove(&["OPEN".to_owned()]);
    assert_eq!(names(&table()["login"]), said);
}

#[test]
fn close_frames_have_rows() {
    let close = read("crates/tidewire-wire/src/protocol/close.rs");
    let reasons = found::<1>(r#"CloseReason::\w+ => "([^"]+)","#, &close);
    let documented = names(&table()["close"]);
    assert!(reasons.len() >= 10, "{reasons:?}");
    let undocumented: Vec<_> = reasons.difference(&documented).collect();
    assert_eq!(undocumented, Vec::<&[String; 1]>::new());
    let wire = read("crates/tidewire-wire/src/frame/websocket.rs");
    let codes = found::<2>(r"pub const ([A-Z_]+): Self = Self\((\d{4})\);", &wire);
    let numbers: BTreeSet<String> = table()["close"]
        .iter()
        .map(|row| row.number.expect("a code").to_string())
        .collect();
    let all = [server_sources(), sources("crates/tidewire-wire/src", "rs")].concat();
    for [name, number] in codes {
        let is_used = all.contains(&format!("CloseCode::{name}"));
        assert_eq!(is_used, numbers.contains(&number), "{number} {name}");
    }
}

#[test]
fn reasons_and_warnings_of_ready_have_rows() {
    let server = server_sources();
    let tests = Regex::new(r"(?s)#\[cfg\(test\)\]\nmod tests \{.*?\n\}\n").expect("a pattern");
    let server = tests.replace_all(&server, "");
    let mut said = found::<1>(r#"\bcode(?::| =) "([a-z_]+)"[,;]"#, &server);
    let status = read("crates/tidewire-http/src/status.rs");
    said.extend(found(r#"\badd\(\s*"([a-z_]+)","#, &status));
    assert_eq!(names(&table()["ready"]), said);
}

#[test]
fn errors_of_the_client_have_rows() {
    let table = table();
    let client = sources("packages/client/src", "ts");
    let said = found::<1>(r"'([A-Z][A-Z_]{3,})'", &client);
    let mut documented = names(&table["client"]);
    for name in &documented {
        assert!(said.contains(name), "{name:?} is said nowhere");
    }
    documented.extend(names(&table["message"]));
    documented.extend(names(&table["login"]));
    let undocumented: Vec<_> = said.difference(&documented).collect();
    assert_eq!(undocumented, Vec::<&[String; 1]>::new());
}

#[test]
fn exit_codes_have_rows() {
    let exit = read("crates/tidewire-server/src/exit.rs");
    let codes = found::<1>(r"Self::\w+ => (\d+),", &exit);
    let rows = &table()["exit"];
    let documented = rows
        .iter()
        .map(|row| [row.number.expect("a code").to_string()]);
    assert_eq!(documented.collect::<BTreeSet<_>>(), codes);
}

/// Matches the name of an option in a text.
const OPTION: &str =
    r"\b((?:limits|http|auth|record|rpc|network|admin|store)\.[a-z_]+(?:\.[a-z_]+)*)\b";

#[test]
fn options_that_are_named_exist() {
    let options = read("docs/configuration.md");
    let table = table();
    for row in table.values().flatten() {
        let text = format!("{} {}", row.cause, row.remedy);
        for [option] in found::<1>(OPTION, &text) {
            let heading = format!("### `{option}`");
            assert!(options.contains(&heading), "{}: {option}", row.name);
        }
    }
}

#[test]
fn the_page_is_fresh() {
    let path = repository().join("docs/errors.md");
    let expected = page(&table());
    if std::env::var_os("TIDEWIRE_WRITE").is_some() {
        fs::write(&path, &expected).expect("the page is written");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "docs/errors.md is not fresh; run TIDEWIRE_WRITE=1 cargo test -p tidewire-server --test errors"
    );
}

fn page(table: &BTreeMap<String, Vec<ErrorRow>>) -> String {
    let mut page = "# Errors\n\n\
        Every error code of the server, the client and the command line, with its cause and its remedy. This page is generated from\n\
        [spec/errors.toml](../spec/errors.toml). Programs act on codes and numbers, never on texts.\n\n\
        *Again* tells whether the same request may succeed later. *Fault* is *peer* if the sender made a mistake, *world* if a disk, a\n\
        server or a timeout failed, and *us* for a bug.\n"
        .to_owned();
    assert_eq!(table.len(), FAMILIES.len());
    for family in &FAMILIES {
        let _ = write!(page, "\n## {}\n\n{}\n\n", family.title, family.text);
        let number = match family.number {
            "" => String::new(),
            word => format!(" {word} |"),
        };
        let closes = if family.closes { " Ends |" } else { "" };
        let _ = writeln!(
            page,
            "| Name |{number} Fault | Again |{closes} Cause | What to do |"
        );
        let columns = 5 + usize::from(!number.is_empty()) + usize::from(family.closes);
        let _ = writeln!(page, "|{}", "---|".repeat(columns));
        for row in &table[family.name] {
            let number = match (family.number, row.number) {
                ("", _) => String::new(),
                (_, Some(number)) => format!(" {number} |"),
                (_, None) => {
                    let all = row.numbers.iter();
                    let all: Vec<_> = all
                        .map(|(topic, number)| format!("{topic} {number}"))
                        .collect();
                    format!(" {} |", all.join(", "))
                }
            };
            let closes = match family.closes {
                true => format!(" {} |", yes(row.closes)),
                false => String::new(),
            };
            let name = match family.name {
                "close" | "exit" => row.name.clone(),
                _ => format!("`{}`", row.name),
            };
            let kind = match row.kind {
                ErrorKind::Peer => "peer",
                ErrorKind::World => "world",
                ErrorKind::Us => "us",
            };
            let again = yes(row.retry);
            let (cause, remedy) = (linked(&row.cause), linked(&row.remedy));
            let _ = writeln!(
                page,
                "| {name} |{number} {kind} | {again} |{closes} {cause} | {remedy} |"
            );
        }
    }
    page
}

/// The text with each option name as a link.
fn linked(text: &str) -> String {
    let options = Regex::new(OPTION).expect("a pattern");
    let link = |captures: &regex::Captures<'_>| {
        let option = &captures[1];
        let anchor = option.replace('.', "");
        format!("[`{option}`](configuration.md#{anchor})")
    };
    options.replace_all(text, link).into_owned()
}

fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

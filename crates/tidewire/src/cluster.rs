//! `tidewire cluster`: shows and changes the cluster of the running server by its admin API.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tidewire_config::plan::Plan;
use tidewire_http::permission::read;
use tidewire_server::exit::{Exit, Failure};

use crate::cli::ClusterCommand;
use crate::terminal::print_out;

/// A server that does not answer within this time does not work.
const TIMEOUT: Duration = Duration::from_secs(5);
/// New rules wait for a node that does not answer until the others have evicted it. The server gives up after a minute.
const RULES_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest answer: a member has about 300 bytes.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// Runs the command.
///
/// # Errors
/// The server has no admin API, does not answer, or refuses.
pub fn run(plan: &Plan, command: &ClusterCommand) -> Result<Exit, Failure> {
    let request = match command {
        ClusterCommand::Status => Request::new("GET", ""),
        ClusterCommand::Leave => Request::new("POST", "/leave"),
        ClusterCommand::Evict(node) => Request::new("DELETE", format!("/members/{node}")),
        ClusterCommand::Rules(file) => Request::with_rules(file)?,
    };
    let (status, answer) = ask(plan, &request)?;
    let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
    if !(200..300).contains(&status) {
        let message = answer["error"]["message"].as_str();
        let line = message.unwrap_or("the server refuses the command");
        return Err(Failure::new(Exit::Unwell, line));
    }
    print_out(&match command {
        ClusterCommand::Status => table(&answer),
        ClusterCommand::Leave => {
            "the node hands its names over, leaves the cluster and stops\n".to_owned()
        }
        ClusterCommand::Evict(node) => format!("the cluster evicts the node {node}\n"),
        ClusterCommand::Rules(_) => format!("in force on all nodes: {}", rules_line(&answer)),
    })
}

/// A request to the admin API. `path` is behind that of the cluster.
struct Request {
    method: &'static str,
    path: String,
    body: String,
    timeout: Duration,
}

impl Request {
    fn new(method: &'static str, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            body: String::new(),
            timeout: TIMEOUT,
        }
    }

    fn with_rules(file: &Path) -> Result<Self, Failure> {
        let text = read(file);
        let body = text.map_err(|problem| Failure::new(Exit::Unwell, problem.to_string()))?;
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let path = format!("/rules?file={}", percent_encoded(&name));
        let timeout = RULES_TIMEOUT;
        Ok(Self {
            body,
            timeout,
            ..Self::new("PUT", path)
        })
    }
}

/// A text as the value of a query.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => {
                encoded.push(char::from(byte));
            }
            _ => encoded += &format!("%{byte:02X}"),
        }
    }
    encoded
}

/// The rules of the cluster, as the server reports them.
fn rules_line(rules: &Value) -> String {
    let text = |field: &str| rules[field].as_str().unwrap_or_default().to_owned();
    let change = rules["change"].as_u64().unwrap_or(0);
    format!(
        "rules {}, change {change}, sha256 {}\n",
        text("file"),
        text("sha256")
    )
}

/// The members, one a line.
fn table(answer: &Value) -> String {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let mut text = format!("view {}\n", number(&answer["view"]));
    if answer["rules"].is_object() {
        text += &rules_line(&answer["rules"]);
    }
    let keys = answer["keys"].as_object().into_iter().flatten();
    for (section, fingerprint) in keys {
        let fingerprint = fingerprint.as_str().unwrap_or_default();
        text += &format!("keys of {section}, fingerprint {fingerprint}\n");
    }
    for member in answer["members"].as_array().into_iter().flatten() {
        let link = match (&member["this"], &member["linked"]) {
            (Value::Bool(true), _) => "this node".to_owned(),
            (_, Value::Bool(true)) => {
                let round_trip = member["round_trip_ms"].as_f64().unwrap_or(0.0);
                format!("linked, {round_trip:.2} ms")
            }
            _ => "not linked".to_owned(),
        };
        let state = member["state"].as_str().unwrap_or_default();
        let address = member["address"].as_str().unwrap_or_default();
        let (node, slots) = (number(&member["node"]), number(&member["slots"]));
        text += &format!("node {node:<6} {state:<8} {slots:>4} slots  {address:<24} {link}\n");
    }
    text
}

fn ask(plan: &Plan, request: &Request) -> Result<(u16, String), Failure> {
    let wrong = |line: String| Failure::new(Exit::Unwell, line);
    let Some(address) = plan.admin_address else {
        let line = "the server has no admin API; set admin.key (docs/admin-api.md)";
        return Err(Failure::new(Exit::Configuration, line));
    };
    let admin = &plan.config.admin;
    let key = match &admin.key_file.0 {
        None => admin.key.0.clone(),
        Some(file) => {
            let read = std::fs::read_to_string(file);
            let read = read.map_err(|error| wrong(format!("{}: {error}", file.display())))?;
            read.trim().to_owned()
        }
    };
    let Request {
        method,
        path,
        body,
        timeout,
    } = request;
    let length = body.len();
    let head = format!(
        "{method} /admin/v1/cluster{path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    let exchange = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_read_timeout(Some(*timeout))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        stream.write_all(head.as_bytes())?;
        stream.write_all(body.as_bytes())?;
        let mut answer = String::new();
        stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = exchange().map_err(|error| {
        wrong(format!(
            "the admin API at {address} does not answer: {error}; start the server"
        ))
    })?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    Ok((status.unwrap_or(0), body.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_member_has_a_line() {
        let answer = serde_json::json!({ "view": 7, "members": [
            { "node": 1, "state": "active", "slots": 2_048, "address": "10.0.0.1:6022", "this": true, "linked": true },
            { "node": 2, "state": "leaving", "slots": 0, "address": "10.0.0.2:6022", "linked": true, "round_trip_ms": 0.25 },
        ] });
        let expected = "view 7\n\
            node 1      active   2048 slots  10.0.0.1:6022            this node\n\
            node 2      leaving     0 slots  10.0.0.2:6022            linked, 0.25 ms\n";
        assert_eq!(table(&answer), expected);
        let answer = serde_json::json!({ "view": 8, "members": [],
            "rules": { "change": 12, "file": "rules.yml", "sha256": "ba7816bf", "since": 1_795_200_000 },
            "keys": { "auth.jwt": "0123456789ab" } });
        let expected = "view 8\nrules rules.yml, change 12, sha256 ba7816bf\n\
            keys of auth.jwt, fingerprint 0123456789ab\n";
        assert_eq!(table(&answer), expected);
    }

    #[test]
    fn the_name_of_a_file_is_one_value_of_the_query() {
        let check = |name, expected| assert_eq!(percent_encoded(name), expected);
        check("rules-2.v1_b.yml", "rules-2.v1_b.yml");
        check("a b&file=c%é", "a%20b%26file%3Dc%25%C3%A9");
    }
}

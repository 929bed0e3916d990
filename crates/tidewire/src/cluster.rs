//! `tidewire cluster`: shows and changes the cluster of the running server by its admin API.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;
use tidewire_config::plan::Plan;
use tidewire_server::exit::{Exit, Failure};

use crate::cli::ClusterCommand;
use crate::terminal::print_out;

/// A server that does not answer within this time does not work.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The longest answer: a member has about 300 bytes.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// Runs the command.
///
/// # Errors
/// The server has no admin API, does not answer, or refuses.
pub fn run(plan: &Plan, command: &ClusterCommand) -> Result<Exit, Failure> {
    let (method, path) = match command {
        ClusterCommand::Status => ("GET", String::new()),
        ClusterCommand::Leave => ("POST", "/leave".to_owned()),
        ClusterCommand::Evict(node) => ("DELETE", format!("/members/{node}")),
    };
    let (status, answer) = ask(plan, method, &path)?;
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
    })
}

/// The members, one a line.
fn table(answer: &Value) -> String {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let mut text = format!("view {}\n", number(&answer["view"]));
    let rules = &answer["rules"];
    if let (Some(file), Some(sha256)) = (rules["file"].as_str(), rules["sha256"].as_str()) {
        let change = number(&rules["change"]);
        text += &format!("rules {file}, change {change}, sha256 {sha256}\n");
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

fn ask(plan: &Plan, method: &str, path: &str) -> Result<(u16, String), Failure> {
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
    let request = format!(
        "{method} /admin/v1/cluster{path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    let exchange = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        stream.write_all(request.as_bytes())?;
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
            "rules": { "change": 12, "file": "rules.yml", "sha256": "ba7816bf", "since": 1_795_200_000 } });
        let expected = "view 8\nrules rules.yml, change 12, sha256 ba7816bf\n";
        assert_eq!(table(&answer), expected);
    }
}

//! `/metrics` of the real program: its formats, the names that the documents use, and log lines as JSON.

mod client;
mod process;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use client::DEADLINE;
use process::{Server, status_of};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tidewire_http::metrics::cluster::{
    ClusterNumbers, ClusterSample, LinkSample, MemberSample, RulesSample, STATES,
};

/// The complete answer to a GET with these headers.
fn get(server: &Server, path: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(server.address).expect("the server accepts");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    let request = format!("GET {path} HTTP/1.1\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// The names of the samples in an exposition.
fn sample_names(text: &str) -> BTreeSet<&str> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let names = lines.filter_map(|line| line.split(['{', ' ']).next());
    names.filter(|name| !name.is_empty()).collect()
}

#[test]
fn metrics_are_given_in_the_format_that_the_scraper_accepts() {
    let server = Server::start(&[]);
    let host = "host: localhost\r\n";
    let plain = get(&server, "/metrics", host);
    assert!(plain.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    let body = plain.split_once("\r\n\r\n").expect("a body").1;
    assert!(body.contains("\n# TYPE tidewire_turns_total counter\n"));
    assert!(!body.contains("# EOF") && !body.contains("# UNIT"));
    let accept = format!("{host}accept: application/openmetrics-text;version=1.0.0\r\n");
    let open_metrics = get(&server, "/metrics", &accept);
    let kind = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n";
    assert!(open_metrics.contains(kind));
    let open_body = open_metrics.split_once("\r\n\r\n").expect("a body").1;
    assert!(open_body.contains("\n# TYPE tidewire_turns counter\n"));
    assert!(open_body.ends_with("# EOF\n"));
    assert_eq!(sample_names(body), sample_names(open_body));
}

/// Names of metrics in a text. A name that ends with `_` is a prefix of several metrics.
fn named_metrics(text: &str) -> BTreeSet<String> {
    let is_part = |symbol: char| symbol.is_ascii_alphanumeric() || symbol == '_';
    let indexes = text.match_indices("tidewire_").map(|(index, _)| index);
    let indexes = indexes.filter(|index| !text[..*index].ends_with(is_part));
    indexes
        .map(|index| text[index..].split(|symbol| !is_part(symbol)).next())
        .map(|name| name.unwrap_or_default().to_owned())
        // Such as the file `tidewire_VERSION_amd64.deb`.
        .filter(|name| !name.contains(|letter: char| letter.is_ascii_uppercase()))
        .collect()
}

/// The metrics that only a node of a cluster has.
fn metrics_of_a_cluster() -> String {
    let member = MemberSample {
        state: STATES[0],
        link: Some(LinkSample {
            round_trip: Some(Duration::ZERO),
            ..LinkSample::default()
        }),
        ..MemberSample::default()
    };
    let sample = ClusterSample {
        members: vec![member],
        rules: Some(RulesSample {
            change: 1,
            sha256: String::new(),
        }),
        keys: vec![("auth.jwt", String::new())],
        ..ClusterSample::default()
    };
    let mut registry = Registry::with_prefix("tidewire");
    let numbers = ClusterNumbers(Box::new(move || sample.clone()));
    registry.register_collector(Box::new(numbers));
    let mut text = String::new();
    encode(&mut text, &registry).expect("text");
    text
}

#[test]
fn every_metric_that_the_documents_name_exists() {
    let server = Server::start(&[]);
    let (_, text) = server.get("/metrics").expect("metrics");
    let of_a_cluster = metrics_of_a_cluster();
    let mut known = sample_names(&text);
    known.append(&mut sample_names(&of_a_cluster));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = vec![root.join("README.md"), root.join("SECURITY.md")];
    for folder in ["docs", "docs/grafana"] {
        let entries = fs::read_dir(root.join(folder)).expect("a folder");
        files.extend(entries.map(|entry| entry.expect("an entry").path()));
    }
    let mut named = 0;
    for file in files.iter().filter(|file| file.is_file()) {
        let text = fs::read_to_string(file).expect("text");
        for name in named_metrics(&text) {
            named += 1;
            let is_known = match name.strip_suffix('_') {
                Some(_) => known.iter().any(|known| known.starts_with(name.as_str())),
                // The samples of a histogram have longer names.
                None => {
                    known.contains(name.as_str())
                        || known.contains(format!("{name}_count").as_str())
                }
            };
            assert!(is_known, "{}: there is no metric {name}", file.display());
        }
    }
    assert!(named > 100, "only {named} names were found");
}

#[test]
fn text_of_peers_is_quoted_once_in_json_lines() {
    let server = Server::start(&[]);
    let refused = get(
        &server,
        "/metrics",
        "host: localhost\r\norigin: http://a\"b.example\r\n",
    );
    assert_eq!(status_of(&refused), 403);
    let line = server.expect_log("page refused");
    let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(line["origin"], "http://a\"b.example");
    let refused = get(&server, "/metrics", "host: bob.example\r\n");
    assert_eq!(status_of(&refused), 403);
    let line = server.expect_log("host name refused");
    let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(line["host"], "bob.example");
}

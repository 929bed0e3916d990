//! The program against its own null server, and against null servers with planted faults, which it must find.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

use tidewire_bench::result::Results;

const PROGRAM: &str = env!("CARGO_BIN_EXE_tidewire-bench");

fn bench(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8(both).unwrap()
}

#[track_caller]
fn check(arguments: &[&str], code: i32, expected: &[&str]) {
    let output = bench(arguments);
    let text = text(&output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    for part in expected {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

/// A null server that ends with the test.
struct NullServer {
    child: Child,
    url: String,
}

impl NullServer {
    fn start(fault: &[&str]) -> Self {
        let mut child = Command::new(PROGRAM)
            .arg("null")
            .args(fault)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let start = line.find("ws://").expect("a first line with the address");
        let url = line[start..].split(',').next().unwrap().to_owned();
        Self { child, url }
    }

    fn rate(&self) -> Output {
        let size = ["--subscribers", "20", "--deliveries", "10000"];
        let time = ["--seconds", "1", "--json", "/dev/stdout"];
        bench(&[&["rate", "--url", &self.url][..], &size, &time].concat())
    }

    fn grid(&self, more: &[&str]) -> Output {
        let size = ["--subscribers", "20", "--publishers", "5", "--rounds", "20"];
        bench(&[&["grid", "--url", &self.url][..], &size, more].concat())
    }
}

impl Drop for NullServer {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn a_grid_is_delivered_and_measured() {
    let grid = [
        "--subscribers",
        "70",
        "--publishers",
        "66",
        "--rounds",
        "12",
    ];
    let expected = [
        "grid 70/66, null (deepstream): complete",
        "rounds: 12",
        "deliveries: 54648",
        "deliveries_per_server_cpu_second: ",
        "connection_bytes_anonymous: ",
        "generator: ",
    ];
    check(&[&["grid", "--null"][..], &grid].concat(), 0, &expected);
}

#[test]
fn a_grid_of_patches_is_delivered_and_measured() {
    let grid = ["--subscribers", "30", "--publishers", "20", "--rounds", "5"];
    check(
        &[&["grid", "--null", "--records"][..], &grid].concat(),
        0,
        &["grid 30/20 records, null with rooms", "deliveries: 2900"],
    );
}

#[test]
fn results_are_written_as_data() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("results.json");
    let file = file.to_str().unwrap();
    let arguments = ["connect", "--null", "--connections", "100", "--width", "10"];
    check(&[&arguments[..], &["--json", file]].concat(), 0, &[]);
    let results: Results = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!(results.schema, 1);
    let [cell] = &results.cells[..] else {
        panic!("one cell, not {results:?}");
    };
    assert_eq!((&*cell.mode, &*cell.server), ("connect", "null"));
    assert_eq!(cell.figures["connections"], 100.0);
}

#[test]
fn idle_connections_are_weighed_and_reached() {
    check(
        &[
            "idle",
            "--null",
            "--connections",
            "300",
            "--seconds",
            "0",
            "--churn",
            "600",
        ],
        0,
        &[
            "idle 300 connections, null with rooms",
            "connection_bytes: ",
            "connection_bytes_after_churn: ",
            "publication_ms: ",
        ],
    );
}

#[test]
fn a_lost_delivery_is_found() {
    // 23 rounds have at least 23 turns of 20 sends, so one is surely lost; a lost send never arrives.
    let server = NullServer::start(&["--lose-one-in", "450"]);
    let output = server.grid(&["--patience", "1"]);
    assert!(!output.status.success());
    let text = text(&output);
    assert!(text.contains("deliveries of round"), "{text}");
    assert!(text.contains("are missing, first at connection"), "{text}");
}

#[test]
fn a_doubled_delivery_is_found() {
    let server = NullServer::start(&["--double-one-in", "450"]);
    let output = server.grid(&[]);
    assert!(!output.status.success());
    let text = text(&output);
    assert!(text.contains("twice") || text.contains("again"), "{text}");
}

#[test]
fn messages_that_arrive_between_two_slices_of_sends_are_sent_too() {
    // More recipients than one slice has sends, so that publications arrive while the turn before is being sent.
    let grid = [
        "--subscribers",
        "2500",
        "--publishers",
        "100",
        "--rounds",
        "3",
    ];
    let patience = ["--patience", "10"];
    check(
        &[&["grid", "--null"][..], &grid, &patience].concat(),
        0,
        &["2500/100, null"],
    );
}

#[test]
fn names_keep_what_is_published_apart() {
    let size = ["--connections", "60", "--names", "9", "--each", "3"];
    let work = ["--publishers", "30", "--rounds", "5"];
    let rooms = [&["rooms", "--null"][..], &size, &work].concat();
    check(
        &rooms,
        0,
        &["60 on 3 of 9 names, null with rooms", "rounds: 5"],
    );
    // The server that ignores names gives every connection all publications.
    let server = NullServer::start(&[]);
    let rooms = [&["rooms", "--url", &server.url][..], &size, &work].concat();
    check(&rooms, 1, &["which no connection published"]);
}

#[test]
fn patches_arrive_in_order_and_acks_once() {
    let size = ["--records", "5", "--subscribers", "4", "--patches", "500"];
    let acks = ["--writers", "2", "--pending", "3", "--acks", "100"];
    let records = [&["records", "--null"][..], &size, &acks].concat();
    let expected = [
        "patches of 5 x 4, null with rooms",
        "deliveries: 2000\n",
        "acks of 2 x 3, null with rooms",
        "acks: 100\n",
    ];
    check(&records, 0, &expected);
    for fault in ["--lose-one-in", "--double-one-in"] {
        let server = NullServer::start(&["--rooms", fault, "7"]);
        let records = ["records", "--url", &server.url, "--patience", "1"];
        let output = bench(&[&records[..], &size].concat());
        // A loss shows in the next patch, or, for the last one, because nothing more arrives.
        let text = text(&output);
        assert!(!output.status.success(), "{text}");
        assert!(
            text.contains("not patch") || text.contains("waiting for patches"),
            "{text}"
        );
    }
}

#[test]
fn a_protocol_without_records_or_rpc_is_refused() {
    let server = NullServer::start(&[]);
    for mode in ["records", "rpc"] {
        let arguments = [mode, "--url", &server.url, "--protocol", "plain"];
        check(&arguments, 2, &["plain has no "]);
    }
}

#[test]
fn a_stream_arrives_with_its_latencies() {
    let server = NullServer::start(&[]);
    let output = server.rate();
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("deliveries: 10000\n"), "{text}");
    assert!(text.contains("latency_ms_p99_9"), "{text}");
    let pairs = ["pairs", "--null", "--pairs", "20", "--seconds", "1"];
    let expected = ["20 pairs at 25 ms, null", "deliveries: 800\n"];
    check(&pairs, 0, &expected);
    for neighbour in ["crowd", "flood", "stuck-reader"] {
        let options = ["--neighbour", neighbour, "--crowd", "100"];
        check(
            &[&pairs[..], &options].concat(),
            0,
            &["neighbour_messages: "],
        );
    }
}

#[test]
fn a_stream_finds_lost_and_doubled_deliveries() {
    let server = NullServer::start(&["--lose-one-in", "7777"]);
    let lost = text(&server.rate());
    assert!(lost.contains("were lost, first of message"), "{lost}");
    let server = NullServer::start(&["--double-one-in", "7777"]);
    let doubled = text(&server.rate());
    assert!(doubled.contains("twice"), "{doubled}");
}

#[test]
fn a_standstill_delays_every_message_that_was_due_in_it() {
    // 500 messages in a second and a half, with one standstill of 300 ms: about a fifth of them should have been sent
    // then, though the generator's own sends take no longer than before.
    let server = NullServer::start(&["--stall-one-in", "400", "--stall-ms", "300"]);
    let output = text(&server.rate());
    let figure = |name: &str| -> f64 {
        let start = output.find(&format!("  {name}: ")).expect(name) + name.len() + 4;
        let line = output[start..].lines().next().unwrap();
        line.parse().unwrap()
    };
    assert!(figure("latency_ms_max") > 250.0, "{output}");
    assert!(figure("latency_ms_p90") > 50.0, "{output}");
}

#[test]
fn an_own_message_is_found_where_it_should_not_come() {
    let server = NullServer::start(&["--echo"]);
    assert!(server.grid(&["--echo"]).status.success());
    let output = server.grid(&[]);
    assert!(!output.status.success());
    assert!(
        text(&output).contains("its own message"),
        "{}",
        text(&output)
    );
}

#[test]
fn a_server_that_is_gone_is_a_failure() {
    let url = NullServer::start(&[]).url.clone();
    check(&["grid", "--url", &url], 1, &["connection 0: "]);
}

#[test]
fn arguments_that_make_no_grid_are_refused() {
    check(
        &["grid", "--null", "--subscribers", "5", "--publishers", "6"],
        2,
        &["must be at most --subscribers"],
    );
    check(
        &["grid", "--null", "--rounds", "0"],
        2,
        &["--rounds must be at least 1"],
    );
    check(&["grid", "--url", "http://x"], 2, &["must look like ws://"]);
}

#[test]
fn a_missing_server_program_is_a_failure() {
    check(
        &["smoke", "--server-bin", "/nonexistent/tidewire"],
        1,
        &["/nonexistent/tidewire"],
    );
}

//! JSON connections with real sockets: the server encodes each message once for all JSON connections and once for all protobuf
//! connections, whatever format the publisher uses.

mod client;
mod shard_support;

use std::io::Write;
use std::sync::atomic::Ordering;

use client::{Client, emit, subscribe};
use shard_support::{Node, Options};
use tidewire_core::message::EventBulk;
use tidewire_wire::frame::websocket::{CloseCode, Opcode};

/// The index of events in the counters by topic.
const EVENT: usize = 2;

const CHALLENGE: &str = r#"{"topic":2,"action":5}"#;
const LOGIN: &str = r#"{"topic":3,"action":2,"parsedData":{}}"#;
const PING: &str = r#"{"topic":2,"action":2}"#;
const PONG: &str = r#"{"topic":2,"action":3}"#;
const UNKNOWN_TOPIC: &str = r#"{"topic":1,"action":1}"#;

fn logged_in(mut client: Client, challenge: &str) -> Client {
    client.send_text(challenge);
    client.send_text(LOGIN);
    client.expect_text(r#"{"topic":2,"action":4}"#);
    client.expect_text(r#"{"topic":3,"action":3}"#);
    client
}

fn subscribed(mut client: Client) -> Client {
    client.send_text(r#"{"topic":4,"action":3,"names":["ticks"],"correlationId":"7"}"#);
    client.expect_text(r#"{"topic":4,"action":3,"correlationId":"7","isAck":true}"#);
    client
}

fn expect_tick(client: &mut Client, data: &str) {
    client.expect_text(&format!(
        r#"{{"topic":4,"action":2,"parsedData":{data},"name":"ticks"}}"#
    ));
}

/// How many event messages the shard has written into its turn logs.
fn written(node: &Node) -> u64 {
    node.stats(0).messages_out[EVENT].load(Ordering::Relaxed)
}

#[test]
fn a_message_is_written_once_for_all_that_speak_json() {
    let node = Node::start(Options::default());
    let mut binary: Vec<Client> = (0..20).map(|_| node.log_in(0)).collect();
    for client in &mut binary {
        client.send(&subscribe("ticks"));
        client.expect_ack(EventBulk::Subscribe);
    }
    let mut publisher = logged_in(node.connect_json(0), CHALLENGE);
    let before = written(&node);
    publisher.send_text(r#"{"topic":4,"action":2,"name":"ticks","parsedData":[1]}"#);
    for client in &mut binary {
        client.expect(&emit("ticks", "[1]"));
    }
    assert_eq!(written(&node) - before, 1, "no client reads JSON");

    let mut texts: Vec<Client> = (0..20)
        .map(|_| subscribed(logged_in(node.connect_json(0), CHALLENGE)))
        .collect();
    let before = written(&node);
    publisher.send_text(r#"{"topic":4,"action":2,"name":"ticks","data":"[ 2]"}"#);
    for client in &mut texts {
        expect_tick(client, "[ 2]");
    }
    for client in &mut binary {
        client.expect(&emit("ticks", "[ 2]"));
    }
    assert_eq!(written(&node) - before, 2, "once for each format");
}

#[test]
fn a_text_is_compressed_once_for_all() {
    let node = Node::start(Options::default());
    let new = r#"{"topic":2,"action":5,"sdkVersion":"7.1.0"}"#;
    let mut readers: Vec<Client> = [CHALLENGE, CHALLENGE, new]
        .iter()
        .map(|challenge| subscribed(logged_in(node.connect_deflated_json(0), challenge)))
        .collect();
    let mut plain = subscribed(logged_in(node.connect_json(0), CHALLENGE));
    let mut binary = node.connect_deflated(0);
    binary.log_in();
    binary.send(&subscribe("ticks"));
    binary.expect_ack(EventBulk::Subscribe);
    let data = format!("[{}0]", "1234567,".repeat(500));
    let before = node.stats(0).deflated_bytes.load(Ordering::Relaxed);
    let mut publisher = node.log_in(0);
    publisher.send(&emit("ticks", &data));
    for reader in readers.iter_mut().chain([&mut plain]) {
        expect_tick(reader, &data);
    }
    binary.expect(&emit("ticks", &data));
    let deflated = node.stats(0).deflated_bytes.load(Ordering::Relaxed) - before;
    let bytes = 2 * data.len() as u64;
    assert!(
        (bytes..bytes + 100).contains(&deflated),
        "{deflated} bytes were compressed for one message of {}",
        data.len()
    );
}

#[test]
fn a_text_in_pieces_is_the_same_text() {
    let node = Node::start(Options::default());
    let mut client = logged_in(node.connect_json(0), CHALLENGE);
    let mut frame = Vec::new();
    tidewire_wire::frame::websocket::encode_masked(
        Opcode::Text,
        PING.as_bytes(),
        [9, 8, 7, 6],
        &mut frame,
    );
    for byte in frame {
        client.stream.write_all(&[byte]).expect("sent");
    }
    client.expect_text(PONG);
}

#[test]
fn text_that_is_not_of_the_protocol_ends_the_connection() {
    let node = Node::start(Options::default());
    let errors = || node.stats(0).protocol_errors.load(Ordering::Relaxed);
    for (opcode, payload, code) in [
        (Opcode::Binary, PING, CloseCode::UNSUPPORTED),
        (Opcode::Text, "{", CloseCode::INVALID_PAYLOAD),
        (Opcode::Text, "", CloseCode::INVALID_PAYLOAD),
    ] {
        for is_logged_in in [false, true] {
            let before = errors();
            let mut client = node.connect_json(0);
            if is_logged_in {
                client = logged_in(client, CHALLENGE);
            }
            // The server answers the ping before the invalid frame, but not the ping after it.
            client.send_text(PING);
            client.send_frame(opcode, payload.as_bytes());
            client.send_text(PING);
            client.expect_text(PONG);
            assert_eq!(client.expect_close(), Some(code), "{payload:?}");
            assert_eq!(errors() - before, 1, "{payload:?}");
        }
    }
}

#[test]
fn invalid_messages_are_answered_and_counted() {
    let node = Node::start(Options::default());
    let mut client = logged_in(node.connect_json(0), CHALLENGE);
    let texts = ["[]", "{}", r#"{"topic":4,"action":2,"name":7}"#];
    for text in texts {
        client.send_text(text);
        client.expect_text(UNKNOWN_TOPIC);
    }
    // An object without a topic counts as a message with an unknown topic.
    let undecodable = node.stats(0).undecodable.load(Ordering::Relaxed);
    assert_eq!(undecodable, texts.len() as u64 - 1);
    client.send_text(PING);
    client.expect_text(PONG);
}

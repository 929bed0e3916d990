//! Writes the seeds of the target `decode` into a folder: every vector of `spec/vectors`, and a message for each
//! action of each direction that no vector has, in protobuf and in JSON. Usage: `seed FOLDER`.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::{env, fs};

use serde::Deserialize;
use tidewire_fuzz::harness::messages::Pool;
use tidewire_fuzz::harness::{Input, Reached, check};
use tidewire_fuzz::hex::from_hex;
use tidewire_wire::frame::websocket::Role;
use tidewire_wire::message::{Event, Message};
use tidewire_wire::protocol::deepstream::fields::{Fields, WireTopic};
use tidewire_wire::protocol::deepstream::json::DeepstreamJson;
use tidewire_wire::protocol::deepstream::{Deepstream, Dialect};

const DEEPSTREAM: &str = include_str!("../../../spec/vectors/deepstream/messages.json");
const ADDITIONS: &str = include_str!("../../../spec/vectors/deepstream/additions.json");
const WEBSOCKET: &str = include_str!("../../../spec/vectors/websocket/frames.json");

/// One entry of either vectors file.
#[derive(Deserialize)]
struct Vector {
    hex: String,
    /// The sender of a deepstream message.
    #[serde(default)]
    direction: String,
    /// The receiver of a WebSocket stream.
    #[serde(default)]
    role: String,
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = env::args().nth(1).ok_or("usage: seed FOLDER")?;
    fs::create_dir_all(&folder)?;
    let mut seeds = BTreeMap::new();
    for (index, vector) in serde_json::from_str::<Vec<Vector>>(DEEPSTREAM)?
        .iter()
        .enumerate()
    {
        let role = if vector.direction == "client->server" {
            Role::Server
        } else {
            Role::Client
        };
        seeds.insert(
            format!("vector-{index:03}"),
            Input::seed(role, &from_hex(&vector.hex)),
        );
    }
    // Use either side for both, so that no addition counts as a message of deepstream's own.
    for (index, vector) in serde_json::from_str::<Vec<Vector>>(ADDITIONS)?
        .iter()
        .enumerate()
    {
        for role in [Role::Server, Role::Client] {
            seeds.insert(
                format!("addition-{index:03}-{role:?}"),
                Input::seed(role, &from_hex(&vector.hex)),
            );
        }
    }
    for (index, vector) in serde_json::from_str::<Vec<Vector>>(WEBSOCKET)?
        .iter()
        .enumerate()
    {
        let mut seed = vec![u8::from(vector.role == "client"), 255];
        seed.extend(from_hex(&vector.hex));
        seeds.insert(format!("stream-{index:03}"), seed);
    }
    for (index, payload) in deflated_payloads().iter().enumerate() {
        for role in [Role::Server, Role::Client] {
            seeds.insert(
                format!("deflated-{index:03}-{role:?}"),
                Input::deflated_seed(role, payload),
            );
        }
    }
    let mut reached: Reached = seeds.values().flat_map(|seed| check(seed)).collect();
    for seed in message_seeds() {
        for (reader, topic, action) in check(&seed) {
            if reached.insert((reader, topic, action)) {
                seeds.insert(
                    format!("message-{reader}-{topic}-{action:03}"),
                    seed.clone(),
                );
            }
        }
    }
    for seed in text_seeds() {
        for (reader, topic, action) in check(&seed) {
            if reached.insert((reader, topic, action)) {
                let reader = reader.replace(' ', "-");
                seeds.insert(format!("text-{reader}-{topic}-{action:03}"), seed.clone());
            }
        }
    }
    for (index, text) in ODD_TEXTS.iter().enumerate() {
        seeds.insert(
            format!("text-odd-{index}"),
            Input::text_seed(Role::Server, text),
        );
    }
    for (name, seed) in &seeds {
        fs::write(Path::new(&folder).join(name), seed)?;
    }
    println!("{} seeds in {folder}", seeds.len());
    Ok(())
}

/// Every kind of message, read by either side.
fn message_seeds() -> Vec<Vec<u8>> {
    let pool = pool();
    let mut seeds = vec![Input::seed(Role::Client, &cache_retrieval_timeout())];
    for message in pool.messages() {
        for (role, dialect) in [
            (Role::Server, Dialect::Server),
            (Role::Client, Dialect::ClientWithPatchMulti),
        ] {
            let mut payload = Vec::new();
            Deepstream::encode(dialect, &message, &mut payload);
            seeds.push(Input::seed(role, &payload));
        }
    }
    seeds
}

/// Every kind of message as JSON text.
fn text_seeds() -> Vec<Vec<u8>> {
    let pool = pool();
    let timeout = r#"{"topic":5,"action":100,"isError":true,"name":"n","originalAction":3}"#;
    let mut seeds = vec![Input::text_seed(Role::Client, timeout)];
    for message in pool.messages() {
        for (role, dialect) in [
            (Role::Server, Dialect::Server),
            (Role::Client, Dialect::ClientWithPatchMulti),
        ] {
            let mut text = Vec::new();
            DeepstreamJson::encode(dialect, &message, &mut text);
            seeds.push(Input::text_seed(role, &String::from_utf8_lossy(&text)));
        }
    }
    seeds
}

/// Texts that no encoder of ours writes.
const ODD_TEXTS: [&str; 9] = [
    "",
    "[]",
    r#"{"topic":4,"action":2,"name":"n"}x"#,
    r#"{"topic":4,"action":2,"name":"a\"\\\u00e9\ud83d\ude00\n","data":"[\"\\u0065\"]"}"#,
    r#"{"topic":5,"t\u006fpic":4,"action":2,"action":2.0,"name":"m","name":"n","isAck":false}"#,
    r#"{"topic":4,"action":2,"name":"n","data":"{","parsedData":{"a":[1,{"b":"\ud800"}]}}"#,
    r#" { "topic" : 4 , "action" : 2 , "name" : null , "other" : [ { } ] , "parsedData" : null } "#,
    r#"{"topic":5,"action":18,"name":"\ud800","version":-1e0,"parsedData":{}}"#,
    r#"{"topic":4,"action":3,"names":["\u0061","b",["c"]],"correlationId":7}"#,
];

/// Payloads that compress well: messages, and data close to the limit of 70,000 bytes.
fn deflated_payloads() -> Vec<Vec<u8>> {
    let mut payloads = vec![vec![0; 70_000], copies(69_990), copies(70_000)];
    let text = "the same again and again, ".repeat(8);
    let messages = [
        Message::Event(Event::publication("n", Some(&text))),
        Message::Event(Event::Subscribe {
            names: vec!["name/of/one"; 20],
            correlation: Some("7"),
            positions: Vec::new(),
        }),
    ];
    for message in messages {
        let mut payload = Vec::new();
        Deepstream::encode(Dialect::Server, &message, &mut payload);
        payloads.push(payload);
    }
    payloads
}

/// Bytes that repeat earlier bytes in pieces of many lengths, so that a flipped bit of the compressed form makes a piece longer.
fn copies(bytes: usize) -> Vec<u8> {
    let mut state = 1u32;
    let mut below = |bound: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % bound
    };
    let mut payload: Vec<u8> = (0..512).map(|_| below(256) as u8).collect();
    while payload.len() < bytes {
        let length = 19 + below(140);
        let start = payload.len() - 300 + below(100);
        payload.extend_from_within(start..start + length);
        payload.push(below(256) as u8);
    }
    payload.truncate(bytes);
    payload
}

/// The only answer that Tidewire decodes but never encodes.
fn cache_retrieval_timeout() -> Vec<u8> {
    let fields = Fields {
        name: Some("n"),
        original_action: Some(3),
        is_error: Some(true),
        ..Fields::new(100)
    };
    let mut payload = Vec::new();
    fields.encode_payload(
        WireTopic::Record,
        fields.measure(WireTopic::Record),
        &mut payload,
    );
    payload
}

/// A pool of short texts, so that mutations change the structure more often than the texts.
fn pool() -> Pool {
    Pool {
        name: "n".into(),
        subscription: "s/1".into(),
        data: Some("{}".into()),
        json: "[1]".into(),
        correlation: Some("7".into()),
        names: vec!["a".into(), "b".into()],
        versions: vec![("a".into(), 0), ("b".into(), -1)],
        version: 130,
        write_ack: true,
    }
}

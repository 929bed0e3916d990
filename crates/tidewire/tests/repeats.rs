//! Acknowledged writes of clients that lose their connection: if a client repeats a write with its key, the server makes it once.

mod client;
mod process;

use client::Client;
use process::Server;
use tidewire_core::message::{Change, Message, Record, RecordBulk, Write, WriteKey};

const ROUNDS: i32 = 300;

/// Sets one path, with any next version.
fn write<'a>(key: &'a str, data: &'a str) -> Message<'a> {
    let write = Write {
        name: "counter",
        version: -1,
        correlation: Some("9"),
        write_ack: true,
        key: Some(WriteKey::new(key)),
    };
    let change = Change::CreateAndPatch {
        path: Some("last"),
        data: Some(data),
    };
    Message::Record(Record::Write(write, change))
}

fn version(client: &mut Client) -> i32 {
    client.send(&Message::Record(Record::Bulk {
        action: RecordBulk::SubscribeAndRead,
        names: vec!["counter"],
        correlation: Some("1"),
    }));
    let mut version = None;
    client.receive_until(|message| {
        if let Message::Record(Record::ReadResponse { version: of, .. }) = message {
            version = Some(*of);
        }
        version.is_some()
    });
    version.expect("it was read")
}

#[test]
fn a_write_that_was_cut_off_is_made_once_however_often_it_is_repeated() {
    let server = Server::start(&[]);
    for round in 0..ROUNDS {
        let (key, data) = (format!("key-{round}"), round.to_string());
        // The connection ends before the answer. The write may arrive before the repetition, after it, or never.
        for _ in 0..round % 3 {
            server.log_in().send(&write(&key, &data));
        }
        let mut client = server.log_in();
        client.send(&write(&key, &data));
        client.expect(&client::acknowledged("counter"));
    }
    let mut client = server.log_in();
    assert_eq!(version(&mut client), ROUNDS);
    // A shard publishes its metrics at the end of a turn.
    client::wait_until(|| server.metric("tidewire_write_keys") == Some(ROUNDS as u64));
}

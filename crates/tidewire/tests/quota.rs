//! Quotas against the real program: refusals at the limit, their report, and writes after deletes have freed space.

mod client;
mod process;

use client::{Client, acknowledged, wait_until, write};
use process::Server;
use rustix::process::Signal;
use tidewire_core::message::{Message, Reason, Record};

/// Writes a record, and returns whether the server accepted it.
fn put(client: &mut Client, name: &str, version: i32, bytes: usize) -> bool {
    let data = format!("[\"{}\"]", "x".repeat(bytes - 4));
    client.send(&write(name, version, &data));
    let mut is_taken = None;
    client.receive_until(|message| {
        is_taken = match message {
            Message::Record(Record::Error(refusal)) if refusal.reason == Reason::UpdateFailed => {
                Some(false)
            }
            message if *message == acknowledged(name) => Some(true),
            _ => None,
        };
        is_taken.is_some()
    });
    is_taken.expect("an answer")
}

fn delete(client: &mut Client, name: &str) {
    client.send(&Message::Record(Record::Delete { name }));
    let done = Message::Record(Record::DeleteSuccess { name });
    client.receive_until(|message| *message == done);
}

fn is_warned(server: &Server) -> bool {
    let (status, body) = server.get("/ready").expect("an answer");
    assert_eq!(status, 200, "a full store keeps no connection out: {body}");
    body.contains("store_full")
}

#[test]
fn a_store_at_its_limit_refuses_what_grows_until_records_are_deleted() {
    let mut server = Server::start(&["--limits-store-bytes-max", "1MiB"]);
    let mut client = server.log_in();
    assert!(!is_warned(&server));
    let mut names = Vec::new();
    loop {
        let name = format!("r{}", names.len());
        if !put(&mut client, &name, 1, 50_000) {
            break;
        }
        names.push(name);
        assert!(names.len() < 100, "nothing is refused");
    }
    assert!((10..22).contains(&names.len()), "{} records", names.len());
    let used = server
        .metric("tidewire_store_used_bytes")
        .expect("a number");
    assert!((500_000..1_200_000).contains(&used), "{used}");
    let refused = r#"tidewire_refused_messages_total{cause="store_full"}"#;
    wait_until(|| server.metric(refused).is_some_and(|count| count > 0));

    // The server accepts smaller records until the quota is full. Then it accepts only writes that make no record larger.
    let mut number = 0;
    while put(&mut client, &format!("small{number}"), 1, 4_000) {
        number += 1;
        assert!(number < 500, "nothing is refused");
    }
    // The last bytes may have no room for a record of that size.
    let mut number = 0;
    wait_until(|| {
        number += 1;
        // A few of these take the next page of the database. Each waits for the disk, and tiny ones would need a hundred.
        if !put(&mut client, &format!("next{number}"), 1, 1_000) {
            put(&mut client, &format!("tiny{number}"), 1, 10);
        }
        is_warned(&server)
    });
    assert!(put(&mut client, "r0", 2, 50_000));
    assert!(put(&mut client, "r0", 3, 1_000));
    wait_until(|| !is_warned(&server));

    // The limit also applies after a restart.
    server.signal(Signal::TERM);
    server.wait();
    let empty = tempfile::tempdir().expect("a temporary folder");
    let folder = std::mem::replace(&mut server.folder, empty);
    let server = Server::start_in(folder, &["--limits-store-bytes-max", "1MiB"]);
    let mut client = server.log_in();
    assert!(!put(&mut client, "new", 1, 60_000));
    for name in &names[1..5] {
        delete(&mut client, name);
    }
    wait_until(|| put(&mut client, "new", -1, 60_000));
}

#[test]
fn a_user_at_its_limit_is_refused_and_others_are_not() {
    let limit = ["--limits-user-store-bytes-max", "100KiB"];
    let server = Server::start(&limit);
    let mut ann = server.open();
    ann.log_in_with(r#"{"username":"ann"}"#);
    let mut count = 0;
    while put(&mut ann, &format!("ann/{count}"), 1, 20_000) {
        count += 1;
        assert!(count < 100, "nothing is refused");
    }
    assert!((5..=7).contains(&count), "{count}");
    assert_eq!(server.metric("tidewire_store_full_users"), Some(1));
    let mut bob = server.open();
    bob.log_in_with(r#"{"username":"bob"}"#);
    assert!(put(&mut bob, "bob/1", 1, 20_000));
    // Sessions without a user name have no quota.
    let mut nameless = server.log_in();
    for number in 0..10 {
        assert!(put(&mut nameless, &format!("open/{number}"), 1, 20_000));
    }
    // The server may also have accepted a write that was in flight when the user reached the limit.
    for number in 4..count {
        delete(&mut ann, &format!("ann/{number}"));
    }
    wait_until(|| put(&mut ann, "ann/new", -1, 10_000));
}

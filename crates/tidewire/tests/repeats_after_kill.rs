//! Acknowledged writes of clients whose server is killed: each client repeats its write at the next server, which makes no write twice and
//! has every write that was acknowledged.

mod client;
mod process;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use client::{Client, wait_until};
use process::Server;
use rustix::process::Signal;
use tidewire_core::message::{Change, Message, Reason, Record, RecordBulk, Tag, Write, WriteKey};

const RECORD: &str = "counter";
/// How often the server is killed.
const KILLS: usize = 10;

/// A client with its writes over all servers. Each write sets a member of its own, so the version of the record counts the members as long
/// as no write is made twice.
struct Writer {
    number: usize,
    next: usize,
    /// The write without an answer, and the state that the writer had seen when it sent the write first.
    pending: Option<(String, Tag)>,
    acknowledged: Vec<String>,
    repeated_count: usize,
    unknown_count: usize,
}

/// Sends a write. Returns whether it was acknowledged, or was refused as unknown; `None` if the server was killed before the answer.
fn send(client: &mut Client, key: &str, seen: Option<Tag>) -> Option<bool> {
    let write = Write {
        name: RECORD,
        version: -1,
        correlation: Some(key),
        write_ack: true,
        key: Some(WriteKey { text: key, seen }),
    };
    let change = Change::CreateAndPatch {
        path: Some(key),
        data: Some("1"),
    };
    client
        .try_send(&Message::Record(Record::Write(write, change)))
        .then_some(())?;
    let mut is_made = None;
    client.try_receive_until(|message| {
        is_made = match message {
            Message::Record(Record::WriteAck { correlation, .. }) if *correlation == Some(key) => {
                Some(true)
            }
            Message::Record(Record::Error(refusal)) => {
                assert_eq!(refusal.reason, Reason::WriteUnknown, "{refusal:?}");
                assert!(seen.is_some(), "a first attempt: {refusal:?}");
                Some(false)
            }
            _ => None,
        };
        is_made.is_some()
    });
    is_made
}

/// The state and the value of the record; `None` if the server was killed before the answer.
fn fetch(client: &mut Client) -> Option<(Tag, String)> {
    let fetch = Record::Fetch {
        name: RECORD,
        correlation: "fetch",
    };
    client.try_send(&Message::Record(fetch)).then_some(())?;
    let mut found = None;
    client.try_receive_until(|message| {
        if let Message::Record(Record::Fetched { state, .. }) = message {
            found = state.map(|(tag, data)| (tag, data.to_owned()));
        }
        found.is_some()
    });
    found
}

impl Writer {
    fn new(number: usize) -> Self {
        Self {
            number,
            next: 0,
            pending: None,
            acknowledged: Vec::new(),
            repeated_count: 0,
            unknown_count: 0,
        }
    }

    /// Repeats the write that had no answer. Returns whether it has one now.
    fn repeat(&mut self, client: &mut Client) -> bool {
        let Some((key, seen)) = self.pending.clone() else {
            return true;
        };
        self.repeated_count += 1;
        let answer = send(client, &key, Some(seen));
        self.take(key, answer)
    }

    /// Writes until the server is killed.
    fn write(&mut self, mut client: Client, made_count: &AtomicUsize) {
        if !self.repeat(&mut client) {
            return;
        }
        while let Some((seen, _)) = fetch(&mut client) {
            let key = format!("w{}_{}", self.number, self.next);
            self.next += 1;
            self.pending = Some((key.clone(), seen));
            let answer = send(&mut client, &key, None);
            if !self.take(key, answer) {
                return;
            }
            made_count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn take(&mut self, key: String, answer: Option<bool>) -> bool {
        match answer {
            Some(true) => self.acknowledged.push(key),
            Some(false) => self.unknown_count += 1,
            None => return false,
        }
        self.pending = None;
        true
    }
}

fn create(server: &Server) {
    let mut client = server.log_in();
    client.send(&Message::Record(Record::Bulk {
        action: RecordBulk::SubscribeCreateAndRead,
        names: vec![RECORD],
        correlation: Some("1"),
    }));
    client.receive_until(|message| matches!(message, Message::Record(Record::ReadResponse { .. })));
}

/// Lets clients write the record at servers that are killed, and checks the record at the end. Returns how many writes were repeated, and
/// how many of these were refused as unknown.
fn check(writers: usize) -> (usize, usize) {
    let mut server = Server::start(&[]);
    create(&server);
    let mut writers: Vec<Writer> = (0..writers).map(Writer::new).collect();
    for kill in 1..=KILLS {
        let made_count = AtomicUsize::new(0);
        let made_max = writers.len() * 2 + 13 * kill;
        let clients: Vec<Client> = writers.iter().map(|_| server.log_in()).collect();
        std::thread::scope(|scope| {
            for (writer, client) in std::iter::zip(&mut writers, clients) {
                scope.spawn(|| writer.write(client, &made_count));
            }
            wait_until(|| made_count.load(Ordering::Relaxed) >= made_max);
            server.signal(Signal::KILL);
        });
        server.wait();
        let empty = tempfile::tempdir().expect("a temporary folder");
        let folder = std::mem::replace(&mut server.folder, empty);
        server = Server::start_in(folder, &[]);
    }
    for writer in &mut writers {
        assert!(writer.repeat(&mut server.log_in()), "the server runs");
    }
    let (tag, data) = fetch(&mut server.log_in()).expect("the server runs");
    let value: serde_json::Value = serde_json::from_str(&data).expect("JSON");
    let members: BTreeSet<&String> = value.as_object().expect("an object").keys().collect();
    assert_eq!(
        tag.version as usize,
        members.len(),
        "a write was made twice"
    );
    for writer in &writers {
        for key in &writer.acknowledged {
            assert!(members.contains(key), "{key} was acknowledged and is lost");
        }
    }
    let repeated = writers.iter().map(|writer| writer.repeated_count).sum();
    let unknown = writers.iter().map(|writer| writer.unknown_count).sum();
    (repeated, unknown)
}

#[test]
fn one_writer_learns_the_outcome_of_every_write() {
    let (_, unknown) = check(1);
    assert_eq!(unknown, 0);
}

#[test]
fn no_write_of_eight_writers_is_made_twice() {
    let (repeated, _) = check(8);
    assert!(repeated > 0);
}

/// Their writes make one commit, of which the record keeps eight keys.
#[test]
fn no_write_of_sixty_four_writers_is_made_twice() {
    let (repeated, unknown) = check(64);
    assert!(unknown < repeated, "{unknown} of {repeated} are unknown");
}

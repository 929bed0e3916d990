//! The sweep of histories in the store: events of names that the server has forgotten are removed from a real SQLite database.

mod client;
mod process;

use std::path::PathBuf;

use client::{emit, wait_until};
use process::Server;
use rusqlite::{Connection, OpenFlags};
use tidewire_core::message::{Connection as Line, Message};

const NAMES: u64 = 3_000;
const EVENTS: u64 = 3;

struct Database(PathBuf);

impl Database {
    fn of(server: &Server) -> Self {
        Self(server.folder.path().join("tidewire-data/records.sqlite"))
    }

    fn number(&self, sql: &str) -> u64 {
        let connection = Connection::open_with_flags(&self.0, OpenFlags::SQLITE_OPEN_READ_WRITE);
        let number: i64 = connection
            .expect("opened")
            .query_row(sql, [], |row| row.get(0))
            .expect("a number");
        number.cast_unsigned()
    }

    fn rows(&self) -> u64 {
        self.number("SELECT count(*) FROM records")
    }

    /// Bytes of the used pages.
    fn bytes(&self) -> u64 {
        let pages = |name: &str| self.number(&format!("SELECT {name} FROM pragma_{name}"));
        (pages("page_count") - pages("freelist_count")) * pages("page_size")
    }
}

#[test]
fn the_events_of_forgotten_names_do_not_stay_on_disk() {
    let server = Server::start(&[
        "--event-history",
        "e/* count=10 bytes=1MiB age=3s keep=store",
        "--event-history-sweep-interval",
        "500ms",
        "--limits-history-names-max",
        "30",
    ]);
    let database = Database::of(&server);
    let mut publisher = server.log_in();
    let filling = format!("\"{}\"", "x".repeat(200));
    for name in 0..NAMES {
        for _ in 0..EVENTS {
            publisher.send(&emit(&format!("e/{name}"), &filling));
        }
    }
    publisher.send(&Message::Connection(Line::Ping));
    publisher.receive_until(|message| *message == Message::Connection(Line::Pong));
    // When the pong arrives, events of other shards may still be in mailboxes, and are not pending yet.
    let is_stored = || server.metric("tidewire_history_pending_events") == Some(0);
    wait_until(|| database.rows() > NAMES && is_stored());
    let bytes = database.bytes();
    // Until the day of the name's first event has ended, one row with the next offset stays for each name.
    wait_until(|| database.rows() <= NAMES);
    let left = database.bytes();
    assert!(left < bytes / 2, "{left} of {bytes} bytes are left");
}

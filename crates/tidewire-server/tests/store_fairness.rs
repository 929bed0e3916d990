//! What a user that floods the store with large records costs the acknowledged writes of another user, in commits of the real
//! SQLite store.

mod client;
mod shard_support;

use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, Sender};

use client::{Client, DEADLINE, acknowledged, wait_until, write};
use shard_support::{Node, Options};
use tidewire_core::message::{Change, Message, Record, Write};
use tidewire_core::settings::Settings;
use tidewire_core::store::{
    Store, StoreChange, StoreError, StoreReader, StoreWrite, Term, Written,
};
use tidewire_store::folder::DataFolder;
use tidewire_store::sqlite::{SqliteOptions, SqliteStore};

/// Bytes of a batch of one shard; the node has three.
const BATCH_BYTES: usize = 64 << 10;
/// Commits until a small write is stored, at most, whatever others write. The first is under way when the write arrives. The second
/// has the batch that the write's shard sent before. The third may have begun with the batches of other shards before this shard,
/// which learns of the end of the second meanwhile, has sent its next batch. The fourth has that batch.
const COMMITS_MAX: usize = 4;

/// SQLite whose commits say what they write, and wait until the test lets them.
struct Gated {
    inner: SqliteStore,
    entered: Sender<Vec<(String, usize)>>,
    gate: Receiver<()>,
}

impl Store for Gated {
    fn reader(&mut self) -> Result<Box<dyn StoreReader>, StoreError> {
        self.inner.reader()
    }

    fn commit(&mut self, term: Term, writes: &[StoreWrite]) -> Result<Vec<Written>, StoreError> {
        let written = writes.iter().map(|write| {
            let bytes = match &write.change {
                StoreChange::Put(record) => record.data.len(),
                StoreChange::Delete => 0,
            };
            (write.name.to_string(), bytes)
        });
        // A test that has seen enough closes the gate, and lets everything through.
        let _ = self.entered.send(written.collect());
        let _ = self.gate.recv();
        self.inner.commit(term, writes)
    }

    fn tidy(&mut self) -> Result<(), StoreError> {
        self.inner.tidy()
    }

    fn close(&mut self) -> Result<(), StoreError> {
        self.inner.close()
    }
}

fn dirty(node: &Node) -> u64 {
    let shards = node.handles().iter();
    shards
        .map(|shard| shard.stats().engine.dirty_records.load(Ordering::Relaxed))
        .sum()
}

/// A write without an acknowledgement.
fn unacknowledged<'a>(name: &'a str, data: &'a str) -> Message<'a> {
    let write = Write {
        name,
        version: -1,
        correlation: None,
        write_ack: false,
    };
    Message::Record(Record::Write(
        write,
        Change::CreateAndUpdate { data: Some(data) },
    ))
}

/// Has each of several connections write `count` records of `bytes` bytes, then another user one small record, and counts the
/// commits until that is acknowledged.
fn commits_of_a_small_write(count: usize, bytes: usize) {
    let place = tempfile::tempdir().unwrap();
    let folder = DataFolder::open(place.path()).unwrap();
    let (inner, opened) = SqliteStore::open(&folder, SqliteOptions::default()).unwrap();
    let (entered, commits) = mpsc::channel();
    let (let_through, gate) = mpsc::channel();
    let store = Gated {
        inner,
        entered,
        gate,
    };
    let mut settings = Settings::default();
    settings.limits.batch_bytes_max = BATCH_BYTES;
    let node = Node::start_on(Options::default(), settings, Box::new(store), opened);
    // Dropped before the node, which waits for the end of its store: a failed check ends the test.
    let let_through = let_through;

    let mut flooders: Vec<Client> = (0..6).map(|number| node.log_in(number % 3)).collect();
    let data = format!("[\"{}\"]", "x".repeat(bytes - 4));
    for (number, flooder) in flooders.iter_mut().enumerate() {
        for record in 0..count {
            flooder.send(&unacknowledged(&format!("flood/{number}/{record}"), &data));
        }
    }
    let flood = 6 * count as u64;
    wait_until(|| dirty(&node) == flood);
    let mut bystander = node.log_in(0);
    bystander.send(&write("small", 1, "{}"));
    wait_until(|| dirty(&node) == flood + 1);

    let mut is_written = false;
    let mut number = 0;
    while !is_written {
        number += 1;
        let written = commits.recv_timeout(DEADLINE).unwrap();
        is_written = written.iter().any(|(name, _)| name == "small");
        assert!(number <= COMMITS_MAX, "not in commit {number}");
        let sum: usize = written.iter().map(|(_, bytes)| bytes).sum();
        // Each shard's batch may have one record more than fits.
        let most = 3 * (BATCH_BYTES + bytes);
        assert!(sum <= most, "{sum} bytes in commit {number}");
        let_through.send(()).unwrap();
    }
    bystander.expect(&acknowledged("small"));
    // The flood is far from over.
    assert!(dirty(&node) > flood / 2, "{} of {flood}", dirty(&node));
    drop(let_through);
    wait_until(|| dirty(&node) == 0);
}

#[test]
fn a_small_write_does_not_wait_for_the_records_of_30_kb_that_another_user_has_written() {
    commits_of_a_small_write(24, 30_000);
}

#[test]
fn a_small_write_does_not_wait_for_the_records_of_1_mb_that_another_user_has_written() {
    commits_of_a_small_write(5, 1_000_000);
}

//! Fairness between users of the real SQLite store: how many commits an acknowledged write of one user waits for while another user
//! floods the store with large records.

mod client;
mod shard_support;

use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, Sender};

use client::{Client, DEADLINE, acknowledged, wait_until, write};
use shard_support::{Node, Options};
use tidewire_core::message::{Change, Message, Record, Write};
use tidewire_core::settings::Settings;
use tidewire_core::store::{
    MemberId, Store, StoreChange, StoreError, StoreReader, StoreWrite, View, Written,
};
use tidewire_store::folder::DataFolder;
use tidewire_store::sqlite::{SqliteOptions, SqliteStore};

/// The most bytes in a batch of one shard; the node has three shards.
const BATCH_BYTES: usize = 64 << 10;
/// The most commits until a small write is stored, whatever other users write. The first commit is in progress when the write
/// arrives. The second contains the previous batch of the write's shard. When the second ends, the third may begin with batches of
/// other shards before this shard has sent its next batch. The fourth contains that batch.
const COMMITS_MAX: usize = 4;

/// An SQLite store that reports the content of each commit to the test and waits for its permission.
struct Gated {
    inner: SqliteStore,
    entered: Sender<Vec<(String, usize)>>,
    permits: Receiver<()>,
}

impl Store for Gated {
    fn reader(&mut self) -> Result<Box<dyn StoreReader>, StoreError> {
        self.inner.reader()
    }

    fn commit(
        &mut self,
        view: View,
        member: MemberId,
        writes: &[StoreWrite],
    ) -> Result<Vec<Written>, StoreError> {
        let written = writes.iter().map(|write| {
            let bytes = match &write.change {
                StoreChange::Put(record) => record.data.len(),
                StoreChange::Delete => 0,
            };
            (write.name.to_string(), bytes)
        });
        // When the test is done, it closes both channels, and all commits pass without waiting.
        let _ = self.entered.send(written.collect());
        let _ = self.permits.recv();
        self.inner.commit(view, member, writes)
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
        key: None,
    };
    Message::Record(Record::Write(
        write,
        Change::CreateAndUpdate { data: Some(data) },
    ))
}

/// Several connections write `count` records of `bytes` bytes each, then another user writes one small record. Counts the commits
/// until that record is acknowledged.
fn commits_of_a_small_write(count: usize, bytes: usize) {
    let directory = tempfile::tempdir().unwrap();
    let folder = DataFolder::open(directory.path()).unwrap();
    let (inner, opened) = SqliteStore::open(&folder, SqliteOptions::default()).unwrap();
    let (entered, commits) = mpsc::channel();
    let (let_through, permits) = mpsc::channel();
    let store = Gated {
        inner,
        entered,
        permits,
    };
    let mut settings = Settings::default();
    settings.limits.batch_bytes_max = BATCH_BYTES;
    let node = Node::start_on(Options::default(), settings, Box::new(store), opened);
    // Dropped before the node, which waits for its store to end. So a failed check ends the test instead of blocking it.
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
        // The batch of each shard may exceed the limit by one record.
        let most = 3 * (BATCH_BYTES + bytes);
        assert!(sum <= most, "{sum} bytes in commit {number}");
        let_through.send(()).unwrap();
    }
    bystander.expect(&acknowledged("small"));
    // At least half of the flood is still unwritten.
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

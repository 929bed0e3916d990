//! The thread that reads indexes. A read is of one moment, so it can't be done in pages, and a long one takes as long as many loads. So it
//! has a separate thread and a separate connection: no load waits for it.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use tidewire_core::effect::StoreCompletion;
use tidewire_core::store::{IndexEnd, IndexEntry, IndexPart, IndexRead, StoreError, StoreReader};
use tidewire_core::text::Name;

use super::{CompletionSender, READER_NICE};

/// Entries of a part. A shard handles a part in about a millisecond.
const PART_ENTRIES: usize = 4_096;

/// A task of the thread.
pub(super) enum IndexTask {
    Read {
        shard: u16,
        number: u64,
        read: IndexRead,
    },
    Stop,
}

/// Runs the thread until it is stopped.
pub(super) fn run(
    reader: &mut dyn StoreReader,
    tasks: &Receiver<IndexTask>,
    answer: &CompletionSender,
) {
    // If the system refuses it, the thread only competes with the others as an equal.
    let _ = rustix::process::nice(READER_NICE);
    for task in tasks {
        let IndexTask::Read {
            shard,
            number,
            read,
        } = task
        else {
            break;
        };
        let mut parts = Parts {
            shard,
            number,
            answer,
            entries: Vec::new(),
            has_sent: false,
        };
        let mut end = parts.read(reader, &read);
        // Only a failed read shows that a connection has ended since the last one. Parts that were sent can't be taken back.
        if end.is_err() && !parts.has_sent {
            parts.entries.clear();
            end = parts.read(reader, &read);
        }
        parts.end(end);
    }
}

/// Answers that there is no index to read.
pub(super) fn answer_unusable(shard: u16, number: u64, answer: &CompletionSender) {
    let part = IndexPart {
        entries: Vec::new(),
        end: Some(IndexEnd::Unusable),
    };
    let part = Ok(part);
    answer(shard, StoreCompletion::Indexed { number, part });
}

/// The parts of an answer.
struct Parts<'a> {
    shard: u16,
    number: u64,
    answer: &'a CompletionSender,
    entries: Vec<IndexEntry>,
    has_sent: bool,
}

impl Parts<'_> {
    fn read(
        &mut self,
        reader: &mut dyn StoreReader,
        read: &IndexRead,
    ) -> Result<IndexEnd, StoreError> {
        reader.read_index(read, &mut |key, name| {
            let shared = self.entries.last().filter(|last| *last.key == *key);
            let key = shared.map_or_else(|| Arc::from(key), |last| Arc::clone(&last.key));
            let name = Name::from(name);
            self.entries.push(IndexEntry { key, name });
            if self.entries.len() == PART_ENTRIES {
                let entries = std::mem::take(&mut self.entries);
                self.has_sent = true;
                self.send(Ok(IndexPart { entries, end: None }));
            }
        })
    }

    fn end(mut self, end: Result<IndexEnd, StoreError>) {
        let entries = std::mem::take(&mut self.entries);
        let end = end.map(|end| IndexPart {
            entries,
            end: Some(end),
        });
        self.send(end);
    }

    fn send(&self, part: Result<IndexPart, StoreError>) {
        let number = self.number;
        (self.answer)(self.shard, StoreCompletion::Indexed { number, part });
    }
}

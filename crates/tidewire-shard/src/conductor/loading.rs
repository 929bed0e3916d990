//! Answers of the stores to loads, which may wait for later turns.

use std::time::Duration;

use tidewire_core::effect::{Input, StoreCompletion};
use tidewire_core::store::Loaded;

use super::Conductor;

/// A turn handles answers to loads for this long, and finishes the one that it is at.
const LOADED_TIME_MAX: Duration = Duration::from_millis(1);

impl Conductor {
    /// Handles answers to loads, in their order. The requests that waited for the records continue, and thousands of them may have waited
    /// for one load, so the rest may have to wait for the next turns. The outcomes of commits do not wait behind it: the next batch of
    /// writes leaves only after them.
    pub(super) fn take_loaded(&mut self) {
        if self.loaded.is_empty() {
            return;
        }
        let started = self.clock();
        while let Some(completion) = self.loaded.pop_front() {
            let bytes = loaded_bytes(&completion);
            self.handle_charged(Input::Store(completion), bytes);
            if self.clock().since(started) >= LOADED_TIME_MAX {
                break;
            }
        }
    }
}

/// Bytes of the records that the store has found.
fn loaded_bytes(completion: &StoreCompletion) -> usize {
    let StoreCompletion::Loaded { records } = completion else {
        return 0;
    };
    let found = records.iter().map(|(_, loaded)| match loaded {
        Ok(Loaded::Found(record)) => record.data.len(),
        _ => 0,
    });
    found.sum()
}

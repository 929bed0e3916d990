//! Durable storage: the stores behind the seam of `tidewire_core::store`, their threads and the data folder.
//!
//! The stored format is described in `spec/store.md`. What to keep and when to try again is the engine's decision;
//! the files here only translate, group and report.

pub mod folder;
pub mod memory;
pub mod sqlite;
pub mod thread;

use std::path::Path;

use tidewire_core::address::Epoch;
use tidewire_core::store::{Opened, Store};

use folder::{DataFolder, FolderError};
use memory::MemoryDisk;
use sqlite::{CheckReport, SqliteOptions, SqliteStore};

/// The registered stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// SQLite in the data folder, the default.
    Sqlite(SqliteOptions),
    /// Nothing outlives the process.
    Memory {
        /// Bytes of names and values that may be kept; further writes fail as on a full disk.
        bytes_max: Option<u64>,
    },
}

/// Opens a store of the given kind.
///
/// # Errors
/// The folder does not hold a store that this version can open.
pub fn open(
    kind: &StoreKind,
    folder: &DataFolder,
) -> Result<(Box<dyn Store>, Opened), FolderError> {
    match kind {
        StoreKind::Sqlite(options) => {
            let (store, opened) = SqliteStore::open(folder, options.clone())?;
            Ok((Box::new(store), opened))
        }
        StoreKind::Memory { bytes_max } => {
            let (store, opened) = MemoryDisk::default().open(*bytes_max);
            Ok((Box::new(store), opened))
        }
    }
}

/// Looks at everything in the data folder at `path`, which no server may use meanwhile.
///
/// # Errors
/// There is no store, it is in use, or it can't be read.
pub fn check(path: &Path) -> Result<CheckReport, FolderError> {
    if !path.exists() {
        return Err(FolderError::NoStore {
            path: path.to_owned(),
        });
    }
    sqlite::check(&DataFolder::open(path)?)
}

/// The epoch after `last`. It follows the clock where the clock is ahead, so a folder that was restored from a
/// copy does not use an epoch again that the lost one had.
fn epoch_after(last: Epoch) -> Epoch {
    let now_ms = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(0));
    Epoch(now_ms.max(last.0.saturating_add(1)))
}

/// The smallest text after all texts that start with `prefix`, in byte order; none if there is no such text.
fn prefix_end(prefix: &str) -> Option<String> {
    let mut end = prefix.to_owned();
    while let Some(last) = end.pop() {
        // The order of UTF-8 bytes is the order of code points, and the range steps over the surrogates.
        if let Some(next) = (last..=char::MAX).nth(1) {
            end.push(next);
            return Some(end);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_end_is_the_next_text_without_the_prefix() {
        let cases = [
            ("", None),
            ("a", Some("b")),
            ("az", Some("a{")),
            ("a\u{7f}", Some("a\u{80}")),
            ("é", Some("ê")),
            ("\u{d7ff}", Some("\u{e000}")),
            ("\u{ffff}", Some("\u{10000}")),
            ("a\u{10ffff}", Some("b")),
            ("\u{10ffff}\u{10ffff}", None),
        ];
        for (prefix, end) in cases {
            assert_eq!(prefix_end(prefix).as_deref(), end, "after {prefix:?}");
        }
    }

    #[test]
    fn epochs_grow_even_when_the_clock_stands_behind() {
        let ahead = Epoch(u64::MAX - 1);
        assert_eq!(epoch_after(ahead), Epoch(u64::MAX));
        assert!(epoch_after(Epoch(0)) > Epoch(1));
    }
}

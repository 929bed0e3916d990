//! Durable storage: the stores behind the seam of `tidewire_core::store`, their threads and the data folder.
//!
//! `spec/store.md` and its sibling pages describe the stored formats. The engine decides which records to keep and when to retry;
//! the files here only translate, group and report.

pub mod awaited;
pub mod backup;
pub mod check;
pub mod folder;
pub mod history_sweep;
mod index_list;
pub mod memory;
#[cfg(feature = "mongodb")]
pub mod mongodb;
mod passes;
#[cfg(feature = "postgres")]
pub mod postgres;
mod range;
mod recent;
#[cfg(feature = "redis")]
pub mod redis;
pub mod remote;
pub mod scrub;
pub mod sqlite;
pub mod stray;
pub mod thread;
pub mod transfer;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod view_document;
mod walk;
mod write_keys;

use std::path::Path;

use smallvec::SmallVec;
use thiserror::Error;
use tidewire_core::address::Epoch;
use tidewire_core::store::{StoreReader, StoredRecord};

use check::CheckReport;
use folder::{DataFolder, FolderError};
use memory::MemoryDisk;
use remote::{OpenStore, Promise, RemoteError, RemoteOptions};
use sqlite::{SqliteOptions, SqliteReader, SqliteStore};

/// The registered stores.
#[derive(Clone, Debug)]
pub enum StoreKind {
    /// SQLite in the data folder, the default.
    Sqlite(SqliteOptions),
    /// Records in memory, which end with the process.
    Memory {
        /// Limit for the bytes of all names and values; further writes fail as on a full disk.
        bytes_max: Option<u64>,
    },
    /// A MongoDB database.
    Mongodb(RemoteOptions),
    /// A PostgreSQL database.
    Postgres(RemoteOptions),
    /// Redis or Valkey.
    Redis(RemoteOptions),
}

/// Why a store can't be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The data folder can't be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The store's server can't be used.
    #[error("the store in {kind} {cause}")]
    Remote {
        /// The kind of server.
        kind: &'static str,
        /// Why the server can't be used.
        cause: RemoteError,
    },
}

/// Opens a store of the given kind. If its server can't be reached yet, waits for it.
///
/// # Errors
/// The folder does not hold a store that this version can open, or the server can't be used.
pub fn open(kind: &StoreKind, folder: &DataFolder) -> Result<OpenStore, OpenError> {
    let patiently = |kind, open: &dyn Fn() -> Result<OpenStore, RemoteError>| {
        remote::open_patiently(kind, open).map_err(|cause| OpenError::Remote { kind, cause })
    };
    match kind {
        StoreKind::Sqlite(options) => {
            let (store, opened) = SqliteStore::open(folder, options.clone())?;
            Ok(OpenStore {
                store: Box::new(store),
                opened,
                promise: Promise::synced("SQLite with synchronous=FULL"),
            })
        }
        StoreKind::Memory { bytes_max } => {
            let (store, opened) = MemoryDisk::default().open(*bytes_max);
            Ok(OpenStore {
                store: Box::new(store),
                opened,
                promise: Promise {
                    text: "in memory; nothing survives a stop".to_owned(),
                    weakness: None,
                },
            })
        }
        #[cfg(feature = "mongodb")]
        StoreKind::Mongodb(options) => {
            patiently("MongoDB", &|| mongodb::MongodbStore::open(options.clone()))
        }
        #[cfg(feature = "postgres")]
        StoreKind::Postgres(options) => patiently("PostgreSQL", &|| {
            postgres::PostgresStore::open(options.clone())
        }),
        #[cfg(feature = "redis")]
        StoreKind::Redis(options) => {
            patiently("Redis", &|| redis::RedisStore::open(options.clone()))
        }
        #[cfg(not(all(feature = "mongodb", feature = "postgres", feature = "redis")))]
        _ => patiently("a server", &|| Err(RemoteError::not_built())),
    }
}

/// A store that is read without being opened, so a running server can continue to use it.
pub struct ReadOnlyStore {
    /// The reader of the store.
    pub reader: Box<dyn StoreReader>,
    /// The lock of the data folder, if no server has it. It keeps servers from opening the folder during the read.
    _folder: Option<DataFolder>,
}

/// Reads a store without opening it. The memory store can't be read from outside its server.
///
/// # Errors
/// There is no store, or this version can't read it.
pub fn open_read_only(kind: &StoreKind, path: &Path) -> Result<ReadOnlyStore, OpenError> {
    let remote = |kind, opened: Result<Box<dyn StoreReader>, RemoteError>| {
        let reader_only = |reader| ReadOnlyStore {
            reader,
            _folder: None,
        };
        opened
            .map(reader_only)
            .map_err(|cause| OpenError::Remote { kind, cause })
    };
    match kind {
        StoreKind::Sqlite(_) => {
            let (reader, folder) = open_folder_read_only(path)?;
            Ok(ReadOnlyStore {
                reader: Box::new(reader),
                _folder: folder,
            })
        }
        StoreKind::Memory { .. } => {
            let missing = "its records exist only in its server; choose another store".to_owned();
            remote("memory", Err(RemoteError::Refused(missing)))
        }
        #[cfg(feature = "mongodb")]
        StoreKind::Mongodb(options) => remote(
            "MongoDB",
            mongodb::MongodbReader::read_only(options.clone())
                .map(|reader| Box::new(reader) as Box<dyn StoreReader>),
        ),
        #[cfg(feature = "postgres")]
        StoreKind::Postgres(options) => remote(
            "PostgreSQL",
            postgres::PostgresReader::read_only(options.clone())
                .map(|reader| Box::new(reader) as Box<dyn StoreReader>),
        ),
        #[cfg(feature = "redis")]
        StoreKind::Redis(options) => remote(
            "Redis",
            redis::RedisReader::read_only(options.clone())
                .map(|reader| Box::new(reader) as Box<dyn StoreReader>),
        ),
        #[cfg(not(all(feature = "mongodb", feature = "postgres", feature = "redis")))]
        _ => remote("a server", Err(RemoteError::not_built())),
    }
}

/// A reader of a data folder, and the folder's lock unless a server has it.
fn open_folder_read_only(path: &Path) -> Result<(SqliteReader, Option<DataFolder>), FolderError> {
    let reader = sqlite::reader(path)?;
    match DataFolder::open(path) {
        Ok(folder) => Ok((reader, Some(folder))),
        Err(FolderError::Locked { .. }) => Ok((reader, None)),
        Err(error) => Err(error),
    }
}

/// Checks everything in the data folder at `path`. No server may use the folder during the check.
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

/// The epoch after `last`. It is at least the current time in milliseconds, so a folder that was restored from a copy does not reuse an
/// epoch of the lost folder.
fn epoch_after(last: Epoch) -> Epoch {
    let now_ms = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(0));
    Epoch(now_ms.max(last.0.saturating_add(1)))
}

/// CRC-32C of the name's length, the name, incarnation, version, data, and the stored text of the write keys if the record has any; numbers
/// in little-endian order.
fn checksum(name: &str, record: &StoredRecord, write_keys: Option<&str>) -> u32 {
    // Only two calls: each one has a fixed cost, which dominates for short inputs.
    let mut head: SmallVec<[u8; 128]> = SmallVec::new();
    head.extend_from_slice(&(name.len() as u64).to_le_bytes());
    head.extend_from_slice(name.as_bytes());
    head.extend_from_slice(&record.incarnation.0.to_le_bytes());
    head.extend_from_slice(&record.version.0.to_le_bytes());
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&head), record.data.as_str().as_bytes());
    match write_keys {
        Some(text) => crc32c::crc32c_append(checksum, text.as_bytes()),
        None => checksum,
    }
}

#[cfg(test)]
mod tests {
    use tidewire_core::store::{Incarnation, Version};
    use tidewire_core::text::Payload;

    use super::*;

    #[test]
    fn the_checksum_is_the_one_of_the_specification() {
        let record = StoredRecord {
            incarnation: Incarnation(u64::MAX - 1),
            version: Version(3),
            data: Payload::from_checked("{\"a\":1}"),
            write_keys: None,
        };
        assert_eq!(checksum("user/é", &record, None), 0xb503_df2c);
        let text = r#"{"kept":[[3,"ann","k1"]]}"#;
        assert_eq!(checksum("user/é", &record, Some(text)), 0x82f5_4ba0);
    }

    #[test]
    fn epochs_grow_even_when_the_clock_stands_behind() {
        let ahead = Epoch(u64::MAX - 1);
        assert_eq!(epoch_after(ahead), Epoch(u64::MAX));
        assert!(epoch_after(Epoch(0)) > Epoch(1));
    }
}

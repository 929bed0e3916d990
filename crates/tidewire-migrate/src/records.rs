//! Imports the records of a deepstream server from the database of its connector: PostgreSQL, MongoDB or Redis. The records are
//! read page by page, so that memory does not depend on their number. `docs/from-deepstream.md` describes the format of each
//! connector.

#[cfg(feature = "mongodb")]
mod mongodb;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;

use std::fmt;

use tidewire_core::json::{self, JsonKind};
use tidewire_core::store::Version;
use tidewire_core::text::RESERVED;
use tidewire_store::remote::{RemoteError, RemoteOptions};
use tidewire_store::transfer::import::{ExportedRecord, ImportError, Imported, Limits};
use tidewire_store::transfer::importer::Importer;

/// Refused records that the result lists; further ones are only counted.
const NAMED_MAX: usize = 100;

/// The database in which a deepstream server keeps its records.
#[derive(Clone, Debug)]
pub struct Source {
    /// The kind of database.
    pub kind: SourceKind,
    /// How to connect to it.
    pub options: RemoteOptions,
    /// The connector's configuration.
    pub layout: Layout,
}

/// The kinds of databases, with deepstream's connectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// `@deepstream/storage-mongodb`.
    Mongodb,
    /// `@deepstream/storage-postgres`.
    Postgres,
    /// `@deepstream/cache-redis`.
    Redis,
}

impl SourceKind {
    /// The kind of database at this address.
    #[must_use]
    pub fn of(url: &str) -> Option<Self> {
        match url.split_once("://")?.0 {
            "mongodb" => Some(Self::Mongodb),
            "postgres" | "postgresql" => Some(Self::Postgres),
            "redis" | "rediss" | "valkey" | "valkeys" => Some(Self::Redis),
            _ => None,
        }
    }
}

/// The options of a connector that determine how it names tables and collections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// PostgreSQL: the schema with the tables.
    pub schema: String,
    /// PostgreSQL: the table of names without a slash.
    pub default_table: String,
    /// MongoDB: the separator between the collection and the rest of a name.
    pub split_char: String,
    /// MongoDB: the collection of names without the separator.
    pub default_collection: String,
}

#[cfg(any(feature = "mongodb", feature = "postgres"))]
impl Layout {
    /// The name of a record with this id in a part, which is a table or collection. Usually the part is the start of the name. In the
    /// default part, an id without a separator is the whole name.
    fn name(part: &str, default_part: &str, separator: &str, id: &str) -> String {
        if part == default_part && !id.contains(separator) {
            id.to_owned()
        } else {
            format!("{part}{separator}{id}")
        }
    }
}

/// A record as a connector has stored it.
struct Found {
    name: String,
    version: Option<i64>,
    /// The value as JSON, or the reason why it can't be JSON.
    data: Result<String, String>,
}

/// Takes each record. An error ends the reading.
type Visit<'a> = &'a mut dyn FnMut(Found) -> Result<(), MigrationError>;

/// The result of a migration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Migrated {
    /// Records that were read.
    pub record_count: u64,
    /// Lists among the records that can be imported.
    pub list_count: u64,
    /// Records that can't be imported.
    pub refused: Refused,
    /// The import of the others; `None` if the records were only checked.
    pub imported: Option<Imported>,
}

/// Records that can't be imported: all are counted, the first ones are listed by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// The number of refused records.
    pub count: u64,
    /// Names and reasons of the first ones.
    pub named: Vec<(String, String)>,
}

impl fmt::Display for Migrated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} records read, {} of them lists, {} refused; ",
            self.record_count, self.list_count, self.refused.count
        )?;
        match &self.imported {
            Some(imported) => write!(f, "{imported}")?,
            None => write!(f, "nothing written")?,
        }
        for (name, reason) in &self.refused.named {
            write!(f, "\nrefused {name:?}: {reason}")?;
        }
        match self.refused.count - self.refused.named.len() as u64 {
            0 => Ok(()),
            more => write!(f, "\nand {more} more refused records"),
        }
    }
}

/// Why a migration failed. Records that were committed before stay, and the migration can be repeated.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// deepstream's database can't be read.
    #[error("deepstream's records can't be read: the server {0}")]
    Source(#[from] RemoteError),
    /// The store has failed.
    #[error(transparent)]
    Import(#[from] ImportError),
}

impl MigrationError {
    #[cfg(any(feature = "mongodb", feature = "postgres", feature = "redis"))]
    fn source(message: impl Into<String>) -> Self {
        Self::Source(RemoteError::Refused(message.into()))
    }
}

/// Imports all records with `importer`. Without an importer, only checks them.
///
/// # Errors
/// The records can't be read, or the store fails.
pub fn migrate(
    source: &Source,
    limits: Limits,
    mut importer: Option<Importer<'_>>,
) -> Result<Migrated, MigrationError> {
    let mut migrated = Migrated::default();
    read(source, limits.json.bytes_max, &mut |found| {
        migrated.record_count += 1;
        match checked(&found, limits) {
            Ok(record) => {
                // The record has already passed this check, so it only finds the kind of the value.
                let is_list = json::check(record.data.as_str(), limits.json) == Ok(JsonKind::Array);
                migrated.list_count += u64::from(is_list);
                if let Some(importer) = &mut importer {
                    importer.add(record)?;
                }
            }
            Err(reason) => {
                migrated.refused.count += 1;
                if migrated.refused.named.len() < NAMED_MAX {
                    migrated.refused.named.push((found.name, reason));
                }
            }
        }
        Ok(())
    })?;
    if let Some(importer) = importer {
        migrated.imported = Some(importer.finish()?);
    }
    Ok(migrated)
}

/// The record if it can be imported, or the reason why not.
fn checked(found: &Found, limits: Limits) -> Result<ExportedRecord, String> {
    if found.name.starts_with(RESERVED) {
        return Err("names that begin with U+0001 are the server's own".to_owned());
    }
    let version = found
        .version
        .and_then(|version| u32::try_from(version).ok());
    let Some(version) = version
        .map(Version)
        .filter(|version| *version <= Version::LAST)
    else {
        let last = Version::LAST.0;
        return Err(format!("the version is not an integer from 0 to {last}"));
    };
    limits.check(
        &found.name,
        version,
        found.data.as_deref().map_err(String::clone)?,
    )
}

/// Calls `visit` with each record. A value of more than `bytes_max` bytes is not read.
fn read(source: &Source, bytes_max: usize, visit: Visit<'_>) -> Result<(), MigrationError> {
    match source.kind {
        #[cfg(feature = "mongodb")]
        SourceKind::Mongodb => mongodb::read(source, visit),
        #[cfg(feature = "postgres")]
        SourceKind::Postgres => postgres::read(source, bytes_max, visit),
        #[cfg(feature = "redis")]
        SourceKind::Redis => redis::read(source, bytes_max, visit),
        #[cfg(not(all(feature = "mongodb", feature = "postgres", feature = "redis")))]
        _ => {
            let _ = (bytes_max, visit);
            Err(MigrationError::Source(RemoteError::not_built()))
        }
    }
}

/// The reason for a value that is too large to be read.
#[cfg(any(feature = "postgres", feature = "redis"))]
fn too_large(bytes: u64, bytes_max: usize) -> String {
    format!("the data have {bytes} bytes, more than {bytes_max} (limits.record_bytes_max)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(any(feature = "mongodb", feature = "postgres"))]
    #[test]
    fn names_come_back_from_their_parts() {
        for (part, id, name) in [
            ("default", "a", "a"),
            ("default", "", ""),
            ("default", "a/b", "default/a/b"),
            ("user", "a", "user/a"),
            ("user", "", "user/"),
            ("user", "a/b", "user/a/b"),
        ] {
            assert_eq!(Layout::name(part, "default", "/", id), name);
        }
    }

    #[test]
    fn an_address_says_what_kind_of_server_it_is() {
        for (url, kind) in [
            ("mongodb://a/b", Some(SourceKind::Mongodb)),
            ("postgres://a/b", Some(SourceKind::Postgres)),
            ("postgresql://a/b", Some(SourceKind::Postgres)),
            ("rediss://a/0", Some(SourceKind::Redis)),
            ("mysql://a/b", None),
            ("redis", None),
        ] {
            assert_eq!(SourceKind::of(url), kind, "{url}");
        }
    }
}

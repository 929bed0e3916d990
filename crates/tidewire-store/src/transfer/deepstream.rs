//! Brings the records of a deepstream server into a store, from where its connectors keep them: PostgreSQL, MongoDB, Redis.
//! They are read page by page, so that memory does not depend on how many there are. What each connector writes is described in
//! `docs/from-deepstream.md`.

#[cfg(feature = "mongodb")]
mod mongodb;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;

use std::fmt;

use tidewire_core::json::{self, Kind};
use tidewire_core::store::Version;
use tidewire_core::text::RESERVED;

use super::import::{ImportError, Imported, Limits};
use super::importer::Importer;
use crate::remote::{RemoteError, RemoteOptions};

/// Refused records that are named; all are counted.
const NAMED_MAX: usize = 100;

/// Where a deepstream server keeps its records.
#[derive(Clone, Debug)]
pub struct Source {
    /// The kind of server.
    pub kind: SourceKind,
    /// Where it is.
    pub options: RemoteOptions,
    /// How the connector was configured.
    pub layout: Layout,
}

/// The kinds of servers for which there are connectors.
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
    /// The kind whose addresses begin so.
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

/// The options of a connector that say how it names things.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// PostgreSQL: the schema with the tables.
    pub schema: String,
    /// PostgreSQL: the table of names without a slash.
    pub default_table: String,
    /// MongoDB: what stands between a collection and the rest of a name.
    pub split_char: String,
    /// MongoDB: the collection of names without that.
    pub default_collection: String,
}

#[cfg(any(feature = "mongodb", feature = "postgres"))]
impl Layout {
    /// The name of a record that lies in a part of its own, as a table. What lies in the part for all names without the
    /// separator has none, unless it was written with the name of that part.
    fn name(part: &str, default_part: &str, separator: &str, id: &str) -> String {
        if part == default_part && !id.contains(separator) {
            id.to_owned()
        } else {
            format!("{part}{separator}{id}")
        }
    }
}

/// A record as a connector has kept it.
struct Found {
    name: String,
    version: Option<i64>,
    /// JSON, or why there is none.
    data: Result<String, String>,
}

/// Takes each record that is found, and ends the reading by an error.
type Visit<'a> = &'a mut dyn FnMut(Found) -> Result<(), MigrationError>;

/// What was found, and what became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Migrated {
    /// Records that were read.
    pub record_count: u64,
    /// Lists among them.
    pub list_count: u64,
    /// What can't be taken over.
    pub refused: Refused,
    /// What came of the others; none if nothing was to be written.
    pub imported: Option<Imported>,
}

/// Records that can't be taken over: all are counted, the first ones named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// How many.
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

/// Why a migration ended before its end. What was committed until then stays, and it may be repeated.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// deepstream's server can't be read.
    #[error("deepstream's records can't be read: the server {0}")]
    Source(#[from] RemoteError),
    /// The store fails.
    #[error(transparent)]
    Import(#[from] ImportError),
}

impl MigrationError {
    #[cfg(any(feature = "mongodb", feature = "postgres", feature = "redis"))]
    fn source(message: impl Into<String>) -> Self {
        Self::Source(RemoteError::Refused(message.into()))
    }
}

/// Brings all records into an open store, or only looks at them. What is there already stays as it is, unless `replaces`
/// and version or value differ.
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
                // What was checked once needs no other limits.
                let is_list = json::check(record.data.as_str(), limits.json) == Ok(Kind::Array);
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

/// The record as it may be kept, or what is wrong with it.
fn checked(found: &Found, limits: Limits) -> Result<super::import::ExportedRecord, String> {
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
        return Err(format!("the version is no whole number from 0 to {last}"));
    };
    limits.check(
        &found.name,
        version,
        found.data.as_deref().map_err(String::clone)?,
    )
}

/// Gives each record to `visit`. A value of more than `bytes_max` bytes is not read.
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
            Err(MigrationError::Source(crate::not_built()))
        }
    }
}

/// Why a value was not even read.
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

//! The statements with which the store writes records.

use rusqlite::{CachedStatement, OptionalExtension, Row, Transaction, params};
use tidewire_core::store::{Expected, Loaded, StoreChange, StoreWrite, StoredRecord, Written};
use tidewire_core::text::Name;

use super::super::checksum;
use super::super::recent::Recent;
use super::super::write_keys;
use super::indexes::Keeper;
use super::quota::Charges;
use super::reader::{LOAD, loaded_from};

const PUT: &str =
    "INSERT INTO records (name, incarnation, version, data, checksum, writer, write_keys)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
    ON CONFLICT (name) DO UPDATE SET incarnation = excluded.incarnation, version = excluded.version,
        data = excluded.data, checksum = excluded.checksum, writer = excluded.writer,
        write_keys = excluded.write_keys";
const ADD: &str =
    "INSERT INTO records (name, incarnation, version, data, checksum, writer, write_keys)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
    ON CONFLICT (name) DO NOTHING";
const REPLACE: &str =
    "UPDATE records SET incarnation = ?2, version = ?3, data = ?4, checksum = ?5, writer = ?6, write_keys = ?7
    WHERE name = ?1 AND incarnation = ?8 AND version = ?9";
const REPLACE_AT: &str =
    "UPDATE records SET incarnation = ?2, version = ?3, data = ?4, checksum = ?5, writer = ?6, write_keys = ?7
    WHERE rowid = ?10 AND name = ?1 AND incarnation = ?8 AND version = ?9";
const FIND: &str = "SELECT rowid FROM records WHERE name = ?1";
const HEAD: &str = "SELECT incarnation, version FROM records WHERE name = ?1";
const DELETE: &str = "DELETE FROM records WHERE name = ?1";

/// The statements of a commit.
pub(super) struct Statements<'transaction> {
    rows: &'transaction mut Recent<i64>,
    put: CachedStatement<'transaction>,
    add: CachedStatement<'transaction>,
    replace: CachedStatement<'transaction>,
    replace_at: CachedStatement<'transaction>,
    find: CachedStatement<'transaction>,
    delete: CachedStatement<'transaction>,
    head: CachedStatement<'transaction>,
    load: CachedStatement<'transaction>,
    /// Keeps the entries of indexes, if there are any.
    keeper: Option<Keeper<'transaction>>,
}

impl<'transaction> Statements<'transaction> {
    pub(super) fn prepare(
        transaction: &'transaction Transaction<'_>,
        rows: &'transaction mut Recent<i64>,
        keeper: Option<Keeper<'transaction>>,
    ) -> rusqlite::Result<Self> {
        Ok(Self {
            rows,
            put: transaction.prepare_cached(PUT)?,
            add: transaction.prepare_cached(ADD)?,
            replace: transaction.prepare_cached(REPLACE)?,
            replace_at: transaction.prepare_cached(REPLACE_AT)?,
            find: transaction.prepare_cached(FIND)?,
            delete: transaction.prepare_cached(DELETE)?,
            head: transaction.prepare_cached(HEAD)?,
            load: transaction.prepare_cached(LOAD)?,
            keeper,
        })
    }

    pub(super) fn write(
        &mut self,
        write: &StoreWrite,
        mut charges: Option<&mut Charges<'_>>,
    ) -> rusqlite::Result<Written> {
        let before = match &mut charges {
            Some(charges) => charges.find(&write.name)?,
            None => None,
        };
        let writer = write.writer.as_ref().map(Name::as_str);
        let is_written = match &write.change {
            StoreChange::Put(record) => self.put(&write.name, write.expected, record, writer)?,
            StoreChange::Delete => {
                let is_met = self.is_met(&write.name, write.expected)?;
                if is_met {
                    self.delete.execute([write.name.as_str()])?;
                }
                is_met
            }
        };
        if is_written && let Some(keeper) = &mut self.keeper {
            let data = match &write.change {
                StoreChange::Put(record) => Some(record.data.as_str()),
                StoreChange::Delete => None,
            };
            keeper.written(&write.name, data)?;
        }
        if is_written && let Some(charges) = charges {
            charges.add(write, before);
        }
        if is_written || self.is_done(write)? {
            Ok(Written::Done)
        } else {
            Ok(Written::Refused)
        }
    }

    /// Writes a record if the stored state is the expected one. Returns whether it has written the record. As for a delete, a damaged row
    /// is the expected one if its incarnation and version match.
    fn put(
        &mut self,
        name: &Name,
        expected: Expected,
        record: &StoredRecord,
        writer: Option<&str>,
    ) -> rusqlite::Result<bool> {
        let (incarnation, version) = (record.incarnation.0.cast_signed(), record.version.0);
        let write_keys = record.write_keys.as_deref().map(write_keys::to_text);
        let write_keys = write_keys.as_deref();
        let checksum = checksum(name, record, write_keys);
        let data = record.data.as_str();
        let name_text = name.as_str();
        let rows = match expected {
            Expected::Anything | Expected::Missing => {
                let statement = match expected {
                    Expected::Missing => &mut self.add,
                    _ => &mut self.put,
                };
                statement.execute(params![
                    name_text,
                    incarnation,
                    version,
                    data,
                    checksum,
                    writer,
                    write_keys
                ])?
            }
            Expected::At(was, at) => {
                let (was, at) = (was.0.cast_signed(), at.0);
                let mut rows = 0;
                if let Some(row) = self.row_of(name)? {
                    rows = self.replace_at.execute(params![
                        name_text,
                        incarnation,
                        version,
                        data,
                        checksum,
                        writer,
                        write_keys,
                        was,
                        at,
                        row
                    ])?;
                }
                // The record is in another row now, or is not the expected one.
                if rows == 0 {
                    rows = self.replace.execute(params![
                        name_text,
                        incarnation,
                        version,
                        data,
                        checksum,
                        writer,
                        write_keys,
                        was,
                        at
                    ])?;
                    if rows > 0 {
                        self.find_row(name)?;
                    }
                }
                rows
            }
        };
        Ok(rows > 0)
    }

    /// The row of the record, or its row at the last write.
    fn row_of(&mut self, name: &Name) -> rusqlite::Result<Option<i64>> {
        match self.rows.of(name) {
            Some(row) => Ok(Some(row)),
            None => self.find_row(name),
        }
    }

    /// Looks up the row of the record and remembers it.
    fn find_row(&mut self, name: &Name) -> rusqlite::Result<Option<i64>> {
        let row = self.find.query_row([name.as_str()], |row| row.get(0));
        let row = row.optional()?;
        if let Some(row) = row {
            self.rows.note(name, row);
        }
        Ok(row)
    }

    /// Whether the stored state is the expected one. A damaged row is the expected one if its incarnation and version match: the owner has
    /// the record in memory and replaces the row with a sound one.
    fn is_met(&mut self, name: &str, expected: Expected) -> rusqlite::Result<bool> {
        if expected == Expected::Anything {
            return Ok(true);
        }
        let read = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
        let head = self.head.query_row([name], read).optional()?;
        Ok(match expected {
            Expected::Anything => true,
            Expected::Missing => head.is_none(),
            Expected::At(incarnation, version) => {
                head == Some((incarnation.0.cast_signed(), version.0.into()))
            }
        })
    }

    fn is_done(&mut self, write: &StoreWrite) -> rusqlite::Result<bool> {
        let mut rows = self.load.query([write.name.as_str()])?;
        let stored = match rows.next()? {
            Some(row) => match loaded_from(row)? {
                Loaded::Found(record) => Some(record),
                Loaded::Missing | Loaded::Corrupt => return Ok(false),
            },
            None => None,
        };
        Ok(write.change.is_done(stored.as_ref()))
    }
}

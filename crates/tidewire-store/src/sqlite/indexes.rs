//! Indexes of collections: their entries change in the transaction of the records, and a new index is built in steps between commits
//! (`index_list.rs`).

use std::sync::Arc;

use rusqlite::types::ValueRef;
use rusqlite::{
    CachedStatement, Connection, OptionalExtension, Transaction, TransactionBehavior, params,
};
use tidewire_core::indexes::Tape;
use tidewire_core::store::{IndexEnd, IndexRead};

use super::super::index_list::{
    BUILDING, COMPLETE, IndexList, KeptIndex, REMOVED, STEP_BYTES, STEP_ROWS,
};
use super::super::range::prefix_end;

const LIST: &str = "SELECT number, definition, state, position FROM indexes ORDER BY number";
const FIND: &str = "SELECT key FROM index_entries WHERE name = ?1 AND number = ?2";
const ADD: &str = "INSERT INTO index_entries (number, key, name) VALUES (?1, ?2, ?3)";
const REMOVE: &str = "DELETE FROM index_entries WHERE number = ?1 AND key = ?2 AND name = ?3";
const CLEAR: &str = "DELETE FROM index_entries WHERE (number, key, name) IN
    (SELECT number, key, name FROM index_entries WHERE number = ?1 LIMIT ?2)";
const RECORDS: &str = "SELECT name, data FROM records
    WHERE name > ?1 AND name >= ?2 AND name < ?3 ORDER BY name LIMIT ?4";
const USABLE: &str = "SELECT number FROM indexes WHERE definition = ?1 AND state = 1";
const ASCENDING: &str = "SELECT key, name FROM index_entries
    WHERE number = ?1 AND key >= ?2 AND key < ?3 ORDER BY key, name LIMIT ?4";
const DESCENDING: &str = "SELECT key, name FROM index_entries
    WHERE number = ?1 AND key >= ?2 AND key < ?3 ORDER BY key DESC, name DESC LIMIT ?4";

/// The indexes of a database.
#[derive(Debug, Default)]
pub(super) struct Indexes {
    list: IndexList,
    tape: Tape,
}

impl Indexes {
    /// Reads which indexes the database has.
    pub(super) fn of(connection: &Connection) -> rusqlite::Result<Self> {
        let mut indexes = Self::default();
        let mut list = connection.prepare_cached(LIST)?;
        let mut rows = list.query([])?;
        while let Some(row) = rows.next()? {
            let (number, definition) = (row.get(0)?, row.get(1)?);
            indexes
                .list
                .add(number, definition, row.get(2)?, row.get(3)?);
        }
        Ok(indexes)
    }

    /// Declares the indexes: adds new ones, and marks all others as removed.
    pub(super) fn declare(
        &self,
        connection: &mut Connection,
        definitions: &[Arc<str>],
    ) -> rusqlite::Result<Self> {
        let definitions: Vec<&str> = definitions.iter().map(|text| &**text).collect();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for number in self.list.undeclared(&definitions) {
            let change = "UPDATE indexes SET state = ?2 WHERE number = ?1";
            transaction.execute(change, params![number, REMOVED])?;
        }
        for text in self.list.missing(&definitions) {
            let change = "INSERT INTO indexes (definition, state, position) VALUES (?1, ?2, '')";
            transaction.execute(change, params![text, BUILDING])?;
        }
        let declared = Self::of(&transaction)?;
        transaction.commit()?;
        Ok(declared)
    }

    /// Whether there is nothing to keep.
    pub(super) fn is_empty(&self) -> bool {
        self.list.kept.is_empty()
    }

    /// Whether an index is to be built or removed.
    pub(super) fn is_pending(&self) -> bool {
        self.list.is_pending()
    }

    /// Does a step of a build or of a removal. Returns the state after it.
    pub(super) fn step(&mut self, connection: &mut Connection) -> rusqlite::Result<Self> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if let Some(number) = self.list.removed.first() {
            let rows = transaction.execute(CLEAR, params![number, STEP_ROWS as i64])?;
            if rows < STEP_ROWS {
                transaction.execute("DELETE FROM indexes WHERE number = ?1", [number])?;
            }
        } else if let Some(building) = self.list.building() {
            build(&transaction, building, &mut self.tape)?;
        }
        let indexes = Self::of(&transaction)?;
        transaction.commit()?;
        indexes.list.log_completed(&self.list);
        Ok(indexes)
    }

    /// The statements that keep the entries in a transaction; `None` without indexes.
    pub(super) fn keeper<'transaction>(
        &'transaction mut self,
        transaction: &'transaction Transaction<'_>,
    ) -> rusqlite::Result<Option<Keeper<'transaction>>> {
        if self.is_empty() {
            return Ok(None);
        }
        Ok(Some(Keeper {
            entries: Entries::prepare(transaction)?,
            kept: &self.list.kept,
            tape: &mut self.tape,
        }))
    }
}

/// Adds the entries of the next records to an index.
fn build(
    transaction: &Transaction<'_>,
    index: &KeptIndex,
    tape: &mut Tape,
) -> rusqlite::Result<()> {
    let mut entries = Entries::prepare(transaction)?;
    let mut records = transaction.prepare_cached(RECORDS)?;
    let end = prefix_end(&index.prefix).unwrap_or_default();
    let limit = STEP_ROWS as i64;
    let mut rows = records.query(params![index.position, index.prefix, end, limit])?;
    let (mut count, mut bytes) = (0, 0);
    let mut position = index.position.clone();
    let mut is_last = true;
    while let Some(row) = rows.next()? {
        let name: String = row.get(0)?;
        let data = match row.get_ref(1)? {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes,
            _ => &[],
        };
        if index.has(&name) {
            entries.put(
                index,
                tape,
                &name,
                std::str::from_utf8(data).unwrap_or_default(),
            )?;
        }
        count += 1;
        bytes += data.len();
        position = name;
        if count == STEP_ROWS || bytes > STEP_BYTES {
            is_last = false;
            break;
        }
    }
    let state = if is_last { COMPLETE } else { BUILDING };
    let change = "UPDATE indexes SET state = ?2, position = ?3 WHERE number = ?1";
    transaction.execute(change, params![index.number, state, position])?;
    Ok(())
}

/// The statements that change entries.
struct Entries<'transaction> {
    find: CachedStatement<'transaction>,
    add: CachedStatement<'transaction>,
    remove: CachedStatement<'transaction>,
}

impl<'transaction> Entries<'transaction> {
    fn prepare(transaction: &'transaction Transaction<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            find: transaction.prepare_cached(FIND)?,
            add: transaction.prepare_cached(ADD)?,
            remove: transaction.prepare_cached(REMOVE)?,
        })
    }

    /// Replaces the entry of a record.
    fn put(
        &mut self,
        index: &KeptIndex,
        tape: &mut Tape,
        name: &str,
        data: &str,
    ) -> rusqlite::Result<()> {
        let key = index.key(tape, name, data);
        self.replace(index.number, name, Some(&key))
    }

    fn replace(&mut self, number: i64, name: &str, key: Option<&[u8]>) -> rusqlite::Result<()> {
        let before = self
            .find
            .query_row(params![name, number], |row| row.get::<_, Vec<u8>>(0));
        let before = before.optional()?;
        if before.as_deref() == key {
            return Ok(());
        }
        if let Some(before) = before {
            self.remove.execute(params![number, before, name])?;
        }
        if let Some(key) = key {
            self.add.execute(params![number, key, name])?;
        }
        Ok(())
    }
}

/// Keeps the entries of the records that a transaction writes.
pub(super) struct Keeper<'transaction> {
    entries: Entries<'transaction>,
    kept: &'transaction [KeptIndex],
    tape: &'transaction mut Tape,
}

impl Keeper<'_> {
    /// Notes that a record has this value now, or is deleted.
    pub(super) fn written(&mut self, name: &str, data: Option<&str>) -> rusqlite::Result<()> {
        for index in self.kept.iter().filter(|kept| kept.has(name)) {
            match data {
                Some(data) => self.entries.put(index, self.tape, name, data)?,
                None => self.entries.replace(index.number, name, None)?,
            }
        }
        Ok(())
    }
}

/// Reads entries of an index, all of one moment.
pub(super) fn read(
    connection: &mut Connection,
    read: &IndexRead,
    visit: &mut dyn FnMut(&[u8], &str),
) -> rusqlite::Result<IndexEnd> {
    let transaction = connection.transaction()?;
    let mut usable = transaction.prepare_cached(USABLE)?;
    let number = usable.query_row([&*read.definition], |row| row.get::<_, i64>(0));
    let Some(number) = number.optional()? else {
        return Ok(IndexEnd::Unusable);
    };
    let mut entries = transaction.prepare_cached(match read.descending {
        true => DESCENDING,
        false => ASCENDING,
    })?;
    let mut left = read.count_max;
    for (low, high) in &read.ranges {
        let limit = i64::try_from(left).unwrap_or(i64::MAX).saturating_add(1);
        let mut rows = entries.query(params![number, low, high, limit])?;
        while let Some(row) = rows.next()? {
            if left == 0 {
                return Ok(IndexEnd::More);
            }
            left -= 1;
            let (ValueRef::Blob(key), ValueRef::Text(name)) = (row.get_ref(0)?, row.get_ref(1)?)
            else {
                continue;
            };
            visit(key, std::str::from_utf8(name).unwrap_or_default());
        }
    }
    Ok(IndexEnd::Complete)
}

//! The statement that commits a batch, and the columns of its values. Decision 0081 has the figures of its forms.

use std::fmt::Write as _;

use tidewire_core::store::{Expected, StoreChange, StoreWrite};
use tokio_postgres::types::ToSql;

use crate::index_list::Entry;
use crate::{checksum, write_keys};

/// The kinds of writes, each with a separate part of the statement. PostgreSQL replaces a row by an update for about half of the processor
/// time of an insert that finds a conflict, so only writes that expect no certain version are inserts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A put that expects a version.
    Update,
    /// A put that expects no record.
    Insert,
    /// A put that expects any state.
    Replace,
    /// A delete that expects a version.
    Delete,
    /// A delete that expects any state.
    Remove,
}

const KIND_COUNT: usize = 5;

impl Kind {
    fn of(write: &StoreWrite) -> Option<Self> {
        match (&write.change, write.expected) {
            (StoreChange::Put(_), Expected::At(..)) => Some(Self::Update),
            (StoreChange::Put(_), Expected::Missing) => Some(Self::Insert),
            (StoreChange::Put(_), Expected::Anything) => Some(Self::Replace),
            (StoreChange::Delete, Expected::At(..)) => Some(Self::Delete),
            (StoreChange::Delete, Expected::Anything) => Some(Self::Remove),
            (StoreChange::Delete, Expected::Missing) => None,
        }
    }
}

/// Whether a write changes nothing, whatever is stored: a delete that expects no record.
pub(super) fn changes_nothing(write: &StoreWrite) -> bool {
    Kind::of(write).is_none()
}

/// A part of the statement. It returns the names of the rows that it has changed.
struct Part {
    label: &'static str,
    /// The columns of the batch, with their types.
    columns: &'static [(&'static str, &'static str)],
    /// The text before and after the rows of the batch.
    before: &'static str,
    after: &'static str,
}

const NAME: (&str, &str) = ("name", "BYTEA");
const EXPECTED_INCARNATION: (&str, &str) = ("expected_incarnation", "BIGINT");
const EXPECTED_VERSION: (&str, &str) = ("expected_version", "BIGINT");
const INCARNATION: (&str, &str) = ("incarnation", "BIGINT");
const VERSION: (&str, &str) = ("version", "BIGINT");
const DATA: (&str, &str) = ("data", "TEXT");
const CHECKSUM: (&str, &str) = ("checksum", "BIGINT");
const WRITE_KEYS: (&str, &str) = ("write_keys", "TEXT");

const INSERT: &str =
    "INSERT INTO tidewire_records (name, incarnation, version, data, checksum, write_keys)
        SELECT batch.* FROM";
const IS_EXPECTED: &str = "AND stored.name = batch.name
        AND stored.incarnation = batch.expected_incarnation
        AND stored.version = batch.expected_version
        RETURNING stored.name";

/// The parts, in the order of [`Kind`].
const PARTS: [Part; KIND_COUNT] = [
    Part {
        label: "updated",
        columns: &[
            NAME,
            EXPECTED_INCARNATION,
            EXPECTED_VERSION,
            INCARNATION,
            VERSION,
            DATA,
            CHECKSUM,
            WRITE_KEYS,
        ],
        before: "UPDATE tidewire_records AS stored
        SET incarnation = batch.incarnation, version = batch.version, data = batch.data,
            checksum = batch.checksum, write_keys = batch.write_keys
        FROM",
        after: IS_EXPECTED,
    },
    Part {
        label: "inserted",
        columns: &[NAME, INCARNATION, VERSION, DATA, CHECKSUM, WRITE_KEYS],
        before: INSERT,
        after: "ON CONFLICT DO NOTHING RETURNING name",
    },
    Part {
        label: "replaced",
        columns: &[NAME, INCARNATION, VERSION, DATA, CHECKSUM, WRITE_KEYS],
        before: INSERT,
        after: "ON CONFLICT (name) DO UPDATE
        SET incarnation = excluded.incarnation, version = excluded.version, data = excluded.data,
            checksum = excluded.checksum, write_keys = excluded.write_keys
        RETURNING name",
    },
    Part {
        label: "deleted",
        columns: &[NAME, EXPECTED_INCARNATION, EXPECTED_VERSION],
        before: "DELETE FROM tidewire_records AS stored USING",
        after: IS_EXPECTED,
    },
    Part {
        label: "removed",
        columns: &[NAME],
        before: "DELETE FROM tidewire_records AS stored USING",
        after: "AND stored.name = batch.name RETURNING stored.name",
    },
];

/// The current view, and the connection for writing of the member if it belongs to that view. The statement before holds the lock of the
/// fence (`fence.rs`), so neither changes until the commit ends, and an abandoned batch that PostgreSQL runs only later writes nothing. If
/// that statement was cancelled, no transaction has begun, and this one writes nothing: outside of a transaction both times are equal.
const FENCE: &str = "fence AS MATERIALIZED (
        SELECT (SELECT value FROM tidewire_meta WHERE key = 'view') AS number,
            (SELECT connection FROM tidewire_members WHERE birth = $2 AND is_active) AS connection,
            transaction_timestamp() <> statement_timestamp() AS is_locked,
            (SELECT value FROM tidewire_meta WHERE key = 'indexes') AS indexes
    )";
const IS_TAKEN: &str =
    "(SELECT number = $1 AND connection = $3 AND is_locked AND indexes = $5 FROM fence)";

/// Parameters in front of the arrays of the parts.
const FIRST_ARRAY: usize = 6;

/// Changes entries of indexes, of the records that the parts have changed. An equal entry is not written.
const ENTRIES: &str = "
    put_entries AS (
        INSERT INTO tidewire_index_entries (number, name, key)
        SELECT entry.* FROM UNNEST($1::BIGINT[], $2::BYTEA[], $3::BYTEA[]) AS entry (number, name, key)
        WHERE entry.name IN (SELECT name FROM changed) AND NOT EXISTS (
            SELECT FROM tidewire_index_entries AS kept WHERE kept.number = entry.number
                AND kept.name = entry.name AND kept.key = entry.key)
        ON CONFLICT (number, name) DO UPDATE SET key = excluded.key
    ),
    removed_entries AS (
        DELETE FROM tidewire_index_entries AS kept
        USING UNNEST($4::BIGINT[], $5::BYTEA[]) AS entry (number, name)
        WHERE kept.number = entry.number AND kept.name = entry.name
            AND entry.name IN (SELECT name FROM changed)
    )";
const ENTRY_ARRAYS: usize = 5;

/// The parts of a batch, one bit for each kind in it, and one for entries of indexes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Shape(u8);

impl Shape {
    /// Number of different shapes.
    pub(super) const COUNT: usize = 1 << (KIND_COUNT + 1);

    pub(super) fn index(self) -> usize {
        self.0.into()
    }

    fn has(self, kind: usize) -> bool {
        self.0 & (1 << kind) != 0
    }

    /// The statement for batches of this shape. Its parameters are the view, the birth of the member, the number of its connection, the
    /// number of writes in the parts, the number of the list of indexes, and an array for each column of each part and of the entries. It
    /// returns the current view, the newest connection of the member or null if it does not belong to the view, if fewer rows than writes were
    /// changed the names of all changed rows, whether the fence was locked, and the number of the list of indexes.
    pub(super) fn statement(self) -> String {
        let mut text = format!("WITH {FENCE}");
        let mut parameter = FIRST_ARRAY;
        let parts = PARTS.iter().enumerate().filter(|(kind, _)| self.has(*kind));
        let parts: Vec<&Part> = parts.map(|(_, part)| part).collect();
        for part in &parts {
            let arrays = part
                .columns
                .iter()
                .enumerate()
                .map(|(index, (_, kind))| format!("${}::{kind}[]", parameter + index));
            let arrays: Vec<String> = arrays.collect();
            parameter += arrays.len();
            let columns: Vec<&str> = part.columns.iter().map(|(name, _)| *name).collect();
            let (arrays, columns) = (arrays.join(", "), columns.join(", "));
            let Part {
                label,
                before,
                after,
                ..
            } = part;
            write!(
                text,
                ",
    {label} AS (
        {before} UNNEST({arrays}) AS batch ({columns})
        WHERE {IS_TAKEN} {after}
    )"
            )
            .expect("a text takes everything");
        }
        let changed: Vec<String> = parts
            .iter()
            .map(|part| format!("SELECT name FROM {}", part.label))
            .collect();
        let changed = match changed.is_empty() {
            true => format!("SELECT NULL::BYTEA AS name WHERE FALSE AND {IS_TAKEN}"),
            false => changed.join(" UNION ALL "),
        };
        let entries = self.entries(parameter);
        write!(
            text,
            ",
    changed AS ({changed}){entries}
    SELECT number, connection,
        CASE WHEN (SELECT count(*) FROM changed) < $4::BIGINT THEN ARRAY(SELECT name FROM changed) END,
        is_locked, indexes
    FROM fence"
        )
        .expect("a text takes everything");
        text
    }

    /// The part for entries, with their parameters from this one on.
    fn entries(self, parameter: usize) -> String {
        if !self.has(KIND_COUNT) {
            return String::new();
        }
        let numbered = (1..=ENTRY_ARRAYS).fold(ENTRIES.to_owned(), |text, array| {
            text.replace(
                &format!("${array}:"),
                &format!("$#{}:", parameter + array - 1),
            )
        });
        format!(",{}", numbered.replace("$#", "$"))
    }
}

/// The rows of one part, as one array for each column.
#[derive(Debug, Default)]
struct Rows<'a> {
    names: Vec<&'a [u8]>,
    expected_incarnations: Vec<i64>,
    expected_versions: Vec<i64>,
    incarnations: Vec<i64>,
    versions: Vec<i64>,
    data: Vec<&'a str>,
    checksums: Vec<i64>,
    write_keys: Vec<Option<String>>,
}

impl<'a> Rows<'a> {
    fn add(&mut self, write: &'a StoreWrite, count: usize) {
        if self.names.is_empty() {
            self.names.reserve(count);
        }
        self.names.push(write.name.as_bytes());
        if let Expected::At(incarnation, version) = write.expected {
            self.expected_incarnations.push(incarnation.0.cast_signed());
            self.expected_versions.push(version.0.into());
        }
        let StoreChange::Put(record) = &write.change else {
            return;
        };
        let write_keys = record.write_keys.as_deref().map(write_keys::to_text);
        let checksum = checksum(&write.name, record, write_keys.as_deref());
        self.incarnations.push(record.incarnation.0.cast_signed());
        self.versions.push(record.version.0.into());
        self.data.push(record.data.as_str());
        self.checksums.push(checksum.into());
        self.write_keys.push(write_keys);
    }

    fn column(&self, column: (&str, &str)) -> &(dyn ToSql + Sync) {
        match column {
            EXPECTED_INCARNATION => &self.expected_incarnations,
            EXPECTED_VERSION => &self.expected_versions,
            INCARNATION => &self.incarnations,
            VERSION => &self.versions,
            DATA => &self.data,
            CHECKSUM => &self.checksums,
            WRITE_KEYS => &self.write_keys,
            _ => &self.names,
        }
    }
}

/// The entries of a batch, as one array for each column.
#[derive(Debug, Default)]
struct EntryRows<'a> {
    put_numbers: Vec<i64>,
    put_names: Vec<&'a [u8]>,
    keys: Vec<&'a [u8]>,
    removed_numbers: Vec<i64>,
    removed_names: Vec<&'a [u8]>,
}

impl<'a> EntryRows<'a> {
    fn new(writes: &'a [StoreWrite], entries: &'a [Entry]) -> Self {
        let mut rows = Self::default();
        for entry in entries {
            let name = writes[entry.write_index].name.as_bytes();
            match &entry.key {
                Some(key) => {
                    rows.put_numbers.push(entry.number);
                    rows.put_names.push(name);
                    rows.keys.push(key);
                }
                None => {
                    rows.removed_numbers.push(entry.number);
                    rows.removed_names.push(name);
                }
            }
        }
        rows
    }

    fn arrays(&self) -> [&(dyn ToSql + Sync); ENTRY_ARRAYS] {
        [
            &self.put_numbers,
            &self.put_names,
            &self.keys,
            &self.removed_numbers,
            &self.removed_names,
        ]
    }
}

/// The writes of a batch by their kind, and its entries of indexes.
#[derive(Debug, Default)]
pub(super) struct Columns<'a> {
    parts: [Rows<'a>; KIND_COUNT],
    entries: Option<EntryRows<'a>>,
}

impl<'a> Columns<'a> {
    pub(super) fn new(writes: &'a [StoreWrite], entries: &'a [Entry]) -> Self {
        let mut columns = Self::default();
        if !entries.is_empty() {
            columns.entries = Some(EntryRows::new(writes, entries));
        }
        for write in writes {
            if let Some(kind) = Kind::of(write) {
                columns.parts[kind as usize].add(write, writes.len());
            }
        }
        columns
    }

    /// The number of writes that can change something.
    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(|rows| rows.names.len()).sum()
    }

    pub(super) fn shape(&self) -> Shape {
        let parts = self.parts.iter().enumerate();
        let used = parts.filter(|(_, rows)| !rows.names.is_empty());
        let kinds = used.fold(0, |bits, (kind, _)| bits | 1 << kind);
        Shape(kinds | u8::from(self.entries.is_some()) << KIND_COUNT)
    }

    /// The arrays for the statement of its shape.
    pub(super) fn arrays(&self) -> impl Iterator<Item = &(dyn ToSql + Sync)> {
        let used = std::iter::zip(&PARTS, &self.parts).filter(|(_, rows)| !rows.names.is_empty());
        let columns =
            used.flat_map(|(part, rows)| part.columns.iter().map(|column| rows.column(*column)));
        columns.chain(self.entries.iter().flat_map(EntryRows::arrays))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_has_a_parameter_for_each_array() {
        for bits in 0..Shape::COUNT {
            let shape = Shape(u8::try_from(bits).unwrap());
            let text = shape.statement();
            let used = PARTS
                .iter()
                .enumerate()
                .filter(|(kind, _)| shape.has(*kind));
            let arrays: usize = used.map(|(_, part)| part.columns.len()).sum();
            let arrays = arrays
                + if shape.has(KIND_COUNT) {
                    ENTRY_ARRAYS
                } else {
                    0
                };
            for parameter in 1..FIRST_ARRAY + arrays {
                let is_used = text
                    .split('$')
                    .skip(1)
                    .filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next())
                    .any(|number| number == parameter.to_string());
                assert!(is_used, "${parameter} of {text}");
            }
            assert!(
                !text.contains(&format!("${}", FIRST_ARRAY + arrays)),
                "{text}"
            );
        }
    }
}

//! A batch in MongoDB: its commands, and the outcome of each write.
//!
//! A write changes a document only if the document is as expected and no writer with a higher number has written it. An insert
//! can't depend on such a condition. So a write that may create a record first reserves the name with the number of its writer, and
//! fills the reservation only after MongoDB has confirmed it. A reservation that MongoDB makes late holds no record. An abandoned
//! reservation is never filled, because the next writer of the name sets a higher number or removes it.

use mongodb::bson::{Document, doc};
use tidewire_core::store::{
    Expected, Loaded, StoreChange, StoreError, StoreWrite, StoredRecord, Written,
};
use tidewire_core::text::Name;

use super::key;
use super::location::{DUPLICATE_KEY, Failed, Location};
use crate::{checksum, write_keys};

/// Maximum number of writes in one command.
const COUNT_MAX: usize = 1_000;
/// Maximum size of one command in bytes. MongoDB's own limit leaves room for one further value of the largest size that can be
/// configured.
const BYTES_MAX: usize = 12 << 20;
/// Maximum size of a write in bytes, without its name and value.
const WRITE_BYTES: usize = 512;

/// Does each write whose expected state is stored, with this writer number.
pub(super) fn commit(
    location: &Location,
    writer: i64,
    writes: &[StoreWrite],
) -> Result<Vec<Written>, StoreError> {
    let mut written = Vec::with_capacity(writes.len());
    let mut rest = writes;
    while !rest.is_empty() {
        let (part, others) = rest.split_at(part_len(rest));
        rest = others;
        written.extend(commit_part(location, writer, part)?);
    }
    Ok(written)
}

/// How many of the next writes fit into one command of each kind; at least one.
fn part_len(writes: &[StoreWrite]) -> usize {
    let mut bytes = 0;
    let fitting = writes.iter().take(COUNT_MAX).take_while(|write| {
        let data = match &write.change {
            // The text of write keys is longer than the keys in memory where characters have to be escaped.
            StoreChange::Put(record) => {
                let keys = record.write_keys.as_ref().map_or(0, |keys| keys.bytes());
                record.data.len() + 6 * keys
            }
            StoreChange::Delete => 0,
        };
        bytes += 7 * write.name.len() + data + WRITE_BYTES;
        bytes <= BYTES_MAX
    });
    fitting.count().max(1)
}

fn commit_part(
    location: &Location,
    writer: i64,
    writes: &[StoreWrite],
) -> Result<Vec<Written>, StoreError> {
    let collection = location.records::<Document>();
    let records = collection.name();
    let reservations: Vec<_> = writes
        .iter()
        .filter_map(|w| reservation(w, writer))
        .collect();
    if !reservations.is_empty() {
        let answer = location.run(doc! {
            "update": records, "updates": reservations, "ordered": false, "writeConcern": { "w": 1 },
        })?;
        single_errors(&answer, |failed| failed.code == Some(DUPLICATE_KEY))?;
    }
    let mut done = 0;
    let puts: Vec<_> = writes.iter().filter_map(|w| put(w, writer)).collect();
    if !puts.is_empty() {
        done +=
            count(&location.write(doc! { "update": records, "updates": puts, "ordered": false })?)?;
    }
    let deletes: Vec<_> = writes.iter().filter_map(|w| delete(w, writer)).collect();
    if !deletes.is_empty() {
        done += count(
            &location.write(doc! { "delete": records, "deletes": deletes, "ordered": false })?,
        )?;
    }
    if done == writes.len() {
        return Ok(vec![Written::Done; done]);
    }
    // MongoDB does not report which writes it has done. No other server has written since, so the stored records show it.
    let names: Vec<Name> = writes.iter().map(|write| write.name.clone()).collect();
    let found = super::load(location, &names)?;
    std::iter::zip(writes, found)
        .map(|(write, found)| outcome(write, &found))
        .collect()
}

/// The outcome of a write, found by the record that is stored now.
fn outcome(write: &StoreWrite, found: &Loaded) -> Result<Written, StoreError> {
    let stored = match found {
        Loaded::Found(record) => Some(record),
        Loaded::Missing => None,
        Loaded::Corrupt => return Ok(Written::Refused),
    };
    if write.change.is_done(stored) {
        Ok(Written::Done)
    } else if write.expected.is_met(stored) {
        Err(StoreError::unavailable(
            "MongoDB has not done a write whose condition is met; another server may have written in between",
        ))
    } else {
        Ok(Written::Refused)
    }
}

/// Reserves the name of a record that the write may create.
fn reservation(write: &StoreWrite, writer: i64) -> Option<Document> {
    let makes = matches!(write.change, StoreChange::Put(_))
        && matches!(write.expected, Expected::Missing | Expected::Anything);
    makes.then(|| {
        doc! {
            "q": { "_id": key::from_name(&write.name), "reserved": true, "writer": { "$lt": writer } },
            "u": { "$set": { "writer": writer } },
            "upsert": true,
        }
    })
}

/// The filter for the document of a write in its expected state. If no record is expected, it matches the writer's own reservation.
fn expected(write: &StoreWrite, writer: i64) -> Document {
    let id = key::from_name(&write.name);
    match write.expected {
        Expected::Missing => doc! { "_id": id, "reserved": true, "writer": writer },
        Expected::At(incarnation, version) => doc! {
            "_id": id,
            "incarnation": incarnation.0.to_string(),
            "version": i64::from(version.0),
            "writer": { "$lte": writer },
        },
        Expected::Anything => doc! {
            "_id": id,
            "$or": [
                { "writer": writer },
                { "writer": { "$lt": writer }, "reserved": { "$exists": false } },
            ],
        },
    }
}

fn put(write: &StoreWrite, writer: i64) -> Option<Document> {
    let StoreChange::Put(record) = &write.change else {
        return None;
    };
    Some(doc! { "q": expected(write, writer), "u": document(&write.name, record, writer) })
}

fn document(name: &Name, record: &StoredRecord, writer: i64) -> Document {
    let write_keys = record.write_keys.as_deref().map(write_keys::to_text);
    let mut document = doc! {
        "incarnation": record.incarnation.0.to_string(),
        "version": i64::from(record.version.0),
        "checksum": i64::from(checksum(name, record, write_keys.as_deref())),
        "data": record.data.as_str(),
        "writer": writer,
    };
    if let Some(text) = write_keys {
        document.insert("write_keys", text);
    }
    document
}

/// The delete command of a write. A delete that expects no record has nothing to do.
fn delete(write: &StoreWrite, writer: i64) -> Option<Document> {
    let filter = match (&write.change, write.expected) {
        (StoreChange::Put(_), _) | (_, Expected::Missing) => return None,
        // Also removes an abandoned reservation.
        (StoreChange::Delete, Expected::Anything) => {
            doc! { "_id": key::from_name(&write.name), "writer": { "$lte": writer } }
        }
        (StoreChange::Delete, Expected::At(..)) => expected(write, writer),
    };
    Some(doc! { "q": filter, "limit": 1 })
}

/// How many documents a command has changed.
///
/// # Errors
/// One of its writes has failed.
fn count(answer: &Document) -> Result<usize, Failed> {
    single_errors(answer, |_| false)?;
    let done = super::number(answer, "n").unwrap_or(0);
    Ok(usize::try_from(done).unwrap_or(0))
}

/// The first error of a single write that is not harmless.
pub(super) fn single_errors(
    answer: &Document,
    is_harmless: impl Fn(&Failed) -> bool,
) -> Result<(), Failed> {
    let errors = answer.get_array("writeErrors");
    let errors = errors.map_or(&[][..], Vec::as_slice);
    let failed = errors.iter().filter_map(|error| error.as_document());
    let mut failed = failed.map(Failed::from_answer);
    failed
        .find(|failed| !is_harmless(failed))
        .map_or(Ok(()), Err)
}

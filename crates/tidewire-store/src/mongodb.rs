//! The store in MongoDB. Contract: `spec/store-mongodb.md`.
//!
//! Each record is one document, which changes atomically. A batch is not a transaction: each write names the expected state and the
//! number of its writer. So if MongoDB does an abandoned write late, the write can't replace a newer one.

mod batch;
mod key;
pub mod location;

use std::collections::HashMap;
use std::ops::Bound;

use mongodb::bson::{Bson, Document, RawDocumentBuf, doc};
use mongodb::error::Error;
use tidewire_core::address::Epoch;
use tidewire_core::store::{
    Incarnation, Loaded, MemberId, Opened, Store, StoreError, StoreReader, StoreWrite,
    StoredRecord, Version, View, Written,
};
use tidewire_core::text::{Name, Payload};

use self::location::{DUPLICATE_KEY, Failed, Location};
use super::range::ScanRange;
use super::remote::{Membership, OpenStore, RemoteError, RemoteOptions, refuse_format};
use super::{checksum, epoch_after, write_keys};

/// The version of the stored format, see `spec/store-mongodb.md`.
pub const FORMAT: i64 = 2;

/// The id of the only document in `tidewire_meta`.
const META_ID: &str = "store";

/// Maximum number of names that one request looks up.
const LOAD_COUNT_MAX: usize = 1_000;

/// The writing half.
pub struct MongodbStore {
    location: Location,
    opened: Opened,
    /// The number of this writer, higher than that of all earlier writers; `None` after a failed request.
    writer: Option<i64>,
    closed: bool,
}

/// The reading half.
pub struct MongodbReader {
    location: Location,
}

/// The document with the store's state.
struct Meta {
    format: i64,
    epoch: Epoch,
    opening: i64,
    writer: i64,
    is_clean: bool,
}

impl MongodbStore {
    /// Opens the store of a database.
    ///
    /// # Errors
    /// The server can't be reached or used, or may lose acknowledged writes.
    pub fn open(options: RemoteOptions) -> Result<OpenStore, RemoteError> {
        if options.membership != Membership::Alone {
            let cause = "MongoDB can't be shared by several members; use PostgreSQL or Redis";
            return Err(RemoteError::Refused(cause.to_owned()));
        }
        let mut location = Location::new(options)?;
        let promise = location.promise()?;
        let (opened, writer) = begin(&location)?;
        let store = Self {
            location,
            opened,
            writer: Some(writer),
            closed: false,
        };
        Ok(OpenStore {
            store: Box::new(store),
            opened,
            promise,
        })
    }

    /// The writer number for the next request. After a failure it is a new one, because MongoDB may still do writes with the earlier
    /// number, which must not mix with new ones.
    fn take_writer(&mut self) -> Result<i64, StoreError> {
        if self.closed {
            return Err(StoreError::unavailable("the store is closed"));
        }
        if let Some(writer) = self.writer.take() {
            return Ok(writer);
        }
        self.location.promise()?;
        let answer = self.location.write(doc! {
            "findAndModify": self.location.meta().name(),
            "query": { "_id": META_ID, "opening": self.opened.opening.cast_signed() },
            "update": { "$inc": { "writer": 1_i64 } },
            "new": true,
        })?;
        // If no document matches, another server has opened the store, and the commit fails when it checks the writer.
        Ok(answer
            .get_document("value")
            .map_or(0, |meta| number(meta, "writer").unwrap_or(0)))
    }

    /// Fails unless this server is still the writer.
    fn check_writer(&self, view: View, member: MemberId, writer: i64) -> Result<(), StoreError> {
        let meta = read_meta(&self.location)?;
        let current = View(meta.as_ref().map_or(0, |meta| meta.opening).cast_unsigned());
        if current > view || member != self.opened.member() {
            return Err(StoreError::stale_view(view, current, false));
        }
        if current < view || meta.is_none_or(|meta| meta.writer != writer) {
            let message = "the store in MongoDB was replaced while it was in use";
            return Err(StoreError::unavailable(message));
        }
        Ok(())
    }
}

impl Store for MongodbStore {
    fn reader(&mut self) -> Result<Box<dyn StoreReader>, StoreError> {
        Ok(Box::new(MongodbReader {
            location: self.location.clone(),
        }))
    }

    fn commit(
        &mut self,
        view: View,
        member: MemberId,
        writes: &[StoreWrite],
    ) -> Result<Vec<Written>, StoreError> {
        let writer = self.take_writer()?;
        self.check_writer(view, member, writer)?;
        let written = batch::commit(&self.location, writer, writes)?;
        // A server that opens the store must find every acknowledged write. So if another server has opened the store by now, this batch is
        // not acknowledged.
        self.check_writer(view, member, writer).map_err(|error| {
            StoreError::unavailable(format!("while a batch was written: {error}"))
        })?;
        self.writer = Some(writer);
        Ok(written)
    }

    fn close(&mut self) -> Result<(), StoreError> {
        self.take_writer()?;
        self.location.write(doc! {
            "findAndModify": self.location.meta().name(),
            "query": { "_id": META_ID, "opening": self.opened.opening.cast_signed() },
            "update": { "$set": { "clean": true } },
        })?;
        self.closed = true;
        Ok(())
    }
}

impl MongodbReader {
    /// A reader of a store that it does not open, so a running server can continue to use the store.
    ///
    /// # Errors
    /// The server can't be reached or used, or holds no store that this version can read.
    pub fn read_only(options: RemoteOptions) -> Result<Self, RemoteError> {
        let mut location = Location::new(options)?;
        location.promise()?;
        let meta = read_meta(&location)?;
        refuse_format(meta.map(|meta| meta.format), FORMAT)?;
        Ok(Self { location })
    }
}

impl StoreReader for MongodbReader {
    fn load(&mut self, names: &[Name]) -> Result<Vec<Loaded>, StoreError> {
        load(&self.location, names)
    }

    fn scan(
        &mut self,
        prefix: &str,
        after: Option<&Name>,
        count_max: usize,
        visit: &mut dyn FnMut(Name, Loaded),
    ) -> Result<bool, StoreError> {
        let range = ScanRange::new(prefix, after, count_max);
        let mut ids = match range.start {
            Bound::Excluded(after) => doc! { "$gt": key::from_name(after) },
            Bound::Included(first) => doc! { "$gte": key::from_name(first) },
            Bound::Unbounded => doc! {},
        };
        if let Some(end) = &range.end {
            ids.insert("$lt", key::from_name(end));
        }
        let filter = doc! { "_id": ids, "reserved": { "$exists": false } };
        let found = find(&self.location, filter, Some(range.limit))?;
        for document in found.iter().take(count_max) {
            let (name, loaded) = read_record(document);
            visit(Name::from(&*name), loaded);
        }
        Ok(found.len() > count_max)
    }
}

/// Finds records. Returns one result for each name, in the order of the names.
fn load(location: &Location, names: &[Name]) -> Result<Vec<Loaded>, StoreError> {
    let mut found = HashMap::with_capacity(names.len());
    for names in names.chunks(LOAD_COUNT_MAX) {
        let keys: Vec<_> = names.iter().map(|name| key::from_name(name)).collect();
        for document in find(location, doc! { "_id": { "$in": keys } }, None)? {
            let (name, loaded) = read_record(&document);
            found.insert(name, loaded);
        }
    }
    let find = |name: &Name| found.get(name.as_str()).cloned();
    Ok(names
        .iter()
        .map(|name| find(name).unwrap_or(Loaded::Missing))
        .collect())
}

/// Finds documents of records. If there is a limit, they are in the order of their keys.
fn find(
    location: &Location,
    filter: Document,
    limit: Option<i64>,
) -> Result<Vec<RawDocumentBuf>, Failed> {
    let records = location.records::<RawDocumentBuf>();
    location.wait(async {
        let mut find = records.find(filter);
        if let Some(limit) = limit {
            find = find.sort(doc! { "_id": 1 }).limit(limit);
        }
        let mut cursor = find.await?;
        let mut found = Vec::new();
        while cursor.advance().await? {
            found.push(cursor.current().to_owned());
        }
        Ok::<_, Error>(found)
    })
}

/// The name of a document and its record. If the record does not pass its checksum, it is corrupt.
fn read_record(document: &RawDocumentBuf) -> (String, Loaded) {
    let key = document.get_str("_id").unwrap_or_default();
    let Some(name) = key::to_name(key) else {
        return (key.to_owned(), Loaded::Corrupt);
    };
    if document.get_bool("reserved").ok() == Some(true) {
        return (name, Loaded::Missing);
    }
    let sound = || {
        let keys_text = match document.get("write_keys").ok()? {
            Some(text) => Some(text.as_str()?),
            None => None,
        };
        let record = StoredRecord {
            incarnation: Incarnation(document.get_str("incarnation").ok()?.parse().ok()?),
            version: Version(u32::try_from(document.get_i64("version").ok()?).ok()?),
            data: Payload::from_checked(document.get_str("data").ok()?),
            write_keys: write_keys::of_row(keys_text)?,
        };
        let expected = i64::from(checksum(&name, &record, keys_text));
        (document.get_i64("checksum").ok()? == expected).then_some(record)
    };
    let loaded = sound().map_or(Loaded::Corrupt, Loaded::Found);
    (name, loaded)
}

/// Stores the opening, and returns it with the writer number. Refuses a store of a newer version.
fn begin(location: &Location) -> Result<(Opened, i64), RemoteError> {
    loop {
        let Some(meta) = read_meta(location)? else {
            let first = doc! {
                "_id": META_ID, "format": FORMAT, "epoch": 0_i64, "opening": 0_i64, "writer": 0_i64, "clean": false,
            };
            let made =
                location.write(doc! { "insert": location.meta().name(), "documents": [first] })?;
            batch::single_errors(&made, |failed| failed.code == Some(DUPLICATE_KEY))?;
            continue;
        };
        refuse_format(Some(meta.format), FORMAT)?;
        let epoch = if meta.is_clean {
            meta.epoch
        } else {
            epoch_after(meta.epoch)
        };
        let opening = meta.opening + 1;
        let writer = meta.writer + 1;
        // If another server has opened the store since the read, the query does not match, and the loop reads the document again.
        let answer = location.write(doc! {
            "findAndModify": location.meta().name(),
            "query": { "_id": META_ID, "opening": meta.opening, "writer": meta.writer },
            "update": { "$set": {
                "format": FORMAT, "epoch": epoch.0.cast_signed(), "opening": opening, "writer": writer,
                "clean": false,
            } },
        })?;
        if answer.get_document("value").is_ok() {
            let opening = opening.cast_unsigned();
            return Ok((Opened { epoch, opening }, writer));
        }
    }
}

/// Reads the document with the store's state, if there is one.
fn read_meta(location: &Location) -> Result<Option<Meta>, Failed> {
    let meta = location.meta();
    let found = location.wait(meta.find_one(doc! { "_id": META_ID }).into_future())?;
    let Some(found) = found else {
        return Ok(None);
    };
    let value = |field: &str| {
        number(&found, field)
            .ok_or_else(|| Failed::wrong(format!("tidewire_meta has no {field:?}")))
    };
    Ok(Some(Meta {
        format: value("format")?,
        epoch: Epoch(value("epoch")?.cast_unsigned()),
        opening: value("opening")?,
        writer: value("writer")?,
        is_clean: found.get_bool("clean").ok() == Some(true),
    }))
}

/// An integer field, stored with 32 or 64 bits.
fn number(document: &Document, field: &str) -> Option<i64> {
    match document.get(field)? {
        Bson::Int32(number) => Some(i64::from(*number)),
        Bson::Int64(number) => Some(*number),
        _ => None,
    }
}

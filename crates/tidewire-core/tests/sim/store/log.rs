//! A store that appends transactions to one file. Each transaction ends where the next one begins; each value has its own
//! checksum.
//!
//! The head of the file contains the offset up to which the file is known to be synced. When the store opens, it writes every
//! whole transaction after that offset again: a transaction that is readable might still not survive a power cut. Each
//! transaction contains the number of the previous one, so the store never takes leftover bytes of an older transaction for a new
//! one.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidewire_core::store::{
    Incarnation, Loaded, MemberId, Store, StoreChange, StoreError, StoreReader, StoreTrouble,
    StoreWrite, StoredRecord, Version, View, Written,
};
use tidewire_core::text::{Name, Payload};

use crate::disk::{Disk, DiskError};
use crate::tally::Tally;

/// Bytes of one number.
const WORD: usize = 8;
/// The bytes before the first transaction: the synced offset and its checksum.
const HEAD: usize = 2 * WORD;
/// The header of a transaction: its number, the previous number, its length, and a checksum of these three.
const HEADER: usize = 4 * WORD;

/// The position of a record's newest entry.
#[derive(Clone, Copy, Debug)]
struct LogPosition {
    transaction: u64,
    at: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Log {
    disk: Disk,
    /// The view of the last opening.
    view: View,
    index: BTreeMap<String, LogPosition>,
    /// The end offset of the last transaction; `last` is its number.
    end: usize,
    last: u64,
    /// The number of the next transaction. The store uses no number twice, not even the number of a transaction that was cut off.
    next: u64,
    is_open: bool,
    /// False while a planted fault skips the sync.
    syncs: bool,
    /// A planted fault: after a failed sync the store retries only the sync.
    only_syncs_again: bool,
    met: Tally,
}

/// See the documentation of this module.
#[derive(Debug)]
pub struct LogStore {
    log: Arc<Mutex<Log>>,
}

impl LogStore {
    /// Creates a store on an empty disk.
    pub fn new(seed: u64) -> Self {
        let log = Log {
            disk: Disk::new(seed),
            view: View(0),
            index: BTreeMap::new(),
            end: HEAD,
            last: 0,
            next: 1,
            is_open: false,
            syncs: true,
            only_syncs_again: false,
            met: Tally::default(),
        };
        Self {
            log: Arc::new(Mutex::new(log)),
        }
    }

    /// Opens the store after any failure: finds the whole transactions and makes them durable.
    pub fn open(&mut self, view: View) -> Result<(), StoreError> {
        let mut log = self.log();
        log.is_open = false;
        log.view = view;
        log.recover(None).map_err(refusal)
    }

    /// Gives access to the disk, for example to plan failures.
    pub fn disk<T>(&mut self, act: impl FnOnce(&mut Disk) -> T) -> T {
        act(&mut self.log().disk)
    }

    /// Sets whether commits sync their writes. The default is true.
    pub fn set_syncs(&mut self, syncs: bool) {
        self.log().syncs = syncs;
    }

    /// Plants the fault: after a failed sync the store retries only the sync.
    pub fn only_sync_again(&mut self) {
        self.log().only_syncs_again = true;
    }

    /// The number that the next transaction gets.
    pub fn next_transaction(&self) -> u64 {
        self.log().next
    }

    /// The transaction that last wrote a name, or 0 if the store does not have the name.
    pub fn origin(&self, name: &str) -> u64 {
        let log = self.log();
        log.index
            .get(name)
            .map_or(0, |position| position.transaction)
    }

    /// Flips a bit in the value of a record. It spares the last transaction, where a flipped bit looks like a torn write. Returns
    /// false if no other record exists.
    pub fn flip_one(&mut self, which: usize) -> bool {
        let mut log = self.log();
        let (last, end) = (log.last, log.end);
        let old: Vec<LogPosition> = log
            .index
            .values()
            .filter(|position| position.transaction != last && position.at < end)
            .copied()
            .collect();
        if old.is_empty() {
            return false;
        }
        let position = old[which % old.len()];
        let Ok(file) = log.disk.read() else {
            return false;
        };
        let value = value_of(&file[position.at..position.at + position.bytes]);
        log.disk.flip(position.at + value.start, value.len());
        true
    }

    /// How often each outcome occurred, at the functions of the trait and on the disk.
    pub fn met(&self) -> Tally {
        let log = self.log();
        let mut met = log.met.clone();
        met.merge(&log.disk.met);
        met
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for LogStore {
    fn reader(&mut self) -> Result<Box<dyn StoreReader>, StoreError> {
        let mut log = self.log();
        if let Err(error) = log.disk.read() {
            log.met.add("store: reader failed");
            return Err(refusal(error));
        }
        drop(log);
        Ok(Box::new(LogReader(self.log.clone())))
    }

    fn commit(
        &mut self,
        view: View,
        _: MemberId,
        writes: &[StoreWrite],
    ) -> Result<Vec<Written>, StoreError> {
        let mut log = self.log();
        if view < log.view {
            log.met.add("store: commit failed, stale view");
            return Err(StoreError::stale_view(view, log.view, false));
        }
        let outcome = log.reopen().and_then(|()| log.commit(writes));
        log.met.add(match &outcome {
            Ok(written) if written.contains(&Written::Refused) => {
                "store: commit done, and a write of it refused"
            }
            Ok(_) => "store: commit done",
            Err(DiskError::Full) => "store: commit failed, full",
            Err(DiskError::Sync) => "store: commit failed, not synced",
            Err(_) => "store: commit failed, not written",
        });
        outcome.map_err(refusal)
    }

    fn tidy(&mut self) -> Result<(), StoreError> {
        let mut log = self.log();
        let outcome = log.reopen().and_then(|()| log.mark_synced());
        log.met.add(match outcome {
            Ok(()) => "store: tidied",
            Err(_) => "store: tidying failed",
        });
        outcome.map_err(refusal)
    }

    fn close(&mut self) -> Result<(), StoreError> {
        let mut log = self.log();
        let outcome = log.reopen().and_then(|()| log.mark_synced());
        log.met.add(match outcome {
            Ok(()) => "store: closed",
            Err(_) => "store: closing failed",
        });
        outcome.map_err(refusal)
    }
}

/// The store's reader.
#[derive(Debug)]
struct LogReader(Arc<Mutex<Log>>);

impl StoreReader for LogReader {
    fn load(&mut self, names: &[Name]) -> Result<Vec<Loaded>, StoreError> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let log = &mut *log;
        let file = match log.disk.read() {
            Ok(file) => file,
            Err(error) => {
                log.met.add("store: load failed");
                return Err(refusal(error));
            }
        };
        let mut loaded = Vec::with_capacity(names.len());
        for name in names {
            loaded.push(match log.index.get(name.as_str()) {
                None => Loaded::Missing,
                Some(position) => decode(file, *position),
            });
        }
        for record in &loaded {
            log.met.add(match record {
                Loaded::Found(_) => "store: loaded",
                Loaded::Missing => "store: loaded nothing",
                Loaded::Corrupt => "store: loaded what is corrupt",
            });
        }
        Ok(loaded)
    }

    fn scan(
        &mut self,
        prefix: &str,
        after: Option<&Name>,
        count_max: usize,
        visit: &mut dyn FnMut(Name, Loaded),
    ) -> Result<bool, StoreError> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let log = &mut *log;
        let file = match log.disk.read() {
            Ok(file) => file,
            Err(error) => {
                log.met.add("store: scan failed");
                return Err(refusal(error));
            }
        };
        let after = after.map_or("", Name::as_str);
        let mut found = log
            .index
            .range(prefix.to_owned()..)
            .take_while(|(name, _)| name.starts_with(prefix))
            .filter(|(name, _)| name.as_str() > after)
            .map(|(name, position)| (name, decode(file, *position)))
            .filter(|(_, loaded)| *loaded != Loaded::Missing);
        for (name, loaded) in found.by_ref().take(count_max) {
            visit(Name::from(name.as_str()), loaded);
        }
        let has_more = found.next().is_some();
        log.met.add("store: scanned");
        Ok(has_more)
    }
}

impl Log {
    /// Opens the log again if an operation has failed. The log keeps the part that this process knows to be synced, and drops the
    /// rest.
    fn reopen(&mut self) -> Result<(), DiskError> {
        if self.is_open {
            return Ok(());
        }
        self.recover(Some(self.end))
    }

    fn commit(&mut self, writes: &[StoreWrite]) -> Result<Vec<Written>, DiskError> {
        let (mut written, mut to_do) = (Vec::new(), Vec::new());
        let file = self.disk.read()?;
        for write in writes {
            let position = self.index.get(write.name.as_str());
            let stored = position.map(|position| decode(file, *position));
            let (is_done, is_met) = match &stored {
                None | Some(Loaded::Missing) => {
                    (write.change.is_done(None), write.expected.is_met(None))
                }
                Some(Loaded::Found(record)) => (
                    write.change.is_done(Some(record)),
                    write.expected.is_met(Some(record)),
                ),
                // The stored value is unknown, and the owner has the whole record, so its write is due.
                Some(Loaded::Corrupt) => (false, true),
            };
            if !is_done && is_met {
                to_do.push(write);
            }
            written.push(match is_done || is_met {
                true => Written::Done,
                false => Written::Refused,
            });
        }
        self.append(&to_do)?;
        Ok(written)
    }

    fn append(&mut self, writes: &[&StoreWrite]) -> Result<(), DiskError> {
        let transaction = self.next;
        self.next += 1;
        let (frame, entries) = encode(transaction, self.last, writes);
        let written = self.disk.write(self.end, &frame);
        let outcome = match written {
            Ok(()) if self.syncs => match self.disk.sync() {
                Err(DiskError::Sync) if self.only_syncs_again => self.disk.sync(),
                outcome => outcome,
            },
            outcome => outcome,
        };
        if outcome.is_err() {
            self.is_open = false;
            return outcome;
        }
        for (write, (at, bytes)) in writes.iter().zip(entries) {
            let position = LogPosition {
                transaction,
                at: self.end + at,
                bytes,
            };
            self.index.insert(write.name.to_string(), position);
        }
        self.end += frame.len();
        self.last = transaction;
        Ok(())
    }

    /// Reads the file up to `end`, or up to the first transaction that is not whole, and makes that part durable.
    fn recover(&mut self, end: Option<usize>) -> Result<(), DiskError> {
        let file = self.disk.read()?;
        let synced = synced_up_to(file).unwrap_or(HEAD);
        let (mut at, mut last, mut index) = (HEAD, 0, BTreeMap::new());
        while let Some((transaction, bytes)) = header(file, at, last)
            && end.is_none_or(|end| at + bytes <= end)
        {
            let next = at + bytes;
            let positions = entries_of(file, at, bytes);
            let is_last = header(file, next, transaction).is_none();
            let is_whole = positions.as_ref().is_some_and(|positions| {
                let mut entries = positions.iter().map(|(_, at, bytes)| LogPosition {
                    transaction,
                    at: *at,
                    bytes: *bytes,
                });
                entries.all(|position| decode(file, position) != Loaded::Corrupt)
            });
            // After the last sync, broken data comes from a torn write. Before it, the data was whole once, so it has been
            // corrupted.
            let is_torn = is_last && next > synced.max(end.unwrap_or(0)) && !is_whole;
            let Some(positions) = positions.filter(|_| !is_torn) else {
                break;
            };
            for (name, at, bytes) in positions {
                let position = LogPosition {
                    transaction,
                    at,
                    bytes,
                };
                index.insert(name, position);
            }
            (at, last) = (next, transaction);
        }
        let unsure = file.get(synced.min(at)..at).unwrap_or_default().to_vec();
        self.next = self.next.max(last + 1);
        self.disk.write(synced.min(at), &unsure)?;
        (self.index, self.end, self.last) = (index, at, last);
        self.mark_synced()?;
        self.is_open = true;
        Ok(())
    }

    /// Syncs the file, then records in the head that everything up to the end is synced.
    fn mark_synced(&mut self) -> Result<(), DiskError> {
        self.disk.sync()?;
        let end = self.end as u64;
        let mut head = end.to_le_bytes().to_vec();
        head.extend(checksum(&end).to_le_bytes());
        self.disk.write(0, &head)?;
        self.disk.sync()
    }
}

fn refusal(error: DiskError) -> StoreError {
    let message = format!("the simulated disk failed: {error:?}");
    match error {
        DiskError::Full => StoreError {
            message,
            trouble: StoreTrouble::Full,
        },
        _ => StoreError::unavailable(message),
    }
}

fn checksum<T: Hash + ?Sized>(what: &T) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

fn word(file: &[u8], at: usize) -> Option<u64> {
    let bytes = file.get(at..at + WORD)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

fn synced_up_to(file: &[u8]) -> Option<usize> {
    let end = word(file, 0)?;
    (word(file, WORD)? == checksum(&end)).then_some(end as usize)
}

/// The number and length of the transaction at this offset, if it follows the transaction `last`.
fn header(file: &[u8], at: usize, last: u64) -> Option<(u64, usize)> {
    let words = [0, 1, 2].map(|index| word(file, at + index * WORD));
    let [Some(number), Some(before), Some(bytes)] = words else {
        return None;
    };
    let is_right = word(file, at + 3 * WORD)? == checksum(&[number, before, bytes]);
    (is_right && before == last && number > last).then_some((number, HEADER + bytes as usize))
}

/// The name, offset and length of each entry of a transaction, or `None` if an entry does not fit.
fn entries_of(file: &[u8], at: usize, bytes: usize) -> Option<Vec<(String, usize, usize)>> {
    let end = at + bytes;
    let (mut at, mut found) = (at + HEADER, Vec::new());
    if file.len() < end {
        return None;
    }
    while at < end {
        let (bytes, name_bytes) = (word(file, at)? as usize, word(file, at + WORD)? as usize);
        let name = file.get(at + 2 * WORD..at + 2 * WORD + name_bytes)?;
        if bytes < 2 * WORD || at + bytes > end {
            return None;
        }
        found.push((String::from_utf8(name.to_vec()).ok()?, at, bytes));
        at += bytes;
    }
    Some(found)
}

/// Encodes a transaction; also returns the offset and length of each entry in it.
fn encode(number: u64, before: u64, writes: &[&StoreWrite]) -> (Vec<u8>, Vec<(usize, usize)>) {
    let mut frame = vec![0; HEADER];
    let mut entries = Vec::new();
    for write in writes {
        let start = frame.len();
        let (incarnation, version, data) = match &write.change {
            StoreChange::Put(record) => (
                record.incarnation.0,
                u64::from(record.version.0),
                record.data.as_str(),
            ),
            StoreChange::Delete => (0, u64::MAX, ""),
        };
        let bytes = 5 * WORD + write.name.len() + data.len();
        for word in [bytes as u64, write.name.len() as u64] {
            frame.extend(word.to_le_bytes());
        }
        frame.extend(write.name.as_bytes());
        for word in [incarnation, version] {
            frame.extend(word.to_le_bytes());
        }
        frame.extend(data.as_bytes());
        let sum = checksum(&(number, &frame[start..]));
        frame.extend(sum.to_le_bytes());
        entries.push((start, bytes));
    }
    let header = [number, before, (frame.len() - HEADER) as u64];
    for (index, word) in header.iter().chain([&checksum(&header)]).enumerate() {
        frame[index * WORD..][..WORD].copy_from_slice(&word.to_le_bytes());
    }
    (frame, entries)
}

/// The range of the value in an entry: incarnation, version and data.
fn value_of(entry: &[u8]) -> std::ops::Range<usize> {
    let name_bytes = word(entry, WORD).map_or(0, |bytes| bytes as usize);
    2 * WORD + name_bytes..entry.len() - WORD
}

/// Decodes the record of an entry. The checksum covers the number of the transaction, because a new transaction may overwrite a
/// failed one. After a power cut, some sectors may contain the new transaction and others the failed one.
fn decode(file: &[u8], position: LogPosition) -> Loaded {
    let entry = &file[position.at..position.at + position.bytes];
    let value = value_of(entry);
    if word(entry, value.end) != Some(checksum(&(position.transaction, &entry[..value.end]))) {
        return Loaded::Corrupt;
    }
    let words = (word(entry, value.start), word(entry, value.start + WORD));
    let (Some(incarnation), Some(version)) = words else {
        return Loaded::Corrupt;
    };
    if version == u64::MAX {
        return Loaded::Missing;
    }
    let data = str::from_utf8(&entry[value.start + 2 * WORD..value.end]);
    let (Ok(version), Ok(data)) = (u32::try_from(version), data) else {
        return Loaded::Corrupt;
    };
    Loaded::Found(StoredRecord {
        incarnation: Incarnation(incarnation),
        version: Version(version),
        data: Payload::from_checked(data),
        write_keys: None,
    })
}

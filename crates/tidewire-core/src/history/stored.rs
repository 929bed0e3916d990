//! Histories that the store keeps: a subscriber receives an event only when it is durable.
//!
//! So a crash loses no position that a subscriber received, and a restart continues with the same epoch. The events that wait for the
//! store are limited; beyond the limit the owner refuses events. The owner reads a name from the store at its first use, and requests
//! that arrive during the read wait for it. Each shard has at most one batch of histories in flight. It repeats the whole batch until the
//! store has it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::time::Duration;

use super::owner::HistoryOwner;
use super::row::{self, Head, HistoryRow};
use crate::address::SessionId;
use crate::binary::EventPayload;
use crate::context::TurnContext;
use crate::effect::{Effects, StoreRequest};
use crate::entry::{Entry, HistoryEntry, HistoryRead};
use crate::history_rules::Keep;
use crate::publication::OwnedPublication;
use crate::route::StoreId;
use crate::settings::Settings;
use crate::store::{Expected, Loaded, StoreChange, StoreError, StoreWrite, StoredRecord};
use crate::text::Name;
use crate::time::{Instant, Now, WallTime};

/// Batches of histories have this bit, batches of records do not.
const BATCH: u64 = 1 << 63;
/// Rows that one request reads.
const LOADED_MAX: usize = 256;
/// The least number of bytes of events of one name in a batch, however many names share it.
const NAME_BYTES_MIN: usize = 16 << 10;
/// Approximate cost in bytes of writing or removing a row, in addition to its data.
const ROW_OVERHEAD_BYTES: usize = 256;
/// Rows of a name that one batch removes, or twice as many as it adds.
const REMOVED_MAX: u64 = 1_000;
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LONGEST: Duration = Duration::from_secs(5);

/// State of a name that the store keeps, in addition to its ring.
#[derive(Debug, Default)]
pub(super) struct Stored {
    reading: Option<Reading>,
    /// Events that are not durable yet; they follow the events of the ring.
    pending: VecDeque<Pending>,
    /// The number of them in the batch in flight.
    sent: usize,
    /// The first offset that may have a row.
    first: u64,
    /// Whether the store may have the first row of the name.
    has_head: bool,
    /// Whether the sweep has checked the name and nothing has used it since.
    is_swept: bool,
    /// Whether only the sweep uses the name, so that it is forgotten afterwards.
    is_visited: bool,
}

/// The progress of reading a name.
#[derive(Debug)]
struct Reading {
    /// Reads that the owner has sent to the store and that have no answer yet.
    missing: BTreeSet<Name>,
    head: Option<Head>,
    rows: BTreeMap<u64, (WallTime, Option<EventPayload>)>,
    /// Requests that arrived during the read.
    waiting: VecDeque<Job>,
}

#[derive(Debug)]
enum Job {
    Publish(Pending),
    Read(HistoryRead),
}

#[derive(Debug)]
struct Pending {
    publication: OwnedPublication,
    at: WallTime,
    publisher: SessionId,
}

impl Pending {
    fn bytes(&self) -> usize {
        self.publication.payload_size() + size_of::<Self>()
    }
}

impl Stored {
    /// Forgets the waiting reads of a lost node's sessions.
    pub(super) fn forget_reads(&mut self, node: u16) {
        if let Some(reading) = &mut self.reading {
            let waiting = &mut reading.waiting;
            waiting
                .retain(|job| !matches!(job, Job::Read(read) if read.session.address.node == node));
        }
    }

    /// Whether it is being read, or has events that are not durable.
    pub(super) fn is_open(&self) -> bool {
        self.reading.is_some() || !self.pending.is_empty()
    }

    /// Whether the name has a read or write in flight, or the sweep has not finished with it.
    pub(super) fn is_busy(&self) -> bool {
        self.reading.is_some() || !self.pending.is_empty() || self.is_swept
    }
}

/// Reads and batches in flight between a shard's histories and the store.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    /// Names with changes to commit.
    dirty: BTreeSet<Name>,
    /// The last name of the last batch. The next batch starts after it, so names take turns.
    last: Option<Name>,
    /// The names of the batch in flight.
    sent: Vec<Sent>,
    batch: u64,
    /// Rows that the owner requests from the store at the end of the turn.
    to_load: Vec<Name>,
    /// Rows that the store could not read; the owner requests them again.
    unread: BTreeSet<Name>,
    failures: u32,
    retry: Option<Instant>,
    pending: usize,
    pending_bytes: usize,
}

impl Traffic {
    /// Whether a change waits for a commit or is in a commit.
    pub(super) fn is_open(&self) -> bool {
        self.pending > 0 || !self.dirty.is_empty() || !self.sent.is_empty()
    }

    /// Whether the batch in flight has changes of the name.
    pub(super) fn is_sent(&self, name: &Name) -> bool {
        self.sent.iter().any(|sent| sent.name == *name)
    }

    /// Forgets the changes of a name that are not events.
    pub(super) fn forget(&mut self, name: &Name) {
        self.dirty.remove(name);
    }

    /// The number of events that wait for the store.
    pub(super) fn pending(&self) -> usize {
        self.pending
    }

    pub(super) fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    pub(super) fn retry(&self) -> Option<Instant> {
        self.retry
    }

    /// Takes the next name with changes to commit.
    fn next_dirty(&mut self) -> Option<Name> {
        let behind = self.last.as_ref().and_then(|last| {
            let range = (Bound::Excluded(last.as_str()), Bound::Unbounded);
            self.dirty.range::<str, _>(range).next().cloned()
        });
        let name = behind.or_else(|| self.dirty.first().cloned())?;
        self.dirty.remove(&name);
        self.last = Some(name.clone());
        Some(name)
    }

    fn fail(&mut self, now: Instant) {
        let pause = RETRY_FIRST * 2_u32.saturating_pow(self.failures.min(16));
        self.failures += 1;
        self.retry = Some(now + pause.min(RETRY_LONGEST));
    }
}

/// The part of a batch that belongs to one name.
struct Part {
    /// The first offset that has rows afterwards.
    first: u64,
    bytes: usize,
    has_head: bool,
}

/// A name of the batch in flight.
#[derive(Debug)]
struct Sent {
    name: Name,
    /// The first offset that has rows afterwards.
    first: u64,
    /// Whether the name has a first row afterwards. Without it the store has no row of the name.
    has_head: bool,
}

/// Whether a batch contains histories.
pub(crate) fn is_batch(batch: u64) -> bool {
    batch & BATCH != 0
}

impl HistoryOwner {
    /// Starts to read a name that the store may have.
    pub(super) fn begin_reading(&mut self, name: &Name) {
        let head = HistoryRow::Head.name(name);
        let reading = Reading {
            missing: [head.clone()].into(),
            head: None,
            rows: BTreeMap::new(),
            waiting: VecDeque::new(),
        };
        if let Some(stored) = self.stored_mut(name) {
            stored.first = 1;
            stored.reading = Some(reading);
            self.traffic_mut().to_load.push(head);
        }
    }

    /// Handles an event of a name that the store keeps.
    pub(super) fn publish_stored<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        publication: OwnedPublication,
        publisher: SessionId,
    ) {
        let name = publication.name.clone();
        let limits = &turn.shard.settings.limits;
        let pending = Pending {
            publication,
            at: turn.now.wall,
            publisher,
        };
        let traffic = self.traffic_mut();
        let bytes = traffic.pending_bytes + pending.bytes();
        let is_dirty =
            traffic.pending >= limits.dirty_records_max || bytes > limits.dirty_bytes_max;
        if is_dirty || !turn.shard.quotas.has_room(StoreId::DEFAULT, bytes) {
            turn.shard.count(|refused| match is_dirty {
                true => refused.dirty += 1,
                false => refused.store_full += 1,
            });
            let refused = HistoryEntry::Refused { publisher, name };
            return turn.post(publisher.address, Entry::History(refused));
        }
        traffic.pending += 1;
        traffic.pending_bytes += pending.bytes();
        let Some(stored) = self.stored_mut(&name) else {
            return;
        };
        match &mut stored.reading {
            Some(reading) => reading.waiting.push_back(Job::Publish(pending)),
            None => {
                stored.is_visited = false;
                stored.pending.push_back(pending);
                self.set_dirty(&name);
            }
        }
    }

    /// Checks a name that may have expired rows in the store. Removes these rows, and the whole name if nothing else is left. Each
    /// batch removes at most the allowed number of rows of a name.
    pub(crate) fn sweep<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, name: &Name) {
        let now = turn.now;
        let Some(rule) = turn.shard.settings.history.find(name) else {
            return;
        };
        if rule.keep != Keep::Store {
            return;
        }
        let is_known = self.state_of(name).is_some();
        self.begin(name, rule, now.wall);
        self.change(name, |ring| ring.trim(rule, now.wall));
        let Some(stored) = self.stored_mut(name) else {
            return;
        };
        stored.is_swept = true;
        stored.is_visited |= !is_known;
        if stored.reading.is_none() {
            self.tidy(turn, name);
        }
    }

    /// Makes a read wait until the owner has read the name. Returns the read if the name is read already.
    pub(super) fn defer_read(&mut self, read: HistoryRead) -> Option<HistoryRead> {
        let mut stored = self.stored_mut(&read.name);
        if let Some(stored) = &mut stored {
            stored.is_visited = false;
        }
        match stored.and_then(|stored| stored.reading.as_mut()) {
            Some(reading) => {
                reading.waiting.push_back(Job::Read(read));
                None
            }
            None => Some(read),
        }
    }

    /// Handles rows that the store has returned, or a failed read.
    pub(crate) fn loaded<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        row_name: &Name,
        result: Result<Loaded, StoreError>,
    ) {
        let Some((event, row)) = HistoryRow::of(row_name) else {
            return;
        };
        let name = Name::from(event);
        let reading = self
            .stored_mut(&name)
            .and_then(|stored| stored.reading.as_mut());
        let Some(reading) = reading.filter(|reading| reading.missing.contains(row_name)) else {
            return;
        };
        let Ok(found) = result else {
            let traffic = self.traffic_mut();
            traffic.unread.insert(row_name.clone());
            if traffic.retry.is_none() {
                traffic.fail(turn.now.monotonic);
            }
            return;
        };
        reading.missing.remove(row_name);
        // A corrupt row counts as missing; the store has reported it.
        let record = match found {
            Loaded::Found(record) => Some(record),
            Loaded::Missing | Loaded::Corrupt => None,
        };
        let more = match row {
            HistoryRow::Head => reading.begin(&name, record.as_ref()),
            HistoryRow::Event(offset) => reading.take(offset, record.as_ref()),
        };
        let is_over = reading.missing.is_empty();
        self.traffic_mut().to_load.extend(more);
        if is_over {
            self.end_reading(turn, &name);
        }
    }

    fn end_reading<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, name: &Name) {
        let Some(reading) = self
            .stored_mut(name)
            .and_then(|stored| stored.reading.take())
        else {
            return;
        };
        if let Some(head) = reading.head {
            // After a missing or corrupt row the history starts again.
            let mut rows = reading.rows;
            let mut first = head.next;
            while first > head.first && rows.contains_key(&(first - 1)) {
                first -= 1;
            }
            let events = rows.split_off(&first).into_values();
            self.restore(name, head.epoch, first, events);
            if let Some(stored) = self.stored_mut(name) {
                stored.first = head.first;
                stored.has_head = true;
            }
            if let Some(rule) = turn.shard.settings.history.find(name) {
                self.change(name, |ring| ring.trim(rule, turn.now.wall));
            }
        }
        for job in reading.waiting {
            match job {
                Job::Publish(pending) => {
                    if let Some(stored) = self.stored_mut(name) {
                        stored.is_visited = false;
                        stored.pending.push_back(pending);
                        self.set_dirty(name);
                    }
                }
                Job::Read(read) => self.read(turn, read),
            }
        }
        self.tidy(turn, name);
    }

    /// Ends a turn: sends the store the reads, and one batch of events if none is in flight.
    pub(crate) fn end_turn<E: Effects>(&mut self, settings: &Settings, now: Now, out: &mut E) {
        let traffic = self.traffic_mut();
        let to_load = std::mem::take(&mut traffic.to_load);
        for names in to_load.chunks(LOADED_MAX) {
            let names = names.to_vec();
            let store = StoreId::DEFAULT;
            out.store(StoreRequest::Load { store, names });
        }
        let is_paused = traffic.retry.is_some_and(|retry| retry > now.monotonic);
        // Only one batch is in flight, because an event must not be published before an earlier one of the same name: if two batches were
        // in flight, the second one could succeed and the first one fail. While the batch is in flight, events collect and form the next
        // one, so a slow store gets larger batches, not more of them. Each dirty name gets an equal part of the batch, so a name with
        // many events delays no other name.
        if !traffic.sent.is_empty() || traffic.dirty.is_empty() || is_paused {
            return;
        }
        traffic.batch += 1;
        let batch = traffic.batch | BATCH;
        let bytes_max = settings.limits.batch_bytes_max;
        let name_bytes_max = (bytes_max / traffic.dirty.len()).max(NAME_BYTES_MIN);
        let mut sent = Vec::new();
        let mut writes = Vec::new();
        let mut bytes = 0;
        while bytes < bytes_max
            && let Some(name) = self.traffic_mut().next_dirty()
        {
            if let Some(part) = self.write(&name, name_bytes_max, now.wall, &mut writes) {
                bytes += part.bytes;
                sent.push(Sent {
                    name,
                    first: part.first,
                    has_head: part.has_head,
                });
            }
        }
        if writes.is_empty() {
            return;
        }
        self.traffic_mut().sent = sent;
        out.store(StoreRequest::Commit {
            store: StoreId::DEFAULT,
            batch,
            writes: writes.into(),
        });
    }

    /// Adds the changes of a name to a batch, with at most one event more than fits.
    fn write(
        &mut self,
        name: &Name,
        bytes_max: usize,
        wall: WallTime,
        writes: &mut Vec<StoreWrite>,
    ) -> Option<Part> {
        let (epoch, first_kept, next) = self.state_of(name)?;
        let may_end = self.is_unused(name) && epoch != self.new_stored_epoch(name, wall);
        let stored = self.stored_mut(name)?;
        let mut bytes = 0;
        stored.sent = 0;
        for event in &stored.pending {
            if bytes >= bytes_max {
                break;
            }
            bytes += event.bytes() + ROW_OVERHEAD_BYTES;
            stored.sent += 1;
        }
        let removed_max = REMOVED_MAX.max(2 * stored.sent as u64);
        let stored_first = stored.first;
        let first = first_kept.min(stored_first + removed_max);
        let removed = (stored_first..first).map(|offset| (offset, StoreChange::Delete));
        let pending = stored.pending.iter().take(stored.sent);
        let pending = pending.zip(next..).map(|(event, offset)| {
            let record = row::event_record(epoch, event.at, event.publication.payload());
            (offset, StoreChange::Put(record))
        });
        let rows = removed.chain(pending);
        writes.extend(
            rows.map(|(offset, change)| write_row(name, HistoryRow::Event(offset), change)),
        );
        let head = Head {
            epoch,
            first,
            next: next + stored.sent as u64,
        };
        let has_head = !(may_end && stored.is_swept && stored.pending.is_empty() && first == next);
        let change = match has_head {
            true => StoreChange::Put(head.record()),
            false => StoreChange::Delete,
        };
        writes.push(write_row(name, HistoryRow::Head, change));
        let removed = usize::try_from(first - stored_first).unwrap_or(usize::MAX);
        bytes += (removed + 1) * ROW_OVERHEAD_BYTES;
        Some(Part {
            first,
            bytes,
            has_head,
        })
    }

    /// Handles the store's answer to a batch: the owner publishes the events that are durable now.
    pub(crate) fn committed<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        batch: u64,
        result: Result<(), StoreError>,
    ) {
        // An event gets its offset in the ring only here, when it is durable. So no subscriber sees an offset that a crash could take
        // back. After an error the outcome is unknown, so the same names are written again; the offsets are the same, and a row that the
        // store has already is written with the same content. New events of the name stay behind the unfinished ones.
        let traffic = self.traffic_mut();
        if batch != traffic.batch | BATCH {
            return;
        }
        let sent = std::mem::take(&mut traffic.sent);
        if let Err(error) = result {
            if error.trouble.is_eviction() {
                return self.deposed(turn, sent);
            }
            traffic.dirty.extend(sent.into_iter().map(|sent| sent.name));
            return traffic.fail(turn.now.monotonic);
        }
        traffic.failures = 0;
        for Sent {
            name,
            first,
            has_head,
        } in sent
        {
            let Some(stored) = self.stored_mut(&name) else {
                continue;
            };
            stored.first = first;
            stored.has_head = has_head;
            let count = stored.sent;
            for Pending {
                publication,
                at,
                publisher,
            } in self.take_pending(&name, count)
            {
                self.show(turn, publication, at, publisher);
            }
            self.tidy(turn, &name);
        }
    }

    /// Handles that another server owns the names now, so that the store accepts no more writes from this owner. The owner refuses the
    /// events that are not durable, and retries nothing. Published events stay valid, because all of them are in the store.
    fn deposed<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, sent: Vec<Sent>) {
        self.traffic_mut().failures = 0;
        for Sent { name, .. } in sent {
            for Pending { publisher, .. } in self.take_pending(&name, usize::MAX) {
                let refused = HistoryEntry::Refused {
                    publisher,
                    name: name.clone(),
                };
                turn.post(publisher.address, Entry::History(refused));
            }
            let first_kept = self.state_of(&name).map(|(_, first, _)| first);
            if let (Some(stored), Some(first)) = (self.stored_mut(&name), first_kept) {
                // The new owner removes the rows that are no longer kept.
                stored.first = first;
                stored.is_swept = false;
            }
            self.traffic_mut().dirty.remove(&name);
            self.used(turn, &name);
        }
    }

    /// Takes the first pending events of a name, up to `count_max`. No batch with events of the name is in flight then.
    fn take_pending(&mut self, name: &Name, count_max: usize) -> Vec<Pending> {
        let Some(stored) = self.stored_mut(name) else {
            return Vec::new();
        };
        stored.sent = 0;
        let count = stored.pending.len().min(count_max);
        let taken: Vec<Pending> = stored.pending.drain(..count).collect();
        let traffic = self.traffic_mut();
        traffic.pending -= taken.len();
        traffic.pending_bytes -= taken.iter().map(Pending::bytes).sum::<usize>();
        taken
    }

    /// Marks the name for a commit if it has changes, or for removal if it is not needed.
    fn tidy<E: Effects>(&mut self, turn: &TurnContext<'_, E>, name: &Name) {
        let Some((epoch, first_kept, _)) = self.state_of(name) else {
            return;
        };
        let (is_unused, is_wanted) = (self.is_unused(name), self.is_wanted(name));
        let may_end = is_unused && epoch != self.new_stored_epoch(name, turn.now.wall);
        let Some(stored) = self.stored_mut(name) else {
            return self.used(turn, name);
        };
        let has_events = !stored.pending.is_empty();
        let was_removed = stored.is_swept && !stored.has_head && is_unused;
        if has_events
            || first_kept > stored.first
            || stored.is_swept && stored.has_head && may_end
            // A subscriber joined while the owner removed the name; its position must hold over a restart.
            || stored.is_swept && !stored.has_head && is_wanted
        {
            self.set_dirty(name);
        } else if was_removed {
            self.count_removed();
            self.forget(name);
            return;
        } else if stored.is_visited && !is_wanted {
            self.forget(name);
            return;
        } else {
            stored.is_swept = false;
        }
        self.used(turn, name);
    }

    /// Requests the rows again that the store could not read.
    pub(super) fn retry(&mut self, now: Instant) {
        let traffic = self.traffic_mut();
        if traffic.retry.is_some_and(|retry| retry <= now) {
            traffic.retry = None;
            traffic.to_load.extend(std::mem::take(&mut traffic.unread));
        }
    }

    pub(super) fn set_dirty(&mut self, name: &Name) {
        self.traffic_mut().dirty.insert(name.clone());
    }
}

impl Reading {
    /// Handles the head that the store has returned: the next rows to read.
    fn begin(&mut self, name: &Name, record: Option<&StoredRecord>) -> Vec<Name> {
        self.head = record.and_then(Head::of);
        let offsets = self.head.map_or(0..0, |head| head.first..head.next);
        let names: Vec<Name> = offsets
            .map(|offset| HistoryRow::Event(offset).name(name))
            .collect();
        self.missing.extend(names.iter().cloned());
        names
    }

    /// Handles an event that the store has returned. It needs no further read.
    fn take(&mut self, offset: u64, record: Option<&StoredRecord>) -> Vec<Name> {
        let epoch = self.head.map(|head| head.epoch);
        let event = epoch
            .zip(record)
            .and_then(|(epoch, record)| row::event_of(epoch, record));
        if let Some(event) = event {
            self.rows.insert(offset, event);
        }
        Vec::new()
    }
}

fn write_row(name: &Name, row: HistoryRow, change: StoreChange) -> StoreWrite {
    StoreWrite {
        name: row.name(name),
        // No other server writes these rows: the owner of the view owns the name.
        expected: Expected::Anything,
        change,
        writer: None,
    }
}

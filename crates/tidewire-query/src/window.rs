//! The window of a query with sort, offset and limit: the records that it shows, and a buffer of the next ones.
//!
//! The window knows all matches up to a boundary key, or all matches. A write changes what it knows at once. When too many records have left,
//! it requests a refill: the next matches behind the boundary, read from the store while writes continue. A row of a refill may be older
//! than a write that the window has seen since the request, so the window keeps the writes of that time and applies them to the rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;
use smallvec::SmallVec;

/// Matches that are kept behind the visible ones, at least.
const BUFFER_MIN: usize = 16;

/// Offset and limit of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowSize {
    /// Records that are skipped.
    pub offset: usize,
    /// Records that are shown; `None` for all.
    pub limit: Option<usize>,
}

/// A matching record: its id and its sort key (`Sort::key`), which ends with the id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The record's id.
    pub id: Arc<str>,
    /// The bytes by which it is sorted.
    pub key: Arc<[u8]>,
}

/// A change of the visible rows. The subscribers of a window apply the changes of one call in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The record is no longer shown.
    Removed {
        /// Its id.
        id: Arc<str>,
    },
    /// The record is shown now.
    Added {
        /// Its id.
        id: Arc<str>,
        /// Its place among the shown records, after the changes before this one.
        index: usize,
    },
    /// The record is still shown, with another value.
    Changed {
        /// Its id.
        id: Arc<str>,
        /// Its new place. The subscriber removes it from its old one first.
        index: usize,
    },
}

/// A request for the next matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refill {
    /// Matches with keys above this one; all if `None`.
    pub after: Option<Arc<[u8]>>,
    /// At most this many, in the order of the keys.
    pub count: usize,
}

/// Up to where a window knows all matches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Boundary {
    /// Nothing is known.
    Start,
    /// All matches up to this key.
    Key(Arc<[u8]>),
    /// All matches.
    End,
}

impl Boundary {
    fn covers(&self, key: &[u8]) -> bool {
        match self {
            Self::Start => false,
            Self::Key(last) => key <= &**last,
            Self::End => true,
        }
    }
}

/// The window of one query.
#[derive(Debug)]
pub struct Window {
    size: WindowSize,
    /// Matches kept behind the visible ones.
    buffer: usize,
    /// All matches up to the boundary, in order.
    rows: Vec<Row>,
    keys: HashMap<Arc<str>, Arc<[u8]>, foldhash::fast::FixedState>,
    boundary: Boundary,
    refill: Option<PendingRefill>,
}

#[derive(Debug)]
struct PendingRefill {
    count: usize,
    /// The writes since the request: the newest key of each record, `None` if it does not match.
    writes: BTreeMap<Arc<str>, Option<Arc<[u8]>>>,
}

impl Window {
    /// A window that knows nothing yet. The caller reads the first rows as it reads a refill. `seed` keys the hashes of ids.
    #[must_use]
    pub fn new(size: WindowSize, seed: u64) -> Self {
        Self {
            size,
            buffer: size.limit.unwrap_or(0).max(BUFFER_MIN),
            rows: Vec::new(),
            keys: HashMap::with_hasher(foldhash::fast::FixedState::with_seed(seed)),
            boundary: Boundary::Start,
            refill: None,
        }
    }

    /// The shown records, in order.
    #[must_use]
    pub fn visible(&self) -> &[Row] {
        let start = self.size.offset.min(self.rows.len());
        &self.rows[start..self.visible_end().min(self.rows.len())]
    }

    /// The number of rows that it knows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether it knows no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether it knows the row of this record.
    #[must_use]
    pub fn contains(&self, id: &str) -> bool {
        self.keys.contains_key(id)
    }

    /// Whether it knows as many rows as it shows, so `visible` is the result. Otherwise a refill is requested or due.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.boundary == Boundary::End || self.rows.len() >= self.visible_end()
    }

    /// Bytes of its rows.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let row = |row: &Row| row.id.len() + row.key.len() + 2 * (size_of::<Row>() + 16);
        self.rows.iter().map(row).sum()
    }

    /// The next rows that it needs. `None` while it needs none or waits for some. Each request is answered by one call of `refilled` or
    /// `refill_failed`.
    pub fn request_refill(&mut self) -> Option<Refill> {
        if self.refill.is_some() || self.boundary == Boundary::End {
            return None;
        }
        // Beyond the visible rows it waits until half of the buffer has gone.
        if self.rows.len() >= self.visible_end().saturating_add(self.buffer / 2) {
            return None;
        }
        let count = self.capacity().saturating_sub(self.rows.len()).max(1);
        self.refill = Some(PendingRefill {
            count,
            writes: BTreeMap::new(),
        });
        let after = match &self.boundary {
            Boundary::Key(key) => Some(Arc::clone(key)),
            _ => None,
        };
        Some(Refill { after, count })
    }

    /// Takes the rows that were requested, in order. Fewer than requested mean that no further record matches.
    pub fn refilled(&mut self, rows: Vec<Row>, changes: &mut Vec<Change>) {
        let Some(pending) = self.refill.take() else {
            return;
        };
        let before = self.visible().to_vec();
        // The boundary is the last row that was read, also if a newer write has moved this record since.
        self.boundary = match rows.last() {
            Some(last) if rows.len() >= pending.count => Boundary::Key(Arc::clone(&last.key)),
            _ => Boundary::End,
        };
        for row in rows {
            if !pending.writes.contains_key(&row.id) {
                self.put(row);
            }
        }
        for (id, key) in pending.writes {
            self.take(&id);
            if let Some(key) = key
                && self.boundary.covers(&key)
            {
                self.put(Row { id, key });
            }
        }
        self.trim();
        self.report(&before, changes);
    }

    /// The requested rows can't be read now. The next `request_refill` requests them again.
    pub fn refill_failed(&mut self) {
        self.refill = None;
    }

    /// Takes a write: the record's key if it matches now, `None` if it does not match or is deleted. `shows_change` says whether the
    /// projected value differs from the value before.
    pub fn write(
        &mut self,
        id: &Arc<str>,
        key: Option<Arc<[u8]>>,
        shows_change: bool,
        changes: &mut Vec<Change>,
    ) {
        if let Some(pending) = &mut self.refill {
            pending.writes.insert(Arc::clone(id), key.clone());
        }
        let (start, end) = (self.size.offset, self.visible_end());
        let old = self.keys.get(id).cloned();
        if old == key {
            let place = key.and_then(|key| self.place(&key));
            if let Some(place) = place.filter(|place| shows_change && (start..end).contains(place))
            {
                changes.push(Change::Changed {
                    id: Arc::clone(id),
                    index: place - start,
                });
            }
            return;
        }
        // A row that leaves or enters before the visible ones moves one across each of their ends.
        let mut removed: SmallVec<[Arc<str>; 2]> = SmallVec::new();
        let mut added: SmallVec<[Arc<str>; 2]> = SmallVec::new();
        let mut old_place = None;
        if let Some(place) = old.and_then(|key| self.place(&key)) {
            old_place = Some(place);
            self.rows.remove(place);
            self.keys.remove(id);
            if place < end {
                if place >= start {
                    removed.push(Arc::clone(id));
                } else if let Some(row) = self.rows.get(start - 1) {
                    removed.push(Arc::clone(&row.id));
                }
                if let Some(row) = self.rows.get(end - 1) {
                    added.push(Arc::clone(&row.id));
                }
            }
        }
        let mut new_place = None;
        if let Some(key) = key.filter(|key| self.boundary.covers(key)) {
            let place = self.rows.partition_point(|row| row.key < key);
            new_place = Some(place);
            self.keys.insert(Arc::clone(id), Arc::clone(&key));
            self.rows.insert(
                place,
                Row {
                    id: Arc::clone(id),
                    key,
                },
            );
            if place < end {
                if place >= start {
                    added.push(Arc::clone(id));
                } else if let Some(row) = self.rows.get(start) {
                    added.push(Arc::clone(&row.id));
                }
                if let Some(row) = self.rows.get(end) {
                    removed.push(Arc::clone(&row.id));
                }
            }
        }
        self.trim();
        // A row that left and entered again is where it was, unless it is the written one.
        changes.extend(
            removed
                .iter()
                .filter(|id| !added.contains(id))
                .map(|id| Change::Removed { id: Arc::clone(id) }),
        );
        let mut shown: SmallVec<[(usize, Arc<str>); 2]> = SmallVec::new();
        for other in added
            .into_iter()
            .filter(|other| other == id || !removed.contains(other))
        {
            if let Some(place) = self.keys.get(&other).and_then(|key| self.place(key)) {
                shown.push((place - start, other));
            }
        }
        shown.sort_unstable();
        for (index, other) in shown {
            if !removed.contains(&other) {
                changes.push(Change::Added { id: other, index });
            } else if shows_change || old_place != new_place {
                changes.push(Change::Changed { id: other, index });
            }
        }
    }

    /// Where the row with this key is.
    fn place(&self, key: &[u8]) -> Option<usize> {
        self.rows.binary_search_by(|row| (*row.key).cmp(key)).ok()
    }

    /// Rows up to the end of the visible ones.
    fn visible_end(&self) -> usize {
        self.size
            .limit
            .map_or(usize::MAX, |limit| self.size.offset.saturating_add(limit))
    }

    /// Rows that are kept.
    fn capacity(&self) -> usize {
        self.visible_end().saturating_add(self.buffer)
    }

    fn put(&mut self, row: Row) {
        self.take(&row.id.clone());
        let at = self.rows.partition_point(|it| it.key < row.key);
        self.keys.insert(Arc::clone(&row.id), Arc::clone(&row.key));
        self.rows.insert(at, row);
    }

    fn take(&mut self, id: &Arc<str>) {
        let Some(key) = self.keys.remove(id) else {
            return;
        };
        // Keys end with the id, so no two are equal.
        if let Ok(at) = self.rows.binary_search_by(|row| row.key.cmp(&key)) {
            self.rows.remove(at);
        }
    }

    /// Drops the rows beyond the capacity. The last row that stays is the new boundary.
    fn trim(&mut self) {
        let capacity = self.capacity();
        if self.rows.len() <= capacity {
            return;
        }
        for row in self.rows.drain(capacity..) {
            self.keys.remove(&row.id);
        }
        self.boundary = self
            .rows
            .last()
            .map_or(Boundary::Start, |last| Boundary::Key(Arc::clone(&last.key)));
    }

    /// Appends the difference to the rows that were visible before a refill. Known rows keep their places then, so rows only enter and leave.
    fn report(&self, before: &[Row], changes: &mut Vec<Change>) {
        let after = self.visible();
        let is_in =
            |rows: &[Row], row: &Row| rows.binary_search_by(|it| it.key.cmp(&row.key)).is_ok();
        let removed = before.iter().filter(|row| !is_in(after, row));
        changes.extend(removed.map(|row| Change::Removed {
            id: Arc::clone(&row.id),
        }));
        let added = after
            .iter()
            .enumerate()
            .filter(|(_, row)| !is_in(before, row));
        changes.extend(added.map(|(index, row)| Change::Added {
            id: Arc::clone(&row.id),
            index,
        }));
    }
}

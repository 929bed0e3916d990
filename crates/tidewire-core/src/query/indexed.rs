//! The records of a query by an index: first the names from the index, then their records.
//!
//! A store gives the entries of one moment. A record whose place in the index changes later has one entry in them, so a record that is
//! selected all the time is never missed. If the first entries are too few for the result, all are read at a later moment; records that
//! were read before are passed over then.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use tidewire_query::{IndexPlan, Query, key_values};

use super::collection::id_of;
use crate::json;
use crate::settings::Settings;
use crate::store::{IndexEnd, IndexEntry, IndexRead};
use crate::text::Name;

/// Entries that are requested first, in addition to twice the rows of the window: some records may not be read by the user.
const FIRST_ENTRIES: usize = 64;
/// Records that are requested together, also for a smaller window.
const RECORDS_MIN: usize = 16;
/// Counted entries that are kept in addition to the rows of the window, in case that records change in between.
const RESERVE_ENTRIES: usize = 64;
/// Entries that are counted for one record that a query may read: an entry costs about a tenth of a record.
const ENTRIES_PER_READ: usize = 10;

/// Which entries are requested next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fetch {
    /// The first ones.
    First,
    /// All.
    All,
    /// None: all are here or were.
    Done,
}

/// An entry whose record is still to be read.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) entry: IndexEntry,
    /// Whether the record is counted already.
    pub(super) is_counted: bool,
}

/// What happens to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judged {
    /// The record must be read.
    Open,
    /// The query selects the record, and the principal may read it.
    Counts,
    /// The principal may not read it.
    Denied,
}

/// How a query reads an index.
#[derive(Debug)]
pub(super) struct IndexedRead {
    definition: Arc<str>,
    plan: IndexPlan,
    /// Whether entries are counted without their records.
    pub(super) counts_entries: bool,
    /// Whether the records of all entries are needed, as for a count that needs them.
    needs_all: bool,
    /// Rows that the result needs, if that is bounded.
    rows_max: Option<usize>,
    fetch: Fetch,
    /// How a store's entries are requested at first.
    first_fetch: Fetch,
    /// Whether only the first entries were requested last.
    were_first: bool,
    /// Whether the store has more entries than were requested.
    has_more: bool,
    waiting: VecDeque<Waiting>,
    /// Counted entries of this store that were kept.
    counted_kept: usize,
    /// Those whose records are requested.
    requested: Vec<Waiting>,
    /// The last entry whose record was read.
    last: Option<IndexEntry>,
    /// The records that were read before all entries are requested.
    read: BTreeSet<Name>,
    /// All entries that were read.
    pub(super) entry_count: usize,
    pub(super) bytes: usize,
}

/// Approximate bytes of an entry in addition to its texts.
const ENTRY_BYTES: usize = 48;

impl IndexedRead {
    /// The index that helps a query; `None` if none does. `rows_max` are the rows that the result needs, `counts` says that all selected
    /// records are counted. The right of the principal depends on `rights_fields` of a record.
    pub(super) fn of(
        settings: &Settings,
        prefix: &str,
        query: &Query,
        rows_max: usize,
        counts: bool,
        rights_fields: &[Box<str>],
    ) -> Option<Self> {
        let declared = settings.indexes.find(prefix)?;
        let plan = IndexPlan::of(query, &declared.indexes, counts, rights_fields)?;
        let rows_max = (rows_max < usize::MAX).then_some(rows_max);
        let stops = plan.is_ordered() && rows_max.is_some();
        let counts_entries = counts && plan.is_exact && (stops || rows_max == Some(0));
        let first_fetch = match stops && !counts {
            true => Fetch::First,
            false => Fetch::All,
        };
        Some(Self {
            definition: Arc::clone(declared.definitions.get(plan.index)?),
            counts_entries,
            needs_all: counts && !counts_entries,
            rows_max,
            first_fetch,
            fetch: first_fetch,
            were_first: false,
            plan,
            has_more: false,
            waiting: VecDeque::new(),
            counted_kept: 0,
            requested: Vec::new(),
            last: None,
            read: BTreeSet::new(),
            entry_count: 0,
            bytes: 0,
        })
    }

    /// The paths of the index.
    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        self.definition.split('\n').skip(1)
    }

    /// The entries to request next, if a query may read this number of records; `None` if records of entries come first.
    pub(super) fn entries_request(&self, reads_left: usize) -> Option<IndexRead> {
        let all = match self.counts_entries {
            true => reads_left.saturating_mul(ENTRIES_PER_READ),
            // Those that were read before are passed over.
            false => reads_left.saturating_add(self.read.len()),
        };
        let first = self.rows_max.unwrap_or(0).saturating_mul(2) + FIRST_ENTRIES;
        let count_max = match self.fetch {
            Fetch::First => first.min(all),
            Fetch::All => all,
            Fetch::Done => return None,
        };
        let ranges = self.plan.ranges.iter();
        Some(IndexRead {
            definition: Arc::clone(&self.definition),
            ranges: ranges
                .map(|range| (range.low.clone(), range.high.clone()))
                .collect(),
            descending: self.plan.descending,
            count_max: count_max.max(1),
        })
    }

    /// Whether records of this store were read.
    pub(super) fn has_begun(&self) -> bool {
        self.last.is_some()
    }

    /// Whether the entry of a record was handled before.
    pub(super) fn has_read(&self, name: &Name) -> bool {
        self.read.contains(name)
    }

    /// Keeps an entry until its record is read.
    pub(super) fn keep(&mut self, entry: IndexEntry, is_counted: bool) {
        let rows = self.rows_max.map_or(usize::MAX, |rows| match rows {
            0 => 0,
            rows => rows + RESERVE_ENTRIES,
        });
        if is_counted && self.counted_kept >= rows {
            return;
        }
        self.counted_kept += usize::from(is_counted);
        self.bytes += entry.name.len() + ENTRY_BYTES;
        self.waiting.push_back(Waiting { entry, is_counted });
    }

    /// The document with the values of an entry for these fields, if its key has all of them. Then a rule that uses only these fields decides
    /// the same about it as about the record.
    pub(super) fn document(&self, entry: &IndexEntry, fields: &[Box<str>]) -> Option<String> {
        let paths: Vec<&str> = self.paths().collect();
        let values = key_values(&entry.key, paths.len())?;
        let mut document = String::from("{");
        for field in fields {
            // A path with dots is another field.
            if field.contains('.') {
                return None;
            }
            let at = paths.iter().position(|path| **path == **field)?;
            let value = values.get(at)?.as_ref()?;
            if document.len() > 1 {
                document.push(',');
            }
            json::string(field, &mut document);
            document.push(':');
            document.push_str(value);
        }
        document.push('}');
        Some(document)
    }

    /// Notes the end of the requested entries.
    pub(super) fn entries_ended(&mut self, end: IndexEnd) {
        self.has_more = end == IndexEnd::More;
        self.were_first = self.fetch == Fetch::First;
        self.fetch = Fetch::Done;
    }

    /// Takes the next entries whose records are requested, at most `count_max`.
    pub(super) fn records_request(&mut self, count_max: usize) -> Vec<Name> {
        // The first rows of the result are usually the first entries.
        let rows = self
            .rows_max
            .map_or(usize::MAX, |rows| rows.max(RECORDS_MIN));
        let count = count_max.min(rows).min(self.waiting.len());
        self.requested = self.waiting.drain(..count).collect();
        let names = self.requested.iter().map(|it| it.entry.name.clone());
        names.collect()
    }

    /// Gives the entries whose records have arrived, in order.
    pub(super) fn take_requested(&mut self) -> Vec<Waiting> {
        let taken = std::mem::take(&mut self.requested);
        for Waiting { entry, .. } in &taken {
            self.bytes -= entry.name.len() + ENTRY_BYTES;
        }
        if let Some(last) = taken.last() {
            self.last = Some(last.entry.clone());
        }
        if self.has_more {
            self.read
                .extend(taken.iter().map(|it| it.entry.name.clone()));
        }
        taken
    }

    /// Drops the entries behind the last row that the result needs. `last` is the sort key of that row, if all rows are here.
    pub(super) fn stop_behind(&mut self, prefix: &str, last: Option<&[u8]>) {
        if self.fetch != Fetch::Done || self.needs_all || self.rows_max.is_none() {
            return;
        }
        let is_behind = self.rows_max == Some(0)
            || self.last.as_ref().zip(last).is_some_and(|(entry, last)| {
                let id = id_of(prefix, &entry.name).unwrap_or_default();
                self.plan.is_behind(&entry.key, id, last)
            });
        if is_behind {
            self.waiting
                .retain(|it| self.counts_entries && !it.is_counted);
            self.bytes = self
                .waiting
                .iter()
                .map(|it| it.entry.name.len() + ENTRY_BYTES)
                .sum();
            self.has_more = false;
        }
    }

    /// Whether records of entries are to be requested.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether entries are to be requested.
    pub(super) fn wants_entries(&self) -> bool {
        self.fetch != Fetch::Done
    }

    /// Whether the store has more entries than the query may read, and the result needs them.
    pub(super) fn lacks_entries(&self) -> bool {
        self.has_more && !self.were_first
    }

    /// Requests all entries of the store if the result needs more than the first ones. Returns whether it does.
    pub(super) fn continue_with_all(&mut self) -> bool {
        if self.has_more {
            self.fetch = Fetch::All;
            self.has_more = false;
        }
        self.wants_entries()
    }

    /// Begins with the next store.
    pub(super) fn next_store(&mut self) {
        self.fetch = self.first_fetch;
        self.has_more = false;
        self.counted_kept = 0;
        self.last = None;
        self.read.clear();
    }
}

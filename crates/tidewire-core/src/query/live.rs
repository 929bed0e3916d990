//! One live query at its owner: its window, the values that it shows, and the text of its changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidewire_query::{
    Change, Projection, Query, QueryLimits, Refill, Row, Sort, Tape, Window, WindowSize,
};

use super::rows::{LoadedRow, SKIPPED_RESULTS_MAX, TooLarge, write_row, write_rows};
use crate::address::{Address, SessionId};
use crate::entry::QueryEntry;
use crate::json;
use crate::principal::Principal;
use crate::shard_counts::ShardCounts;
use crate::small_map::SmallMap;
use crate::store::Version;
use crate::text::{Name, Payload};

/// Approximate bytes of a kept value in addition to its texts.
const VALUE_BYTES: usize = 160;
/// Values outside of the window that are kept until the next search for them.
const STRAY_VALUES_MAX: usize = 64;

/// A value that the query shows or may soon show.
#[derive(Debug)]
struct Shown {
    version: Version,
    /// The projected value.
    data: Arc<str>,
    /// Its bytes while subscribers see it.
    visible_bytes: usize,
}

/// A live query. Most have one subscriber and few rows, so each keeps as little as possible: the selector is in the index of the shards that
/// report writes, and is parsed again when rows are read.
#[derive(Debug)]
pub(super) struct LiveQuery {
    /// The hash of what equal queries of principals with the same rights have in common.
    pub(super) hash: u64,
    pub(super) prefix: Name,
    pub(super) text: Payload,
    /// A principal with the rights of all subscribers.
    pub(super) principal: Arc<Principal>,
    /// The subscribers, by session and serial.
    pub(super) subscribers: SmallMap<(SessionId, u32), ()>,
    /// How many of them each shard has.
    pub(super) shards: ShardCounts,
    /// Those that get the result when it is complete.
    pub(super) waiting: Vec<(SessionId, u32)>,
    /// The bytes with which the shard counts it.
    pub(super) counted_bytes: usize,
    sort: Sort,
    projection: Projection,
    window: Window,
    values: BTreeMap<Arc<str>, Shown>,
    bytes: usize,
    /// Bytes of the values that subscribers see.
    visible_bytes: usize,
    /// The most of them.
    bytes_max: usize,
    /// The records that were written since the rows were requested that the window waits for. `None` if it waits for none.
    written: Option<BTreeSet<Arc<str>>>,
    changes: Vec<Change>,
}

impl LiveQuery {
    pub(super) fn new(
        hash: u64,
        prefix: Name,
        text: Payload,
        query: Query,
        principal: Arc<Principal>,
        bytes_max: usize,
        seed: u64,
    ) -> Self {
        let size = WindowSize {
            offset: query.offset as usize,
            limit: query.limit.map(|limit| limit as usize),
        };
        Self {
            hash,
            prefix,
            text,
            principal,
            subscribers: SmallMap::default(),
            shards: ShardCounts::default(),
            waiting: Vec::new(),
            counted_bytes: 0,
            window: Window::new(size, seed),
            sort: query.sort,
            projection: query.projection,
            values: BTreeMap::new(),
            bytes: 0,
            visible_bytes: 0,
            bytes_max,
            written: None,
            changes: Vec::new(),
        }
    }

    /// The query, parsed again.
    pub(super) fn query(&self) -> Option<Query> {
        Query::parse(self.text.as_str(), &QueryLimits::default()).ok()
    }

    /// The request for the writes that change its selection.
    pub(super) fn watch(&self, number: u64, owner: Address) -> QueryEntry {
        QueryEntry::Watch {
            query: number,
            owner,
            prefix: self.prefix.clone(),
            text: self.text.clone(),
            principal: Arc::clone(&self.principal),
        }
    }

    /// Bytes that it keeps.
    pub(super) fn bytes(&self) -> usize {
        // The sort keys of the window are about as large as the values.
        size_of::<Self>() + self.text.len() * 2 + self.bytes * 2
    }

    /// Whether it waits for rows, so that a new subscriber has to wait, too.
    pub(super) fn is_loading(&self) -> bool {
        self.written.is_some()
    }

    /// The rows that it needs now; `None` if it needs none or waits for some.
    pub(super) fn request(&mut self) -> Option<Refill> {
        let refill = self.window.request_refill()?;
        self.written = Some(BTreeSet::new());
        Some(refill)
    }

    /// Takes a record's newest value, `None` if the query does not select it or its principal may not read it. Returns the changes.
    pub(super) fn write(
        &mut self,
        tape: &mut Tape,
        id: &str,
        value: Option<(Version, &str)>,
    ) -> Result<Option<Payload>, TooLarge> {
        let known = self.values.get_key_value(id).map(|(id, _)| Arc::clone(id));
        let id: Arc<str> = known.unwrap_or_else(|| id.into());
        if let Some(written) = &mut self.written {
            written.insert(Arc::clone(&id));
        }
        let selected = value.and_then(|(version, data)| {
            let document = tape.read(&id, u64::from(version.0), data)?;
            let mut key = Vec::new();
            self.sort.key(&document, &mut key);
            Some((version, data, Arc::<[u8]>::from(key)))
        });
        let (key, shows_change) = match selected {
            Some((version, data, key)) => {
                let mut projected = String::new();
                self.projection.apply(data, &mut projected);
                (Some(key), self.keep(&id, version, &projected))
            }
            None => (None, false),
        };
        let is_gone = key.is_none();
        let mut changes = std::mem::take(&mut self.changes);
        self.window.write(&id, key, shows_change, &mut changes);
        if is_gone {
            self.forget(&id);
        }
        self.shown(changes)
    }

    /// Takes the rows that were requested. Returns the changes.
    pub(super) fn loaded(&mut self, loaded: Vec<LoadedRow>) -> Result<Option<Payload>, TooLarge> {
        let written = self.written.take().unwrap_or_default();
        let mut rows = Vec::with_capacity(loaded.len());
        for row in loaded {
            let id: Arc<str> = row.id.into();
            // A write since then is newer than the row.
            if !written.contains(&id) {
                self.keep(&id, row.version, &row.data);
            }
            rows.push(Row {
                id,
                key: row.key.into(),
            });
        }
        let mut changes = std::mem::take(&mut self.changes);
        self.window.refilled(rows, &mut changes);
        self.shown(changes)
    }

    /// Ends a change of the window: the text of the changes, whose list is kept for the next ones.
    fn shown(&mut self, mut changes: Vec<Change>) -> Result<Option<Payload>, TooLarge> {
        for change in &changes {
            let (id, is_visible) = match change {
                Change::Removed { id } => (id, false),
                Change::Added { id, .. } | Change::Changed { id, .. } => (id, true),
            };
            if let Some(shown) = self.values.get_mut(id) {
                let bytes = if is_visible { shown.data.len() } else { 0 };
                self.visible_bytes = self.visible_bytes - shown.visible_bytes + bytes;
                shown.visible_bytes = bytes;
            }
        }
        let text = self.text_of(&changes);
        changes.clear();
        self.changes = changes;
        self.prune();
        // The rows before the visible ones and the next ones have values, too.
        let kept_max = self.bytes_max.saturating_mul(SKIPPED_RESULTS_MAX);
        match self.visible_bytes > self.bytes_max || self.bytes > kept_max {
            true => Err(TooLarge),
            false => Ok(text),
        }
    }

    /// The shown records, as JSON.
    pub(super) fn snapshot(&self) -> Result<Payload, TooLarge> {
        let rows = self.window.visible().iter().filter_map(|row| {
            let shown = self.values.get(&row.id)?;
            Some((&*row.id, shown.version, &*shown.data))
        });
        let mut out = String::new();
        write_rows(rows, &mut out);
        out.push('}');
        match out.len() > self.bytes_max {
            true => Err(TooLarge),
            false => Ok(Payload::from(out)),
        }
    }

    /// Keeps a value. Returns whether it differs from the one before.
    fn keep(&mut self, id: &Arc<str>, version: Version, data: &str) -> bool {
        let before = self.values.get_mut(&**id);
        if let Some(shown) = before {
            shown.version = version;
            if *shown.data == *data {
                return false;
            }
            self.bytes = self.bytes - shown.data.len() + data.len();
            shown.data = data.into();
            return true;
        }
        self.bytes += id.len() + data.len() + VALUE_BYTES;
        let data = data.into();
        let shown = Shown {
            version,
            data,
            visible_bytes: 0,
        };
        self.values.insert(Arc::clone(id), shown);
        true
    }

    fn forget(&mut self, id: &str) {
        if let Some(shown) = self.values.remove(id) {
            self.bytes -= id.len() + shown.data.len() + VALUE_BYTES;
            self.visible_bytes -= shown.visible_bytes;
        }
    }

    /// Drops the values of records that have left the window. While it waits for rows, written records may still enter.
    fn prune(&mut self) {
        if self.written.is_some() || self.values.len() <= self.window.len() + STRAY_VALUES_MAX {
            return;
        }
        let window = &self.window;
        let strays = self.values.keys().filter(|id| !window.contains(id));
        for id in strays.cloned().collect::<Vec<_>>() {
            self.forget(&id);
        }
    }

    /// The changes as JSON.
    fn text_of(&self, changes: &[Change]) -> Option<Payload> {
        if changes.is_empty() {
            return None;
        }
        let mut out = String::from("[");
        for (number, change) in changes.iter().enumerate() {
            if number > 0 {
                out.push(',');
            }
            let (word, id, index) = match change {
                Change::Removed { id } => {
                    out.push_str("{\"type\":\"removed\",\"id\":");
                    json::string(id, &mut out);
                    out.push('}');
                    continue;
                }
                Change::Added { id, index } => ("added", id, index),
                Change::Changed { id, index } => ("changed", id, index),
            };
            out.push_str(&format!("{{\"type\":\"{word}\",\"index\":{index},\"row\":"));
            if let Some(shown) = self.values.get(id) {
                write_row(id, shown.version, &shown.data, &mut out);
            }
            out.push('}');
        }
        out.push(']');
        Some(Payload::from(out))
    }
}

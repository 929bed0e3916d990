//! The records that a query selects, in their order, and the text of its answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidewire_query::{Document, Query, Refill};

use crate::json;
use crate::store::Version;

/// How much memory the rows before the offset may use, in results. They are needed to find the first row behind the offset.
pub(super) const SKIPPED_RESULTS_MAX: usize = 32;

/// Approximate bytes of a row in addition to its texts.
const ROW_BYTES: usize = 96;

/// A selected record.
#[derive(Debug)]
struct Row {
    id: Box<str>,
    version: Version,
    /// Its projected value.
    data: Box<str>,
}

impl Row {
    /// Bytes of it in the answer.
    fn answer_bytes(&self) -> usize {
        self.id.len() + self.data.len() + r#"{"id":"","version":4294967295,"data":},"#.len()
    }
}

/// A row for the window of a live query.
#[derive(Debug)]
pub(super) struct LoadedRow {
    /// The bytes by which it is sorted.
    pub(super) key: Box<[u8]>,
    /// The record's id.
    pub(super) id: Box<str>,
    /// Its version.
    pub(super) version: Version,
    /// Its projected value.
    pub(super) data: Box<str>,
}

/// The result is larger than allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLarge;

/// The first rows of a result, up to its last visible one.
#[derive(Debug)]
pub(super) struct Rows {
    rows: BTreeMap<Box<[u8]>, Row>,
    /// Only rows with keys above this one are kept.
    after: Option<Arc<[u8]>>,
    offset: usize,
    rows_max: usize,
    bytes: usize,
    bytes_max: usize,
    /// All records that the query selects.
    count: usize,
    key: Vec<u8>,
    text: String,
}

impl Rows {
    /// No rows yet. `bytes_max` bounds the answer.
    pub(super) fn new(query: &Query, bytes_max: usize) -> Self {
        let offset = query.offset as usize;
        Self {
            rows: BTreeMap::new(),
            after: None,
            offset,
            rows_max: match query.limit {
                Some(0) => 0,
                Some(limit) => offset + limit as usize,
                None => usize::MAX,
            },
            bytes: 0,
            bytes_max,
            count: 0,
            key: Vec::new(),
            text: String::new(),
        }
    }

    /// The same for the rows that a window requests. They may be as large as those before an offset.
    pub(super) fn of_window(refill: Refill, bytes_max: usize) -> Self {
        Self {
            rows: BTreeMap::new(),
            after: refill.after,
            offset: 0,
            rows_max: refill.count,
            bytes: 0,
            bytes_max: bytes_max.saturating_mul(SKIPPED_RESULTS_MAX),
            count: 0,
            key: Vec::new(),
            text: String::new(),
        }
    }

    /// The rows of a window, in order.
    pub(super) fn into_loaded(self) -> Vec<LoadedRow> {
        let rows = self.rows.into_iter();
        rows.map(|(key, row)| LoadedRow {
            key,
            id: row.id,
            version: row.version,
            data: row.data,
        })
        .collect()
    }

    /// The number of rows that the result needs; the largest number if it needs all.
    pub(super) fn rows_max(&self) -> usize {
        self.rows_max
    }

    /// The sort key of the last row, if there are as many as the result needs.
    pub(super) fn last_of_full(&self) -> Option<&[u8]> {
        let is_full = self.rows.len() >= self.rows_max;
        let last = self.rows.last_key_value().filter(|_| is_full);
        last.map(|(key, _)| &**key)
    }

    /// Counts a record that the query selects, without its row.
    pub(super) fn count_entry(&mut self) {
        self.count += 1;
    }

    /// Does not count the record of the last call of `add` again.
    pub(super) fn restore_count(&mut self, count: usize) {
        self.count = count;
    }

    /// The number of counted records.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Bytes of the kept rows.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a record that the query selects. `data` is its value.
    pub(super) fn add(
        &mut self,
        query: &Query,
        id: &str,
        version: Version,
        document: &Document<'_>,
        data: &str,
    ) -> Result<(), TooLarge> {
        self.count += 1;
        self.key.clear();
        query.sort.key(document, &mut self.key);
        if self
            .after
            .as_ref()
            .is_some_and(|after| *self.key <= **after)
        {
            return Ok(());
        }
        if self.rows.len() >= self.rows_max {
            let is_behind = self
                .rows
                .last_key_value()
                .is_none_or(|(last, _)| **last <= *self.key);
            if is_behind {
                return Ok(());
            }
            if let Some((key, row)) = self.rows.pop_last() {
                self.bytes -= kept_bytes(&key, &row);
            }
        }
        self.text.clear();
        query.projection.apply(data, &mut self.text);
        let row = Row {
            id: id.into(),
            version,
            data: self.text.as_str().into(),
        };
        let key: Box<[u8]> = self.key.as_slice().into();
        self.bytes += kept_bytes(&key, &row);
        self.rows.insert(key, row);
        let kept_max = match self.offset {
            0 => self
                .bytes_max
                .saturating_add(self.rows.len() * ROW_BYTES * 4),
            _ => self.bytes_max.saturating_mul(SKIPPED_RESULTS_MAX),
        };
        match self.bytes > kept_max {
            true => Err(TooLarge),
            false => Ok(()),
        }
    }

    /// The answer as JSON.
    pub(super) fn answer(
        &self,
        counts: bool,
        explanation: Option<&str>,
    ) -> Result<String, TooLarge> {
        let visible = || self.rows.values().skip(self.offset);
        let bytes: usize = visible().map(Row::answer_bytes).sum();
        if bytes > self.bytes_max {
            return Err(TooLarge);
        }
        let mut out = String::with_capacity(bytes + 64);
        let rows = visible().map(|row| (&*row.id, row.version, &*row.data));
        write_rows(rows, &mut out);
        if counts {
            out.push_str(&format!(",\"count\":{}", self.count));
        }
        if let Some(explanation) = explanation {
            out.push_str(",\"explain\":");
            out.push_str(explanation);
        }
        out.push('}');
        Ok(out)
    }
}

fn kept_bytes(key: &[u8], row: &Row) -> usize {
    key.len() + row.id.len() + row.data.len() + ROW_BYTES
}

/// Appends the beginning of an answer with the rows: id, version and value of each.
pub(super) fn write_rows<'r>(
    rows: impl Iterator<Item = (&'r str, Version, &'r str)>,
    out: &mut String,
) {
    out.push_str("{\"rows\":[");
    for (index, (id, version, data)) in rows.enumerate() {
        if index > 0 {
            out.push(',');
        }
        write_row(id, version, data, out);
    }
    out.push(']');
}

/// Appends a record of an answer.
pub(super) fn write_row(id: &str, version: Version, data: &str, out: &mut String) {
    out.push_str("{\"id\":");
    json::string(id, out);
    out.push_str(&format!(",\"version\":{},\"data\":", version.0));
    out.push_str(data);
    out.push('}');
}

/// The data of a refusal: what happened, and for an invalid query where and which fault.
pub(super) fn refusal(message: &str, fault: Option<(&str, &str)>) -> String {
    let mut out = String::from("{\"message\":");
    json::string(message, &mut out);
    if let Some((at, word)) = fault {
        out.push_str(",\"at\":");
        json::string(at, &mut out);
        out.push_str(",\"fault\":");
        json::string(word, &mut out);
    }
    out.push('}');
    out
}

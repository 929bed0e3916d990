//! The queries, records and writes of the scenario, and the notifications that each write must cause.
//!
//! Queries that differ only in a constant have one template. Each record satisfies one query of its collection; a write moves it to
//! another one, so exactly two queries change: it leaves the first and enters the second.

use std::collections::VecDeque;
use std::time::Instant;

use crate::random::split_mix;

/// The rows of a query with a limit; more than it ever has, so that the queries of all templates see each change.
const LIMIT: usize = 20;
/// The width of an interval, which contains one value that is written.
const INTERVAL: usize = 10;
/// The text of each record, so that a record has about 200 bytes.
const TEXT: &str = "a card with a title, some words of a description and a few other fields that no query of this scenario reads";

/// The extent of the workload.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Live queries, all different.
    pub queries: usize,
    /// Templates, each with an own path.
    pub templates: usize,
    /// Collections, which the templates are spread over.
    pub collections: usize,
    /// Connections, which the queries are spread over.
    pub connections: usize,
    /// Records of all collections.
    pub records: usize,
}

impl Extent {
    /// Queries of a template.
    #[must_use]
    pub fn constants(&self) -> usize {
        self.queries / self.templates
    }

    /// The connection that has a query.
    #[must_use]
    pub fn connection(&self, query: usize) -> usize {
        query % self.connections
    }

    /// The collection of a query.
    #[must_use]
    pub fn collection_of(&self, query: usize) -> String {
        collection(query / self.constants() % self.collections)
    }

    /// A query, without blanks.
    #[must_use]
    pub fn query(&self, query: usize) -> String {
        let (template, constant) = (query / self.constants(), query % self.constants());
        match template / self.collections % 4 {
            0 => format!("{{\"where\":{{\"f{template}\":{constant}}}}}"),
            1 => format!("{{\"where\":{{\"f{template}\":{constant},\"open\":true}}}}"),
            2 => {
                let (from, to) = (constant * INTERVAL, (constant + 1) * INTERVAL);
                format!("{{\"where\":{{\"f{template}\":{{\"$gte\":{from},\"$lt\":{to}}}}}}}")
            }
            _ => format!(
                "{{\"where\":{{\"f{template}\":{constant}}},\"sort\":{{\"n\":-1}},\"limit\":{LIMIT}}}"
            ),
        }
    }

    /// The value of a record that satisfies this query alone. A number of the template's constants or above satisfies none.
    #[must_use]
    pub fn value(&self, template: usize, constant: usize, record: usize, number: u64) -> String {
        let constant = match template / self.collections % 4 {
            2 => constant * INTERVAL + INTERVAL / 2,
            _ => constant,
        };
        format!(
            "{{\"f{template}\":{constant},\"open\":true,\"r\":{record},\"n\":{number},\"text\":\"{TEXT}\"}}"
        )
    }
}

/// The name of a collection.
pub(super) fn collection(number: usize) -> String {
    format!("bench/queries/{number}")
}

/// A write with notifications that have not arrived.
#[derive(Clone, Copy, Debug)]
struct Pending {
    number: u64,
    due: Instant,
    /// The query that the record leaves.
    left: Option<u32>,
    /// The query that it enters.
    entered: Option<u32>,
}

/// A record.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// The query that it satisfies.
    query: Option<u32>,
    pending: Option<Pending>,
}

/// A notification that no write has caused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unexpected;

/// The records and the writes whose notifications are awaited.
#[derive(Debug)]
pub struct Records {
    extent: Extent,
    states: Vec<State>,
    /// Records without a pending write, the longest unwritten first.
    free: VecDeque<u32>,
    random: u64,
    number: u64,
}

/// The next write.
#[derive(Debug)]
pub struct Write {
    /// The number of the collection.
    pub collection: usize,
    /// The number of the record.
    pub record: usize,
    /// Its new value.
    pub value: String,
}

impl Records {
    /// Records that do not exist yet.
    #[must_use]
    pub fn new(extent: Extent) -> Self {
        Self {
            extent,
            states: vec![State::default(); extent.records],
            free: (0..extent.records as u32).collect(),
            random: 1,
            number: 0,
        }
    }

    /// Writes whose notifications have not all arrived.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.states.len() - self.free.len()
    }

    /// The next write, planned for `due`; `None` if all records wait for notifications.
    pub fn write(&mut self, due: Instant) -> Option<Write> {
        let record = self.free.pop_front()?;
        let extent = self.extent;
        let collection = record as usize % extent.collections;
        self.number += 1;
        let state = &mut self.states[record as usize];
        let mut random = |of: usize| (split_mix(&mut self.random) % of as u64) as usize;
        let query = loop {
            let of_collection = (extent.templates - collection).div_ceil(extent.collections);
            let template = random(of_collection) * extent.collections + collection;
            let query = template * extent.constants() + random(extent.constants());
            if state.query != Some(query as u32) {
                break query;
            }
        };
        let left = state.query.replace(query as u32);
        state.pending = Some(Pending {
            number: self.number,
            due,
            left,
            entered: Some(query as u32),
        });
        let (template, constant) = (query / extent.constants(), query % extent.constants());
        let record = record as usize;
        Some(Write {
            collection,
            record,
            value: extent.value(template, constant, record, self.number),
        })
    }

    /// A record has left a query. Returns the planned time of the write if this was its last notification.
    ///
    /// # Errors
    /// No write has caused it.
    pub fn left(&mut self, query: usize, record: usize) -> Result<Option<Instant>, Unexpected> {
        self.take(record, |pending| {
            pending
                .left
                .take_if(|left| *left as usize == query)
                .is_some()
        })
    }

    /// A record has entered a query by the write with this number.
    ///
    /// # Errors
    /// As for [`Records::left`].
    pub fn entered(
        &mut self,
        query: usize,
        record: usize,
        number: u64,
    ) -> Result<Option<Instant>, Unexpected> {
        self.take(record, |pending| {
            let is_of_write = pending.number == number;
            let entered = pending
                .entered
                .take_if(|it| is_of_write && *it as usize == query);
            entered.is_some()
        })
    }

    /// A write has reached a client that filters: it belongs to the queries for which `has` is true.
    ///
    /// # Errors
    /// As for [`Records::left`].
    pub fn filtered(
        &mut self,
        record: usize,
        number: u64,
        has: impl Fn(usize) -> bool,
    ) -> Result<Option<Instant>, Unexpected> {
        let state = self.states.get_mut(record).ok_or(Unexpected)?;
        // Other clients have got both notifications of the write before.
        let Some(pending) = state.pending.as_mut().filter(|it| it.number == number) else {
            return Ok(None);
        };
        pending.left.take_if(|query| has(*query as usize));
        pending.entered.take_if(|query| has(*query as usize));
        Ok(self.finished(record))
    }

    fn take(
        &mut self,
        record: usize,
        part: impl FnOnce(&mut Pending) -> bool,
    ) -> Result<Option<Instant>, Unexpected> {
        let state = self.states.get_mut(record).ok_or(Unexpected)?;
        let pending = state.pending.as_mut().ok_or(Unexpected)?;
        match part(pending) {
            true => Ok(self.finished(record)),
            false => Err(Unexpected),
        }
    }

    fn finished(&mut self, record: usize) -> Option<Instant> {
        let pending = &mut self.states[record].pending;
        let done = pending.take_if(|it| it.left.is_none() && it.entered.is_none())?;
        self.free.push_back(record as u32);
        Some(done.due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTENT: Extent = Extent {
        queries: 120,
        templates: 12,
        collections: 3,
        connections: 10,
        records: 2,
    };

    #[test]
    fn a_write_is_complete_with_both_notifications() {
        let mut records = Records::new(EXTENT);
        let due = Instant::now();
        let first = records.write(due).unwrap();
        let query = records.states[first.record].query.unwrap() as usize;
        assert_eq!(
            records.entered(query, first.record, 7),
            Err(Unexpected),
            "another write"
        );
        assert_eq!(records.entered(query, first.record, 1), Ok(Some(due)));
        assert_eq!(
            records.entered(query, first.record, 1),
            Err(Unexpected),
            "doubled"
        );
        records.write(due).unwrap();
        assert_eq!(records.write(due).unwrap().record, first.record);
        let next = records.states[first.record].query.unwrap() as usize;
        assert_ne!(next, query);
        assert!(records.write(due).is_none(), "both records wait");
        assert_eq!(
            records.left(next, first.record),
            Err(Unexpected),
            "not there before"
        );
        assert_eq!(records.left(query, first.record), Ok(None));
        assert_eq!(records.entered(next, first.record, 3), Ok(Some(due)));
        assert_eq!(records.pending(), 1);
    }

    #[test]
    fn a_filtering_client_takes_the_parts_of_its_queries() {
        let mut records = Records::new(EXTENT);
        let due = Instant::now();
        let write = records.write(due).unwrap();
        let query = records.states[write.record].query.unwrap() as usize;
        assert_eq!(
            records.filtered(write.record, 1, |it| it != query),
            Ok(None)
        );
        assert_eq!(
            records.filtered(write.record, 1, |it| it == query),
            Ok(Some(due))
        );
        assert_eq!(
            records.filtered(write.record, 1, |it| it == query),
            Ok(None)
        );
    }

    #[test]
    fn queries_differ_and_belong_to_the_collection_of_their_records() {
        let mut texts: Vec<String> = (0..EXTENT.queries)
            .map(|query| EXTENT.collection_of(query) + &EXTENT.query(query))
            .collect();
        assert!(texts.iter().all(|text| !text.contains(' ')));
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts.len(), EXTENT.queries);
        let mut records = Records::new(EXTENT);
        while let Some(write) = records.write(Instant::now()) {
            let query = records.states[write.record].query.unwrap() as usize;
            assert_eq!(EXTENT.collection_of(query), collection(write.collection));
        }
    }
}

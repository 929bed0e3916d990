//! Live queries: clients follow results while cards are written and removed. At rest each result is a full evaluation of what the store has.

use tidewire_core::rights::RightsChange;
use tidewire_query::{Document, Query, QueryLimits, Tape};

use super::rights::{GUARDED, GUARDED_CARD};
use super::{Checked, World, ensure, pick, user_of};
use crate::client::{CARDS, Said};
use crate::live_rows::Rows;

/// At most this many of a client.
const LIVES_MAX: usize = 3;

const QUERIES: [&str; 8] = [
    "{}",
    r#"{"where":{"a":1}}"#,
    r#"{"where":{"a":{"$gte":1}},"sort":["b"],"limit":2}"#,
    r#"{"sort":{"b":-1},"limit":1}"#,
    r#"{"sort":["a"],"offset":1,"limit":2,"select":["a"]}"#,
    r#"{"where":{"b":{"$ne":2}},"select":{"b":0}}"#,
    r#"{"where":{"a":1,"b":{"$gt":1}},"sort":{"b":-1},"offset":1,"limit":1}"#,
    r#"{"where":"3"}"#,
];

/// See the documentation of this module.
#[derive(Debug, Default)]
pub struct Queries {
    /// The number of the newest live query.
    count: u64,
}

impl World {
    /// A client writes or removes a card, or begins or ends a live query.
    pub(super) fn acts_on_cards(&mut self, index: usize) -> Option<Said> {
        if self.random.chance(60) {
            self.next_write += 1;
            let (a, b) = (self.random.below(3), self.random.below(4));
            let data = format!(r#"{{"a":{a},"b":{b}}}"#);
            let data = (!self.random.chance(20)).then_some(data);
            return Some(Said::Put(
                pick(&mut self.random, &CARDS),
                self.next_write,
                data,
            ));
        }
        let client = &self.clients[index];
        if !client.inbox.is_empty() {
            return None;
        }
        let oldest = client.lives.keys().next().copied();
        if client.lives.len() == LIVES_MAX || self.random.chance(20) {
            return oldest.map(Said::EndQuery);
        }
        self.queries.count += 1;
        let query = pick(&mut self.random, &QUERIES);
        Some(Said::Query(self.queries.count, query))
    }

    /// At rest, each live query has the result of a full evaluation.
    pub(super) fn results_are_right(&mut self) -> Checked {
        for client in &self.clients {
            for (number, live) in &client.lives {
                let expected = self.evaluated(live.query, user_of(client.session));
                let rows = live.result.as_ref().map(|(_, rows)| rows);
                ensure(rows == Some(&expected), || {
                    let (session, query) = (client.session, live.query);
                    format!(
                        "{session:?} has {rows:?} of query {number} {query}, right is {expected:?}"
                    )
                })?;
                self.met.results += 1;
            }
        }
        Ok(())
    }

    fn evaluated(&self, query: &str, user: &str) -> Rows {
        let query = Query::parse(query, &QueryLimits::default()).expect("a query");
        let mut changes = self.outside.changes.iter().enumerate().rev();
        let is_guarded = changes.find_map(|(index, change)| match change {
            RightsChange::Rules(_) => Some(self.rights.denies(index as u64 + 1)),
            _ => None,
        });
        let is_guarded = is_guarded == Some(true) && user == GUARDED;
        let cards = CARDS.iter().filter_map(|name| {
            let record = self.store.records.get(*name)?;
            let id = name.split_once('/').expect("a card").1;
            let is_denied = is_guarded && *name == GUARDED_CARD;
            (!is_denied).then(|| (Tape::new(), id, record.data.as_str()))
        });
        let mut cards: Vec<(Tape, &str, &str)> = cards.collect();
        let documents = cards.iter_mut().map(|(tape, id, data)| {
            let document = tape.read(id, 1, data).expect("JSON");
            (*id, *data, document)
        });
        let matches =
            |(.., document): &(&str, &str, Document<'_>)| query.selector.matches(document);
        let mut found: Vec<_> = documents.filter(matches).collect();
        found.sort_by(|(.., left), (.., right)| query.sort.compare(left, right));
        let limit = query.limit.map_or(usize::MAX, |limit| limit as usize);
        let shown = found.iter().skip(query.offset as usize).take(limit);
        let row = |(id, data, _): &(&str, &str, Document<'_>)| {
            let mut projected = String::new();
            query.projection.apply(data, &mut projected);
            let value = serde_json::from_str(&projected).expect("JSON");
            ((*id).to_owned(), value)
        };
        shown.map(row).collect()
    }
}

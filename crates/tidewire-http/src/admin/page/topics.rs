//! Counts the subscribers of each name over all shards, and lists the names in the order of a column.

use std::collections::HashMap;

use hyper::StatusCode;
use serde_json::{Value, json};
use tidewire_core::inspect::SubscribedKind;
use tidewire_core::text::Name;
use tidewire_shard::handle::ShardHandle;

use super::parts::ShardParts;
use super::window::Window;
use super::{Outcome, Page, PageRequest, parameter, shown};
use crate::admin::api::invalid;

/// Limit of the distinct names that are counted. With more names, the later ones are not counted, and `complete` in the answer
/// is false.
const NAMES_MAX: usize = 100_000;

const KINDS: [(&str, SubscribedKind); 4] = [
    ("event", SubscribedKind::Event),
    ("pattern", SubscribedKind::EventPattern),
    ("record", SubscribedKind::Record),
    ("user", SubscribedKind::User),
];

/// A column of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Subscribers,
    Kind,
    Name,
}

const COLUMNS: [(&str, Column); 3] = [
    ("subscribers", Column::Subscribers),
    ("kind", Column::Kind),
    ("name", Column::Name),
];

impl Page {
    pub(super) async fn topics(&self, asked: &PageRequest) -> Outcome {
        let parameters = asked.parameters()?;
        let window = Window::parse(&parameters, &COLUMNS, true)?;
        let kind = match parameter(&parameters, "kind") {
            None => None,
            Some(word) => {
                let known = KINDS.iter().find(|(known, _)| *known == word);
                let known = known
                    .ok_or_else(|| invalid("`kind` must be event, pattern, record or user"))?;
                Some(known.1)
            }
        };
        let prefix = parameter(&parameters, "prefix").unwrap_or_default();
        self.log_view(asked, &format!("topics {prefix}"));
        let _inspecting = self.inspecting.lock().await;
        let mut counts: HashMap<(SubscribedKind, Name), usize> = HashMap::new();
        let mut is_complete = true;
        let mut parts = ShardParts::new(&self.parts.shards);
        while let Some(part) = parts.next(ShardHandle::inspect_names).await? {
            for found in part.found {
                if kind.is_some_and(|kind| kind != found.kind) || !found.name.starts_with(prefix) {
                    continue;
                }
                let key = (found.kind, found.name);
                let has_room = counts.len() < NAMES_MAX;
                match counts.get_mut(&key) {
                    Some(count) => *count += found.count,
                    None if has_room => {
                        counts.insert(key, found.count);
                    }
                    None => is_complete = false,
                }
            }
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_unstable_by(|(left, left_count), (right, right_count)| {
            let order = match window.column {
                Column::Subscribers => left_count.cmp(right_count),
                Column::Kind => left.0.cmp(&right.0),
                Column::Name => left.1.cmp(&right.1),
            };
            window.direct(order).then_with(|| left.cmp(right))
        });
        let total = counts.len();
        let topics: Vec<Value> = window
            .of(&counts)
            .iter()
            .map(|((kind, name), count)| {
                let word = KINDS.iter().find(|(_, known)| known == kind);
                json!({
                    "kind": word.map(|(word, _)| word),
                    "name": name.as_str(),
                    "subscribers": count,
                })
            })
            .collect();
        let body = json!({ "topics": topics, "total": total, "complete": is_complete });
        Ok(shown(StatusCode::OK, &body))
    }
}

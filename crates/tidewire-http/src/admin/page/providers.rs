//! The sessions that provide rpcs or listen for subscriptions, and running calls.

use hyper::StatusCode;
use serde_json::{Value, json};
use tidewire_core::address::SessionId;
use tidewire_core::inspect::{CallView, Subscription, SubscriptionKind};
use tidewire_core::text::Name;
use tidewire_net::connection::Key;
use tidewire_shard::handle::ShardHandle;
use tidewire_shard::inspect::ConnectionView;

use super::connections::{PART_MAX, SORTED_MAX, id, kind_word, user};
use super::parts::ShardParts;
use super::window::Window;
use super::{Outcome, Page, PageRequest, parameter, shown};
use crate::admin::api::{invalid, stopping};

/// Limit of the rows that inspections of one shard return at the same time. They may run in one turn.
const TURN_MAX: usize = 4_096;

/// The kinds of the list of providers.
const KINDS: [SubscriptionKind; 3] = [
    SubscriptionKind::Rpc,
    SubscriptionKind::EventListener,
    SubscriptionKind::RecordListener,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Name,
    Kind,
    User,
}

const COLUMNS: [(&str, Column); 3] = [
    ("name", Column::Name),
    ("kind", Column::Kind),
    ("user", Column::User),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallColumn {
    Age,
    Name,
}

const CALL_COLUMNS: [(&str, CallColumn); 2] =
    [("age", CallColumn::Age), ("name", CallColumn::Name)];

/// An rpc or pattern with the session that provides it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    subscription: Subscription,
    user: Option<Name>,
    connection: (usize, u32, u32),
}

impl Page {
    pub(super) async fn providers(&self, asked: &PageRequest) -> Outcome {
        let parameters = asked.parameters()?;
        let window = Window::parse(&parameters, &COLUMNS, false)?;
        let kind = match parameter(&parameters, "kind") {
            None => None,
            Some(word) => {
                let known = KINDS.into_iter().find(|kind| kind_word(*kind) == word);
                let message = "`kind` must be rpc, event listener or record listener";
                Some(known.ok_or_else(|| invalid(message))?)
            }
        };
        let search = parameter(&parameters, "search").unwrap_or_default();
        self.log_view(asked, "providers");
        let _inspecting = self.inspecting.lock().await;
        let mut rows: Vec<Row> = Vec::new();
        let mut is_complete = true;
        let mut parts = ShardParts::new(&self.parts.shards);
        while is_complete && let Some(part) = parts.next(ShardHandle::inspect_connections).await? {
            let offered = offers(part.shard, part.number, &part.found).await;
            let mut wanted = offered.into_iter().filter(|row| {
                kind.is_none_or(|kind| kind == row.subscription.kind)
                    && row.subscription.name.contains(search)
            });
            let room = SORTED_MAX - rows.len();
            rows.extend(wanted.by_ref().take(room));
            is_complete = wanted.next().is_none();
        }
        rows.sort_unstable_by(|left, right| {
            let order = match window.column {
                Column::Name => left.subscription.name.cmp(&right.subscription.name),
                Column::Kind => left.subscription.kind.cmp(&right.subscription.kind),
                Column::User => left.user.cmp(&right.user),
            };
            window.direct(order).then_with(|| left.cmp(right))
        });
        rows.dedup();
        let show = |row: &Row| {
            let (shard, index, generation) = row.connection;
            json!({
                "kind": kind_word(row.subscription.kind),
                "name": &*row.subscription.name,
                "user": row.user.as_deref(),
                "connection": id(shard, Key { index, generation }),
            })
        };
        let body = json!({
            "providers": window.of(&rows).iter().map(show).collect::<Vec<_>>(),
            "total": rows.len(),
            "complete": is_complete,
        });
        Ok(shown(StatusCode::OK, &body))
    }

    pub(super) async fn calls(&self, asked: &PageRequest) -> Outcome {
        let parameters = asked.parameters()?;
        let window = Window::parse(&parameters, &CALL_COLUMNS, true)?;
        let search = parameter(&parameters, "search").unwrap_or_default();
        self.log_view(asked, "calls");
        let _inspecting = self.inspecting.lock().await;
        let mut calls: Vec<CallView> = Vec::new();
        let mut is_complete = true;
        for shard in self.parts.shards.iter() {
            let (found, are_all) = shard.inspect_calls().await.ok_or_else(stopping)?;
            is_complete &= are_all;
            calls.extend(found.into_iter().filter(|call| call.name.contains(search)));
        }
        calls.sort_unstable_by(|left, right| {
            let order = match window.column {
                CallColumn::Age => left.age.cmp(&right.age),
                CallColumn::Name => left.name.cmp(&right.name),
            };
            let rest = || {
                right
                    .age
                    .cmp(&left.age)
                    .then(left.requestor.cmp(&right.requestor))
            };
            window.direct(order).then_with(rest)
        });
        let mut shown_calls: Vec<Value> = Vec::new();
        for call in window.of(&calls) {
            shown_calls.push(json!({
                "name": &*call.name,
                "seconds": call.age.as_secs_f64(),
                "accepted": call.is_accepted,
                "caller": self.party(call.requestor).await,
                "provider": self.party(call.provider).await,
            }));
        }
        let body = json!({ "calls": shown_calls, "total": calls.len(), "complete": is_complete });
        Ok(shown(StatusCode::OK, &body))
    }

    /// A session of a call. It may belong to another node, or have ended.
    async fn party(&self, session: SessionId) -> Value {
        let key = Key {
            index: session.index,
            generation: session.generation,
        };
        let number = usize::from(session.address.shard);
        let shard = self.parts.shards.get(number);
        let is_own = shard.is_some_and(|shard| shard.address() == session.address);
        let view = match shard.filter(|_| is_own) {
            Some(shard) => shard.inspect_connection(key).await,
            None => None,
        };
        json!({
            "user": view.as_ref().and_then(user),
            "connection": view.as_ref().map(|_| id(number, key)),
        })
    }
}

/// The rpcs and patterns of some connections. The requests for several sessions are sent together, because each waits for a turn.
async fn offers(shard: &ShardHandle, number: usize, views: &[ConnectionView]) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut asked = Vec::new();
    let mut count = 0;
    let offering = views.iter().filter_map(|view| {
        let offered = view.session.as_ref()?.offer_count;
        (offered > 0).then_some((view, offered))
    });
    for (view, offered) in offering {
        for first in (0..offered).step_by(PART_MAX) {
            let part = PART_MAX.min(offered - first);
            if count + part > TURN_MAX {
                take(&mut rows, &mut asked, number).await;
                count = 0;
            }
            count += part;
            asked.push((view, shard.inspect_subscriptions(view.key, first, part)));
        }
    }
    take(&mut rows, &mut asked, number).await;
    rows
}

/// Waits for the answers to requests that were sent together. A session that has ended has no rows.
async fn take<F>(rows: &mut Vec<Row>, asked: &mut Vec<(&ConnectionView, F)>, number: usize)
where
    F: Future<Output = Option<tidewire_core::inspect::Inspected<Subscription>>>,
{
    for (view, answer) in asked.drain(..) {
        let found = answer.await.map(|inspected| inspected.found);
        let user = view
            .session
            .as_ref()
            .and_then(|session| session.user.clone());
        // The session may have fewer offers since it was inspected; then the part has other subscriptions, too.
        let found = found
            .into_iter()
            .flatten()
            .filter(|row| KINDS.contains(&row.kind));
        rows.extend(found.map(|subscription| Row {
            subscription,
            user: user.clone(),
            connection: (number, view.key.index, view.key.generation),
        }));
    }
}

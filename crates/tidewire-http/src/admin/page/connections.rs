//! The list of connections, sorted by one of its columns. The server returns only the rows of the requested window.

use std::cmp::Ordering;

use hyper::StatusCode;
use serde_json::{Value, json};
use tidewire_core::inspect::{SubscribedKind, Subscription, SubscriptionKind};
use tidewire_net::connection::Key;
use tidewire_shard::handle::ShardHandle;
use tidewire_shard::inspect::{Carriage, ConnectionView};

use super::parts::ShardParts;
use super::window::Window;
use super::{Outcome, Page, PageRequest, parameter, shown};
use crate::admin::api::{Refusal, invalid};

/// Limit of the connections that are sorted. They take about 200 bytes each until the answer is sent. With more connections, the
/// later ones are omitted, and `complete` in the answer is false.
pub(super) const SORTED_MAX: usize = 100_000;

/// A column of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Outbox,
    User,
    Protocol,
    Address,
    BytesIn,
    BytesOut,
    Subscriptions,
}

const COLUMNS: [(&str, Column); 7] = [
    ("outboxBytes", Column::Outbox),
    ("user", Column::User),
    ("protocol", Column::Protocol),
    ("address", Column::Address),
    ("bytesIn", Column::BytesIn),
    ("bytesOut", Column::BytesOut),
    ("subscriptions", Column::Subscriptions),
];

/// A connection, and the shard that owns it.
type Row = (usize, ConnectionView);

/// The connections that the page has requested.
struct Filter {
    /// A part of the user id or address, in lower case.
    text: Option<String>,
    /// Whether only connections match that lag, or that have bytes in the outbox.
    is_slow: bool,
}

impl Page {
    pub(super) async fn connections(&self, asked: &PageRequest) -> Outcome {
        let parameters = asked.parameters()?;
        let window = Window::parse(&parameters, &COLUMNS, true)?;
        let filter = Filter {
            text: parameter(&parameters, "search").map(str::to_lowercase),
            is_slow: parameter(&parameters, "slow").is_some(),
        };
        self.log_view(asked, "connections");
        let _inspecting = self.inspecting.lock().await;
        let mut rows: Vec<Row> = Vec::new();
        let mut is_complete = true;
        let mut parts = ShardParts::new(&self.parts.shards);
        while is_complete && let Some(part) = parts.next(ShardHandle::inspect_connections).await? {
            let room = SORTED_MAX - rows.len();
            let mut wanted = part.found.into_iter().filter(|view| filter.takes(view));
            rows.extend(wanted.by_ref().take(room).map(|view| (part.number, view)));
            is_complete = wanted.next().is_none();
        }
        rows.sort_unstable_by(|left, right| compare(&window, left, right));
        let connections: Vec<Value> = window.of(&rows).iter().map(show).collect();
        let body = json!({
            "connections": connections,
            "total": rows.len(),
            "complete": is_complete,
        });
        Ok(shown(StatusCode::OK, &body))
    }

    /// Answers a request for one connection: `ID`, or `ID/subscriptions`.
    pub(super) async fn connection(&self, asked: &PageRequest, path: &str) -> Outcome {
        if let Some(id) = path.strip_suffix("/subscriptions") {
            return self.subscriptions(asked, id).await;
        }
        let (number, key) = parse_id(path)?;
        self.log_view(asked, "connections");
        let view = self.view(number, key).await?;
        Ok(shown(StatusCode::OK, &show(&(number, view))))
    }

    /// The current state of a connection.
    pub(super) async fn view(&self, number: usize, key: Key) -> Result<ConnectionView, Refusal> {
        let shard = self.parts.shards.get(number).ok_or_else(ended)?;
        shard.inspect_connection(key).await.ok_or_else(ended)
    }

    /// Closes a connection. Its user is not revoked, so the client may connect again.
    pub(super) async fn disconnect(&self, asked: &PageRequest, id: &str) -> Outcome {
        let (number, key) = parse_id(id)?;
        let view = self.view(number, key).await?;
        if !self.parts.shards[number].disconnect(key).await {
            return Err(ended());
        }
        asked.audit(
            "disconnect",
            &format!("{id} {}", user(&view).unwrap_or_default()),
        );
        Ok(shown(StatusCode::NO_CONTENT, &Value::Null))
    }

    /// Answers a request for the names, patterns and registrations of a connection's session.
    async fn subscriptions(&self, asked: &PageRequest, id: &str) -> Outcome {
        let (number, key) = parse_id(id)?;
        let parameters = asked.parameters()?;
        let window = Window::parse(&parameters, &SUBSCRIPTION_COLUMNS, false)?;
        let search = parameter(&parameters, "search").unwrap_or_default();
        self.log_view(asked, &format!("subscriptions {id}"));
        let shard = self.parts.shards.get(number).ok_or_else(ended)?;
        let _inspecting = self.inspecting.lock().await;
        let mut rows: Vec<Subscription> = Vec::new();
        let mut next = Some(0);
        while let Some(first) = next.filter(|_| rows.len() < SORTED_MAX) {
            let inspected = shard.inspect_subscriptions(key, first, PART_MAX);
            let inspected = inspected.await.ok_or_else(ended)?;
            let found = inspected.found.into_iter();
            rows.extend(found.filter(|row| row.name.contains(search)));
            next = inspected.next;
        }
        // A session that changes its subscriptions between two parts may have one in both.
        rows.sort_unstable_by(|left, right| {
            let order = match window.column {
                SubscriptionColumn::Kind => left.kind.cmp(&right.kind),
                SubscriptionColumn::Name => left.name.cmp(&right.name),
            };
            window.direct(order).then_with(|| left.cmp(right))
        });
        rows.dedup();
        let show = |row: &Subscription| json!({ "kind": kind_word(row.kind), "name": &*row.name });
        let body = json!({
            "subscriptions": window.of(&rows).iter().map(show).collect::<Vec<_>>(),
            "total": rows.len(),
            "complete": next.is_none(),
        });
        Ok(shown(StatusCode::OK, &body))
    }
}

/// Subscriptions that one inspection returns.
pub(super) const PART_MAX: usize = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SubscriptionColumn {
    Kind,
    Name,
}

const SUBSCRIPTION_COLUMNS: [(&str, SubscriptionColumn); 2] = [
    ("name", SubscriptionColumn::Name),
    ("kind", SubscriptionColumn::Kind),
];

/// The word for a kind of subscription in answers.
pub(super) fn kind_word(kind: SubscriptionKind) -> &'static str {
    match kind {
        SubscriptionKind::Name(SubscribedKind::Event) => "event",
        SubscriptionKind::Name(SubscribedKind::EventPattern) => "pattern",
        SubscriptionKind::Name(SubscribedKind::Record) => "record",
        SubscriptionKind::Name(SubscribedKind::User) => "user",
        SubscriptionKind::AllUsers => "users",
        SubscriptionKind::Rpc => "rpc",
        SubscriptionKind::EventListener => "event listener",
        SubscriptionKind::RecordListener => "record listener",
    }
}

/// The shard and the key of a connection whose id was in an answer.
pub(super) fn parse_id(id: &str) -> Result<(usize, Key), Refusal> {
    let parse = || {
        let mut parts = id.split('.');
        let shard = parts.next()?.parse().ok()?;
        let index = parts.next()?.parse().ok()?;
        let generation = parts.next()?.parse().ok()?;
        let key = Key { index, generation };
        parts.next().is_none().then_some((shard, key))
    };
    parse().ok_or_else(|| invalid("the path must have the `id` of a connection from an answer"))
}

/// The id of a connection in answers.
pub(super) fn id(shard: usize, key: Key) -> String {
    format!("{shard}.{}.{}", key.index, key.generation)
}

fn ended() -> Refusal {
    Refusal::new(
        StatusCode::NOT_FOUND,
        "NOT_FOUND",
        "this connection has ended",
    )
}

/// The order of the list. Rows with the same value keep the order of their ids, so that a list that is requested again does not
/// shuffle them.
fn compare(window: &Window<Column>, left: &Row, right: &Row) -> Ordering {
    let ((left_shard, left), (right_shard, right)) = (left, right);
    let order = match window.column {
        Column::Outbox => {
            let waiting = |view: &ConnectionView| (view.outbox_bytes, is_lagging(view));
            waiting(left).cmp(&waiting(right))
        }
        Column::User => user(left).cmp(&user(right)),
        Column::Protocol => protocol(left).cmp(protocol(right)),
        Column::Address => left.address.cmp(&right.address),
        Column::BytesIn => left.traffic.bytes_in.cmp(&right.traffic.bytes_in),
        Column::BytesOut => left.traffic.bytes_out.cmp(&right.traffic.bytes_out),
        Column::Subscriptions => subscriptions(left).cmp(&subscriptions(right)),
    };
    let id = |shard: &usize, view: &ConnectionView| (*shard, view.key.index, view.key.generation);
    let by_id = || id(left_shard, left).cmp(&id(right_shard, right));
    window.direct(order).then_with(by_id)
}

impl Filter {
    fn takes(&self, view: &ConnectionView) -> bool {
        if self.is_slow && view.outbox_bytes == 0 && !is_lagging(view) {
            return false;
        }
        let Some(text) = &self.text else {
            return true;
        };
        let address = view.address.map(|address| address.to_string());
        user(view).is_some_and(|user| user.to_lowercase().contains(text))
            || address.is_some_and(|address| address.contains(text))
    }
}

fn is_lagging(view: &ConnectionView) -> bool {
    let session = view.session.as_ref();
    session.is_some_and(|session| session.is_lagging)
}

pub(super) fn user(view: &ConnectionView) -> Option<&str> {
    let user = view.session.as_ref()?.user.as_ref()?;
    Some(user.as_str())
}

fn subscriptions(view: &ConnectionView) -> Option<usize> {
    let session = view.session.as_ref();
    session.map(|session| session.subscription_count)
}

fn protocol(view: &ConnectionView) -> &'static str {
    match view.carriage {
        Carriage::WebSocket(protocol) => protocol.name(),
        Carriage::Exchanges(protocol) => protocol.exchange_name(),
        Carriage::Http => "http",
    }
}

fn show((shard, view): &Row) -> Value {
    let session = view.session.as_ref();
    json!({
        "id": id(*shard, view.key),
        "user": user(view),
        "operator": session.is_some_and(|session| session.is_operator),
        "protocol": protocol(view),
        "compressed": view.is_deflated,
        "encrypted": view.is_encrypted,
        "address": view.address.map(|address| address.to_string()),
        "bytesIn": view.traffic.bytes_in,
        "bytesOut": view.traffic.bytes_out,
        "outboxBytes": view.outbox_bytes,
        "lagging": is_lagging(view),
        "subscriptions": subscriptions(view),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_what_an_answer_gave() {
        let check = |text: &str, expected: Option<(usize, u32, u32)>| {
            let parsed = parse_id(text).ok();
            let parsed = parsed.map(|(shard, key)| (shard, key.index, key.generation));
            assert_eq!(parsed, expected, "{text}");
        };
        check("1.256.3", Some((1, 256, 3)));
        for text in ["", "1", "1.2", "1.2.", ".1.2", "-1.0.0", "1.2.3.4"] {
            check(text, None);
        }
    }
}

//! The list of connections, one page at a time. The server inspects the shards in small steps, so that none of them is blocked
//! for long.

use hyper::StatusCode;
use serde_json::{Value, json};
use tidewire_shard::inspect::{Carriage, ConnectionView};

use super::{Outcome, Page, PageRequest, parameter, shown};
use crate::admin::api::{Refusal, invalid, unavailable};

/// An answer ends when it has this number of connections. It always includes a whole inspection step, so it may have a few
/// more.
const ENOUGH: usize = 100;
/// Inspection steps of one request. If the filter matches few connections, the answer is short, and `next` tells the page where
/// to continue.
const INSPECTIONS_MAX: usize = 64;

/// The start of an inspection step: a shard, and a position in its list of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cursor {
    shard: usize,
    index: usize,
}

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
        let mut cursor = match parameter(&parameters, "after") {
            Some(text) => Cursor::parse(text)?,
            None => Cursor { shard: 0, index: 0 },
        };
        let filter = Filter {
            text: parameter(&parameters, "search").map(str::to_lowercase),
            is_slow: parameter(&parameters, "slow").is_some(),
        };
        self.log_view(asked, "connections");
        let mut rows = Vec::new();
        let mut inspections = 0;
        while let Some(shard) = self.parts.shards.get(cursor.shard) {
            if inspections >= INSPECTIONS_MAX || rows.len() >= ENOUGH {
                break;
            }
            inspections += 1;
            let inspected = shard.inspect_connections(cursor.index).await;
            let inspected = inspected.ok_or_else(|| unavailable("the server is stopping"))?;
            let wanted = inspected.found.iter().filter(|view| filter.takes(view));
            rows.extend(wanted.map(|view| show(cursor.shard, view)));
            cursor = match inspected.next {
                Some(index) => Cursor { index, ..cursor },
                None => Cursor {
                    shard: cursor.shard + 1,
                    index: 0,
                },
            };
        }
        let has_more = cursor.shard < self.parts.shards.len();
        let next = has_more.then(|| format!("{}.{}", cursor.shard, cursor.index));
        let body = json!({ "connections": rows, "next": next });
        Ok(shown(StatusCode::OK, &body))
    }
}

impl Cursor {
    fn parse(text: &str) -> Result<Self, Refusal> {
        let parts = text.split_once('.');
        let cursor = parts.and_then(|(shard, index)| {
            Some(Self {
                shard: shard.parse().ok()?,
                index: index.parse().ok()?,
            })
        });
        cursor.ok_or_else(|| invalid("`after` must be the `next` of an earlier answer"))
    }
}

impl Filter {
    fn takes(&self, view: &ConnectionView) -> bool {
        if self.is_slow && view.outbox_bytes == 0 && !is_lagging(view) {
            return false;
        }
        let Some(text) = &self.text else {
            return true;
        };
        let user = view
            .session
            .as_ref()
            .and_then(|session| session.user.as_ref());
        let address = view.address.map(|address| address.to_string());
        user.is_some_and(|user| user.to_lowercase().contains(text))
            || address.is_some_and(|address| address.contains(text))
    }
}

fn is_lagging(view: &ConnectionView) -> bool {
    let session = view.session.as_ref();
    session.is_some_and(|session| session.is_lagging)
}

fn show(shard: usize, view: &ConnectionView) -> Value {
    let session = view.session.as_ref();
    let user = session.and_then(|session| session.user.as_ref());
    json!({
        "id": format!("{shard}.{}.{}", view.key.index, view.key.generation),
        "user": user.map(|user| user.as_str()),
        "operator": session.is_some_and(|session| session.is_operator),
        "protocol": match view.carriage {
            Carriage::WebSocket(protocol) => protocol.name(),
            Carriage::Http => "http",
        },
        "compressed": view.is_deflated,
        "encrypted": view.is_encrypted,
        "address": view.address.map(|address| address.to_string()),
        "bytesIn": view.traffic.bytes_in,
        "bytesOut": view.traffic.bytes_out,
        "outboxBytes": view.outbox_bytes,
        "lagging": is_lagging(view),
        "subscriptions": session.map(|session| session.subscription_count),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_what_an_answer_gave() {
        let check = |text: &str, expected: Option<(usize, usize)>| {
            let parsed = Cursor::parse(text).ok();
            let parsed = parsed.map(|Cursor { shard, index }| (shard, index));
            assert_eq!(parsed, expected, "{text}");
        };
        check("1.256", Some((1, 256)));
        for text in ["", "1", "1.", ".1", "-1.0", "1.2.3"] {
            check(text, None);
        }
    }
}

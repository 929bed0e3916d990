//! Live tails: the page opens one, takes its lines each second, and closes it. The lines have no content of messages.
//!
//! Each shard keeps a limited number of lines until the page takes them (`shard/src/tail.rs`). A tail whose lines are not taken for ten
//! seconds ends by itself, so a page that was closed costs nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use hyper::StatusCode;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tidewire_auth::jwt;
use tidewire_net::connection::Key;
use tidewire_shard::tail::{Followed, Line, Tail};

use super::connections::{parse_id, user};
use super::{BODY_BYTES_MAX, Outcome, Page, PageRequest, read, shown};
use crate::admin::api::{Refusal, invalid};

/// Limit of the open tails of all operators. Each takes at most 1,000 lines of about 400 bytes on each shard.
const TAILS_MAX: usize = 8;

/// The open tails by their number.
#[derive(Debug, Default)]
pub(super) struct OpenTails(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    opened: u64,
    tails: BTreeMap<u64, OpenTail>,
}

/// A tail with its part on each shard.
#[derive(Clone, Debug)]
struct OpenTail {
    /// The session of the operator that has opened it. Others cannot read it.
    session: String,
    connection: Option<(usize, Key)>,
    parts: Vec<Arc<Tail>>,
}

/// The body of a request to open a tail. It has exactly one of the fields.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// The beginning of the names of events; empty for all events.
    events: Option<String>,
    /// The id of a connection.
    connection: Option<String>,
}

impl Page {
    pub(super) async fn open_tail(&self, mut asked: PageRequest) -> Outcome {
        let body = read(&mut asked.request.body, BODY_BYTES_MAX).await?;
        let form = "the body must be `{ \"events\": PREFIX }` or `{ \"connection\": ID }`";
        let wanted = serde_json::from_slice(&body).map_err(|_| invalid(form))?;
        let (followed, connection, about) = match wanted {
            Wanted {
                events: Some(prefix),
                connection: None,
            } => {
                let about = format!("events {prefix}");
                (Followed::Events(prefix), None, about)
            }
            Wanted {
                events: None,
                connection: Some(id),
            } => {
                let (number, key) = parse_id(&id)?;
                let view = self.view(number, key).await?;
                let about = format!("connection {id} {}", user(&view).unwrap_or_default());
                (Followed::Session(key), Some((number, key)), about)
            }
            Wanted { .. } => return Err(invalid(form)),
        };
        let now = jwt::now();
        let shards = self.parts.shards.iter().enumerate();
        let shards = shards.filter(|(index, _)| connection.is_none_or(|(only, _)| only == *index));
        let tails = shards.map(|(_, shard)| (shard, Arc::new(Tail::new(followed.clone(), now))));
        let tails: Vec<_> = tails.collect();
        let number = {
            let mut open = self.tails.0.lock();
            open.tails
                .retain(|_, tail| !tail.parts.iter().any(|part| part.has_ended(now)));
            if open.tails.len() >= TAILS_MAX {
                let message = format!("{TAILS_MAX} live tails are open; close one of them");
                return Err(Refusal::new(StatusCode::CONFLICT, "LIMIT", message));
            }
            open.opened += 1;
            let number = open.opened;
            let tail = OpenTail {
                session: asked.signed_in.id.clone(),
                connection,
                parts: tails.iter().map(|(_, tail)| Arc::clone(tail)).collect(),
            };
            open.tails.insert(number, tail);
            number
        };
        asked.audit("tail", &about);
        for (shard, tail) in tails {
            shard.follow(tail);
        }
        Ok(shown(StatusCode::CREATED, &json!({ "tail": number })))
    }

    /// Takes the lines of a tail.
    pub(super) async fn take_tail(&self, asked: &PageRequest, number: &str) -> Outcome {
        let tail = self.find_tail(asked, number)?.1;
        let now = jwt::now();
        let mut lines: Vec<Line> = Vec::new();
        let mut lost = 0;
        for part in &tail.parts {
            let (found, missed) = part.take(now);
            lines.extend(found);
            lost += missed;
        }
        // The lines of each shard are in their order already, and the sort keeps it.
        lines.sort_by_key(|line| line.at);
        let is_over = match tail.connection {
            Some((number, key)) => self.view(number, key).await.is_err(),
            None => false,
        };
        let body = json!({
            "lines": lines.iter().map(show).collect::<Vec<_>>(),
            "lost": lost,
            "ended": is_over,
        });
        Ok(shown(StatusCode::OK, &body))
    }

    pub(super) fn close_tail(&self, asked: &PageRequest, number: &str) -> Outcome {
        let (number, tail) = self.find_tail(asked, number)?;
        tail.parts.iter().for_each(|part| part.end());
        self.tails.0.lock().tails.remove(&number);
        Ok(shown(StatusCode::NO_CONTENT, &Value::Null))
    }

    fn find_tail(&self, asked: &PageRequest, number: &str) -> Result<(u64, OpenTail), Refusal> {
        let found = number.parse().ok().and_then(|number| {
            let open = self.tails.0.lock();
            let tail = open.tails.get(&number)?;
            let is_usable = tail.session == asked.signed_in.id
                && !tail.parts.iter().any(|part| part.has_ended(jwt::now()));
            is_usable.then(|| (number, tail.clone()))
        });
        found.ok_or_else(|| {
            let message = "this live tail has ended";
            Refusal::new(StatusCode::NOT_FOUND, "NOT_FOUND", message)
        })
    }
}

fn show(line: &Line) -> Value {
    json!({
        "at": line.at.0,
        "sent": line.is_sent,
        "topic": line.topic,
        "action": line.action,
        "name": line.name,
        "more": line.more,
        "bytes": line.bytes,
        "user": line.user.as_deref(),
    })
}

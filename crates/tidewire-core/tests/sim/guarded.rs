//! The guarded records, for runs in which rules change: the actions of a client, which `shared.rs` uses too, and the check that
//! each subscriber has heard all writes at the end.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use tidewire_core::address::SessionId;
use tidewire_core::message::{RecordAction, RecordBulk};

use crate::random::Random;
use crate::right::Right;
use crate::wire::{Act, Delta, Heard, Said, parse};

/// The actions of one client for records that have their own model.
#[derive(Debug, Default)]
pub struct GuardedClient {
    wanted: BTreeSet<String>,
}

impl GuardedClient {
    /// Whether the client has a subscription, or has requested one.
    pub fn wants(&self, name: &str) -> bool {
        self.wanted.contains(name)
    }

    /// The connection is gone, and its subscriptions with it.
    pub fn lost(&mut self) {
        self.wanted.clear();
    }

    /// Performs a random operation; `number` is new.
    pub fn act(&mut self, names: &[&str], random: &mut Random, number: u64) -> Said {
        let name = random.pick(names).to_string();
        match random.below(9) {
            0..4 => self.change(name, random, number),
            4..8 => write(&name, number),
            _ => Said::Head { name },
        }
    }

    fn change(&mut self, name: String, random: &mut Random, number: u64) -> Said {
        if self.wanted.remove(&name) {
            return unsubscribe(name);
        }
        self.wanted.insert(name.clone());
        let action = *random.pick(&[
            RecordBulk::SubscribeCreateAndRead,
            RecordBulk::SubscribeAndRead,
        ]);
        Said::Bulk {
            action,
            names: vec![name],
            id: number.to_string(),
        }
    }

    /// Handles the refusal or the end of a subscription. The client may already have requested the next subscription. It gives
    /// that one back, so that it knows its state.
    pub fn hear(&mut self, heard: &Heard) -> Option<Said> {
        let (Heard::Ended {
            right: Right::Record(name),
            ..
        }
        | Heard::RecordRefused {
            name,
            action: Some(RecordAction::Bulk(_)),
            ..
        }) = heard
        else {
            return None;
        };
        self.wanted.remove(name).then(|| unsubscribe(name.clone()))
    }
}

/// A write of a unique value.
pub fn write(name: &str, number: u64) -> Said {
    Said::Write {
        name: name.into(),
        version: -1,
        id: Some(number.to_string()),
        act: Act::CreateAndUpdate,
        delta: Delta::Whole(json!({ "n": number }).to_string()),
    }
}

/// The number in a written value; the correlation id of the write has the same number.
pub fn written_number(delta: &Delta) -> Option<String> {
    match delta {
        Delta::Whole(data) => parse(data)["n"].as_u64().map(|number| number.to_string()),
        _ => None,
    }
}

fn unsubscribe(name: String) -> Said {
    Said::Bulk {
        action: RecordBulk::Unsubscribe,
        id: name.clone(),
        names: vec![name],
    }
}

/// The writes and the sessions that have heard them.
#[derive(Debug, Default)]
pub struct GuardedModel {
    /// Acknowledged writes by number, with the writer and the record.
    written: BTreeMap<u64, (SessionId, String)>,
    heard: BTreeSet<(SessionId, u64)>,
}

impl GuardedModel {
    /// A session receives a message about a guarded record.
    pub fn hear(&mut self, session: SessionId, heard: &Heard) {
        match heard {
            Heard::Written { name, id } => {
                let number = id.parse().unwrap_or(0);
                self.written.insert(number, (session, name.clone()));
            }
            Heard::Changed { delta, .. } => {
                let number = written_number(delta).and_then(|number| number.parse().ok());
                self.heard.insert((session, number.unwrap_or(0)));
            }
            _ => {}
        }
    }

    /// The first acknowledged write of another session, starting at number `from`, that the subscriber has not heard.
    pub fn missed(&self, session: SessionId, name: &str, from: u64) -> Option<u64> {
        let written = self.written.range(from..);
        let mut missed = written.filter(|(number, (writer, of))| {
            of == name && *writer != session && !self.heard.contains(&(session, **number))
        });
        missed.next().map(|(number, _)| *number)
    }
}

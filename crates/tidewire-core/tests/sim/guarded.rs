//! The records of runs in which rules change: what a client does with them, as with those of `shared.rs`, and who must have heard what in
//! the end.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use tidewire_core::address::SessionId;
use tidewire_core::message::{RecordAction, RecordBulk};

use crate::random::Random;
use crate::right::Right;
use crate::wire::{Act, Delta, Heard, Said, parse};

/// What one client does with records that have a model of their own.
#[derive(Debug, Default)]
pub struct GuardedClient {
    wanted: BTreeSet<String>,
}

impl GuardedClient {
    /// Whether it wants to be subscribed.
    pub fn wants(&self, name: &str) -> bool {
        self.wanted.contains(name)
    }

    /// The connection is gone, and its subscriptions with it.
    pub fn lost(&mut self) {
        self.wanted.clear();
    }

    /// Does something of its own accord; `number` is new.
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

    /// Hears that a subscription has ended, or was refused. It may have asked for the next one already, which it then gives back, so
    /// that it knows what it has.
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

/// A write of a value that nobody else writes.
pub fn write(name: &str, number: u64) -> Said {
    Said::Write {
        name: name.into(),
        version: -1,
        id: Some(number.to_string()),
        act: Act::CreateAndUpdate,
        delta: Delta::Whole(json!({ "n": number }).to_string()),
    }
}

/// The number of a write, as its id has it.
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

/// Which writes were heard by whom.
#[derive(Debug, Default)]
pub struct GuardedModel {
    /// Acknowledged writes by their number: who wrote what.
    written: BTreeMap<u64, (SessionId, String)>,
    heard: BTreeSet<(SessionId, u64)>,
}

impl GuardedModel {
    /// A session hears something of a guarded record.
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

    /// A write of somebody else that was acknowledged and that a subscriber has not heard, of those from a number on.
    pub fn missed(&self, session: SessionId, name: &str, from: u64) -> Option<u64> {
        let written = self.written.range(from..);
        let mut missed = written.filter(|(number, (writer, of))| {
            of == name && *writer != session && !self.heard.contains(&(session, **number))
        });
        missed.next().map(|(number, _)| *number)
    }
}

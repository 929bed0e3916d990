//! The shared records: another process writes them in the same store without their owner. A client gets an acknowledgement only
//! if its write was kept, and in the end every subscriber has the stored value.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use tidewire_core::address::SessionId;
use tidewire_core::store::{Incarnation, StoredRecord, Version};
use tidewire_core::text::Payload;

use crate::check::{Check, Checked, ensure};
use crate::wire::{Delta, Heard, parse};

/// The shared records. While clients write them, rules do not change and their owners have room for them.
pub const SHARED: [&str; 2] = ["shared/0", "shared/1"];
/// Lowest incarnation of the other process. The node's incarnations are smaller.
const FOREIGN: u64 = 1 << 60;

/// Whether the record is one of [`SHARED`].
pub fn is_shared(record: &str) -> bool {
    record.starts_with("shared/")
}

/// The number of the write that produced a value.
pub fn number_of(data: &str) -> u64 {
    parse(data)["n"].as_u64().unwrap_or(0)
}

/// A record as the other process writes it; `number` is new.
pub fn foreign(number: u64) -> StoredRecord {
    StoredRecord {
        incarnation: Incarnation(FOREIGN + number),
        version: Version::CREATED,
        data: Payload::from_checked(&json!({ "n": number }).to_string()),
        write_keys: None,
    }
}

/// The state of the shared records.
#[derive(Debug, Default)]
pub struct SharedModel {
    /// The clients' writes by record, in the order in which they reached the owner.
    arrived: BTreeMap<String, Vec<u64>>,
    /// The writes of the other process.
    foreign: BTreeSet<u64>,
    /// The number of the last value of a record that a session heard.
    heard: BTreeMap<(SessionId, String), u64>,
}

impl SharedModel {
    /// A write has reached the owner of its record.
    pub fn arrive(&mut self, name: &str, id: &str) {
        let number = id.parse().unwrap_or(0);
        self.arrived.entry(name.into()).or_default().push(number);
    }

    /// The other process is about to write.
    pub fn write(&mut self, number: u64) {
        self.foreign.insert(number);
    }

    /// A session receives a message about a record. `kept` has the clients' writes that the store has accepted.
    pub fn hear(&mut self, session: SessionId, heard: &Heard, kept: &BTreeSet<u64>) -> Checked {
        match heard {
            Heard::Value { name, data, .. }
            | Heard::Changed {
                name,
                delta: Delta::Whole(data),
                ..
            } => {
                let key = (session, name.clone());
                self.heard.insert(key, number_of(data));
                Ok(())
            }
            Heard::Written { name, id } => {
                let number: u64 = id.parse().unwrap_or(0);
                let arrived = self.arrived.get(name).map_or(&[][..], Vec::as_slice);
                // A later write that was kept covers it.
                let mut covering = arrived.iter().skip_while(|arrived| **arrived != number);
                ensure(
                    covering.any(|number| kept.contains(number)),
                    Check::Shared,
                    || {
                        format!(
                            "{name}: write {number} is acknowledged, and the store has taken {kept:?}"
                        )
                    },
                )
            }
            _ => Ok(()),
        }
    }

    /// Whether a client or the other process has written this value, or a client has created the record empty.
    pub fn has_made(&self, name: &str, record: &StoredRecord) -> bool {
        let number = number_of(record.data.as_str());
        if number == 0 {
            return record.version == Version::CREATED && record.data.as_str() == "{}";
        }
        let arrived = self.arrived.get(name);
        self.foreign.contains(&number) || arrived.is_some_and(|arrived| arrived.contains(&number))
    }

    /// Checks that at the end a subscriber has the stored value.
    pub fn is_up_to_date(&self, session: SessionId, name: &str, stored: u64) -> Checked {
        let heard = self.heard.get(&(session, name.to_owned()));
        ensure(heard == Some(&stored), Check::Shared, || {
            format!("{name}: {session:?} has heard {heard:?}, and {stored} is stored")
        })
    }
}

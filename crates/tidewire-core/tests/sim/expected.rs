//! The messages about a record that a session must hear, and how to recognize them.

use std::rc::Rc;

use serde_json::Value;
use tidewire_core::message::RecordAction;

use crate::record_model::Stamp;
use crate::wire::{Delta, Heard, Refused, apply, parse};

/// One message about a record that a session must hear. The messages have an order.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The subscription that the message belongs to. The session must hear the message only while that subscription lasts.
    pub instance: Option<usize>,
    pub want: Want,
    pub stamp: Option<Rc<Stamp>>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Want {
    Value(i32, Rc<Value>),
    Version(i32),
    Changed {
        version: i32,
        before: Rc<Value>,
        after: Rc<Value>,
        /// Versions start again, so the server must send the whole value.
        whole: bool,
        /// The index of the record's change.
        index: usize,
    },
    Deleted,
    NotFound,
    VersionExists(i32, Rc<Value>, Option<String>),
    InvalidVersion(i32, Option<String>),
    Refused(Refused, Option<String>),
}

impl Want {
    /// Whether a subscription begins with this message.
    pub fn is_read(&self) -> bool {
        matches!(self, Self::Value(..) | Self::Version(_))
    }
}

/// The record that a message of an owner concerns.
pub fn name_of(heard: &Heard) -> Option<&str> {
    match heard {
        Heard::Value { name, .. }
        | Heard::Version { name, .. }
        | Heard::Changed { name, .. }
        | Heard::NotFound { name }
        | Heard::Deleted { name }
        | Heard::VersionExists { name, .. }
        | Heard::InvalidVersion { name, .. }
        | Heard::RecordRefused { name, .. } => Some(name),
        _ => None,
    }
}

/// Whether the message that a session heard is the expected one.
pub fn matches(want: &Want, heard: &Heard) -> bool {
    match (want, heard) {
        (
            Want::Value(version, value),
            Heard::Value {
                version: got, data, ..
            },
        ) => version == got && **value == parse(data),
        (Want::Version(version), Heard::Version { version: got, .. }) => version == got,
        (
            Want::Changed {
                version,
                before,
                after,
                whole,
                ..
            },
            Heard::Changed {
                version: got,
                delta,
                ..
            },
        ) => {
            version == got
                && apply(before, delta) == **after
                && (!whole || matches!(delta, Delta::Whole(_)))
        }
        (Want::Deleted, Heard::Deleted { .. }) | (Want::NotFound, Heard::NotFound { .. }) => true,
        (
            Want::VersionExists(version, value, id),
            Heard::VersionExists {
                version: got,
                data,
                id: echoed,
                ..
            },
        ) => {
            // Clients never write with a version to a record that they may not read, so the message always has the value.
            let data = data.as_ref();
            version == got && data.is_some_and(|data| **value == parse(data)) && id == echoed
        }
        (
            Want::InvalidVersion(version, id),
            Heard::InvalidVersion {
                version: got,
                id: echoed,
                ..
            },
        ) => version == got && id == echoed,
        (
            Want::Refused(why, id),
            Heard::RecordRefused {
                why: got,
                id: echoed,
                action,
                ..
            },
        ) => {
            // A refused bulk message echoes its own correlation id.
            why == got && (id == echoed || matches!(action, Some(RecordAction::Bulk(_))))
        }
        _ => false,
    }
}

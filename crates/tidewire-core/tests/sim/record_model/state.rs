//! The model's state of a record and of its subscriptions.

use std::collections::VecDeque;
use std::rc::Rc;

use serde_json::Value;
use tidewire_core::address::SessionId;

use super::request::{Request, Stamp};

/// A record after one of its changes.
#[derive(Clone, Debug)]
pub(super) struct State {
    /// Version and value, or `None` if the record does not exist.
    pub(super) value: Option<(i32, Rc<Value>)>,
    pub(super) stamp: Option<Rc<Stamp>>,
    /// The step at which this state began.
    pub(super) since: u64,
}

impl State {
    pub(super) fn is_open(&self) -> bool {
        self.value
            .as_ref()
            .is_some_and(|(_, value)| value["open"] == true)
    }
}

#[derive(Debug, Default)]
pub(super) struct Dirty {
    pub(super) queued: bool,
    pub(super) in_batch: bool,
}

/// A request that waits at the owner.
#[derive(Debug)]
pub(super) struct Waiting {
    /// The time and the step of its arrival.
    pub(super) since: u64,
    pub(super) step: u64,
    pub(super) request: Request,
}

#[derive(Debug)]
pub(super) struct ModelRecord {
    pub(super) owner: usize,
    /// The record exists only in memory.
    pub(super) volatile: bool,
    /// Whether the owner has its value.
    pub(super) known: bool,
    pub(super) waiting: VecDeque<Waiting>,
    /// The times at which the owner checks for requests that have waited too long for a load.
    pub(super) timers: Vec<u64>,
    /// The permission needs the gate of the first request.
    pub(super) needs_gate: bool,
    /// Indexed by the number of changes, to compare the store's content with acknowledged changes.
    pub(super) states: Vec<State>,
    pub(super) subscribers: Vec<(SessionId, usize)>,
}

impl ModelRecord {
    pub(super) fn state(&self) -> &State {
        &self.states[self.states.len() - 1]
    }

    pub(super) fn change_count(&self) -> usize {
        self.states.len() - 1
    }

    /// The first change, starting at `first`, that produced this value.
    pub(super) fn index_of(&self, version: i32, value: &Value, first: usize) -> Option<usize> {
        let mut states = self.states.iter().enumerate().skip(first);
        let (index, _) = states.find(|(_, state)| {
            let made = state.value.as_ref();
            made.is_some_and(|(made, data)| *made == version && **data == *value)
        })?;
        Some(index)
    }
}

/// The subscriptions of one session to one record, in order.
#[derive(Debug, Default)]
pub(super) struct Instances {
    pub(super) started: usize,
    /// Subscriptions before this one have ended at the session's shard.
    pub(super) ended: usize,
    /// Subscriptions before this one ended because the session itself deleted the record.
    pub(super) deleted: usize,
    /// Number of subscriptions whose beginning the session has heard.
    pub(super) heard: usize,
    /// The subscription whose messages the session hears now.
    pub(super) current: Option<usize>,
    /// The session has heard only the read of the current subscription so far.
    pub(super) just_read: bool,
}

/// A write or delete that waits for its acknowledgement.
#[derive(Debug)]
pub(super) struct Awaited {
    pub(super) change_count: usize,
    pub(super) since: u64,
    /// The changes that must reach the shards of subscribers before the acknowledgement, with their subscriptions.
    pub(super) effects: Vec<Effect>,
}

#[derive(Debug)]
pub(super) struct Effect {
    pub(super) session: SessionId,
    pub(super) instance: usize,
    /// Name, version, value, shard.
    pub(super) posted: (String, u32, String, usize),
}

/// A bulk message with names that are not done yet.
#[derive(Debug)]
pub(super) struct Bulk {
    pub(super) missing: usize,
    pub(super) allowed: bool,
}

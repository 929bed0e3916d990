//! What the model knows of a record and of the subscriptions to it.

use std::collections::VecDeque;
use std::rc::Rc;

use serde_json::Value;
use tidewire_core::address::SessionId;

use super::request::{Request, Stamp};

/// A record after some change.
#[derive(Clone, Debug)]
pub(super) struct State {
    /// Its version and value, `None` if there is no such record.
    pub(super) value: Option<(i32, Rc<Value>)>,
    pub(super) stamp: Option<Rc<Stamp>>,
    /// The step since which it holds.
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

/// A request at the owner.
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
    /// It is kept in memory only.
    pub(super) volatile: bool,
    /// Whether the owner has its value.
    pub(super) known: bool,
    pub(super) waiting: VecDeque<Waiting>,
    /// When somebody looks for requests that have waited too long for a load.
    pub(super) timers: Vec<u64>,
    /// The permission waits for the gate of the first request.
    pub(super) needs_gate: bool,
    /// By the number of changes, so that what the store has can be compared with what was acknowledged.
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

    /// The first change from `place` on that made this value.
    pub(super) fn place_of(&self, version: i32, value: &Value, place: usize) -> Option<usize> {
        let mut states = self.states.iter().enumerate().skip(place);
        let (place, _) = states.find(|(_, state)| {
            let made = state.value.as_ref();
            made.is_some_and(|(made, data)| *made == version && **data == *value)
        })?;
        Some(place)
    }
}

/// The subscriptions that one session has had to one record.
#[derive(Debug, Default)]
pub(super) struct Instances {
    pub(super) started: usize,
    /// Those before this one have ended at the session's shard.
    pub(super) ended: usize,
    /// Those before this one ended with the record, which the session deleted itself.
    pub(super) deleted: usize,
    /// Those whose beginning the session has heard of.
    pub(super) heard: usize,
    /// The one that the session hears of now.
    pub(super) current: Option<usize>,
    /// Of which it has heard nothing after the read.
    pub(super) just_read: bool,
}

/// A write or delete that is to be acknowledged.
#[derive(Debug)]
pub(super) struct Awaited {
    pub(super) change_count: usize,
    pub(super) since: u64,
    /// What the shards with subscribers must have been sent before, and for which subscription.
    pub(super) effects: Vec<Effect>,
}

#[derive(Debug)]
pub(super) struct Effect {
    pub(super) session: SessionId,
    pub(super) instance: usize,
    /// Name, version, value, shard.
    pub(super) posted: (String, u32, String, usize),
}

/// A bulk message whose names are not all done.
#[derive(Debug)]
pub(super) struct Bulk {
    pub(super) missing: usize,
    pub(super) allowed: bool,
}

//! The registrations and calls of each session.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::RpcOwner;
use crate::address::SessionId;
use crate::footprint::{PROVIDER_BYTES, PROVIDERS_BYTES};
use crate::text::Name;

/// The registrations and calls of one session at this owner. When the session ends, only these are visited.
#[derive(Debug, Default)]
pub(super) struct Participant {
    pub(super) served: BTreeMap<Name, Served>,
    /// The calls that it has made, each at its `requested_index`.
    pub(super) requested: SmallVec<[u64; 2]>,
}

impl Participant {
    pub(super) fn is_empty(&self) -> bool {
        self.served.is_empty() && self.requested.is_empty()
    }

    /// Removes the entry of a name that the session neither provides nor has calls of.
    pub(super) fn forget_unserved(&mut self, name: &Name) {
        if self.served.get(name).is_some_and(Served::is_empty) {
            self.served.remove(name);
        }
    }
}

/// An rpc that a session provides, or of which it has calls to answer.
#[derive(Debug, Default)]
pub(super) struct Served {
    /// Its index among the providers. `None` after it has withdrawn.
    pub(super) index: Option<usize>,
    /// The calls that the session has to answer, each at its `assigned_index`.
    pub(super) assigned: SmallVec<[u64; 2]>,
}

impl Served {
    /// Whether the session neither provides the name nor has calls of it.
    pub(super) fn is_empty(&self) -> bool {
        self.index.is_none() && self.assigned.is_empty()
    }
}

impl RpcOwner {
    /// Registers a provider of a name.
    pub(super) fn add_provider(&mut self, name: Name, provider: SessionId) {
        let (_, providers) = self
            .providers
            .get_or_insert_with(name.clone(), |_| Vec::new());
        let participant = self.participants.entry(provider).or_default();
        let served = participant.served.entry(name).or_default();
        if served.index.is_none() {
            served.index = Some(providers.len());
            // The text is counted by the sessions that provide it.
            self.provider_bytes += PROVIDER_BYTES;
            if providers.is_empty() {
                self.provider_bytes += PROVIDERS_BYTES;
            }
            providers.push(provider);
        }
    }

    /// Ends a registration. The provider keeps the calls that it has to answer.
    pub(super) fn withdraw_provider(&mut self, name: &Name, provider: SessionId) {
        let Some(participant) = self.participants.get_mut(&provider) else {
            return;
        };
        let served = participant.served.get_mut(name);
        if let Some(index) = served.and_then(|served| served.index.take()) {
            participant.forget_unserved(name);
            self.remove_provider(name, index);
            self.forget_idle(provider);
        }
    }

    /// Removes a provider of a name. The last provider gets its index.
    pub(super) fn remove_provider(&mut self, name: &Name, index: usize) {
        let Some(providers) = self.providers.get_mut(name) else {
            return;
        };
        providers.swap_remove(index);
        let moved = providers.get(index).copied();
        self.provider_bytes -= PROVIDER_BYTES;
        if providers.is_empty() {
            self.providers.remove(name);
            self.provider_bytes -= PROVIDERS_BYTES;
        }
        if let Some(participant) = moved.and_then(|moved| self.participants.get_mut(&moved))
            && let Some(served) = participant.served.get_mut(name)
        {
            served.index = Some(index);
        }
    }

    /// Removes the entry of a session without registrations and calls.
    pub(super) fn forget_idle(&mut self, session: SessionId) {
        let participant = self.participants.get(&session);
        if participant.is_some_and(Participant::is_empty) && !self.ended.contains(&session) {
            self.participants.remove(&session);
        }
    }
}

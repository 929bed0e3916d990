//! The scopes that the sessions of a shard use. `scope/session.rs` changes them.

use std::collections::{BTreeMap, BTreeSet};

use crate::address::{Address, SessionId};
use crate::message::ScopeAction;
use crate::text::{Name, Payload};

/// Approximate bytes of a scope of a session here and at the owner, without its texts.
const SCOPE_BYTES: usize = 500;

/// A session as a member.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) state: Payload,
    /// The requests to join that are not acknowledged.
    pub(crate) unanswered: usize,
    /// Whether the owner has accepted it.
    pub(crate) is_accepted: bool,
}

/// A session as a subscriber.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) serial: u32,
    /// Whether it has the list of members, so that it gets changes.
    pub(crate) has_list: bool,
    /// Whether the session has missed changes because it lags. It gets the list again when it has read its messages.
    pub(crate) has_missed: bool,
}

/// A scope that a session uses.
#[derive(Debug)]
pub(crate) struct UsedScope {
    /// The owner that knows of it; `None` if that is lost.
    pub(crate) owner: Option<Address>,
    pub(crate) membership: Option<Membership>,
    pub(crate) subscription: Option<Subscription>,
}

impl UsedScope {
    pub(crate) fn is_unused(&self) -> bool {
        self.membership.is_none() && self.subscription.is_none()
    }

    /// Bytes that the session keeps with it.
    pub(crate) fn bytes(&self, name: &str) -> usize {
        let state = self.membership.as_ref().map_or(0, |it| it.state.len());
        used_bytes(name, state)
    }
}

pub(crate) fn used_bytes(name: &str, state: usize) -> usize {
    // The name and the state are here and at the owner.
    SCOPE_BYTES + 2 * (name.len() + state)
}

/// The scopes of the sessions of a shard.
#[derive(Debug, Default)]
pub(crate) struct SessionScopes {
    pub(crate) sessions: BTreeMap<SessionId, BTreeMap<Name, UsedScope>>,
    /// The sessions with a subscription to each scope.
    pub(crate) subscribers: BTreeMap<Name, BTreeSet<SessionId>>,
    next_serial: u32,
    pub(crate) bytes: usize,
}

impl SessionScopes {
    /// Bytes that they keep.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The rights that a session uses, in an order that does not depend on hash tables.
    pub(crate) fn rights(&self, session: SessionId) -> Vec<(ScopeAction, Name)> {
        let mut rights = Vec::new();
        for (name, used) in self.sessions.get(&session).into_iter().flatten() {
            if used.membership.is_some() {
                rights.push((ScopeAction::Join, name.clone()));
            }
            if used.subscription.is_some() {
                rights.push((ScopeAction::Subscribe, name.clone()));
            }
        }
        rights
    }

    /// The state of a session in a scope.
    pub(crate) fn state(&self, session: SessionId, scope: &str) -> Option<Payload> {
        let used = self.sessions.get(&session)?.get(scope)?;
        Some(used.membership.as_ref()?.state.clone())
    }

    pub(crate) fn used_mut(&mut self, session: SessionId, scope: &str) -> Option<&mut UsedScope> {
        self.sessions.get_mut(&session)?.get_mut(scope)
    }

    pub(crate) fn subscription_mut(
        &mut self,
        session: SessionId,
        scope: &str,
    ) -> Option<&mut Subscription> {
        self.used_mut(session, scope)?.subscription.as_mut()
    }

    pub(crate) fn forget_subscriber(&mut self, session: SessionId, scope: &str) {
        if let Some(known) = self.subscribers.get_mut(scope) {
            known.remove(&session);
            if known.is_empty() {
                self.subscribers.remove(scope);
            }
        }
    }

    pub(crate) fn serial(&mut self) -> u32 {
        self.next_serial = self.next_serial.wrapping_add(1);
        self.next_serial
    }
}

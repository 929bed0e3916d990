//! Changes of rights while people are connected, as the node gives them to its shards: new rules, and who is nobody any
//! more.
//!
//! Every change has a number, counted up by one for the whole node, and reaches each shard in that order.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::effect::{Credential, Principal};
use crate::permission::Permission;
use crate::text::Name;
use crate::time::WallTime;

/// A change of rights.
#[derive(Clone, Debug)]
pub enum RightsChange {
    /// Another permission. It reauthorizes every session that holds a subscription.
    Rules(Arc<dyn Permission>),
    /// A user or credential is revoked: its sessions end, and it can't log in again.
    Revoke(Revocation),
    /// The opposite of a revocation, for logins from now on.
    Restore(Revoked),
}

/// Who or what is revoked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Revoked {
    /// All logins of a user.
    User(Name),
    /// All logins with one token or key.
    Credential(Credential),
}

impl Revoked {
    /// Whether the principal has this user id, or has logged in with this.
    #[must_use]
    pub fn covers(&self, principal: &Principal) -> bool {
        match self {
            Self::User(user) => principal.user_id == *user,
            Self::Credential(credential) => principal.credential() == Some(credential),
        }
    }
}

/// A revocation with its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// Who or what.
    pub what: Revoked,
    /// When the credential would have ended by itself, so that nobody has to remember it any more.
    pub until: WallTime,
}

/// The revocations that logins are checked against.
#[derive(Clone, Debug, Default)]
pub struct Revocations {
    ends: BTreeMap<Revoked, WallTime>,
}

impl Revocations {
    /// Adds one, and forgets those that have ended.
    pub fn add(&mut self, revocation: Revocation, now: WallTime) {
        self.ends.retain(|_, until| *until > now);
        self.ends.insert(revocation.what, revocation.until);
    }

    /// Takes one back.
    pub fn remove(&mut self, what: &Revoked) {
        self.ends.remove(what);
    }

    /// How many there are, with those that have ended and were not forgotten yet.
    #[must_use]
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is one of this already, which then takes no more room.
    #[must_use]
    pub fn has(&self, what: &Revoked) -> bool {
        self.ends.contains_key(what)
    }

    /// Whether somebody must not be let in.
    #[must_use]
    pub fn covers(&self, principal: &Principal, now: WallTime) -> bool {
        if self.ends.is_empty() {
            return false;
        }
        let is_revoked = |what| self.ends.get(&what).is_some_and(|until| *until > now);
        let credential = principal.credential().cloned();
        is_revoked(Revoked::User(principal.user_id.clone()))
            || credential.is_some_and(|credential| is_revoked(Revoked::Credential(credential)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revocation(what: Revoked, until: u64) -> Revocation {
        let until = WallTime(until);
        Revocation { what, until }
    }

    #[test]
    fn a_revocation_covers_its_user_token_or_key_until_its_end() {
        let token = Credential::Token(Name::from("7"));
        let anna = Principal::new(Name::from("anna")).with_credential(token.clone());
        let same_id =
            Principal::new(Name::from("bert")).with_credential(Credential::Key(Name::from("7")));
        for what in [
            Revoked::User(Name::from("anna")),
            Revoked::Credential(token),
        ] {
            let mut revocations = Revocations::default();
            revocations.add(revocation(what.clone(), 10), WallTime(0));
            assert!(revocations.covers(&anna, WallTime(9)));
            assert!(!revocations.covers(&anna, WallTime(10)));
            assert!(!revocations.covers(&same_id, WallTime(9)));
            revocations.remove(&what);
            assert!(!revocations.covers(&anna, WallTime(9)));
        }
    }

    #[test]
    fn those_that_have_ended_are_forgotten() {
        let mut revocations = Revocations::default();
        for number in 0..100_u64 {
            let what = Revoked::User(Name::from(number.to_string().as_str()));
            revocations.add(revocation(what, number + 10), WallTime(number));
        }
        assert_eq!(revocations.count(), 10);
    }
}

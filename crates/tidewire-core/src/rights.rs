//! Changes of rights at run time, as the node passes them to its shards: new rules, and revoked users and credentials.
//!
//! Every change has a number, which counts up for the whole node, or for the whole cluster. The changes reach each shard in that order.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::permission::Permission;
use crate::principal::{Credential, Principal};
use crate::text::Name;
use crate::time::WallTime;

/// A change of rights.
#[derive(Clone, Debug)]
pub enum RightsChange {
    /// Replaces the permission and reauthorizes every session that holds a subscription.
    Rules(Arc<dyn Permission>),
    /// Revokes a user or credential: its sessions end, and it can't log in again.
    Revoke(Revocation),
    /// Reverses a revocation. It affects later logins only.
    Restore(Revoked),
}

/// The target of a revocation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Revoked {
    /// All logins of a user.
    User(Name),
    /// All logins with one token or key.
    Credential(Credential),
}

impl Revoked {
    /// Whether the principal has this user id, or has logged in with this credential.
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
    /// The revoked user or credential.
    pub what: Revoked,
    /// The time at which the credential expires by itself. The revocation is forgotten then.
    pub until: WallTime,
}

/// The revocations that logins are checked against.
#[derive(Clone, Debug, Default)]
pub struct Revocations {
    ends: BTreeMap<Revoked, WallTime>,
}

impl Revocations {
    /// Adds a revocation, and removes those that have ended.
    pub fn add(&mut self, revocation: Revocation, now: WallTime) {
        self.ends.retain(|_, until| *until > now);
        self.ends.insert(revocation.what, revocation.until);
    }

    /// Removes a revocation.
    pub fn remove(&mut self, what: &Revoked) {
        self.ends.remove(what);
    }

    /// The number of revocations, including ended ones that are not removed yet.
    #[must_use]
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// The end of a revocation, if the target is revoked.
    #[must_use]
    pub fn end(&self, what: &Revoked) -> Option<WallTime> {
        self.ends.get(what).copied()
    }

    /// Whether the target is already revoked, so that adding it again takes no more memory.
    #[must_use]
    pub fn has(&self, what: &Revoked) -> bool {
        self.ends.contains_key(what)
    }

    /// Whether the principal's user or credential is revoked, so that its login must be refused.
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
    fn ended_revocations_are_forgotten() {
        let mut revocations = Revocations::default();
        for number in 0..100_u64 {
            let what = Revoked::User(Name::from(number.to_string().as_str()));
            revocations.add(revocation(what, number + 10), WallTime(number));
        }
        assert_eq!(revocations.count(), 10);
    }
}

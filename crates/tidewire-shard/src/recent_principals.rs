//! The principals of recent logins. Sessions of one user that have the same rights share a principal, so that a user with thousands of
//! connections pays for it once.

use std::hash::BuildHasher;
use std::sync::{Arc, Weak};

use hashbrown::DefaultHashBuilder;
use tidewire_core::principal::Principal;

/// The number of remembered principals. Each user has one place, so users of the same place replace each other.
const PLACES: usize = 64;

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct RecentPrincipals {
    places: Box<[Weak<Principal>; PLACES]>,
    hasher: DefaultHashBuilder,
}

impl Default for RecentPrincipals {
    fn default() -> Self {
        Self {
            places: Box::new([const { Weak::new() }; PLACES]),
            hasher: DefaultHashBuilder::default(),
        }
    }
}

impl RecentPrincipals {
    /// An equal principal that a session already has, or else the new one, which later logins may share.
    pub(crate) fn share(&mut self, new: Arc<Principal>) -> Arc<Principal> {
        let place = self.hasher.hash_one(&*new.user_id) as usize % PLACES;
        let place = &mut self.places[place];
        match place.upgrade().filter(|known| **known == *new) {
            Some(known) => known,
            None => {
                *place = Arc::downgrade(&new);
                new
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tidewire_core::text::Name;
    use tidewire_core::time::WallTime;

    use super::*;

    fn principal(user: &str) -> Arc<Principal> {
        Arc::new(Principal::new(Name::from(user)))
    }

    #[test]
    fn equal_principals_are_shared_while_a_session_has_one() {
        let mut recent = RecentPrincipals::default();
        let first = recent.share(principal("anna"));
        let second = recent.share(principal("anna"));
        assert!(Arc::ptr_eq(&first, &second));
        let other = principal("anna").as_ref().clone();
        let expires = recent.share(Arc::new(other.with_expiry(WallTime(1))));
        assert!(!Arc::ptr_eq(&first, &expires));
        drop((first, second, expires));
        let place = recent.places.iter().filter_map(Weak::upgrade).count();
        assert_eq!(place, 0, "no session has a principal");
    }

    #[test]
    fn principals_of_many_users_stay_apart() {
        let mut recent = RecentPrincipals::default();
        let users: Vec<String> = (0..1_000).map(|number| format!("user {number}")).collect();
        let shared: Vec<_> = users
            .iter()
            .map(|user| recent.share(principal(user)))
            .collect();
        for (user, principal) in users.iter().zip(shared) {
            assert_eq!(&*principal.user_id, user.as_str());
        }
    }
}

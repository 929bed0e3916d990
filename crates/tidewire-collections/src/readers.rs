//! The subscribers of a record whose read rule depends on data. Before they get a change, the owner checks their right again, once for each
//! group of sessions that a rule can't distinguish.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;

use tidewire_message::address::SessionId;
use tidewire_message::principal::Principal;
use tidewire_message::text::{Name, Payload};

/// Approximate bytes of a reader without its principal: its entries in the tables.
pub const READER_BYTES: usize = 192;

/// Sessions that a rule can't distinguish, each with the serial of its subscription.
#[derive(Debug)]
struct Group {
    principal: Arc<Principal>,
    sessions: BTreeMap<SessionId, u32>,
}

/// See the start of this file.
#[derive(Debug, Default)]
pub struct Readers {
    groups: Vec<Option<Group>>,
    free: Vec<usize>,
    by_user: BTreeMap<Name, SmallVec<[usize; 1]>>,
    by_session: BTreeMap<SessionId, usize>,
}

impl Readers {
    /// The number of sessions.
    pub fn count(&self) -> usize {
        self.by_session.len()
    }

    /// Length of the table of groups, free entries included.
    pub fn table_len(&self) -> usize {
        self.groups.len()
    }

    /// One of the sessions, with its principal.
    pub fn first(&self) -> Option<(SessionId, &Arc<Principal>)> {
        let (session, index) = self.by_session.first_key_value()?;
        Some((*session, self.principal(*index)?))
    }

    /// The principal of a group's sessions.
    pub fn principal(&self, index: usize) -> Option<&Arc<Principal>> {
        let group = self.groups.get(index)?.as_ref();
        group.map(|group| &group.principal)
    }

    /// Adds a session, or notes its new principal or subscription.
    pub fn add(&mut self, session: SessionId, serial: u32, principal: &Arc<Principal>) {
        self.remove_session(session);
        let index = self
            .find(principal)
            .unwrap_or_else(|| self.add_group(principal));
        if let Some(Some(group)) = self.groups.get_mut(index) {
            group.sessions.insert(session, serial);
            self.by_session.insert(session, index);
        }
    }

    /// Removes a session, unless it has a later subscription.
    pub fn remove(&mut self, session: SessionId, serial: u32) {
        let index = self.by_session.get(&session);
        let group = index.and_then(|index| self.groups[*index].as_ref());
        if group.and_then(|group| group.sessions.get(&session)) == Some(&serial) {
            self.remove_session(session);
        }
    }

    /// Removes a group and returns its sessions in order.
    pub fn take_group(&mut self, index: usize) -> BTreeMap<SessionId, u32> {
        let Some(group) = self.groups.get_mut(index).and_then(Option::take) else {
            return BTreeMap::new();
        };
        for session in group.sessions.keys() {
            self.by_session.remove(session);
        }
        self.free.push(index);
        let user = &group.principal.user_id;
        if let Some(indexes) = self.by_user.get_mut(user) {
            indexes.retain(|known| *known != index);
            if indexes.is_empty() {
                self.by_user.remove(user);
            }
        }
        group.sessions
    }

    /// Removes the sessions of a lost node.
    pub fn remove_node(&mut self, node: u16) {
        let sessions = self.by_session.keys().copied();
        let lost: Vec<SessionId> = sessions.filter(|id| id.address.node == node).collect();
        for session in lost {
            self.remove_session(session);
        }
    }

    fn remove_session(&mut self, session: SessionId) {
        let Some(index) = self.by_session.remove(&session) else {
            return;
        };
        if let Some(Some(group)) = self.groups.get_mut(index) {
            group.sessions.remove(&session);
            if group.sessions.is_empty() {
                self.take_group(index);
            }
        }
    }

    fn find(&self, principal: &Principal) -> Option<usize> {
        let mut indexes = self.by_user.get(&principal.user_id)?.iter().copied();
        indexes.find(|index| {
            let known = self.principal(*index);
            known.is_some_and(|known| seen_of(known) == seen_of(principal))
        })
    }

    fn add_group(&mut self, principal: &Arc<Principal>) -> usize {
        let group = Some(Group {
            principal: Arc::clone(principal),
            sessions: BTreeMap::new(),
        });
        let index = match self.free.pop() {
            Some(index) => {
                self.groups[index] = group;
                index
            }
            None => {
                self.groups.push(group);
                self.groups.len() - 1
            }
        };
        let indexes = self.by_user.entry(principal.user_id.clone()).or_default();
        indexes.push(index);
        index
    }
}

/// The parts of a principal that a permission sees, apart from the user id.
fn seen_of(principal: &Principal) -> (bool, Option<&str>) {
    let data = principal.server_data().map(Payload::as_str);
    (principal.is_operator(), data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire_message::address::Address;

    fn session(index: u32) -> SessionId {
        SessionId {
            address: Address { node: 0, shard: 0 },
            index,
            generation: 0,
        }
    }

    fn principal(user: &str, data: &str) -> Arc<Principal> {
        let data = Some(Payload::from_checked(data));
        Arc::new(Principal::new(Name::from(user)).with_data(data, None))
    }

    #[test]
    fn sessions_that_rules_cannot_tell_apart_are_one_group() {
        let mut readers = Readers::default();
        for (index, data) in ["{}", "{}", r#"{"role":1}"#].iter().enumerate() {
            readers.add(session(index as u32), 1, &principal("ann", data));
        }
        readers.add(session(3), 1, &principal("bob", "{}"));
        assert_eq!((readers.count(), readers.table_len()), (4, 3));
        let taken: Vec<_> = readers.take_group(0).into_keys().collect();
        assert_eq!(taken, [session(0), session(1)]);
        readers.add(session(4), 1, &principal("ann", "{}"));
        assert_eq!((readers.count(), readers.table_len()), (3, 3));
    }

    #[test]
    fn only_the_end_of_its_own_subscription_removes_a_session() {
        let mut readers = Readers::default();
        readers.add(session(0), 1, &principal("ann", "{}"));
        readers.add(session(0), 2, &principal("ann", r#"{"role":1}"#));
        assert_eq!((readers.count(), readers.table_len()), (1, 1));
        readers.remove(session(0), 1);
        assert_eq!(readers.count(), 1);
        readers.remove(session(0), 2);
        assert_eq!(readers.count(), 0);
        assert!(readers.by_user.is_empty() && readers.principal(0).is_none());
    }
}

//! The view of a cluster: the processes that share a store, with a number that grows with each change. Contract: `spec/cluster.md`.

use std::sync::Arc;

use crate::address::{Address, Epoch};
use crate::slot::{ClusterKey, Member, SlotTable};

/// The number of a view: of the members that may write a store. The store takes it from the counter of its openings, so a later view has a
/// higher number. It is a fencing token: the store does no commit of another view than the current one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct View(pub u64);

/// One life of a member: a process that has opened the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberId {
    /// The number of the node. A node that starts again keeps it.
    pub node: u16,
    /// The opening of the store by this process. No two processes have the same.
    pub birth: u64,
}

/// The part that a member takes in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MemberState {
    /// It links the others, owns no slots, and never evicts a member.
    Joining,
    /// It owns slots.
    Active,
    /// It hands its slots over and owns none.
    Leaving,
}

/// The versions of the protocol between nodes that a process speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The oldest one.
    pub first: u16,
    /// The newest one.
    pub last: u16,
}

/// The parts of a member that it chooses itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The number of its shards; at least 1.
    pub shard_count: u16,
    /// Its share of the slots, relative to the other members; at least 1.
    pub weight: u8,
    /// The versions that it speaks.
    pub versions: Versions,
    /// The addresses at which other nodes reach it, the best one first.
    pub addresses: Vec<String>,
    /// SHA-256 of the certificate of its links; absent if its carrier has none.
    pub fingerprint: Option<[u8; 32]>,
}

impl Default for Profile {
    /// A process with one shard that no other node reaches.
    fn default() -> Self {
        Self {
            shard_count: 1,
            weight: 1,
            versions: Versions { first: 1, last: 1 },
            addresses: Vec::new(),
            fingerprint: None,
        }
    }
}

/// A member of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewMember {
    /// The process.
    pub id: MemberId,
    /// Its part in the cluster.
    pub state: MemberState,
    /// The parts that it chooses itself.
    pub profile: Profile,
}

impl ViewMember {
    /// An active member.
    #[must_use]
    pub fn active(id: MemberId, profile: Profile) -> Self {
        let state = MemberState::Active;
        Self { id, state, profile }
    }
}

/// The epochs of all slots. Versions of different epochs are never taken for the same history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotEpochs {
    /// The epoch of the slots that `raised` does not name.
    pub epoch: Epoch,
    /// The slots that have got a later epoch since, in their order: an owner that has shown versions of their records may have been lost.
    pub raised: Vec<(u16, Epoch)>,
}

impl SlotEpochs {
    /// One epoch for all slots.
    #[must_use]
    pub fn all(epoch: Epoch) -> Self {
        let raised = Vec::new();
        Self { epoch, raised }
    }

    /// The epoch of a slot.
    #[must_use]
    pub fn of(&self, slot: u16) -> Epoch {
        let raised = self.raised.binary_search_by_key(&slot, |(slot, _)| *slot);
        raised.map_or(self.epoch, |index| self.raised[index].1)
    }

    /// The latest epoch of all slots.
    #[must_use]
    pub fn latest(&self) -> Epoch {
        let raised = self.raised.iter().map(|(_, epoch)| *epoch);
        raised.fold(self.epoch, Epoch::max)
    }

    /// Gives this epoch to these slots.
    pub fn raise(&mut self, slots: &[u16], epoch: Epoch) {
        self.raised.retain(|(slot, _)| !slots.contains(slot));
        self.raised.extend(slots.iter().map(|slot| (*slot, epoch)));
        self.raised.sort_unstable();
        self.raised.dedup();
    }
}

/// One life of a store's data. It changes when another server takes over that may lack the last commits: a standby of PostgreSQL that was
/// promoted, or a replica of Redis. Only equality has a meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Generation(pub String);

/// A view as a store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredView {
    /// Its number.
    pub number: View,
    /// The key of the slot hash; absent if the only member uses the store alone.
    pub key: Option<ClusterKey>,
    /// The version of the protocol between nodes that all members speak.
    pub level: u16,
    /// Its members, in the order of their births.
    pub members: Vec<ViewMember>,
    /// The epochs of the slots.
    pub epochs: SlotEpochs,
    /// The store's generation when the view was made.
    pub generation: Generation,
}

impl StoredView {
    /// The view of a server that uses a store alone: the default.
    #[must_use]
    pub fn of_one_node(epoch: Epoch, member: MemberId) -> Self {
        Self {
            number: View(member.birth),
            key: None,
            level: 1,
            members: vec![ViewMember::active(member, Profile::default())],
            epochs: SlotEpochs::all(epoch),
            generation: Generation::default(),
        }
    }

    /// The view of a store that no process has written yet.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            number: View(0),
            key: None,
            level: 1,
            members: Vec::new(),
            epochs: SlotEpochs::default(),
            generation: Generation::default(),
        }
    }

    /// A member, if this life of it belongs to the view.
    #[must_use]
    pub fn member(&self, id: MemberId) -> Option<&ViewMember> {
        self.members.iter().find(|member| member.id == id)
    }

    /// Whether this life of a member belongs to the view.
    #[must_use]
    pub fn has(&self, id: MemberId) -> bool {
        self.member(id).is_some()
    }

    /// The processes of the view, in the order of their births.
    pub fn ids(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.members.iter().map(|member| member.id)
    }

    /// The members that own slots, as the table of slots takes them.
    #[must_use]
    pub fn owners(&self) -> Vec<Member> {
        let active = self.members.iter();
        let active = active.filter(|member| member.state == MemberState::Active);
        let owner = |member: &ViewMember| Member {
            node: member.id.node,
            shard_count: member.profile.shard_count,
            weight: member.profile.weight,
        };
        active.map(owner).collect()
    }

    /// The owner of each slot. `None` without a key or without an active member.
    #[must_use]
    pub fn table(&self) -> Option<SlotTable> {
        let owners = self.owners();
        let key = self.key.as_ref().filter(|_| !owners.is_empty())?;
        Some(SlotTable::new(key, owners))
    }
}

/// A view as the shards of a node use it. They share the table of the slots and the list of the members.
#[derive(Clone, Debug)]
pub struct ClusterView {
    /// Its number.
    pub number: View,
    /// The processes of the view in all states, in the order of their births.
    pub members: Arc<[ViewMember]>,
    /// The owner of each slot: only active members own slots.
    pub slots: Arc<SlotTable>,
    /// The generation of the store when the view was made.
    pub generation: Generation,
    /// The version of the protocol between nodes that all members speak.
    pub level: u16,
}

impl ClusterView {
    /// The form of a stored view. `None` if no member of it owns slots, so that it can't be used.
    #[must_use]
    pub fn of(view: &StoredView) -> Option<Self> {
        Some(Self {
            number: view.number,
            members: view.members.as_slice().into(),
            slots: Arc::new(view.table()?),
            generation: view.generation.clone(),
            level: view.level,
        })
    }

    /// The shards of all members, in ascending order.
    #[must_use]
    pub fn shards(&self) -> Vec<Address> {
        let members = self.members.iter();
        let shards = members.flat_map(|member| {
            let node = member.id.node;
            (0..member.profile.shard_count).map(move |shard| Address { node, shard })
        });
        let mut shards: Vec<Address> = shards.collect();
        shards.sort_unstable();
        shards
    }

    /// The life in which a node belongs to the view.
    #[must_use]
    pub fn birth_of(&self, node: u16) -> Option<u64> {
        let mut members = self.members.iter();
        let member = members.find(|member| member.id.node == node)?;
        Some(member.id.birth)
    }
}

/// A view that a member proposes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The key of the slot hash. It stays the same as long as the store exists.
    pub key: Option<ClusterKey>,
    /// The version of the protocol between nodes that all members speak.
    pub level: u16,
    /// The members.
    pub members: Vec<ViewMember>,
    /// The slots that get a later epoch.
    pub raised: Vec<u16>,
}

/// The answer to a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The number of the current view.
    pub view: View,
    /// The store's generation now.
    pub generation: Generation,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_has_its_latest_epoch() {
        let mut epochs = SlotEpochs::all(Epoch(5));
        epochs.raise(&[9, 3], Epoch(6));
        epochs.raise(&[3, 4], Epoch(7));
        let all: Vec<u64> = (2..10).map(|slot| epochs.of(slot).0).collect();
        assert_eq!(all, [5, 7, 7, 5, 5, 5, 5, 6]);
        assert_eq!(epochs.latest(), Epoch(7));
        assert!(epochs.raised.is_sorted());
    }

    #[test]
    fn only_active_members_own_slots() {
        let id = |node| MemberId {
            node,
            birth: u64::from(node) + 10,
        };
        let mut view = StoredView::empty();
        assert!(view.table().is_none());
        view.key = Some(ClusterKey([7; 16]));
        assert!(view.table().is_none());
        for (node, state) in [
            (1, MemberState::Active),
            (2, MemberState::Leaving),
            (3, MemberState::Joining),
        ] {
            let profile = Profile::default();
            view.members.push(ViewMember {
                id: id(node),
                state,
                profile,
            });
        }
        let table = view.table().unwrap();
        assert!((0..4_096).all(|slot| table.node(slot) == 1));
        assert!(view.has(id(3)) && !view.has(MemberId { node: 3, birth: 1 }));
    }
}

//! The owner of each name: the name's tag has a slot, the slot has a node, and the hash of the tag selects a shard of that node.
//! Contract: `spec/cluster.md`.

use siphasher::sip::SipHasher13;

use crate::address::Address;

/// Number of slots. A node that joins takes over whole slots. 4,096 give each of 64 nodes a share within a third of its mean, and the table
/// of all slots fits into the first cache of a core.
pub const SLOT_COUNT: u16 = 4_096;

/// Key of the slot hash, the same on all nodes of a cluster. Clients must not be able to guess it: they could choose names that all have the
/// same owner.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ClusterKey(pub [u8; 16]);

impl std::fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClusterKey(..)")
    }
}

impl ClusterKey {
    /// The slot of all names with this tag.
    #[must_use]
    pub fn slot(&self, tag: &str) -> u16 {
        slot(SipHasher13::new_with_key(&self.0).hash(tag.as_bytes()))
    }
}

/// A node that owns slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The number of the node.
    pub node: u16,
    /// The number of its shards; at least 1.
    pub shard_count: u16,
    /// Its share of the slots, relative to the other members; at least 1.
    pub weight: u8,
}

/// The collections whose names have a tag that is shorter than the name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TagRules {
    /// Sorted.
    by_prefix: Vec<Box<str>>,
}

impl TagRules {
    /// The rules for collections with `slot_by: prefix`. The name of a collection has no slash.
    pub fn new<'a>(by_prefix: impl IntoIterator<Item = &'a str>) -> Self {
        let mut by_prefix: Vec<Box<str>> = by_prefix.into_iter().map(Box::from).collect();
        by_prefix.sort_unstable();
        Self { by_prefix }
    }

    /// The part of a name that selects its slot: `X/ID` of `X/ID/…` in such a collection `X`, otherwise the whole name.
    #[must_use]
    #[inline]
    pub fn tag<'n>(&self, name: &'n str) -> &'n str {
        match self.by_prefix.is_empty() {
            true => name,
            false => self.prefix(name),
        }
    }

    fn prefix<'n>(&self, name: &'n str) -> &'n str {
        let Some((collection, rest)) = name.split_once('/') else {
            return name;
        };
        let known = self
            .by_prefix
            .binary_search_by(|known| (**known).cmp(collection));
        match (known, rest.find('/')) {
            (Ok(_), Some(end)) => &name[..collection.len() + 1 + end],
            _ => name,
        }
    }
}

/// The owner of each slot, as long as the members stay the same.
#[derive(Debug)]
pub struct SlotTable {
    hasher: SipHasher13,
    /// Sorted by their numbers.
    members: Box<[Member]>,
    /// By slot, the index of the member that owns it. Empty if there is one member only.
    owners: Box<[u16]>,
}

impl SlotTable {
    /// The table of a node without other members.
    #[must_use]
    pub fn of_one_node(key: &ClusterKey, shard_count: u16) -> Self {
        let only = Member {
            node: 0,
            shard_count,
            weight: 1,
        };
        Self::new(key, vec![only])
    }

    /// The table of these members. It takes one hash for each slot and unit of weight, about 0.07 ms for one unit.
    ///
    /// # Panics
    /// Without members: then no name would have an owner.
    #[must_use]
    pub fn new(key: &ClusterKey, mut members: Vec<Member>) -> Self {
        assert!(!members.is_empty(), "a cluster has a member");
        members.sort_unstable_by_key(|member| member.node);
        let hasher = SipHasher13::new_with_key(&key.0);
        let owners = match members.len() {
            1 => Box::default(),
            _ => (0..SLOT_COUNT)
                .map(|slot| winner(&hasher, &members, slot, None))
                .collect(),
        };
        Self {
            hasher,
            members: members.into(),
            owners,
        }
    }

    /// The owner of all names with this tag.
    #[must_use]
    #[inline]
    pub fn owner(&self, tag: &str) -> Address {
        if let [
            Member {
                node,
                shard_count: 1,
                ..
            },
        ] = *self.members
        {
            return Address { node, shard: 0 };
        }
        let hash = self.hash(tag);
        let index = self.owners.get(usize::from(slot(hash)));
        let member = self.members[usize::from(index.copied().unwrap_or(0))];
        Address {
            node: member.node,
            shard: shard(hash, member.shard_count),
        }
    }

    /// The slot of all names with this tag.
    #[must_use]
    pub fn slot(&self, tag: &str) -> u16 {
        slot(self.hash(tag))
    }

    /// The slot of all names with this tag, and their owner.
    #[must_use]
    pub fn place(&self, tag: &str) -> (u16, Address) {
        let hash = self.hash(tag);
        let slot = slot(hash);
        let index = self.owners.get(usize::from(slot));
        let member = self.members[usize::from(index.copied().unwrap_or(0))];
        let owner = Address {
            node: member.node,
            shard: shard(hash, member.shard_count),
        };
        (slot, owner)
    }

    /// The node that owns a slot. Slots above the last one belong to the first member.
    #[must_use]
    pub fn node(&self, slot: u16) -> u16 {
        let index = self.owners.get(usize::from(slot));
        self.members[usize::from(index.copied().unwrap_or(0))].node
    }

    /// The shards of all members, in ascending order.
    pub fn shards(&self) -> impl Iterator<Item = Address> + '_ {
        self.members.iter().flat_map(|member| {
            let node = member.node;
            (0..member.shard_count).map(move |shard| Address { node, shard })
        })
    }

    /// The number of these shards.
    #[must_use]
    pub fn shard_count(&self) -> usize {
        let counts = self.members.iter().map(|member| member.shard_count);
        counts.map(usize::from).sum()
    }

    #[inline]
    fn hash(&self, tag: &str) -> u64 {
        self.hasher.hash(tag.as_bytes())
    }
}

#[inline]
fn slot(hash: u64) -> u16 {
    (hash % u64::from(SLOT_COUNT)) as u16
}

/// The upper half of the hash, scaled to the number of shards. It shares no bit with the slot.
#[inline]
fn shard(hash: u64, shard_count: u16) -> u16 {
    (((hash >> 32) * u64::from(shard_count)) >> 32) as u16
}

/// Some of the slots.
#[derive(Clone, PartialEq, Eq)]
pub struct SlotSet(Box<[u64; SLOT_COUNT as usize / 64]>);

impl Default for SlotSet {
    fn default() -> Self {
        Self(Box::new([0; SLOT_COUNT as usize / 64]))
    }
}

impl std::fmt::Debug for SlotSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SlotSet({} slots)", self.iter().count())
    }
}

impl SlotSet {
    /// Whether it has the slot. No set has a number above the last slot.
    #[must_use]
    pub fn contains(&self, slot: u16) -> bool {
        let word = self.0.get(usize::from(slot / 64));
        word.is_some_and(|word| word & 1 << (slot % 64) != 0)
    }

    /// Adds a slot.
    pub fn insert(&mut self, slot: u16) {
        if let Some(word) = self.0.get_mut(usize::from(slot / 64)) {
            *word |= 1 << (slot % 64);
        }
    }

    /// Removes a slot.
    pub fn remove(&mut self, slot: u16) {
        if let Some(word) = self.0.get_mut(usize::from(slot / 64)) {
            *word &= !(1 << (slot % 64));
        }
    }

    /// Whether it has no slot.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// The slots in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        (0..SLOT_COUNT).filter(|slot| self.contains(*slot))
    }
}

impl Extend<u16> for SlotSet {
    fn extend<T: IntoIterator<Item = u16>>(&mut self, slots: T) {
        for slot in slots {
            self.insert(slot);
        }
    }
}

impl FromIterator<u16> for SlotSet {
    fn from_iter<T: IntoIterator<Item = u16>>(slots: T) -> Self {
        let mut set = Self::default();
        set.extend(slots);
        set
    }
}

/// The index of the member with the highest score for a slot (weighted rendezvous hashing). A member has one score for each unit of its
/// weight, so it wins in proportion to its weight, without a logarithm that processors might round differently. The member with the index
/// `absent` does not take part.
fn winner(hasher: &SipHasher13, members: &[Member], slot: u16, absent: Option<u16>) -> u16 {
    let mut best = (0, 0);
    for (index, member) in (0u16..).zip(members) {
        if absent == Some(index) {
            continue;
        }
        for unit in 0..member.weight {
            let ([a, b], [c, d]) = (slot.to_le_bytes(), member.node.to_le_bytes());
            let score = hasher.hash(&[a, b, c, d, unit]);
            if score > best.0 {
                best = (score, index);
            }
        }
    }
    best.1
}

/// The slots that these nodes own, or would own without one other member.
#[must_use]
pub fn likely_slots(key: &ClusterKey, members: &[Member], nodes: &[u16]) -> Vec<u16> {
    if nodes.is_empty() {
        return Vec::new();
    }
    let hasher = SipHasher13::new_with_key(&key.0);
    let mut sorted = members.to_vec();
    sorted.sort_unstable_by_key(|member| member.node);
    let is_likely = |slot: &u16| {
        let owner = winner(&hasher, &sorted, *slot, None);
        let next = winner(&hasher, &sorted, *slot, Some(owner));
        [owner, next]
            .map(|index| sorted.get(usize::from(index)))
            .iter()
            .flatten()
            .any(|member| nodes.contains(&member.node))
    };
    (0..SLOT_COUNT).filter(is_likely).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    const KEY: ClusterKey = ClusterKey([7; 16]);

    fn member(node: u16, shard_count: u16, weight: u8) -> Member {
        Member {
            node,
            shard_count,
            weight,
        }
    }

    fn vectors() -> Value {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../spec/vectors/cluster/slots.json"
        );
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
        value[key].as_array().unwrap()
    }

    fn number(value: &Value, key: &str) -> u16 {
        value[key].as_u64().unwrap().try_into().unwrap()
    }

    fn as_member(value: &Value) -> Member {
        Member {
            node: number(value, "node"),
            shard_count: number(value, "shards"),
            weight: number(value, "weight").try_into().unwrap(),
        }
    }

    fn key(value: &Value) -> ClusterKey {
        let number = u128::from_str_radix(value["key"].as_str().unwrap(), 16).unwrap();
        ClusterKey(number.to_be_bytes())
    }

    #[test]
    fn tags_slots_and_shards_are_those_of_the_specification() {
        let vectors = vectors();
        assert!(list(&vectors, "names").len() > 10);
        for case in list(&vectors, "names") {
            let collections = list(case, "by_prefix").iter();
            let rules = TagRules::new(collections.map(|it| it.as_str().unwrap()));
            let tag = rules.tag(case["name"].as_str().unwrap());
            assert_eq!(tag, case["tag"].as_str().unwrap());
            let table = SlotTable::of_one_node(&key(case), 1);
            assert_eq!(
                format!("{:016x}", table.hash(tag)),
                case["hash"].as_str().unwrap()
            );
            assert_eq!(table.slot(tag), number(case, "slot"), "{case}");
            for shards in list(case, "shards") {
                let table = SlotTable::of_one_node(&key(case), number(shards, "count"));
                assert_eq!(table.owner(tag).shard, number(shards, "shard"), "{case}");
                assert_eq!(table.place(tag), (table.slot(tag), table.owner(tag)));
            }
        }
    }

    #[test]
    fn the_owners_of_the_slots_are_those_of_the_specification() {
        let vectors = vectors();
        assert!(list(&vectors, "tables").len() > 2);
        for case in list(&vectors, "tables") {
            let members: Vec<Member> = list(case, "members").iter().map(as_member).collect();
            let table = SlotTable::new(&key(case), members.clone());
            // A digit for each slot: the index of its member.
            let owners = case["owners"].as_str().unwrap();
            assert_eq!(owners.len(), usize::from(SLOT_COUNT));
            for (slot, owner) in (0..).zip(owners.bytes()) {
                let member = members[usize::from(owner - b'0')];
                assert_eq!(table.node(slot), member.node, "slot {slot} of {members:?}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn names_with_one_prefix_have_one_owner(id in "[^/]{0,4}", rest in ".{0,8}", shards in 1u16..1_024) {
            let rules = TagRules::new(["a", "orders"]);
            let table = SlotTable::new(&KEY, vec![member(3, shards, 1), member(9, 2, 5)]);
            let owner = |name: &str| table.owner(rules.tag(name));
            prop_assert_eq!(owner(&format!("orders/{id}/{rest}")), owner(&format!("orders/{id}")));
        }

        #[test]
        fn a_member_that_joins_takes_slots_and_moves_no_others(weights in prop::collection::vec(1u8..4, 1..5), weight in 1u8..4) {
            let mut members: Vec<Member> = (0..).zip(&weights).map(|(node, weight)| member(2 * node, 1, *weight)).collect();
            let before = SlotTable::new(&KEY, members.clone());
            members.push(member(3, 1, weight));
            let after = SlotTable::new(&KEY, members);
            for slot in 0..SLOT_COUNT {
                prop_assert!(after.node(slot) == before.node(slot) || after.node(slot) == 3, "slot {}", slot);
            }
        }
    }

    #[test]
    fn a_set_has_the_slots_that_were_added_and_not_removed() {
        let mut set: SlotSet = [0, 63, 64, 4_095, 4_096].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 63, 64, 4_095]);
        set.remove(64);
        assert!(!set.contains(64) && set.contains(63) && !set.contains(4_096));
        for slot in [0, 63, 4_095] {
            assert!(!set.is_empty());
            set.remove(slot);
        }
        assert!(set.is_empty());
    }

    #[test]
    fn the_likely_slots_of_a_node_are_those_that_it_owns_without_any_one_other() {
        let members = [
            member(1, 1, 1),
            member(2, 1, 2),
            member(3, 1, 1),
            member(4, 2, 1),
        ];
        let mut owned = vec![false; usize::from(SLOT_COUNT)];
        for absent in [0, 1, 2, 4] {
            let present = members.iter().filter(|member| member.node != absent);
            let table = SlotTable::new(&KEY, present.copied().collect());
            for slot in 0..SLOT_COUNT {
                owned[usize::from(slot)] |= table.node(slot) == 3;
            }
        }
        let expected = (0..SLOT_COUNT).filter(|slot| owned[usize::from(*slot)]);
        let likely = likely_slots(&KEY, &members, &[3]);
        assert_eq!(likely, expected.collect::<Vec<_>>());
        assert!(likely_slots(&KEY, &members, &[]).is_empty());
        assert_eq!(likely_slots(&KEY, &members[..1], &[1]).len(), 4_096);
    }

    #[test]
    fn each_member_gets_slots_in_proportion_to_its_weight() {
        let members = vec![member(1, 1, 1), member(2, 1, 2), member(3, 1, 5)];
        let table = SlotTable::new(&KEY, members.clone());
        for Member { node, weight, .. } in members {
            let share = (0..SLOT_COUNT).filter(|slot| table.node(*slot) == node);
            let (share, expected) = (share.count(), 512 * usize::from(weight));
            assert!(share.abs_diff(expected) < expected / 5, "{node}: {share}");
        }
    }

    #[test]
    fn all_shards_of_a_node_own_about_as_many_names() {
        for shard_count in [2, 3, 16] {
            let table = SlotTable::of_one_node(&KEY, shard_count);
            let mut counts = vec![0_usize; usize::from(shard_count)];
            for number in 0..48_000 {
                counts[usize::from(table.owner(&format!("user/{number}")).shard)] += 1;
            }
            let mean = 48_000 / counts.len();
            assert!(
                counts.iter().all(|count| count.abs_diff(mean) < mean / 10),
                "{counts:?}"
            );
        }
    }
}

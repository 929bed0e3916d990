//! A trie of patterns by their segments, which finds all patterns that match a name.
//!
//! A lookup follows, from each node that it reaches, the child of the name's next segment and the child of `*`. So it visits at most the
//! nodes of patterns that match a part of the name from its start, and a name that no pattern begins like costs one look at a table.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use crate::table;
use tidewire_message::event_pattern::{SEPARATOR, Segment, segments};

/// The index in place of a missing node.
const NO_NODE: u32 = u32::MAX;
/// The node of the empty path. It always exists.
const ROOT: u32 = 0;

/// Values of patterns. See the head of this file.
#[derive(Debug)]
pub struct PatternTrie<V> {
    nodes: Vec<Option<Node<V>>>,
    /// Indexes without a node. The lowest ones are used first, so that the end of the table can be freed.
    free: BinaryHeap<Reverse<u32>>,
    /// The children by their parents and texts. The text itself is in the node.
    children: Box<[HashTable<Child>]>,
    hasher: FixedState,
    len: usize,
}

#[derive(Debug)]
struct Node<V> {
    parent: u32,
    /// The segment that leads here from the parent; `None` for `*`.
    text: Option<Box<str>>,
    /// The child of `*`.
    star: u32,
    /// Children of texts.
    text_count: u32,
    /// The value of the pattern that ends here.
    end: Option<V>,
    /// The value of the pattern that continues only with `**`.
    rest: Option<V>,
}

/// An entry of the table of children. It contains the hash, so that the table can grow without reading the nodes.
#[derive(Clone, Copy, Debug)]
struct Child {
    hash: u64,
    node: u32,
}

impl<V> Node<V> {
    fn new(parent: u32, text: Option<&str>) -> Self {
        Self {
            parent,
            text: text.map(Box::from),
            star: NO_NODE,
            text_count: 0,
            end: None,
            rest: None,
        }
    }

    fn is_unused(&self) -> bool {
        self.star == NO_NODE && self.text_count == 0 && self.end.is_none() && self.rest.is_none()
    }
}

impl<V: Copy> PatternTrie<V> {
    /// Creates a trie without patterns.
    pub fn new(seed: u64) -> Self {
        Self {
            nodes: vec![Some(Node::new(NO_NODE, None))],
            free: BinaryHeap::new(),
            children: (0..table::PARTS).map(|_| HashTable::new()).collect(),
            hasher: FixedState::with_seed(seed),
            len: 0,
        }
    }

    /// The number of patterns.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Sets the value of a valid pattern.
    pub fn insert(&mut self, pattern: &str, value: V) {
        let mut at = ROOT;
        for segment in segments(pattern) {
            at = match segment {
                Segment::Text(text) => self.text_child(at, text),
                Segment::One => self.star_child(at),
                Segment::Rest => {
                    let before = self.node_mut(at).rest.replace(value);
                    self.len += usize::from(before.is_none());
                    return;
                }
            };
        }
        let before = self.node_mut(at).end.replace(value);
        self.len += usize::from(before.is_none());
    }

    /// Removes a pattern, with the nodes that no other pattern needs.
    pub fn remove(&mut self, pattern: &str) {
        let mut at = ROOT;
        let mut is_rest = false;
        for segment in segments(pattern) {
            let next = match segment {
                Segment::Text(text) => self.find_child(at, text),
                Segment::One => Some(self.node(at).star).filter(|star| *star != NO_NODE),
                Segment::Rest => {
                    is_rest = true;
                    break;
                }
            };
            let Some(next) = next else { return };
            at = next;
        }
        let node = self.node_mut(at);
        let value = match is_rest {
            true => &mut node.rest,
            false => &mut node.end,
        };
        self.len -= usize::from(value.take().is_some());
        self.prune(at);
    }

    /// Calls `visit` with the value of each pattern that a name matches. Returns the number of nodes that it has visited.
    pub fn visit(&self, name: &str, mut visit: impl FnMut(V)) -> usize {
        self.walk(ROOT, Some(name), &mut visit)
    }

    /// `rest` is the part of the name after the path of the node.
    fn walk(&self, at: u32, rest: Option<&str>, visit: &mut impl FnMut(V)) -> usize {
        // The recursion is as deep as the trie, whose patterns have a limited number of segments.
        let node = self.node(at);
        let Some(rest) = rest else {
            if let Some(value) = node.end {
                visit(value);
            }
            return 1;
        };
        if let Some(value) = node.rest {
            visit(value);
        }
        let (segment, rest) = match rest.split_once(SEPARATOR) {
            Some((segment, rest)) => (segment, Some(rest)),
            None => (rest, None),
        };
        let mut count = 1;
        if node.text_count > 0
            && let Some(child) = self.find_child(at, segment)
        {
            count += self.walk(child, rest, visit);
        }
        if node.star != NO_NODE {
            count += self.walk(node.star, rest, visit);
        }
        count
    }

    fn find_child(&self, parent: u32, text: &str) -> Option<u32> {
        let hash = self.hasher.hash_one((parent, text));
        let is_it = |child: &Child| {
            child.hash == hash && {
                let node = self.node(child.node);
                node.parent == parent && node.text.as_deref() == Some(text)
            }
        };
        let found = self.children[table::part(hash)].find(hash, is_it);
        found.map(|child| child.node)
    }

    fn text_child(&mut self, parent: u32, text: &str) -> u32 {
        if let Some(known) = self.find_child(parent, text) {
            return known;
        }
        let node = self.add(Node::new(parent, Some(text)));
        let hash = self.hasher.hash_one((parent, text));
        let child = Child { hash, node };
        self.children[table::part(hash)].insert_unique(hash, child, |child| child.hash);
        self.node_mut(parent).text_count += 1;
        node
    }

    fn star_child(&mut self, parent: u32) -> u32 {
        let known = self.node(parent).star;
        if known != NO_NODE {
            return known;
        }
        let node = self.add(Node::new(parent, None));
        self.node_mut(parent).star = node;
        node
    }

    fn add(&mut self, node: Node<V>) -> u32 {
        let end = self.nodes.len() as u32;
        match self.free.pop() {
            Some(Reverse(id)) if id < end => {
                self.nodes[id as usize] = Some(node);
                id
            }
            _ => {
                // The table has become shorter than the lowest free index.
                self.free.clear();
                self.nodes.push(Some(node));
                end
            }
        }
    }

    /// Removes a node without patterns, and then its ancestors that nothing else needs.
    fn prune(&mut self, mut at: u32) {
        while at != ROOT && self.node(at).is_unused() {
            let Some(node) = self.nodes[at as usize].take() else {
                return;
            };
            let parent = node.parent;
            match node.text {
                None => self.node_mut(parent).star = NO_NODE,
                Some(text) => {
                    self.node_mut(parent).text_count -= 1;
                    self.remove_child(parent, &text, at);
                }
            }
            self.free.push(Reverse(at));
            at = parent;
        }
        self.shorten();
    }

    fn remove_child(&mut self, parent: u32, text: &str, node: u32) {
        let hash = self.hasher.hash_one((parent, text));
        let part = &mut self.children[table::part(hash)];
        if let Ok(entry) = part.find_entry(hash, |child| child.node == node) {
            entry.remove();
        }
        if let Some(room) = table::shrunk_part(part.len(), part.capacity()) {
            part.shrink_to(room, |child| child.hash);
        }
    }

    /// Removes the free entries at the end of the table, and frees memory that only a burst of patterns needed.
    fn shorten(&mut self) {
        while self.nodes.pop_if(|node| node.is_none()).is_some() {}
        if let Some(room) = table::shrunk(self.nodes.len(), self.nodes.capacity()) {
            self.nodes.shrink_to(room);
            let end = self.nodes.len() as u32;
            self.free.retain(|Reverse(id)| *id < end);
            self.free.shrink_to(room);
        }
    }

    fn node(&self, id: u32) -> &Node<V> {
        self.nodes[id as usize]
            .as_ref()
            .expect("ids come from parents and children, which are live nodes")
    }

    fn node_mut(&mut self, id: u32) -> &mut Node<V> {
        self.nodes[id as usize]
            .as_mut()
            .expect("ids come from parents and children, which are live nodes")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use tidewire_message::event_pattern::{is_pattern, matches};

    fn found(trie: &PatternTrie<u32>, name: &str) -> Vec<u32> {
        let mut found = Vec::new();
        trie.visit(name, |value| found.push(value));
        found.sort_unstable();
        found
    }

    /// Few different segments, so that patterns share paths and names match several of them.
    fn path() -> impl Strategy<Value = String> {
        let segment = prop::sample::select(vec!["", "a", "b", "é", "*", "**", "ab"]);
        prop::collection::vec(segment, 1..5).prop_map(|segments| segments.join("/"))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

        #[test]
        fn a_trie_finds_what_comparing_each_pattern_finds(
            steps in prop::collection::vec((path(), any::<bool>()), 1..60),
            names in prop::collection::vec(path(), 1..20),
        ) {
            let mut trie = PatternTrie::new(7);
            let mut model = BTreeMap::new();
            for (value, (pattern, is_added)) in (0..).zip(&steps) {
                if !is_pattern(pattern, 100, 8) {
                    continue;
                }
                if *is_added {
                    trie.insert(pattern, value);
                    model.insert(pattern.as_str(), value);
                } else {
                    trie.remove(pattern);
                    model.remove(pattern.as_str());
                }
                prop_assert_eq!(trie.len(), model.len());
            }
            for name in &names {
                let fits = model.iter().filter(|(pattern, _)| matches(pattern, name));
                let mut expected: Vec<u32> = fits.map(|(_, value)| *value).collect();
                expected.sort_unstable();
                prop_assert_eq!(found(&trie, name), expected, "{}", name);
            }
            for pattern in model.keys() {
                trie.remove(pattern);
            }
            prop_assert_eq!((trie.len(), trie.nodes.len()), (0, 1), "only the root is left");
            prop_assert!(trie.children.iter().all(HashTable::is_empty));
        }
    }

    #[test]
    fn churn_leaves_no_memory() {
        let mut trie = PatternTrie::new(7);
        let pattern = |number: u32| format!("a/{number}/*/b{number}/**");
        for number in 0..20_000 {
            trie.insert(&pattern(number), number);
        }
        assert_eq!(found(&trie, "a/77/x/b77/y/z"), [77]);
        for number in (0..20_000).map(|number| (number * 7_919) % 20_000) {
            trie.remove(&pattern(number));
        }
        assert_eq!((trie.len(), trie.nodes.len()), (0, 1));
        assert!(trie.nodes.capacity() < 10_000, "{}", trie.nodes.capacity());
        let room: usize = trie.children.iter().map(HashTable::capacity).sum();
        assert!(room < 10_000, "{room}");
    }

    #[test]
    fn a_name_visits_only_nodes_of_patterns_that_begin_like_it() {
        let mut trie = PatternTrie::new(7);
        for number in 0..1_000 {
            trie.insert(&format!("a/{number}/*"), number);
        }
        assert_eq!(trie.visit("b/1/x", |_| panic!("nothing matches")), 1);
        assert_eq!(trie.visit("a/x/x", |_| panic!("nothing matches")), 2);
        assert_eq!(trie.visit("a/1/x", |value| assert_eq!(value, 1)), 4);
    }
}

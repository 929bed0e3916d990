//! The patterns of events that shards have subscribers of.
//!
//! The patterns form a tree by their segments. A node is an entry of a lock-free map, and its key is a hash of the path to it, so that
//! shards add, remove and look up nodes without a lock. The hash is keyed at random. If two paths had the same hash, a shard would at worst
//! get an event that none of its own patterns matches: it compares the texts of its patterns itself.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::DefaultHashBuilder;
use papaya::{HashMap, Operation, ResizeMode};
use tidewire_core::event_pattern::{SEPARATOR, Segment, segments};

use super::{Bits, PARTS, add_bits, clear_bit, is_zero, set_bit};

/// The key of the node of the empty path.
const ROOT: u64 = 0;

/// A node: what continues after its path, and the shards with patterns that end there.
#[derive(Clone, Debug, Default)]
struct Node {
    /// Patterns that continue with a text, counted once for each shard.
    texts: u32,
    /// Patterns that continue with `*`, counted in the same way.
    stars: u32,
    /// The shards with the pattern of this path.
    ends: Bits,
    /// The shards with the pattern that continues only with `**`.
    rests: Bits,
}

/// A change of a node by one pattern.
#[derive(Clone, Copy, Debug)]
enum Part {
    Text,
    Star,
    End,
    Rest,
}

/// See the head of this file.
#[derive(Debug)]
pub(super) struct PatternInterest {
    /// Patterns, counted once for each shard.
    count: AtomicUsize,
    nodes: Box<[HashMap<u64, Node, DefaultHashBuilder>]>,
    hasher: DefaultHashBuilder,
}

impl Node {
    fn change(&mut self, part: Part, shard: u16, is_added: bool) {
        let bits = match part {
            Part::Text => return change_count(&mut self.texts, is_added),
            Part::Star => return change_count(&mut self.stars, is_added),
            Part::End => &mut self.ends,
            Part::Rest => &mut self.rests,
        };
        match is_added {
            true => set_bit(bits, shard),
            false => clear_bit(bits, shard),
        }
    }

    fn is_unused(&self) -> bool {
        self.texts == 0 && self.stars == 0 && is_zero(&self.ends) && is_zero(&self.rests)
    }
}

fn change_count(count: &mut u32, is_added: bool) {
    *count = match is_added {
        true => count.saturating_add(1),
        false => count.saturating_sub(1),
    };
}

impl PatternInterest {
    /// Creates it without patterns.
    pub(super) fn new() -> Self {
        let part = |_| {
            HashMap::builder()
                .hasher(DefaultHashBuilder::default())
                .resize_mode(ResizeMode::Blocking)
                .build()
        };
        Self {
            count: AtomicUsize::new(0),
            nodes: (0..PARTS).map(part).collect(),
            hasher: DefaultHashBuilder::default(),
        }
    }

    /// Whether no shard has a pattern. A publisher looks no further then.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        // A subscription is acknowledged through channels that order memory, so a publisher that could know of it sees the count.
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Adds or removes a pattern of one shard. Visible to all shards when it returns.
    pub(super) fn change(&self, shard: u16, pattern: &str, is_added: bool) {
        // The count includes a pattern for at least as long as one of its nodes exists.
        if is_added {
            self.count.fetch_add(1, Ordering::Release);
        }
        let mut path = ROOT;
        let mut last = Part::End;
        for segment in segments(pattern) {
            let (part, next) = match segment {
                Segment::Text(text) => (Part::Text, self.text_child(path, text)),
                Segment::One => (Part::Star, self.star_child(path)),
                Segment::Rest => {
                    last = Part::Rest;
                    break;
                }
            };
            self.change_node(path, part, shard, is_added);
            path = next;
        }
        self.change_node(path, last, shard, is_added);
        if !is_added {
            self.count.fetch_sub(1, Ordering::Release);
        }
    }

    /// Adds to `found` the shards with a pattern that a name matches. Stops as soon as `is_complete` holds for the shards found so far.
    pub(super) fn find(&self, name: &str, found: &mut Bits, is_complete: impl Fn(&Bits) -> bool) {
        self.walk(ROOT, Some(name), found, &is_complete);
    }

    /// `rest` is the part of the name after the path of the node.
    fn walk(
        &self,
        path: u64,
        rest: Option<&str>,
        found: &mut Bits,
        is_complete: &impl Fn(&Bits) -> bool,
    ) {
        let (has_texts, has_stars) = {
            let nodes = self.part(path).pin();
            let Some(node) = nodes.get(&path) else {
                return;
            };
            match rest {
                None => return add_bits(found, &node.ends),
                Some(_) => add_bits(found, &node.rests),
            }
            (node.texts > 0, node.stars > 0)
        };
        // The recursion is as deep as the longest pattern, and patterns have a limited number of segments.
        let rest = rest.unwrap_or_default();
        let (segment, rest) = match rest.split_once(SEPARATOR) {
            Some((segment, rest)) => (segment, Some(rest)),
            None => (rest, None),
        };
        if has_texts && !is_complete(found) {
            self.walk(self.text_child(path, segment), rest, found, is_complete);
        }
        if has_stars && !is_complete(found) {
            self.walk(self.star_child(path), rest, found, is_complete);
        }
    }

    fn change_node(&self, path: u64, part: Part, shard: u16, is_added: bool) {
        let nodes = self.part(path).pin();
        nodes.compute(path, |entry| {
            let mut node = entry.map_or_else(Node::default, |(_, node)| node.clone());
            node.change(part, shard, is_added);
            match (entry, node.is_unused()) {
                (None, true) => Operation::Abort(()),
                (Some(_), true) => Operation::Remove,
                (_, false) => Operation::Insert(node),
            }
        });
    }

    fn text_child(&self, path: u64, text: &str) -> u64 {
        self.hasher.hash_one((path, text))
    }

    fn star_child(&self, path: u64) -> u64 {
        self.hasher.hash_one((path, u64::MAX))
    }

    fn part(&self, path: u64) -> &HashMap<u64, Node, DefaultHashBuilder> {
        &self.nodes[(path >> 32) as usize % PARTS]
    }

    /// The number of nodes.
    #[cfg(test)]
    pub(super) fn node_count(&self) -> usize {
        self.nodes.iter().map(HashMap::len).sum()
    }
}

//! The link between the two nodes of a run.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidewire_core::entry::Entry;
use tidewire_core::permission::Permission;
use tidewire_wire::entry::{DecodeLimits, Decoder, Post, begin_batch, encode};

use crate::nodes::address;

/// The number of nodes.
pub const NODES: usize = 2;

/// A perfect link between the nodes: entries of another node come through their wire form, at once and in order.
#[derive(Debug)]
pub struct Link {
    /// By node, the decoder of what arrives there.
    decoders: [Decoder; NODES],
    /// The rules by the number of their change. All nodes load them from one place.
    rules: BTreeMap<u64, Arc<dyn Permission>>,
}

impl Link {
    pub fn new() -> Self {
        let limits = DecodeLimits {
            post_bytes_max: 1 << 20,
            pattern_bytes_max: 1 << 10,
        };
        Self {
            decoders: [Decoder::new(limits), Decoder::new(limits)],
            rules: BTreeMap::new(),
        }
    }

    /// The rules of a change, of which all nodes know at least as soon as the first shard that applies it.
    pub fn know(&mut self, number: u64, rules: Arc<dyn Permission>) {
        self.rules.entry(number).or_insert(rules);
    }

    /// The entry as the shard receives it.
    pub fn carry(&mut self, from: usize, to: usize, entry: Entry) -> Entry {
        let (from, to) = (address(from), address(to));
        if from.node == to.node {
            return entry;
        }
        let mut bytes = Vec::new();
        begin_batch(&mut bytes);
        let shard = to.shard;
        let from = 0;
        encode(&Post { shard, entry, from }, &mut bytes);
        let decoder = &mut self.decoders[usize::from(to.node)];
        let rules = &self.rules;
        let (first, second) = bytes.split_at(bytes.len() / 2);
        decoder.push(first);
        let early = decoder.decode(&|number| rules.get(&number).cloned());
        assert!(early.is_ok_and(|post| post.is_none()), "half a post");
        decoder.push(second);
        let post = decoder.decode(&|number| rules.get(&number).cloned());
        let post = post.expect("the node reads what another node has written");
        let post = post.expect("the whole post has arrived");
        assert_eq!(post.shard, shard);
        post.entry
    }
}

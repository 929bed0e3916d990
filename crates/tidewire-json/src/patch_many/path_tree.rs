//! The paths of a list as a tree, with equal beginnings in common.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::literal::unescape;
use crate::path::{Path, Token, array_index};
use crate::scan::RawString;

/// The place of a path's step in [`PathTree::nodes`].
pub(super) type NodeId = usize;

/// The node of the document itself.
pub(super) const ROOT: NodeId = 0;

/// The paths of a list, with equal beginnings in common.
pub(super) struct PathTree<'p> {
    pub(super) nodes: Vec<PathNode<'p>>,
}

/// Target of one or more paths.
#[derive(Default)]
pub(super) struct PathNode<'p> {
    /// The step from its container as an object spells it. An array reads an index, or its length, from the same text.
    pub(super) name: Cow<'p, str>,
    pub(super) children: BTreeMap<Cow<'p, str>, NodeId>,
    /// The children that an array takes for elements, by their index.
    pub(super) elements: Vec<(usize, NodeId)>,
    /// A bit for each length (modulo 64) of the children's names: most keys of an object are skipped without a search.
    pub(super) lengths: u64,
}

impl<'p> PathTree<'p> {
    /// The tree of all paths, and for each path its nodes from the first step on.
    pub(super) fn of<'a: 'p>(patches: &'p [(Path<'a>, Option<&str>)]) -> (Self, Vec<Vec<NodeId>>) {
        let mut tree = Self {
            nodes: vec![PathNode::default()],
        };
        let routes = patches.iter().map(|(path, _)| tree.insert(path)).collect();
        for node in &mut tree.nodes {
            let index = |(name, child): (&Cow<'_, str>, &NodeId)| {
                array_index(name).map(|index| (index as usize, *child))
            };
            node.elements = node.children.iter().filter_map(index).collect();
            node.elements.sort_unstable();
        }
        (tree, routes)
    }

    fn insert(&mut self, path: &'p Path<'_>) -> Vec<NodeId> {
        let mut parent = ROOT;
        let step = |token: &'p Token<'_>| {
            let name: Cow<'p, str> = match token {
                Token::Key(key) => Cow::Borrowed(key),
                Token::Index(index) => Cow::Owned(index.to_string()),
            };
            let next = self.nodes.len();
            let node = &mut self.nodes[parent];
            let child = *node.children.entry(name.clone()).or_insert(next);
            node.lengths |= length_bit(&name);
            if child == next {
                self.nodes.push(PathNode {
                    name,
                    ..PathNode::default()
                });
            }
            parent = child;
            child
        };
        path.tokens().iter().map(step).collect()
    }

    /// The child of `node` that the key at `raw` names.
    #[inline]
    pub(super) fn member(&self, node: NodeId, text: &str, raw: &RawString) -> Option<NodeId> {
        let node = &self.nodes[node];
        if !raw.escaped && node.lengths & (1 << (raw.inner.len() % 64)) == 0 {
            return None;
        }
        let inner = text.get(raw.inner.clone())?;
        let child = if raw.escaped {
            node.children.get(unescape(inner)?.as_str())
        } else {
            node.children.get(inner)
        };
        child.copied()
    }

    /// Whether a path continues below `node`.
    pub(super) fn goes_on(&self, node: NodeId) -> bool {
        !self.nodes[node].children.is_empty()
    }
}

fn length_bit(name: &str) -> u64 {
    1 << (name.len() % 64)
}

//! An open object: the members that patches name.

use std::collections::BTreeMap;
use std::ops::Range;

use super::output::Output;
use super::path_tree::{NodeId, PathTree};
use super::value::{Source, Value};
use crate::literal::string;
use crate::patch::PatchError;

#[derive(Default)]
pub(super) struct Object<'d> {
    pub(super) source: Source<'d>,
    /// The members of the source that paths name, in the order of the text.
    pub(super) members: Vec<Member<'d>>,
    /// New members in the order in which they were written; `None` if one was deleted again.
    pub(super) added: Vec<Option<(NodeId, Value<'d>)>>,
    /// Where the member that counts is.
    pub(super) indices: BTreeMap<NodeId, MemberIndex>,
}

/// A member of a source text.
pub(super) struct Member<'d> {
    /// Its place among all members.
    pub(super) ordinal: usize,
    /// Where the member before it ends.
    pub(super) before: usize,
    pub(super) start: usize,
    pub(super) value: Range<usize>,
    /// Replacement of the value, if a patch or the scan opened or replaced it.
    pub(super) new_value: Option<Value<'d>>,
    pub(super) is_removed: bool,
    /// The member of the same name before it, which does not count.
    pub(super) previous: Option<usize>,
}

#[derive(Clone, Copy)]
pub(super) enum MemberIndex {
    Source(usize),
    Added(usize),
}

impl<'d> Object<'d> {
    /// Notes a member of the source. Of equal keys the last one counts.
    pub(super) fn note(&mut self, node: NodeId, member: impl FnOnce(Option<usize>) -> Member<'d>) {
        let index = MemberIndex::Source(self.members.len());
        let previous = match self.indices.insert(node, index) {
            Some(MemberIndex::Source(previous)) => Some(previous),
            _ => None,
        };
        self.members.push(member(previous));
    }

    /// Value of the member after the patches or the scan; `None` for a scalar of the source as well.
    pub(super) fn new_value(&mut self, node: NodeId) -> Option<&mut Value<'d>> {
        match *self.indices.get(&node)? {
            MemberIndex::Source(index) => self.members.get_mut(index)?.new_value.as_mut(),
            MemberIndex::Added(index) => {
                let (_, value) = self.added.get_mut(index)?.as_mut()?;
                Some(value)
            }
        }
    }

    pub(super) fn set(&mut self, node: NodeId, value: Value<'d>) {
        match self.indices.get(&node) {
            Some(MemberIndex::Source(index)) => self.members[*index].new_value = Some(value),
            Some(MemberIndex::Added(index)) => self.added[*index] = Some((node, value)),
            None => {
                let index = MemberIndex::Added(self.added.len());
                self.indices.insert(node, index);
                self.added.push(Some((node, value)));
            }
        }
    }

    /// Deletes every member of the name.
    pub(super) fn delete(&mut self, node: NodeId) {
        match self.indices.remove(&node) {
            None => {}
            Some(MemberIndex::Added(index)) => self.added[index] = None,
            Some(MemberIndex::Source(index)) => {
                let mut next = Some(index);
                while let Some(member) = next.and_then(|index| self.members.get_mut(index)) {
                    member.is_removed = true;
                    next = member.previous;
                }
            }
        }
    }

    pub(super) fn write(&self, paths: &PathTree<'_>, out: &mut Output) -> Result<(), PatchError> {
        let source = &self.source;
        let mut done = source.range.start;
        // Removed members before the first kept one go together with the comma behind them, later ones with the comma
        // before them.
        let mut leading = 0;
        let mut kept = source.count;
        for member in &self.members {
            if member.is_removed {
                kept -= 1;
                if member.ordinal == leading {
                    leading += 1;
                    out.push(source.text, done..member.start)?;
                    done = source.next_start(member.value.end);
                } else {
                    out.push(source.text, done..member.before)?;
                    done = member.value.end;
                }
            } else if let Some(value) = &member.new_value {
                out.push(source.text, done..member.value.start)?;
                value.write(paths, out)?;
                done = member.value.end;
            }
        }
        out.push(source.text, done..source.entries_end)?;
        let mut is_first = kept == 0;
        for (node, value) in self.added.iter().flatten() {
            out.comma(&mut is_first);
            string(&paths.nodes[*node].name, &mut out.text);
            out.text.push(':');
            value.write(paths, out)?;
        }
        out.push(source.text, source.entries_end..source.range.end)
    }
}

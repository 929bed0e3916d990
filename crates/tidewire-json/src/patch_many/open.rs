//! Opens the containers that a path leads into, in one scan of their text.

use super::array::{Array, Element};
use super::object::{Member, Object};
use super::path_tree::{NodeId, PathTree};
use super::value::{Source, Value};
use crate::scan::{Entries, Malformed, is_container, peek, value_end};

impl PathTree<'_> {
    /// Opens the container at `at`, and those within that a path leads into; returns the place behind it too.
    pub(super) fn open<'d>(
        &self,
        text: &'d str,
        at: usize,
        node: NodeId,
    ) -> Result<(Value<'d>, usize), Malformed> {
        if peek(text.as_bytes(), at) == b'{' {
            self.open_object(text, at, node)
        } else {
            self.open_array(text, at, node)
        }
    }

    /// Opens the value at `at` if it is a container with a path below it; returns the place behind it in any case.
    #[inline]
    fn open_inner<'d>(
        &self,
        text: &'d str,
        at: usize,
        node: Option<NodeId>,
    ) -> Result<(Option<Value<'d>>, usize), Malformed> {
        match node {
            Some(node) if self.goes_on(node) && is_container(text.as_bytes(), at) => {
                let (value, end) = self.open(text, at, node)?;
                Ok((Some(value), end))
            }
            _ => Ok((None, value_end(text.as_bytes(), at)?)),
        }
    }

    fn open_object<'d>(
        &self,
        text: &'d str,
        at: usize,
        node: NodeId,
    ) -> Result<(Value<'d>, usize), Malformed> {
        let mut entries = Entries::of(text.as_bytes(), at)?;
        let mut object = Object::default();
        loop {
            let (ordinal, before) = (entries.count, entries.end);
            let mut child = None;
            let mut opened = None;
            let entry = entries.advance_by(|key, start| {
                child = key.and_then(|key| self.member(node, text, key));
                let (value, end) = self.open_inner(text, start, child)?;
                opened = value;
                Ok(end)
            })?;
            let Some(entry) = entry else { break };
            if let Some(child) = child {
                object.note(child, |previous| Member {
                    ordinal,
                    before,
                    start: entry.start(),
                    value: entry.value,
                    new_value: opened,
                    is_removed: false,
                    previous,
                });
            }
        }
        object.source = Source::of(text, at, &entries);
        let end = object.source.range.end;
        Ok((Value::Object(Box::new(object)), end))
    }

    fn open_array<'d>(
        &self,
        text: &'d str,
        at: usize,
        node: NodeId,
    ) -> Result<(Value<'d>, usize), Malformed> {
        let mut wanted = self.nodes[node].elements.iter().peekable();
        let mut entries = Entries::of(text.as_bytes(), at)?;
        let mut array = Array::default();
        loop {
            let child = wanted.next_if(|(index, _)| *index == entries.count);
            let mut opened = None;
            let entry = entries.advance_by(|_, start| {
                let (value, end) = self.open_inner(text, start, child.map(|(_, node)| *node))?;
                opened = value;
                Ok(end)
            })?;
            let Some(entry) = entry else { break };
            if let Some((index, _)) = child {
                array.elements.push(Element {
                    index: *index,
                    value: entry.value,
                    new_value: opened,
                });
            }
        }
        array.source = Source::of(text, at, &entries);
        array.kept = array.source.count;
        let end = array.source.range.end;
        Ok((Value::Array(Box::new(array)), end))
    }
}

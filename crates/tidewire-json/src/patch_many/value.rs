//! A value of the new document, and the text from which it was opened.

use std::ops::Range;

use super::array::{Array, Step};
use super::object::Object;
use super::output::Output;
use super::path_tree::{NodeId, PathTree};
use crate::patch::PatchError;
use crate::path::Token;
use crate::scan::{Entries, Malformed, is_container, peek, skip_space};

/// A value of the new document.
pub(super) enum Value<'d> {
    /// The text is copied unchanged from the document or from a patch.
    Text(&'d str),
    Object(Box<Object<'d>>),
    Array(Box<Array<'d>>),
}

impl<'d> Value<'d> {
    /// Opens the value in its place if it is the text of a container.
    pub(super) fn open(&mut self, paths: &PathTree<'_>, node: NodeId) -> Result<(), Malformed> {
        if let Self::Text(text) = *self
            && is_container(text.as_bytes(), 0)
        {
            (*self, _) = paths.open(text, 0, node)?;
        }
        Ok(())
    }

    pub(super) fn is_container(&self) -> bool {
        match self {
            Self::Text(text) => is_container(text.as_bytes(), 0),
            Self::Object(_) | Self::Array(_) => true,
        }
    }

    /// The container that `token` leads to, if there is one. The value must be open.
    pub(super) fn container(&mut self, token: &Token<'_>, node: NodeId) -> Option<&mut Value<'d>> {
        let inner = match self {
            Self::Text(_) => None,
            Self::Object(object) => object.new_value(node),
            Self::Array(array) => match Step::of(token) {
                Step::Element(index) => array.new_value(index),
                Step::Length | Step::Dropped => None,
            },
        };
        inner.filter(|value| value.is_container())
    }

    pub(super) fn write(&self, paths: &PathTree<'_>, out: &mut Output) -> Result<(), PatchError> {
        match self {
            Self::Text(text) => out.push(text, 0..text.len()),
            Self::Object(object) => object.write(paths, out),
            Self::Array(array) => array.write(paths, out),
        }
    }
}

/// A container of a source text.
#[derive(Default)]
pub(super) struct Source<'d> {
    pub(super) text: &'d str,
    /// From the opening bracket to the place behind the closing one.
    pub(super) range: Range<usize>,
    /// Its entries.
    pub(super) count: usize,
    /// The place behind the last entry, or behind the opening bracket.
    pub(super) entries_end: usize,
}

impl<'d> Source<'d> {
    /// The container that opens at `at`, after all its entries.
    pub(super) fn of(text: &'d str, at: usize, entries: &Entries<'_>) -> Self {
        Self {
            text,
            range: at..skip_space(text.as_bytes(), entries.end) + 1,
            count: entries.count,
            entries_end: entries.end,
        }
    }

    /// A container that no text has yet.
    pub(super) fn empty(text: &'static str) -> Self {
        Self {
            text,
            range: 0..text.len(),
            count: 0,
            entries_end: 1,
        }
    }

    /// Where the entry behind the one that ends at `end` starts, or `end` if that is the last.
    pub(super) fn next_start(&self, end: usize) -> usize {
        let bytes = self.text.as_bytes();
        let comma = skip_space(bytes, end);
        if peek(bytes, comma) == b',' {
            skip_space(bytes, comma + 1)
        } else {
            end
        }
    }
}

//! An open array: the elements that patches name, its length, and the meaning of a token for it.

use std::ops::Range;

use super::output::{NULL, Nulls, Output};
use super::path_tree::PathTree;
use super::value::{Source, Value};
use crate::patch::PatchError;
use crate::path::{Token, array_index};
use crate::scan::{Entries, Malformed};

#[derive(Default)]
pub(super) struct Array<'d> {
    pub(super) source: Source<'d>,
    /// The elements of the source that paths name, in their order.
    pub(super) elements: Vec<Element<'d>>,
    /// Elements of the source that are left after the length was cut.
    pub(super) kept: usize,
    /// The elements behind them; `None` is null.
    pub(super) added: Vec<Option<Value<'d>>>,
}

/// An element of a source text.
pub(super) struct Element<'d> {
    pub(super) index: usize,
    pub(super) value: Range<usize>,
    /// Replacement of the value, if a patch or the scan opened or replaced it.
    pub(super) new_value: Option<Value<'d>>,
}

impl<'d> Array<'d> {
    fn len(&self) -> usize {
        self.kept + self.added.len()
    }

    /// The place of an element that paths name, if the array is that long.
    fn slot(&mut self, index: usize) -> Option<&mut Option<Value<'d>>> {
        if let Some(added) = index.checked_sub(self.kept) {
            return self.added.get_mut(added);
        }
        let found = self.elements.binary_search_by_key(&index, |it| it.index);
        Some(&mut self.elements.get_mut(found.ok()?)?.new_value)
    }

    /// Value of the element after the patches or the scan; `None` for a scalar of the source as well.
    pub(super) fn new_value(&mut self, index: usize) -> Option<&mut Value<'d>> {
        self.slot(index)?.as_mut()
    }

    pub(super) fn set(
        &mut self,
        index: usize,
        value: Value<'d>,
        nulls: &mut Nulls,
    ) -> Result<(), PatchError> {
        if let Some(slot) = self.slot(index) {
            *slot = Some(value);
            return Ok(());
        }
        self.fill(index, nulls)?;
        self.added.push(Some(value));
        Ok(())
    }

    /// Deletes an element, which leaves null.
    pub(super) fn delete(&mut self, index: usize) {
        if let Some(slot) = self.slot(index) {
            *slot = Some(Value::Text(NULL));
        }
    }

    /// Appends null until there are `length` elements.
    pub(super) fn fill(&mut self, length: usize, nulls: &mut Nulls) -> Result<(), PatchError> {
        nulls.take(length.saturating_sub(self.len()))?;
        self.added
            .resize_with(length.saturating_sub(self.kept), || None);
        Ok(())
    }

    /// Cuts the array to a length, or fills it with null.
    pub(super) fn set_length(
        &mut self,
        length: usize,
        nulls: &mut Nulls,
    ) -> Result<(), PatchError> {
        if length > self.len() {
            return self.fill(length, nulls);
        }
        self.kept = self.kept.min(length);
        self.added.truncate(length - self.kept);
        Ok(())
    }

    pub(super) fn write(&self, paths: &PathTree<'_>, out: &mut Output) -> Result<(), PatchError> {
        let source = &self.source;
        let mut done = source.range.start;
        let kept = self.elements.iter().filter(|it| it.index < self.kept);
        for element in kept {
            if let Some(value) = &element.new_value {
                out.push(source.text, done..element.value.start)?;
                value.write(paths, out)?;
                done = element.value.end;
            }
        }
        out.push(source.text, done..self.kept_end()?)?;
        let mut is_first = self.kept == 0;
        for value in &self.added {
            out.comma(&mut is_first);
            value
                .as_ref()
                .unwrap_or(&Value::Text(NULL))
                .write(paths, out)?;
        }
        out.push(source.text, source.entries_end..source.range.end)
    }

    /// Where the last element of the source ends that is left. Only a cut makes a second scan of the array, and only one.
    fn kept_end(&self) -> Result<usize, Malformed> {
        let source = &self.source;
        if self.kept == source.count {
            return Ok(source.entries_end);
        }
        let mut entries = Entries::of(source.text.as_bytes(), source.range.start)?;
        while entries.count < self.kept && entries.advance()?.is_some() {}
        Ok(entries.end)
    }
}

/// Meaning of a token for an array.
pub(super) enum Step {
    Element(usize),
    Length,
    /// JavaScript keeps any other key of an array until `JSON.stringify` drops it.
    Dropped,
}

impl Step {
    pub(super) fn of(token: &Token<'_>) -> Self {
        match token {
            Token::Index(index) => Self::Element(*index as usize),
            Token::Key(key) if key == "length" => Self::Length,
            Token::Key(key) => match array_index(key) {
                Some(index) => Self::Element(index as usize),
                None => Self::Dropped,
            },
        }
    }
}

//! The text of the new document, and the limits that it keeps.

use std::ops::Range;

use crate::check::JsonLimits;
use crate::patch::PatchError;

/// Value that fills an array up to an index behind its end.
pub(super) const NULL: &str = "null";

/// How many elements the list may still fill with null.
pub(super) struct Nulls {
    pub(super) gap_left: usize,
    /// As many as a document can hold.
    pub(super) held_left: usize,
}

impl Nulls {
    pub(super) fn within(limits: JsonLimits) -> Self {
        Self {
            gap_left: limits.array_gap_max,
            held_left: limits.bytes_max / (NULL.len() + 1),
        }
    }

    pub(super) fn take(&mut self, count: usize) -> Result<(), PatchError> {
        let gap_left = self.gap_left.checked_sub(count);
        self.gap_left = gap_left.ok_or(PatchError::ArrayGap)?;
        let held_left = self.held_left.checked_sub(count);
        self.held_left = held_left.ok_or(PatchError::TooLarge)?;
        Ok(())
    }
}

/// The new document as far as it is written.
pub(super) struct Output {
    pub(super) text: String,
    pub(super) bytes_max: usize,
}

impl Output {
    pub(super) fn push(&mut self, text: &str, range: Range<usize>) -> Result<(), PatchError> {
        let piece = text.get(range).ok_or(PatchError::Malformed)?;
        if self.text.len() + piece.len() > self.bytes_max {
            return Err(PatchError::TooLarge);
        }
        self.text.push_str(piece);
        Ok(())
    }

    pub(super) fn comma(&mut self, is_first: &mut bool) {
        if !std::mem::take(is_first) {
            self.text.push(',');
        }
    }
}

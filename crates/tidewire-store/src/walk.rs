//! A walk over all records of a store, in pages of about the same number of bytes, so that it needs little memory whether
//! records are small or large.

use tidewire_core::store::{Loaded, StoreError, StoreReader};
use tidewire_core::text::Name;

/// Bytes of names and values that a page should have.
const PAGE_BYTES: usize = 2 << 20;
/// Records of the first page, of which nothing is known.
const FIRST_COUNT: usize = 16;
/// Records of a page, however small they are.
const COUNT_MAX: usize = 500;

/// Times that a page may be empty though there is more: its records were deleted between two looks of the store.
const EMPTY_MAX: u32 = 10;

/// Where a walk is.
#[derive(Debug)]
pub(super) struct Walk {
    prefix: String,
    last: Option<Name>,
    count_max: usize,
    /// Empty pages in turn.
    empty_count: u32,
}

/// What a page had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Page {
    /// Bytes of the names and values of sound records.
    pub bytes: usize,
    /// Whether there may be more behind it.
    pub has_more: bool,
}

impl Walk {
    /// Before the first record.
    pub(super) fn new() -> Self {
        Self::below("")
    }

    /// Before the first record whose name has a prefix; those are walked over.
    pub(super) fn below(prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            last: None,
            count_max: FIRST_COUNT,
            empty_count: 0,
        }
    }

    /// Visits the next records in byte order of their names.
    ///
    /// # Errors
    /// The store can't be read now; the walk may go on from where it was.
    pub(super) fn next_page(
        &mut self,
        reader: &mut dyn StoreReader,
        visit: &mut dyn FnMut(&Name, Loaded),
    ) -> Result<Page, StoreError> {
        let (mut bytes, mut count) = (0, 0);
        let mut last = None;
        let has_more = reader.scan(
            &self.prefix,
            self.last.as_ref(),
            self.count_max,
            &mut |name, loaded| {
                count += 1;
                if let Loaded::Found(record) = &loaded {
                    bytes += name.len() + record.data.len();
                }
                visit(&name, loaded);
                last = Some(name);
            },
        )?;
        match last {
            Some(last) => {
                self.last = Some(last);
                self.empty_count = 0;
            }
            None if has_more => {
                self.empty_count += 1;
                if self.empty_count > EMPTY_MAX {
                    let behind = self.last.as_deref().unwrap_or_default();
                    let message = format!("the store has names without records behind {behind:?}");
                    return Err(StoreError::unavailable(message));
                }
            }
            None => {}
        }
        self.count_max = next_count(count, bytes);
        Ok(Page { bytes, has_more })
    }
}

/// Records of a page that follows one of `count` records and `bytes`.
fn next_count(count: usize, bytes: usize) -> usize {
    let each = bytes / count.max(1);
    (PAGE_BYTES / each.max(1)).clamp(1, COUNT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_the_size_of_records() {
        for (count, bytes, expected) in [
            (0, 0, COUNT_MAX),
            (500, 500 * 100, COUNT_MAX),
            (16, 16 << 16, 32),
            (10, 10 << 20, 2),
            (2, 64 << 20, 1),
        ] {
            assert_eq!(next_count(count, bytes), expected, "{count}, {bytes}");
        }
    }
}

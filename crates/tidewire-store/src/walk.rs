//! A walk over all records of a store. Its pages have about the same number of bytes, so it needs little memory whether records
//! are small or large.

use tidewire_core::store::{Loaded, StoreError, StoreReader};
use tidewire_core::text::Name;

/// Target size of a page, in bytes of names and values.
const PAGE_BYTES: usize = 2 << 20;
/// Records of the first page, before the walk knows how large records are.
const FIRST_COUNT: usize = 16;
/// Maximum number of records in a page, however small they are.
const COUNT_MAX: usize = 500;

/// Maximum number of consecutive empty pages while the store reports more records. A page is empty if its records were deleted between
/// the store's two queries.
const EMPTY_MAX: u32 = 10;

/// Where a walk is.
#[derive(Debug)]
pub(super) struct Walk {
    prefix: String,
    last: Option<Name>,
    count_max: usize,
    /// Consecutive empty pages.
    empty_count: u32,
}

/// The contents of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Page {
    /// Bytes of the names and values of sound records.
    pub bytes: usize,
    /// Whether more records may follow.
    pub has_more: bool,
}

impl Walk {
    /// A walk over all records, before the first one.
    pub(super) fn new() -> Self {
        Self::below("")
    }

    /// A walk over the records whose names have a prefix, before the first one.
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
    /// The store can't be read now; a further call continues the walk from the same position.
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
                    let message = format!("the store has names without records after {behind:?}");
                    return Err(StoreError::unavailable(message));
                }
            }
            None => {}
        }
        self.count_max = next_count(count, bytes);
        Ok(Page { bytes, has_more })
    }
}

/// The number of records in a page that follows a page of `count` records and `bytes` bytes.
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

//! What shards have in their tables, a part of a table at a time, so that no shard is blocked for long.

use tidewire_core::inspect::Inspected;
use tidewire_shard::handle::ShardHandle;

use crate::admin::api::{Refusal, stopping};

/// A walk through the parts of one table of all shards.
pub(super) struct ShardParts<'a> {
    shards: &'a [ShardHandle],
    /// The shard with the next part.
    number: usize,
    /// The entry with which that part begins.
    first: usize,
}

/// A part, and the shard that has it.
pub(super) struct ShardPart<'a, T> {
    pub(super) number: usize,
    pub(super) shard: &'a ShardHandle,
    pub(super) found: Vec<T>,
}

impl<'a> ShardParts<'a> {
    pub(super) fn new(shards: &'a [ShardHandle]) -> Self {
        Self {
            shards,
            number: 0,
            first: 0,
        }
    }

    /// The next part; `None` after the last one. `inspect` inspects the table of a shard from an entry on.
    ///
    /// # Errors
    /// A shard has ended.
    pub(super) async fn next<T, F>(
        &mut self,
        inspect: impl FnOnce(&'a ShardHandle, usize) -> F,
    ) -> Result<Option<ShardPart<'a, T>>, Refusal>
    where
        F: Future<Output = Option<Inspected<T>>>,
    {
        let number = self.number;
        let Some(shard) = self.shards.get(number) else {
            return Ok(None);
        };
        let inspected = inspect(shard, self.first).await.ok_or_else(stopping)?;
        match inspected.next {
            Some(first) => self.first = first,
            None => (self.number, self.first) = (number + 1, 0),
        }
        let found = inspected.found;
        Ok(Some(ShardPart {
            number,
            shard,
            found,
        }))
    }
}

//! Intervals of keys, and the ones that overlap a range.
//!
//! They are sorted by their low and then their high end, in chunks that know their highest end. A search reads the chunks that begin
//! before the end of its range and skips those whose highest end is before its start. So the cost is a comparison per chunk and one per
//! interval of the chunks that may overlap. An interval tree would have the better bound for intervals that contain one another; the
//! intervals of queries rarely do.

/// Intervals of a full chunk. Half of them stay when it is split.
const CHUNK_MAX: usize = 128;

/// The range of keys that a query selects, both ends included.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Interval {
    pub low: Box<[u8]>,
    pub high: Box<[u8]>,
}

#[derive(Debug, Default)]
struct Chunk {
    /// The highest end of its intervals.
    high: Box<[u8]>,
    items: Vec<(Interval, u32)>,
}

/// Intervals with the entry that each belongs to.
#[derive(Debug, Default)]
pub(crate) struct IntervalSet {
    chunks: Vec<Chunk>,
}

impl Chunk {
    fn refresh(&mut self) {
        self.high = self
            .items
            .iter()
            .map(|(item, _)| &item.high)
            .max()
            .cloned()
            .unwrap_or_default();
    }
}

impl IntervalSet {
    pub fn insert(&mut self, interval: Interval, entry: u32) {
        let at = self.chunk_of(&interval, entry);
        let Some(chunk) = self.chunks.get_mut(at) else {
            self.chunks.push(Chunk {
                high: interval.high.clone(),
                items: vec![(interval, entry)],
            });
            return;
        };
        if chunk.high < interval.high {
            chunk.high = interval.high.clone();
        }
        let item = (interval, entry);
        let place = chunk.items.partition_point(|it| *it < item);
        chunk.items.insert(place, item);
        if chunk.items.len() > CHUNK_MAX {
            let mut upper = Chunk {
                high: Box::default(),
                items: chunk.items.split_off(CHUNK_MAX / 2),
            };
            upper.refresh();
            chunk.refresh();
            self.chunks.insert(at + 1, upper);
        }
    }

    /// Whether it was there.
    pub fn remove(&mut self, interval: &Interval, entry: u32) -> bool {
        let at = self.chunk_of(interval, entry);
        let Some(chunk) = self.chunks.get_mut(at) else {
            return false;
        };
        let Ok(place) = chunk
            .items
            .binary_search_by(|(it, of)| (it, *of).cmp(&(interval, entry)))
        else {
            return false;
        };
        chunk.items.remove(place);
        if chunk.items.is_empty() {
            self.chunks.remove(at);
        } else if chunk.high == interval.high {
            chunk.refresh();
        }
        true
    }

    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Calls `visit` with the entry of each interval that overlaps the range from `low` to `high`.
    pub fn overlapping(&self, low: &[u8], high: &[u8], visit: &mut impl FnMut(u32)) {
        for chunk in &self.chunks {
            if chunk
                .items
                .first()
                .is_none_or(|(first, _)| *first.low > *high)
            {
                break;
            }
            if *chunk.high < *low {
                continue;
            }
            for (item, entry) in &chunk.items {
                if *item.low > *high {
                    break;
                }
                if *item.high >= *low {
                    visit(*entry);
                }
            }
        }
    }

    /// The last chunk that begins at or before the interval.
    fn chunk_of(&self, interval: &Interval, entry: u32) -> usize {
        let behind = self.chunks.partition_point(|chunk| {
            let first = chunk.items.first();
            first.is_some_and(|(first, of)| (first, *of) <= (interval, entry))
        });
        behind.saturating_sub(1)
    }
}

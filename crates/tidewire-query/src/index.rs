//! The predicate index of a collection: from a write to the queries whose result it may change.
//!
//! Each query enters through one condition that a matching record must satisfy: an equality, a list, an interval, or one for each branch of
//! `$or`. A query without any is in the residual list, which every write visits. Queries of one shape share the compiled matcher and differ
//! in their constants only. A bucket with many queries has a separate level over a second condition of them, up to three deep.
//!
//! The index may return too many queries, never too few: hashes represent values, intervals are closed, and the branches of an array count
//! as one range. The matcher decides. The place of a query follows from its selector alone, so a removal finds it again.

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use smallvec::SmallVec;

use crate::entrance::{Entrance, EntranceKey, entrances, hash_of};
use crate::interval::IntervalSet;
use crate::key;
use crate::order::{compare, rank};
use crate::path::{Branch, Path, Purpose, Scope};
use crate::shape::{Selector, Shape};
use crate::tape::{Document, Kind, Value};

/// Queries of a bucket before it may get a separate level.
const BUCKET_MAX: usize = 64;
/// Levels within one another.
const DEPTH_MAX: usize = 3;
/// Paths of a level that are tried one by one. With more, the fields of the document choose.
const PATHS_TRIED_MAX: usize = 4;

/// A query in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueryId {
    index: u32,
    /// Differs from that of an earlier query with the same index.
    generation: u32,
}

/// Whether a record was in the selection of a query before a write, and is after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// With the old value.
    pub before: bool,
    /// With the new value.
    pub after: bool,
}

/// The predicate index of one collection.
#[derive(Debug)]
pub struct PredicateIndex {
    hasher: FixedState,
    /// With the number of queries that have the shape.
    shapes: HashMap<Box<str>, (Arc<Shape>, u32), FixedState>,
    queries: Vec<Slot>,
    free: Vec<u32>,
    root: Level,
    /// Number of the current search. A query that has it was visited already.
    round: u64,
    found: Vec<u32>,
    buffers: Buffers,
}

/// The place of a query in the list of all, which is used again after a removal.
#[derive(Debug)]
struct Slot {
    selector: Option<Selector>,
    generation: u32,
    round: u64,
}

/// Keys that a search encodes.
#[derive(Debug, Default)]
struct Buffers {
    low: Vec<u8>,
    high: Vec<u8>,
}

/// Queries by conditions on the same paths.
#[derive(Debug)]
struct Level {
    paths: Vec<PathIndex>,
    /// The paths by their first field.
    by_field: HashMap<Box<[u8]>, SmallVec<[u32; 2]>, FixedState>,
    /// Queries without a condition that the index can use here.
    residual: Vec<u32>,
    /// Entries of all its queries.
    count: usize,
}

#[derive(Debug)]
struct PathIndex {
    path: Path,
    buckets: HashMap<u64, Bucket, FixedState>,
    intervals: IntervalSet,
    /// Entrances with null. Without one, a missing field finds nothing.
    null_count: u32,
    /// Entrances with arrays or objects. Without one, the containers of a document are not hashed.
    container_count: u32,
}

#[derive(Debug)]
enum Bucket {
    List(SmallVec<[u32; 4]>),
    Level(Box<Level>),
}

impl PredicateIndex {
    /// An empty index. `seed` keys its hashes.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let hasher = FixedState::with_seed(seed);
        Self {
            shapes: HashMap::with_hasher(hasher.clone()),
            queries: Vec::new(),
            free: Vec::new(),
            root: Level::new(&hasher),
            hasher,
            round: 0,
            found: Vec::new(),
            buffers: Buffers::default(),
        }
    }

    /// Adds a query.
    pub fn insert(&mut self, mut selector: Selector) -> QueryId {
        match self.shapes.get_mut(selector.shape()) {
            Some((shape, count)) => {
                selector.shape = Arc::clone(shape);
                *count += 1;
            }
            None => {
                let shape = Arc::clone(&selector.shape);
                self.shapes.insert(shape.text.clone(), (shape, 1));
            }
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.queries.push(Slot {
                selector: None,
                generation: 0,
                round: 0,
            });
            self.queries.len() as u32 - 1
        });
        let slot = &mut self.queries[index as usize];
        slot.selector = Some(selector.clone());
        let id = QueryId {
            index,
            generation: slot.generation,
        };
        let mut change = Change {
            hasher: &self.hasher,
            queries: &self.queries,
            used: SmallVec::new(),
        };
        change.insert(&mut self.root, index, &selector);
        id
    }

    /// Removes a query. Whether it was there.
    pub fn remove(&mut self, id: QueryId) -> bool {
        let Some(slot) = self.queries.get_mut(id.index as usize) else {
            return false;
        };
        if slot.generation != id.generation {
            return false;
        }
        let Some(selector) = slot.selector.take() else {
            return false;
        };
        slot.generation = slot.generation.wrapping_add(1);
        let mut change = Change {
            hasher: &self.hasher,
            queries: &self.queries,
            used: SmallVec::new(),
        };
        change.remove(&mut self.root, id.index, &selector);
        if let Some((_, count)) = self.shapes.get_mut(selector.shape()) {
            *count -= 1;
            if *count == 0 {
                self.shapes.remove(selector.shape());
            }
        }
        self.free.push(id.index);
        true
    }

    /// The selector of a query.
    #[must_use]
    pub fn selector(&self, id: QueryId) -> Option<&Selector> {
        let slot = self.queries.get(id.index as usize)?;
        slot.selector
            .as_ref()
            .filter(|_| slot.generation == id.generation)
    }

    /// Queries in the index.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queries.len() - self.free.len()
    }

    /// Whether it has no query.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shapes of the queries: the number of compiled matchers.
    #[must_use]
    pub fn shape_count(&self) -> usize {
        self.shapes.len()
    }

    /// Queries that each write of the collection visits.
    #[must_use]
    pub fn residual_count(&self) -> usize {
        self.root.residual.len()
    }

    /// Appends each query whose result the write may change, once. `old` is `None` for a new record, `new` for a deleted one.
    pub fn candidates(
        &mut self,
        old: Option<&Document<'_>>,
        new: Option<&Document<'_>>,
        out: &mut Vec<QueryId>,
    ) {
        self.search(old, new);
        out.extend(self.found.iter().filter_map(|index| {
            let generation = self.queries.get(*index as usize)?.generation;
            Some(QueryId {
                index: *index,
                generation,
            })
        }));
    }

    /// Calls `visit` with each query that selects the old or the new value.
    pub fn memberships(
        &mut self,
        old: Option<&Document<'_>>,
        new: Option<&Document<'_>>,
        mut visit: impl FnMut(QueryId, Membership),
    ) {
        self.search(old, new);
        for index in &self.found {
            let Some(slot) = self.queries.get(*index as usize) else {
                continue;
            };
            let matches = |document: Option<&Document<'_>>| {
                document.is_some_and(|document| {
                    slot.selector
                        .as_ref()
                        .is_some_and(|it| it.matches(document))
                })
            };
            let membership = Membership {
                before: matches(old),
                after: matches(new),
            };
            if membership.before || membership.after {
                let generation = slot.generation;
                visit(
                    QueryId {
                        index: *index,
                        generation,
                    },
                    membership,
                );
            }
        }
    }

    /// Fills `found`.
    fn search(&mut self, old: Option<&Document<'_>>, new: Option<&Document<'_>>) {
        self.round += 1;
        self.found.clear();
        let mut search = Search {
            hasher: &self.hasher,
            queries: &mut self.queries,
            round: self.round,
            found: &mut self.found,
            buffers: &mut self.buffers,
        };
        for document in [old, new].into_iter().flatten() {
            search.level(&self.root, document);
        }
    }
}

impl Level {
    fn new(hasher: &FixedState) -> Self {
        Self {
            paths: Vec::new(),
            by_field: HashMap::with_hasher(hasher.clone()),
            residual: Vec::new(),
            count: 0,
        }
    }

    fn path_mut(&mut self, path: &Path, hasher: &FixedState) -> &mut PathIndex {
        let at = match self.paths.iter().position(|it| it.path == *path) {
            Some(at) => at,
            None => {
                self.paths.push(PathIndex {
                    path: path.clone(),
                    buckets: HashMap::with_hasher(hasher.clone()),
                    intervals: IntervalSet::default(),
                    null_count: 0,
                    container_count: 0,
                });
                self.index_fields();
                self.paths.len() - 1
            }
        };
        &mut self.paths[at]
    }

    /// Removes the path if it has no entries.
    fn prune(&mut self, path: &Path) {
        let is_empty =
            |it: &PathIndex| it.path == *path && it.buckets.is_empty() && it.intervals.is_empty();
        if self.paths.iter().any(is_empty) {
            self.paths.retain(|it| !is_empty(it));
            self.index_fields();
        }
    }

    fn index_fields(&mut self) {
        self.by_field.clear();
        for (at, index) in self.paths.iter().enumerate() {
            if let Some(field) = index.path.first_field() {
                self.by_field
                    .entry(field.into())
                    .or_default()
                    .push(at as u32);
            }
        }
    }
}

/// A change of the index.
struct Change<'a> {
    hasher: &'a FixedState,
    queries: &'a [Slot],
    /// The paths of the levels above.
    used: SmallVec<[Path; DEPTH_MAX]>,
}

impl Change<'_> {
    fn insert(&mut self, level: &mut Level, index: u32, selector: &Selector) {
        level.count += 1;
        let Some(entrances) = entrances(selector, &self.used, self.hasher) else {
            level.residual.push(index);
            return;
        };
        for Entrance {
            path,
            key,
            has_null,
            has_container,
        } in entrances
        {
            let paths = level.path_mut(&path, self.hasher);
            paths.null_count += u32::from(has_null);
            paths.container_count += u32::from(has_container);
            match key {
                EntranceKey::Interval(interval) => paths.intervals.insert(interval, index),
                EntranceKey::Values(hashes) => {
                    for hash in hashes {
                        let bucket = paths
                            .buckets
                            .entry(hash)
                            .or_insert_with(|| Bucket::List(SmallVec::new()));
                        self.used.push(path.clone());
                        self.insert_into_bucket(bucket, index, selector);
                        self.used.pop();
                    }
                }
            }
        }
    }

    fn insert_into_bucket(&mut self, bucket: &mut Bucket, index: u32, selector: &Selector) {
        let list = match bucket {
            Bucket::Level(level) => return self.insert(level, index, selector),
            Bucket::List(list) => list,
        };
        list.push(index);
        // At powers of two only, so that a bucket whose queries have no second condition is not examined at each insertion.
        if list.len() <= BUCKET_MAX || !list.len().is_power_of_two() || self.used.len() >= DEPTH_MAX
        {
            return;
        }
        let selector_of = |index: &u32| self.queries.get(*index as usize)?.selector.as_ref();
        let members: Vec<(u32, &Selector)> = list
            .iter()
            .filter_map(|index| Some((*index, selector_of(index)?)))
            .collect();
        let narrowed = members
            .iter()
            .filter(|(_, selector)| entrances(selector, &self.used, self.hasher).is_some());
        if narrowed.count() * 2 < members.len() {
            return;
        }
        let mut level = Box::new(Level::new(self.hasher));
        for (index, selector) in members {
            self.insert(&mut level, index, selector);
        }
        *bucket = Bucket::Level(level);
    }

    fn remove(&mut self, level: &mut Level, index: u32, selector: &Selector) {
        level.count -= 1;
        let Some(entrances) = entrances(selector, &self.used, self.hasher) else {
            take(&mut level.residual, index);
            return;
        };
        for Entrance {
            path,
            key,
            has_null,
            has_container,
        } in entrances
        {
            let paths = level.path_mut(&path, self.hasher);
            paths.null_count -= u32::from(has_null);
            paths.container_count -= u32::from(has_container);
            match key {
                EntranceKey::Interval(interval) => {
                    paths.intervals.remove(&interval, index);
                }
                EntranceKey::Values(hashes) => {
                    for hash in hashes {
                        let is_empty = match paths.buckets.get_mut(&hash) {
                            None => false,
                            Some(Bucket::List(list)) => {
                                if let Some(at) = list.iter().position(|it| *it == index) {
                                    list.swap_remove(at);
                                }
                                list.is_empty()
                            }
                            Some(Bucket::Level(inner)) => {
                                self.used.push(path.clone());
                                self.remove(inner, index, selector);
                                self.used.pop();
                                inner.count == 0
                            }
                        };
                        if is_empty {
                            paths.buckets.remove(&hash);
                        }
                    }
                }
            }
            level.prune(&path);
        }
    }
}

fn take(list: &mut Vec<u32>, index: u32) {
    if let Some(at) = list.iter().position(|it| *it == index) {
        list.swap_remove(at);
    }
}

/// One search for the queries of a document.
struct Search<'a> {
    hasher: &'a FixedState,
    queries: &'a mut [Slot],
    round: u64,
    found: &'a mut Vec<u32>,
    buffers: &'a mut Buffers,
}

impl Search<'_> {
    fn visit(&mut self, index: u32) {
        if let Some(slot) = self.queries.get_mut(index as usize)
            && slot.round != self.round
        {
            slot.round = self.round;
            self.found.push(index);
        }
    }

    fn level(&mut self, level: &Level, document: &Document<'_>) {
        level.residual.iter().for_each(|index| self.visit(*index));
        let root = document.root();
        if level.paths.len() <= PATHS_TRIED_MAX || !root.is_object() {
            level
                .paths
                .iter()
                .for_each(|path| self.path(path, document));
            return;
        }
        for (field, value) in root.members() {
            for at in level.by_field.get(field).into_iter().flatten() {
                if let Some(path) = level.paths.get(*at as usize) {
                    // The value is at hand: to look it up again would read all fields for each of them.
                    self.branches(path, &path.path.branches_within(value), document);
                }
            }
        }
        for path in &level.paths {
            let is_absent = match path.path.first_field() {
                None => true,
                // A missing field finds the queries for null only.
                Some(field) => path.null_count > 0 && root.member(field).is_none(),
            };
            if is_absent {
                self.path(path, document);
            }
        }
    }

    fn path(&mut self, index: &PathIndex, document: &Document<'_>) {
        let branches = index
            .path
            .branches(&Scope::Document(*document), Purpose::Match);
        self.branches(index, &branches, document);
    }

    fn branches(&mut self, index: &PathIndex, branches: &[Branch<'_>], document: &Document<'_>) {
        if !index.buckets.is_empty() {
            if branches.is_empty() {
                self.value(index, None, document);
            }
            for branch in branches {
                branch.any(|value| {
                    self.value(index, value, document);
                    false
                });
            }
        }
        if index.intervals.is_empty() {
            return;
        }
        // The least and the greatest value of each type that has an order: a condition on both ends may hold for two elements of an array.
        for wanted in [1, 2, 5] {
            let mut ends: Option<(Value<'_>, Value<'_>)> = None;
            for branch in branches {
                branch.any(|value| {
                    let Some(value) = value.filter(|value| rank(&value.kind()) == wanted) else {
                        return false;
                    };
                    ends = Some(match ends {
                        None => (value, value),
                        Some((low, high)) if compare(&value, &low).is_lt() => (value, high),
                        Some((low, high)) if compare(&value, &high).is_gt() => (low, value),
                        Some(ends) => ends,
                    });
                    false
                });
            }
            let Some((low, high)) = ends else { continue };
            let mut buffers = std::mem::take(self.buffers);
            buffers.low.clear();
            buffers.high.clear();
            key::encode(&low, &mut buffers.low);
            key::encode(&high, &mut buffers.high);
            index
                .intervals
                .overlapping(&buffers.low, &buffers.high, &mut |index| self.visit(index));
            *self.buffers = buffers;
        }
    }

    fn value(&mut self, index: &PathIndex, value: Option<Value<'_>>, document: &Document<'_>) {
        let is_container =
            value.is_some_and(|value| matches!(value.kind(), Kind::Array | Kind::Object));
        if is_container && index.container_count == 0 {
            return;
        }
        match index.buckets.get(&hash_of(self.hasher, value.as_ref())) {
            None => {}
            Some(Bucket::List(list)) => list.iter().for_each(|index| self.visit(*index)),
            Some(Bucket::Level(level)) => self.level(level, document),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::QueryLimits;
    use crate::query::Query;

    fn selector(text: &str) -> Selector {
        Query::parse(&format!("{{\"where\":{text}}}"), &QueryLimits::default())
            .expect("valid")
            .selector
    }

    #[test]
    fn a_removed_query_leaves_nothing() {
        let mut index = PredicateIndex::new(7);
        let texts = [
            r#"{"a":1}"#,
            r#"{"a":{"$in":[1,2,null]}}"#,
            r#"{"a":{"$gt":1}}"#,
            r#"{"$or":[{"a":1},{"a":1,"b":2}]}"#,
            r#"{"a":{"$ne":1}}"#,
            r#"{"a":{"$regex":"^x"}}"#,
            r#"{"a.b":[1]}"#,
            "null",
            r#"{"_id":"7"}"#,
        ];
        let mut ids: Vec<QueryId> = texts
            .iter()
            .map(|text| index.insert(selector(text)))
            .collect();
        // Enough for levels within levels.
        ids.extend((0..1000).map(|n| {
            index.insert(selector(&format!(
                r#"{{"a":1,"b":{},"c":{n},"d":{{"$lt":{n}}}}}"#,
                n % 2
            )))
        }));
        assert_eq!((index.len(), index.shape_count()), (1009, 10));
        assert_eq!(index.residual_count(), 1);
        for id in &ids {
            assert!(index.selector(*id).is_some() && index.remove(*id) && !index.remove(*id));
        }
        assert!(
            index.is_empty()
                && index.root.paths.is_empty()
                && index.root.by_field.is_empty()
                && index.root.count == 0
        );
        assert!(index.root.residual.is_empty() && index.shapes.is_empty());
        assert_ne!(index.insert(selector("{}")), ids[ids.len() - 1]);
    }
}

//! Indexes of a collection in a store: the key of a record in an index, and the part of an index that a query reads. `spec/query.md`,
//! "Indexes", has the format.
//!
//! A record whose paths have exactly one value each is *regular*: its key is the bytes of these values. All others, such as records with
//! arrays, and texts that this version can't read, have the same key, and each query on the index reads them. So every record has exactly
//! one key, whatever its value.

use crate::condition::{Condition, Relation, Test};
use crate::key::{self, INDEX_KEY_BYTES_MAX, index_key};
use crate::limits::QueryLimits;
use crate::path::{Path, Purpose, Scope};
use crate::query::Query;
use crate::tape::{Document, Kind, Value};

/// Paths of an index: as many as a sort may have.
pub const INDEX_PATHS_MAX: usize = 4;

/// The key of records that are not regular.
const IRREGULAR: u8 = 0x01;
/// The first byte of the keys of regular records.
const REGULAR: u8 = 0x02;
/// Above each byte that begins a value.
const ABOVE: u8 = 0xFF;
/// A key of at most this many bytes is whole, and its place among all keys is that of its values: cut keys agree in these bytes at least.
const WHOLE_BYTES_MAX: usize = INDEX_KEY_BYTES_MAX - 8;
/// Values of a list that are looked up one by one.
const LIST_MAX: usize = 64;

/// The paths of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectionIndex {
    paths: Box<[Path]>,
}

/// A part of an index: the keys from `low` to before `high`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key.
    pub low: Vec<u8>,
    /// The first key behind the part.
    pub high: Vec<u8>,
}

/// How far the order of the keys is the order of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Agreement {
    No,
    /// Records with equal sort values come in any order.
    SortValues,
    /// Also by id.
    Total,
}

/// The parts of an index that have all records of a query.
#[derive(Clone, Debug)]
pub struct IndexPlan {
    /// The place of the index in the list.
    pub index: usize,
    /// In the order in which they are read. The first one has the records that are not regular.
    pub ranges: Vec<KeyRange>,
    /// Whether each of them is read from its end.
    pub descending: bool,
    /// Whether the query selects each record with a whole key within the ranges.
    pub is_exact: bool,
    agreement: Agreement,
    /// Paths of the index with a fixed value.
    fixed: usize,
    /// Paths after them that are keys of the sort.
    sorted: usize,
    paths: usize,
}

/// A key of an index, as a reader of the index sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// The record is not regular.
    Irregular,
    /// Only the beginning of the key is known.
    Cut,
    /// The key has all values.
    Whole,
}

impl EntryKind {
    /// The kind of an entry's key.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        match key.first() {
            Some(&REGULAR) if key.len() <= WHOLE_BYTES_MAX => Self::Whole,
            Some(&REGULAR) => Self::Cut,
            _ => Self::Irregular,
        }
    }
}

impl CollectionIndex {
    /// The index over these paths.
    ///
    /// # Errors
    /// Problem with a path, or with their number.
    pub fn parse<'p>(paths: impl IntoIterator<Item = &'p str>) -> Result<Self, String> {
        let limits = QueryLimits::default();
        let mut parsed: Vec<Path> = Vec::new();
        for text in paths {
            let path =
                Path::parse(text, "", &["_id"], &limits).map_err(|error| error.what.clone())?;
            if matches!(path, Path::Id | Path::Version) {
                return Err(format!(
                    "path {text:?} can't be indexed; the id orders equal values anyway, and versions change with each write"
                ));
            }
            if text.contains(char::is_control) {
                return Err(format!(
                    "path {text:?} has a control character, so it can't be indexed"
                ));
            }
            if parsed.contains(&path) {
                return Err(format!("path {text:?} occurs twice; write it once"));
            }
            parsed.push(path);
        }
        if parsed.is_empty() || parsed.len() > INDEX_PATHS_MAX {
            return Err(format!(
                "index has {} paths; use 1 to {INDEX_PATHS_MAX}",
                parsed.len()
            ));
        }
        Ok(Self {
            paths: parsed.into(),
        })
    }

    /// Whether these fields are paths of it.
    fn has_fields(&self, fields: &[Box<str>]) -> bool {
        let mut fields = fields.iter();
        fields.all(|field| self.paths().any(|path| path == **field))
    }

    /// The texts of its paths.
    pub fn paths(&self) -> impl Iterator<Item = String> {
        self.paths.iter().map(Path::text)
    }

    /// The key of a record: at most 512 bytes. `None` is a value that can't be read.
    #[must_use]
    pub fn key(&self, document: Option<&Document<'_>>) -> Vec<u8> {
        let mut bytes = vec![REGULAR];
        let is_regular = document.is_some_and(|document| {
            let values = self.paths.iter();
            values.map(|path| regular(path, document)).all(|value| {
                if let Some(value) = &value {
                    encode(value.as_ref(), &mut bytes);
                }
                value.is_some()
            })
        });
        match is_regular {
            true => index_key(&bytes).bytes,
            false => vec![IRREGULAR],
        }
    }
}

fn encode(value: Option<&Value<'_>>, out: &mut Vec<u8>) {
    match value {
        Some(value) => key::encode(value, out),
        None => out.push(key::NULL),
    }
}

/// The only value of a path, by which conditions and sorts see the record: `Some(None)` if it is missing. `None` if there are several.
fn regular<'a>(path: &Path, document: &Document<'a>) -> Option<Option<Value<'a>>> {
    let scope = Scope::Document(*document);
    let only = |purpose| match path.branches(&scope, purpose)[..] {
        [branch] if !branch.expands => Some(branch.value),
        _ => None,
    };
    let value = only(Purpose::Match)?;
    // A sort follows the indexes of arrays only as indexes.
    if path.has_index() {
        let sorted = only(Purpose::Sort)?;
        let is_same = match (&value, &sorted) {
            (Some(left), Some(right)) => crate::order::equal(left, right),
            (None, None) => true,
            _ => false,
        };
        return is_same.then_some(value);
    }
    Some(value)
}

/// The values of one path that a query may select, as ranges of their bytes.
struct Values {
    ranges: Vec<KeyRange>,
    /// Whether it is one value.
    is_fixed: bool,
    /// The conditions that the ranges stand for, by their places.
    consumed: Vec<usize>,
}

/// A plan with what decides between plans.
struct Candidate {
    plan: IndexPlan,
    narrowing: usize,
}

impl IndexPlan {
    /// The plan of a query: the index that is expected to read the fewest records. `None` if no index helps. `counts` says that all
    /// selected records are counted, whatever the limit. The right to read a record depends on its `rights_fields`: an index that has them
    /// counts without the records.
    #[must_use]
    pub fn of(
        query: &Query,
        indexes: &[CollectionIndex],
        counts: bool,
        rights_fields: &[Box<str>],
    ) -> Option<Self> {
        let mut best: Option<Candidate> = None;
        for (at, index) in indexes.iter().enumerate() {
            let Some(candidate) = candidate(query, at, index) else {
                continue;
            };
            let is_ordered = candidate.plan.agreement != Agreement::No;
            // Without a condition on its values an index only saves the rows behind the limit.
            if candidate.narrowing == 0 && (!is_ordered || query.limit.is_none() || counts) {
                continue;
            }
            let rank = |it: &Candidate| {
                let is_ordered = it.plan.agreement != Agreement::No && query.limit.is_some();
                let counts_alone = counts
                    && it.plan.is_exact
                    && (is_ordered || query.limit == Some(0))
                    && indexes[it.plan.index].has_fields(rights_fields);
                (it.narrowing, counts_alone, is_ordered, it.plan.is_exact)
            };
            if best
                .as_ref()
                .is_none_or(|best| rank(&candidate) > rank(best))
            {
                best = Some(candidate);
            }
        }
        best.map(|best| best.plan)
    }

    /// Whether the entries come in the order of the result, so that a reader may stop behind the last row that it needs.
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        self.agreement != Agreement::No
    }

    /// Whether all entries behind one with this key and id come behind a row with the sort key `last`.
    #[must_use]
    pub fn is_behind(&self, entry: &[u8], id: &str, last: &[u8]) -> bool {
        if self.agreement == Agreement::No || EntryKind::of(entry) != EntryKind::Whole {
            return false;
        }
        let Some(places) = places(entry, self.paths) else {
            return false;
        };
        let Some(sorted) = entry.get(places[self.fixed]..places[self.fixed + self.sorted]) else {
            return false;
        };
        let mut bound = sorted.to_vec();
        if self.descending {
            bound.iter_mut().for_each(|byte| *byte = !*byte);
        }
        if self.agreement == Agreement::Total {
            key::string(id.as_bytes(), &mut bound);
            return *last <= *bound;
        }
        // Equal sort values may come with a smaller id; then `last` continues the bound.
        *last < *bound
    }
}

/// The values of a whole key as JSON, one for each path of an index with so many; `None` for a value that the key does not determine: null or
/// missing, and objects.
#[must_use]
pub fn key_values(entry: &[u8], paths: usize) -> Option<Vec<Option<String>>> {
    let places = places(entry, paths)?;
    let values = places
        .windows(2)
        .map(|ends| match entry.get(ends[0]..ends[1]) {
            Some(value) => key::decode_scalar(value),
            None => None,
        });
    Some(values.collect())
}

/// Where the values of a whole key begin, and where the last one ends.
fn places(entry: &[u8], paths: usize) -> Option<Vec<usize>> {
    let mut places = vec![1];
    let mut at = 1;
    for _ in 0..paths {
        at += key::value_bytes(entry.get(at..)?)?;
        places.push(at);
    }
    (at == entry.len()).then_some(places)
}

fn candidate(query: &Query, at: usize, index: &CollectionIndex) -> Option<Candidate> {
    let parts = match &query.selector.shape.condition {
        Condition::All(parts) => &**parts,
        one => std::slice::from_ref(one),
    };
    let mut prefix = vec![REGULAR];
    let mut consumed: Vec<usize> = Vec::new();
    let mut fixed = 0;
    let mut narrowing = 0;
    let mut last: Option<Values> = None;
    for path in &index.paths {
        let Some(values) = values_of(query, path, parts) else {
            break;
        };
        consumed.extend(&values.consumed);
        if !values.is_fixed {
            narrowing += 1;
            last = Some(values);
            break;
        }
        prefix.extend_from_slice(&values.ranges[0].low);
        fixed += 1;
        narrowing += 2;
    }
    let (agreement, sorted, descending) = agreement(query, index, fixed);
    let mut is_exact = parts.len() == consumed.len();
    let mut cut = |range: KeyRange| {
        let range = range.cut();
        is_exact &= range.1;
        range.0
    };
    let mut ranges: Vec<KeyRange> = match last {
        Some(values) => {
            let join = |part: &[u8]| [&*prefix, part].concat();
            let joined = values.ranges.iter().map(|range| KeyRange {
                low: join(&range.low),
                high: join(&range.high),
            });
            joined.map(&mut cut).collect()
        }
        None if fixed == index.paths.len() => {
            let low = index_key(&prefix).bytes;
            let high = [&*low, &[0]].concat();
            vec![KeyRange { low, high }]
        }
        None => {
            let high = [&*prefix, &[ABOVE]].concat();
            vec![cut(KeyRange { low: prefix, high })]
        }
    };
    if descending {
        ranges.reverse();
    }
    let irregular = KeyRange {
        low: vec![IRREGULAR],
        high: vec![REGULAR],
    };
    ranges.insert(0, irregular);
    let plan = IndexPlan {
        index: at,
        ranges,
        descending,
        is_exact,
        agreement,
        fixed,
        sorted,
        paths: index.paths.len(),
    };
    Some(Candidate { plan, narrowing })
}

/// How far the order of an index is the order of the query if the first paths are fixed; how many paths after them are sorted by, and
/// whether in descending order.
fn agreement(query: &Query, index: &CollectionIndex, fixed: usize) -> (Agreement, usize, bool) {
    let (fixed_paths, rest) = index.paths.split_at(fixed);
    // A fixed value decides nothing.
    let mut keys = query
        .sort
        .keys()
        .filter(|(path, _)| !fixed_paths.contains(path));
    let mut sorted = 0;
    let mut descending = None;
    for (path, is_descending) in &mut keys {
        let agrees = rest.get(sorted) == Some(path)
            && *descending.get_or_insert(is_descending) == is_descending;
        if !agrees {
            return (Agreement::No, 0, false);
        }
        sorted += 1;
    }
    let descending = descending.unwrap_or(false);
    let agreement = match (sorted == rest.len() && !descending, sorted > 0) {
        (true, _) => Agreement::Total,
        (false, true) => Agreement::SortValues,
        (false, false) => Agreement::No,
    };
    (agreement, sorted, descending)
}

/// The values of a path that the conjunction of `parts` selects. `None` if it selects all.
fn values_of(query: &Query, path: &Path, parts: &[Condition]) -> Option<Values> {
    let mut low: Vec<u8> = Vec::new();
    let mut high = vec![ABOVE];
    let mut list: Option<(Vec<Vec<u8>>, bool)> = None;
    let mut consumed = Vec::new();
    let mut is_narrow = false;
    let encoded = |value: &Value<'_>| {
        let mut bytes = Vec::new();
        key::encode(value, &mut bytes);
        bytes
    };
    for (at, part) in parts.iter().enumerate() {
        let test = match part {
            Condition::Field(other, test) if other == path => test,
            Condition::Not(inner) => match &**inner {
                // Null is among these values, so the condition is not consumed.
                Condition::Field(other, Test::Exists) if other == path && list.is_none() => {
                    list = Some((vec![vec![key::NULL]], false));
                    continue;
                }
                _ => continue,
            },
            _ => continue,
        };
        let constant = |slot: &u32| query.selector.constants.get(*slot as usize);
        match test {
            Test::Equal(slot) if list.is_none() => {
                list = Some((vec![encoded(&constant(slot)?.value())], true));
                consumed.push(at);
            }
            Test::In(slot) if list.is_none() => {
                let value = constant(slot)?.value();
                if value.elements().nth(LIST_MAX).is_none() {
                    // The constants of a list are sorted and occur once.
                    let keys = value.elements().map(|element| encoded(&element));
                    list = Some((keys.collect(), false));
                    consumed.push(at);
                }
            }
            Test::Order(relation, slot) => {
                let value = constant(slot)?.value();
                let bytes = encoded(&value);
                let (type_low, type_high) = match value.kind() {
                    Kind::Bool(_) => (key::FALSE, key::FALSE + 2),
                    _ => (*bytes.first()?, bytes.first()? + 1),
                };
                let behind = [&*bytes, &[ABOVE]].concat();
                let (from, to) = match relation {
                    Relation::Less => (vec![type_low], bytes),
                    Relation::AtMost => (vec![type_low], behind),
                    Relation::Greater => (behind, vec![type_high]),
                    Relation::AtLeast => (bytes, vec![type_high]),
                };
                low = low.max(from);
                high = high.min(to);
                is_narrow = true;
                consumed.push(at);
            }
            Test::Regex(pattern) => {
                if let Some(prefix) = pattern.prefix() {
                    let mut from = Vec::new();
                    key::string(prefix.as_bytes(), &mut from);
                    // Without the end of the string, every text with the prefix is above.
                    from.pop();
                    high = high.min([&*from, &[ABOVE]].concat());
                    low = low.max(from);
                    is_narrow = true;
                }
            }
            _ => {}
        }
    }
    let Some((keys, is_fixed)) = list else {
        let range = KeyRange { low, high };
        return is_narrow.then(|| Values {
            ranges: vec![range],
            is_fixed: false,
            consumed,
        });
    };
    let within = keys.into_iter().filter(|key| low <= *key && *key < high);
    let ranges: Vec<KeyRange> = within
        .map(|low| KeyRange {
            high: [&*low, &[ABOVE]].concat(),
            low,
        })
        .collect();
    Some(Values {
        is_fixed: is_fixed && !ranges.is_empty(),
        ranges,
        consumed,
    })
}

impl KeyRange {
    /// The range of stored keys, whose ends may be cut, and whether it has the same values.
    fn cut(mut self) -> (Self, bool) {
        let is_whole = self.low.len().max(self.high.len()) <= WHOLE_BYTES_MAX;
        self.low.truncate(WHOLE_BYTES_MAX);
        if self.high.len() > WHOLE_BYTES_MAX {
            self.high.truncate(WHOLE_BYTES_MAX);
            // Above all cut keys that begin so. No byte of a value's beginning is 255, so this ends.
            while let Some(last) = self.high.pop() {
                if last < ABOVE {
                    self.high.push(last + 1);
                    break;
                }
            }
        }
        (self, is_whole)
    }
}

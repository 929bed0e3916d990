//! The ways into the predicate index that a selector offers.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use smallvec::SmallVec;

use crate::condition::{Condition, Relation, Test};
use crate::constant::Constant;
use crate::interval::Interval;
use crate::key;
use crate::number::Number;
use crate::path::Path;
use crate::shape::Selector;
use crate::tape::{Kind, Value};

/// Values of a list that enter one by one. A longer list would make the query's entries larger than the query.
const LIST_MAX: usize = 64;

/// A condition that each record of the selection satisfies.
#[derive(Clone, Debug)]
pub(crate) struct Entrance {
    pub path: Path,
    pub key: EntranceKey,
    /// Whether null, and so a missing field, satisfies it.
    pub has_null: bool,
    /// Whether an array or object satisfies it.
    pub has_container: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum EntranceKey {
    /// Hashes of values, each once.
    Values(SmallVec<[u64; 1]>),
    Interval(Interval),
}

/// The hash of a value; of null for a missing one.
#[inline]
pub(crate) fn hash_of(hasher: &FixedState, value: Option<&Value<'_>>) -> u64 {
    match value.map(Value::kind) {
        None | Some(Kind::Null) => hasher.hash_one(0_u8),
        Some(Kind::Bool(it)) => hasher.hash_one((1_u8, it)),
        Some(Kind::Number(it)) => match it.0 {
            Number::Int(it) => hasher.hash_one((2_u8, it)),
            Number::Float(it) => hasher.hash_one((3_u8, it.to_bits())),
        },
        Some(Kind::String(it)) => hasher.hash_one(it),
        Some(Kind::Array | Kind::Object) => {
            let mut bytes = Vec::new();
            if let Some(value) = value {
                key::encode(value, &mut bytes);
            }
            hasher.hash_one((4_u8, bytes))
        }
    }
}

/// The entrances of a selector apart from paths that are used already: one, or one for each branch of `$or`. A record of the selection
/// satisfies one of them. `None` if there is no such condition. An empty list if no record is ever selected.
pub(crate) fn entrances(
    selector: &Selector,
    used: &[Path],
    hasher: &FixedState,
) -> Option<SmallVec<[Entrance; 1]>> {
    let context = Context {
        constants: &selector.constants,
        used,
        hasher,
    };
    let condition = &selector.shape.condition;
    if let Some(one) = context.best(condition) {
        return Some(SmallVec::from_iter([one]));
    }
    // Deeper levels narrow by the conditions that hold for all branches.
    if !used.is_empty() {
        return None;
    }
    let parts = match condition {
        Condition::All(parts) => &**parts,
        one => std::slice::from_ref(one),
    };
    parts.iter().find_map(|part| match part {
        Condition::Any(branches) => branches.iter().map(|branch| context.best(branch)).collect(),
        _ => None,
    })
}

struct Context<'a> {
    constants: &'a [Constant],
    used: &'a [Path],
    hasher: &'a FixedState,
}

impl Context<'_> {
    /// The entrance of a conjunction that is expected to select the fewest records.
    fn best(&self, condition: &Condition) -> Option<Entrance> {
        let parts = match condition {
            Condition::All(parts) => &**parts,
            one => std::slice::from_ref(one),
        };
        // A selector never has more than a few hundred parts, and the order of the normal form decides between equals.
        let mut best: Option<(u8, Entrance)> = None;
        for part in parts {
            let Some((preference, entrance)) = self.entrance(part, parts) else {
                continue;
            };
            if best.as_ref().is_none_or(|(other, _)| preference < *other) {
                best = Some((preference, entrance));
            }
        }
        best.map(|(_, entrance)| entrance)
    }

    /// The entrance of one condition, and its preference; lower is better.
    fn entrance(&self, part: &Condition, parts: &[Condition]) -> Option<(u8, Entrance)> {
        let (path, test) = match part {
            Condition::Field(path, test) => (path, test),
            Condition::Not(inner) => match &**inner {
                Condition::Field(path, Test::Exists) if !self.used.contains(path) => {
                    let key =
                        EntranceKey::Values(SmallVec::from_iter([hash_of(self.hasher, None)]));
                    let entrance = Entrance {
                        path: path.clone(),
                        key,
                        has_null: true,
                        has_container: false,
                    };
                    return Some((3, entrance));
                }
                _ => return None,
            },
            _ => return None,
        };
        if self.used.contains(path) {
            return None;
        }
        let constant = |slot: &u32| self.constants.get(*slot as usize);
        let entrance = |key, has_null, has_container| Entrance {
            path: path.clone(),
            key,
            has_null,
            has_container,
        };
        let is_null = |value: &Value<'_>| matches!(value.kind(), Kind::Null);
        let is_container = |value: &Value<'_>| value.is_array() || value.is_object();
        match test {
            Test::Equal(slot) => {
                let value = constant(slot)?.value();
                let key =
                    EntranceKey::Values(SmallVec::from_iter([hash_of(self.hasher, Some(&value))]));
                let preference = match path {
                    Path::Id => 0,
                    // Most records have few fields that are null.
                    _ if is_null(&value) => 3,
                    _ => 1,
                };
                Some((
                    preference,
                    entrance(key, is_null(&value), is_container(&value)),
                ))
            }
            Test::In(slot) => {
                let list = constant(slot)?.value();
                if list.elements().nth(LIST_MAX).is_some() {
                    return None;
                }
                let mut hashes: SmallVec<[u64; 1]> = list
                    .elements()
                    .map(|value| hash_of(self.hasher, Some(&value)))
                    .collect();
                hashes.sort_unstable();
                hashes.dedup();
                let has_null = list.elements().any(|value| is_null(&value));
                let has_container = list.elements().any(|value| is_container(&value));
                Some((
                    2,
                    entrance(EntranceKey::Values(hashes), has_null, has_container),
                ))
            }
            Test::Order(..) => {
                let (interval, is_two_sided) = self.interval(path, parts)?;
                let preference = if is_two_sided { 4 } else { 5 };
                Some((
                    preference,
                    entrance(EntranceKey::Interval(interval), false, false),
                ))
            }
            Test::Regex(pattern) => {
                let mut low = Vec::new();
                key::string(pattern.prefix()?.as_bytes(), &mut low);
                // Without the end of the string, every text with the prefix is above; no text continues with a byte 255.
                low.pop();
                let mut high = low.clone();
                high.push(0xFF);
                let interval = Interval {
                    low: low.into(),
                    high: high.into(),
                };
                Some((4, entrance(EntranceKey::Interval(interval), false, false)))
            }
            _ => None,
        }
    }

    /// The interval of the comparisons of a path with constants of one type, and whether it has both ends.
    fn interval(&self, path: &Path, parts: &[Condition]) -> Option<(Interval, bool)> {
        let (mut low, mut high, mut first_byte) = (None, None, None);
        for part in parts {
            let Condition::Field(other, Test::Order(relation, slot)) = part else {
                continue;
            };
            let constant = self.constants.get(*slot as usize)?;
            let mut bytes = Vec::new();
            key::encode(&constant.value(), &mut bytes);
            let type_byte = match *bytes.first()? {
                // Both booleans are of one type.
                byte if byte > key::FALSE => key::FALSE,
                byte => byte,
            };
            if other != path || *first_byte.get_or_insert(type_byte) != type_byte {
                continue;
            }
            match relation {
                Relation::Less | Relation::AtMost => high = Some(bytes),
                Relation::Greater | Relation::AtLeast => low = Some(bytes),
            }
        }
        let first_byte: u8 = first_byte?;
        let is_two_sided = low.is_some() && high.is_some();
        let interval = Interval {
            low: low.unwrap_or_else(|| vec![first_byte]).into(),
            // Above every value of the type; for booleans above both.
            high: high.unwrap_or_else(|| vec![first_byte + 2]).into(),
        };
        Some((interval, is_two_sided))
    }
}

//! The order of a result: sort keys, of which the id is always the last.

use std::cmp::Ordering;

use crate::error::{QueryError, QueryErrorCode, member};
use crate::key;
use crate::limits::QueryLimits;
use crate::order::compare;
use crate::path::{Path, Purpose, Scope};
use crate::tape::{Document, Kind, Value};

/// A sort specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sort {
    keys: Box<[SortKey]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct SortKey {
    path: Path,
    descending: bool,
}

/// The value that a record is sorted by.
#[derive(Clone, Copy, Debug)]
enum SortValue<'a> {
    /// An empty array, below null.
    Empty,
    /// Missing, which is equal to null.
    Missing,
    Value(Value<'a>),
}

impl<'a> SortValue<'a> {
    fn compare(&self, other: &Self) -> Ordering {
        let place = |value: &Self| match value {
            Self::Empty => 0,
            Self::Missing => 1,
            Self::Value(value) if matches!(value.kind(), Kind::Null) => 1,
            Self::Value(_) => 2,
        };
        match (self, other) {
            (Self::Value(left), Self::Value(right)) => compare(left, right),
            _ => place(self).cmp(&place(other)),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Empty => out.push(key::EMPTY_ARRAY),
            Self::Missing => out.push(key::NULL),
            Self::Value(value) => key::encode(value, out),
        }
    }
}

impl Sort {
    /// Parses the value of `sort`.
    pub(crate) fn parse(
        value: Option<&Value<'_>>,
        limits: &QueryLimits,
    ) -> Result<Self, QueryError> {
        let at = "/sort";
        let refuse = |at: &str, what: &str| Err(QueryError::new(QueryErrorCode::BadSort, at, what));
        let mut entries: Vec<(String, String, bool)> = Vec::new();
        match value.map(Value::kind) {
            None | Some(Kind::Null) => {}
            Some(Kind::Object) => {
                for (path, direction) in value.into_iter().flat_map(Value::members) {
                    let path = text(path);
                    let at = member(at, &path);
                    let descending = match direction.kind() {
                        Kind::Number(number) if number.0 == crate::number::Number::Int(1) => false,
                        Kind::Number(number) if number.0 == crate::number::Number::Int(-1) => true,
                        _ => return refuse(&at, "direction is not 1 or -1; use one of them"),
                    };
                    // As in `JSON.parse`, a later key replaces the value of an earlier one and keeps its place.
                    match entries.iter_mut().find(|(known, ..)| *known == path) {
                        Some(known) => known.2 = descending,
                        None => entries.push((path, at, descending)),
                    }
                }
            }
            Some(Kind::Array) => {
                for (index, entry) in value.into_iter().flat_map(Value::elements).enumerate() {
                    let at = member(at, &index.to_string());
                    let pair: Vec<Value<'_>> = entry.elements().collect();
                    let parsed = match (entry.kind(), &pair[..]) {
                        (Kind::String(path), _) => Some((path, false)),
                        (Kind::Array, [path, direction]) => match (path.kind(), direction.kind()) {
                            (Kind::String(path), Kind::String(b"asc")) => Some((path, false)),
                            (Kind::String(path), Kind::String(b"desc")) => Some((path, true)),
                            _ => None,
                        },
                        _ => None,
                    };
                    let Some((path, descending)) = parsed else {
                        return refuse(
                            &at,
                            "entry is neither a path nor [path, \"asc\" or \"desc\"]; write one of them",
                        );
                    };
                    entries.push((text(path), at, descending));
                }
            }
            Some(_) => {
                return refuse(
                    at,
                    "sort is neither an object nor an array; write {\"path\": 1} or [\"path\"]",
                );
            }
        }
        if entries.len() > limits.sort_keys_max {
            return refuse(
                at,
                &format!(
                    "sort has {} keys; use at most {}",
                    entries.len(),
                    limits.sort_keys_max
                ),
            );
        }
        let id_names: &[&str] = if limits.id_alias {
            &["_id", "id"]
        } else {
            &["_id"]
        };
        let mut keys: Vec<SortKey> = Vec::new();
        for (path, at, descending) in entries {
            let path = Path::parse(&path, &at, id_names, limits)?;
            let new = SortKey { path, descending };
            // A repeated key decides nothing, and neither does a key behind the id. The other direction of a path may decide: the least
            // elements of two arrays may be equal, and the greatest differ.
            if !keys.iter().any(|key| *key == new || key.path == Path::Id) {
                keys.push(new);
            }
        }
        if keys
            .last()
            .is_some_and(|key| key.path == Path::Id && !key.descending)
        {
            keys.pop();
        }
        Ok(Self { keys: keys.into() })
    }

    /// Compares two records.
    #[must_use]
    pub fn compare(&self, left: &Document<'_>, right: &Document<'_>) -> Ordering {
        for key in &self.keys {
            let order = key.value(left).compare(&key.value(right));
            if order.is_ne() {
                return if key.descending {
                    order.reverse()
                } else {
                    order
                };
            }
        }
        compare(&left.id(), &right.id())
    }

    /// Appends the bytes by which the record is sorted: their order is the order of `compare`. The id ends them.
    pub fn key(&self, document: &Document<'_>, out: &mut Vec<u8>) {
        for key in &self.keys {
            let start = out.len();
            key.value(document).encode(out);
            if key.descending {
                out[start..].iter_mut().for_each(|byte| *byte = !*byte);
            }
        }
        key::encode(&document.id(), out);
    }

    /// The paths before the id, and whether each is descending.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (&Path, bool)> {
        self.keys.iter().map(|key| (&key.path, key.descending))
    }

    pub(crate) fn write(&self, out: &mut String) {
        for key in &self.keys {
            tidewire_json::string(&key.path.text(), out);
            out.push_str(if key.descending { " desc," } else { " asc," });
        }
        out.push_str("id");
    }
}

impl SortKey {
    /// The least value of the branches, descending the greatest.
    fn value<'a>(&self, document: &Document<'a>) -> SortValue<'a> {
        let mut found: Option<SortValue<'a>> = None;
        let mut take = |value: SortValue<'a>| {
            let is_better = found.as_ref().is_none_or(|found| {
                let order = value.compare(found);
                if self.descending {
                    order.is_gt()
                } else {
                    order.is_lt()
                }
            });
            if is_better {
                found = Some(value);
            }
        };
        self.path
            .visit(&Scope::Document(*document), Purpose::Sort, &mut |branch| {
                match branch.value {
                    None => take(SortValue::Missing),
                    Some(value) if branch.expands => {
                        let mut is_empty = true;
                        for element in value.elements() {
                            is_empty = false;
                            take(SortValue::Value(element));
                        }
                        if is_empty {
                            take(SortValue::Empty);
                        }
                    }
                    Some(value) => take(SortValue::Value(value)),
                }
                false
            });
        found.unwrap_or(SortValue::Missing)
    }
}

/// A path that is not Unicode text has replacement characters, which are not refused, but no stored field is like it.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

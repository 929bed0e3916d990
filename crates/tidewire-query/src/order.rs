//! Equality and the order of all values: null < number < string < object < array < boolean.
//!
//! An object has no order of its keys: two objects are compared by their sorted keys. The order of two arrays is the order of their first
//! different elements; a shorter array is first.

use std::cmp::Ordering;

use smallvec::SmallVec;

use crate::tape::{Kind, Value};

/// The place of a value's type in the order of types.
pub(crate) fn rank(kind: &Kind<'_>) -> u8 {
    match kind {
        Kind::Null => 0,
        Kind::Number(_) => 1,
        Kind::String(_) => 2,
        Kind::Object => 3,
        Kind::Array => 4,
        Kind::Bool(_) => 5,
    }
}

/// The members of an object by key, each key once.
pub(crate) type Members<'a> = SmallVec<[(&'a [u8], Value<'a>); 8]>;

/// The members that `JSON.parse` gives, sorted by key.
pub(crate) fn sorted_members<'a>(object: &Value<'a>) -> Members<'a> {
    let mut members: Members<'a> = object.members().collect();
    // The sort is stable, so the last of equal keys stays last.
    members.sort_by_key(|(key, _)| *key);
    let mut kept = Members::new();
    for member in members {
        match kept.last_mut() {
            Some(last) if last.0 == member.0 => *last = member,
            _ => kept.push(member),
        }
    }
    kept
}

/// Whether the two values are equal. A number never equals a text or a boolean.
#[must_use]
#[inline]
pub fn equal(left: &Value<'_>, right: &Value<'_>) -> bool {
    match (left.kind(), right.kind()) {
        (Kind::Null, Kind::Null) => true,
        (Kind::Bool(left), Kind::Bool(right)) => left == right,
        (Kind::Number(left), Kind::Number(right)) => left == right,
        (Kind::String(left), Kind::String(right)) => left == right,
        (Kind::Array, Kind::Array) | (Kind::Object, Kind::Object) => {
            compare(left, right) == Ordering::Equal
        }
        _ => false,
    }
}

/// The total order of values.
#[must_use]
pub fn compare(left: &Value<'_>, right: &Value<'_>) -> Ordering {
    let (left_kind, right_kind) = (left.kind(), right.kind());
    match (left_kind, right_kind) {
        (Kind::Number(left), Kind::Number(right)) => left.0.compare(right.0),
        (Kind::String(left), Kind::String(right)) => left.cmp(right),
        (Kind::Bool(left), Kind::Bool(right)) => left.cmp(&right),
        (Kind::Array, Kind::Array) => {
            let mut right = right.elements();
            for left in left.elements() {
                let Some(right) = right.next() else {
                    return Ordering::Greater;
                };
                let order = compare(&left, &right);
                if order.is_ne() {
                    return order;
                }
            }
            if right.next().is_some() {
                Ordering::Less
            } else {
                Ordering::Equal
            }
        }
        (Kind::Object, Kind::Object) => {
            let (left, right) = (sorted_members(left), sorted_members(right));
            let by_members =
                left.iter()
                    .zip(&right)
                    .map(|((left_key, left), (right_key, right))| {
                        left_key.cmp(right_key).then_with(|| compare(left, right))
                    });
            by_members
                .into_iter()
                .find(|order| order.is_ne())
                .unwrap_or_else(|| left.len().cmp(&right.len()))
        }
        _ => rank(&left_kind).cmp(&rank(&right_kind)),
    }
}

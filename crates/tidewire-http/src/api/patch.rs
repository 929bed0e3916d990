//! Patches of a whole document: JSON merge patch (RFC 7396) and JSON patch (RFC 6902).

use serde_json::{Map, Value};

/// Limit of the operations of one patch.
const OPERATIONS_MAX: usize = 10_000;
/// Limit of the array elements that all operations together may shift, and of the values that they may visit for the nesting
/// check. A thousand removals at the front of an array of ten thousand elements are 10 million steps. A patch that reaches the
/// limit has used about half a second of one core.
const STEPS_MAX: usize = 1 << 25;

/// Limits of the document that a patch creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatchLimits {
    /// Bytes of all copies together. Otherwise a short patch could create a huge document.
    pub copied_bytes_max: usize,
    /// Containers that the document may nest at any time. Functions that walk a value recurse once for each level, and one copy
    /// can double the nesting.
    pub nesting_max: usize,
}

/// Why a patch was not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchError {
    /// The patch is not valid.
    Malformed,
    /// The document lacks a value that the patch needs, or a test failed.
    Unfit,
    /// The patch has too many operations, copies too many bytes, nests too deep or costs too much work.
    TooLarge,
    /// The patch replaces the whole document by a value that is not a record.
    NotARecord,
}

/// Applies a merge patch.
#[must_use]
pub fn merge(target: Value, patch: Value) -> Value {
    let Value::Object(patch) = patch else {
        return patch;
    };
    let mut target = match target {
        Value::Object(target) => target,
        _ => Map::new(),
    };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(&key);
            continue;
        }
        let old = target.remove(&key).unwrap_or(Value::Null);
        target.insert(key, merge(old, value));
    }
    Value::Object(target)
}

/// An operation of a JSON patch.
enum Operation<'p> {
    Add(Vec<String>, &'p Value),
    Remove(Vec<String>),
    Replace(Vec<String>, &'p Value),
    Move {
        from: Vec<String>,
        path: Vec<String>,
    },
    Copy {
        from: Vec<String>,
        path: Vec<String>,
    },
    Test(Vec<String>, &'p Value),
}

impl<'p> Operation<'p> {
    fn parse(operation: &'p Value) -> Result<Self, PatchError> {
        let text = |key: &str| operation.get(key).and_then(Value::as_str);
        let pointer = |key: &str| parse(text(key).ok_or(PatchError::Malformed)?);
        let value = || operation.get("value").ok_or(PatchError::Malformed);
        let path = pointer("path")?;
        let put = || match value()? {
            value if !path.is_empty() || is_container(value) => Ok(value),
            _ => Err(PatchError::NotARecord),
        };
        Ok(match text("op").ok_or(PatchError::Malformed)? {
            "add" => {
                let value = put()?;
                Self::Add(path, value)
            }
            "remove" => Self::Remove(path),
            "replace" => {
                let value = put()?;
                Self::Replace(path, value)
            }
            "move" => Self::Move {
                from: pointer("from")?,
                path,
            },
            "copy" => Self::Copy {
                from: pointer("from")?,
                path,
            },
            "test" => Self::Test(path, value()?),
            _ => return Err(PatchError::Malformed),
        })
    }
}

fn operations(patch: &Value) -> Result<Vec<Operation<'_>>, PatchError> {
    let list = patch.as_array().ok_or(PatchError::Malformed)?;
    if list.len() > OPERATIONS_MAX {
        return Err(PatchError::TooLarge);
    }
    list.iter().map(Operation::parse).collect()
}

/// Whether a value can be a whole record.
fn is_container(value: &Value) -> bool {
    value.is_object() || value.is_array()
}

/// Checks a JSON patch without a document: after each of its operations, the document can still be a record.
///
/// # Errors
/// The patch is malformed, has too many operations, or replaces the record by a value that is not one.
pub fn check(patch: &Value) -> Result<(), PatchError> {
    operations(patch).map(drop)
}

/// Applies a JSON patch.
///
/// # Errors
/// The patch was not applied; the document is lost.
pub fn apply(document: Value, patch: &Value, limits: PatchLimits) -> Result<Value, PatchError> {
    let mut patched = Patched {
        document,
        limits,
        copied_bytes: 0,
        steps: 0,
    };
    for operation in operations(patch)? {
        patched.apply(operation)?;
    }
    Ok(patched.document)
}

/// A document while a patch is applied to it.
struct Patched {
    document: Value,
    limits: PatchLimits,
    copied_bytes: usize,
    steps: usize,
}

impl Patched {
    fn apply(&mut self, operation: Operation<'_>) -> Result<(), PatchError> {
        match operation {
            Operation::Add(path, value) => self.add(&path, value.clone())?,
            Operation::Remove(path) => drop(self.remove(&path)?),
            Operation::Replace(path, value) => {
                let value = value.clone();
                self.check_nesting(&path, &value)?;
                *find_mut(&mut self.document, &path).ok_or(PatchError::Unfit)? = value;
            }
            Operation::Move { from, path } => {
                if path.len() > from.len() && path.starts_with(&from) {
                    // RFC 6902 forbids to move a value into itself.
                    return Err(PatchError::Unfit);
                }
                let moved = self.remove(&from)?;
                if path.is_empty() && !is_container(&moved) {
                    return Err(PatchError::Unfit);
                }
                self.add(&path, moved)?;
            }
            Operation::Copy { from, path } => {
                let copied = find(&self.document, &from).ok_or(PatchError::Unfit)?;
                if path.is_empty() && !is_container(copied) {
                    return Err(PatchError::Unfit);
                }
                self.copied_bytes += copied.to_string().len();
                if self.copied_bytes > self.limits.copied_bytes_max {
                    return Err(PatchError::TooLarge);
                }
                let copied = copied.clone();
                self.add(&path, copied)?;
            }
            Operation::Test(path, value) => {
                let found = find(&self.document, &path).ok_or(PatchError::Unfit)?;
                if !is_equal(found, value) {
                    return Err(PatchError::Unfit);
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, path: &[String], value: Value) -> Result<(), PatchError> {
        self.check_nesting(path, &value)?;
        let Some((last, parents)) = path.split_last() else {
            self.document = value;
            return Ok(());
        };
        match find_mut(&mut self.document, parents).ok_or(PatchError::Unfit)? {
            Value::Object(object) => {
                object.insert(last.clone(), value);
            }
            Value::Array(array) if last == "-" => array.push(value),
            Value::Array(array) => {
                let position = index(last).filter(|position| *position <= array.len());
                let position = position.ok_or(PatchError::Unfit)?;
                spend(&mut self.steps, array.len().saturating_sub(position))?;
                array.insert(position, value);
            }
            _ => return Err(PatchError::Unfit),
        }
        Ok(())
    }

    fn remove(&mut self, path: &[String]) -> Result<Value, PatchError> {
        let Some((last, parents)) = path.split_last() else {
            // A removal of the whole document would leave no record.
            return Err(PatchError::Unfit);
        };
        let removed = match find_mut(&mut self.document, parents).ok_or(PatchError::Unfit)? {
            Value::Object(object) => object.remove(last),
            Value::Array(array) => match index(last).filter(|position| *position < array.len()) {
                Some(position) => {
                    spend(&mut self.steps, array.len() - position)?;
                    Some(array.remove(position))
                }
                None => None,
            },
            _ => None,
        };
        removed.ok_or(PatchError::Unfit)
    }

    /// Refuses a value that would nest too deep at its path.
    fn check_nesting(&mut self, path: &[String], value: &Value) -> Result<(), PatchError> {
        let nesting_left = self.limits.nesting_max.checked_sub(path.len());
        check_nesting(
            value,
            nesting_left.ok_or(PatchError::TooLarge)?,
            &mut self.steps,
        )
    }
}

/// Counts steps, and fails at their limit.
fn spend(steps: &mut usize, more: usize) -> Result<(), PatchError> {
    *steps += more;
    if *steps > STEPS_MAX {
        return Err(PatchError::TooLarge);
    }
    Ok(())
}

/// Refuses a value that nests more than `nesting_max` containers. The recursion has the same limit.
fn check_nesting(value: &Value, nesting_max: usize, steps: &mut usize) -> Result<(), PatchError> {
    spend(steps, 1)?;
    let inside = || nesting_max.checked_sub(1).ok_or(PatchError::TooLarge);
    match value {
        Value::Object(object) => {
            let inside = inside()?;
            object
                .values()
                .try_for_each(|value| check_nesting(value, inside, steps))
        }
        Value::Array(array) => {
            let inside = inside()?;
            array
                .iter()
                .try_for_each(|value| check_nesting(value, inside, steps))
        }
        _ => Ok(()),
    }
}

/// The reference tokens of a JSON pointer (RFC 6901).
fn parse(pointer: &str) -> Result<Vec<String>, PatchError> {
    if pointer.is_empty() {
        return Ok(Vec::new());
    }
    let tokens = pointer.strip_prefix('/').ok_or(PatchError::Malformed)?;
    tokens
        .split('/')
        .map(|token| {
            let mut rest = token.split('~');
            let mut text = rest.next().unwrap_or_default().to_owned();
            for part in rest {
                let (escaped, behind) = match part.as_bytes().first() {
                    Some(b'0') => ('~', &part[1..]),
                    Some(b'1') => ('/', &part[1..]),
                    _ => return Err(PatchError::Malformed),
                };
                text.push(escaped);
                text.push_str(behind);
            }
            Ok(text)
        })
        .collect()
}

/// The array index of a token: digits without leading zeros.
fn index(token: &str) -> Option<usize> {
    let is_number = token.bytes().all(|byte| byte.is_ascii_digit());
    let has_leading_zero = token.len() > 1 && token.starts_with('0');
    (is_number && !has_leading_zero)
        .then(|| token.parse().ok())
        .flatten()
}

fn find<'v>(document: &'v Value, path: &[String]) -> Option<&'v Value> {
    path.iter().try_fold(document, |value, token| match value {
        Value::Object(object) => object.get(token),
        Value::Array(array) => array.get(index(token)?),
        _ => None,
    })
}

fn find_mut<'v>(document: &'v mut Value, path: &[String]) -> Option<&'v mut Value> {
    path.iter().try_fold(document, |value, token| match value {
        Value::Object(object) => object.get_mut(token),
        Value::Array(array) => array.get_mut(index(token)?),
        _ => None,
    })
}

/// Equality as in RFC 6902: numbers are compared by value, so 1 equals 1.0.
fn is_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one == other || (one.as_f64() == other.as_f64() && !(one.is_u64() && other.is_u64()))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(a, b)| is_equal(a, b))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .all(|(key, a)| other.get(key).is_some_and(|b| is_equal(a, b)))
        }
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn merge_patches_do_what_their_table_says() {
        // The cases of RFC 7396, appendix A.
        let cases = [
            (json!({"a":"b"}), json!({"a":"c"}), json!({"a":"c"})),
            (json!({"a":"b"}), json!({"b":"c"}), json!({"a":"b","b":"c"})),
            (json!({"a":"b"}), json!({"a":null}), json!({})),
            (
                json!({"a":"b","b":"c"}),
                json!({"a":null}),
                json!({"b":"c"}),
            ),
            (json!({"a":["b"]}), json!({"a":"c"}), json!({"a":"c"})),
            (json!({"a":"c"}), json!({"a":["b"]}), json!({"a":["b"]})),
            (
                json!({"a":{"b":"c"}}),
                json!({"a":{"b":"d","c":null}}),
                json!({"a":{"b":"d"}}),
            ),
            (json!({"a":[{"b":"c"}]}), json!({"a":[1]}), json!({"a":[1]})),
            (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
            (json!({"a":"b"}), json!(["c"]), json!(["c"])),
            (json!({"a":"foo"}), json!(null), json!(null)),
            (json!({"e":null}), json!({"a":1}), json!({"e":null,"a":1})),
            (json!([1, 2]), json!({"a":"b","c":null}), json!({"a":"b"})),
            (
                json!({}),
                json!({"a":{"bb":{"ccc":null}}}),
                json!({"a":{"bb":{}}}),
            ),
        ];
        for (target, patch, expected) in cases {
            assert_eq!(
                merge(target.clone(), patch.clone()),
                expected,
                "{target} {patch}"
            );
        }
    }

    const LIMITS: PatchLimits = PatchLimits {
        copied_bytes_max: 10_000,
        nesting_max: 16,
    };

    fn check(document: Value, patch: Value, expected: Result<Value, PatchError>) {
        let limits = PatchLimits {
            copied_bytes_max: 100,
            ..LIMITS
        };
        let found = apply(document.clone(), &patch, limits);
        assert_eq!(found, expected, "{document} {patch}");
    }

    #[test]
    fn patches_do_what_they_say() {
        let cases = [
            (
                json!({"a":1}),
                json!([{"op":"add","path":"/b","value":2}]),
                json!({"a":1,"b":2}),
            ),
            (
                json!({"a":[1,3]}),
                json!([{"op":"add","path":"/a/1","value":2}]),
                json!({"a":[1,2,3]}),
            ),
            (
                json!({"a":[1]}),
                json!([{"op":"add","path":"/a/-","value":[2]}]),
                json!({"a":[1,[2]]}),
            ),
            (
                json!({"a":[1]}),
                json!([{"op":"add","path":"/a/1","value":2}]),
                json!({"a":[1,2]}),
            ),
            (
                json!({"a":1,"b":2}),
                json!([{"op":"remove","path":"/a"}]),
                json!({"b":2}),
            ),
            (
                json!({"a":[1,2,3]}),
                json!([{"op":"remove","path":"/a/1"}]),
                json!({"a":[1,3]}),
            ),
            (
                json!({"a":1}),
                json!([{"op":"replace","path":"/a","value":null}]),
                json!({"a":null}),
            ),
            (
                json!({"a":1}),
                json!([{"op":"replace","path":"","value":[]}]),
                json!([]),
            ),
            (
                json!({"a":{"x":1},"b":{}}),
                json!([{"op":"move","from":"/a/x","path":"/b/y"}]),
                json!({"a":{},"b":{"y":1}}),
            ),
            (
                json!({"a":[1,2,3]}),
                json!([{"op":"move","from":"/a/0","path":"/a/2"}]),
                json!({"a":[2,3,1]}),
            ),
            (
                json!({"a":1}),
                json!([{"op":"move","from":"/a","path":"/a"}]),
                json!({"a":1}),
            ),
            (
                json!({"a":[1]}),
                json!([{"op":"copy","from":"/a","path":"/b"}]),
                json!({"a":[1],"b":[1]}),
            ),
            (
                json!({"a~b":{"c/d":1}}),
                json!([{"op":"replace","path":"/a~0b/c~1d","value":2}]),
                json!({"a~b":{"c/d":2}}),
            ),
            (
                json!({"~1":1}),
                json!([{"op":"remove","path":"/~01"}]),
                json!({}),
            ),
            (
                json!({"":1}),
                json!([{"op":"replace","path":"/","value":2}]),
                json!({"":2}),
            ),
            (
                json!({"a":1.0}),
                json!([{"op":"test","path":"/a","value":1}]),
                json!({"a":1.0}),
            ),
            (
                json!({"a":{"x":[1],"y":"ä"}}),
                json!([{"op":"test","path":"/a","value":{"y":"ä","x":[1]}}, {"op":"add","path":"/b","value":1, "more":2}]),
                json!({"a":{"x":[1],"y":"ä"},"b":1}),
            ),
            (json!({"a":1}), json!([]), json!({"a":1})),
        ];
        for (document, patch, expected) in cases {
            check(document, patch, Ok(expected));
        }
    }

    #[test]
    fn the_whole_stays_a_record() {
        for op in ["add", "replace"] {
            for value in [json!(1), json!(null), json!("a")] {
                let patch = json!([{"op":op,"path":"","value":value}]);
                assert_eq!(super::check(&patch), Err(PatchError::NotARecord));
                check(json!({"a":1}), patch, Err(PatchError::NotARecord));
            }
        }
    }

    #[test]
    fn patches_that_do_not_fit_change_nothing() {
        let cases = [
            (
                json!({"a":1}),
                json!([{"op":"test","path":"/a","value":"1"}]),
            ),
            (
                json!({"a":1}),
                json!([{"op":"test","path":"/b","value":null}]),
            ),
            (json!({"a":1}), json!([{"op":"remove","path":"/b"}])),
            (json!({"a":1}), json!([{"op":"remove","path":""}])),
            (json!({"a":1}), json!([{"op":"copy","from":"/a","path":""}])),
            (json!({"a":1}), json!([{"op":"move","from":"/a","path":""}])),
            (
                json!({"a":1}),
                json!([{"op":"replace","path":"/b","value":1}]),
            ),
            (
                json!({"a":1}),
                json!([{"op":"add","path":"/b/c","value":1}]),
            ),
            (
                json!({"a":1}),
                json!([{"op":"add","path":"/a/c","value":1}]),
            ),
            (
                json!({"a":[1]}),
                json!([{"op":"add","path":"/a/2","value":1}]),
            ),
            (
                json!({"a":[1]}),
                json!([{"op":"add","path":"/a/01","value":1}]),
            ),
            (
                json!({"a":[1]}),
                json!([{"op":"add","path":"/a/x","value":1}]),
            ),
            (json!({"a":[1]}), json!([{"op":"remove","path":"/a/-"}])),
            (
                json!({"a":[1]}),
                json!([{"op":"replace","path":"/a/1","value":1}]),
            ),
            (
                json!({"a":{"b":1}}),
                json!([{"op":"move","from":"/a","path":"/a/b"}]),
            ),
            (
                json!({"a":1}),
                json!([{"op":"move","from":"/b","path":"/c"}]),
            ),
            (
                json!({"a":1}),
                json!([{"op":"copy","from":"/b","path":"/c"}]),
            ),
        ];
        for (document, patch) in cases {
            check(document, patch, Err(PatchError::Unfit));
        }
    }

    #[test]
    fn invalid_patches_are_distinguished() {
        let cases = [
            json!({}),
            json!("add"),
            json!([7]),
            json!([{"op":"add","value":1}]),
            json!([{"op":"add","path":"/a"}]),
            json!([{"op":"add","path":"a","value":1}]),
            json!([{"op":"add","path":"/~2","value":1}]),
            json!([{"op":"add","path":"/~","value":1}]),
            json!([{"op":"spam","path":"/a","value":1}]),
            json!([{"op":"move","path":"/a"}]),
            json!([{"op":"copy","from":7,"path":"/a"}]),
            json!([{"path":"/a","value":1}]),
        ];
        for patch in cases {
            check(json!({"a":1}), patch, Err(PatchError::Malformed));
        }
    }

    #[test]
    fn copies_do_not_grow_without_bound() {
        let double = json!({"op":"copy","from":"","path":"/a"});
        let patch = Value::Array(vec![double; 40]);
        check(json!({"x":1}), patch, Err(PatchError::TooLarge));
    }

    #[test]
    fn nothing_nests_deeper_than_allowed() {
        let limits = PatchLimits {
            copied_bytes_max: 1 << 20,
            nesting_max: 64,
        };
        let copy = |path: String| json!({"op":"copy","from":"","path":path});
        // Each copy of the whole into its innermost array doubles the nesting: 1, 2, 4, ... containers.
        let doubling = |count: u32| {
            let copies = (0..count).map(|step| copy("/0".repeat((1 << step) - 1) + "/-"));
            apply(json!([]), &Value::Array(copies.collect()), limits).map(|made| made.to_string())
        };
        assert_eq!(doubling(6), Ok("[".repeat(64) + &"]".repeat(64)));
        for count in [7, 16] {
            assert_eq!(doubling(count), Err(PatchError::TooLarge));
        }
        let deep: Value = serde_json::from_str(&("[".repeat(63) + &"]".repeat(63))).expect("JSON");
        let document = json!({"a":{"b":1},"deep":[1]});
        for operation in [
            json!({"op":"add","path":"/a/b","value":deep}),
            json!({"op":"replace","path":"/a/b","value":deep}),
        ] {
            let patch = Value::Array(vec![operation]);
            assert_eq!(
                apply(document.clone(), &patch, limits),
                Err(PatchError::TooLarge)
            );
        }
        let into = |path: &str| {
            let moved = json!([
                {"op":"replace","path":"/deep","value":deep},
                {"op":"move","from":"/deep","path":path},
            ]);
            apply(document.clone(), &moved, limits)
        };
        assert!(into("/c").is_ok());
        assert_eq!(into("/a/b"), Err(PatchError::TooLarge));
    }

    #[test]
    fn shifting_a_large_array_again_and_again_is_refused() {
        let remove = json!({"op":"remove","path":"/0"});
        let insert = json!({"op":"add","path":"/0","value":0});
        let array = Value::Array(vec![Value::from(0); 100_000]);
        for operation in [remove, insert] {
            let patch = |count: usize| Value::Array(vec![operation.clone(); count]);
            assert!(apply(array.clone(), &patch(100), LIMITS).is_ok());
            assert_eq!(
                apply(array.clone(), &patch(1_000), LIMITS),
                Err(PatchError::TooLarge)
            );
        }
    }

    /// Small documents with few keys, so that patches match the values in them.
    fn document() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i8>().prop_map(Value::from),
            "[a-c/~]{0,2}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-c~/]{0,1}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    fn operation() -> impl Strategy<Value = Value> {
        let names = prop::sample::select(vec!["add", "remove", "replace", "move", "copy", "test"]);
        let pointer = "(/([abc]|~0|~1|0|1|2|-)){0,3}";
        (names, pointer, pointer, document()).prop_map(|(op, path, from, value)| {
            json!({ "op": op, "path": path, "from": from, "value": value })
        })
    }

    proptest! {
        #[test]
        fn an_operation_does_what_it_promises(target in document(), operation in operation()) {
            let patch = Value::Array(vec![operation.clone()]);
            let Ok(after) = apply(target.clone(), &patch, LIMITS) else { return Ok(()) };
            let path = parse(operation["path"].as_str().unwrap_or_default()).expect("it was applied");
            match operation["op"].as_str() {
                Some("test") => prop_assert_eq!(&after, &target),
                Some("replace") => prop_assert_eq!(find(&after, &path), Some(&operation["value"])),
                Some("add") if path.last().is_none_or(|last| last != "-") => {
                    prop_assert_eq!(find(&after, &path), Some(&operation["value"]));
                }
                _ => {}
            }
        }

        #[test]
        fn many_operations_end_well(target in document(), list in prop::collection::vec(operation(), 0..8)) {
            let _ = apply(target, &Value::Array(list), LIMITS);
        }

        #[test]
        fn a_merge_patch_leaves_no_null_behind_that_it_brought(target in document(), patch in document()) {
            let after = merge(target.clone(), patch.clone());
            prop_assert_eq!(merge(after.clone(), patch.clone()), after.clone(), "twice is once");
            if let (Value::Object(patch), Value::Object(after)) = (&patch, &after) {
                for (key, value) in patch {
                    prop_assert_eq!(value.is_null(), !after.contains_key(key));
                }
            }
        }
    }
}

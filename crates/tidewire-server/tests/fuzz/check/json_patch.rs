//! Checks patches of whole documents. An input is a document, a line end and a patch, which is applied as a JSON patch and as a
//! merge patch. The crate `json-patch` must give the same result for each operation.

use json_patch::{Patch, PatchOperation};
use serde_json::Value;
use tidewire_core::json::{JsonLimits, check};
use tidewire_http::api::patch::{PatchError, PatchLimits, apply, merge};

use super::{Reached, Target};

/// The target.
pub const TARGET: Target = Target {
    name: "json_patch",
    check_input,
    seeds,
    reachable: &[
        "add",
        "remove",
        "replace",
        "move",
        "copy",
        "test",
        "malformed",
        "unfit",
        "no record",
        "too large",
        "too deep",
        "too many copies",
        "index",
        "end of a list",
        "escaped pointer",
        "whole document",
        "merged",
        "merge into no object",
    ],
};

const LIMITS: PatchLimits = PatchLimits {
    copied_bytes_max: 1_000,
    nesting_max: 8,
};
/// The limits of a document that the engine accepts.
const DOCUMENT: JsonLimits = JsonLimits {
    array_gap_max: usize::MAX,
    nesting_max: LIMITS.nesting_max,
    bytes_max: 4_096,
};
/// The most that the text of a value can grow when it is written again: `1e15` becomes `1000000000000000.0`.
const GROWTH_MAX: usize = 8;

/// Panics if the input shows a fault.
pub fn check_input(input: &[u8]) -> Reached {
    let mut reached = Reached::new();
    let Some((document, patch)) = str::from_utf8(input)
        .ok()
        .and_then(|text| text.split_once('\n'))
    else {
        return reached;
    };
    if check(document, DOCUMENT).is_err() {
        return reached;
    }
    let (Ok(old), Ok(patch_value)) = (
        serde_json::from_str::<Value>(document),
        serde_json::from_str::<Value>(patch),
    ) else {
        return reached;
    };
    let bytes_max = GROWTH_MAX * (document.len() + patch.len()) + LIMITS.copied_bytes_max;
    check_patch(&old, &patch_value, bytes_max, &mut reached);
    check_merge(old, &patch_value, bytes_max, &mut reached);
    reached
}

fn check_patch(old: &Value, patch: &Value, bytes_max: usize, reached: &mut Reached) {
    let found = apply(old.clone(), patch, LIMITS);
    let Some(operations) = serde_json::from_value::<Patch>(patch.clone()).ok() else {
        assert!(found.is_err(), "{patch} is no patch");
        reached.insert("malformed");
        return;
    };
    assert_ne!(found, Err(PatchError::Malformed), "{patch} is a patch");
    if found == Err(PatchError::NotARecord) {
        assert!(operations.0.iter().any(puts_no_record), "{patch}");
        reached.insert("no record");
        return;
    }
    if let Ok(new) = &found {
        let limits = JsonLimits {
            array_gap_max: usize::MAX,
            nesting_max: LIMITS.nesting_max,
            bytes_max,
        };
        let checked = check(&new.to_string(), limits);
        assert!(checked.is_ok(), "{checked:?}: {new} of {old} and {patch}");
    }
    // `1` equals `1.0` in a test of RFC 6902, but not in that crate.
    let has_test = operations
        .0
        .iter()
        .any(|operation| matches!(operation, PatchOperation::Test(_)));
    if has_test && (has_fraction(old) || has_fraction(patch)) {
        return;
    }
    match (found, expect(old, &operations)) {
        (Ok(new), Expected::New(expected)) => {
            assert_eq!(new, expected, "{old} {patch}");
            reached.extend(operations.0.iter().map(name));
            reached.extend(
                operations
                    .0
                    .iter()
                    .flat_map(|operation| shape(operation.path().as_str())),
            );
        }
        (Err(PatchError::Unfit), Expected::Refused) => {
            reached.insert("unfit");
        }
        // A patch that does not fit may also be too large.
        (Err(PatchError::TooLarge), Expected::Refused) => {
            reached.insert("too large");
        }
        (Err(PatchError::TooLarge), Expected::Beyond(what)) => {
            reached.insert(what);
        }
        (found, expected) => panic!("{found:?} is not {expected:?}: {old} {patch}"),
    }
}

/// The required outcome of a patch.
#[derive(Debug)]
enum Expected {
    New(Value),
    Refused,
    /// The patch exceeds this limit.
    Beyond(&'static str),
}

fn expect(old: &Value, operations: &Patch) -> Expected {
    let mut document = old.clone();
    let mut copied_bytes = 0;
    for operation in &operations.0 {
        // After each operation the record must be an object or an array.
        let is_root = operation.path().as_str().is_empty();
        let is_record = |value: &Value| !is_root || value.is_object() || value.is_array();
        if let PatchOperation::Copy(copy) = operation {
            let copied = document.pointer(copy.from.as_str());
            if !copied.is_some_and(is_record) {
                return Expected::Refused;
            }
            copied_bytes += copied.map_or(0, |value| value.to_string().len());
            if copied_bytes > LIMITS.copied_bytes_max {
                return Expected::Beyond("too many copies");
            }
        }
        let is_done = json_patch::patch(&mut document, std::slice::from_ref(operation)).is_ok();
        if !is_done || !is_record(&document) {
            return Expected::Refused;
        }
        if nesting(&document) > LIMITS.nesting_max {
            return Expected::Beyond("too deep");
        }
    }
    Expected::New(document)
}

/// Whether an operation replaces the whole document with a value that can't be a record.
fn puts_no_record(operation: &PatchOperation) -> bool {
    let value = match operation {
        PatchOperation::Add(add) => &add.value,
        PatchOperation::Replace(replace) => &replace.value,
        _ => return false,
    };
    operation.path().as_str().is_empty() && !value.is_object() && !value.is_array()
}

fn check_merge(old: Value, patch: &Value, bytes_max: usize, reached: &mut Reached) {
    let mut expected = old.clone();
    json_patch::merge(&mut expected, patch);
    let new = merge(old.clone(), patch.clone());
    assert_eq!(new, expected, "{old} {patch}");
    let limits = JsonLimits {
        array_gap_max: usize::MAX,
        nesting_max: nesting(&old).max(nesting(patch)),
        bytes_max,
    };
    assert!(
        check(&new.to_string(), limits).is_ok(),
        "{new} of {old} and {patch}"
    );
    reached.insert(if old.is_object() {
        "merged"
    } else {
        "merge into no object"
    });
}

fn name(operation: &PatchOperation) -> &'static str {
    match operation {
        PatchOperation::Add(_) => "add",
        PatchOperation::Remove(_) => "remove",
        PatchOperation::Replace(_) => "replace",
        PatchOperation::Move(_) => "move",
        PatchOperation::Copy(_) => "copy",
        PatchOperation::Test(_) => "test",
    }
}

fn shape(pointer: &str) -> Vec<&'static str> {
    let shapes = [
        ("whole document", pointer.is_empty()),
        ("escaped pointer", pointer.contains('~')),
        ("end of a list", pointer.ends_with("/-")),
        (
            "index",
            pointer.ends_with(|last: char| last.is_ascii_digit()),
        ),
    ];
    shapes
        .into_iter()
        .filter(|(_, is_it)| *is_it)
        .map(|(shape, _)| shape)
        .collect()
}

fn nesting(value: &Value) -> usize {
    match value {
        Value::Object(object) => 1 + object.values().map(nesting).max().unwrap_or(0),
        Value::Array(array) => 1 + array.iter().map(nesting).max().unwrap_or(0),
        _ => 0,
    }
}

fn has_fraction(value: &Value) -> bool {
    match value {
        Value::Object(object) => object.values().any(has_fraction),
        Value::Array(array) => array.iter().any(has_fraction),
        value => value.is_f64(),
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let seeds = [
        (r#"{"a":1}"#, r#"[{"op":"add","path":"/b","value":2}]"#),
        (
            r#"{"a":[1,3]}"#,
            r#"[{"op":"add","path":"/a/1","value":2}]"#,
        ),
        (
            r#"{"a":[1]}"#,
            r#"[{"op":"add","path":"/a/-","value":[2]}]"#,
        ),
        (r#"{"a":[1]}"#, r#"[{"op":"add","path":"/a/01","value":1}]"#),
        (r#"{"a":1,"b":2}"#, r#"[{"op":"remove","path":"/a"}]"#),
        (r#"{"a":[1,2,3]}"#, r#"[{"op":"remove","path":"/a/1"}]"#),
        (r#"{"a":1}"#, r#"[{"op":"remove","path":""}]"#),
        (
            r#"{"a":1}"#,
            r#"[{"op":"replace","path":"/a","value":null}]"#,
        ),
        (r#"{"a":1}"#, r#"[{"op":"replace","path":"","value":[]}]"#),
        (
            r#"{"a":{"x":1},"b":{}}"#,
            r#"[{"op":"move","from":"/a/x","path":"/b/y"}]"#,
        ),
        (
            r#"{"a":[1,2,3]}"#,
            r#"[{"op":"move","from":"/a/0","path":"/a/2"}]"#,
        ),
        (
            r#"{"a":{"b":1}}"#,
            r#"[{"op":"move","from":"/a","path":"/a/b"}]"#,
        ),
        (r#"{"a":[1]}"#, r#"[{"op":"copy","from":"/a","path":"/b"}]"#),
        (
            r#"{"a~b":{"c/d":1}}"#,
            r#"[{"op":"replace","path":"/a~0b/c~1d","value":2}]"#,
        ),
        (
            r#"{"a~b":1,"a/b":2}"#,
            r#"[{"op":"replace","path":"/a~0b","value":2}]"#,
        ),
        (r#"{"":1}"#, r#"[{"op":"replace","path":"/","value":2}]"#),
        (
            r#"{"a":{"x":[1],"y":"\u00e4"}}"#,
            r#"[{"op":"test","path":"/a","value":{"y":"ä","x":[1]}}]"#,
        ),
        (r#"{"a":1}"#, r#"[{"op":"test","path":"/a","value":"1"}]"#),
        (r#"{"a":1.5}"#, r#"[{"op":"test","path":"/a","value":1}]"#),
        (
            r#"[]"#,
            r#"[{"op":"copy","from":"","path":"/-"},{"op":"copy","from":"","path":"/0/-"},{"op":"copy","from":"","path":"/0/0/0/-"}]"#,
        ),
        (
            r#"[]"#,
            r#"[{"op":"copy","from":"","path":"/-"},{"op":"copy","from":"","path":"/0/-"},{"op":"copy","from":"","path":"/0/0/0/-"},{"op":"copy","from":"","path":"/-"}]"#,
        ),
        (
            r#"[[[[[[1]]]]]]"#,
            r#"[{"op":"replace","path":"/0/0/0","value":[[[[2]]]]}]"#,
        ),
        (
            r#"[[[[[[1]]]]]]"#,
            r#"[{"op":"add","path":"/0/0/0/0/0/0/0/0/0","value":1}]"#,
        ),
        (
            r#"{"a":"0123456789012345678901234567890123456789"}"#,
            r#"[{"op":"copy","from":"","path":"/b"},{"op":"copy","from":"","path":"/c"},{"op":"copy","from":"","path":"/d"},{"op":"copy","from":"","path":"/e"},{"op":"copy","from":"","path":"/f"}]"#,
        ),
        (r#"{"a":1}"#, r#"[{"op":"spam","path":"/a"}]"#),
        (r#"{}"#, r#"[{"op":"add","path":"","value":1}]"#),
        (r#"{"a":1}"#, r#"[{"op":"move","from":"/a","path":""}]"#),
        (r#"{}"#, r#"[{"op":"add","path":"/~0","value":1}]"#),
        (r#"{}"#, r#"[{"op":"add","path":"/a~1b","value":1}]"#),
        (r#"[]"#, r#"[{"op":"add","path":"/0","value":1}]"#),
        (r#"{"a":1}"#, r#"{"a":null,"b":{"c":null,"d":[null]}}"#),
        (r#"{"a":{"b":"c"},"e":null}"#, r#"{"a":{"b":"d","c":null}}"#),
        (r#"[1,2]"#, r#"{"a":"b","c":null}"#),
        (r#"{"a":"foo"}"#, "null"),
    ];
    let mut seeds: Vec<Vec<u8>> = seeds
        .iter()
        .map(|(document, patch)| format!("{document}\n{patch}").into_bytes())
        .collect();
    // The copied value nests little, and the values of the keys before and after it nest too deeply.
    for key in 'b'..='m' {
        let neighbours = [u32::from(key) - 1, u32::from(key) + 1]
            .map(|code| char::from_u32(code).unwrap_or(key));
        let [before, after] = neighbours.map(|key| format!("\"{key}\":[[[[[[]]]]]]"));
        let patch = format!(r#"[{{"op":"copy","from":"/{key}","path":"/-/0/0/-"}}]"#);
        seeds.push(format!("{{\"{key}\":[],{before},{after},\"-\":[[[]]]}}\n{patch}").into_bytes());
    }
    seeds
}

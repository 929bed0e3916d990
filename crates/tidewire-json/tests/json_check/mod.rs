//! Checks the JSON functions on any text: `check` must agree with serde_json, patches must keep their promises, and no input may
//! cause a panic. The fuzz target runs it on generated inputs, and a test runs it on the committed corpus.
//!
//! The input is a document, a path and a value, separated by zero bytes. Without a value, the patch deletes the path.

use serde_json::value::RawValue;
use tidewire_json::{
    JsonError, JsonLimits, PatchError, Path, Token, check, lookup, parse_patches, patch, patch_many,
};

const LIMITS: JsonLimits = JsonLimits {
    array_gap_max: usize::MAX,
    nesting_max: 16,
    bytes_max: 4_096,
};

/// Panics if the input shows a fault.
pub fn check_input(input: &str) {
    let mut parts = input.splitn(3, '\0');
    let document = parts.next().unwrap_or_default();
    let path = parts.next().unwrap_or_default();
    let value = parts.next();
    let is_document = is_json(document);
    let is_value = value.is_none_or(is_json);
    if let Ok(patches) = parse_patches(document)
        && let Ok(patched) = patch_many("{}", &patches, LIMITS)
    {
        assert!(patched.len() <= LIMITS.bytes_max, "{patched}");
    }
    let Ok(path) = Path::parse(path) else { return };
    let patched = patch(document, &path, value, LIMITS);
    if is_document && is_value {
        match patched {
            Ok(patched) => promise(document, &path, value, &patched),
            Err(error) => assert_ne!(error, PatchError::Malformed, "{document}"),
        }
    }
}

/// Whether the text is JSON within the limits. Apart from the limits, serde_json must agree.
fn is_json(text: &str) -> bool {
    let checked = check(text, LIMITS);
    if let Ok(_) | Err(JsonError::Malformed { .. }) = checked {
        let oracle = serde_json::from_str::<&RawValue>(text).is_ok();
        assert_eq!(checked.is_ok(), oracle, "{text}");
    }
    checked.is_ok()
}

/// Panics if a successful patch breaks its promises.
pub fn promise(document: &str, path: &Path<'_>, value: Option<&str>, patched: &str) {
    assert!(check(patched, LIMITS).is_ok(), "{patched}");
    let again = patch(patched, path, value, LIMITS);
    assert_eq!(
        again.as_deref(),
        Ok(patched),
        "the same patch again changes nothing"
    );
    let found = lookup(patched, path);
    match value {
        None => assert!(
            matches!(found, None | Some("null")),
            "{found:?} is left in {patched}"
        ),
        Some(value) => {
            // An array's length has no text, and arrays ignore writes to other keys.
            let is_length = path.tokens().last() == Some(&Token::Key("length".into()));
            match found {
                Some(found) => assert_eq!(found, value.trim_ascii(), "{patched}"),
                None => assert!(
                    is_length || patched == document,
                    "{path:?} is not in {patched}"
                ),
            }
        }
    }
}

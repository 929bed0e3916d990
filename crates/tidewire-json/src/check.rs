//! Decides whether a text is JSON: exactly what `JSON.parse` accepts (RFC 8259), within limits of size and depth.
//!
//! A payload is checked once, where it enters. The loop keeps its own stack, so depth costs memory up to the limit
//! and never the thread's stack.

use smallvec::SmallVec;
use thiserror::Error;

use super::scan::{find_special, peek, skip_space};

/// Limits of a JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonLimits {
    /// Containers within one another; `[]` has one.
    pub nesting_max: usize,
    /// Bytes of the text.
    pub bytes_max: usize,
    /// Elements of arrays that one change may fill with null, because it names an index behind the end.
    pub array_gap_max: usize,
}

/// Which kind of value the text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonKind {
    /// `{…}`
    Object,
    /// `[…]`
    Array,
    /// `"…"`
    String,
    /// A number of any size; nothing says that a double can hold it.
    Number,
    /// `true` or `false`
    Bool,
    /// `null`
    Null,
}

impl JsonKind {
    /// The kind of the value that starts with `byte`.
    fn of(byte: u8) -> Self {
        match byte {
            b'{' => Self::Object,
            b'[' => Self::Array,
            b'"' => Self::String,
            b't' | b'f' => Self::Bool,
            b'n' => Self::Null,
            _ => Self::Number,
        }
    }
}

/// Why a text is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum JsonError {
    /// It is not JSON.
    #[error("malformed JSON at byte {offset}")]
    Malformed {
        /// The first byte that can't continue the text; the text's length if the end came too early.
        offset: usize,
    },
    /// It nests deeper than `nesting_max`.
    #[error("JSON nests too deep")]
    TooDeep,
    /// It has more than `bytes_max` bytes.
    #[error("JSON is too large")]
    TooLarge,
}

const fn malformed(offset: usize) -> JsonError {
    JsonError::Malformed { offset }
}

/// Returns the kind of JSON value in `text`. Lone surrogate escapes (`"\ud800"`), duplicate keys and numbers beyond a
/// double's range pass, as they do in `JSON.parse`.
///
/// # Errors
/// The first thing found wrong, the size before anything else.
pub fn check(text: &str, limits: JsonLimits) -> Result<JsonKind, JsonError> {
    let bytes = text.as_bytes();
    if bytes.len() > limits.bytes_max {
        return Err(JsonError::TooLarge);
    }
    // The closing brackets that are owed. 64 is the default nesting, so the heap is not touched.
    let mut owed: SmallVec<[u8; 64]> = SmallVec::new();
    let mut at = skip_space(bytes, 0);
    let kind = JsonKind::of(peek(bytes, at));
    loop {
        // Here a value starts.
        at = match peek(bytes, at) {
            b'"' => string(bytes, at)?,
            b'-' | b'0'..=b'9' => number(bytes, at)?,
            b't' => word(bytes, at, b"true")?,
            b'f' => word(bytes, at, b"false")?,
            b'n' => word(bytes, at, b"null")?,
            open @ (b'{' | b'[') => {
                if owed.len() >= limits.nesting_max {
                    return Err(JsonError::TooDeep);
                }
                let close = open + 2;
                let inside = skip_space(bytes, at + 1);
                if peek(bytes, inside) == close {
                    inside + 1
                } else {
                    owed.push(close);
                    at = if open == b'{' {
                        key(bytes, inside)?
                    } else {
                        inside
                    };
                    continue;
                }
            }
            _ => return Err(malformed(at)),
        };
        // Here a value has ended; whatever it completes ends with it.
        loop {
            at = skip_space(bytes, at);
            let Some(&close) = owed.last() else {
                return if at == bytes.len() {
                    Ok(kind)
                } else {
                    Err(malformed(at))
                };
            };
            let byte = peek(bytes, at);
            if byte == b',' {
                at = skip_space(bytes, at + 1);
                if close == b'}' {
                    at = key(bytes, at)?;
                }
                break;
            }
            if byte != close {
                return Err(malformed(at));
            }
            owed.pop();
            at += 1;
        }
    }
}

/// A key, its colon and the space around; the place of the value.
#[inline]
fn key(bytes: &[u8], at: usize) -> Result<usize, JsonError> {
    if peek(bytes, at) != b'"' {
        return Err(malformed(at));
    }
    let colon = skip_space(bytes, string(bytes, at)?);
    if peek(bytes, colon) != b':' {
        return Err(malformed(colon));
    }
    Ok(skip_space(bytes, colon + 1))
}

/// The place behind the string whose opening quote is at `at`.
#[inline]
fn string(bytes: &[u8], at: usize) -> Result<usize, JsonError> {
    let mut at = find_special(bytes, at + 1);
    loop {
        match peek(bytes, at) {
            b'"' => return Ok(at + 1),
            b'\\' => at = find_special(bytes, escape(bytes, at + 1)?),
            _ => return Err(malformed(at)),
        }
    }
}

/// The place behind the escape whose letter is at `at`.
fn escape(bytes: &[u8], at: usize) -> Result<usize, JsonError> {
    match peek(bytes, at) {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Ok(at + 1),
        b'u' => match (at + 1..at + 5).find(|&digit| !peek(bytes, digit).is_ascii_hexdigit()) {
            Some(wrong) => Err(malformed(wrong)),
            None => Ok(at + 5),
        },
        _ => Err(malformed(at)),
    }
}

/// The place behind the number that starts at `at` with a digit or a minus.
#[inline]
fn number(bytes: &[u8], mut at: usize) -> Result<usize, JsonError> {
    if peek(bytes, at) == b'-' {
        at += 1;
    }
    at = if peek(bytes, at) == b'0' {
        at + 1
    } else {
        digits(bytes, at)?
    };
    if peek(bytes, at) == b'.' {
        at = digits(bytes, at + 1)?;
    }
    if matches!(peek(bytes, at), b'e' | b'E') {
        at += 1;
        if matches!(peek(bytes, at), b'+' | b'-') {
            at += 1;
        }
        at = digits(bytes, at)?;
    }
    Ok(at)
}

/// The place behind one or more digits.
#[inline]
fn digits(bytes: &[u8], mut at: usize) -> Result<usize, JsonError> {
    if !peek(bytes, at).is_ascii_digit() {
        return Err(malformed(at));
    }
    while peek(bytes, at).is_ascii_digit() {
        at += 1;
    }
    Ok(at)
}

/// The place behind `word`, which must be the text at `at`.
fn word(bytes: &[u8], at: usize, word: &[u8]) -> Result<usize, JsonError> {
    match (0..word.len()).find(|&index| peek(bytes, at + index) != word[index]) {
        Some(wrong) => Err(malformed(at + wrong)),
        None => Ok(at + word.len()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    use super::*;

    const LIMITS: JsonLimits = JsonLimits {
        array_gap_max: usize::MAX,
        nesting_max: 64,
        bytes_max: 1 << 20,
    };

    #[test]
    fn accepts_what_json_parse_accepts() {
        for (text, kind) in [
            ("{}", JsonKind::Object),
            (" \t\r\n{ \"a\" : [ ] , \"\" : { } } \n", JsonKind::Object),
            (r#"{"a":1,"a":2}"#, JsonKind::Object),
            ("[]", JsonKind::Array),
            ("[[],{},1,null]", JsonKind::Array),
            (r#""""#, JsonKind::String),
            (r#""\"\\\/\b\f\n\r\t\u00e9\uD83D\uDE00""#, JsonKind::String),
            (r#""\ud800""#, JsonKind::String),
            (r#""\uDE00\uD83D""#, JsonKind::String),
            (
                "\"\u{7f}\u{2028}\u{2029}\u{feff}\u{1f600}\"",
                JsonKind::String,
            ),
            ("0", JsonKind::Number),
            ("-0", JsonKind::Number),
            ("-0.0e-0", JsonKind::Number),
            ("123456789012345678901234567890", JsonKind::Number),
            ("1e400", JsonKind::Number),
            ("1E+2", JsonKind::Number),
            ("true", JsonKind::Bool),
            ("false ", JsonKind::Bool),
            ("null", JsonKind::Null),
        ] {
            assert_eq!(check(text, LIMITS), Ok(kind), "{text}");
        }
    }

    #[test]
    fn refuses_everything_else_at_the_offset_of_the_error() {
        for (text, offset) in [
            ("", 0),
            (" ", 1),
            ("{", 1),
            ("[", 1),
            ("[1", 2),
            ("]", 0),
            ("[}", 1),
            ("[1}", 2),
            ("[1,]", 3),
            ("[,1]", 1),
            ("[1 2]", 3),
            (r#"{"a"}"#, 4),
            (r#"{"a":}"#, 5),
            (r#"{"a":1,}"#, 7),
            (r#"{"a":1 "b":2}"#, 7),
            (r#"{"a":1]"#, 6),
            ("{a:1}", 1),
            ("{1:1}", 1),
            ("{}{}", 2),
            ("1 2", 2),
            ("\"a", 2),
            ("\"\n\"", 1),
            ("\"\0\"", 1),
            (r#""\x""#, 2),
            (r#""\u00g0""#, 5),
            (r#""\u00""#, 5),
            (r#""\""#, 3),
            ("'a'", 0),
            ("01", 1),
            ("-", 1),
            ("-a", 1),
            ("+1", 0),
            (".5", 0),
            ("1.", 2),
            ("1.e5", 2),
            ("1e", 2),
            ("1e+", 3),
            ("0x10", 1),
            ("--1", 1),
            ("tru", 3),
            ("trux", 3),
            ("nulll", 4),
            ("True", 0),
            ("NaN", 0),
            ("Infinity", 0),
            ("undefined", 0),
            ("\u{feff}{}", 0),
            ("\u{a0}1", 0),
            ("[1]\u{b}", 3),
            ("\0", 0),
            ("1\0", 1),
            ("[\0]", 1),
            ("// c\n1", 0),
        ] {
            assert_eq!(
                check(text, LIMITS),
                Err(JsonError::Malformed { offset }),
                "{text:?}"
            );
        }
    }

    #[test]
    fn depth_counts_open_containers_only() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        let limits = |nesting_max| JsonLimits {
            array_gap_max: usize::MAX,
            nesting_max,
            ..LIMITS
        };
        for (text, nesting) in [
            ("1", 0),
            ("[]", 1),
            ("{}", 1),
            ("[[],[],{}]", 2),
            (r#"{"a":[{}],"b":1}"#, 3),
            (r#"["[[[["]"#, 1),
            (&nested(200), 200),
        ] {
            assert!(check(text, limits(nesting)).is_ok(), "{text}");
            if nesting > 0 {
                assert_eq!(
                    check(text, limits(nesting - 1)),
                    Err(JsonError::TooDeep),
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn a_million_brackets_do_not_reach_the_stack() {
        let limits = JsonLimits {
            array_gap_max: usize::MAX,
            nesting_max: usize::MAX,
            bytes_max: usize::MAX,
        };
        let depth = 1_000_000;
        let arrays = "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(check(&arrays, limits), Ok(JsonKind::Array));
        let objects = r#"{"a":"#.repeat(depth) + "1" + &"}".repeat(depth);
        assert_eq!(check(&objects, limits), Ok(JsonKind::Object));
        assert_eq!(
            check(&"[".repeat(depth), limits),
            Err(JsonError::Malformed { offset: depth })
        );
    }

    #[test]
    fn size_is_checked_before_content() {
        let limits = JsonLimits {
            array_gap_max: usize::MAX,
            bytes_max: 4,
            ..LIMITS
        };
        assert_eq!(check("1234", limits), Ok(JsonKind::Number));
        assert_eq!(check("12345", limits), Err(JsonError::TooLarge));
        assert_eq!(check("]]]]]", limits), Err(JsonError::TooLarge));
    }

    /// The oracle does not build values, so it takes lone surrogates and large numbers as `JSON.parse` does.
    fn oracle_accepts(text: &str) -> bool {
        serde_json::from_str::<&RawValue>(text).is_ok()
    }

    fn any_json() -> impl Strategy<Value = String> {
        let scalar = prop_oneof![
            Just("null".to_owned()),
            any::<bool>().prop_map(|value| value.to_string()),
            r"-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,5})?([eE][+-]?[0-9]{1,3})?",
            any::<String>()
                .prop_map(|text| serde_json::to_string(&text).expect("strings serialise")),
            r#""(\\u[dD][89a-fA-F][0-9a-f]{2}|\\["\\/bfnrt]|[ -!#-\[\]-~é😀]){0,12}""#,
        ];
        let value = (r"[ \n\r\t]{0,2}", scalar)
            .prop_map(|(space, scalar)| space.clone() + &scalar + &space);
        value.prop_recursive(5, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6)
                    .prop_map(|items| format!("[{}]", items.join(","))),
                prop::collection::vec(("[a-c]", inner), 0..6).prop_map(|members| {
                    let members: Vec<_> = members
                        .into_iter()
                        .map(|(key, value)| format!("\"{key}\" :{value}"))
                        .collect();
                    format!("{{{}}}", members.join(","))
                }),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn accepts_generated_json(text in any_json()) {
            prop_assert!(check(&text, LIMITS).is_ok(), "{}", text);
            prop_assert!(oracle_accepts(&text));
        }

        #[test]
        fn agrees_with_serde_json_after_one_mutation(
            text in any_json(),
            position in any::<prop::sample::Index>(),
            change in prop::option::of(prop::sample::select(br#"{}[]",:\u0123456789abeE+-.tfn "#.to_vec())),
        ) {
            let mut bytes = text.into_bytes();
            let position = position.index(bytes.len());
            match change {
                Some(byte) => bytes[position] = byte,
                None => { bytes.remove(position); }
            }
            if let Ok(text) = String::from_utf8(bytes) {
                prop_assert_eq!(check(&text, LIMITS).is_ok(), oracle_accepts(&text), "{}", text);
            }
        }

        #[test]
        fn agrees_with_serde_json_on_json_like_noise(text in r#"([\[\]{}",:0-9eE.+\-]|\\|\\u|true|null| ){0,14}"#) {
            prop_assert_eq!(check(&text, LIMITS).is_ok(), oracle_accepts(&text), "{}", text);
        }
    }
}

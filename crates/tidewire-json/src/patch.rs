//! Setting, deleting and finding one path in a document by splicing its text.
//!
//! The meaning is the client's `setValue` between `JSON.parse` and `JSON.stringify`; the parity test compares the two.
//! Of equal keys the last one counts. Documents and values were checked before; text that was not is answered with
//! [`PatchError::Malformed`] or a meaningless result, without a panic.

use std::borrow::Cow;
use std::cell::Cell;
use std::ops::Range;

use thiserror::Error;

use super::check::JsonLimits;
use super::literal::{is_text, string};
use super::path::{Path, Token, array_index, whole};
use super::scan::{Entries, Malformed, is_container, nesting, peek, skip_space};

/// Bytes of an array's element at least: one digit and a comma.
const ELEMENT_BYTES_MIN: usize = 2;

/// Why a patch is refused. The document stays as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PatchError {
    /// The document is a string, number, bool or null, which has no paths.
    #[error("document is neither object nor array")]
    NotContainer,
    /// An array's `length` would be deleted or become something other than a whole number.
    #[error("length of an array is not a whole number")]
    ArrayLength,
    /// The result would nest deeper than `nesting_max`.
    #[error("patched document nests too deep")]
    TooDeep,
    /// The result would have more than `bytes_max` bytes.
    #[error("patched document is too large")]
    TooLarge,
    /// The change would fill more than `array_gap_max` elements of arrays with null.
    #[error("index is too far past the end of its array")]
    ArrayGap,
    /// The document is not JSON, so it was never checked.
    #[error("document is not JSON")]
    Malformed,
}

impl From<Malformed> for PatchError {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

/// Writes `value` to `path`, or deletes the value at `path` if it is `None`; returns the new document.
///
/// Missing containers on the way are created, for a deletion too: `[]` filled with null before an index, `{}` before
/// a key; scalars and null in their place are replaced. A deleted element leaves null. An array takes a key that is
/// spelled like an index as that index, `length` as its length, and drops writes to other keys.
///
/// # Errors
/// The document can't take the change, or the result would pass a limit.
pub fn patch(
    document: &str,
    path: &Path<'_>,
    value: Option<&str>,
    limits: JsonLimits,
) -> Result<String, PatchError> {
    let value = check_patch(path, value, limits)?;
    let document = Document {
        text: document,
        limits,
        gap_left: Cell::new(limits.array_gap_max),
    };
    let bytes = document.bytes();
    let mut container = skip_space(bytes, 0);
    if !is_container(bytes, container) {
        return Err(PatchError::NotContainer);
    }
    let mut tokens = path.tokens();
    loop {
        let [token, rest @ ..] = tokens else {
            // A path has a token, and the last one returns below.
            return Ok(document.text.to_owned());
        };
        let step = Step::of(peek(bytes, container), token);
        let slot = document.find(container, &step)?;
        if let Some(inner) = &slot.value
            && !rest.is_empty()
            && is_container(bytes, inner.start)
        {
            container = inner.start;
            tokens = rest;
            continue;
        }
        return match value {
            None if rest.is_empty() => document.delete(container, &step, slot),
            _ => document.write(container, &step, slot, &document.create(rest, value)?),
        };
    }
}

/// What must hold for a patch of any document; returns the value without white space around it.
pub(crate) fn check_patch<'v>(
    path: &Path<'_>,
    value: Option<&'v str>,
    limits: JsonLimits,
) -> Result<Option<&'v str>, PatchError> {
    let value = value.map(|text| text.trim_matches([' ', '\n', '\r', '\t']));
    let nesting = path.tokens().len() + nesting(value.unwrap_or_default().as_bytes())?;
    if nesting > limits.nesting_max {
        return Err(PatchError::TooDeep);
    }
    if skipped_elements(path) > limits.bytes_max / ELEMENT_BYTES_MIN {
        return Err(PatchError::TooLarge);
    }
    Ok(value)
}

/// The length that `text` gives an array.
pub(crate) fn length_of_array(text: &str) -> Result<usize, PatchError> {
    let length = text.parse().ok().and_then(whole);
    usize::try_from(length.ok_or(PatchError::ArrayLength)?).map_err(|_| PatchError::TooLarge)
}

/// Elements before those that the path's indices name. Beyond what a document can hold, a deletion would change nothing
/// here, but a client that lacks the array fills it with null up to the index before it deletes.
fn skipped_elements(path: &Path<'_>) -> usize {
    let indices = path.tokens().iter().map(|token| match token {
        Token::Index(index) => *index as usize,
        Token::Key(_) => 0,
    });
    indices.fold(0, usize::saturating_add)
}

/// The text of the value at `path`, or `None` if `path` has no value.
#[must_use]
pub fn lookup<'a>(document: &'a str, path: &Path<'_>) -> Option<&'a str> {
    // Nothing is made, so there is nothing to limit.
    let limits = JsonLimits {
        nesting_max: usize::MAX,
        bytes_max: usize::MAX,
        array_gap_max: usize::MAX,
    };
    let document = Document {
        text: document,
        limits,
        gap_left: Cell::new(usize::MAX),
    };
    let mut container = skip_space(document.bytes(), 0);
    let (last, before) = path.tokens().split_last()?;
    for token in before {
        let step = Step::of(peek(document.bytes(), container), token);
        container = document.find(container, &step).ok()?.value?.start;
    }
    let step = Step::of(peek(document.bytes(), container), last);
    document
        .text
        .get(document.find(container, &step).ok()?.value?)
}

/// Meaning of a token in the container that it is used in.
enum Step<'p> {
    /// A key of an object.
    Member(Cow<'p, str>),
    /// An index of an array.
    Element(usize),
    /// The length of an array.
    Length,
    /// A key that arrays have no place for: JavaScript keeps it until `JSON.stringify` drops it.
    Dropped,
}

impl<'p> Step<'p> {
    /// The step of `token` in the container that opens with `bracket`.
    fn of(bracket: u8, token: &'p Token<'_>) -> Self {
        match (bracket, token) {
            (b'[', Token::Index(index)) => Self::Element(*index as usize),
            (b'[', Token::Key(key)) if key == "length" => Self::Length,
            (b'[', Token::Key(key)) => match array_index(key) {
                Some(index) => Self::Element(index as usize),
                None => Self::Dropped,
            },
            (_, Token::Key(key)) => Self::Member(Cow::Borrowed(key)),
            (_, Token::Index(index)) => Self::Member(Cow::Owned(index.to_string())),
        }
    }
}

/// Where a step leads.
struct Slot {
    /// The value that counts, if there is one.
    value: Option<Range<usize>>,
    /// The place behind the container's last entry, or behind its opening bracket. Only known without a value.
    end: usize,
    /// Entries of the container. Only known without a value.
    count: usize,
}

/// A document with the limits that its patched form must keep.
struct Document<'d> {
    text: &'d str,
    limits: JsonLimits,
    /// Elements that may still be filled with null.
    gap_left: Cell<usize>,
}

impl<'d> Document<'d> {
    fn bytes(&self) -> &'d [u8] {
        self.text.as_bytes()
    }

    /// Looks for `step` in the container that opens at `container`.
    fn find(&self, container: usize, step: &Step<'_>) -> Result<Slot, PatchError> {
        let mut entries = Entries::of(self.bytes(), container)?;
        let mut value = None;
        match step {
            Step::Member(name) => {
                while let Some(entry) = entries.advance()? {
                    if entry.key.is_some_and(|key| is_text(self.text, &key, name)) {
                        value = Some(entry.value);
                    }
                }
            }
            Step::Element(index) => {
                while let Some(entry) = entries.advance()? {
                    if entries.count > *index {
                        value = Some(entry.value);
                        break;
                    }
                }
            }
            Step::Length | Step::Dropped => {}
        }
        Ok(Slot {
            value,
            end: entries.end,
            count: entries.count,
        })
    }

    /// The text of what a missing or replaced value becomes when `rest` of the path lies below it: containers down
    /// to `value`, or down to where it would be deleted.
    fn create<'v>(
        &self,
        rest: &[Token<'_>],
        value: Option<&'v str>,
    ) -> Result<Cow<'v, str>, PatchError> {
        if let (Some(value), []) = (value, rest) {
            return Ok(Cow::Borrowed(value));
        }
        let mut text = String::new();
        for (depth, token) in rest.iter().enumerate() {
            let is_filled = value.is_some() || depth + 1 < rest.len();
            match token {
                Token::Index(index) => {
                    text.push('[');
                    self.push_nulls(&mut text, *index as usize)?;
                    if !is_filled && *index > 0 {
                        text.pop();
                    }
                }
                Token::Key(key) => {
                    text.push('{');
                    if is_filled {
                        string(key, &mut text);
                        text.push(':');
                    }
                }
            }
        }
        text.push_str(value.unwrap_or_default());
        text.extend(rest.iter().rev().map(|token| match token {
            Token::Index(_) => ']',
            Token::Key(_) => '}',
        }));
        Ok(Cow::Owned(text))
    }

    /// Appends `null,` `count` times, if the gap may be that wide and a document that large.
    fn push_nulls(&self, out: &mut String, count: usize) -> Result<(), PatchError> {
        const NULL: &str = "null,";
        let left = self.gap_left.get().checked_sub(count);
        self.gap_left.set(left.ok_or(PatchError::ArrayGap)?);
        if count.saturating_mul(NULL.len()).saturating_add(out.len()) > self.limits.bytes_max {
            return Err(PatchError::TooLarge);
        }
        out.extend(std::iter::repeat_n(NULL, count));
        Ok(())
    }

    /// Makes `text` what `step` leads to.
    fn write(
        &self,
        container: usize,
        step: &Step<'_>,
        slot: Slot,
        text: &str,
    ) -> Result<String, PatchError> {
        if let Some(old) = slot.value {
            return self.splice(old, text);
        }
        let mut inserted = String::from(if slot.count > 0 { "," } else { "" });
        match step {
            Step::Dropped => return Ok(self.text.to_owned()),
            Step::Length => return self.set_length(container, text),
            Step::Member(name) => {
                string(name, &mut inserted);
                inserted.push(':');
            }
            Step::Element(index) => self.push_nulls(&mut inserted, index - slot.count)?,
        }
        inserted.push_str(text);
        self.splice(slot.end..slot.end, &inserted)
    }

    /// Cuts the array that opens at `container` to a length, or fills it with null.
    fn set_length(&self, container: usize, length: &str) -> Result<String, PatchError> {
        let length = length_of_array(length)?;
        let mut entries = Entries::of(self.bytes(), container)?;
        let mut kept = entries.end;
        while entries.advance()?.is_some() {
            if entries.count == length {
                kept = entries.end;
            }
        }
        if length <= entries.count {
            return self.splice(kept..entries.end, "");
        }
        let mut nulls = String::from(if entries.count > 0 { "," } else { "" });
        self.push_nulls(&mut nulls, length - entries.count)?;
        nulls.pop();
        self.splice(entries.end..entries.end, &nulls)
    }

    /// Deletes what `step` leads to.
    fn delete(&self, container: usize, step: &Step<'_>, slot: Slot) -> Result<String, PatchError> {
        match (step, slot.value) {
            (Step::Length, _) => Err(PatchError::ArrayLength),
            (Step::Member(name), Some(_)) => self.remove_members(container, name),
            (_, Some(value)) => self.splice(value, "null"),
            (_, None) => Ok(self.text.to_owned()),
        }
    }

    /// Removes every member named `name`, each with one comma.
    fn remove_members(&self, container: usize, name: &str) -> Result<String, PatchError> {
        let mut out = String::with_capacity(self.text.len());
        let mut entries = Entries::of(self.bytes(), container)?;
        // Text up to `done` is copied or removed. Members before the first kept one go together with the comma
        // behind them, later ones with the comma before them.
        let mut done = 0;
        let mut has_kept = false;
        let mut previous_end = entries.end;
        let mut leading = None;
        while let Some(entry) = entries.advance()? {
            let start = entry.start();
            if entry.key.is_some_and(|key| is_text(self.text, &key, name)) {
                if has_kept {
                    out.push_str(self.slice(done..previous_end)?);
                    done = entry.value.end;
                } else {
                    leading.get_or_insert(start);
                }
            } else if !has_kept {
                has_kept = true;
                if let Some(removed) = leading.take() {
                    out.push_str(self.slice(done..removed)?);
                    done = start;
                }
            }
            previous_end = entry.value.end;
        }
        if let Some(removed) = leading {
            out.push_str(self.slice(done..removed)?);
            done = previous_end;
        }
        out.push_str(self.slice(done..self.text.len())?);
        Ok(out)
    }

    /// The document with `text` in place of `range`.
    fn splice(&self, range: Range<usize>, text: &str) -> Result<String, PatchError> {
        let before = self.slice(0..range.start)?;
        let after = self.slice(range.end..self.text.len())?;
        let length = before.len() + text.len() + after.len();
        if length > self.limits.bytes_max {
            return Err(PatchError::TooLarge);
        }
        let mut out = String::with_capacity(length);
        out.push_str(before);
        out.push_str(text);
        out.push_str(after);
        Ok(out)
    }

    fn slice(&self, range: Range<usize>) -> Result<&'d str, PatchError> {
        self.text.get(range).ok_or(PatchError::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: JsonLimits = JsonLimits {
        array_gap_max: usize::MAX,
        nesting_max: 16,
        bytes_max: 1 << 16,
    };

    fn run(
        document: &str,
        path: &str,
        value: Option<&str>,
        limits: JsonLimits,
    ) -> Result<String, PatchError> {
        patch(document, &Path::parse(path).expect(path), value, limits)
    }

    fn check_set(cases: &[(&str, &str, &str, &str)]) {
        for (document, path, value, expected) in cases {
            let result = run(document, path, Some(value), LIMITS);
            assert_eq!(
                result.as_deref(),
                Ok(*expected),
                "set {path} to {value} in {document}"
            );
        }
    }

    fn check_delete(cases: &[(&str, &str, &str)]) {
        for (document, path, expected) in cases {
            let result = run(document, path, None, LIMITS);
            assert_eq!(
                result.as_deref(),
                Ok(*expected),
                "delete {path} in {document}"
            );
        }
    }

    #[test]
    fn sets_members_and_keeps_the_rest_byte_for_byte() {
        check_set(&[
            ("{}", "a", "1", r#"{"a":1}"#),
            ("{ }", "a", "1", r#"{"a":1 }"#),
            (r#" { "b" : -0 } "#, "a", " 1\n", r#" { "b" : -0,"a":1 } "#),
            (
                r#"{"a":1e400,"b" : "x" , "c":[ 1 ]}"#,
                "b",
                "{}",
                r#"{"a":1e400,"b" : {} , "c":[ 1 ]}"#,
            ),
            (
                r#"{"a":{"b":1},"c":2}"#,
                "a.b",
                "[2]",
                r#"{"a":{"b":[2]},"c":2}"#,
            ),
            (r#"{"a":{"b":1}}"#, "a", "2", r#"{"a":2}"#),
            ("{}", "a\"\u{1}é", "1", "{\"a\\\"\\u0001é\":1}"),
            (r#"{"a}":"}]","b":"\\"}"#, "b", "1", r#"{"a}":"}]","b":1}"#),
        ]);
    }

    #[test]
    fn creates_what_is_missing_on_the_way() {
        check_set(&[
            ("{}", "a.b.c", "1", r#"{"a":{"b":{"c":1}}}"#),
            ("{}", "a[2].b", "1", r#"{"a":[null,null,{"b":1}]}"#),
            ("{}", "a[0][1]", "1", r#"{"a":[[null,1]]}"#),
            ("{}", "a.0", "1", r#"{"a":{"0":1}}"#),
            (r#"{"a":null}"#, "a.b", "1", r#"{"a":{"b":1}}"#),
            (r#"{"a":"x"}"#, "a[0]", "1", r#"{"a":[1]}"#),
            (r#"{"a":false,"b":2}"#, "a.b", "1", r#"{"a":{"b":1},"b":2}"#),
            (
                r#"{"a":[1]}"#,
                "a[3].b",
                "1",
                r#"{"a":[1,null,null,{"b":1}]}"#,
            ),
            (r#"{"a":[ ]}"#, "a[1]", "1", r#"{"a":[null,1 ]}"#),
        ]);
        check_delete(&[
            ("{}", "a", "{}"),
            ("{}", "a.b.c", r#"{"a":{"b":{}}}"#),
            ("{}", "a[3]", r#"{"a":[null,null,null]}"#),
            ("{}", "a[0]", r#"{"a":[]}"#),
            (r#"{"a":5}"#, "a.b", r#"{"a":{}}"#),
            (r#"{"a":[1]}"#, "a[2].b", r#"{"a":[1,null,{}]}"#),
        ]);
    }

    #[test]
    fn arrays_take_indices_however_they_are_written() {
        check_set(&[
            (r#"{"a":[1, 2 ,3]}"#, "a[1]", "9", r#"{"a":[1, 9 ,3]}"#),
            (r#"{"a":[1,2]}"#, "a.1", "9", r#"{"a":[1,9]}"#),
            (r#"{"a":[1,2]}"#, "a.2", "9", r#"{"a":[1,2,9]}"#),
            ("[1,2]", "0", "9", "[9,2]"),
            ("[]", "1", "9", "[null,9]"),
            (r#"[{"a":1}]"#, "0.a", "9", r#"[{"a":9}]"#),
            (r#"{"a":{"1":1}}"#, "a[1]", "9", r#"{"a":{"1":9}}"#),
            (r#"{"a":{}}"#, "a[1][0]", "9", r#"{"a":{"1":[9]}}"#),
        ]);
        check_delete(&[
            ("[1,2]", "1", "[1,null]"),
            (r#"{"a":[ 1 ]}"#, "a[0]", r#"{"a":[ null ]}"#),
            ("[1,2]", "2", "[1,2]"),
            (r#"{"a":{"1":1,"2":2}}"#, "a[1]", r#"{"a":{"2":2}}"#),
        ]);
    }

    #[test]
    fn arrays_drop_other_keys() {
        check_set(&[
            ("[1]", "a", "9", "[1]"),
            ("[1]", "01", "9", "[1]"),
            ("[1]", "[0]", "9", "[1]"),
            ("[1]", "map.b[3]", "9", "[1]"),
            ("[1]", "4294967295", "9", "[1]"),
        ]);
        check_delete(&[("[1]", "a", "[1]"), ("[1]", "a.b[3]", "[1]")]);
        assert_eq!(
            run("[1]", "a[4294967294]", Some("9"), LIMITS),
            Err(PatchError::TooLarge)
        );
    }

    #[test]
    fn length_of_an_array_cuts_and_fills() {
        check_set(&[
            ("[1, 2 , 3 ]", "length", "2", "[1, 2 ]"),
            ("[1,2]", "length", "0", "[]"),
            ("[ 1 ]", "length", "-0", "[ ]"),
            ("[1,2]", "length", "2.0", "[1,2]"),
            ("[1]", "length", "3e0", "[1,null,null]"),
            ("[]", "length", "2", "[null,null]"),
            (r#"{"a":{}}"#, "a.length", "2", r#"{"a":{"length":2}}"#),
        ]);
        for (path, value) in [
            ("length", Some("-1")),
            ("length", Some("1.5")),
            ("length", Some("4294967296")),
            ("length", Some("1e400")),
            ("length", Some("\"1\"")),
            ("length", Some("null")),
            ("length", Some("[]")),
            ("length", None),
            ("length.a", Some("1")),
            ("length[0]", Some("1")),
            ("length.a", None),
        ] {
            assert_eq!(
                run("[1]", path, value, LIMITS),
                Err(PatchError::ArrayLength),
                "{path} {value:?}"
            );
        }
        assert_eq!(
            run("[1]", "length", Some("4294967295"), LIMITS),
            Err(PatchError::TooLarge)
        );
    }

    #[test]
    fn an_index_that_no_document_has_is_refused_in_a_deletion_too() {
        for (path, expected) in [
            ("a[0]", Ok(r#"{"a":[null]}"#.to_owned())),
            ("a[9]", Ok(r#"{"a":[1]}"#.to_owned())),
            ("a[4294967294]", Err(PatchError::TooLarge)),
            ("b[400000][400000]", Err(PatchError::TooLarge)),
        ] {
            assert_eq!(run(r#"{"a":[1]}"#, path, None, LIMITS), expected, "{path}");
        }
    }

    #[test]
    fn of_equal_keys_the_last_counts() {
        check_set(&[
            (r#"{"a":1,"a":2}"#, "a", "9", r#"{"a":1,"a":9}"#),
            (r#"{"a":1,"\u0061":2}"#, "a", "9", r#"{"a":1,"\u0061":9}"#),
            (
                r#"{"a":{"b":1},"a":3}"#,
                "a.b",
                "9",
                r#"{"a":{"b":1},"a":{"b":9}}"#,
            ),
            (
                r#"{"\ud800":1}"#,
                "\u{fffd}",
                "9",
                "{\"\\ud800\":1,\"\u{fffd}\":9}",
            ),
            (r#"{"a":{"a":1},"b":2}"#, "b", "9", r#"{"a":{"a":1},"b":9}"#),
        ]);
    }

    #[test]
    fn deletes_every_member_of_the_name_with_its_comma() {
        check_delete(&[
            (r#"{"a":1}"#, "a", "{}"),
            (r#"{ "a" : 1 }"#, "a", "{  }"),
            (r#"{"a":1,"b":2}"#, "a", r#"{"b":2}"#),
            (r#"{"a":1 , "b":2 }"#, "b", r#"{"a":1 }"#),
            (r#"{"a":1,"b":2,"c":3}"#, "b", r#"{"a":1,"c":3}"#),
            (r#"{"a":1,"a":2,"b":3}"#, "a", r#"{"b":3}"#),
            (r#"{"a":1,"b":3,"a":2}"#, "a", r#"{"b":3}"#),
            (r#"{"b":3,"a":1,"a":2}"#, "a", r#"{"b":3}"#),
            (
                r#"{"a":1,"a":2,"b":3,"a":4,"c":5,"\u0061":6}"#,
                "a",
                r#"{"b":3,"c":5}"#,
            ),
            (r#"{"a":1,"a":2}"#, "a", "{}"),
            (
                r#"{"x":{"a":1,"b":[]},"a":1}"#,
                "x.a",
                r#"{"x":{"b":[]},"a":1}"#,
            ),
            (
                r#"{"x":{"a":1},"x":{"a":2}}"#,
                "x.a",
                r#"{"x":{"a":1},"x":{}}"#,
            ),
        ]);
    }

    #[test]
    fn scalars_have_no_paths() {
        for document in ["1", "\"a\"", "null", "true", " 1 "] {
            assert_eq!(
                run(document, "a", Some("1"), LIMITS),
                Err(PatchError::NotContainer),
                "{document}"
            );
            assert_eq!(
                run(document, "a", None, LIMITS),
                Err(PatchError::NotContainer),
                "{document}"
            );
        }
    }

    #[test]
    fn the_result_keeps_the_limits() {
        let limits = JsonLimits {
            array_gap_max: usize::MAX,
            nesting_max: 3,
            bytes_max: 30,
        };
        for (document, path, value, expected) in [
            ("{}", "a.b.c", Some("1"), Ok(())),
            ("{}", "a.b.c.d", Some("1"), Err(PatchError::TooDeep)),
            ("{}", "a.b.c.d", None, Err(PatchError::TooDeep)),
            ("{}", "a.b", Some("[]"), Ok(())),
            ("{}", "a.b", Some("[{}]"), Err(PatchError::TooDeep)),
            ("{}", "a", Some("[[],[],[[]]]"), Err(PatchError::TooDeep)),
            ("{}", "a", Some(r#""[[[[[""#), Ok(())),
            ("{}", "abc", Some(r#""12345678901234567890""#), Ok(())),
            (
                "{}",
                "abc",
                Some(r#""123456789012345678901""#),
                Err(PatchError::TooLarge),
            ),
            ("{}", "a[3]", Some("1"), Ok(())),
            ("{}", "a[5]", Some("1"), Err(PatchError::TooLarge)),
            ("{}", "a[5]", None, Err(PatchError::TooLarge)),
            ("{}", "a[4294967294]", None, Err(PatchError::TooLarge)),
            (
                r#"{"a":[]}"#,
                "a[4294967294]",
                Some("1"),
                Err(PatchError::TooLarge),
            ),
            (r#"{"a":{}}"#, "a[15]", Some("1"), Ok(())),
            (
                r#"{"a":{}}"#,
                "a[4294967294]",
                Some("1"),
                Err(PatchError::TooLarge),
            ),
        ] {
            let result = run(document, path, value, limits);
            assert_eq!(
                result.as_ref().map(drop).map_err(|error| *error),
                expected,
                "{path} {value:?}"
            );
            assert!(
                result.is_ok_and(|text| text.len() <= 30) || expected.is_err(),
                "{path} {value:?}"
            );
        }
    }

    #[test]
    fn text_that_was_never_checked_is_refused() {
        for document in [
            "{",
            "[",
            r#"{"a"}"#,
            r#"{"a":1"#,
            r#"{"b":"é\"#,
            "{é:1}",
            "[1 2]",
            "[1,",
        ] {
            assert_eq!(
                run(document, "1", Some("1"), LIMITS),
                Err(PatchError::Malformed),
                "{document}"
            );
        }
    }

    #[test]
    fn lookup_finds_the_text_of_a_value() {
        for (document, path, expected) in [
            (
                r#"{"a": { "b" : [1, "x" ] } }"#,
                "a",
                Some(r#"{ "b" : [1, "x" ] }"#),
            ),
            (r#"{"a": { "b" : [1, "x" ] } }"#, "a.b[1]", Some(r#""x""#)),
            (r#"{"a": { "b" : [1, "x" ] } }"#, "a.b.0", Some("1")),
            (r#"{"a":1,"a":2}"#, "a", Some("2")),
            (r#"{"1":1}"#, "1", Some("1")),
            (" [null]", "0", Some("null")),
            ("[1]", "length", None),
            ("[1]", "1", None),
            ("[1]", "a", None),
            (r#"{"a":1}"#, "a.b", None),
            (r#"{"a":1}"#, "b", None),
            ("1", "a", None),
            ("", "a", None),
        ] {
            assert_eq!(
                lookup(document, &Path::parse(path).expect(path)),
                expected,
                "{path} in {document}"
            );
        }
    }

    #[test]
    fn gaps_of_arrays_are_bounded_over_the_whole_path() {
        let limits = JsonLimits {
            array_gap_max: 3,
            ..LIMITS
        };
        let one = r#"{"a":[1]}"#;
        for (document, path, value, expected) in [
            ("{}", "a[3]", Some("1"), Ok(r#"{"a":[null,null,null,1]}"#)),
            ("{}", "a[4]", Some("1"), Err(PatchError::ArrayGap)),
            ("{}", "a[4]", None, Err(PatchError::ArrayGap)),
            ("{}", "a[2][2]", Some("1"), Err(PatchError::ArrayGap)),
            (one, "a[4]", Some("1"), Ok(r#"{"a":[1,null,null,null,1]}"#)),
            (one, "a[5]", Some("1"), Err(PatchError::ArrayGap)),
            (one, "a[200000]", None, Err(PatchError::TooLarge)),
            (one, "a[20000]", None, Ok(one)),
            ("[]", "length", Some("3"), Ok("[null,null,null]")),
            ("[]", "length", Some("4"), Err(PatchError::ArrayGap)),
        ] {
            let patched = run(document, path, value, limits);
            assert_eq!(
                patched.as_deref().map_err(|error| *error),
                expected,
                "{document} {path}"
            );
        }
    }
}

//! JSON string literals: writing them, reading them, comparing one with plain text.

use super::scan::{RawString, find_special};

/// Appends `text` as a JSON string literal, escaped as `JSON.stringify` does it.
pub fn string(text: &str, out: &mut String) {
    out.reserve(text.len() + 2);
    out.push('"');
    for piece in escaped(text) {
        out.push_str(piece);
    }
    out.push('"');
}

/// The text between the quotes of `text` as a JSON string literal, piece by piece. It serves callers that write or
/// count the literal elsewhere than in a `String`.
#[must_use]
pub fn escaped(text: &str) -> Escaped<'_> {
    Escaped { text, done: 0 }
}

/// The pieces of [`escaped`]: parts of the text, and escapes between them.
#[derive(Clone, Debug)]
pub struct Escaped<'a> {
    text: &'a str,
    done: usize,
}

impl<'a> Iterator for Escaped<'a> {
    type Item = &'a str;

    #[inline]
    fn next(&mut self) -> Option<&'a str> {
        let special = find_special(self.text.as_bytes(), self.done);
        if special > self.done {
            // Both ends are a text's end or next to an ASCII character.
            let plain = self.text.get(self.done..special).unwrap_or_default();
            self.done = special;
            return Some(plain);
        }
        let escape = match *self.text.as_bytes().get(special)? {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            control => CONTROLS[usize::from(control & 31)],
        };
        self.done += 1;
        Some(escape)
    }
}

/// The escapes of the characters below the space.
const CONTROLS: [&str; 32] = [
    "\\u0000", "\\u0001", "\\u0002", "\\u0003", "\\u0004", "\\u0005", "\\u0006", "\\u0007", "\\b",
    "\\t", "\\n", "\\u000b", "\\f", "\\r", "\\u000e", "\\u000f", "\\u0010", "\\u0011", "\\u0012",
    "\\u0013", "\\u0014", "\\u0015", "\\u0016", "\\u0017", "\\u0018", "\\u0019", "\\u001a",
    "\\u001b", "\\u001c", "\\u001d", "\\u001e", "\\u001f",
];

/// Whether the string at `raw` in `document` means `text`.
#[inline]
pub(crate) fn is_text(document: &str, raw: &RawString, text: &str) -> bool {
    let Some(inner) = document.as_bytes().get(raw.inner.clone()) else {
        return false;
    };
    if !raw.escaped {
        return inner == text.as_bytes();
    }
    // Unescaping never makes a text longer.
    inner.len() >= text.len()
        && document
            .get(raw.inner.clone())
            .and_then(unescape)
            .is_some_and(|it| it == text)
}

/// Meaning of the escaped text between two quotes, or `None` if UTF-8 can't represent it (lone surrogates).
pub(crate) fn unescape(inner: &str) -> Option<String> {
    let mut out = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some((plain, after)) = rest.split_once('\\') {
        out.push_str(plain);
        let letter = after.chars().next()?;
        rest = after.get(letter.len_utf8()..)?;
        out.push(match letter {
            '"' | '\\' | '/' => letter,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let unit = take_unit(&mut rest)?;
                match char::from_u32(unit.into()) {
                    Some(single) => single,
                    None => {
                        rest = rest.strip_prefix("\\u")?;
                        let pair = [unit, take_unit(&mut rest)?];
                        char::decode_utf16(pair).next()?.ok()?
                    }
                }
            }
            _ => return None,
        });
    }
    out.push_str(rest);
    Some(out)
}

/// Takes four hexadecimal digits from the front.
fn take_unit(rest: &mut &str) -> Option<u16> {
    let (digits, after) = rest.split_at_checked(4)?;
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    *rest = after;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn unescapes_every_escape_and_refuses_lone_surrogates() {
        for (inner, meaning) in [
            ("", Some("")),
            ("plain é", Some("plain é")),
            (r#"\"\\\/\b\f\n\r\t"#, Some("\"\\/\u{8}\u{c}\n\r\t")),
            (r"\u0061\u00E9x", Some("aéx")),
            (r"\ud83d\ude00!", Some("😀!")),
            (r"\ud83d", None),
            (r"\ud83dx", None),
            (r"\ud83d\n", None),
            (r"\ud83d\u0061", None),
            (r"\ude00\ud83d", None),
            (r"\x", None),
            (r"\", None),
            (r"\u12", None),
            (r"\u+123", None),
            (r"\u12é", None),
        ] {
            assert_eq!(unescape(inner).as_deref(), meaning, "{inner}");
        }
    }

    #[test]
    fn strings_are_compared_after_unescaping() {
        for (literal, text, equal) in [
            (r#""a""#, "a", true),
            (r#""\u0061""#, "a", true),
            (r#""a""#, r"\u0061", false),
            (r#""\\u0061""#, r"\u0061", true),
            (r#""a\/b""#, "a/b", true),
            (r#""\ud83d\ude00""#, "😀", true),
            (r#""\ud83d""#, "\u{fffd}", false),
            (r#""""#, "", true),
            (r#""a""#, "ab", false),
        ] {
            let raw = RawString::scan(literal.as_bytes(), 0).expect(literal);
            assert_eq!(is_text(literal, &raw, text), equal, "{literal} {text}");
        }
    }

    proptest! {
        #[test]
        fn a_written_string_reads_back(text in any::<String>()) {
            let mut out = String::from("x");
            string(&text, &mut out);
            let literal = &out[1..];
            prop_assert_eq!(serde_json::from_str::<String>(literal).expect("valid JSON"), text.clone());
            prop_assert_eq!(unescape(&literal[1..literal.len() - 1]), Some(text));
        }
    }

    #[test]
    fn escapes_as_json_stringify_does() {
        let mut out = String::new();
        string("a\"\\/\u{8}\u{c}\n\r\t\u{0}\u{1f}\u{7f}\u{2028}é", &mut out);
        assert_eq!(
            out,
            "\"a\\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f\u{7f}\u{2028}é\""
        );
    }
}

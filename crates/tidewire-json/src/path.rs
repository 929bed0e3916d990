//! The path of a patch: `address.streets[2].name` as tokens, split exactly as the JavaScript client splits it.
//!
//! The grammar is section 8.5 of the deepstream protocol. Two of the client's answers are refused instead: a path
//! without tokens, where the client writes to a key named "undefined", and a bracket that holds no array index
//! (`a[-1]`, `a[x]`), where the client throws whenever it has to create the array.

use std::borrow::Cow;

use thiserror::Error;

/// Maximum number of tokens of one path. Each token names one container, and no useful `nesting_max` allows that
/// many.
const TOKENS_MAX: usize = 1_000;

/// Keys that a part of a path may not start with: in JavaScript they reach the prototype of every object.
const FORBIDDEN: [&str; 3] = ["__proto__", "constructor", "prototype"];

/// One step from a container to what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token<'a> {
    /// A part's text before its first bracket. An array takes it as an index if it is spelled like one.
    Key(Cow<'a, str>),
    /// The number in brackets. An object takes it as a key.
    Index(u32),
}

/// A parsed path; it has at least one token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path<'a> {
    tokens: Vec<Token<'a>>,
    is_listed: bool,
}

/// Reason why a text is not a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PathError {
    /// It has no token: only dots and white space, or nothing.
    #[error("path is empty")]
    Empty,
    /// A part starts with `__proto__`, `constructor` or `prototype`.
    #[error("path has a forbidden key")]
    Forbidden,
    /// The text in brackets is not a number from 0 to 4294967294.
    #[error("path has brackets without an array index")]
    Index,
    /// It has more than 1,000 tokens.
    #[error("path is too deep")]
    TooDeep,
}

impl<'a> Path<'a> {
    /// Splits `text` at dots, trims the parts and skips empty ones; `[n]` in a part is an index, the rest is keys.
    /// A part that starts with a bracket begins with the empty key.
    ///
    /// # Errors
    /// The first thing found wrong.
    pub fn parse(text: &'a str) -> Result<Self, PathError> {
        let mut tokens = Vec::new();
        for part in text.split('.') {
            let part = part.trim_matches(is_space);
            if part.is_empty() {
                continue;
            }
            let mut pieces = part.split(['[', ']']);
            let key = pieces.next().unwrap_or_default();
            if FORBIDDEN.contains(&key) {
                return Err(PathError::Forbidden);
            }
            push(&mut tokens, Token::Key(Cow::Borrowed(key)))?;
            for piece in pieces.filter(|piece| !piece.is_empty()) {
                push(
                    &mut tokens,
                    Token::Index(bracketed_index(piece).ok_or(PathError::Index)?),
                )?;
            }
        }
        if tokens.is_empty() {
            Err(PathError::Empty)
        } else {
            let is_listed = false;
            Ok(Self { tokens, is_listed })
        }
    }

    /// The path that a client gave as a list of steps, each of them a key or an index. A key may be any text, such as one
    /// with dots, which no text of a path can spell.
    ///
    /// # Errors
    /// The first thing found wrong.
    pub fn from_steps(
        steps: impl IntoIterator<Item = Result<Token<'a>, PathError>>,
    ) -> Result<Self, PathError> {
        let mut tokens = Vec::new();
        for step in steps {
            let step = step?;
            if let Token::Key(key) = &step
                && FORBIDDEN.contains(&key.as_ref())
            {
                return Err(PathError::Forbidden);
            }
            push(&mut tokens, step)?;
        }
        if tokens.is_empty() {
            Err(PathError::Empty)
        } else {
            let is_listed = true;
            Ok(Self { tokens, is_listed })
        }
    }

    /// Whether the path came as a list of steps, which deepstream's own clients can't read.
    #[must_use]
    pub fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// The steps from the root; never empty.
    #[must_use]
    pub fn tokens(&self) -> &[Token<'a>] {
        &self.tokens
    }

    /// Bytes that its steps take.
    pub fn kept_bytes(&self) -> usize {
        let of_token = |token: &Token<'_>| match token {
            Token::Key(key) => size_of::<Token<'_>>() + key.len(),
            Token::Index(_) => size_of::<Token<'_>>(),
        };
        self.tokens.iter().map(of_token).sum()
    }

    /// The same path, independent of the text it was parsed from.
    #[must_use]
    pub fn into_owned(self) -> Path<'static> {
        let own = |token| match token {
            Token::Key(key) => Token::Key(Cow::Owned(key.into_owned())),
            Token::Index(index) => Token::Index(index),
        };
        Path {
            tokens: self.tokens.into_iter().map(own).collect(),
            is_listed: self.is_listed,
        }
    }
}

fn push<'a>(tokens: &mut Vec<Token<'a>>, token: Token<'a>) -> Result<(), PathError> {
    if tokens.len() >= TOKENS_MAX {
        return Err(PathError::TooDeep);
    }
    tokens.push(token);
    Ok(())
}

/// What JavaScript's `String.trim` removes: Unicode's white space without U+0085 and with U+FEFF.
fn is_space(character: char) -> bool {
    character == '\u{feff}' || (character.is_whitespace() && character != '\u{85}')
}

/// What JavaScript's `Number` makes of a bracket's text, if that is an array index.
fn bracketed_index(text: &str) -> Option<u32> {
    let text = text.trim_matches(is_space);
    if text.is_empty() {
        return Some(0);
    }
    let index = match text.get(..2) {
        Some("0x" | "0X") => unsigned(&text[2..], 16)?,
        Some("0o" | "0O") => unsigned(&text[2..], 8)?,
        Some("0b" | "0B") => unsigned(&text[2..], 2)?,
        _ => decimal(text)?,
    };
    u32::try_from(index).ok().filter(|&index| index < u32::MAX)
}

fn unsigned(digits: &str, radix: u32) -> Option<u64> {
    if digits.starts_with('+') {
        return None;
    }
    u64::from_str_radix(digits, radix).ok()
}

/// A whole number from 0 on; also spelled `+1`, `1e3` or `-0`. A fraction can't come: dots split parts.
fn decimal(text: &str) -> Option<u64> {
    if !text
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'e' | b'E' | b'+' | b'-'))
    {
        return None;
    }
    whole(text.parse().ok()?)
}

/// `number` as a whole number, if it is one from 0 to 2^32 - 1.
pub(crate) fn whole(number: f64) -> Option<u64> {
    let fits = number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&number);
    // In this range the conversion is exact.
    fits.then_some(number as u64)
}

/// The index that an array takes `key` for: digits without a leading zero, below 2^32 - 1.
pub(crate) fn array_index(key: &str) -> Option<u32> {
    let canonical =
        key == "0" || (!key.starts_with('0') && key.bytes().all(|byte| byte.is_ascii_digit()));
    if !canonical {
        return None;
    }
    key.parse().ok().filter(|&index| index < u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Token<'_> {
        Token::Key(text.into())
    }

    #[test]
    fn splits_as_the_client_does() {
        use Token::Index;
        for (text, tokens) in [
            ("a", vec![key("a")]),
            ("a.b.c", vec![key("a"), key("b"), key("c")]),
            (
                " a . b\u{a0}.\u{feff}c\u{2028}",
                vec![key("a"), key("b"), key("c")],
            ),
            ("\u{85}a", vec![key("\u{85}a")]),
            ("..a..b..", vec![key("a"), key("b")]),
            ("a. .b", vec![key("a"), key("b")]),
            ("y.z[1]", vec![key("y"), key("z"), Index(1)]),
            ("a[0][2].b", vec![key("a"), Index(0), Index(2), key("b")]),
            ("a[1]b", vec![]),
            ("a[1]2", vec![key("a"), Index(1), Index(2)]),
            ("a]1[2", vec![key("a"), Index(1), Index(2)]),
            ("a [0]", vec![key("a "), Index(0)]),
            ("a[]", vec![key("a")]),
            ("a[][[]]", vec![key("a")]),
            ("[0]", vec![key(""), Index(0)]),
            ("a.[0]", vec![key("a"), key(""), Index(0)]),
            ("0", vec![key("0")]),
            ("a.0.1", vec![key("a"), key("0"), key("1")]),
            ("a[ 7 ]", vec![key("a"), Index(7)]),
            ("a[ ]", vec![key("a"), Index(0)]),
            ("a[007]", vec![key("a"), Index(7)]),
            ("a[+5]", vec![key("a"), Index(5)]),
            ("a[-0]", vec![key("a"), Index(0)]),
            ("a[1e3]", vec![key("a"), Index(1000)]),
            ("a[0x1F]", vec![key("a"), Index(31)]),
            ("a[0o17]", vec![key("a"), Index(15)]),
            ("a[0b11]", vec![key("a"), Index(3)]),
            ("a[1.5]", vec![key("a"), Index(1), key("5")]),
            ("a[4294967294]", vec![key("a"), Index(4_294_967_294)]),
            ("__proto__x", vec![key("__proto__x")]),
            ("toString.length", vec![key("toString"), key("length")]),
        ] {
            let expected = if tokens.is_empty() {
                Err(PathError::Index)
            } else {
                Ok(&tokens[..])
            };
            assert_eq!(
                Path::parse(text)
                    .as_ref()
                    .map(Path::tokens)
                    .map_err(|error| *error),
                expected,
                "{text:?}"
            );
        }
    }

    #[test]
    fn refuses_invalid_paths() {
        for (text, error) in [
            ("", PathError::Empty),
            (" ", PathError::Empty),
            (". .\u{feff}.", PathError::Empty),
            ("__proto__", PathError::Forbidden),
            ("a. constructor .b", PathError::Forbidden),
            ("prototype[0]", PathError::Forbidden),
            ("a[x]", PathError::Index),
            ("a[-1]", PathError::Index),
            ("a[1 2]", PathError::Index),
            ("a[1_0]", PathError::Index),
            ("a[1e-1]", PathError::Index),
            ("a[1e]", PathError::Index),
            ("a[0x]", PathError::Index),
            ("a[0x+1]", PathError::Index),
            ("a[-0x1]", PathError::Index),
            ("a[0xffffffffffffffffff]", PathError::Index),
            ("a[4294967295]", PathError::Index),
            ("a[1e400]", PathError::Index),
            ("a[Infinity]", PathError::Index),
            ("a[NaN]", PathError::Index),
            ("a[é]", PathError::Index),
        ] {
            assert_eq!(Path::parse(text), Err(error), "{text:?}");
        }
    }

    #[test]
    fn tokens_are_limited() {
        let keys = |count| vec!["a"; count].join(".");
        assert_eq!(
            Path::parse(&keys(TOKENS_MAX)).map(|path| path.tokens().len()),
            Ok(TOKENS_MAX)
        );
        assert_eq!(Path::parse(&keys(TOKENS_MAX + 1)), Err(PathError::TooDeep));
        let indices = format!("a{}", "[1]".repeat(TOKENS_MAX));
        assert_eq!(Path::parse(&indices), Err(PathError::TooDeep));
    }

    #[test]
    fn only_canonical_numbers_are_array_indices() {
        for (text, index) in [
            ("0", Some(0)),
            ("10", Some(10)),
            ("4294967294", Some(4_294_967_294)),
            ("4294967295", None),
            ("99999999999999999999", None),
            ("", None),
            ("00", None),
            ("01", None),
            ("-0", None),
            ("+1", None),
            ("1e1", None),
            ("x", None),
        ] {
            assert_eq!(array_index(text), index, "{text}");
        }
    }
}

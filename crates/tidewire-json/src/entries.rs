//! Walking what a container holds, for those who read documents without building a tree.

use std::borrow::Cow;

use super::{literal, scan};

/// A string literal of a source text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Literal<'a> {
    /// The text between the quotes.
    pub inner: &'a str,
    /// Whether it has escapes.
    pub escaped: bool,
}

impl<'a> Literal<'a> {
    /// The literal that `text` begins with; `None` if it begins with none.
    #[must_use]
    pub fn scan(text: &'a str) -> Option<Self> {
        let raw = scan::RawString::scan(text.as_bytes(), 0).ok()?;
        Some(Self {
            inner: text.get(raw.inner)?,
            escaped: raw.escaped,
        })
    }

    /// Meaning of the literal; `None` if it is not Unicode text, because it has a lone surrogate.
    #[must_use]
    pub fn text(self) -> Option<Cow<'a, str>> {
        match self.escaped {
            false => Some(Cow::Borrowed(self.inner)),
            true => literal::unescape(self.inner).map(Cow::Owned),
        }
    }
}

/// The entries of one container in their order.
pub struct Entries<'a> {
    text: &'a str,
    walk: Option<scan::Entries<'a>>,
}

/// The entries of the container that `text` begins with; none if it begins with no container. `text` must have passed
/// [`super::check`]; on any other text the walk ends early.
#[must_use]
pub fn entries(text: &str) -> Entries<'_> {
    Entries {
        text,
        walk: scan::Entries::of(text.as_bytes(), 0).ok(),
    }
}

impl<'a> Iterator for Entries<'a> {
    /// The key, in objects, and the value's text.
    type Item = (Option<Literal<'a>>, &'a str);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.walk.as_mut()?.advance().ok()??;
        let key = match entry.key {
            Some(raw) => Some(Literal {
                inner: self.text.get(raw.inner)?,
                escaped: raw.escaped,
            }),
            None => None,
        };
        Some((key, self.text.get(entry.value)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_keys_and_values_in_order() {
        let walked: Vec<_> = entries(r#"{"a": [1, {}], "\u0062":"x" }"#)
            .map(|(key, value)| (key.map(|key| (key.inner, key.escaped)), value))
            .collect();
        let expected = [
            (Some(("a", false)), "[1, {}]"),
            (Some((r"\u0062", true)), r#""x""#),
        ];
        assert_eq!(walked, expected);
        let elements: Vec<_> = entries("[1, [2] ,\"é\"]").map(|(_, value)| value).collect();
        assert_eq!(elements, ["1", "[2]", "\"é\""]);
    }

    #[test]
    fn strings_without_escapes_are_borrowed() {
        let text = |literal| Literal::scan(literal).and_then(Literal::text);
        assert!(matches!(text(r#""é""#), Some(Cow::Borrowed("é"))));
        assert_eq!(text(r#""a\"\u00e9""#).as_deref(), Some("a\"é"));
        assert_eq!(text(r#""\ud800""#), None);
        assert_eq!(text("1"), None);
    }

    #[test]
    fn text_that_is_not_a_container_has_no_entries() {
        for text in ["", "1", "{", "[", "{1", "\"a\""] {
            assert_eq!(entries(text).count(), 0, "{text}");
        }
    }
}

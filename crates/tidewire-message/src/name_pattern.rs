//! Patterns of names: `*` matches any text, every other character matches itself.

use std::fmt;

/// A pattern. `*` matches any text, including slashes and the empty text; a pattern cannot name a literal star.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern {
    /// The texts between the stars, one more than the number of stars.
    parts: Vec<Box<str>>,
}

impl NamePattern {
    /// Parses a pattern.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self {
            parts: text.split('*').map(Box::from).collect(),
        }
    }

    /// Whether a name matches.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let Some((first, rest)) = self.parts.split_first() else {
            return false;
        };
        let Some(mut left) = name.strip_prefix(&**first) else {
            return false;
        };
        let Some((last, middle)) = rest.split_last() else {
            return left.is_empty();
        };
        // The first match of a text leaves the most for the remaining texts.
        for part in middle {
            let Some(at) = left.find(&**part) else {
                return false;
            };
            left = &left[at + part.len()..];
        }
        left.ends_with(&**last)
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.parts.join("*"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        let check = |pattern: &str, fits: &[&str], others: &[&str]| {
            let pattern = NamePattern::new(pattern);
            for name in fits {
                assert!(pattern.matches(name), "{pattern} and {name}");
            }
            for name in others {
                assert!(!pattern.matches(name), "{pattern} and {name}");
            }
        };
        check("news", &["news"], &["", "new", "newsx", "xnews"]);
        check(
            "news/*",
            &["news/", "news/a", "news/a/b"],
            &["news", "old/news/a"],
        );
        check("*", &["a", "", "ä/b"], &[]);
        check(
            "*/chat",
            &["a/chat", "/chat", "chat/chat"],
            &["chat", "a/chat/b"],
        );
        check(
            "a*b*c",
            &["abc", "axxbyyc", "abbc", "abcbc"],
            &["ac", "acb", "abcd"],
        );
        check("a*a", &["aa", "aba"], &["a"]);
        check("a**b", &["ab", "axb"], &["a"]);
    }

    #[test]
    fn a_pattern_is_formatted_as_it_was_parsed() {
        for text in ["", "*", "a*b", "**", "a"] {
            assert_eq!(NamePattern::new(text).to_string(), text);
        }
    }
}

//! Patterns of event names: which texts are patterns, which names they match, and the text with which every match begins.
//!
//! A name or pattern consists of segments, which slashes divide. A segment may be empty: `a//b` has three segments, and `a/` has two. In a
//! pattern the segment `*` matches exactly one segment. The segment `**` matches one or more segments and may only be the last one. Every
//! other segment matches an equal segment and has no star. Contract: `docs/events.md`, "Patterns".

/// Divides the segments of names and patterns.
pub const SEPARATOR: char = '/';

/// A segment of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment<'p> {
    /// Matches an equal segment.
    Text(&'p str),
    /// `*` matches exactly one segment.
    One,
    /// `**` matches one or more segments, up to the end of the name.
    Rest,
}

/// The segments of a pattern, in order.
pub fn segments(pattern: &str) -> impl Iterator<Item = Segment<'_>> {
    pattern.split(SEPARATOR).map(|segment| match segment {
        "*" => Segment::One,
        "**" => Segment::Rest,
        text => Segment::Text(text),
    })
}

/// Whether a text is a pattern with at most `bytes_max` bytes and `segments_max` segments. A text without a wildcard is a name and not a
/// pattern.
#[must_use]
pub fn is_pattern(text: &str, bytes_max: usize, segments_max: usize) -> bool {
    let (mut count, mut has_wildcard, mut has_rest) = (0, false, false);
    for segment in segments(text) {
        let is_misplaced = matches!(segment, Segment::Text(text) if text.contains('*'));
        count += 1;
        if count > segments_max || is_misplaced || has_rest {
            return false;
        }
        has_wildcard |= !matches!(segment, Segment::Text(_));
        has_rest = segment == Segment::Rest;
    }
    has_wildcard && text.len() <= bytes_max
}

/// Whether a name matches a valid pattern.
#[must_use]
pub fn matches(pattern: &str, name: &str) -> bool {
    let mut names = name.split(SEPARATOR);
    for segment in segments(pattern) {
        let is_match = match segment {
            Segment::Rest => return names.next().is_some(),
            Segment::One => names.next().is_some(),
            Segment::Text(text) => names.next() == Some(text),
        };
        if !is_match {
            return false;
        }
    }
    names.next().is_none()
}

/// The text before the first wildcard, with which every match begins.
#[must_use]
pub fn literal_prefix(pattern: &str) -> &str {
    &pattern[..pattern.find('*').unwrap_or(pattern.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_one_segment_and_two_for_the_rest() {
        let check = |pattern: &str, fits: &[&str], others: &[&str]| {
            for name in fits {
                assert!(matches(pattern, name), "{pattern} and {name}");
            }
            for name in others {
                assert!(!matches(pattern, name), "{pattern} and {name}");
            }
        };
        check(
            "a/*",
            &["a/b", "a/", "a/*", "a/é"],
            &["a", "a/b/c", "b/a", "", "A/b"],
        );
        check("*/b", &["a/b", "/b"], &["b", "a/b/", "x/a/b"]);
        check("a/*/c", &["a/b/c", "a//c"], &["a/c", "a/b/b/c", "a/b/c/d"]);
        check(
            "a/**",
            &["a/b", "a/b/c", "a/", "a//"],
            &["a", "ab/c", "b/a"],
        );
        check("*", &["a", "", "**"], &["a/b", "/"]);
        check("**", &["a", "a/b", "", "/"], &[]);
        check("*/**", &["a/b", "a/b/c", "/"], &["a", ""]);
        check("a/*/**", &["a/b/c", "a/b/"], &["a/b", "a"]);
    }

    #[test]
    fn names_and_misplaced_wildcards_are_no_patterns() {
        let cases = [
            ("", false),
            ("a/*", true),
            ("*", true),
            ("**", true),
            ("/*/", true),
            ("a/b/c/*", true),
            ("a/b/c/d/*", false),
            ("////", false),
            ("a/b", false),
            ("**/a", false),
            ("**/**", false),
            ("a/**/*", false),
            ("a*", false),
            ("*a/*", false),
            ("a/***", false),
            ("é/*/12", true),
            ("0123456789/*", true),
            ("01234567890/*", false),
        ];
        for (text, expected) in cases {
            assert_eq!(is_pattern(text, 12, 4), expected, "{text}");
        }
    }

    #[test]
    fn every_match_begins_with_the_literal_prefix() {
        for (pattern, expected) in [("a/*", "a/"), ("a/b/**", "a/b/"), ("*/b", ""), ("**", "")] {
            assert_eq!(literal_prefix(pattern), expected);
        }
    }
}

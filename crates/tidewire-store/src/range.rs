//! The range of names that a scan reads.

use std::ops::Bound;

use tidewire_core::text::Name;

/// A range of names in byte order, as a connector requests it from its store.
#[derive(Debug, PartialEq, Eq)]
pub struct ScanRange<'a> {
    /// Where the range begins.
    pub start: Bound<&'a str>,
    /// The smallest text after the range, if there is one.
    pub end: Option<String>,
    /// The number of names to request: one more than the page holds, which shows whether there are more.
    pub limit: i64,
}

impl<'a> ScanRange<'a> {
    /// The names with `prefix` after `after`, for a page of `count_max` names.
    pub fn new(prefix: &'a str, after: Option<&'a Name>, count_max: usize) -> Self {
        let start = match after {
            Some(after) if after.as_str() >= prefix => Bound::Excluded(after.as_str()),
            _ => Bound::Included(prefix),
        };
        let limit = i64::try_from(count_max).unwrap_or(i64::MAX);
        Self {
            start,
            end: prefix_end(prefix),
            limit: limit.saturating_add(1),
        }
    }

    /// The smallest text in the range.
    pub fn first(&self) -> String {
        match self.start {
            // The text directly after another one is that text followed by the smallest character.
            Bound::Excluded(after) => format!("{after}\0"),
            Bound::Included(first) => first.to_owned(),
            Bound::Unbounded => String::new(),
        }
    }
}

/// The smallest text after all texts that start with `prefix`, in byte order; `None` if there is no such text.
pub(super) fn prefix_end(prefix: &str) -> Option<String> {
    let mut end = prefix.to_owned();
    while let Some(last) = end.pop() {
        // The order of UTF-8 bytes is the order of code points, and a range of `char` skips the surrogates.
        if let Some(next) = (last..=char::MAX).nth(1) {
            end.push(next);
            return Some(end);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_end_is_the_next_text_without_the_prefix() {
        let cases = [
            ("", None),
            ("a", Some("b")),
            ("az", Some("a{")),
            ("a\u{7f}", Some("a\u{80}")),
            ("é", Some("ê")),
            ("\u{d7ff}", Some("\u{e000}")),
            ("\u{ffff}", Some("\u{10000}")),
            ("a\u{10ffff}", Some("b")),
            ("\u{10ffff}\u{10ffff}", None),
        ];
        for (prefix, end) in cases {
            assert_eq!(prefix_end(prefix).as_deref(), end, "after {prefix:?}");
        }
    }

    #[test]
    fn a_scan_goes_on_behind_the_last_name() {
        let name = Name::from("b/2");
        let range = |prefix| ScanRange::new(prefix, Some(&name), 2);
        assert_eq!(range("b/").first(), "b/2\0");
        assert_eq!(range("a").first(), "b/2\0");
        assert_eq!(range("c").first(), "c");
        assert_eq!(range("b/").end.as_deref(), Some("b0"));
        assert_eq!(ScanRange::new("b/", None, usize::MAX).limit, i64::MAX);
    }
}

//! Names of collections and events in a schema file, whose segments may be `*`, and the search for the schema of a name.

use std::cmp::Ordering;

/// Matches any one segment of a name.
const ANY: &str = "*";

/// Values by name. If several names match, the one decides that has a fixed segment where the other has `*`, at the first difference.
#[derive(Debug)]
pub struct ByName<T> {
    /// Sorted, so that the first match decides.
    list: Vec<(Box<str>, T)>,
}

impl<T> ByName<T> {
    pub fn new(mut list: Vec<(Box<str>, T)>) -> Self {
        list.sort_by(|(one, _), (other, _)| precedence(one, other));
        Self { list }
    }

    /// The value whose name matches.
    pub fn find(&self, name: &str) -> Option<&T> {
        let found = self.list.iter().find(|(pattern, _)| matches(pattern, name));
        found.map(|(_, value)| value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.list.iter().map(|(name, value)| (&**name, value))
    }
}

/// The problem of a name in the file, if it has one.
pub fn problem(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        return Some("is empty; write a name");
    }
    let is_partly_any = |segment: &str| segment != ANY && segment.contains('*');
    if name.split('/').any(is_partly_any) {
        return Some(
            "has `*` inside a segment; `*` replaces a whole segment, as in `board/*/card`",
        );
    }
    None
}

fn matches(pattern: &str, name: &str) -> bool {
    let mut segments = name.split('/');
    let is_match = |part: &str| {
        let segment = segments.next();
        segment.is_some_and(|segment| part == ANY || part == segment)
    };
    pattern.split('/').all(is_match) && segments.next().is_none()
}

fn precedence(one: &str, other: &str) -> Ordering {
    let key = |name: &str| -> Vec<(bool, String)> {
        let segments = name.split('/');
        segments
            .map(|segment| (segment == ANY, segment.to_owned()))
            .collect()
    };
    key(one).cmp(&key(other))
}

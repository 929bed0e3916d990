//! Finds the known name that a user probably intended to write.

/// The name among `known` that is closest to `given`, if one is close enough.
///
/// A name is close enough if it differs by at most a third of the given name's length, but at least by two edits. Of equally close names
/// the first one is returned.
#[must_use]
pub fn nearest<'a>(given: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let edits_max = (given.chars().count() / 3).max(2);
    known
        .map(|name| (edits(given, name), name))
        .filter(|(edits, name)| *edits <= edits_max && *edits < name.chars().count())
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, name)| name)
}

/// The number of characters to insert, remove, replace or swap with their neighbour to change `left` into `right`. Ignores case.
fn edits(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.to_lowercase().chars().collect();
    let right: Vec<char> = right.to_lowercase().chars().collect();
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for row in 1..=left.len() {
        let mut current = vec![row];
        for column in 1..=right.len() {
            let is_replaced = usize::from(left[row - 1] != right[column - 1]);
            let mut best = (last[column] + 1)
                .min(current[column - 1] + 1)
                .min(last[column - 1] + is_replaced);
            let is_swapped = row > 1
                && column > 1
                && left[row - 1] == right[column - 2]
                && left[row - 2] == right[column - 1];
            if is_swapped {
                best = best.min(before_last[column - 2] + 1);
            }
            current.push(best);
        }
        before_last = std::mem::replace(&mut last, current);
    }
    last[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_edits() {
        let check = |left: &str, right: &str, expected| assert_eq!(edits(left, right), expected);
        check("", "", 0);
        check("port", "", 4);
        check("port", "port", 0);
        check("prot", "port", 1);
        check("Port", "port", 0);
        check("ports", "port", 1);
        check("pört", "port", 1);
        check("kitten", "sitting", 3);
    }

    #[test]
    fn finds_what_was_meant() {
        let known = ["host", "port", "paths", "origins"];
        let check = |given: &str, expected| assert_eq!(nearest(given, known.into_iter()), expected);
        check("prot", Some("port"));
        check("path", Some("paths"));
        check("orgins", Some("origins"));
        check("xy", None);
        check("certificate", None);
        check("", None);
    }
}

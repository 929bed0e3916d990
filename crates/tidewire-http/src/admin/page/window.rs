//! The window of a sorted list that a request asks for: `sort`, `offset` and `count`.
//!
//! A page that scrolls through thousands of rows requests only the rows that it shows. The server sorts all rows for each
//! request, because their values change between two requests.

use super::parameter;
use crate::admin::api::{Refusal, invalid};

/// Rows of an answer without `count`.
const COUNT_DEFAULT: usize = 100;
/// Limit of `count`: more rows than fit on any screen.
const COUNT_MAX: usize = 500;

/// A window of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window<C> {
    /// The column by which the list is sorted.
    pub(super) column: C,
    /// Whether the largest value comes first.
    pub(super) is_descending: bool,
    /// The number of rows before the window.
    offset: usize,
    /// The number of rows in the window.
    count: usize,
}

impl<C: Copy> Window<C> {
    /// The window that the parameters ask for. `columns` has the name of each column, beginning with the one that applies without
    /// `sort`; in that case the largest value comes first if `is_descending` is true.
    ///
    /// # Errors
    /// A parameter is not valid.
    pub(super) fn parse(
        parameters: &[(String, String)],
        columns: &[(&str, C)],
        is_descending: bool,
    ) -> Result<Self, Refusal> {
        let (column, is_descending) = match parameter(parameters, "sort") {
            None => (columns[0].1, is_descending),
            Some(text) => {
                let name = text.strip_prefix('-');
                let wanted = name.unwrap_or(text);
                let found = columns.iter().find(|(known, _)| *known == wanted);
                let (_, column) = found.ok_or_else(|| {
                    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
                    invalid(format!(
                        "`sort` must be one of {}, with `-` in front for the largest value first",
                        names.join(", ")
                    ))
                })?;
                (*column, name.is_some())
            }
        };
        let number = |name: &str, default: usize| match parameter(parameters, name) {
            None => Ok(default),
            Some(text) => text
                .parse()
                .map_err(|_| invalid(format!("`{name}` must be a number"))),
        };
        let count = number("count", COUNT_DEFAULT)?;
        if count == 0 || count > COUNT_MAX {
            return Err(invalid(format!("`count` must be 1 to {COUNT_MAX}")));
        }
        Ok(Self {
            column,
            is_descending,
            offset: number("offset", 0)?,
            count,
        })
    }

    /// The rows of the window, of all rows in their order.
    pub(super) fn of<'a, T>(&self, rows: &'a [T]) -> &'a [T] {
        let start = self.offset.min(rows.len());
        let end = start.saturating_add(self.count).min(rows.len());
        &rows[start..end]
    }

    /// The order of two rows, whose order in the column is `order`.
    pub(super) fn direct(&self, order: std::cmp::Ordering) -> std::cmp::Ordering {
        match self.is_descending {
            true => order.reverse(),
            false => order,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [(&str, u8); 2] = [("name", 0), ("size", 1)];

    fn window(query: &[(&str, &str)]) -> Result<Window<u8>, Refusal> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let parameters: Vec<(String, String)> = query.iter().map(owned).collect();
        Window::parse(&parameters, &COLUMNS, true)
    }

    #[test]
    fn a_window_names_its_column_and_direction() {
        let check = |query: &[(&str, &str)], expected: Option<(u8, bool)>| {
            let found = window(query).ok();
            let found = found.map(|window| (window.column, window.is_descending));
            assert_eq!(found, expected, "{query:?}");
        };
        check(&[], Some((0, true)));
        check(&[("sort", "name")], Some((0, false)));
        check(&[("sort", "-size")], Some((1, true)));
        check(&[("sort", "--size")], None);
        check(&[("sort", "age")], None);
        check(&[("count", "0")], None);
        check(&[("count", "501")], None);
        check(&[("offset", "-1")], None);
    }

    #[test]
    fn a_window_has_the_rows_that_exist() {
        let check = |offset: &str, count: &str, expected: &[u8]| {
            let found = window(&[("offset", offset), ("count", count)]).expect("a valid window");
            assert_eq!(found.of(&[1, 2, 3]), expected, "{offset} {count}");
        };
        check("0", "2", &[1, 2]);
        check("2", "2", &[3]);
        check("3", "2", &[]);
        check("18446744073709551615", "500", &[]);
    }
}

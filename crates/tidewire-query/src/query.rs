//! A query: selector, sort, limit, offset and projection, parsed from JSON text.

use tidewire_json::{JsonError, JsonLimits};

use crate::error::{QueryError, QueryErrorCode, member};
use crate::limits::QueryLimits;
use crate::number::Number;
use crate::projection::Projection;
use crate::selector;
use crate::shape::Selector;
use crate::sort::Sort;
use crate::tape::{Kind, Tape, Value};

/// A parsed query.
#[derive(Clone, Debug)]
pub struct Query {
    /// Which records it selects.
    pub selector: Selector,
    /// In which order. The id is always the last key.
    pub sort: Sort,
    /// At most this many records, after the offset. `None` for all.
    pub limit: Option<u32>,
    /// Records that are skipped.
    pub offset: u32,
    /// Which fields of them.
    pub projection: Projection,
}

impl Query {
    /// Parses a query: a JSON object with `where`, `sort`, `limit`, `offset` and `select`, each of which may be absent.
    ///
    /// # Errors
    /// The first thing found wrong, with a pointer to it.
    pub fn parse(text: &str, limits: &QueryLimits) -> Result<Self, QueryError> {
        let json_limits = JsonLimits {
            // The selector is one level below the query.
            nesting_max: limits.nesting_max + 1,
            bytes_max: limits.query_bytes_max,
            array_gap_max: 0,
        };
        if let Err(error) = tidewire_json::check(text, json_limits) {
            let (code, what) = match error {
                JsonError::Malformed { offset } => (
                    QueryErrorCode::Malformed,
                    format!("malformed JSON at byte {offset}; correct it"),
                ),
                JsonError::TooDeep => {
                    let what = format!(
                        "selector nests deeper than {}; flatten it",
                        limits.nesting_max
                    );
                    (QueryErrorCode::TooLarge, what)
                }
                JsonError::TooLarge => {
                    let what = format!(
                        "query has {} bytes; use at most {}",
                        text.len(),
                        limits.query_bytes_max
                    );
                    (QueryErrorCode::TooLarge, what)
                }
            };
            return Err(QueryError::new(code, "", what));
        }
        let mut tape = Tape::new();
        let malformed = |at: &str, what: &str| QueryError::new(QueryErrorCode::Malformed, at, what);
        let value = tape
            .read_value(text)
            .filter(Value::is_object)
            .ok_or_else(|| malformed("", "query is not an object; write {\"where\": selector}"))?;
        for (key, _) in value.members() {
            if !matches!(key, b"where" | b"sort" | b"limit" | b"offset" | b"select") {
                let key = String::from_utf8_lossy(key);
                let what = format!(
                    "query has the unknown key \"{key}\"; use where, sort, limit, offset and select"
                );
                return Err(malformed(&member("", &key), &what));
            }
        }
        let part = |key: &str| value.member(key.as_bytes());
        let everything = Tape::new()
            .read_value("{}")
            .map(|all| selector::parse(&all, "/where", limits));
        let selector = match (part("where"), everything) {
            (Some(value), _) => selector::parse(&value, "/where", limits)?,
            (None, Some(all)) => all?,
            (None, None) => return Err(malformed("/where", "selector is missing; write {}")),
        };
        Ok(Self {
            selector,
            sort: Sort::parse(part("sort").as_ref(), limits)?,
            limit: part("limit")
                .map(|limit| number(&limit, "limit", limits.limit_max))
                .transpose()?,
            offset: part("offset")
                .map_or(Ok(0), |offset| number(&offset, "offset", limits.offset_max))?,
            projection: Projection::parse(part("select").as_ref(), limits)?,
        })
    }

    /// Text that identifies the query: equal queries have the same one. It ends with the projection, which equal results may differ in.
    #[must_use]
    pub fn normal_form(&self) -> String {
        let mut out = self.core_form();
        out.push_str(" select ");
        self.projection.write(&mut out);
        out
    }

    /// The same without the projection: queries with the same one share their window.
    #[must_use]
    pub fn core_form(&self) -> String {
        let mut out = String::from("where ");
        self.selector.write(&mut out);
        out.push_str(" sort ");
        self.sort.write(&mut out);
        if let Some(limit) = self.limit {
            out.push_str(&format!(" limit {limit}"));
        }
        if self.offset > 0 {
            out.push_str(&format!(" offset {}", self.offset));
        }
        out
    }
}

fn number(value: &Value<'_>, name: &str, max: u32) -> Result<u32, QueryError> {
    let number = match value.kind() {
        Kind::Number(number) => match number.0 {
            Number::Int(int) => u32::try_from(int).ok().filter(|it| *it <= max),
            Number::Float(_) => None,
        },
        _ => None,
    };
    let refuse = || {
        QueryError::new(
            QueryErrorCode::BadLimit,
            &member("", name),
            format!("{name} is not an integer from 0 to {max}; use one"),
        )
    };
    number.ok_or_else(refuse)
}

//! Why a query is refused. `spec/query.md` lists the words of the codes.

use thiserror::Error;

/// Kind of a refusal. Clients act on its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueryErrorCode {
    /// The text is not JSON, or not of the shape of a query.
    Malformed,
    /// A limit of size, depth or number.
    TooLarge,
    /// An operator that this version does not have.
    UnknownOperator,
    /// Operators and plain keys in one object.
    MixedOperators,
    /// An operand of another type than the operator takes.
    BadOperand,
    /// A path with an empty segment, or longer than allowed.
    BadPath,
    /// A regular expression outside the dialect, or too large.
    BadRegex,
    /// The sort specification.
    BadSort,
    /// The projection.
    BadProjection,
    /// The limit or the offset.
    BadLimit,
}

impl QueryErrorCode {
    /// Every code, in the order of `spec/query.md`.
    pub const ALL: [Self; 10] = [
        Self::Malformed,
        Self::TooLarge,
        Self::UnknownOperator,
        Self::MixedOperators,
        Self::BadOperand,
        Self::BadPath,
        Self::BadRegex,
        Self::BadSort,
        Self::BadProjection,
        Self::BadLimit,
    ];

    /// The word of the contract.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::TooLarge => "too-large",
            Self::UnknownOperator => "unknown-operator",
            Self::MixedOperators => "mixed-operators",
            Self::BadOperand => "bad-operand",
            Self::BadPath => "bad-path",
            Self::BadRegex => "bad-regex",
            Self::BadSort => "bad-sort",
            Self::BadProjection => "bad-projection",
            Self::BadLimit => "bad-limit",
        }
    }
}

/// A refused query: where, why, and how to correct it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}: {what}", if at.is_empty() { "query" } else { at })]
pub struct QueryError {
    /// The kind.
    pub code: QueryErrorCode,
    /// JSON Pointer (RFC 6901) to the refused part of the query; empty for the whole.
    pub at: String,
    /// What happened, then what to do.
    pub what: String,
}

impl QueryError {
    pub(crate) fn new(code: QueryErrorCode, at: &str, what: impl Into<String>) -> Self {
        Self {
            code,
            at: at.to_owned(),
            what: what.into(),
        }
    }
}

/// The JSON Pointer of the member `key` of what `at` points to.
pub(crate) fn member(at: &str, key: &str) -> String {
    let mut pointer = String::with_capacity(at.len() + key.len() + 1);
    pointer.push_str(at);
    pointer.push('/');
    pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
    pointer
}

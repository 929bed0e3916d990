//! Messages of queries.

use super::Correlation;

/// Messages of queries. A query is JSON text as `spec/query.md` defines it.
#[derive(Clone, Debug, PartialEq)]
pub enum Query<'a> {
    /// Evaluates a query once.
    Read {
        /// The collection.
        collection: &'a str,
        /// The query.
        query: &'a str,
        /// For the answer.
        correlation: Correlation<'a>,
        /// Whether the answer has the number of all records that the query selects, regardless of its limit and offset.
        counts: bool,
        /// Whether the answer says how the records were found.
        explains: bool,
    },
    /// The answer to `Read`.
    Result {
        /// As in the request.
        correlation: Correlation<'a>,
        /// A JSON object with the records in `rows` and, if requested, their number in `count` and how they were found in `explain`.
        data: &'a str,
    },
    /// Evaluates a query, and reports the changes of its result until `Unsubscribe`.
    Subscribe {
        /// The collection.
        collection: &'a str,
        /// The query.
        query: &'a str,
        /// Identifies the subscription in the session.
        correlation: Correlation<'a>,
    },
    /// Ends a subscription.
    Unsubscribe {
        /// As in the subscription.
        correlation: Correlation<'a>,
    },
    /// The whole result of a subscription: the first one, or another one that replaces it.
    Snapshot {
        /// As in the subscription.
        correlation: Correlation<'a>,
        /// Identifies the query in later changes. Several subscriptions may have the same one.
        key: &'a str,
        /// A JSON object with the records in `rows`.
        data: &'a str,
    },
    /// Changes of the result of all subscriptions with this key, in order.
    Changed {
        /// As in `Snapshot`.
        key: &'a str,
        /// A JSON array.
        data: &'a str,
    },
    /// The query is refused, or a subscription has ended.
    Error {
        /// Why.
        reason: QueryReason,
        /// The correlation id of the request.
        correlation: Correlation<'a>,
        /// A JSON object with a text in `message` and, for [`QueryReason::Invalid`], the refused part in `at` and the word of its
        /// fault in `fault`.
        data: &'a str,
    },
}

/// Why the server refuses a query. `spec/errors.toml` has the code of each reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueryReason {
    /// It is not a query, or its collection is not a name.
    Invalid,
    /// It reads too many records, or its result is too large.
    TooLarge,
    /// The session has too many queries.
    TooMany,
    /// A store can't be read now. The same query may succeed later.
    Unavailable,
    /// The read rule of the collection depends on other records or the time, so a result can't be kept current.
    Rule,
}

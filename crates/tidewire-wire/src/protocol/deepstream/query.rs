//! Topic QUERY: records by their content. An addition of Tidewire, which clients of deepstream do not use.

use tidewire_core::message::{Query, QueryReason};

use super::action::query as action;
use super::fields::Fields;

/// The query message in `fields`, `None` for an action that no peer sends.
pub(super) fn from_wire(fields: Fields<'_>) -> Option<Query<'_>> {
    let correlation = fields.correlation;
    let data = fields.data.unwrap_or_default();
    let read = |counts| Query::Read {
        collection: fields.name(),
        query: data,
        correlation,
        counts,
        explains: false,
    };
    let error = |reason| Query::Error {
        reason,
        correlation,
        data,
    };
    Some(match fields.action {
        action::READ => read(false),
        action::READ_AND_COUNT => read(true),
        action::RESULT => Query::Result { correlation, data },
        action::SUBSCRIBE => Query::Subscribe {
            collection: fields.name(),
            query: data,
            correlation,
        },
        action::UNSUBSCRIBE => Query::Unsubscribe { correlation },
        action::SNAPSHOT => Query::Snapshot {
            correlation,
            key: fields.name(),
            data,
        },
        action::CHANGED => Query::Changed {
            key: fields.name(),
            data,
        },
        action::INVALID_QUERY => error(QueryReason::Invalid),
        action::QUERY_TOO_LARGE => error(QueryReason::TooLarge),
        action::TOO_MANY_QUERIES => error(QueryReason::TooMany),
        action::QUERY_UNAVAILABLE => error(QueryReason::Unavailable),
        action::QUERY_RULE => error(QueryReason::Rule),
        _ => return None,
    })
}

pub(super) fn to_wire<'m>(message: &'m Query<'_>) -> Fields<'m> {
    match *message {
        Query::Read {
            collection,
            query,
            correlation,
            counts,
            ..
        } => Fields {
            data: Some(query),
            correlation,
            ..Fields::named(
                match counts {
                    true => action::READ_AND_COUNT,
                    false => action::READ,
                },
                collection,
            )
        },
        Query::Result { correlation, data } => Fields {
            data: Some(data),
            correlation,
            ..Fields::new(action::RESULT)
        },
        Query::Subscribe {
            collection,
            query,
            correlation,
        } => Fields {
            data: Some(query),
            correlation,
            ..Fields::named(action::SUBSCRIBE, collection)
        },
        Query::Unsubscribe { correlation } => Fields {
            correlation,
            ..Fields::new(action::UNSUBSCRIBE)
        },
        Query::Snapshot {
            correlation,
            key,
            data,
        } => Fields {
            data: Some(data),
            correlation,
            ..Fields::named(action::SNAPSHOT, key)
        },
        Query::Changed { key, data } => Fields {
            data: Some(data),
            ..Fields::named(action::CHANGED, key)
        },
        Query::Error {
            reason,
            correlation,
            data,
        } => Fields {
            data: Some(data),
            correlation,
            is_error: Some(true),
            ..Fields::new(match reason {
                QueryReason::Invalid => action::INVALID_QUERY,
                QueryReason::TooLarge => action::QUERY_TOO_LARGE,
                QueryReason::TooMany => action::TOO_MANY_QUERIES,
                QueryReason::Unavailable => action::QUERY_UNAVAILABLE,
                QueryReason::Rule => action::QUERY_RULE,
            })
        },
    }
}

//! Messages of presence.

use super::{Correlation, Names, Refusal};

/// Messages of presence.
#[derive(Clone, Debug, PartialEq)]
pub enum Presence<'a> {
    /// Who is online?
    QueryAll,
    /// The users, without the one who asked.
    QueryAllResponse {
        /// User ids.
        names: Names<'a>,
    },
    /// Are these online?
    Query {
        /// User ids.
        names: Names<'a>,
        /// For the answer.
        correlation: Correlation<'a>,
    },
    /// The answer to `Query`.
    QueryResponse {
        /// As in the request.
        correlation: Correlation<'a>,
        /// A JSON object of booleans by user id.
        data: &'a str,
    },
    /// Subscribe to the presence of these users, to be acknowledged.
    Subscribe {
        /// User ids.
        names: Names<'a>,
        /// For the ack.
        correlation: Correlation<'a>,
    },
    /// No longer, to be acknowledged.
    Unsubscribe {
        /// User ids.
        names: Names<'a>,
        /// For the ack.
        correlation: Correlation<'a>,
    },
    /// Subscribe to the presence of all users, to be acknowledged.
    SubscribeAll,
    /// No longer, to be acknowledged.
    UnsubscribeAll,
    /// Acknowledges one of these.
    Ack {
        /// Which.
        action: PresenceAction,
        /// As in the request.
        correlation: Correlation<'a>,
    },
    /// A user's first session opened or last session ended.
    Changed {
        /// The user id.
        name: &'a str,
        /// Whether the user is online now.
        online: bool,
        /// For those who subscribed to all, else for those who subscribed to this user.
        all: bool,
    },
    /// A refused request.
    Error(Refusal<'a, PresenceAction>),
}

/// The actions of presence that an ack or an error answer can refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PresenceAction {
    /// Query all.
    QueryAll,
    /// Query.
    Query,
    /// Subscribe.
    Subscribe,
    /// Unsubscribe.
    Unsubscribe,
    /// Subscribe all.
    SubscribeAll,
    /// Unsubscribe all.
    UnsubscribeAll,
}

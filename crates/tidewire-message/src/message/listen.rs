//! Messages of listening, for events and for records.

/// Listening, for events and for records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen<'a> {
    /// A provider registers a pattern.
    Listen {
        /// A JavaScript regular expression, matched anywhere in the name.
        pattern: &'a str,
    },
    /// A provider takes its pattern back.
    Unlisten {
        /// The pattern.
        pattern: &'a str,
    },
    /// Acknowledges `Listen`.
    ListenAck {
        /// As in the request.
        pattern: &'a str,
    },
    /// Acknowledges `Unlisten`.
    UnlistenAck {
        /// As in the request.
        pattern: &'a str,
    },
    /// The provider will provide the name.
    Accept {
        /// The provider's pattern.
        pattern: &'a str,
        /// The name.
        subscription: &'a str,
    },
    /// The provider will not.
    Reject {
        /// The provider's pattern.
        pattern: &'a str,
        /// The name.
        subscription: &'a str,
    },
    /// Asks a provider for a name that a client subscribed to.
    Found {
        /// The provider's pattern.
        pattern: &'a str,
        /// The name.
        subscription: &'a str,
    },
    /// The last subscriber of a provided name has left.
    Removed {
        /// The provider's pattern.
        pattern: &'a str,
        /// The name.
        subscription: &'a str,
    },
    /// The provider did not answer in time; the server asks another one.
    ResponseTimeout {
        /// The name.
        subscription: &'a str,
    },
    /// The pattern is not a regular expression that this server can run in linear time.
    InvalidPattern {
        /// The pattern.
        pattern: &'a str,
    },
    /// The session has that pattern already.
    AlreadyListening {
        /// The pattern.
        pattern: &'a str,
    },
}

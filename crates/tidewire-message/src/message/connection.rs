//! Messages before and of the login, and heartbeats.

/// Messages before login, and heartbeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection<'a> {
    /// Proof of life, to be answered with `Pong`.
    Ping,
    /// The answer to `Ping`.
    Pong,
    /// The peer introduces itself.
    Challenge {
        /// The address that the application was configured with.
        url: Option<&'a str>,
        /// Version of the protocol.
        protocol_version: Option<&'a str>,
        /// Version of the peer's library.
        sdk_version: Option<&'a str>,
        /// Kind of the peer's library.
        sdk_type: Option<&'a str>,
        /// Whether the peer reads several messages in one frame.
        batches: bool,
        /// Whether the peer coalesces: after it was slow it takes the newest whole value of a record in place of
        /// the steps to it, and the number of the events that it missed.
        coalesces: bool,
    },
    /// The peer may authenticate next.
    Accept,
    /// The same, with the limits of its messages: for peers that coalesce. Other peers do not know this message.
    AcceptWithin {
        /// A JSON object: `{"messageBytesMax":…}`.
        limits: &'a str,
    },
    /// The peer must go away for good.
    Reject,
    /// The peer must connect elsewhere.
    Redirect {
        /// Where.
        url: &'a str,
    },
    /// No login within the time allowed; a close follows.
    AuthenticationTimeout,
    /// A message that has no place before the challenge.
    InvalidMessage,
}

impl Connection<'_> {
    /// The introduction of a peer that gives no data about itself, except possibly that it coalesces.
    #[must_use]
    pub const fn challenge(coalesces: bool) -> Self {
        Self::Challenge {
            url: None,
            protocol_version: None,
            sdk_version: None,
            sdk_type: None,
            batches: false,
            coalesces,
        }
    }
}

/// Messages of the login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth<'a> {
    /// Credentials, a JSON object.
    Request {
        /// The object given to `login()`.
        data: Option<&'a str>,
    },
    /// Another user for an open session, or the same one with other credentials. In a session that is not open it is the same as `Request`.
    Change {
        /// The credentials, a JSON object. Without them the user logs out, and the session has the user of an anonymous login.
        data: Option<&'a str>,
    },
    /// The session is open.
    Successful {
        /// Data of the auth handler for the client.
        data: Option<&'a str>,
    },
    /// Refused; another attempt may follow.
    Unsuccessful {
        /// The reason.
        data: Option<&'a str>,
    },
    /// Refused once too often; a close follows.
    TooManyAttempts,
    /// A message that has no place before the login.
    InvalidMessage,
    /// A login that can't be read; a close follows.
    InvalidMessageData,
}

//! Publications of events, and the names by which other shards say which of them they want.

use crate::message::RareAttributes;
use crate::text::{Name, Payload};

/// The kind of name that interest is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum InterestTopic {
    /// Subscribers of an event.
    Event,
    /// Subscribers of all events whose names match a pattern, which is the name.
    EventPattern,
    /// Sessions that watch one user.
    User,
    /// Sessions that watch all users; the name is empty.
    Everyone,
}

/// A publication, independent of the text that it was decoded from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedPublication {
    /// The event.
    pub name: Name,
    /// Its data.
    pub data: Option<Payload>,
    /// As in [`crate::message::Publication`].
    pub rare: Option<Box<RareAttributes>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owned_publication_stays_small() {
        assert_eq!(size_of::<OwnedPublication>(), 40);
    }
}

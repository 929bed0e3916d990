//! Publications of events, and the names by which other shards say which of them they want.

use std::sync::Arc;

use crate::attachments::AttachedPayload;
use crate::binary::EventPayload;
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
    /// Its data, as in [`crate::message::Publication`].
    pub data: Option<Payload>,
    /// As in [`crate::message::Publication`].
    pub rare: Option<Box<RareAttributes>>,
}

impl OwnedPublication {
    /// Its payload, shared; `None` if it is undefined.
    pub fn payload(&self) -> Option<EventPayload> {
        let rare = self.rare.as_ref();
        if let Some(binary) = rare.and_then(|rare| rare.binary.clone()) {
            return Some(EventPayload::Binary(binary));
        }
        let data = self.data.clone()?;
        Some(match rare.and_then(|rare| rare.attachments.clone()) {
            None => EventPayload::Json(data),
            Some(attachments) => {
                EventPayload::Attached(Arc::new(AttachedPayload { data, attachments }))
            }
        })
    }

    /// Bytes of memory that its payload takes.
    pub fn payload_size(&self) -> usize {
        let data_bytes = self.data.as_ref().map_or(0, Payload::len);
        data_bytes + RareAttributes::payload_size(self.rare.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owned_publication_stays_small() {
        assert_eq!(size_of::<OwnedPublication>(), 40);
    }
}

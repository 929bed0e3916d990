//! One publication of an event.

use crate::attachments::Attachments;
use crate::binary::{Binary, EventPayload};
use crate::trace::Trace;

/// An event on its way from a client to the subscribers, borrowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication<'a> {
    /// The event.
    pub name: &'a str,
    /// Any JSON value, or undefined. Also undefined if the payload is [`Publication::binary`], so that rules see bytes as undefined. With
    /// [`Publication::attachments`] it has their placeholders, which rules see.
    pub data: Option<&'a str>,
    /// The attributes that nearly no publication has, boxed so that they cost all others one word.
    pub rare: Option<Box<RareAttributes>>,
}

impl<'a> Publication<'a> {
    /// A publication with its rare attributes, each of which may be absent.
    #[must_use]
    pub fn new(
        name: &'a str,
        data: Option<&'a str>,
        offset: Option<u64>,
        trace: Option<Trace>,
    ) -> Self {
        let has_any = offset.is_some() || trace.is_some();
        let rare = has_any.then(|| {
            Box::new(RareAttributes {
                offset,
                trace,
                ..RareAttributes::default()
            })
        });
        Self { name, data, rare }
    }

    /// A publication of an event with history.
    #[must_use]
    pub fn numbered(name: &'a str, payload: Option<&'a EventPayload>, offset: u64) -> Self {
        let (data, binary, attachments) = match payload {
            None => (None, None, None),
            Some(EventPayload::Json(data)) => (Some(data.as_str()), None, None),
            Some(EventPayload::Binary(binary)) => (None, Some(binary.clone()), None),
            Some(EventPayload::Attached(attached)) => {
                let attachments = attached.attachments.clone();
                (Some(attached.data.as_str()), None, Some(attachments))
            }
        };
        Self::new(name, data, Some(offset), None)
            .with_binary(binary)
            .with_attachments(attachments)
    }

    /// The same publication with bytes as its payload, if there are some.
    #[must_use]
    pub fn with_binary(mut self, binary: Option<Binary>) -> Self {
        if binary.is_some() {
            self.rare.get_or_insert_default().binary = binary;
        }
        self
    }

    /// The same publication with attachments, if there are some.
    #[must_use]
    pub fn with_attachments(mut self, attachments: Option<Attachments>) -> Self {
        if attachments.is_some() {
            self.rare.get_or_insert_default().attachments = attachments;
        }
        self
    }

    /// The same publication at another position in a trace.
    #[must_use]
    pub fn with_trace(mut self, trace: Trace) -> Self {
        self.rare.get_or_insert_default().trace = Some(trace);
        self
    }

    /// Its number among all publications of an event with history.
    #[must_use]
    pub fn offset(&self) -> Option<u64> {
        self.rare.as_ref()?.offset
    }

    /// Its position in a trace.
    #[must_use]
    pub fn trace(&self) -> Option<&Trace> {
        self.rare.as_ref()?.trace.as_ref()
    }

    /// The payload, if it is bytes.
    #[must_use]
    pub fn binary(&self) -> Option<&Binary> {
        self.rare.as_ref()?.binary.as_ref()
    }

    /// The attachments of its data.
    #[must_use]
    pub fn attachments(&self) -> Option<&Attachments> {
        self.rare.as_ref()?.attachments.as_ref()
    }

    /// Bytes of its data, and of its bytes or attachments.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        let binary = self.binary().map_or(0, |binary| binary.bytes().len());
        let attachments = self.attachments().map_or(0, Attachments::bytes);
        self.data.map_or(0, str::len) + binary + attachments
    }

    /// Whether the parts of the payload fit each other, if its data are checked JSON: bytes have a content type and no data, and attachments
    /// have data whose placeholders select them.
    #[must_use]
    pub fn has_consistent_payload(&self) -> bool {
        match (self.binary(), self.attachments()) {
            (None, None) => true,
            (Some(binary), None) => self.data.is_none() && binary.has_valid_type(),
            (None, Some(attachments)) => self.data.is_some_and(|data| attachments.fit(data)),
            (Some(_), Some(_)) => false,
        }
    }
}

/// Attributes that nearly no publication has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RareAttributes {
    /// Its number among all publications of an event with history. Only the server assigns it.
    pub offset: Option<u64>,
    /// Its position in a trace.
    pub trace: Option<Trace>,
    /// The payload, if it is bytes.
    pub binary: Option<Binary>,
    /// The attachments, if the payload is JSON with attachments.
    pub attachments: Option<Attachments>,
}

impl RareAttributes {
    /// The attributes that a client may set; `None` if all of them are absent.
    #[must_use]
    pub fn of_client(&self) -> Option<Box<Self>> {
        let kept = Self {
            offset: None,
            ..self.clone()
        };
        (kept != Self::default()).then(|| Box::new(kept))
    }

    /// Bytes of memory that the payload takes here.
    #[must_use]
    pub fn payload_size(rare: Option<&Self>) -> usize {
        let Some(rare) = rare else {
            return 0;
        };
        let binary = rare.binary.as_ref().map_or(0, Binary::size);
        binary + rare.attachments.as_ref().map_or(0, Attachments::size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_publication_stays_small() {
        assert_eq!(size_of::<Publication<'_>>(), 40);
    }
}

//! One publication of an event.

use crate::binary::{Binary, EventPayload};
use crate::trace::Trace;

/// An event on its way from a client to the subscribers, borrowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication<'a> {
    /// The event.
    pub name: &'a str,
    /// Any JSON value, or undefined. Also undefined if the payload is [`Publication::binary`], so that rules see bytes as undefined.
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
                binary: None,
            })
        });
        Self { name, data, rare }
    }

    /// A publication of an event with history.
    #[must_use]
    pub fn numbered(name: &'a str, payload: Option<&'a EventPayload>, offset: u64) -> Self {
        let (data, binary) = match payload {
            None => (None, None),
            Some(EventPayload::Json(data)) => (Some(data.as_str()), None),
            Some(EventPayload::Binary(binary)) => (None, Some(binary.clone())),
        };
        Self::new(name, data, Some(offset), None).with_binary(binary)
    }

    /// The same publication with bytes as its payload, if there are some.
    #[must_use]
    pub fn with_binary(mut self, binary: Option<Binary>) -> Self {
        if binary.is_some() {
            self.rare.get_or_insert_default().binary = binary;
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
        let binary = rare.and_then(|rare| rare.binary.as_ref());
        binary.map_or(0, Binary::size)
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

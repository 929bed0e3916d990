//! One publication of an event.

use crate::trace::Trace;

/// An event on its way from a client to the subscribers, borrowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication<'a> {
    /// The event.
    pub name: &'a str,
    /// Any JSON value, or undefined.
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
        let rare = RareAttributes::boxed(offset, trace);
        Self { name, data, rare }
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
}

/// Attributes that nearly no publication has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RareAttributes {
    /// Its number among all publications of an event with history. Only the server assigns it.
    pub offset: Option<u64>,
    /// Its position in a trace.
    pub trace: Option<Trace>,
}

impl RareAttributes {
    /// The attributes for a publication; `None` if all are absent.
    #[must_use]
    pub fn boxed(offset: Option<u64>, trace: Option<Trace>) -> Option<Box<Self>> {
        let has_any = offset.is_some() || trace.is_some();
        has_any.then(|| Box::new(Self { offset, trace }))
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

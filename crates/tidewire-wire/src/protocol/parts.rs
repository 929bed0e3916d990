//! A message that arrives in several payloads: a text, and the attachments that it has announced. The transport keeps the parts until the
//! last payload arrives, and counts their memory.

use tidewire_core::attachments::Attachment;

/// Bytes of memory of the block that keeps the parts, and of each attachment in addition to its content.
const BLOCK_BYTES: usize = 96;

/// The payloads of an unfinished message. One word without such a message.
#[derive(Debug, Default)]
pub struct Parts(Option<Box<Kept>>);

#[derive(Debug)]
struct Kept {
    text: Box<str>,
    attachments: Vec<Attachment>,
    bytes: usize,
}

/// The effect of a payload on the parts of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// It begins a message, which attachments complete.
    Text(&'a str),
    /// It is an attachment, and others follow.
    Attachment(&'a [u8]),
    /// It completes the message, which is then a message for the engine.
    Last,
}

impl Parts {
    /// The text of the unfinished message.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        self.0.as_ref().map(|kept| &*kept.text)
    }

    /// The attachments that have arrived.
    #[must_use]
    pub fn attachments(&self) -> &[Attachment] {
        self.0.as_ref().map_or(&[], |kept| &kept.attachments)
    }

    /// Bytes of the payloads that have arrived.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |kept| kept.bytes)
    }

    /// Bytes of memory that they take.
    #[must_use]
    pub fn size(&self) -> usize {
        let blocks = self.0.as_ref().map_or(0, |kept| 1 + kept.attachments.len());
        self.bytes() + blocks * BLOCK_BYTES
    }

    /// Applies a payload that was taken.
    pub(super) fn apply(&mut self, part: Part<'_>) {
        match (part, &mut self.0) {
            (Part::Text(text), kept) => {
                *kept = Some(Box::new(Kept {
                    text: text.into(),
                    attachments: Vec::new(),
                    bytes: text.len(),
                }));
            }
            (Part::Attachment(bytes), Some(kept)) => {
                kept.bytes += bytes.len();
                kept.attachments.push(bytes.into());
            }
            (Part::Attachment(_), None) => debug_assert!(false, "a text precedes attachments"),
            (Part::Last, kept) => *kept = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_kept_and_counted_until_the_last_one() {
        assert_eq!(size_of::<Parts>(), size_of::<usize>());
        let mut parts = Parts::default();
        assert_eq!((parts.text(), parts.bytes(), parts.size()), (None, 0, 0));
        parts.apply(Part::Text("text"));
        parts.apply(Part::Attachment(&[1, 2, 3]));
        parts.apply(Part::Attachment(&[]));
        assert_eq!((parts.text(), parts.bytes()), (Some("text"), 7));
        assert_eq!(
            parts.attachments(),
            [Attachment::from([1, 2, 3]), Attachment::from([])]
        );
        assert_eq!(parts.size(), 7 + 3 * BLOCK_BYTES);
        parts.apply(Part::Last);
        assert_eq!((parts.attachments().len(), parts.size()), (0, 0));
    }
}

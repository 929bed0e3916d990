//! Lets the generator count deliveries faster than any server sends them. In a fan-out all frames are equal except
//! for the payload, so a frame that equals the last delivery around its payload is the same delivery with that
//! payload.
//!
//! The template comes from a frame that went through codec and driver. Every frame that differs, also in length, goes
//! through them again.

use std::ops::Range;

use crate::driver::Incoming;

/// The last delivery's frame.
#[derive(Debug, Default)]
pub struct Template {
    frame: Vec<u8>,
    /// The position of the payload in the frame.
    payload: Range<usize>,
    /// The name, if the protocol sends it.
    name: Option<String>,
}

impl Template {
    /// The delivery at the start of `input` and the length of its frame, if it equals the last one.
    #[must_use]
    pub fn delivery<'a>(&'a self, input: &'a [u8]) -> Option<(Incoming<'a>, usize)> {
        let Range { start, end } = self.payload;
        let frame = input.get(..self.frame.len())?;
        let is_like = !frame.is_empty()
            && frame[..start] == self.frame[..start]
            && frame[end..] == self.frame[end..];
        if !is_like {
            return None;
        }
        let delivery = Incoming::Delivery {
            name: self.name.as_deref(),
            payload: std::str::from_utf8(&frame[start..end]).ok()?,
        };
        Some((delivery, frame.len()))
    }

    /// Forgets the last delivery and stores the one found in `message`, the content of a frame. Call
    /// [`Template::keep`] afterwards if the delivery was the only content of the frame.
    pub fn note(&mut self, message: &[u8], incoming: Incoming<'_>) {
        self.frame.clear();
        self.payload = 0..0;
        if let Incoming::Delivery { name, payload } = incoming
            && let Some(start) = (payload.as_ptr() as usize).checked_sub(message.as_ptr() as usize)
            && start + payload.len() <= message.len()
        {
            self.payload = start..start + payload.len();
            if self.name.as_deref() != name {
                self.name = name.map(str::to_owned);
            }
        }
    }

    /// Stores the frame whose header has `header_bytes` and whose content was passed to [`Template::note`]. Without a
    /// payload in it nothing is stored.
    pub fn keep(&mut self, frame: &[u8], header_bytes: usize) {
        if !self.payload.is_empty() {
            self.frame.extend_from_slice(frame);
            self.payload.start += header_bytes;
            self.payload.end += header_bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A template of a frame whose header is `<`.
    fn learned(frame: &[u8], payload: Range<usize>) -> Template {
        let mut template = Template::default();
        let payload = std::str::from_utf8(&frame[payload]).unwrap();
        let name = Some("n");
        template.note(&frame[1..], Incoming::Delivery { name, payload });
        template.keep(frame, 1);
        template
    }

    #[test]
    fn only_frames_that_differ_in_the_payload_alone_are_alike() {
        let template = learned(b"<head>123<tail>", 6..9);
        let check = |input: &[u8], expected: Option<&str>| {
            let found = template.delivery(input).map(|(incoming, bytes)| {
                assert_eq!(bytes, 15);
                incoming
            });
            let delivery = |payload| Incoming::Delivery {
                name: Some("n"),
                payload,
            };
            assert_eq!(found, expected.map(delivery), "{input:?}");
        };
        check(b"<head>123<tail>", Some("123"));
        check(b"<head>456<tail>more", Some("456"));
        check(b"<head>456<tail", None);
        check(b"<hEad>456<tail>", None);
        check(b"<head>4567<tail>", None);
        check(b"<head>456<taiL>", None);
        check(b"<head>\xff56<tail>", None);
        check(b"", None);
    }

    #[test]
    fn foreign_text_does_not_change_a_template() {
        let elsewhere = Incoming::Delivery {
            name: None,
            payload: "elsewhere",
        };
        for incoming in [elsewhere, Incoming::Subscribed] {
            let mut template = learned(b"<1>", 1..2);
            template.note(b"1>", incoming);
            template.keep(b"<1>", 1);
            assert_eq!(template.delivery(b"<1>"), None);
        }
    }
}

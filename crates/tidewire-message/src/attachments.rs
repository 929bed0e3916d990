//! Binary values of an event whose other data are JSON. In the JSON, a placeholder represents each of them: `{"_placeholder":true,"num":0}`.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tidewire_json as json;

use crate::text::Payload;

/// Attachments of an event. The parsers of Socket.IO's clients refuse more.
pub const ATTACHMENTS_MAX: usize = 10;
/// Bytes of memory that each attachment takes in addition to its content, and the list in addition to its attachments.
const BLOCK_BYTES: usize = 48;

/// The bytes of one attachment.
pub type Attachment = Arc<[u8]>;

/// At least one attachment, by the numbers in their placeholders. Sharing them does not copy them.
#[derive(Clone, PartialEq, Eq)]
pub struct Attachments(Arc<[Attachment]>);

impl Attachments {
    /// `None` for an empty list. The engine checks their number.
    #[must_use]
    pub fn new<T: Into<Attachment>>(attachments: impl IntoIterator<Item = T>) -> Option<Self> {
        let attachments: Arc<[Attachment]> = attachments.into_iter().map(Into::into).collect();
        (!attachments.is_empty()).then_some(Self(attachments))
    }

    /// Their number.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The bytes of each.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.0.iter().map(|attachment| &**attachment)
    }

    /// The bytes of all.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.iter().map(<[u8]>::len).sum()
    }

    /// Bytes of memory that they take.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes() + (1 + self.count()) * BLOCK_BYTES
    }

    /// Whether there are not too many, and each placeholder of a checked JSON text selects one of them.
    #[must_use]
    pub fn fit(&self, data: &str) -> bool {
        self.count() <= ATTACHMENTS_MAX && json::has_placeholders(data, self.count())
    }

    /// Appends a JSON array of base64 texts.
    pub fn write_json(&self, text: &mut String) {
        for (index, attachment) in self.iter().enumerate() {
            text.push_str(if index == 0 { "[\"" } else { ",\"" });
            STANDARD.encode_string(attachment, text);
            text.push('"');
        }
        text.push(']');
    }

    /// Reads such an array. `None` for another checked JSON text, for an empty array, and for one with too many texts.
    #[must_use]
    pub fn of_json(text: &str) -> Option<Self> {
        if !text.starts_with('[') {
            return None;
        }
        let texts = json::entries(text).take(ATTACHMENTS_MAX + 1);
        let text = |literal| json::Literal::scan(literal)?.text();
        let bytes = texts.map(|(_, literal)| STANDARD.decode(&*text(literal)?).ok());
        let attachments: Vec<Vec<u8>> = bytes.collect::<Option<_>>()?;
        let found = Self::new(attachments)?;
        (found.count() <= ATTACHMENTS_MAX).then_some(found)
    }
}

impl fmt::Debug for Attachments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lengths: Vec<usize> = self.iter().map(<[u8]>::len).collect();
        write!(f, "attachments of {lengths:?} bytes")
    }
}

/// JSON with attachments, as a history keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachedPayload {
    /// JSON text with placeholders.
    pub data: Payload,
    /// The attachments.
    pub attachments: Attachments,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attachments(all: &[&[u8]]) -> Attachments {
        Attachments::new(all.iter().copied()).expect("some")
    }

    #[test]
    fn a_list_of_base64_texts_has_the_bytes() {
        for (all, expected) in [
            (&[&b"\0\xff"[..]][..], r#"["AP8="]"#),
            (&[&b""[..], b"a", b""][..], r#"["","YQ==",""]"#),
        ] {
            let mut text = String::new();
            attachments(all).write_json(&mut text);
            assert_eq!(text, expected);
            assert_eq!(Attachments::of_json(&text), Some(attachments(all)));
        }
        assert_eq!(
            Attachments::of_json(r#"[ "AP\u0038=" ]"#),
            Some(attachments(&[b"\0\xff"]))
        );
        let list = |count| format!("[{}]", vec!["\"\""; count].join(","));
        assert!(Attachments::of_json(&list(ATTACHMENTS_MAX)).is_some());
        for text in [
            "[]",
            "{}",
            "\"AP8=\"",
            "[1]",
            "[\"AP8\"]",
            "[\"\",null]",
            "[[]]",
        ] {
            assert_eq!(Attachments::of_json(text), None, "{text}");
        }
        assert_eq!(Attachments::of_json(&list(ATTACHMENTS_MAX + 1)), None);
        assert_eq!(Attachments::of_json(&list(100_000)), None);
    }

    #[test]
    fn attachments_fit_a_text_whose_placeholders_select_them() {
        let two = attachments(&[b"a", b"b"]);
        assert!(two.fit("[]"));
        assert!(two.fit(r#"{"_placeholder":true,"num":1}"#));
        assert!(!two.fit(r#"{"_placeholder":true,"num":2}"#));
        let many = |count| Attachments::new(vec![*b"x"; count]).expect("some");
        assert!(many(ATTACHMENTS_MAX).fit("1"));
        assert!(!many(ATTACHMENTS_MAX + 1).fit("1"));
        assert!(Attachments::new(Vec::<Attachment>::new()).is_none());
    }

    #[test]
    fn their_memory_counts_with_each_block() {
        let found = attachments(&[b"abc", b""]);
        assert_eq!((found.count(), found.bytes()), (2, 3));
        assert!(found.size() >= 3 + 2 * (size_of::<Attachment>() + 16));
    }
}

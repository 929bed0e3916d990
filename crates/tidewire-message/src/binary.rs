//! The payload of an event that is not JSON alone: bytes with a content type, or JSON with attachments. Only events have such payloads.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tidewire_json as json;

use crate::attachments::{AttachedPayload, Attachments};
use crate::text::Payload;

/// The content type of bytes whose sender has given none.
pub const UNKNOWN_TYPE: &str = "application/octet-stream";
/// Limit of a content type, in bytes.
pub const CONTENT_TYPE_BYTES_MAX: usize = 255;
/// Bytes of memory that bytes take in addition to their content: three blocks with their headers.
const BLOCKS_BYTES: usize = 96;

/// Bytes with a content type. Sharing them does not copy them.
#[derive(Clone, PartialEq, Eq)]
pub struct Binary(Arc<Content>);

#[derive(PartialEq, Eq)]
struct Content {
    content_type: Box<str>,
    bytes: Box<[u8]>,
}

impl Binary {
    /// Copies the bytes. The engine checks the content type of a client.
    #[must_use]
    pub fn new(content_type: Option<&str>, bytes: impl Into<Box<[u8]>>) -> Self {
        Self(Arc::new(Content {
            content_type: content_type.unwrap_or(UNKNOWN_TYPE).into(),
            bytes: bytes.into(),
        }))
    }

    /// The content type, such as `image/png`.
    #[must_use]
    pub fn content_type(&self) -> &str {
        &self.0.content_type
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0.bytes
    }

    /// Bytes of memory that it takes.
    #[must_use]
    pub fn size(&self) -> usize {
        BLOCKS_BYTES + self.0.content_type.len() + self.0.bytes.len()
    }

    /// The bytes as base64, for places that have only text.
    #[must_use]
    pub fn base64(&self) -> String {
        STANDARD.encode(self.bytes())
    }

    /// Whether the content type is short printable ASCII with a slash, so that it can be written wherever a content type can.
    #[must_use]
    pub fn has_valid_type(&self) -> bool {
        let content_type = self.content_type();
        content_type.len() <= CONTENT_TYPE_BYTES_MAX
            && content_type.contains('/')
            && content_type.bytes().all(|byte| matches!(byte, b' '..=b'~'))
    }
}

/// The bytes of a base64 text with padding; `None` for another text.
#[must_use]
pub fn from_base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

impl fmt::Debug for Binary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of {}", self.bytes().len(), self.content_type())
    }
}

/// The payload of an event, if it is not undefined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventPayload {
    /// JSON text.
    Json(Payload),
    /// Bytes with a content type.
    Binary(Binary),
    /// JSON text with attachments. Shared as a whole, because an event of a history must not become larger for it.
    Attached(Arc<AttachedPayload>),
}

impl EventPayload {
    /// Bytes of memory that it takes, without the header of a text.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::Json(data) => data.len(),
            Self::Binary(binary) => binary.size(),
            Self::Attached(attached) => {
                BLOCKS_BYTES + attached.data.len() + attached.attachments.size()
            }
        }
    }

    /// Appends the payload as members of a JSON object, behind at least one other member.
    pub fn push_members(&self, text: &mut String) {
        match self {
            Self::Json(data) => push_data(data, text),
            Self::Binary(binary) => {
                text.push_str(",\"contentType\":");
                json::string(binary.content_type(), text);
                text.push_str(",\"base64\":\"");
                text.push_str(&binary.base64());
                text.push('"');
            }
            Self::Attached(attached) => {
                push_data(&attached.data, text);
                text.push_str(",\"attachments\":");
                attached.attachments.write_json(text);
            }
        }
    }

    /// Reads the members of a checked JSON object. `None` if they are not a payload with bytes or attachments.
    #[must_use]
    pub fn of_members(text: &str) -> Option<Self> {
        let (mut content_type, mut bytes, mut data, mut attachments) = (None, None, None, None);
        for (key, value) in json::entries(text) {
            let content = || json::Literal::scan(value)?.text();
            match &*key?.text()? {
                "contentType" => content_type = content(),
                "base64" => bytes = from_base64(&content()?),
                "data" => data = Some(Payload::from_checked(value)),
                "attachments" => attachments = Some(Attachments::of_json(value)?),
                _ => {}
            }
        }
        match (data, attachments) {
            (Some(data), Some(attachments)) => {
                let attached = AttachedPayload { data, attachments };
                Some(Self::Attached(Arc::new(attached)))
            }
            (None, None) => Some(Self::Binary(Binary::new(Some(&content_type?), bytes?))),
            _ => None,
        }
    }
}

fn push_data(data: &Payload, text: &mut String) {
    text.push_str(",\"data\":");
    text.push_str(data.as_str());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_of_a_history_stays_small() {
        assert_eq!(size_of::<Option<EventPayload>>(), 24);
    }
}

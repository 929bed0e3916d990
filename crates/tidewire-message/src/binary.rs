//! The payload of an event that is not JSON: bytes with a content type. Only events have such payloads.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

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
}

impl EventPayload {
    /// Bytes of memory that it takes, without the header of a text.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::Json(data) => data.len(),
            Self::Binary(binary) => binary.size(),
        }
    }
}

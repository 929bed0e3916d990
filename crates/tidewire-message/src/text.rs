//! The owned texts that outlive a turn: names and payloads.
//!
//! Both are cheap to clone. They are made once, where a message is kept (mailbox, record, store); until then
//! names and payloads are borrowed from the shard's read buffer.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// The first character of the names of the server's own records, such as the records of its users (`spec/users.md`). No client and no
/// rule can use such a name.
pub const RESERVED: char = '\u{1}';

/// The address of a record, event, rpc or user. Any non-empty UTF-8 text within the limit `name_bytes_max`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl std::ops::Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// JSON text that was checked where it entered: valid UTF-8, well formed, within the limits of size and depth.
/// Sharing it does not copy it.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload(Arc<str>);

impl Payload {
    /// Copies text that the caller has checked with `tidewire_json::check`, or that the server wrote itself.
    #[must_use]
    pub fn from_checked(text: &str) -> Self {
        Self(text.into())
    }

    /// The JSON text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the text is empty, which checked JSON never is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<String> for Payload {
    /// Copies text that is known to be checked JSON; shared afterwards, it is not copied again.
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

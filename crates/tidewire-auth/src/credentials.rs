//! The credentials of a login over HTTP, as the authentication chain reads them.

use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The login object, in the form that a client passes to `login()`.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials(String);

impl Credentials {
    /// Empty credentials: enough if the chain accepts every session.
    #[must_use]
    pub fn none() -> Self {
        Self("{}".into())
    }

    /// Credentials that consist of a token.
    #[must_use]
    pub fn token(token: &str) -> Self {
        Self(json!({ "token": token }).to_string())
    }

    /// Credentials from a login object.
    #[must_use]
    pub fn object(login: &Value) -> Self {
        Self(login.to_string())
    }

    /// Credentials from the login object of a request.
    #[must_use]
    pub fn raw(login: &RawValue) -> Self {
        Self(login.get().to_owned())
    }

    /// Credentials from a text of [`Self::as_json`].
    pub(crate) fn from_json(login: String) -> Self {
        Self(login)
    }

    /// The JSON text.
    #[must_use]
    pub fn as_json(&self) -> &str {
        &self.0
    }
}

/// Omits the value, which must never appear in a log.
impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials(..)")
    }
}

//! What a login over HTTP gives to the auth chain.

use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The object of a login, the same that a client gives to `login()`.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials(String);

impl Credentials {
    /// None: enough where the chain lets every session in.
    #[must_use]
    pub fn none() -> Self {
        Self("{}".into())
    }

    /// A token.
    #[must_use]
    pub fn token(token: &str) -> Self {
        Self(json!({ "token": token }).to_string())
    }

    /// The object of a login.
    #[must_use]
    pub fn object(login: &Value) -> Self {
        Self(login.to_string())
    }

    /// The object of a login as a request has it.
    #[must_use]
    pub fn raw(login: &RawValue) -> Self {
        Self(login.get().to_owned())
    }

    /// The JSON text.
    #[must_use]
    pub fn as_json(&self) -> &str {
        &self.0
    }
}

/// Without their value: it must not end in a log.
impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials(..)")
    }
}

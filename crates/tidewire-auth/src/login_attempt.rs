//! A login attempt as the chain sees it. Its data stays text: a member parses only the fields that it needs.

use std::fmt;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Number;
use serde_json::value::RawValue;
use tidewire_core::text::Payload;
use tidewire_shard::peer::PeerDetails;

use super::guess_limiter::{GuessLimiter, Subject, Watched};

/// Replaces login data that is an array, because arrays have no fields.
const NO_FIELDS: &str = "{}";

/// A login attempt as the chain sees it.
#[derive(Debug)]
pub struct LoginAttempt {
    /// A JSON object.
    data: Payload,
    /// The connection that it arrived on.
    pub peer: Arc<PeerDetails>,
    /// The token from the webhook for clients that log in over HTTP, as JSON.
    token: OnceLock<String>,
    /// Why members did not accept it. Only in development mode does the client receive this.
    explanations: Mutex<Vec<String>>,
    /// Watches refusals that arrive while the attempt waits; present if it was admitted without delay.
    pub(super) watched: Option<Watched>,
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Field {
    /// A string.
    Text(String),
    /// A number.
    Number(Number),
    /// `true` or `false`.
    Bool(bool),
    /// Anything else.
    Other,
}

impl LoginAttempt {
    /// Creates an attempt from the login object or array, which was validated on receipt.
    #[must_use]
    pub fn new(data: &Payload, peer: Arc<PeerDetails>) -> Self {
        let is_object = data.as_str().trim_start().starts_with('{');
        Self {
            data: match is_object {
                true => data.clone(),
                false => Payload::from_checked(NO_FIELDS),
            },
            peer,
            token: OnceLock::new(),
            explanations: Mutex::default(),
            watched: None,
        }
    }

    /// The whole object.
    #[must_use]
    pub fn as_json(&self) -> &str {
        self.data.as_str()
    }

    /// A field of the object. If several have this name, the last one counts.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<Field> {
        let mut reader = serde_json::Deserializer::from_str(self.data.as_str());
        let text = Wanted(name).deserialize(&mut reader).ok()??.get();
        Some(match text.as_bytes().first() {
            Some(b'"') => serde_json::from_str(text).map_or(Field::Other, Field::Text),
            Some(b't' | b'f') => Field::Bool(text == "true"),
            Some(b'-' | b'0'..=b'9') => {
                serde_json::from_str(text).map_or(Field::Other, Field::Number)
            }
            _ => Field::Other,
        })
    }

    /// A field that is a string.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<String> {
        match self.field(name) {
            Some(Field::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// A field that is a non-empty string.
    #[must_use]
    pub fn given(&self, name: &str) -> Option<String> {
        self.text(name).filter(|text| !text.is_empty())
    }

    /// The subject that refusals of this login count for.
    pub(super) fn subject(&self, limiter: &GuessLimiter) -> Subject {
        limiter.subject(self.given("username"), self.as_json(), &self.peer)
    }

    /// Stores the token from the webhook for clients that log in over HTTP.
    pub(super) fn set_token(&self, token: String) {
        // At most one member accepts a login, and it does so once.
        let _ = self.token.set(token);
    }

    /// The token from the webhook, if it has sent one.
    pub(super) fn into_token(self) -> Option<String> {
        self.token.into_inner()
    }

    /// Notes why a member does not accept the attempt.
    pub(super) fn explain(&self, why: impl Into<String>) {
        self.explanations.lock().push(why.into());
    }

    /// Why no member has accepted the attempt.
    pub(super) fn explanation(&self) -> String {
        match self.explanations.lock().as_slice() {
            [] => "no member of auth.chain knows these credentials".to_owned(),
            all => all.join("; "),
        }
    }

    /// Whether this attempt is turned away, because attempts of the same subject were refused while it waited.
    pub(super) fn is_held_off(&self) -> bool {
        self.watched.as_ref().is_some_and(Watched::is_held_off)
    }
}

/// Extracts the JSON text of one field's value.
struct Wanted<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for Wanted<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Wanted<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(is_wanted) = map.next_key_seed(Key(self.0))? {
            match is_wanted {
                true => found = Some(map.next_value()?),
                false => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(found)
    }
}

/// Checks whether a key is this one.
struct Key<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<bool, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<bool, E> {
        Ok(key == self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn attempt(data: &str) -> LoginAttempt {
        let peer = PeerDetails::at((Ipv4Addr::LOCALHOST, 0).into());
        LoginAttempt::new(&Payload::from_checked(data), Arc::new(peer))
    }

    #[test]
    fn fields_are_read_one_by_one() {
        let check = |data: &str, expected: Option<Field>| {
            assert_eq!(attempt(data).field("name"), expected, "{data}");
        };
        let text = |text: &str| Some(Field::Text(text.to_owned()));
        check(r#"{"name":"anna"}"#, text("anna"));
        check(
            r#" { "other" : [ { "name" : 1 } ] , "n\u0061me" : "\u00fc" } "#,
            text("\u{fc}"),
        );
        check(r#"{"name":"first","name":"last"}"#, text("last"));
        check(r#"{"name":""}"#, text(""));
        check(r#"{"name":7}"#, Some(Field::Number(7.into())));
        check(r#"{"name":true}"#, Some(Field::Bool(true)));
        check(r#"{"name":false}"#, Some(Field::Bool(false)));
        for other in ["null", "{}", "[\"name\"]", "1e999", r#""\ud800""#] {
            check(&format!(r#"{{"name":{other}}}"#), Some(Field::Other));
        }
        for absent in ["{}", "[]", r#"["name","anna"]"#, r#"{"Name":"anna"}"#] {
            check(absent, None);
        }
        assert_eq!(attempt(r#"["name"]"#).as_json(), "{}");
    }
}

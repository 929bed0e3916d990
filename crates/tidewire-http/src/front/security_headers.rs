//! Headers with which browsers do less with an answer than they would. Nothing that the server answers is meant to be framed,
//! to run, to load something, or to be embedded by a page of another site, but for pages of its own, which bring a policy
//! of theirs (`site.rs`); what pages of allowed origins read, they read by CORS, which none of these headers is in the way of.

use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, Entry, HeaderName, HeaderValue,
    STRICT_TRANSPORT_SECURITY,
};

/// What every answer has.
const ALWAYS: [(&str, &str); 3] = [
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
];
/// What an answer has that does not say something else of the same name: no content, and nothing that is kept.
const ELSE: [(HeaderName, &str); 2] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (CACHE_CONTROL, "no-store"),
];

/// Adds them to the headers of an answer.
pub(crate) fn harden(headers: &mut HeaderMap) {
    for (name, value) in ALWAYS {
        let name = HeaderName::from_static(name);
        headers.insert(name, HeaderValue::from_static(value));
    }
    for (name, value) in ELSE {
        if let Entry::Vacant(missing) = headers.entry(name) {
            missing.insert(HeaderValue::from_static(value));
        }
    }
}

/// Has browsers use TLS only for this host. It counts on TLS alone, and must not be sent in the clear (RFC 6797, section 7.2).
pub(super) fn stay_encrypted(headers: &mut HeaderMap, max_age: Duration) {
    // Digits are a header's value.
    if let Ok(value) = HeaderValue::from_str(&format!("max-age={}", max_age.as_secs())) {
        headers.insert(STRICT_TRANSPORT_SECURITY, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_answer_says_itself_stays() {
        for (name, value) in ELSE {
            let mut headers = HeaderMap::new();
            harden(&mut headers);
            assert_eq!(headers[&name], value);
            let own = HeaderValue::from_static("its own");
            headers.insert(&name, own.clone());
            harden(&mut headers);
            assert_eq!(headers[&name], own);
            assert_eq!(headers.len(), ALWAYS.len() + ELSE.len());
        }
    }

    #[test]
    fn the_time_of_encryption_is_in_seconds() {
        let mut headers = HeaderMap::new();
        stay_encrypted(&mut headers, Duration::from_secs(7_200));
        assert_eq!(headers[STRICT_TRANSPORT_SECURITY], "max-age=7200");
    }
}

//! Headers with which browsers do less with an answer than they would. Nothing that the server answers is meant to be framed,
//! to run, to load something, or to be embedded by a page of another site; what pages of allowed origins read, they read by
//! CORS, which none of these headers is in the way of.

use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::{CACHE_CONTROL, Entry, HeaderName, HeaderValue, STRICT_TRANSPORT_SECURITY};

/// What every answer has.
const ALWAYS: [(&str, &str); 4] = [
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    (
        "content-security-policy",
        "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("cross-origin-resource-policy", "same-origin"),
];

/// Adds them to the headers of an answer. What does not say how it may be kept must not be kept.
pub(crate) fn harden(headers: &mut HeaderMap) {
    for (name, value) in ALWAYS {
        let name = HeaderName::from_static(name);
        headers.insert(name, HeaderValue::from_static(value));
    }
    if let Entry::Vacant(missing) = headers.entry(CACHE_CONTROL) {
        missing.insert(HeaderValue::from_static("no-store"));
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
    fn what_says_how_it_may_be_kept_keeps_saying_so() {
        let mut headers = HeaderMap::new();
        harden(&mut headers);
        assert_eq!(headers[CACHE_CONTROL], "no-store");
        let own = HeaderValue::from_static("private, no-cache");
        headers.insert(CACHE_CONTROL, own);
        harden(&mut headers);
        assert_eq!(headers[CACHE_CONTROL], "private, no-cache");
        assert_eq!(headers.len(), ALWAYS.len() + 1);
    }

    #[test]
    fn the_time_of_encryption_is_in_seconds() {
        let mut headers = HeaderMap::new();
        stay_encrypted(&mut headers, Duration::from_secs(7_200));
        assert_eq!(headers[STRICT_TRANSPORT_SECURITY], "max-age=7200");
    }
}

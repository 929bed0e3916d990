//! Response headers that restrict browsers. By default no answer of the server may be framed, run as a script, load resources,
//! or be embedded by a page of another site. The server's own pages are the exception and bring their own policy (`site.rs`).
//! Pages of allowed origins read answers by CORS, which these headers do not restrict.

use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, Entry, HeaderName, HeaderValue,
    STRICT_TRANSPORT_SECURITY,
};

/// Headers of every answer.
const ALWAYS: [(&str, &str); 3] = [
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
];
/// Headers of an answer that does not set them itself: the browser may load nothing and must not cache the answer.
const ELSE: [(HeaderName, &str); 2] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (CACHE_CONTROL, "no-store"),
];

/// Adds the security headers to the headers of an answer.
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

/// Makes browsers use only TLS for this host. The header has an effect over TLS only, and must not be sent in clear text (RFC
/// 6797, section 7.2).
pub(super) fn stay_encrypted(headers: &mut HeaderMap, max_age: Duration) {
    // The value consists of ASCII characters, so it is a valid header value.
    if let Ok(value) = HeaderValue::from_str(&format!("max-age={}", max_age.as_secs())) {
        headers.insert(STRICT_TRANSPORT_SECURITY, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_the_answer_itself_stay() {
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

//! The size of a request's head.

use hyper::Request;
use hyper::http::uri::Scheme;

/// Bytes that each field counts in addition to its name and value (RFC 9113, section 6.5.2).
const FIELD_BYTES: usize = 32;

/// Bytes of all fields as HTTP/2 counts them, including the pseudo-header fields that begin with a colon.
pub(super) fn list_bytes<B>(request: &Request<B>) -> usize {
    let field = |name: &str, value: usize| name.len() + value + FIELD_BYTES;
    let uri = request.uri();
    let scheme = uri
        .scheme()
        .map_or(0, |scheme: &Scheme| field(":scheme", scheme.as_str().len()));
    let authority = uri
        .authority()
        .map_or(0, |authority| field(":authority", authority.as_str().len()));
    let path = uri.path_and_query().map_or(0, |path| path.as_str().len());
    let fields = request.headers().iter();
    let fields = fields.map(|(name, value)| field(name.as_str(), value.len()));
    field(":method", request.method().as_str().len())
        + scheme
        + authority
        + field(":path", path)
        + fields.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_counts_with_its_name() {
        let request = Request::get("https://a.example/p?q").header("x", "12");
        let request = request.header("x", "").body(()).expect("a request");
        let named = ":methodGET".len()
            + ":schemehttps".len()
            + ":authoritya.example".len()
            + ":path/p?q".len()
            + "x12".len()
            + "x".len();
        assert_eq!(list_bytes(&request), named + 6 * FIELD_BYTES);
    }
}

//! The name under which an HTTP/2 request addresses the server: `:authority`, which replaces `Host` (RFC 9113, section 8.3.1).
//!
//! All later code reads only `Host`, so a request cannot have two names.

use hyper::Request;
use hyper::header::{HOST, HeaderValue};

/// Copies the authority of a request into its `Host` header.
///
/// # Errors
/// The names of the request conflict or are malformed; the error says how. The server must answer with 400.
pub(super) fn named<B>(mut request: Request<B>) -> Result<Request<B>, &'static str> {
    let Some(authority) = request.uri().authority() else {
        return Ok(request);
    };
    let authority = authority.as_str();
    let same = |host: &HeaderValue| host.as_bytes().eq_ignore_ascii_case(authority.as_bytes());
    if !request.headers().get_all(HOST).iter().all(same) {
        return Err("Host and :authority differ");
    }
    match HeaderValue::from_str(authority) {
        // An address may contain a password (`user:password@host`), which must not reach a log.
        Ok(_) if authority.contains('@') => Err(":authority has user information"),
        Ok(host) => {
            request.headers_mut().insert(HOST, host);
            Ok(request)
        }
        Err(_) => Err(":authority is malformed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_one_name() {
        let check = |uri: &str, hosts: &[&str], expected: Option<&[&str]>| {
            let mut request = Request::get(uri);
            for host in hosts {
                request = request.header(HOST, *host);
            }
            let found = named(request.body(()).expect("a request")).ok();
            let found = found.map(|request| {
                let hosts = request.headers().get_all(HOST).iter();
                let hosts = hosts.map(|host| host.to_str().expect("text").to_owned());
                hosts.collect::<Vec<_>>()
            });
            let expected = expected.map(|hosts| hosts.iter().map(|host| (*host).to_owned()));
            assert_eq!(found, expected.map(Iterator::collect), "{uri} {hosts:?}");
        };
        check("https://a.example:1/p", &[], Some(&["a.example:1"]));
        check("https://a.example/p", &["A.example"], Some(&["a.example"]));
        check("https://a.example/p", &["b.example"], None);
        check("https://a.example/p", &["a.example", "b.example"], None);
        check("https://me:secret@a.example/p", &[], None);
        // Without an authority the request keeps its `Host` headers, and the gate checks them.
        check("/p", &["a.example"], Some(&["a.example"]));
        check(
            "/p",
            &["a.example", "b.example"],
            Some(&["a.example", "b.example"]),
        );
        check("/p", &[], Some(&[]));
    }
}

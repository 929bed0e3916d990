//! The name under which a request of HTTP/2 reaches the server: `:authority`, which stands for `Host` (RFC 9113, 8.3.1).
//!
//! Everything behind this reads `Host` and nothing else, so a request can't have two names.

use hyper::Request;
use hyper::header::{HOST, HeaderValue};

/// The request with its authority as its `Host`.
///
/// # Errors
/// What is wrong with its names; it is to be answered with 400.
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
        // Who put a password into an address must not find it in a log.
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
        // Without an authority the gate decides about what is there.
        check("/p", &["a.example"], Some(&["a.example"]));
        check(
            "/p",
            &["a.example", "b.example"],
            Some(&["a.example", "b.example"]),
        );
        check("/p", &[], Some(&[]));
    }
}

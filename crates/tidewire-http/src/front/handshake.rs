//! The server side of the WebSocket opening handshake (RFC 6455, section 4.2.1).
//!
//! Of the extensions, the server accepts permessage-deflate if the configuration allows it. It negotiates a subprotocol if the
//! protocol of the path declares some.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, HeaderName, SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, TRANSFER_ENCODING, UPGRADE,
};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Version};
use tidewire_wire::frame::offer::{self, MalformedOffer};
use tidewire_wire::frame::websocket::accept_key;
use tidewire_wire::protocol::HandshakeRequest;

/// The version of the WebSocket protocol.
pub const VERSION: &str = "13";

/// Why a request does not open a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The server answers 405.
    #[error("a WebSocket must be opened with GET")]
    Method,
    /// The server answers 426.
    #[error("this path accepts only WebSocket clients")]
    NoUpgrade,
    /// The server answers 426 with the version that it speaks.
    #[error("only version 13 of the WebSocket protocol is supported")]
    Version,
    /// The server answers 400.
    #[error("{0}")]
    Malformed(&'static str),
    /// The client offers none of these subprotocols, and the server answers 400.
    #[error("a WebSocket of this path must offer one of the subprotocols {}", .0.join(", "))]
    Subprotocol(&'static [&'static str]),
}

/// The agreement about the bytes of a WebSocket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The value of `Sec-WebSocket-Accept`.
    pub accepted: String,
    /// The value of `Sec-WebSocket-Extensions`, if messages may be compressed.
    pub deflate: Option<String>,
    /// The value of `Sec-WebSocket-Protocol`, if the protocol of the path has subprotocols.
    pub subprotocol: Option<&'static str>,
}

/// Agrees on a WebSocket of a protocol that has these `subprotocols`.
///
/// # Errors
/// The request does not open such a WebSocket; each error determines the answer.
pub fn agree(
    request: &Parts,
    subprotocols: &'static [&'static str],
    takes_deflate: bool,
) -> Result<Agreement, HandshakeError> {
    Ok(Agreement {
        accepted: accept(request)?,
        deflate: match takes_deflate {
            true => deflate(request)?,
            false => None,
        },
        subprotocol: subprotocol(&request.headers, subprotocols)?,
    })
}

/// The parts of a request about which a protocol has rules.
#[must_use]
pub fn request(request: &Parts) -> HandshakeRequest<'_> {
    HandshakeRequest {
        query: request.uri.query(),
        is_get: request.method == Method::GET,
        is_post: request.method == Method::POST,
        is_upgrade: has_token(&request.headers, &UPGRADE, "websocket"),
    }
}

/// The first subprotocol in the client's order that the server has too.
fn subprotocol(
    headers: &HeaderMap,
    known: &'static [&'static str],
) -> Result<Option<&'static str>, HandshakeError> {
    if known.is_empty() {
        return Ok(None);
    }
    let mut offered = tokens(headers, &SEC_WEBSOCKET_PROTOCOL);
    let agreed = offered.find_map(|offer| known.iter().copied().find(|name| *name == offer));
    let agreed = agreed.ok_or(HandshakeError::Subprotocol(known))?;
    Ok(Some(agreed))
}

/// Checks a request and computes the value of `Sec-WebSocket-Accept`.
fn accept(request: &Parts) -> Result<String, HandshakeError> {
    let headers = &request.headers;
    if request.method != Method::GET {
        return Err(HandshakeError::Method);
    }
    if !has_token(headers, &UPGRADE, "websocket") || !has_token(headers, &CONNECTION, "upgrade") {
        return Err(HandshakeError::NoUpgrade);
    }
    if request.version != Version::HTTP_11 {
        return Err(HandshakeError::Malformed("a WebSocket requires HTTP/1.1"));
    }
    let has_body = headers.contains_key(TRANSFER_ENCODING)
        || headers
            .get(CONTENT_LENGTH)
            .is_some_and(|length| length.as_bytes() != b"0");
    if has_body {
        return Err(HandshakeError::Malformed(
            "a WebSocket request must not have a body",
        ));
    }
    match single(headers, &SEC_WEBSOCKET_VERSION) {
        Some(VERSION) => {}
        _ => return Err(HandshakeError::Version),
    }
    match single(headers, &SEC_WEBSOCKET_KEY) {
        Some(key) if STANDARD.decode(key).is_ok_and(|nonce| nonce.len() == 16) => {
            Ok(accept_key(key))
        }
        _ => Err(HandshakeError::Malformed(
            "Sec-WebSocket-Key is not the base64 of 16 bytes",
        )),
    }
}

/// The answer to the client's compression offers, as the value of `Sec-WebSocket-Extensions`; `None` if the server can accept
/// none of them.
fn deflate(request: &Parts) -> Result<Option<String>, HandshakeError> {
    let malformed = |_| HandshakeError::Malformed("Sec-WebSocket-Extensions is malformed");
    let mut offers = String::new();
    for value in request.headers.get_all(SEC_WEBSOCKET_EXTENSIONS) {
        offers.push_str(value.to_str().map_err(|_| malformed(MalformedOffer))?);
        offers.push(',');
    }
    offer::accept(&offers).map_err(malformed)
}

/// The value of a header that occurs exactly once.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?.to_str().ok()?.trim();
    values.next().is_none().then_some(first)
}

/// Whether a comma-separated header contains the word.
fn has_token(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    tokens(headers, name).any(|token| token.eq_ignore_ascii_case(word))
}

/// The words of a comma-separated header.
fn tokens<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a str> + use<'a> {
    let values = headers.get_all(name).into_iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    texts.flat_map(|value| value.split(',')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

    /// The sample request of RFC 6455 with some headers replaced, or removed by an empty value.
    fn request(changes: &[(&str, &str)]) -> Parts {
        let mut headers = vec![
            ("host", "server.example.com"),
            ("upgrade", "websocket"),
            ("connection", "Upgrade"),
            ("sec-websocket-key", KEY),
            ("sec-websocket-version", "13"),
        ];
        for (name, value) in changes {
            headers.retain(|(known, _)| known != name);
            headers.push((name, value));
        }
        let mut builder = Request::get("/chat");
        for (name, value) in headers.into_iter().filter(|(_, value)| !value.is_empty()) {
            builder = builder.header(name, value);
        }
        builder.body(()).expect("a request").into_parts().0
    }

    #[test]
    fn accepts_the_sample_of_the_rfc() {
        let check = |changes: &[(&str, &str)]| {
            let expected = Ok("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=".to_owned());
            assert_eq!(accept(&request(changes)), expected, "{changes:?}");
        };
        check(&[]);
        check(&[("connection", "keep-alive, Upgrade")]);
        check(&[("upgrade", "WebSocket")]);
        check(&[("upgrade", "h2c, websocket")]);
        check(&[("content-length", "0")]);
        check(&[("sec-websocket-extensions", "permessage-deflate")]);
        check(&[("sec-websocket-protocol", "chat")]);
    }

    #[test]
    fn everything_else_has_its_answer() {
        let check = |changes: &[(&str, &str)], expected| {
            assert_eq!(accept(&request(changes)), Err(expected), "{changes:?}");
        };
        check(&[("upgrade", "")], HandshakeError::NoUpgrade);
        check(&[("upgrade", "h2c")], HandshakeError::NoUpgrade);
        check(&[("connection", "")], HandshakeError::NoUpgrade);
        check(&[("connection", "close")], HandshakeError::NoUpgrade);
        check(&[("sec-websocket-version", "")], HandshakeError::Version);
        check(&[("sec-websocket-version", "8")], HandshakeError::Version);
        let key = HandshakeError::Malformed("Sec-WebSocket-Key is not the base64 of 16 bytes");
        check(&[("sec-websocket-key", "")], key);
        check(&[("sec-websocket-key", "dG9vIHNob3J0")], key);
        check(&[("sec-websocket-key", "not base64 at all!!!!!!!")], key);
        let body = HandshakeError::Malformed("a WebSocket request must not have a body");
        check(&[("content-length", "5")], body);
        check(&[("transfer-encoding", "chunked")], body);
    }

    #[test]
    fn offers_of_compression_are_answered() {
        let check = |offer: &str, expected| {
            let changes = [("sec-websocket-extensions", offer)];
            assert_eq!(deflate(&request(&changes)), expected, "{offer}");
        };
        let answer = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
        check("", Ok(None));
        check("x-other", Ok(None));
        let malformed = HandshakeError::Malformed("Sec-WebSocket-Extensions is malformed");
        check("permessage-deflate; =", Err(malformed));
        check(
            "permessage-deflate; client_max_window_bits",
            Ok(Some(answer.to_owned())),
        );
        let mut two = request(&[("sec-websocket-extensions", "x-other")]);
        let second = hyper::header::HeaderValue::from_static("permessage-deflate");
        two.headers.append(SEC_WEBSOCKET_EXTENSIONS, second);
        assert_eq!(deflate(&two), Ok(Some(answer.to_owned())));
    }

    #[test]
    fn a_subprotocol_is_the_first_offer_that_the_server_has() {
        const KNOWN: &[&str] = &["lines.v2", "lines"];
        let check = |offers: &str, known, expected| {
            let agreed = agree(&request(&[("sec-websocket-protocol", offers)]), known, true);
            let agreed = agreed.map(|agreement| agreement.subprotocol);
            assert_eq!(agreed, expected, "{offers}");
        };
        check("other, lines", KNOWN, Ok(Some("lines")));
        check("lines, lines.v2", KNOWN, Ok(Some("lines")));
        // The names are compared as they are (RFC 6455, section 4.1).
        check("Lines", KNOWN, Err(HandshakeError::Subprotocol(KNOWN)));
        check("", KNOWN, Err(HandshakeError::Subprotocol(KNOWN)));
        check("lines", &[], Ok(None));
    }

    #[test]
    fn method_and_version_count() {
        let mut post = request(&[]);
        post.method = Method::POST;
        assert_eq!(accept(&post), Err(HandshakeError::Method));
        let mut old = request(&[]);
        old.version = Version::HTTP_10;
        assert_eq!(
            accept(&old),
            Err(HandshakeError::Malformed("a WebSocket requires HTTP/1.1"))
        );
    }
}

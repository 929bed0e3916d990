//! The fast upgrade: opens a WebSocket at once if its complete clear-text request has arrived when the front accepts the
//! socket.
//!
//! Such a connection needs no registration with the runtime, no hyper and no task. The same functions as for hyper's requests
//! decide what may be opened. A request that is unusual, refused or incomplete goes to hyper, together with the bytes that were
//! read.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{CONTENT_LENGTH, EXPECT, HeaderName, HeaderValue, TRANSFER_ENCODING};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Request, Uri};
use tidewire_config::plan::Speaks;
use tidewire_shard::connection_limiter::SocketPermits;
use tidewire_shard::handle::UpgradedSocket;
use tidewire_wire::protocol::{Handshake, Protocol};

use super::http::{allow_origin, is_page, switching_protocols};
use super::{Front, TooMany, handshake};
use crate::peer::peer;
use crate::status::Stage;

/// Bytes that the front reads here. The request of a browser with many cookies may be longer; hyper handles it then.
const READ_BYTES: usize = 4096;
/// Headers of a request that is parsed here. Hyper handles requests with more.
const HEADERS_MAX: usize = 64;

/// The result of an attempt.
#[derive(Debug)]
pub enum FastUpgrade {
    /// The WebSocket is open and its client has the answer.
    Opened(Box<UpgradedSocket>),
    /// Hyper must serve the connection, beginning with the bytes that were read.
    Unanswered {
        /// The unchanged socket.
        socket: TcpStream,
        /// The unchanged ticket.
        ticket: SocketPermits,
        /// The first bytes of its stream.
        unread: Bytes,
    },
    /// The peer has gone, or was refused.
    Gone,
}

/// A request that opens a WebSocket, and the head of its answer.
struct Opening {
    parts: Parts,
    /// Bytes of the request; the bytes after them are WebSocket frames.
    head_bytes: usize,
    answer: Vec<u8>,
    is_deflated: bool,
    protocol: Protocol,
}

/// Reads once from a new nonblocking socket, and opens the WebSocket that the client requests.
pub fn try_upgrade(
    front: &Arc<Front>,
    mut socket: TcpStream,
    address: SocketAddr,
    mut ticket: SocketPermits,
) -> FastUpgrade {
    let mut buffer = [0; READ_BYTES];
    let input = match socket.read(&mut buffer) {
        Ok(0) => return FastUpgrade::Gone,
        Ok(count) => &buffer[..count],
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => &[],
        Err(error) => {
            tracing::debug!(peer = %address, %error, "a connection was lost before its request");
            return FastUpgrade::Gone;
        }
    };
    let unanswered = |socket, ticket| FastUpgrade::Unanswered {
        socket,
        ticket,
        unread: Bytes::copy_from_slice(input),
    };
    let Some(opening) = opening(front, input) else {
        return unanswered(socket, ticket);
    };
    let address = front
        .settings
        .read()
        .proxies
        .client(address, &opening.parts.headers);
    if ticket.counted.is_none() {
        match front.count(address.ip()) {
            Ok(counted) => ticket.counted = counted,
            Err(TooMany) => {
                let _ = socket.write(TOO_MANY);
                return FastUpgrade::Gone;
            }
        }
    }
    let permit = match front.connection_limiter.take(ticket) {
        Ok(permit) => permit,
        // `limits.connections_max` is reached. Hyper answers the request with 503, and counts and logs the refusal.
        Err(ticket) => return unanswered(socket, ticket),
    };
    // The send buffer of a new socket has room for the whole answer. If the write is short, the peer has gone.
    match socket.write(&opening.answer) {
        Ok(sent) if sent == opening.answer.len() => {}
        outcome => {
            tracing::debug!(peer = %address, ?outcome, "a connection did not complete its upgrade");
            return FastUpgrade::Gone;
        }
    }
    front.metrics.upgrades.inc();
    tracing::debug!(peer = %address, "a websocket was opened");
    FastUpgrade::Opened(Box::new(UpgradedSocket {
        stream: socket,
        tls: None,
        unread: Bytes::copy_from_slice(&input[opening.head_bytes..]),
        peer: Arc::new(peer(address, &opening.parts, false)),
        permit,
        is_deflated: opening.is_deflated,
        protocol: opening.protocol,
        attachment: None,
    }))
}

/// The answer to a client whose address has reached `limits.connections_per_address_max`.
const TOO_MANY: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\nconnection: close\r\nretry-after: 5\r\ncontent-length: 50\r\n\
    content-type: text/plain; charset=utf-8\r\n\r\nthis address has reached its limit of connections\n";

/// Refuses a new connection, with an answer if the connection is in clear text.
pub fn refuse(mut socket: TcpStream, speaks: Speaks) {
    if speaks == Speaks::Clear {
        // Unread bytes would make the kernel reset the connection and lose the answer.
        let _ = socket.read(&mut [0; READ_BYTES]);
        let _ = socket.write(TOO_MANY);
    }
}

/// Parses `input`; returns `None` unless it begins with a complete request that opens a WebSocket and that the server accepts.
fn opening(front: &Front, input: &[u8]) -> Option<Opening> {
    if front.status.stage() == Stage::Draining {
        return None;
    }
    let (parts, head_bytes) = parse(input)?;
    let path = parts.uri.path();
    if head_bytes > front.head_bytes_max || is_page(path) {
        return None;
    }
    let protocol = front.protocol(path)?;
    let admitted = front
        .settings
        .read()
        .origin_check
        .admit(&parts.headers)
        .ok()?;
    let request = handshake::request(&parts);
    if !matches!(protocol.handshake(&request), Ok(Handshake::WebSocket)) {
        return None;
    }
    let takes_deflate = front.takes_deflate && protocol.compresses();
    let agreement = handshake::agree(&parts, protocol.subprotocols(), takes_deflate).ok()?;
    let mut headers = switching_protocols(&agreement);
    if let Some(origin) = &admitted.origin {
        allow_origin(&mut headers, origin);
    }
    Some(Opening {
        answer: format_head(&headers),
        is_deflated: agreement.deflate.is_some(),
        protocol,
        parts,
        head_bytes,
    })
}

/// Parses the head of a request with hyper's own parser, and returns it with its length. Returns `None` if the head is
/// incomplete, or if hyper would have to process more than the head.
fn parse(input: &[u8]) -> Option<(Parts, usize)> {
    let mut fields = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Request::new(&mut fields);
    let Ok(httparse::Status::Complete(head_bytes)) = head.parse(input) else {
        return None;
    };
    // With any other method or version, a request does not open a WebSocket.
    if head.method != Some("GET") || head.version != Some(1) {
        return None;
    }
    let mut headers = HeaderMap::with_capacity(head.headers.len());
    for field in head.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        headers.append(name, HeaderValue::from_bytes(field.value).ok()?);
    }
    if [CONTENT_LENGTH, TRANSFER_ENCODING, EXPECT]
        .iter()
        .any(|name| headers.contains_key(name))
    {
        return None;
    }
    let mut request = Request::new(());
    *request.uri_mut() = Uri::try_from(head.path?).ok()?;
    *request.headers_mut() = headers;
    Some((request.into_parts().0, head_bytes))
}

fn format_head(headers: &HeaderMap) -> Vec<u8> {
    let mut head = b"HTTP/1.1 101 Switching Protocols\r\n".to_vec();
    for (name, value) in headers {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: &str =
        "GET /chat?a=b HTTP/1.1\r\nHost: localhost\r\nX-Two: 1\r\nx-two: 2\r\n\r\n";

    #[test]
    fn a_whole_request_is_read_as_hyper_reads_it() {
        let input = format!("{REQUEST}frames");
        let (parts, head_bytes) = parse(input.as_bytes()).expect("a request");
        assert_eq!(&input[head_bytes..], "frames");
        assert_eq!(
            (parts.uri.path(), parts.uri.query()),
            ("/chat", Some("a=b"))
        );
        assert_eq!(parts.version, hyper::Version::HTTP_11);
        let two: Vec<_> = parts.headers.get_all("x-two").iter().collect();
        assert_eq!(two, ["1", "2"]);
    }

    #[test]
    fn everything_else_is_left_to_hyper() {
        let check = |input: &str| assert!(parse(input.as_bytes()).is_none(), "{input:?}");
        for end in 0..REQUEST.len() {
            check(&REQUEST[..end]);
        }
        check(&REQUEST.replace("GET", "POST"));
        check(&REQUEST.replace("GET", "HEAD"));
        check(&REQUEST.replace("HTTP/1.1", "HTTP/1.0"));
        check(&REQUEST.replace("/chat", "chat"));
        check(&REQUEST.replace("Host:", "Host :"));
        check(&REQUEST.replace("X-Two: 1", "Content-Length: 0"));
        check(&REQUEST.replace("X-Two: 1", "Transfer-Encoding: chunked"));
        check(&REQUEST.replace("X-Two: 1", "Expect: 100-continue"));
        check(&REQUEST.replace("X-Two: 1", &"a: b\r\n".repeat(HEADERS_MAX)));
        check("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    }

    #[test]
    fn the_answer_to_too_many_is_whole() {
        let text = std::str::from_utf8(TOO_MANY).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
        let length = format!("content-length: {}\r\n", body.len());
        assert!(head.contains(&length), "{length} in {head}");
    }

    #[test]
    fn a_head_is_written_line_by_line() {
        let mut headers = HeaderMap::new();
        headers.insert("a", HeaderValue::from_static("b"));
        assert_eq!(
            format_head(&headers),
            b"HTTP/1.1 101 Switching Protocols\r\na: b\r\n\r\n"
        );
    }
}

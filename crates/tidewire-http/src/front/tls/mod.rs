//! TLS at the front: the certificate and its renewal, the handshake, and the stream that hyper reads.
//!
//! The front uses the TLS state of `tidewire-net` from the first byte, so at the upgrade a shard takes it over unchanged.

mod certificate;
mod stream;

use bytes::Bytes;
use tokio::net::TcpStream;

pub use certificate::{Tls, install_provider};
pub use stream::{FrontStream, Handover};
use tidewire_config::plan::Speaks;

use super::Front;

/// The first byte of a TLS connection: the type of a handshake record.
const HANDSHAKE: u8 = 0x16;

/// A readable answer for a client that speaks plain HTTP to a TLS port.
const WRONG_SCHEME: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n\
    connection: close\r\ncontent-length: 62\r\n\r\nthis port speaks TLS only; use https:// and wss:// to reach it";

/// Makes the stream of a connection and performs its TLS handshake; returns `None` if the connection needs no more work.
/// `unread` contains the bytes that the front has read already; it is empty if the peer may speak TLS.
///
/// # Errors
/// The peer has gone, or the handshake failed.
pub async fn open(
    front: &Front,
    stream: TcpStream,
    unread: Bytes,
    speaks: Speaks,
) -> std::io::Result<Option<FrontStream>> {
    let (Some(tls), Speaks::Tls | Speaks::Both) = (&front.tls, speaks) else {
        return Ok(Some(FrontStream::clear(stream, unread)));
    };
    let mut first = [0];
    // A peek leaves the byte in the socket for the TLS handshake or hyper.
    if stream.peek(&mut first).await? == 0 {
        return Ok(None);
    }
    if first[0] != HANDSHAKE && speaks == Speaks::Both {
        return Ok(Some(FrontStream::clear(stream, unread)));
    }
    if first[0].is_ascii_uppercase() {
        stream::answer_in_the_clear(stream, WRONG_SCHEME).await;
        return Ok(None);
    }
    let stream = stream::accept(stream, tls.config()).await?;
    front.metrics.tls_handshakes.inc();
    Ok(Some(FrontStream::Tls(stream)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_in_the_clear_is_whole() {
        let text = std::str::from_utf8(WRONG_SCHEME).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
        let length = format!("content-length: {}", body.len());
        assert!(head.contains(&length), "{length} in {head}");
    }
}

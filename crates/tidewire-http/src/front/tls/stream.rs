//! The stream that hyper reads and writes, in clear text or over TLS, and its handover to a shard.
//!
//! Over TLS it drives the same unbuffered state that the shard drives after the upgrade. All connections of a thread share one
//! read buffer, so a waiting connection holds no buffer.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use rustls::ServerConfig;
use tidewire_net::tls::{HEADROOM, KEPT_BYTES_MAX, RECORD_BYTES_MAX, TlsState};
use tidewire_shard::peer::ClientCertificate;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;

/// Ciphertext bytes of one read.
const READ_BYTES: usize = 16 << 10;
/// Ciphertext bytes that may wait for the peer; above this limit the stream accepts no more plaintext.
const OUTGOING_BYTES_MAX: usize = 64 << 10;

/// The ALPN name of HTTP/2.
pub(super) const HTTP_2: &[u8] = b"h2";

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; HEADROOM + KEPT_BYTES_MAX + READ_BYTES]);
}

/// A connection of the front.
#[derive(Debug)]
pub enum FrontStream {
    /// Clear text.
    Clear {
        /// The socket.
        socket: TcpStream,
        /// Bytes that the front read from the socket before hyper got it.
        unread: Bytes,
    },
    /// TLS, after the handshake.
    Tls(Box<TlsStream>),
}

/// A connection that the front hands over to a shard.
#[derive(Debug)]
pub struct Handover {
    /// The nonblocking socket; nothing else holds it.
    pub stream: std::net::TcpStream,
    /// Its TLS state, with the ciphertext of an incomplete record.
    pub tls: Option<Box<TlsState>>,
    /// Plaintext that was read and not processed.
    pub unread: Bytes,
}

impl FrontStream {
    /// A clear-text connection from which `unread` was read already.
    #[must_use]
    pub fn clear(socket: TcpStream, unread: Bytes) -> Self {
        Self::Clear { socket, unread }
    }

    /// Whether the connection is encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// The certificate that the client has presented.
    #[must_use]
    pub fn certificate(&self) -> Option<ClientCertificate> {
        let Self::Tls(stream) = self else { return None };
        let der = stream.tls.peer_certificate()?;
        Some(ClientCertificate(der.into()))
    }

    /// Whether the client and the server have negotiated HTTP/2.
    #[must_use]
    pub fn is_http2(&self) -> bool {
        matches!(self, Self::Tls(stream) if stream.tls.alpn() == Some(HTTP_2))
    }

    /// Removes the socket from the runtime. `unread` contains the bytes that hyper has read and not used.
    ///
    /// # Errors
    /// The runtime can't release the socket.
    pub fn hand_over(self, unread: Bytes) -> io::Result<Handover> {
        match self {
            Self::Clear {
                socket,
                unread: behind,
            } => Ok(Handover {
                stream: socket.into_std()?,
                tls: None,
                unread: joined(unread, &behind),
            }),
            Self::Tls(mut stream) => {
                stream.tls.put_back_outgoing(&stream.outgoing);
                Ok(Handover {
                    stream: stream.socket.into_std()?,
                    tls: Some(stream.tls),
                    unread: joined(unread, &stream.plaintext),
                })
            }
        }
    }
}

/// `unread` followed by `behind`. In nearly all cases `behind` is empty, and no copy is needed.
fn joined(unread: Bytes, behind: &[u8]) -> Bytes {
    match behind.is_empty() {
        true => unread,
        false => [&unread[..], behind].concat().into(),
    }
}

/// A TLS connection.
#[derive(Debug)]
pub struct TlsStream {
    socket: TcpStream,
    tls: Box<TlsState>,
    /// Decrypted bytes that hyper has not read yet.
    plaintext: BytesMut,
    /// Encrypted bytes that are not sent yet.
    outgoing: BytesMut,
}

/// Performs the handshake. The caller bounds its time.
///
/// # Errors
/// The peer has gone, or the handshake failed; the peer has received the alert.
pub async fn accept(socket: TcpStream, config: Arc<ServerConfig>) -> io::Result<Box<TlsStream>> {
    let mut stream = Box::new(TlsStream {
        socket,
        tls: Box::new(TlsState::new(config)?),
        plaintext: BytesMut::new(),
        outgoing: BytesMut::new(),
    });
    while !stream.tls.is_established() {
        let outcome = std::future::poll_fn(|context| stream.poll_open(context)).await;
        // Flush even after an error, so that the peer gets the alert.
        let flushed = std::future::poll_fn(|context| stream.poll_send(context)).await;
        match outcome {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => flushed?,
            Err(error) => return Err(error),
        }
    }
    Ok(stream)
}

/// Tries to send an answer to a peer that does not speak TLS.
pub async fn answer_in_the_clear(mut socket: TcpStream, answer: &[u8]) {
    // The request is read first, because closing a socket with unread bytes may make the kernel discard the answer.
    let mut request = vec![0; READ_BYTES];
    let _ = socket.try_read(&mut request);
    let _ = socket.write_all(answer).await;
    let _ = socket.shutdown().await;
}

impl TlsStream {
    /// Reads ciphertext once and appends the decrypted bytes to `plaintext`. Returns the number of ciphertext bytes; 0 at the
    /// end of the stream.
    fn poll_open(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.socket.poll_read_ready(context))?;
            let outcome: io::Result<usize> = SCRATCH.with_borrow_mut(|scratch| {
                let from = self.tls.load_kept(scratch);
                let count = self.socket.try_read(&mut scratch[from..])?;
                let opened = if count > 0 {
                    self.tls.open(&mut scratch[..from + count])
                } else {
                    Ok(0)
                };
                // After an error, the outgoing bytes are the alert.
                self.outgoing.extend_from_slice(&self.tls.take_outgoing());
                self.plaintext.extend_from_slice(&scratch[..opened?]);
                Ok(count)
            });
            match outcome {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return Poll::Ready(outcome),
            }
        }
    }

    /// Sends the encrypted bytes.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outgoing.is_empty() {
            let socket = Pin::new(&mut self.socket);
            let sent = ready!(socket.poll_write(context, &self.outgoing))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let _ = self.outgoing.split_to(sent);
        }
        // An idle connection must not hold a buffer.
        self.outgoing = BytesMut::new();
        Poll::Ready(Ok(()))
    }

    /// Encrypts and appends the result to `outgoing`.
    fn seal(
        &mut self,
        plaintext_bytes: usize,
        seal: impl FnOnce(&mut TlsState, &mut [u8]) -> Result<usize, tidewire_net::tls::TlsError>,
    ) -> io::Result<()> {
        let start = self.outgoing.len();
        self.outgoing
            .resize(start + self.tls.room_for(plaintext_bytes), 0);
        let written = seal(&mut self.tls, &mut self.outgoing[start..]);
        self.outgoing
            .truncate(start + written.as_ref().map_or(0, |written| *written));
        written?;
        Ok(())
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.plaintext.is_empty() && !self.tls.is_peer_closed() {
            if ready!(self.poll_open(context))? == 0 {
                return Poll::Ready(Ok(()));
            }
        }
        let count = self.plaintext.len().min(buffer.remaining());
        buffer.put_slice(&self.plaintext.split_to(count));
        if self.plaintext.is_empty() {
            self.plaintext = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.outgoing.len() >= OUTGOING_BYTES_MAX {
            ready!(self.poll_send(context))?;
        }
        let record = &bytes[..bytes.len().min(RECORD_BYTES_MAX)];
        self.seal(record.len(), |tls, room| tls.seal(record, room))?;
        // Bytes that do not leave now leave with the next flush.
        if let Poll::Ready(outcome) = self.poll_send(context) {
            outcome?;
        }
        Poll::Ready(Ok(record.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_send(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.seal(0, TlsState::seal_end)?;
        ready!(self.poll_send(context))?;
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

impl AsyncRead for FrontStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear { socket, unread } if unread.is_empty() => {
                Pin::new(socket).poll_read(context, buffer)
            }
            Self::Clear { unread, .. } => {
                let count = unread.len().min(buffer.remaining());
                buffer.put_slice(&unread.split_to(count));
                Poll::Ready(Ok(()))
            }
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for FrontStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Clear { socket, .. } => Pin::new(socket).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear { socket, .. } => Pin::new(socket).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear { socket, .. } => Pin::new(socket).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

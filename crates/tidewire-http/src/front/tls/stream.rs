//! The stream that hyper reads and writes, in the clear or over TLS, and its hand-over to a shard.
//!
//! Over TLS it drives the same unbuffered state that the shard drives later. What is read goes through a buffer of the
//! thread, so that a connection that waits holds none.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use rustls::ServerConfig;
use tidewire_net::tls::{HEADROOM, KEPT_BYTES_MAX, RECORD_BYTES_MAX, TlsState};
use tidewire_shard::handle::ClientCertificate;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;

/// Ciphertext read at once.
const READ_BYTES: usize = 16 << 10;
/// Ciphertext that waits for the peer to read before no more is taken.
const OUTGOING_BYTES_MAX: usize = 64 << 10;

/// HTTP/2, as ALPN names it.
pub(super) const HTTP_2: &[u8] = b"h2";

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; HEADROOM + KEPT_BYTES_MAX + READ_BYTES]);
}

/// A connection of the front.
#[derive(Debug)]
pub enum FrontStream {
    /// In the clear.
    Clear {
        /// The rest of its stream.
        socket: TcpStream,
        /// What was read of it before hyper got it.
        unread: Bytes,
    },
    /// Over TLS, with the handshake done.
    Tls(Box<TlsStream>),
}

/// A connection on its way to a shard.
#[derive(Debug)]
pub struct Handover {
    /// The socket, nonblocking and known to nobody else.
    pub stream: std::net::TcpStream,
    /// Its TLS state, with ciphertext that makes no whole record yet.
    pub tls: Option<Box<TlsState>>,
    /// Plaintext that was read and not looked at.
    pub unread: Bytes,
}

impl FrontStream {
    /// A connection in the clear of which `unread` was read already.
    #[must_use]
    pub fn clear(socket: TcpStream, unread: Bytes) -> Self {
        Self::Clear { socket, unread }
    }

    /// Whether the connection is encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// The certificate that the client has shown.
    #[must_use]
    pub fn certificate(&self) -> Option<ClientCertificate> {
        let Self::Tls(stream) = self else { return None };
        let der = stream.tls.peer_certificate()?;
        Some(ClientCertificate(der.into()))
    }

    /// Whether its peer and the server have agreed on HTTP/2.
    #[must_use]
    pub fn is_http2(&self) -> bool {
        matches!(self, Self::Tls(stream) if stream.tls.alpn() == Some(HTTP_2))
    }

    /// Takes the socket from the runtime. `unread` is what hyper has read and not used.
    ///
    /// # Errors
    /// The runtime does not let go of the socket.
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

/// `behind` behind `unread`, which needs no copy where one of them is empty, as nearly always.
fn joined(unread: Bytes, behind: &[u8]) -> Bytes {
    match behind.is_empty() {
        true => unread,
        false => [&unread[..], behind].concat().into(),
    }
}

/// A connection over TLS.
#[derive(Debug)]
pub struct TlsStream {
    socket: TcpStream,
    tls: Box<TlsState>,
    /// Decrypted and not read yet.
    plaintext: BytesMut,
    /// Encrypted and not sent yet.
    outgoing: BytesMut,
}

/// Makes the handshake. The caller bounds its time.
///
/// # Errors
/// The peer is gone, or no handshake is possible with it; it was told why.
pub async fn accept(socket: TcpStream, config: Arc<ServerConfig>) -> io::Result<Box<TlsStream>> {
    let mut stream = Box::new(TlsStream {
        socket,
        tls: Box::new(TlsState::new(config)?),
        plaintext: BytesMut::new(),
        outgoing: BytesMut::new(),
    });
    while !stream.tls.is_established() {
        let outcome = std::future::poll_fn(|context| stream.poll_open(context)).await;
        let flushed = std::future::poll_fn(|context| stream.poll_send(context)).await;
        match outcome {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => flushed?,
            Err(error) => return Err(error),
        }
    }
    Ok(stream)
}

/// Answers a peer that does not speak TLS, as well as possible.
pub async fn answer_in_the_clear(mut socket: TcpStream, answer: &[u8]) {
    // What it has sent is read, because closing a socket with unread bytes may destroy the answer.
    let mut request = vec![0; READ_BYTES];
    let _ = socket.try_read(&mut request);
    let _ = socket.write_all(answer).await;
    let _ = socket.shutdown().await;
}

impl TlsStream {
    /// Reads ciphertext once, decrypts it behind the plaintext that waits, and says how much came; 0 at the end.
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
                // With an error it is the alert.
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

    /// Sends what is encrypted.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outgoing.is_empty() {
            let socket = Pin::new(&mut self.socket);
            let sent = ready!(socket.poll_write(context, &self.outgoing))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let _ = self.outgoing.split_to(sent);
        }
        // An idle connection holds no buffer.
        self.outgoing = BytesMut::new();
        Poll::Ready(Ok(()))
    }

    /// Encrypts into what is to be sent.
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
        // What does not leave now leaves with the flush.
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

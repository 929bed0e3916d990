//! One established connection: frames with their length in front, in both directions.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::sockopt;
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

/// Bytes of the length in front of a frame.
const LENGTH_BYTES: usize = 4;
/// The longest frame. A link sends at most half of it.
const FRAME_BYTES_MAX: usize = 1 << 20;
/// Frames that wait for the socket. A link has at most 4 MiB in flight, once more after a break.
const OUTGOING_BYTES_MAX: usize = 16 << 20;
const READ_BYTES: usize = 64 << 10;
/// The buffer grows if it has less room. A TLS record has at most 16 KiB.
const READ_BYTES_MIN: usize = 16 << 10;
/// A buffer that was larger once is given back.
const KEPT_BYTES: usize = 256 << 10;

/// The kernel ends the connection if sent bytes are not acknowledged for this time. The link gives up earlier, but a link may end.
const USER_TIMEOUT: Duration = Duration::from_secs(5);
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEPALIVE_COUNT: u32 = 3;

/// Sets the options of a socket, of which none is essential.
pub(super) fn set_options(socket: &TcpStream) {
    let _ = socket.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(socket, true);
    let _ = sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE);
    let _ = sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL);
    let _ = sockopt::set_tcp_keepcnt(socket, KEEPALIVE_COUNT);
    let timeout = u32::try_from(USER_TIMEOUT.as_millis()).unwrap_or(u32::MAX);
    let _ = sockopt::set_tcp_user_timeout(socket, timeout);
}

/// See the documentation of this module.
pub(super) struct Connection {
    stream: TlsStream<TcpStream>,
    /// Whether this process has dialed.
    pub is_dialed: bool,
    outgoing: Vec<u8>,
    /// The bytes of `outgoing` that the stream has taken.
    taken: usize,
    needs_flush: bool,
    /// The buffer of reads; only `filled` bytes of it have arrived.
    incoming: Vec<u8>,
    filled: usize,
    /// The bytes of `incoming` that were returned as frames.
    parsed: usize,
}

impl Connection {
    pub fn new(stream: impl Into<TlsStream<TcpStream>>, is_dialed: bool) -> Self {
        Self {
            stream: stream.into(),
            is_dialed,
            outgoing: Vec::new(),
            taken: 0,
            needs_flush: false,
            incoming: Vec::new(),
            filled: 0,
            parsed: 0,
        }
    }

    /// Takes a frame, or drops it if too many wait.
    pub fn send(&mut self, frame: &[u8]) {
        if self.outgoing.len() - self.taken + frame.len() > OUTGOING_BYTES_MAX {
            return;
        }
        let length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        self.outgoing.extend_from_slice(&length.to_le_bytes());
        self.outgoing.extend_from_slice(frame);
    }

    /// Writes what waits, as far as the socket takes it.
    pub fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.taken < self.outgoing.len() {
            let rest = &self.outgoing[self.taken..];
            let count = ready!(Pin::new(&mut self.stream).poll_write(context, rest))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.taken += count;
            self.needs_flush = true;
        }
        if self.taken > 0 {
            self.outgoing.clear();
            self.outgoing.shrink_to(KEPT_BYTES);
            self.taken = 0;
        }
        if self.needs_flush {
            ready!(Pin::new(&mut self.stream).poll_flush(context))?;
            self.needs_flush = false;
        }
        Poll::Ready(Ok(()))
    }

    /// The next frame. The end of the stream is an error.
    pub fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Vec<u8>>> {
        loop {
            if let Some(frame) = self.next_frame()? {
                return Poll::Ready(Ok(frame));
            }
            // The buffer keeps its length, because to clear it before each read costs more than a short read.
            if self.incoming.len() < self.filled + READ_BYTES_MIN {
                self.incoming.resize(self.filled + READ_BYTES, 0);
            }
            let mut buffer = ReadBuf::new(&mut self.incoming[self.filled..]);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer))?;
            let count = buffer.filled().len();
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            self.filled += count;
        }
    }

    fn next_frame(&mut self) -> io::Result<Option<Vec<u8>>> {
        let rest = &self.incoming[self.parsed..self.filled];
        if let Some((length, rest)) = rest.split_first_chunk::<LENGTH_BYTES>() {
            let length = u32::from_le_bytes(*length) as usize;
            if length > FRAME_BYTES_MAX {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("frame of {length} bytes, allowed are {FRAME_BYTES_MAX}"),
                ));
            }
            if let Some(frame) = rest.get(..length) {
                self.parsed += LENGTH_BYTES + length;
                return Ok(Some(frame.to_vec()));
            }
        }
        self.incoming.copy_within(self.parsed..self.filled, 0);
        self.filled -= self.parsed;
        self.parsed = 0;
        if self.filled == 0 && self.incoming.len() > KEPT_BYTES {
            self.incoming.truncate(KEPT_BYTES);
            self.incoming.shrink_to_fit();
        }
        Ok(None)
    }
}

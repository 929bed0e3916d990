//! The TLS state of one connection without its socket: converts records to plaintext and back.
//!
//! It uses rustls in its unbuffered form, which owns no buffers: records are decrypted where they were read and
//! encrypted where they are sent from. The front drives it during the handshake and HTTP, a shard from the upgrade
//! on.

use std::io;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic,
};

/// The largest plaintext of one record.
pub const RECORD_BYTES_MAX: usize = 16 << 10;

/// Space before the ciphertext in a buffer for [`TlsState::open`]. Plaintext is written there, and it overtakes the
/// ciphertext by at most one record.
pub const HEADROOM: usize = RECORD_BYTES_MAX;

/// The largest ciphertext that is stored until its record or handshake message is complete. Rustls refuses records
/// above 18 KiB and handshake messages above 64 KiB long before.
pub const KEPT_BYTES_MAX: usize = 96 << 10;

/// More than the overhead of a record, a pending key update and the key update that rustls may add.
const OVERHEAD_MAX: usize = 256;

/// Why a connection can't continue.
#[derive(Debug)]
pub enum TlsError {
    /// The peer broke the protocol, or the two sides have no common parameters.
    Rustls(rustls::Error),
    /// The keys have reached their limit of uses, and the protocol's version has no key update.
    KeysExhausted,
    /// A record or handshake message exceeds the limit before it is complete.
    TooLong,
    /// Rustls requests a feature that the server never offers.
    Unexpected,
}

impl std::fmt::Display for TlsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Rustls(error) => error.fmt(f),
            Self::KeysExhausted => f.write_str("the keys have reached their limit of uses"),
            Self::TooLong => f.write_str("a record or handshake message is too long"),
            Self::Unexpected => f.write_str("the peer used a feature that was not offered"),
        }
    }
}

impl std::error::Error for TlsError {}

impl From<TlsError> for io::Error {
    fn from(error: TlsError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

/// The result of [`TlsState::open`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Plaintext bytes, at the start of the buffer.
    pub plaintext: usize,
    /// The start of the ciphertext of an incomplete record.
    pub rest: usize,
}

/// The TLS side of one connection.
pub struct TlsState {
    rustls: UnbufferedServerConnection,
    /// Ciphertext of an incomplete record.
    kept: Vec<u8>,
    /// Rustls's own records to send: handshake, tickets, alerts. They are encrypted, so they must leave before all
    /// records that are encrypted later.
    outgoing: Vec<u8>,
    is_established: bool,
    is_peer_closed: bool,
    is_closed: bool,
}

impl std::fmt::Debug for TlsState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsState")
            .field("is_established", &self.is_established)
            .field("kept", &self.kept.len())
            .field("outgoing", &self.outgoing.len())
            .finish_non_exhaustive()
    }
}

impl TlsState {
    /// The state before the first byte.
    ///
    /// # Errors
    /// The configuration contradicts itself.
    pub fn new(config: Arc<ServerConfig>) -> Result<Self, TlsError> {
        Ok(Self {
            rustls: UnbufferedServerConnection::new(config).map_err(TlsError::Rustls)?,
            kept: Vec::new(),
            outgoing: Vec::new(),
            is_established: false,
            is_peer_closed: false,
            is_closed: false,
        })
    }

    /// Whether the handshake has ended, so that plaintext may be sent.
    #[must_use]
    pub fn is_established(&self) -> bool {
        self.is_established
    }

    /// Whether the peer has announced that it sends nothing more.
    #[must_use]
    pub fn is_peer_closed(&self) -> bool {
        self.is_peer_closed
    }

    /// The negotiated protocol above TLS, for the log.
    #[must_use]
    pub fn alpn(&self) -> Option<&[u8]> {
        self.rustls.alpn_protocol()
    }

    /// The peer's verified certificate, as DER. A resumed connection has the certificate of its first handshake.
    #[must_use]
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        let chain = self.rustls.peer_certificates()?;
        chain.first().map(AsRef::as_ref)
    }

    /// Bytes in memory of this connection alone that wait for the rest of their record.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.kept.len()
    }

    /// Records that must be sent before all records that are sealed later.
    #[must_use]
    pub fn take_outgoing(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.outgoing)
    }

    /// Returns taken records that were not sent.
    pub fn put_back_outgoing(&mut self, outgoing: &[u8]) {
        self.outgoing.splice(..0, outgoing.iter().copied());
    }

    /// Whether [`TlsState::take_outgoing`] has records.
    #[must_use]
    pub fn has_outgoing(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Copies the stored rest of the last read to `buffer[HEADROOM..]` and returns the position of the next read.
    pub fn load_kept(&self, buffer: &mut [u8]) -> usize {
        let end = HEADROOM + self.kept.len();
        buffer[HEADROOM..end].copy_from_slice(&self.kept);
        end
    }

    /// Decrypts all complete records in `buffer[HEADROOM..]`, which begins with the bytes of [`TlsState::load_kept`].
    /// The plaintext is at the start of `buffer` afterwards; an incomplete record is stored.
    ///
    /// # Errors
    /// The connection can't continue; [`TlsState::take_outgoing`] may have an alert for the peer.
    pub fn open(&mut self, buffer: &mut [u8]) -> Result<usize, TlsError> {
        match self.open_records(buffer) {
            Ok(Opened { plaintext, rest }) => {
                self.keep(&buffer[rest..])?;
                Ok(plaintext)
            }
            Err(error) => {
                self.collect_alert();
                Err(error)
            }
        }
    }

    fn keep(&mut self, rest: &[u8]) -> Result<(), TlsError> {
        if rest.len() > KEPT_BYTES_MAX {
            return Err(TlsError::TooLong);
        }
        // An idle connection holds no buffer: an empty vector has no memory.
        self.kept = rest.to_vec();
        Ok(())
    }

    fn open_records(&mut self, buffer: &mut [u8]) -> Result<Opened, TlsError> {
        let (mut plaintext, mut rest) = (0, HEADROOM);
        loop {
            let (before, ciphertext) = buffer.split_at_mut(rest);
            let UnbufferedStatus { mut discard, state } =
                self.rustls.process_tls_records(ciphertext);
            let mut is_done = false;
            match state.map_err(TlsError::Rustls)? {
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record.map_err(TlsError::Rustls)?;
                        discard += record.discard;
                        let end = plaintext + record.payload.len();
                        let room = before.get_mut(plaintext..end).ok_or(TlsError::TooLong)?;
                        room.copy_from_slice(record.payload);
                        plaintext = end;
                    }
                }
                ConnectionState::EncodeTlsData(mut data) => encode(&mut data, &mut self.outgoing)?,
                // The bytes are in order in `outgoing`, so for rustls they count as sent.
                ConnectionState::TransmitTlsData(transmit) => transmit.done(),
                ConnectionState::PeerClosed => self.is_peer_closed = true,
                ConnectionState::WriteTraffic(_) => {
                    // A server may send before the client has proved itself.
                    self.is_established = !self.rustls.is_handshaking();
                    is_done = true;
                }
                ConnectionState::BlockedHandshake | ConnectionState::Closed => is_done = true,
                // Early data is disabled.
                _ => return Err(TlsError::Unexpected),
            }
            rest += discard;
            if is_done {
                return Ok(Opened { plaintext, rest });
            }
        }
    }

    /// After an error rustls has an alert for the peer.
    fn collect_alert(&mut self) {
        while self.rustls.wants_write() {
            let UnbufferedStatus { state, .. } = self.rustls.process_tls_records(&mut self.kept);
            let Ok(ConnectionState::EncodeTlsData(mut data)) = state else {
                return;
            };
            if encode(&mut data, &mut self.outgoing).is_err() {
                return;
            }
        }
    }

    /// The space that [`TlsState::seal`] needs for this many bytes.
    #[must_use]
    pub fn room_for(&self, plaintext_bytes: usize) -> usize {
        let records = plaintext_bytes.div_ceil(RECORD_BYTES_MAX);
        self.outgoing.len() + plaintext_bytes + (records + 1) * OVERHEAD_MAX
    }

    /// Encrypts `plaintext` into `room`, in records of at most [`RECORD_BYTES_MAX`] plaintext bytes, and returns the
    /// number of written bytes.
    ///
    /// # Errors
    /// The handshake has not ended, the connection was closed, or the keys are exhausted.
    pub fn seal(&mut self, plaintext: &[u8], room: &mut [u8]) -> Result<usize, TlsError> {
        self.write(room, |traffic, room| traffic.encrypt(plaintext, room))
    }

    /// Writes the close message into `room` and returns its length. Nothing can be sealed afterwards; a second call
    /// writes nothing.
    ///
    /// # Errors
    /// The handshake has not ended.
    pub fn seal_end(&mut self, room: &mut [u8]) -> Result<usize, TlsError> {
        if std::mem::replace(&mut self.is_closed, true) {
            return Ok(0);
        }
        self.write(room, |traffic, room| traffic.queue_close_notify(room))
    }

    fn write(
        &mut self,
        room: &mut [u8],
        write: impl FnOnce(&mut WriteTraffic<'_, Data>, &mut [u8]) -> Result<usize, EncryptError>,
    ) -> Result<usize, TlsError> {
        loop {
            // Rustls may have stored its position in an unfinished handshake message, so it must see the same bytes
            // again.
            let status = self.rustls.process_tls_records(&mut self.kept);
            let discard = status.discard;
            match status.state.map_err(TlsError::Rustls)? {
                ConnectionState::WriteTraffic(mut traffic) => {
                    let own = std::mem::take(&mut self.outgoing);
                    let (before, behind) = room
                        .split_at_mut_checked(own.len())
                        .ok_or(TlsError::Unexpected)?;
                    before.copy_from_slice(&own);
                    let written = write(&mut traffic, behind).map_err(|error| match error {
                        EncryptError::EncryptExhausted => TlsError::KeysExhausted,
                        EncryptError::InsufficientSize(_) => TlsError::Unexpected,
                    })?;
                    self.kept.drain(..discard);
                    return Ok(own.len() + written);
                }
                ConnectionState::EncodeTlsData(mut data) => encode(&mut data, &mut self.outgoing)?,
                ConnectionState::TransmitTlsData(transmit) => transmit.done(),
                ConnectionState::PeerClosed => self.is_peer_closed = true,
                _ => return Err(TlsError::Unexpected),
            }
            self.kept.drain(..discard);
        }
    }
}

type Data = ServerConnectionData;

fn encode(data: &mut EncodeTlsData<'_, Data>, out: &mut Vec<u8>) -> Result<(), TlsError> {
    let start = out.len();
    let mut room = 0;
    loop {
        out.resize(start + room, 0);
        match data.encode(&mut out[start..]) {
            Ok(written) => {
                out.truncate(start + written);
                return Ok(());
            }
            Err(EncodeError::InsufficientSize(size)) => room = size.required_size,
            Err(EncodeError::AlreadyEncoded) => return Err(TlsError::Unexpected),
        }
    }
}

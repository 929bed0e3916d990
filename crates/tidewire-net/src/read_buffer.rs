//! A shard's one read buffer, and the small remainder that a connection stores of an incomplete frame.
//!
//! TLS records are decrypted in that buffer. An idle connection holds no buffer: it reads into the shard's, and only
//! the bytes of an incomplete frame are copied into memory of the connection, which is freed as soon as it is empty.

use std::io::{self, Read};
use std::net::TcpStream;

use crate::tls::{HEADROOM, TlsState};

/// The largest read from one socket before other sockets have their turn. The shortest messages of this many bytes
/// take a millisecond.
pub const READ_BYTES_MAX: usize = 64 << 10;

/// A remainder above this capacity is moved into a smaller allocation when little of it is left.
const KEPT_CAPACITY_MAX: usize = 4 << 10;

/// The room for a large message grows by this factor.
const GROWTH: usize = 4;

/// Bytes of an incomplete frame of a connection. One word while it is empty.
#[derive(Debug, Default)]
pub struct Remainder(Option<Box<Kept>>);

#[derive(Debug)]
struct Kept {
    bytes: Vec<u8>,
    /// The number of bytes below which another attempt to decode makes no sense.
    needed: usize,
}

impl Kept {
    /// Appends bytes. Each growth copies everything before it, so the room for a large message grows to four times the size, but never
    /// beyond the message: it is in proportion to what the peer has sent.
    fn append(&mut self, bytes: &[u8]) {
        let length = self.bytes.len();
        let grown = (length * GROWTH).min(self.needed);
        if self.bytes.capacity() < length + bytes.len() && grown > length + bytes.len() {
            self.bytes.reserve_exact(grown - length);
        }
        self.bytes.extend_from_slice(bytes);
    }
}

impl Remainder {
    /// Bytes that came with the connection and must be handled before anything is read.
    #[must_use]
    pub fn from_unread(bytes: &[u8]) -> Self {
        Self::keep(bytes.to_vec(), 0)
    }

    /// Whether bytes are stored.
    #[must_use]
    pub fn has_bytes(&self) -> bool {
        self.0.is_some()
    }

    /// The size of the memory for the stored bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.as_ref().map_or(0, |kept| kept.bytes.capacity())
    }

    /// The stored bytes.
    #[must_use]
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0.map_or_else(Vec::new, |kept| kept.bytes)
    }

    fn keep(bytes: Vec<u8>, needed: usize) -> Self {
        Self((!bytes.is_empty()).then(|| Box::new(Kept { bytes, needed })))
    }
}

/// The result of a read.
#[derive(Debug)]
pub enum ReadOutcome {
    /// This many bytes, and the socket is empty.
    Drained(usize),
    /// This many bytes, and there may be more.
    More(usize),
    /// The peer's last byte was read earlier.
    End,
    /// The connection is broken.
    Failed(io::Error),
}

/// The buffer that all connections of a shard read into, one at a time.
#[derive(Debug)]
pub struct ReadBuffer {
    shared: Vec<u8>,
    /// The remainder of the connection being read, with the new bytes; replaces the shared buffer while it is not
    /// empty.
    kept: Vec<u8>,
    start: usize,
    end: usize,
}

impl Default for ReadBuffer {
    fn default() -> Self {
        Self {
            shared: vec![0; HEADROOM + READ_BYTES_MAX],
            kept: Vec::new(),
            start: 0,
            end: 0,
        }
    }
}

impl ReadBuffer {
    /// Reads once from a nonblocking socket and appends to the bytes of `remainder`. Afterwards
    /// [`ReadBuffer::unread`] returns the bytes to decode; it is empty while `remainder` needs more.
    pub fn read(&mut self, socket: &TcpStream, remainder: &mut Remainder) -> ReadOutcome {
        debug_assert!(
            self.start == self.end,
            "the unread bytes of the previous connection were stored"
        );
        let room = &mut self.shared[..READ_BYTES_MAX];
        let outcome = read_once(socket, room);
        if let ReadOutcome::Drained(count) | ReadOutcome::More(count) = outcome
            && count > 0
        {
            self.place(count, remainder);
        }
        outcome
    }

    /// The same for a connection with TLS. It decrypts records in place. The count is that of the socket, so there
    /// may be a count without bytes to decode.
    pub fn read_sealed(
        &mut self,
        socket: &TcpStream,
        tls: &mut TlsState,
        remainder: &mut Remainder,
    ) -> ReadOutcome {
        debug_assert!(
            self.start == self.end,
            "the unread bytes of the previous connection were stored"
        );
        if tls.is_peer_closed() {
            return ReadOutcome::End;
        }
        let from = tls.load_kept(&mut self.shared);
        let outcome = read_once(socket, &mut self.shared[from..]);
        let (ReadOutcome::Drained(count) | ReadOutcome::More(count)) = outcome else {
            return outcome;
        };
        if count == 0 {
            return outcome;
        }
        match tls.open(&mut self.shared[..from + count]) {
            Ok(plaintext) if plaintext > 0 => self.place(plaintext, remainder),
            Ok(_) => {}
            Err(error) => return ReadOutcome::Failed(error.into()),
        }
        if tls.is_peer_closed() {
            // The next read reports it, after these bytes were handled.
            return ReadOutcome::More(count);
        }
        outcome
    }

    /// Loads the bytes of `remainder` without reading: unread bytes of an upgraded socket, or bytes after a message
    /// that had to wait.
    pub fn load(&mut self, remainder: &mut Remainder) {
        debug_assert!(
            self.start == self.end,
            "the unread bytes of the previous connection were stored"
        );
        if let Some(kept) = remainder.0.take() {
            self.kept = kept.bytes;
            (self.start, self.end) = (0, self.kept.len());
        }
    }

    fn place(&mut self, count: usize, remainder: &mut Remainder) {
        let Some(mut kept) = remainder.0.take() else {
            (self.start, self.end) = (0, count);
            return;
        };
        kept.append(&self.shared[..count]);
        if kept.bytes.len() < kept.needed {
            remainder.0 = Some(kept);
            return;
        }
        self.kept = kept.bytes;
        (self.start, self.end) = (0, self.kept.len());
    }

    /// The unconsumed bytes. The caller may change them in place.
    pub fn unread(&mut self) -> &mut [u8] {
        let bytes = if self.kept.is_empty() {
            &mut self.shared
        } else {
            &mut self.kept
        };
        &mut bytes[self.start..self.end]
    }

    /// Drops the first `count` unread bytes.
    pub fn consume(&mut self, count: usize) {
        debug_assert!(
            count <= self.end - self.start,
            "only unread bytes are consumed"
        );
        self.start += count;
    }

    /// Moves the unconsumed bytes into `remainder` until it has `needed` bytes, and frees the buffer for the next
    /// connection.
    pub fn store_rest(&mut self, remainder: &mut Remainder, needed: usize) {
        let (start, end) = (self.start, self.end);
        (self.start, self.end) = (0, 0);
        let mut kept = std::mem::take(&mut self.kept);
        if start == end {
            return;
        }
        let rest = if kept.is_empty() {
            self.shared[start..end].to_vec()
        } else if kept.capacity() > KEPT_CAPACITY_MAX && end - start < kept.capacity() / 4 {
            kept[start..end].to_vec()
        } else {
            kept.drain(..start);
            kept
        };
        *remainder = Remainder::keep(rest, needed);
    }

    /// Drops the unconsumed bytes, because their connection closes.
    pub fn discard(&mut self) {
        self.kept = Vec::new();
        (self.start, self.end) = (0, 0);
    }
}

fn read_once(mut socket: &TcpStream, room: &mut [u8]) -> ReadOutcome {
    loop {
        return match socket.read(room) {
            Ok(0) => ReadOutcome::End,
            Ok(count) if count < room.len() => ReadOutcome::Drained(count),
            Ok(count) => ReadOutcome::More(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => ReadOutcome::Drained(0),
            Err(error) => ReadOutcome::Failed(error),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0, client)
    }

    #[test]
    fn a_rest_is_found_again_before_the_next_bytes() {
        let (server, mut client) = pair();
        let (mut buffer, mut remainder) = (ReadBuffer::default(), Remainder::default());
        client.write_all(b"abcdef").unwrap();
        assert!(matches!(
            buffer.read(&server, &mut remainder),
            ReadOutcome::Drained(6)
        ));
        assert_eq!(buffer.unread(), b"abcdef");
        buffer.consume(4);
        buffer.store_rest(&mut remainder, 3);
        assert_eq!(remainder.0.as_ref().map(|kept| kept.bytes.len()), Some(2));
        client.write_all(b"gh").unwrap();
        buffer.read(&server, &mut remainder);
        assert_eq!(buffer.unread(), b"efgh");
        buffer.consume(4);
        buffer.store_rest(&mut remainder, 0);
        assert!(remainder.0.is_none(), "an idle connection holds no buffer");
    }

    #[test]
    fn a_rest_that_needs_more_is_not_shown() {
        let (server, mut client) = pair();
        let (mut buffer, mut remainder) = (ReadBuffer::default(), Remainder::default());
        for byte in b"ab" {
            client.write_all(&[*byte]).unwrap();
            buffer.read(&server, &mut remainder);
            if *byte == b'a' {
                buffer.store_rest(&mut remainder, 3);
            }
        }
        assert!(buffer.unread().is_empty());
        client.write_all(b"c").unwrap();
        buffer.read(&server, &mut remainder);
        assert_eq!(buffer.unread(), b"abc");
    }

    #[test]
    fn a_large_message_is_copied_rarely_and_has_no_more_room_than_it_needs() {
        let needed = 1 << 20;
        let mut kept = Kept {
            bytes: vec![0; 64 << 10],
            needed,
        };
        let mut growths = 0;
        while kept.bytes.len() < needed {
            let (length, capacity) = (kept.bytes.len(), kept.bytes.capacity());
            kept.append(&[0; 16 << 10]);
            growths += usize::from(kept.bytes.capacity() > capacity);
            assert!(kept.bytes.capacity() <= (GROWTH * length).min(needed));
        }
        assert_eq!((growths, kept.bytes.capacity()), (2, needed));
    }

    #[test]
    fn unread_bytes_of_an_upgraded_socket_come_first() {
        let mut buffer = ReadBuffer::default();
        let mut remainder = Remainder::from_unread(b"xyz");
        buffer.load(&mut remainder);
        assert_eq!(buffer.unread(), b"xyz");
        buffer.consume(1);
        buffer.store_rest(&mut remainder, 0);
        buffer.load(&mut remainder);
        assert_eq!(buffer.unread(), b"yz");
    }

    #[test]
    fn a_small_rest_of_a_large_frame_gives_its_memory_back() {
        let mut buffer = ReadBuffer::default();
        let mut remainder = Remainder::from_unread(&vec![0; 1 << 20]);
        buffer.load(&mut remainder);
        buffer.consume((1 << 20) - 10);
        buffer.store_rest(&mut remainder, 0);
        assert!(remainder.0.unwrap().bytes.capacity() <= KEPT_CAPACITY_MAX);
    }

    #[test]
    fn the_end_of_the_stream_is_reported() {
        let (server, client) = pair();
        let (mut buffer, mut remainder) = (ReadBuffer::default(), Remainder::default());
        server.set_nonblocking(true).unwrap();
        assert!(matches!(
            buffer.read(&server, &mut remainder),
            ReadOutcome::Drained(0)
        ));
        drop(client);
        server.set_nonblocking(false).unwrap();
        assert!(matches!(
            buffer.read(&server, &mut remainder),
            ReadOutcome::End
        ));
    }
}

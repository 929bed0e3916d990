//! Counts the idle frames of a peer. An idle frame requests no work: a ping, settings, a priority, GOAWAY, an unknown frame, or
//! a window update for bytes that the server never sent.
//!
//! The library answers or drops each such frame at once and does not count them, so a flood of them would cost the server work
//! without limit.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::activity::Activity;

/// Bytes of the client's preface, which comes before the first frame (RFC 9113, section 3.4).
const PREFACE_BYTES: usize = 24;
/// Bytes before the payload of a frame (RFC 9113, section 4.1).
const HEAD_BYTES: usize = 9;

/// The server must have sent this number of bytes for each window update that does not count as idle. Clients send an update
/// for each half of a window, or for each frame that they have read. 256 bytes correspond to small reads of a small window, the
/// worst case that makes sense.
const BYTES_PER_UPDATE: usize = 256;
/// Limit of `unanswered_bytes`. With more, a long download would let the peer save up credit for a flood.
const UNANSWERED_BYTES_MAX: usize = 4 << 20;

/// Counts of the frames that are or may be idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Idle {
    /// Frames that are always idle.
    frames: usize,
    /// Window updates. They are idle unless they answer bytes that the server has sent.
    updates: usize,
}

/// The position in the peer's byte stream relative to its frames.
#[derive(Debug)]
struct Frames {
    /// Bytes of the preface or of the current payload that have not arrived yet.
    rest: usize,
    /// The head of the next frame, as far as it has arrived.
    head: [u8; HEAD_BYTES],
    head_bytes: usize,
}

impl Frames {
    fn new() -> Self {
        Self {
            rest: PREFACE_BYTES,
            head: [0; HEAD_BYTES],
            head_bytes: 0,
        }
    }

    /// Consumes the next bytes and counts the idle frames that begin in them.
    fn idle_in(&mut self, mut bytes: &[u8]) -> Idle {
        let mut count = Idle::default();
        while !bytes.is_empty() {
            let skipped = self.rest.min(bytes.len());
            self.rest -= skipped;
            bytes = &bytes[skipped..];
            let taken = (HEAD_BYTES - self.head_bytes).min(bytes.len());
            self.head[self.head_bytes..self.head_bytes + taken].copy_from_slice(&bytes[..taken]);
            self.head_bytes += taken;
            bytes = &bytes[taken..];
            if self.head_bytes == HEAD_BYTES {
                let [high, middle, low, kind, ..] = self.head;
                self.rest = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
                self.head_bytes = 0;
                match kind {
                    WINDOW_UPDATE => count.updates += 1,
                    kind if is_idle(kind) => count.frames += 1,
                    _ => {}
                }
            }
        }
        count
    }
}

const WINDOW_UPDATE: u8 = 8;

/// Whether a frame of this type (RFC 9113, section 11.2) is idle. Frames that open, fill or reset streams are not, and neither
/// is CONTINUATION: for all of these the library has its own limits.
fn is_idle(kind: u8) -> bool {
    const PRIORITY: u8 = 2;
    const SETTINGS: u8 = 4;
    const PING: u8 = 6;
    const GOAWAY: u8 = 7;
    const CONTINUATION: u8 = 9;
    matches!(kind, PRIORITY | SETTINGS | PING | GOAWAY) || kind > CONTINUATION
}

/// A stream that counts the idle frames while it is read.
#[derive(Debug)]
pub(super) struct Counted<S> {
    stream: S,
    frames: Frames,
    /// Bytes that the server has sent and for which the peer has not yet sent a window update.
    unanswered_bytes: usize,
    activity: Arc<Activity>,
}

impl<S> Counted<S> {
    /// Wraps a stream from which nothing was read yet.
    pub(super) fn new(stream: S, activity: Arc<Activity>) -> Self {
        Self {
            stream,
            frames: Frames::new(),
            unanswered_bytes: 0,
            activity,
        }
    }

    /// The frames of `idle` that count towards a flood: all but the window updates that answer bytes that the server has sent.
    fn needless(&mut self, idle: Idle) -> usize {
        let answering = idle.updates.min(self.unanswered_bytes / BYTES_PER_UPDATE);
        self.unanswered_bytes -= answering * BYTES_PER_UPDATE;
        idle.frames + idle.updates - answering
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // After a flood the server reads nothing more. `Activity::flooded` has woken the task that ends the connection.
        if this.activity.is_flood() {
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        let idle = this.frames.idle_in(&buffer.filled()[before..]);
        let count = this.needless(idle);
        if count > 0 {
            this.activity.note_idle_frames(count, Instant::now());
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.stream).poll_write(context, bytes))?;
        let unanswered = this.unanswered_bytes.saturating_add(written);
        this.unanswered_bytes = unanswered.min(UNANSWERED_BYTES_MAX);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, payload_bytes: u16) -> Vec<u8> {
        let [high, low] = payload_bytes.to_be_bytes();
        let mut frame = vec![0, high, low, kind, 0, 0, 0, 0, 0];
        // The payload looks like the heads of frames.
        frame.resize(HEAD_BYTES + usize::from(payload_bytes), 6);
        frame
    }

    #[test]
    fn frames_are_counted_wherever_the_bytes_are_split() {
        let mut bytes = vec![6; PREFACE_BYTES];
        for (kind, payload_bytes) in [
            (4, 18),
            (1, 300),
            (0, 1_000),
            (0, 0),
            (6, 8),
            (6, 8),
            (2, 5),
            (3, 4),
            (8, 4),
            (9, 0),
            (8, 4),
            (7, 8),
            (16, 0),
            (255, 40),
        ] {
            bytes.extend(frame(kind, payload_bytes));
        }
        for size in [1, 2, 7, 9, 10, 24, 33, 500, bytes.len()] {
            let mut frames = Frames::new();
            let mut count = Idle::default();
            for idle in bytes.chunks(size).map(|part| frames.idle_in(part)) {
                count.frames += idle.frames;
                count.updates += idle.updates;
            }
            let expected = Idle {
                frames: 7,
                updates: 2,
            };
            assert_eq!(count, expected, "in parts of {size}");
        }
    }

    #[tokio::test]
    async fn window_updates_that_answer_what_was_sent_are_no_flood() {
        use tokio::io::AsyncWriteExt as _;

        let mut counted = Counted::new(tokio::io::sink(), Activity::new(1));
        let updates = |updates| Idle { frames: 0, updates };
        assert_eq!(counted.needless(updates(3)), 3);
        counted
            .write_all(&[0; 10 * BYTES_PER_UPDATE])
            .await
            .expect("a sink");
        assert_eq!(counted.needless(updates(8)), 0);
        assert_eq!(counted.needless(updates(8)), 6);
        let idle = Idle {
            frames: 2,
            updates: 0,
        };
        assert_eq!(counted.needless(idle), 2);
    }
}

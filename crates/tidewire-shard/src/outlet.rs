//! The output of a connection of the front: it notifies when a piece has reached the kernel, and a shard can shut it at once.
//!
//! Hyper, h2 and TLS keep bytes that the peer does not read. So a piece that a caller must track is passed to them as [`Bytes`] that
//! notify when the library releases them. The next successful flush has passed them to the kernel, because both libraries report a flush
//! as complete only when they hold back no released bytes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, oneshot};

/// The output of one connection.
#[derive(Debug, Default)]
pub struct Outlet {
    state: Mutex<State>,
    was_shut: Notify,
    /// Streams of server-sent events that are open on the connection.
    streams: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    /// Whether no more bytes leave.
    is_shut: bool,
    /// Waiters for pieces that the library has released since the last flush.
    released: Vec<oneshot::Sender<()>>,
    /// Wakes the task that drives the connection.
    driver: Option<Waker>,
}

impl Outlet {
    /// A piece to be sent, and a receiver that is notified when it has reached the kernel, or gets an error if it never will.
    pub fn piece(self: &Arc<Self>, text: String) -> (Bytes, oneshot::Receiver<()>) {
        let (left, receiver) = oneshot::channel();
        let piece = Piece {
            text,
            outlet: Arc::clone(self),
            left: Some(left),
        };
        (Bytes::from_owner(piece), receiver)
    }

    /// When this returns, no more bytes leave, and the connection is closing.
    pub fn shut(&self) {
        self.close();
        self.was_shut.notify_one();
    }

    /// Waits until the outlet is shut. Only one task may wait.
    pub async fn was_shut(&self) {
        self.was_shut.notified().await;
    }

    /// Whether streams are open.
    pub fn has_streams(&self) -> bool {
        self.streams.load(Ordering::Acquire) > 0
    }

    /// Counts a stream.
    pub fn begin_stream(&self) {
        self.streams.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts the end of a stream.
    pub fn end_stream(&self) {
        self.streams.fetch_sub(1, Ordering::AcqRel);
    }

    fn close(&self) {
        let mut state = self.state.lock();
        state.is_shut = true;
        state.released.clear();
        state.driver = None;
    }

    /// The library has released a piece. It may have flushed before, so the driver is woken to flush again.
    fn release(&self, left: oneshot::Sender<()>) {
        let mut state = self.state.lock();
        if state.is_shut {
            return;
        }
        state.released.push(left);
        let driver = state.driver.clone();
        drop(state);
        if let Some(driver) = driver {
            driver.wake();
        }
    }
}

/// The owner of a piece's bytes, dropped with the last part of them.
struct Piece {
    text: String,
    outlet: Arc<Outlet>,
    left: Option<oneshot::Sender<()>>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if let Some(left) = self.left.take() {
            self.outlet.release(left);
        }
    }
}

/// A stream whose bytes leave through an outlet.
#[derive(Debug)]
pub struct Outflow<S> {
    stream: S,
    end: OutflowEnd,
}

/// Closes the outlet with its stream.
#[derive(Debug)]
struct OutflowEnd(Arc<Outlet>);

impl Drop for OutflowEnd {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<S> Outflow<S> {
    /// The one stream of `outlet`.
    pub fn new(stream: S, outlet: Arc<Outlet>) -> Self {
        Self {
            stream,
            end: OutflowEnd(outlet),
        }
    }

    /// The stream itself. The outlet is closed.
    pub fn into_inner(self) -> S {
        self.stream
    }
}

impl<S: AsyncWrite + Unpin> Outflow<S> {
    /// Runs an operation that may write, unless the outlet is shut. No task can shut it during the operation.
    fn poll_open<T>(
        &mut self,
        context: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>, &mut State) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let mut state = self.end.0.state.lock();
        if state.is_shut {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        match &mut state.driver {
            Some(driver) => driver.clone_from(context.waker()),
            None => state.driver = Some(context.waker().clone()),
        }
        write(Pin::new(&mut self.stream), context, &mut state)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Outflow<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Outflow<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let write = |stream: Pin<&mut S>, context: &mut Context<'_>, _: &mut State| {
            stream.poll_write(context, bytes)
        };
        self.get_mut().poll_open(context, write)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_open(context, |stream, context, state| {
            ready!(stream.poll_flush(context))?;
            for left in state.released.drain(..) {
                // The caller may have stopped waiting.
                let _ = left.send(());
            }
            Poll::Ready(Ok(()))
        })
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut()
            .poll_open(context, |stream, context, _| stream.poll_shutdown(context))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;
    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;

    /// Takes bytes like TLS: they have reached the kernel with the flush.
    #[derive(Debug, Default)]
    struct Holding {
        written: Vec<u8>,
        is_full: bool,
    }

    impl AsyncWrite for Holding {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.written.extend_from_slice(bytes);
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            match self.is_full {
                true => Poll::Pending,
                false => Poll::Ready(Ok(())),
            }
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn open() -> (Arc<Outlet>, Outflow<Holding>) {
        let outlet = Arc::new(Outlet::default());
        let flow = Outflow::new(Holding::default(), Arc::clone(&outlet));
        (outlet, flow)
    }

    fn poll_flush(flow: &mut Outflow<Holding>) -> Poll<io::Result<()>> {
        Pin::new(flow).poll_flush(&mut Context::from_waker(Waker::noop()))
    }

    #[tokio::test]
    async fn a_piece_is_sent_with_the_flush_after_its_last_part() {
        let (outlet, mut flow) = open();
        let (mut piece, mut left) = outlet.piece("abc".into());
        let part = piece.split_to(1);
        flow.write_all(&part).await.expect("it is open");
        drop(part);
        flow.flush().await.expect("it is open");
        assert_eq!(left.try_recv(), Err(TryRecvError::Empty));
        flow.write_all(&piece).await.expect("it is open");
        drop(piece);
        flow.stream.is_full = true;
        assert!(poll_flush(&mut flow).is_pending());
        assert_eq!(left.try_recv(), Err(TryRecvError::Empty));
        flow.stream.is_full = false;
        flow.flush().await.expect("it is open");
        assert_eq!(left.try_recv(), Ok(()));
    }

    #[tokio::test]
    async fn nothing_is_sent_after_the_shutdown() {
        let (outlet, mut flow) = open();
        flow.write_all(b"a").await.expect("it is open");
        let (held, mut never) = outlet.piece("b".into());
        let (dropped, mut lost) = outlet.piece("c".into());
        drop(dropped);
        outlet.shut();
        outlet.was_shut().await;
        assert!(flow.write_all(&held).await.is_err());
        assert!(flow.flush().await.is_err() && flow.shutdown().await.is_err());
        drop(held);
        assert_eq!(flow.stream.written, b"a");
        for receiver in [&mut never, &mut lost] {
            assert_eq!(receiver.try_recv(), Err(TryRecvError::Closed));
        }
    }

    #[test]
    fn a_lost_connection_ends_every_wait() {
        let (outlet, flow) = open();
        let (early, mut one) = outlet.piece("a".into());
        let (late, mut other) = outlet.piece("b".into());
        drop(early);
        drop(flow);
        drop(late);
        for receiver in [&mut one, &mut other] {
            assert_eq!(receiver.try_recv(), Err(TryRecvError::Closed));
        }
    }
}

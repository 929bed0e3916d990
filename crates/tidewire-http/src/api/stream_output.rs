//! The session of a stream and the way of its text to the client: pieces, keep-alives, and the end of clients that do not read.
//!
//! A stream sends a piece only after the kernel has taken the one before. If the client does not read, the session's channel fills, and
//! then the session lags like the session of a slow socket.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use tidewire_shard::carried_session::CarriedSession;
use tidewire_shard::outlet::Outlet;
use tidewire_shard::reply::{OwnedReply, Replies};
use tidewire_shard::share::{Caller as Holder, Refused, Standing};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::answer::{Body, HttpResponse};
use super::answer_room::{AnswerMemory, Reserved};
use super::caller::Caller;
use super::login::credentials_of_request;
use super::problem::Problem;
use super::{Api, ApiRequest};
use crate::refusal::{RequestRefusal, RequestRefusals};

/// The stream sends something at least once in this interval, so that proxies and the session's shard do not consider it dead.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Pieces that may wait between the stream's task and its socket. All others wait in the session's channel, where the shard can
/// still take them back when the session loses a right.
const PIECES_MAX: usize = 1;
/// How long a client may leave a piece unread while the node is short of memory. After that the stream ends, and the client
/// reconnects by itself.
const UNREAD_TIME: Duration = Duration::from_secs(10);
/// How often the stream checks that.
const UNREAD_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes of one frame. The HTTP library holds a whole frame in memory until the client has read all of it.
const FRAME_BYTES: usize = 64 << 10;

/// The body of a stream's answer.
#[derive(Debug)]
pub struct EventStream {
    pieces: mpsc::Receiver<Bytes>,
    /// The rest of the piece that is being sent.
    rest: Bytes,
    outlet: Arc<Outlet>,
    _standing: Arc<Standing>,
}

impl EventStream {
    /// The next frame; `None` after the last piece.
    pub(super) fn poll_piece(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Bytes>> {
        if self.rest.is_empty() {
            match ready!(self.pieces.poll_recv(context)) {
                Some(piece) => self.rest = piece,
                None => return Poll::Ready(None),
            }
        }
        let bytes = self.rest.len().min(FRAME_BYTES);
        // The outlet reports that a piece has left when the last part of it is dropped, which includes this frame.
        let frame = match bytes < self.rest.len() {
            true => self.rest.split_to(bytes),
            false => std::mem::take(&mut self.rest),
        };
        Poll::Ready(Some(frame))
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.outlet.end_stream();
    }
}

/// A stream whose session has logged in, and whose answer has not begun.
pub(super) struct OpenedStream {
    /// The session.
    pub(super) caller: Caller,
    /// The replies of the turn of its login.
    pub(super) first: Replies,
    standing: Arc<Standing>,
}

impl Api {
    /// Opens the session of a stream with the credentials of the ticket or of the request.
    pub(super) async fn open_stream(
        &self,
        request: &mut ApiRequest,
        ticket: Option<&str>,
    ) -> Result<OpenedStream, Problem> {
        let credentials = match ticket {
            Some(ticket) => self.redeem_ticket(ticket).await?,
            None => credentials_of_request(&request.parts)?,
        };
        let seat = self.streams.take(Holder::at(request.address.ip()), 1);
        let seat = seat.map_err(|refused| match refused {
            Refused::Full => {
                self.refused.count(RequestRefusal::Streams);
                Problem::BUSY
            }
            Refused::Share => {
                self.refused.count(RequestRefusal::StreamShare);
                Problem::SHARE
            }
        })?;
        let standing = Arc::new(Standing::new(seat));
        request.standing = Some(Arc::clone(&standing));
        let mut caller = self.stay(request, &credentials)?;
        let first = logged_in(&mut caller).await?;
        caller.hand_on_to(Arc::clone(&request.outlet));
        Ok(OpenedStream {
            caller,
            first,
            standing,
        })
    }

    /// Begins the answer of a stream, whose texts have about `bytes_max`.
    pub(super) fn begin_stream(
        &self,
        request: &ApiRequest,
        opened: OpenedStream,
        bytes_max: usize,
    ) -> (CarriedSession, StreamOutput, HttpResponse) {
        let (sender, pieces) = mpsc::channel(PIECES_MAX);
        let output = StreamOutput {
            sender,
            outlet: Arc::clone(&request.outlet),
            memory: self.memory.clone(),
            holder: request.caller(),
            bytes_max,
            refused: self.refused.clone(),
            keep_alive: KEEP_ALIVE_INTERVAL.min(self.limits.heartbeat_interval),
            last_sent: Instant::now(),
        };
        request.outlet.begin_stream();
        let body = EventStream {
            pieces,
            rest: Bytes::new(),
            outlet: Arc::clone(&request.outlet),
            _standing: opened.standing,
        };
        (opened.caller.into_session(), output, streaming(body))
    }
}

/// Waits until the login has succeeded, and returns all replies of that turn.
async fn logged_in(caller: &mut Caller) -> Result<Replies, Problem> {
    loop {
        let replies = caller.receive().await?;
        let mut is_open = false;
        for reply in replies.iter() {
            caller.check_login(reply)?;
            is_open |= matches!(reply, OwnedReply::LoggedIn { .. });
        }
        if is_open {
            return Ok(replies);
        }
    }
}

fn streaming(body: EventStream) -> HttpResponse {
    let mut answer = HttpResponse::new(Body::Stream(body));
    *answer.status_mut() = StatusCode::OK;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // No proxy may cache the stream, or delay it to compress more of it at once.
    headers.insert(
        CACHE_CONTROL,
        HeaderValue::from_static("no-store, no-transform"),
    );
    let unbuffered = HeaderName::from_static("x-accel-buffering");
    headers.insert(unbuffered, HeaderValue::from_static("no"));
    answer
}

/// The next thing that a stream has to do.
pub(super) enum Next {
    /// The session has replies.
    Take(Replies),
    /// Time has passed.
    Retry,
    /// Nothing was sent for so long that a keep-alive is due.
    KeepAlive,
    /// The session has ended. The client reconnects by itself, and its credentials may still be valid then.
    Ended,
    /// The client is gone.
    Gone,
}

/// The way of a stream's text to its client.
pub(super) struct StreamOutput {
    sender: mpsc::Sender<Bytes>,
    outlet: Arc<Outlet>,
    memory: AnswerMemory,
    /// The caller for which the memory counts.
    holder: Holder,
    /// Bytes of a large text. While the node has not this much memory, a client that does not read loses its stream.
    bytes_max: usize,
    refused: RequestRefusals,
    keep_alive: Duration,
    last_sent: Instant,
}

impl StreamOutput {
    /// The comment of a keep-alive.
    pub(super) const KEEP_ALIVE: &str = ": keep-alive\n\n";
    /// The comment that comes first, so that the client notices at once that it is connected.
    pub(super) const CONNECTED: &str = ": connected\n\n";
    /// The last piece of a stream whose session has ended.
    pub(super) const END: &str = "event: end\ndata: {}\n\n";

    /// Reserves memory for text; `None` if that is not possible now.
    pub(super) fn reserve(&self, bytes: usize) -> Option<Reserved> {
        self.memory.reserve(&self.holder, bytes)
    }

    /// Reserves memory for text. `None` if others hold it for too long; the stream has to end then.
    pub(super) async fn wait_for_memory(&self, bytes: usize) -> Option<Reserved> {
        let deadline = Instant::now() + UNREAD_TIME;
        self.memory.wait(&self.holder, bytes, deadline).await
    }

    /// Waits for replies of the session, at most for `patience`, or until a keep-alive is due.
    pub(super) async fn next(
        &mut self,
        session: &mut CarriedSession,
        patience: Option<Duration>,
    ) -> Next {
        let until_due = self.keep_alive.saturating_sub(self.last_sent.elapsed());
        let patience = patience.unwrap_or(until_due);
        let received = tokio::select! {
            received = timeout(patience, session.receive()) => received,
            () = self.sender.closed() => return Next::Gone,
        };
        match received {
            Ok(Ok(replies)) => Next::Take(replies),
            Ok(Err(_)) => Next::Ended,
            Err(_) if self.last_sent.elapsed() < self.keep_alive => Next::Retry,
            Err(_) => Next::KeepAlive,
        }
    }

    /// Sends text, whose memory is reserved. Returns false if the client is gone, or if it has not read for [`UNREAD_TIME`] while memory
    /// is short.
    pub(super) async fn send(&mut self, text: String, memory: Vec<Reserved>) -> bool {
        let (piece, left) = self.outlet.piece(text);
        if self.sender.send(piece).await.is_err() {
            return false;
        }
        // The stream takes no other chunk until the kernel has this piece. So a change of rights can wait for the bytes in
        // flight.
        let mut left = pin!(left);
        let offered = Instant::now();
        loop {
            match timeout(UNREAD_INTERVAL, left.as_mut()).await {
                Ok(has_left) => {
                    drop(memory);
                    self.last_sent = Instant::now();
                    return has_left.is_ok();
                }
                Err(_) if offered.elapsed() < UNREAD_TIME => {}
                Err(_) => {
                    let is_short = self.reserve(self.bytes_max).is_none();
                    if is_short {
                        self.refused.count(RequestRefusal::UnreadStream);
                        self.outlet.shut();
                        return false;
                    }
                }
            }
        }
    }

    /// Sends the last text of the stream.
    pub(super) async fn end(&self, text: String) {
        // The client may be gone.
        let _ = self.sender.send(Bytes::from(text)).await;
    }
}

/// Appends JSON without line ends, because a line end would end the field. JSON allows line ends only between tokens, where
/// they have no meaning.
pub(super) fn push_line(data: &str, out: &mut String) {
    out.extend(data.chars().filter(|symbol| !matches!(symbol, '\n' | '\r')));
}

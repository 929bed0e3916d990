//! The front's end of sessions of exchanges (`exchange.rs`).
//!
//! Each request names its session by a token, so it may arrive on any connection. A task that ends before its request is answered has lost
//! its client, and the session ends.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use tidewire_core::entry::ExchangeReply;
use tidewire_net::connection::Key;
use tidewire_wire::protocol::ExchangeRefusal;
use tokio::sync::oneshot;

use super::exchange::{BodyFault, ExchangeMail, ForwardedId, OpenExchange, Reply, ReplyWay};
use super::handle::{Mail, ShardHandle};
use crate::session_token::SessionToken;

/// The bytes of an answer. Its shard learns when the HTTP library releases them.
struct AnswerBody {
    bytes: Box<[u8]>,
    shard: ShardHandle,
    left: Left,
}

/// Names the answer whose bytes have left.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Left {
    /// The answer of a session of the shard.
    Own(Key),
    /// The answer to a request that the shard has forwarded.
    Forwarded { token: SessionToken, request: u64 },
}

impl AsRef<[u8]> for AnswerBody {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        self.shard.mail(match self.left {
            Left::Own(key) => ExchangeMail::Left(key),
            Left::Forwarded { token, request } => ExchangeMail::ForwardedLeft { token, request },
        });
    }
}

/// Reports the end of a request's task to its shard, unless the request was answered.
#[derive(Debug)]
struct Guard {
    shard: ShardHandle,
    token: SessionToken,
    is_answered: bool,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.is_answered {
            self.shard.mail(ExchangeMail::Gone(self.token));
        }
    }
}

/// A request that brings messages to its session.
#[derive(Debug)]
pub struct Post {
    bytes_max: usize,
    // Dropped before the guard: when the guard reports the end of the request, the shard must find that nothing waits for the reply.
    reply: oneshot::Receiver<Result<(), ExchangeRefusal>>,
    guard: Guard,
}

impl Post {
    /// Bytes that the body may have.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Waits until the session ends before it has the body. Cancellation safe.
    pub async fn ended(&mut self) -> ExchangeRefusal {
        let reply = (&mut self.reply).await;
        self.guard.is_answered = true;
        refusal(reply)
    }

    /// Passes on the body, and waits until the session has taken all its messages.
    ///
    /// # Errors
    /// The session has ended, because of this body or before.
    pub async fn send(mut self, body: Bytes) -> Result<(), ExchangeRefusal> {
        self.pass(Ok(body));
        let reply = (&mut self.reply).await;
        self.guard.is_answered = true;
        reply.unwrap_or(Err(ExchangeRefusal::Unknown))
    }

    /// Ends the session because of its body.
    pub fn refuse(mut self, fault: BodyFault) {
        self.guard.is_answered = true;
        self.pass(Err(fault));
    }

    fn pass(&self, body: Result<Bytes, BodyFault>) {
        let token = self.guard.token;
        self.guard.shard.mail(ExchangeMail::Body { token, body });
    }
}

/// The reason in the reply to a request that was not answered as it wished.
fn refusal<T>(
    reply: Result<Result<T, ExchangeRefusal>, oneshot::error::RecvError>,
) -> ExchangeRefusal {
    match reply {
        Ok(Err(refusal)) => refusal,
        // A session that ends drops the reply.
        Ok(Ok(_)) | Err(_) => ExchangeRefusal::Unknown,
    }
}

impl ReplyWay for ShardHandle {
    fn reply(&self, id: ForwardedId, reply: ExchangeReply) {
        self.mail(ExchangeMail::Answer { id, reply });
    }
}

impl ShardHandle {
    /// Opens a session. The result is the body of its first answer; `None` if the shard has ended.
    pub async fn open_exchange(&self, opened: OpenExchange) -> Option<Bytes> {
        // As for a connection that is handed over, the shard subtracts the session when it ends.
        let connections = &self.0.stats.connections;
        connections.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        let reply = Reply::Here(reply);
        self.mail(ExchangeMail::Open { opened, reply });
        answer.await.ok()?.ok()
    }

    /// Waits for messages of a session, and takes them. If the caller stops waiting, the session ends.
    ///
    /// # Errors
    /// No session has the token, or the session can't be polled now.
    pub async fn poll_exchange(&self, token: SessionToken) -> Result<Bytes, ExchangeRefusal> {
        // Dropped last: see `Post`.
        let mut guard = self.guard(token);
        let (reply, answer) = oneshot::channel();
        let reply = Reply::Here(reply);
        self.mail(ExchangeMail::Poll { token, reply });
        let answer = answer.await;
        guard.is_answered = true;
        answer.unwrap_or(Err(ExchangeRefusal::Unknown))
    }

    /// Announces a request that brings messages. If the caller drops the result before it has the answer, the session ends.
    ///
    /// # Errors
    /// No session has the token, or the session takes no messages now.
    pub async fn post_exchange(&self, token: SessionToken) -> Result<Post, ExchangeRefusal> {
        // Dropped last: see `Post`.
        let mut guard = self.guard(token);
        let (reply, mut answer) = oneshot::channel();
        let (admitted, bytes_max) = oneshot::channel();
        self.mail(ExchangeMail::Post {
            token,
            admitted: Some(admitted),
            reply: Reply::Here(reply),
        });
        match bytes_max.await {
            Ok(bytes_max) => Ok(Post {
                bytes_max,
                guard,
                reply: answer,
            }),
            Err(_) => {
                guard.is_answered = true;
                let reply = answer.try_recv();
                Err(reply
                    .ok()
                    .and_then(Result::err)
                    .unwrap_or(ExchangeRefusal::Unknown))
            }
        }
    }

    /// Checks whether a WebSocket may become the transport of a session. The shard checks it again with the socket.
    ///
    /// # Errors
    /// No session has the token, or the session has another WebSocket.
    pub async fn may_switch(&self, token: SessionToken) -> Result<(), ExchangeRefusal> {
        let (reply, answer) = oneshot::channel();
        let reply = Reply::Here(reply);
        self.mail(ExchangeMail::MaySwitch { token, reply });
        answer.await.unwrap_or(Err(ExchangeRefusal::Unknown))
    }

    /// The body of an answer.
    pub(crate) fn answer_body(&self, left: Left, bytes: impl Into<Box<[u8]>>) -> Bytes {
        Bytes::from_owner(AnswerBody {
            bytes: bytes.into(),
            shard: self.clone(),
            left,
        })
    }

    fn guard(&self, token: SessionToken) -> Guard {
        Guard {
            shard: self.clone(),
            token,
            is_answered: false,
        }
    }

    fn mail(&self, mail: ExchangeMail) {
        self.0.mailbox.push(Mail::Exchange(mail));
    }
}

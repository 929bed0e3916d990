//! The body of an answer over HTTP/2, in pieces that the peer has made room for.
//!
//! The library takes a piece whole as soon as the peer's window has room for one byte. An answer in one piece would leave
//! the sight of our limits while most of it still waits; in small ones it is here until its last piece.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use hyper::header::CONTENT_LENGTH;
use hyper::{Response, StatusCode};

use super::activity::Running;
use crate::api::{Answer, Body};

/// Bytes of a piece: one frame.
const PIECE_BYTES_MAX: usize = 16 << 10;

/// The body of an answer.
#[derive(Debug)]
pub(super) struct Answered {
    body: Body,
    /// What of it was begun.
    rest: Bytes,
    running: Running,
}

impl Answered {
    /// An answer whose request is open until it is taken.
    pub(super) fn of(mut answer: Answer, is_head: bool, mut running: Running) -> Response<Self> {
        if matches!(answer.body(), Body::Stream(_)) {
            running.lasts();
        }
        // HTTP/1.1 leaves such bodies out by itself.
        let is_bare = matches!(
            answer.status(),
            StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
        );
        if is_head && let Some(bytes) = answer.body().size_hint().exact() {
            answer.headers_mut().insert(CONTENT_LENGTH, bytes.into());
        }
        answer.map(|body| {
            let body = match is_head || is_bare {
                true => Body::default(),
                false => body,
            };
            // Nobody will ask for it.
            if body.is_end_stream() {
                running.answered();
            }
            Self {
                body,
                rest: Bytes::new(),
                running,
            }
        })
    }
}

impl HttpBody for Answered {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        // The head has left; of a stream that was reset before nobody asks for the body.
        self.running.answered();
        while self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                end => return Poll::Ready(end),
            }
        }
        let count = self.rest.len().min(PIECE_BYTES_MAX);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(count)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    /// Of what was not begun, which is all of it as long as somebody asks.
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use hyper::header::HeaderValue;

    use super::super::activity::Activity;
    use super::*;

    fn answered(status: StatusCode, bytes: usize, is_head: bool) -> Response<Answered> {
        let mut answer = Answer::new(Body::from("x".repeat(bytes)));
        *answer.status_mut() = status;
        let running = Activity::new(8).begin().expect("no flood");
        Answered::of(answer, is_head, running)
    }

    #[tokio::test]
    async fn an_answer_leaves_in_pieces_and_whole() {
        for bytes in [0, 1, PIECE_BYTES_MAX, PIECE_BYTES_MAX + 1, 100_000] {
            let mut body = answered(StatusCode::OK, bytes, false).into_body();
            assert_eq!(body.size_hint().exact(), Some(bytes as u64));
            let mut seen = 0;
            while let Some(frame) = body.frame().await {
                let data = frame.expect("infallible").into_data().expect("data");
                assert!(!data.is_empty() && data.len() <= PIECE_BYTES_MAX);
                seen += data.len();
                assert_eq!(body.is_end_stream(), seen == bytes);
            }
            assert_eq!(seen, bytes);
        }
    }

    #[test]
    fn answers_without_a_body_have_none() {
        let check = |status, is_head, length: Option<&'static str>| {
            let answer = answered(status, 5, is_head);
            let expected = length.map(HeaderValue::from_static);
            assert_eq!(answer.headers().get(CONTENT_LENGTH), expected.as_ref());
            assert!(answer.body().is_end_stream(), "{status} {is_head}");
        };
        check(StatusCode::OK, true, Some("5"));
        check(StatusCode::NO_CONTENT, false, None);
        check(StatusCode::NOT_MODIFIED, false, None);
    }
}

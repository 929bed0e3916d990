//! The body of an answer over HTTP/2, cut into small pieces.
//!
//! The library takes a whole piece as soon as the peer's window has room for one byte. An answer in one piece would therefore
//! escape our limits while most of it still waits. With small pieces, the request counts as open until the library takes the
//! last piece.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use hyper::header::CONTENT_LENGTH;
use hyper::{Response, StatusCode};

use super::activity::Running;
use crate::api::{Body, HttpResponse};

/// Size limit of a piece: one frame.
const PIECE_BYTES_MAX: usize = 16 << 10;

/// The body of an answer.
#[derive(Debug)]
pub(super) struct Answered {
    body: Body,
    /// The rest of the chunk that was last taken from `body`.
    rest: Bytes,
    running: Running,
}

impl Answered {
    /// An answer whose request stays open until the peer has taken the body.
    pub(super) fn of(
        mut answer: HttpResponse,
        is_head: bool,
        mut running: Running,
    ) -> Response<Self> {
        if matches!(answer.body(), Body::Stream(_)) {
            running.lasts();
        }
        // HTTP/1.1 omits such bodies without our help.
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
            // The library does not poll an empty body, so `poll_frame` would never note this.
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
        // The head of the answer has left. If the peer had reset the stream earlier, the library would not ask for the body.
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

    /// The size of the part that was not taken from `body` yet. The library asks before the first piece, when that is the whole
    /// body.
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
        let mut answer = HttpResponse::new(Body::from("x".repeat(bytes)));
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

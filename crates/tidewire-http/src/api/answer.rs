//! Answers of HTTP: their bodies, and the few shapes that many operations share.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER, VARY, WWW_AUTHENTICATE,
};
use hyper::{Response, StatusCode};

use super::answer_room::Pieces;
use super::stream::EventStream;

/// The content type of JSON answers, as deepstream writes it.
const JSON: &str = "application/json; charset=utf-8";
/// The content type of errors in words.
const TEXT: &str = "text/plain; charset=utf-8";
/// Seconds after which a refused client may try again.
const RETRY_SECONDS: &str = "5";
/// Deepstream ends its bodies so.
const END: &str = "\r\n\r\n";

/// An answer.
pub type Answer = Response<Body>;

/// The body of an answer.
#[derive(Debug)]
pub enum Body {
    /// All of it is there.
    Whole(Full<Bytes>),
    /// It is there in pieces.
    Pieces(Pieces),
    /// It comes piece by piece.
    Stream(EventStream),
}

impl Default for Body {
    fn default() -> Self {
        Self::Whole(Full::default())
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Self::Whole(Full::new(Bytes::from(text)))
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::Whole(Full::new(bytes))
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(body) => Pin::new(body).poll_frame(context),
            Self::Pieces(pieces) => {
                let frame = pieces.next_frame();
                Poll::Ready(frame.map(|frame| Ok(Frame::data(frame))))
            }
            Self::Stream(body) => {
                let piece = Pin::new(body).poll_piece(context);
                piece.map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_end_stream(),
            Self::Pieces(pieces) => pieces.bytes() == 0,
            Self::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Pieces(pieces) => SizeHint::with_exact(pieces.bytes() as u64),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

/// An error in words, as deepstream sends it.
pub(super) fn text(status: StatusCode, text: &str) -> Answer {
    typed(status, TEXT, format!("{text}{END}"))
}

/// A result, as deepstream sends it.
pub(super) fn json(text: &str) -> Answer {
    typed(StatusCode::OK, JSON, format!("{text}{END}"))
}

/// A result in pieces, as deepstream sends it.
pub(super) fn json_pieces(mut pieces: Pieces) -> Answer {
    pieces.push(END);
    typed_pieces(JSON, pieces)
}

/// An answer in pieces.
pub(super) fn typed_pieces(content_type: &'static str, pieces: Pieces) -> Answer {
    let mut answer = Response::new(Body::Pieces(pieces));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

/// The server can't now; another attempt may succeed.
pub(super) fn busy(reason: &str) -> Answer {
    retryable(text(StatusCode::SERVICE_UNAVAILABLE, reason))
}

/// The caller holds its share of what is named; others are still served.
pub(super) fn share(of: &str) -> Answer {
    let reason = format!("this caller holds its share of {of}; others are still served");
    retryable(text(StatusCode::TOO_MANY_REQUESTS, &reason))
}

/// Says when another attempt makes sense.
pub(super) fn retryable(mut answer: Answer) -> Answer {
    let seconds = HeaderValue::from_static(RETRY_SECONDS);
    answer.headers_mut().insert(RETRY_AFTER, seconds);
    answer
}

/// Says how credentials are given.
pub(super) fn with_challenge(mut answer: Answer) -> Answer {
    let challenge = HeaderValue::from_static("Bearer");
    answer.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    answer
}

/// Lets the caller keep the answer, if it asks each time whether it is still the same.
pub(super) fn revalidated(mut answer: Answer) -> Answer {
    let revalidated = HeaderValue::from_static("private, no-cache");
    answer.headers_mut().insert(CACHE_CONTROL, revalidated);
    // With the origin of a page it has headers that it does not have without.
    let vary = HeaderValue::from_static("Origin");
    answer.headers_mut().insert(VARY, vary);
    answer
}

/// The answer to an OPTIONS request that is no preflight of a browser.
pub(super) fn options(methods: Option<&'static str>) -> Answer {
    let mut answer = Answer::default();
    *answer.status_mut() = StatusCode::NO_CONTENT;
    with_allow(answer, methods)
}

/// Names the methods that the path takes.
pub(super) fn with_allow(mut answer: Answer, methods: Option<&'static str>) -> Answer {
    if let Some(methods) = methods {
        let methods = HeaderValue::from_static(methods);
        answer.headers_mut().insert(ALLOW, methods);
    }
    answer
}

pub(super) fn typed(status: StatusCode, content_type: &'static str, text: String) -> Answer {
    let mut answer = Response::new(Body::from(text));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

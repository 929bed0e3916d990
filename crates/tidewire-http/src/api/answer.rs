//! HTTP answers: their bodies, and the few forms that many operations share.

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
use super::stream_output::EventStream;

/// The content type of JSON answers, as deepstream writes it.
const JSON: &str = "application/json; charset=utf-8";
/// The content type of errors in plain text.
pub(crate) const TEXT: &str = "text/plain; charset=utf-8";
/// Seconds after which a refused client may try again.
const RETRY_SECONDS: &str = "5";
/// The end of every deepstream body.
const END: &str = "\r\n\r\n";

/// An answer.
pub type HttpResponse = Response<Body>;

/// The body of an answer.
#[derive(Debug)]
pub enum Body {
    /// The whole body in one buffer.
    Whole(Full<Bytes>),
    /// The whole body in several buffers.
    Pieces(Pieces),
    /// An event stream, whose pieces arrive later.
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

/// A plain-text error in deepstream's form.
pub(super) fn text(status: StatusCode, text: &str) -> HttpResponse {
    typed(status, TEXT, format!("{text}{END}"))
}

/// A JSON result in deepstream's form.
pub(super) fn json(text: &str) -> HttpResponse {
    typed(StatusCode::OK, JSON, format!("{text}{END}"))
}

/// A JSON result in several pieces, in deepstream's form.
pub(super) fn json_pieces(mut pieces: Pieces) -> HttpResponse {
    pieces.push(END);
    typed_pieces(JSON, pieces)
}

/// An answer in pieces.
pub(super) fn typed_pieces(content_type: &'static str, pieces: Pieces) -> HttpResponse {
    let mut answer = Response::new(Body::Pieces(pieces));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

/// A refusal for now; a later attempt may succeed.
pub(super) fn busy(reason: &str) -> HttpResponse {
    retryable(text(StatusCode::SERVICE_UNAVAILABLE, reason))
}

/// The caller has used its share of the named resource; the server still serves other callers.
pub(super) fn share(of: &str) -> HttpResponse {
    let reason = format!("this caller has used up its share of {of}; try again later");
    retryable(text(StatusCode::TOO_MANY_REQUESTS, &reason))
}

/// Adds the header that tells the client when to try again.
pub(super) fn retryable(mut answer: HttpResponse) -> HttpResponse {
    let seconds = HeaderValue::from_static(RETRY_SECONDS);
    answer.headers_mut().insert(RETRY_AFTER, seconds);
    answer
}

/// Adds the header that names the authentication scheme.
pub(super) fn with_challenge(mut answer: HttpResponse) -> HttpResponse {
    let challenge = HeaderValue::from_static("Bearer");
    answer.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    answer
}

/// Adds the types of patches that the server accepts (RFC 5789).
pub(super) fn with_accept_patch(mut answer: HttpResponse) -> HttpResponse {
    let types =
        HeaderValue::from_static("application/merge-patch+json, application/json-patch+json");
    answer.headers_mut().insert("accept-patch", types);
    answer
}

/// Allows the caller to cache the answer, provided that it revalidates it on each use.
pub(super) fn revalidated(mut answer: HttpResponse) -> HttpResponse {
    let revalidated = HeaderValue::from_static("private, no-cache");
    answer.headers_mut().insert(CACHE_CONTROL, revalidated);
    // With an `Origin` in the request, the answer has additional headers, so caches must keep the two apart.
    let vary = HeaderValue::from_static("Origin");
    answer.headers_mut().insert(VARY, vary);
    answer
}

/// The answer to an OPTIONS request that is not a browser's preflight request.
pub(super) fn options(methods: Option<&'static str>) -> HttpResponse {
    let mut answer = HttpResponse::default();
    *answer.status_mut() = StatusCode::NO_CONTENT;
    with_allow(answer, methods)
}

/// Adds the methods that the path accepts.
pub(super) fn with_allow(mut answer: HttpResponse, methods: Option<&'static str>) -> HttpResponse {
    if let Some(methods) = methods {
        let methods = HeaderValue::from_static(methods);
        answer.headers_mut().insert(ALLOW, methods);
    }
    answer
}

/// An answer of this type.
pub(crate) fn typed(status: StatusCode, content_type: &'static str, text: String) -> HttpResponse {
    let mut answer = Response::new(Body::from(text));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

//! The body of a request: reading it within a bound and a time, and dropping the rest of a refused one.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::Version;
use hyper::body::{Body as _, Incoming};
use tokio::time::timeout;

/// Time to read the rest of a refused body.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a body could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// It has more bytes than it may have.
    TooLarge,
    /// It did not arrive in time.
    TooSlow,
    /// The connection was lost, or the framing is invalid.
    Broken,
}

/// The bytes that a body of at most `bytes_max` needs: its announced length, or the most that it may have. `None` if its length exceeds
/// `bytes_max`.
pub(crate) fn bytes_needed(body: &Incoming, bytes_max: usize) -> Option<usize> {
    let Some(announced) = body.size_hint().exact() else {
        return Some(bytes_max);
    };
    let announced = usize::try_from(announced).ok();
    announced.filter(|bytes| *bytes <= bytes_max)
}

/// Reads a body of at most `bytes_max` within `time`.
pub(crate) async fn read(
    body: &mut Incoming,
    bytes_max: usize,
    time: Duration,
) -> Result<Bytes, Unreadable> {
    let reading = Limited::new(body, bytes_max).collect();
    match timeout(time, reading).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Unreadable::TooLarge),
        Ok(Err(_)) => Err(Unreadable::Broken),
        Err(_) => Err(Unreadable::TooSlow),
    }
}

/// Reads the rest of a refused body, and drops it, if it has at most `bytes_max`. A connection that the server closes with unread bytes is
/// reset, so a client that is still writing would lose the answer. An HTTP/2 stream ends without its connection, so its body is not read.
pub(crate) async fn discard(body: &mut Incoming, version: Version, bytes_max: usize) {
    let announced = body.size_hint().exact();
    let is_long = announced.is_some_and(|bytes| bytes > bytes_max as u64);
    if version >= Version::HTTP_2 || is_long {
        return;
    }
    let mut rest = Limited::new(body, bytes_max);
    let reading = async { while let Some(Ok(_)) = rest.frame().await {} };
    // The answer is the same if the rest does not arrive in time.
    let _ = timeout(DISCARD_TIMEOUT, reading).await;
}

//! Bytes that a call takes until it ends. The shard of its requestor and its owner count the same.

use crate::entry::OwnedCall;
use crate::footprint::{CALL_BYTES, text_bytes};
use crate::text::Payload;

/// Bytes that are kept for a call until it ends.
pub(super) fn kept_bytes(name: &str, correlation: &str, data: Option<&str>) -> usize {
    CALL_BYTES + text_bytes(name) + 3 * text_bytes(correlation) + data.map_or(0, text_bytes)
}

/// The same for a call that is kept already.
pub(super) fn call_bytes(call: &OwnedCall) -> usize {
    let data = call.data.as_ref().map(Payload::as_str);
    kept_bytes(&call.name, &call.correlation, data)
}

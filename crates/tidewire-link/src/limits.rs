//! Limits and times of a link.

use std::time::Duration;

/// Limits of one link. Each of the two processes of a link has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of entries that may wait for their acknowledgement, sent or not (`link_bytes_max`). A post beyond it ends the link.
    pub link_bytes_max: usize,
    /// Waiting bytes from which the link is congested. It is relieved at half of them. Sessions that post to the peer wait in between.
    pub congestion_bytes: usize,
    /// Bytes of entries that were sent and that the peer has not handled. It is also the limit of frames that are kept because earlier ones are
    /// missing.
    pub window_bytes: usize,
    /// Bytes of entries in one frame. More entries of one turn are sent in several frames, because brokers limit the size of a message.
    pub frame_bytes_max: usize,
    /// Bytes of entries that are sent after a break before the peer has acknowledged any. It doubles up to the window while the carrier is
    /// fast. It is also the length up to which turns that can't be sent yet share a frame.
    pub start_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            link_bytes_max: 64 << 20,
            congestion_bytes: 8 << 20,
            window_bytes: 4 << 20,
            // NATS and Kafka accept messages of 1 MiB by default.
            frame_bytes_max: 512 << 10,
            start_bytes: 64 << 10,
        }
    }
}

/// Bytes that a frame counts in addition to its entries, so that many short frames are limited too.
pub const FRAME_COST: usize = 64;

/// Time between two pings.
pub const PING_INTERVAL: Duration = Duration::from_millis(500);
/// A peer of which nothing is received, or that handles nothing, for this time is suspect.
pub const SILENCE_MAX: Duration = Duration::from_secs(2);
/// A ping may wait for its answer as long as the peer may be silent, and for the next ping.
pub const ANSWER_MAX: Duration = Duration::from_millis(2_500);
/// A peer is suspect if its link is broken for this time.
pub const BROKEN_MAX: Duration = Duration::from_millis(500);
/// The link repeats a hello without an answer after this time, and then after twice the time.
pub const HELLO_DELAY_MIN: Duration = Duration::from_millis(100);
/// The longest time between two hellos.
pub const HELLO_DELAY_MAX: Duration = Duration::from_millis(500);
/// An acknowledgement waits this long for a frame that takes it along.
pub const ACKNOWLEDGE_DELAY: Duration = Duration::from_millis(5);
/// A missing frame may arrive within this time before the link requests it.
pub const REORDER_DELAY: Duration = Duration::from_millis(2);
/// The shortest time between two requests for missing frames.
pub const REQUEST_DELAY_MIN: Duration = Duration::from_millis(50);
/// The shortest time after which the oldest frame without an acknowledgement is sent again.
pub const RESEND_DELAY_MIN: Duration = Duration::from_millis(100);
/// The longest one: it doubles while the acknowledgement does not arrive.
pub const RESEND_DELAY_MAX: Duration = Duration::from_secs(1);
/// If the peer acknowledges a frame within this time, the link may send twice as much at a time.
pub const FLIGHT_SHORT: Duration = Duration::from_millis(100);
/// If the acknowledgement takes longer, the frames wait for each other, and the link sends half as much at a time. Over a broker the messages
/// with which a process checks its connection wait behind the frames; [`SILENCE_MAX`] is far above twice this time.
pub const FLIGHT_LONG: Duration = Duration::from_millis(400);
/// If the process has had no input for this time, it was paused, and the silence of its peers proves nothing. A running process handles time
/// at least every [`PING_INTERVAL`].
pub const PAUSE_MIN: Duration = Duration::from_secs(1);

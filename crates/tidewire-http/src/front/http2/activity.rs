//! Tracks the open requests and streams of one HTTP/2 connection, since when they are open, and how many requests the peer has
//! abandoned.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Requests that the peer may reset before the server has answered them. A page that stops loading resets a few.
const ABANDONED_MAX: u64 = 200;

/// Idle frames (see `frames.rs`) that a peer may send within one second. A client pings a few times a second at most.
const IDLE_FRAMES_MAX: usize = 1_000;
const SECOND: Duration = Duration::from_secs(1);

/// The open requests and streams of one connection.
#[derive(Debug)]
pub(super) struct Activity {
    open: Mutex<Open>,
    /// One permit for each request that the server may work on at a time.
    permits: Arc<Semaphore>,
    flood: Notify,
}

#[derive(Debug)]
struct Open {
    /// Requests that wait, that the server works on, or whose answers the peer has not taken completely.
    requests: usize,
    /// Streams of server-sent events.
    streams: usize,
    /// Requests that have arrived so far.
    begun: u64,
    /// Requests that the peer reset before the server had answered them.
    abandoned: u64,
    /// When the number of open requests last became zero or stopped being zero.
    requests_changed: Instant,
    /// The last time at which something was open.
    idle_since: Instant,
    /// The number of idle frames, and the start of the second in which they are counted.
    idle_frames: usize,
    idle_frames_since: Instant,
}

impl Open {
    /// Whether the peer is flooding the server: it has abandoned more than [`ABANDONED_MAX`] requests and more than half of
    /// all, or it has sent more than [`IDLE_FRAMES_MAX`] idle frames within a second.
    fn is_flood(&self) -> bool {
        let is_abandoned = self.abandoned > ABANDONED_MAX && self.abandoned > self.begun / 2;
        is_abandoned || self.idle_frames > IDLE_FRAMES_MAX
    }
}

impl Activity {
    /// A connection with nothing open, on which the server works on at most `requests_max` requests at a time.
    pub(super) fn new(requests_max: usize) -> Arc<Self> {
        let now = Instant::now();
        Arc::new(Self {
            open: Mutex::new(Open {
                requests: 0,
                streams: 0,
                begun: 0,
                abandoned: 0,
                requests_changed: now,
                idle_since: now,
                idle_frames: 0,
                idle_frames_since: now,
            }),
            permits: Arc::new(Semaphore::new(requests_max)),
            flood: Notify::new(),
        })
    }

    /// Counts a request; returns `None` if the connection is a flood.
    pub(super) fn begin(self: &Arc<Self>) -> Option<Running> {
        let mut open = self.open.lock();
        if open.is_flood() {
            return None;
        }
        open.begun += 1;
        if open.requests == 0 {
            open.requests_changed = Instant::now();
        }
        open.requests += 1;
        drop(open);
        Some(Running {
            activity: Arc::clone(self),
            permit: None,
            is_stream: false,
            is_answered: false,
        })
    }

    /// Whether requests are open.
    pub(super) fn has_requests(&self) -> bool {
        self.open.lock().requests > 0
    }

    /// Whether streams are open.
    pub(super) fn has_streams(&self) -> bool {
        self.open.lock().streams > 0
    }

    /// Whether at least one request was open at every moment since `instant`.
    pub(super) fn is_busy_since(&self, instant: Instant) -> bool {
        let open = self.open.lock();
        open.requests > 0 && open.requests_changed <= instant
    }

    /// When the connection will have been idle for `patience`. While something is open, each call returns a later time.
    pub(super) fn idle_deadline(&self, patience: Duration) -> Instant {
        let open = self.open.lock();
        match open.requests + open.streams {
            0 => open.idle_since + patience,
            _ => Instant::now() + patience,
        }
    }

    /// Counts idle frames that arrived at `now`. Once they are a flood, a later second does not reset the count.
    pub(super) fn note_idle_frames(&self, count: usize, now: Instant) {
        let mut open = self.open.lock();
        if open.is_flood() {
            return;
        }
        if now - open.idle_frames_since >= SECOND {
            open.idle_frames_since = now;
            open.idle_frames = 0;
        }
        open.idle_frames += count;
        let is_flood = open.is_flood();
        drop(open);
        if is_flood {
            self.flood.notify_one();
        }
    }

    /// Whether the connection is a flood of abandoned requests or of idle frames.
    pub(super) fn is_flood(&self) -> bool {
        self.open.lock().is_flood()
    }

    /// Waits until the connection is a flood.
    pub(super) async fn flooded(&self) {
        self.flood.notified().await;
    }

    fn end(&self, running: &Running) {
        let mut open = self.open.lock();
        match running.is_stream {
            true => open.streams -= 1,
            false => open.end_request(),
        }
        if !running.is_answered {
            open.abandoned += 1;
        }
        if open.requests + open.streams == 0 {
            open.idle_since = Instant::now();
        }
        let is_flood = open.is_flood();
        drop(open);
        if is_flood {
            self.flood.notify_one();
        }
    }
}

impl Open {
    fn end_request(&mut self) {
        self.requests -= 1;
        if self.requests == 0 {
            self.requests_changed = Instant::now();
        }
    }
}

/// An open request. Dropping this value ends it.
#[derive(Debug)]
pub(super) struct Running {
    activity: Arc<Activity>,
    permit: Option<OwnedSemaphorePermit>,
    is_stream: bool,
    is_answered: bool,
}

impl Running {
    /// Waits for one of the permits of `requests_max`.
    pub(super) async fn admitted(mut self) -> Self {
        let permits = Arc::clone(&self.activity.permits);
        // The semaphore is never closed.
        self.permit = permits.acquire_owned().await.ok();
        self
    }

    /// Notes that the answer has begun to leave.
    pub(super) fn answered(&mut self) {
        self.is_answered = true;
    }

    /// Notes that the answer is an event stream: it releases its permit and counts as a stream, no longer as a request.
    pub(super) fn lasts(&mut self) {
        self.permit = None;
        // A reset is the usual end of a stream, so it does not count as abandoned.
        self.is_answered = true;
        if !std::mem::replace(&mut self.is_stream, true) {
            let mut open = self.activity.open.lock();
            open.streams += 1;
            open.end_request();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.activity.end(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits until the clock has advanced, and returns its time.
    fn later() -> Instant {
        let now = Instant::now();
        loop {
            match Instant::now() {
                later if later > now => return later,
                _ => std::hint::spin_loop(),
            }
        }
    }

    #[test]
    fn an_open_request_keeps_a_connection() {
        let (activity, patience) = (Activity::new(8), Duration::from_secs(1));
        let start = later();
        assert!(activity.idle_deadline(patience) < start + patience);
        let mut running = activity.begin().expect("no flood");
        let begun = later();
        assert!(activity.is_busy_since(begun) && !activity.is_busy_since(start));
        assert!(activity.has_requests());
        assert!(activity.idle_deadline(patience) >= begun + patience);
        running.lasts();
        assert!(!activity.is_busy_since(later()) && !activity.has_requests());
        assert!(activity.has_streams());
        let open = later();
        assert!(activity.idle_deadline(patience) >= open + patience);
        drop(running);
        assert!(!activity.has_streams());
        let ended = later();
        let deadline = activity.idle_deadline(patience);
        assert!(deadline >= open + patience && deadline < ended + patience);
        let _late = activity.begin().expect("no flood");
        assert!(
            !activity.is_busy_since(ended),
            "no request arrived in the meantime"
        );
    }

    #[tokio::test]
    async fn frames_that_ask_for_nothing_are_a_flood_if_they_come_within_a_second() {
        let (activity, start) = (Activity::new(8), later());
        activity.note_idle_frames(IDLE_FRAMES_MAX, start);
        activity.note_idle_frames(IDLE_FRAMES_MAX, start + 2 * SECOND);
        assert!(!activity.is_flood());
        activity.note_idle_frames(1, start + 2 * SECOND);
        activity.flooded().await;
        activity.note_idle_frames(1, start + 4 * SECOND);
        assert!(activity.is_flood() && activity.begin().is_none());
    }

    #[test]
    fn abandoned_requests_are_a_flood_if_they_are_many_and_most() {
        let run = |answered: u64, abandoned: u64| {
            let activity = Activity::new(8);
            for count in 0..answered + abandoned {
                let mut running = activity.begin().expect("no flood yet");
                if count < answered {
                    running.answered();
                }
            }
            (activity.is_flood(), activity.begin().is_none())
        };
        assert_eq!(run(0, ABANDONED_MAX), (false, false));
        assert_eq!(run(0, ABANDONED_MAX + 1), (true, true));
        assert_eq!(run(300, 299), (false, false));
        assert_eq!(run(300, 301), (true, true));
    }

    #[tokio::test]
    async fn concurrent_requests_are_bounded_and_streams_do_not_count() {
        let activity = Activity::new(1);
        let begin = || async { activity.begin().expect("no flood").admitted().await };
        let mut first = begin().await;
        let mut second = std::pin::pin!(begin());
        assert!(poll_once(second.as_mut()).is_none());
        first.lasts();
        let second = poll_once(second.as_mut()).expect("the stream has left its place");
        let mut third = std::pin::pin!(begin());
        assert!(poll_once(third.as_mut()).is_none());
        drop(second);
        assert!(poll_once(third.as_mut()).is_some());
    }

    /// Polls the future once, and returns its output if it is ready.
    fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match future.poll(&mut context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        }
    }
}

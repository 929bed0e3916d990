//! Log lines that peers cause: a few of each kind per second, and the number of the suppressed ones.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Lines of one kind that peers may cause within [`WINDOW`]. Further lines are counted.
const PEER_LINES_MAX: u32 = 4;
const WINDOW: Duration = Duration::from_secs(1);

/// The lines of one kind in the current window.
#[derive(Debug)]
struct Window {
    kind: &'static str,
    start: Instant,
    count: u32,
}

static WINDOWS: LazyLock<Mutex<Windows>> = LazyLock::new(|| Mutex::new(Windows::default()));

#[derive(Debug, Default)]
struct Windows(Vec<Window>);

impl Windows {
    /// Whether one more line of the kind may be written, and the number of lines suppressed in the previous window.
    fn admit(&mut self, kind: &'static str, now: Instant) -> (bool, u32) {
        let window = match self.0.iter_mut().find(|window| window.kind == kind) {
            Some(window) => window,
            None => {
                let start = now;
                self.0.push(Window {
                    kind,
                    start,
                    count: 0,
                });
                let last = self.0.len() - 1;
                &mut self.0[last]
            }
        };
        let mut suppressed = 0;
        if now.duration_since(window.start) >= WINDOW {
            suppressed = window.count.saturating_sub(PEER_LINES_MAX);
            window.start = now;
            window.count = 0;
        }
        window.count = window.count.saturating_add(1);
        (window.count <= PEER_LINES_MAX, suppressed)
    }

    /// The number of suppressed lines of each kind in windows that have ended.
    fn take_suppressed(&mut self, now: Instant) -> Vec<(&'static str, u32)> {
        let mut sums = Vec::new();
        self.0.retain(|window| {
            let has_ended = now.duration_since(window.start) >= WINDOW;
            if has_ended && window.count > PEER_LINES_MAX {
                sums.push((window.kind, window.count - PEER_LINES_MAX));
            }
            !has_ended
        });
        sums
    }
}

/// Writes a line that a peer caused, unless [`PEER_LINES_MAX`] lines of its kind were written within this second. `kind` is a constant
/// text of a few words that describes the event.
pub fn peer_line(kind: &'static str, write: impl FnOnce()) {
    let mut windows = WINDOWS.lock();
    let (is_admitted, suppressed) = windows.admit(kind, Instant::now());
    drop(windows);
    sum(kind, suppressed);
    if is_admitted {
        write();
    }
}

/// Writes the numbers of suppressed lines. Must be called about once a second.
pub fn sum_peer_lines() {
    let mut windows = WINDOWS.lock();
    let sums = windows.take_suppressed(Instant::now());
    drop(windows);
    for (kind, suppressed) in sums {
        sum(kind, suppressed);
    }
}

fn sum(kind: &'static str, suppressed: u32) {
    if suppressed > 0 {
        tracing::warn!(
            kind,
            left_out = suppressed,
            "suppressed further lines of this kind"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_first_of_a_second_are_counted() {
        let mut windows = Windows::default();
        let start = Instant::now();
        for _ in 0..PEER_LINES_MAX {
            assert_eq!(windows.admit("refused", start), (true, 0));
        }
        assert_eq!(windows.admit("refused", start), (false, 0));
        assert_eq!(windows.admit("refused", start), (false, 0));
        assert_eq!(windows.admit("other", start), (true, 0));
        assert_eq!(windows.take_suppressed(start), []);
        assert_eq!(windows.admit("refused", start + WINDOW), (true, 2));
    }

    #[test]
    fn suppressed_lines_are_summed_when_the_flood_ends() {
        let mut windows = Windows::default();
        let start = Instant::now();
        for _ in 0..PEER_LINES_MAX + 5 {
            windows.admit("refused", start);
        }
        assert_eq!(windows.take_suppressed(start + WINDOW), [("refused", 5)]);
        assert_eq!(windows.take_suppressed(start + WINDOW), []);
    }
}

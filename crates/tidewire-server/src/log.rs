//! The log: where lines go, in which form, and how many a peer can cause.
//!
//! Text for people on a terminal, one JSON object per line otherwise; always standard error, always UTC.

use std::io::{self, IsTerminal};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, reload};

use crate::admin::audit;
use crate::config::section::{Log, LogFormat, LogLevel};

/// Lines of one kind that peers may cause within [`WINDOW`]; more are counted.
const PEER_LINES_MAX: u32 = 4;
const WINDOW: Duration = Duration::from_secs(1);

/// Changes the level of the running log.
#[derive(Clone, Debug)]
pub struct LogHandle(reload::Handle<Targets, Registry>);

impl LogHandle {
    /// Logs from `level` on.
    pub fn set_level(&self, level: LogLevel) {
        // Fails only when the subscriber is gone, at the end of the process.
        let _ = self.0.reload(filter(level));
    }
}

/// Everything from `level` on, and the audit log. But not the lines of the HTTP/2 library: peers cause as many of them as they like, and
/// below `info` they tell what is in a frame.
fn filter(level: LogLevel) -> Targets {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    Targets::new()
        .with_default(level)
        .with_target("h2", LevelFilter::OFF)
        // Whatever the level: it is written to be read later.
        .with_target(audit::TARGET, LevelFilter::INFO)
}

/// Installs the log of the process. Only the first call has an effect.
pub fn install(config: &Log) -> LogHandle {
    let is_text = match config.format {
        LogFormat::Text => true,
        LogFormat::Json => false,
        LogFormat::Auto => io::stderr().is_terminal(),
    };
    let (level, handle) = reload::Layer::new(filter(config.level));
    let lines = fmt::layer().with_writer(io::stderr).with_ansi(false);
    let lines: Box<dyn Layer<_> + Send + Sync> = if is_text {
        Box::new(lines.with_target(false))
    } else {
        Box::new(lines.json().flatten_event(true))
    };
    let _ = tracing_subscriber::registry()
        .with(level)
        .with(lines)
        .try_init();
    LogHandle(handle)
}

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
    /// Whether one more line of the kind may be written, and how many were left out in the window before.
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
        let mut left_out = 0;
        if now.duration_since(window.start) >= WINDOW {
            left_out = window.count.saturating_sub(PEER_LINES_MAX);
            window.start = now;
            window.count = 0;
        }
        window.count = window.count.saturating_add(1);
        (window.count <= PEER_LINES_MAX, left_out)
    }

    /// What was left out in windows that have ended.
    fn take_left_out(&mut self, now: Instant) -> Vec<(&'static str, u32)> {
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

/// Writes a line that a peer caused, unless [`PEER_LINES_MAX`] of its kind were written within this second; `kind` says in a
/// few constant words what happened.
pub fn peer_line(kind: &'static str, write: impl FnOnce()) {
    let mut windows = WINDOWS.lock();
    let (is_admitted, left_out) = windows.admit(kind, Instant::now());
    drop(windows);
    sum(kind, left_out);
    if is_admitted {
        write();
    }
}

/// Writes the sums of what was left out. To be called about once a second.
pub fn sum_peer_lines() {
    let mut windows = WINDOWS.lock();
    let sums = windows.take_left_out(Instant::now());
    drop(windows);
    for (kind, left_out) in sums {
        sum(kind, left_out);
    }
}

fn sum(kind: &'static str, left_out: u32) {
    if left_out > 0 {
        tracing::warn!(kind, left_out, "more of the same were not logged");
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
        assert_eq!(windows.take_left_out(start), []);
        assert_eq!(windows.admit("refused", start + WINDOW), (true, 2));
    }

    #[test]
    fn what_was_left_out_is_summed_when_the_flood_ends() {
        let mut windows = Windows::default();
        let start = Instant::now();
        for _ in 0..PEER_LINES_MAX + 5 {
            windows.admit("refused", start);
        }
        assert_eq!(windows.take_left_out(start + WINDOW), [("refused", 5)]);
        assert_eq!(windows.take_left_out(start + WINDOW), []);
    }
}

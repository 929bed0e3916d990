//! The log: destination and format of its lines.
//!
//! The log is text on a terminal and one JSON object per line otherwise. It is always on standard error and in UTC.

use std::io::{self, IsTerminal};

use tidewire_config::section::{Log, LogFormat, LogLevel};
use tidewire_http::audit;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, reload};

/// Changes the level of the running log.
#[derive(Clone, Debug)]
pub struct LogHandle(reload::Handle<Targets, Registry>);

impl LogHandle {
    /// Logs lines of `level` and of more important levels.
    pub fn set_level(&self, level: LogLevel) {
        // Fails only when the subscriber is gone, at the end of the process.
        let _ = self.0.reload(filter(level));
    }
}

/// Selects the lines of `level` and of more important levels, and the audit log. It excludes the lines of the HTTP/2 library: clients can
/// cause any number of them, and below `info` they contain the content of frames.
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
        // The audit log does not depend on the level, because operators read it later.
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

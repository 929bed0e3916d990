//! Reloads the rule file while the server runs. The server reads the file again when it changes or on SIGHUP, and uses it only if
//! the whole file is valid. Otherwise the previous rules stay in force, which the log, a metric and `/ready` report.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tidewire_config::Problem;
use tidewire_core::permission::Permission;
use tidewire_http::metrics::Metrics;
use tidewire_http::rights::Rights;
use tidewire_http::status::Reason;

/// How often the server checks whether the file has changed. It reads a changed file only after two equal checks in a row, because
/// a file that is written in place may be incomplete.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Modification time, length and inode: a change shows that the file was replaced or written. `None` if the file is missing.
type Stamp = Option<(SystemTime, u64, u64)>;

/// Reads and compiles the rule file.
pub type Open = Box<dyn Fn() -> Result<Arc<dyn Permission>, Problem> + Send + Sync>;

/// The state of the file at earlier checks.
#[derive(Debug)]
struct FileState {
    /// The stamp of the version that was read last.
    read: Stamp,
    /// The stamp at the last check.
    checked: Stamp,
    /// The problem of the version that was read last.
    problem: Option<String>,
}

/// The rule file and the parts of the server that use its rules.
pub struct RulesFile {
    path: PathBuf,
    open: Open,
    rights: Arc<Rights>,
    metrics: Arc<Metrics>,
    seen: Mutex<FileState>,
}

impl RulesFile {
    /// A rule file whose current rules are already in force.
    #[must_use]
    pub fn new(path: PathBuf, open: Open, rights: Arc<Rights>, metrics: Arc<Metrics>) -> Self {
        let read = stamp(&path);
        Self {
            path,
            open,
            rights,
            metrics,
            seen: Mutex::new(FileState {
                read,
                checked: read,
                problem: None,
            }),
        }
    }

    /// Reads the file again if it has changed since it was read, but not since the last check.
    pub async fn check_file(&self) {
        let has_changed = {
            let mut seen = self.seen.lock();
            let now = stamp(&self.path);
            let is_settled = std::mem::replace(&mut seen.checked, now) == now;
            is_settled && now != seen.read
        };
        if has_changed {
            self.reload().await;
        }
    }

    /// Reads the file again. Returns when its rules are in force on all shards, or at once if they are invalid.
    pub async fn reload(&self) {
        let file = self.path.display();
        // Taken before the read, so that a write during the read counts as another change.
        let read = stamp(&self.path);
        let opened = (self.open)();
        {
            let mut seen = self.seen.lock();
            seen.read = read;
            seen.problem = opened.as_ref().err().map(ToString::to_string);
        }
        self.metrics.rules_stale.set(opened.is_err().into());
        match opened {
            Err(problem) => {
                tracing::error!(%problem, "could not reload the rules; the previous rules stay in force");
            }
            Ok(permission) => match self.rights.set_rules(permission).await {
                Ok(()) => {
                    self.metrics.rules_reloads.inc();
                    tracing::info!(%file, "the rules were reloaded and are in force on all shards");
                }
                Err(error) => tracing::warn!(%error, "some shards may still use the old rules"),
            },
        }
    }

    /// The problem of the file, if older rules are in force because of it.
    #[must_use]
    pub fn warning(&self) -> Option<Reason> {
        let problem = self.seen.lock().problem.clone()?;
        Some(Reason {
            code: "rules_stale",
            text: format!("older rules are in force: {problem}"),
        })
    }
}

fn stamp(path: &Path) -> Stamp {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
}

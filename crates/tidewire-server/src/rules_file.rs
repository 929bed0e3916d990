//! The file of rules while the server runs: read again when it changes or SIGHUP comes, and used only if it is right as a
//! whole. The rules from before stay otherwise, and log, metric and `/ready` say so.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tidewire_config::Problem;
use tidewire_core::permission::Permission;
use tidewire_http::metrics::Metrics;
use tidewire_http::rights::Rights;
use tidewire_http::status::Reason;

/// How often it is looked whether the file has changed. It is read when two looks in a row find the same, so that one that is
/// being written in place is not taken half.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// What tells that a file was replaced or written, without reading it.
type Stamp = Option<(SystemTime, u64, u64)>;

/// Reads the file as a whole.
pub type Open = Box<dyn Fn() -> Result<Arc<dyn Permission>, Problem> + Send + Sync>;

/// How the file was found.
#[derive(Debug)]
struct Seen {
    /// When it was last read.
    read: Stamp,
    /// At the last look.
    looked: Stamp,
    /// What was wrong with it when it was last read.
    problem: Option<String>,
}

/// See the head of this file.
pub struct RulesFile {
    path: PathBuf,
    open: Open,
    rights: Arc<Rights>,
    metrics: Arc<Metrics>,
    seen: Mutex<Seen>,
}

impl RulesFile {
    /// The file whose rules are in force now.
    #[must_use]
    pub fn new(path: PathBuf, open: Open, rights: Arc<Rights>, metrics: Arc<Metrics>) -> Self {
        let read = stamp(&path);
        Self {
            path,
            open,
            rights,
            metrics,
            seen: Mutex::new(Seen {
                read,
                looked: read,
                problem: None,
            }),
        }
    }

    /// Reads the file again if it has changed, and has stayed as it is since the last look.
    pub async fn look(&self) {
        let has_changed = {
            let mut seen = self.seen.lock();
            let now = stamp(&self.path);
            let is_settled = std::mem::replace(&mut seen.looked, now) == now;
            is_settled && now != seen.read
        };
        if has_changed {
            self.reload().await;
        }
    }

    /// Reads the file again; returns when its rules hold everywhere, or at once if they are wrong.
    pub async fn reload(&self) {
        let file = self.path.display();
        // Taken before the file is read: what is written meanwhile counts as another change.
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
                tracing::error!(%problem, "the rules were not read again; those from before stay in force");
            }
            Ok(permission) => match self.rights.set_rules(permission).await {
                Ok(()) => {
                    self.metrics.rules_reloads.inc();
                    tracing::info!(%file, "the rules were read again and hold for everybody");
                }
                Err(error) => tracing::warn!(%error, "nobody knows whether the new rules hold"),
            },
        }
    }

    /// What is wrong with the file, if older rules are in force because of it.
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

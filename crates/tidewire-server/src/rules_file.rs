//! Reloads the rule file while the server runs. The server reads the file again when it changes or on SIGHUP, and uses it only if
//! the whole file is valid. Otherwise the previous rules stay in force, which the log, a metric and `/ready` report.
//!
//! In a cluster the store has the rules of all nodes. A file that is written while its node runs replaces them. A file that differs when the
//! node starts does not, because it may be an old one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tidewire_config::Problem;
use tidewire_core::permission::Permission;
use tidewire_http::metrics::Metrics;
use tidewire_http::permission::read;
use tidewire_http::rights::{ChangeError, Rights, RulesChange};
use tidewire_http::rules_text::RulesText;
use tidewire_http::status::Reason;

/// How often the server checks whether the file has changed. It reads a changed file only after two equal checks in a row, because
/// a file that is written in place may be incomplete.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Modification time, length and inode: a change shows that the file was replaced or written. `None` if the file is missing.
type Stamp = Option<(SystemTime, u64, u64)>;

/// Compiles the text of the rule file.
pub type Compile = Box<dyn Fn(&str) -> Result<Arc<dyn Permission>, Problem> + Send + Sync>;

/// The state of the file at earlier checks.
#[derive(Debug)]
struct FileState {
    /// The stamp of the version that was read last.
    read: Stamp,
    /// The stamp at the last check.
    checked: Stamp,
    /// The problem of the version that was read last.
    problem: Option<String>,
    /// The text of the version that was read last.
    rules: Option<RulesText>,
    /// Whether the cluster may not have the version that was read last.
    is_unshared: bool,
}

/// The rule file and the parts of the server that use its rules.
pub struct RulesFile {
    path: PathBuf,
    compile: Compile,
    rights: Arc<Rights>,
    metrics: Arc<Metrics>,
    seen: Mutex<FileState>,
    /// Held while a version of the file takes effect.
    turn: tokio::sync::Mutex<()>,
}

impl RulesFile {
    /// A rule file whose current rules are already in force.
    #[must_use]
    pub fn new(
        path: PathBuf,
        compile: Compile,
        rights: Arc<Rights>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let stamp = stamp(&path);
        let rules = read(&path)
            .ok()
            .map(|text| RulesText::of_file(&path, &text));
        Self {
            path,
            compile,
            rights,
            metrics,
            seen: Mutex::new(FileState {
                read: stamp,
                checked: stamp,
                problem: None,
                rules,
                is_unshared: false,
            }),
            turn: tokio::sync::Mutex::new(()),
        }
    }

    /// Passes the rules of the file to a cluster that has none.
    ///
    /// # Errors
    /// The cluster may not have them.
    pub async fn share_first(&self) -> Result<(), ChangeError> {
        let rules = self.seen.lock().rules.clone();
        if let Some(rules) = rules
            && self.rights.needs_rules()
        {
            let file = self.path.display();
            tracing::info!(%file, "the cluster has no rules; it gets the rules of this node");
            let first = RulesChange::First;
            self.rights.replace_rules(rules, first).await?;
        }
        if let Some(reason) = self.difference() {
            tracing::warn!("{}", reason.text);
        }
        Ok(())
    }

    /// Reads the file again if it has changed since it was read, but not since the last check.
    pub async fn check_file(&self) {
        let has_changed = {
            let mut seen = self.seen.lock();
            let now = stamp(&self.path);
            let is_settled = std::mem::replace(&mut seen.checked, now) == now;
            is_settled && (now != seen.read || seen.is_unshared)
        };
        if has_changed {
            return self.reload().await;
        }
        // The last node of an older version has left.
        if self.rights.needs_rules()
            && let Err(error) = self.share_first().await
        {
            tracing::warn!(%error, "the cluster may not have the rules of this node");
        }
    }

    /// Reads the file again. Returns when its rules are in force on all shards, in a cluster those of all nodes, or at once if they are invalid.
    pub async fn reload(&self) {
        let _turn = self.turn.lock().await;
        // Taken before the read, so that a write during the read counts as another change.
        let stamp = stamp(&self.path);
        let is_written = {
            let seen = self.seen.lock();
            stamp != seen.read || seen.is_unshared
        };
        if self.rights.is_shared() && !is_written {
            return self.report_unwritten();
        }
        let opened = read(&self.path).and_then(|text| {
            let permission = (self.compile)(&text)?;
            Ok((RulesText::of_file(&self.path, &text), permission))
        });
        match opened {
            Err(problem) => {
                let line = "could not reload the rules; the previous rules stay in force";
                self.failed(stamp, &problem.to_string(), line);
                self.seen.lock().is_unshared = false;
            }
            Ok((rules, permission)) => {
                self.seen.lock().rules = Some(rules.clone());
                match self.rights.is_shared() {
                    true => self.share(stamp, rules).await,
                    false => self.apply(stamp, permission).await,
                }
            }
        }
    }

    async fn apply(&self, stamp: Stamp, permission: Arc<dyn Permission>) {
        let file = self.path.display();
        self.succeeded(stamp);
        match self.rights.set_rules(permission).await {
            Ok(()) => {
                self.metrics.rules_reloads.inc();
                tracing::info!(%file, "the rules were reloaded and are in force on all shards");
            }
            Err(error) => tracing::warn!(%error, "some shards may still use the old rules"),
        }
    }

    async fn share(&self, stamp: Stamp, rules: RulesText) {
        let (file, sha256) = (self.path.display(), rules.short_hash().to_owned());
        match self.rights.replace_rules(rules, RulesChange::Replace).await {
            Ok(()) => {
                self.succeeded(stamp);
                self.metrics.rules_reloads.inc();
                tracing::info!(%file, sha256, "the rules were reloaded and are in force on all nodes");
            }
            Err(error) => {
                let line = "the cluster may not have the new rules; this node tries again";
                self.failed(stamp, &error.to_string(), line);
                self.seen.lock().is_unshared = true;
            }
        }
    }

    fn succeeded(&self, stamp: Stamp) {
        let mut seen = self.seen.lock();
        seen.read = stamp;
        seen.problem = None;
        seen.is_unshared = false;
        self.metrics.rules_stale.set(0);
    }

    fn failed(&self, stamp: Stamp, problem: &str, line: &'static str) {
        let mut seen = self.seen.lock();
        seen.read = stamp;
        let before = seen.problem.replace(problem.to_owned());
        self.metrics.rules_stale.set(1);
        // The node tries again each second, and repeats no line.
        if before.as_deref() != Some(problem) {
            tracing::error!(problem, "{line}");
        }
    }

    /// A reload for another reason must not bring back old rules of a file that was not written.
    fn report_unwritten(&self) {
        match self.warning() {
            Some(reason) => tracing::warn!("{}", reason.text),
            None => tracing::info!("the rules have not changed"),
        }
    }

    /// The problem of the file, if other rules are in force because of it.
    #[must_use]
    pub fn warning(&self) -> Option<Reason> {
        let problem = self.seen.lock().problem.clone();
        let stale = problem.map(|problem| Reason {
            code: "rules_stale",
            text: format!("older rules are in force: {problem}"),
        });
        stale.or_else(|| self.difference())
    }

    /// The difference between the file and the rules of the cluster.
    fn difference(&self) -> Option<Reason> {
        let now = self.rights.rules()?;
        let rules = self.seen.lock().rules.clone()?;
        (!rules.is_equal(&now.rules)).then(|| Reason {
            code: "rules_differ",
            text: format!(
                "{} (sha256 {}) differs from the rules of the cluster (change {}, sha256 {}), which are in force; \
                 replace the file, or write it again to give its rules to all nodes",
                self.path.display(),
                rules.short_hash(),
                now.number,
                now.rules.short_hash()
            ),
        })
    }
}

fn stamp(path: &Path) -> Stamp {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
}

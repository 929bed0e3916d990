//! Changes of rights that the nodes of a cluster share. Format of their rows: `spec/rights-log.md`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tidewire_auth::jwt;
use tidewire_config::Problem;
use tidewire_core::permission::Permission;
use tidewire_core::rights::{Revocation, RightsChange};
use tidewire_core::store::StoreError;
use tidewire_core::time::WallTime;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::time::sleep;

use super::{ChangeError, Rights, settled};
use crate::rights_log::{Ledger, LoggedChange, RightsLog, Row};
use crate::rules_text::RulesText;

/// The levels of views whose members all take part in revocations, and in changes of rules.
const REVOCATION_LEVEL: u16 = 2;
const RULES_LEVEL: u16 = 3;

/// The pause after a failed read of the changes; it doubles up to the maximum.
const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(2);

/// Makes rules of a text that the store has.
pub type Compile = Box<dyn Fn(&RulesText) -> Result<Arc<dyn Permission>, Problem> + Send + Sync>;

/// The rules of a cluster that apply on this node.
#[derive(Clone, Debug)]
pub struct RulesInForce {
    /// The number of the change that made them.
    pub number: u64,
    /// Their text.
    pub rules: RulesText,
    /// The time of the change.
    pub since: WallTime,
    permission: Arc<dyn Permission>,
}

/// The conditions under which the nodes get new rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RulesChange {
    /// The cluster has other rules, or none.
    Replace,
    /// The cluster has no rules.
    First,
}

impl RulesInForce {
    fn row(&self) -> Row {
        Row {
            number: self.number,
            change: LoggedChange::Rules {
                rules: self.rules.clone(),
                since: self.since,
            },
        }
    }
}

/// The next step of a node that makes a change.
enum Next {
    /// It adds this row, which may have new rules.
    Add(Row, Option<RulesInForce>),
    /// Another node has made the change with this row. It may not be settled everywhere yet.
    Await(Row),
}

/// The changes that all nodes of a cluster share.
pub(super) struct Shared {
    runtime: Handle,
    compile: Compile,
    /// Set once the store is open.
    log: watch::Sender<Option<RightsLog>>,
    ledger: Mutex<Ledger>,
    /// The level of the newest view.
    level: AtomicU16,
    /// `None` until the store has rules. The node then uses the rules of its start.
    rules: RwLock<Option<RulesInForce>>,
    /// Why the node can't use the newest rules.
    unusable_rules: Mutex<Option<String>>,
    /// Held while a row is added, so that this node competes with other nodes only.
    adding: tokio::sync::Mutex<()>,
    /// Held while rows are read.
    reading: tokio::sync::Mutex<()>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

impl Rights {
    /// Sets the store, which has the changes of all members. Before this call, changes wait.
    pub fn open_log(&self, log: RightsLog) {
        if let Some(shared) = &self.shared {
            shared.log.send_replace(Some(log));
        }
    }

    /// A new view holds. Its level decides whether changes are possible. The node also reads changes that a lost member may have stored and
    /// not passed on.
    pub fn view_changed(self: &Arc<Self>, level: u16) {
        let Some(shared) = &self.shared else {
            return;
        };
        shared.level.store(level, Ordering::Relaxed);
        let rights = Arc::clone(self);
        shared.runtime.spawn(async move {
            rights.read_until(0).await;
        });
    }

    /// The store may have lost changes: those that this node knows are added again.
    pub fn store_taken_over(self: &Arc<Self>) {
        let Some(shared) = &self.shared else {
            return;
        };
        let rights = Arc::clone(self);
        shared.runtime.spawn(async move {
            let mut pause = RETRY_MIN;
            while let Err(error) = rights.add_lost().await {
                tracing::warn!(%error, "the changes of rights can't be compared with the store");
                sleep(pause).await;
                pause = (pause * 2).min(RETRY_MAX);
            }
        });
    }

    /// Adds the changes again that the store has lost. All nodes do so, because one may know a change that another one lacks.
    async fn add_lost(&self) -> Result<(), StoreError> {
        let Some(shared) = &self.shared else {
            return Ok(());
        };
        let log = shared.log().await;
        // A row that this node adds in between would count as lost.
        let _adding = shared.adding.lock().await;
        let stored = log.after(0).await?;
        let rules = shared.rules.read().as_ref().map(RulesInForce::row);
        let lost = shared.ledger.lock().difference(&stored, rules);
        for row in &lost.missing {
            if log.add(row).await? {
                let change = row.number;
                tracing::warn!(
                    change,
                    "the store had lost a change of rights, and has it again"
                );
            }
        }
        match lost.returned.is_empty() {
            true => Ok(()),
            false => log.remove(&lost.returned).await,
        }
    }

    /// Handles a change that a shard of another node has posted, before the shards of this node handle the post. Returns whether they may:
    /// otherwise this node lacks earlier changes or the content of this one, and has to read them with [`Rights::read_until`].
    #[must_use]
    pub fn hear(self: &Arc<Self>, number: u64, change: &RightsChange) -> bool {
        let known = *self.number.lock();
        if number <= known {
            return true;
        }
        // A marker of rules may represent earlier changes of any kind.
        let change = match change {
            RightsChange::Rules(_) => return false,
            RightsChange::Revoke(revocation) => LoggedChange::Revoke {
                revocation: revocation.clone(),
                since: jwt::now(),
            },
            RightsChange::Restore(what) => LoggedChange::Restore(what.clone()),
        };
        let is_next = number == known + 1;
        if is_next {
            self.apply(&Row { number, change }, false, None);
        }
        is_next
    }

    /// Reads the changes of other nodes from the store, and repeats that until the change with this number is among them.
    pub async fn read_until(self: &Arc<Self>, number: u64) {
        let mut pause = RETRY_MIN;
        loop {
            match self.read().await {
                Ok(()) if number <= *self.number.lock() => return,
                Ok(()) => tracing::error!(
                    number,
                    "the store lacks a change of rights that another node has; restart the nodes"
                ),
                Err(error) => tracing::warn!(%error, "the changes of rights can't be read"),
            }
            sleep(pause).await;
            pause = (pause * 2).min(RETRY_MAX);
        }
    }

    /// Reads the changes of other nodes from the store.
    ///
    /// # Errors
    /// The store can't be read now, or has changes of a later version.
    pub async fn read(self: &Arc<Self>) -> Result<(), StoreError> {
        let Some(shared) = &self.shared else {
            return Ok(());
        };
        let log = shared.log().await;
        let _reading = shared.reading.lock().await;
        let after = *self.number.lock();
        let rows = log.after(after).await?;
        let newest = rows.iter().rev().find_map(|row| match &row.change {
            LoggedChange::Rules { rules, since } => Some((row.number, rules, *since)),
            LoggedChange::Revoke { .. } | LoggedChange::Restore(_) => None,
        });
        let newest = match newest {
            Some((number, rules, since)) => Some(shared.compile(number, rules, since)?),
            None => None,
        };
        for (index, row) in rows.iter().enumerate() {
            self.apply(row, index + 1 < rows.len(), newest.as_ref());
        }
        Ok(())
    }

    /// The rules of the cluster, `None` if the store has none or the node is alone.
    #[must_use]
    pub fn rules(&self) -> Option<RulesInForce> {
        self.shared.as_ref()?.rules.read().clone()
    }

    /// Whether the cluster needs the rules of a node: its store has none, and all nodes can apply them.
    #[must_use]
    pub fn needs_rules(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| {
            let level = shared.level.load(Ordering::Relaxed);
            level >= RULES_LEVEL && shared.rules.read().is_none()
        })
    }

    /// Why this node can't use the rules of the cluster. It must not serve clients by older ones.
    #[must_use]
    pub fn unusable_rules(&self) -> Option<String> {
        self.shared.as_ref()?.unusable_rules.lock().clone()
    }

    /// Replaces the rules of all nodes of the cluster. When this returns, the store has them, and on each node every subscription that they
    /// deny has ended, and no message for a lost right is written. If the cluster has equal rules, nothing changes. The change is made also if
    /// the caller stops waiting.
    ///
    /// # Errors
    /// The rules are not valid, the node is stopping, or the cluster can't make the change now.
    pub async fn replace_rules(
        self: &Arc<Self>,
        rules: RulesText,
        change: RulesChange,
    ) -> Result<(), ChangeError> {
        let rights = Arc::clone(self);
        self.share(async move { rights.add_rules(rules, change).await })
            .await
    }

    /// All revocations that hold, in the order in which they were made, with their times.
    ///
    /// # Errors
    /// The store can't be read now, or has changes of a later version.
    pub async fn stored_revocations(
        &self,
        now: WallTime,
    ) -> Result<Vec<(Revocation, WallTime)>, StoreError> {
        let Some(shared) = &self.shared else {
            return Ok(Vec::new());
        };
        let mut found: Vec<(Revocation, WallTime)> = Vec::new();
        for row in shared.log().await.after(0).await? {
            let (LoggedChange::Revoke {
                revocation: Revocation { what, .. },
                ..
            }
            | LoggedChange::Restore(what)) = &row.change
            else {
                continue;
            };
            found.retain(|(known, _)| known.what != *what);
            if let LoggedChange::Revoke { revocation, since } = row.change {
                found.push((revocation, since));
            }
        }
        found.retain(|(revocation, _)| revocation.until > now);
        Ok(found)
    }

    /// Makes a revocation or its end on all nodes.
    pub(super) async fn share_change(
        self: &Arc<Self>,
        change: LoggedChange,
    ) -> Result<(), ChangeError> {
        let rights = Arc::clone(self);
        self.share(async move { rights.add_change(change).await })
            .await
    }

    /// Makes a change to its end also if the caller stops waiting: others may read its row at any time.
    async fn share(
        &self,
        make: impl Future<Output = Result<(), ChangeError>> + Send + 'static,
    ) -> Result<(), ChangeError> {
        let Some(shared) = &self.shared else {
            return Err(ChangeError::ShardEnded);
        };
        let made = shared.runtime.spawn(make);
        made.await.map_err(|_| ChangeError::ShardEnded)?
    }

    async fn add_change(self: &Arc<Self>, change: LoggedChange) -> Result<(), ChangeError> {
        let next = |number| {
            if let LoggedChange::Revoke { revocation, .. } = &change {
                let revocations = self.revocations.read();
                let is_known = revocations.has(&revocation.what);
                if !is_known && revocations.count() >= self.revocations_max {
                    return Err(ChangeError::Full);
                }
            }
            let change = change.clone();
            Ok(Next::Add(Row { number, change }, None))
        };
        self.add(REVOCATION_LEVEL, next).await
    }

    async fn add_rules(
        self: &Arc<Self>,
        rules: RulesText,
        condition: RulesChange,
    ) -> Result<(), ChangeError> {
        let Some(shared) = &self.shared else {
            return Ok(());
        };
        let compiled = (shared.compile)(&rules);
        let permission = compiled.map_err(|problem| ChangeError::Invalid(problem.to_string()))?;
        let since = jwt::now();
        // Each change makes the shards authorize all subscriptions from the beginning, which takes its time.
        let _turn = self.turn.lock().await;
        let next = |number| {
            if let Some(now) = &*shared.rules.read()
                && (condition == RulesChange::First || now.rules.is_equal(&rules))
            {
                return Ok(Next::Await(now.row()));
            }
            let rules = RulesInForce {
                number,
                rules: rules.clone(),
                since,
                permission: Arc::clone(&permission),
            };
            Ok(Next::Add(rules.row(), Some(rules)))
        };
        self.add(RULES_LEVEL, next).await
    }

    /// Adds the row that `next` makes of the next number, and waits until the change is settled on all nodes. `next` is called again after
    /// the change of another node.
    async fn add(
        self: &Arc<Self>,
        level: u16,
        next: impl Fn(u64) -> Result<Next, ChangeError>,
    ) -> Result<(), ChangeError> {
        let Some(shared) = &self.shared else {
            return Ok(());
        };
        let not_stored = |error: StoreError| ChangeError::NotStored(error.message);
        let log = shared.log().await;
        let adding = shared.adding.lock().await;
        let (row, rules) = loop {
            if shared.level.load(Ordering::Relaxed) < level {
                return Err(ChangeError::OlderMember);
            }
            let number = *self.number.lock() + 1;
            let (row, rules) = match next(number)? {
                Next::Add(row, rules) => (row, rules),
                Next::Await(row) => break (row, None),
            };
            match log.add(&row).await {
                Ok(true) => break (row, rules),
                // Another node has made a change. It counts before this one.
                Ok(false) => self.read().await.map_err(not_stored)?,
                Err(error) => {
                    // The row may be stored. Then it takes effect like that of another node.
                    let rights = Arc::clone(self);
                    shared
                        .runtime
                        .spawn(async move { rights.read_until(0).await });
                    return Err(not_stored(error));
                }
            }
        };
        let answers = self.apply(&row, false, rules.as_ref());
        drop(adding);
        settled(answers).await?;
        self.remove_obsolete();
        Ok(())
    }

    /// Passes a row to the shards. The answers come when all shards of all nodes have applied it. A row that another one follows at once has
    /// none. A row of rules takes effect as `newest`, the newest rules that the node knows, because these follow at once.
    fn apply(
        self: &Arc<Self>,
        row: &Row,
        is_followed: bool,
        newest: Option<&RulesInForce>,
    ) -> Vec<oneshot::Receiver<()>> {
        let Some(shared) = &self.shared else {
            return Vec::new();
        };
        let mut number = self.number.lock();
        let is_new = row.number > *number;
        let change = match &row.change {
            LoggedChange::Revoke { revocation, .. } => {
                if is_new {
                    let now = jwt::now();
                    self.revocations.write().add(revocation.clone(), now);
                }
                RightsChange::Revoke(revocation.clone())
            }
            LoggedChange::Restore(what) => {
                if is_new {
                    self.revocations.write().remove(what);
                }
                RightsChange::Restore(what.clone())
            }
            LoggedChange::Rules { .. } => {
                let mut in_force = shared.rules.write();
                if is_new && let Some(newest) = newest {
                    *in_force = Some(newest.clone());
                }
                let Some(in_force) = &*in_force else {
                    return Vec::new();
                };
                RightsChange::Rules(Arc::clone(&in_force.permission))
            }
        };
        if is_new {
            if let LoggedChange::Rules { rules, .. } = &row.change {
                let (change, file, sha256) = (row.number, rules.file(), rules.short_hash());
                tracing::info!(
                    change,
                    file,
                    sha256,
                    "this node has new rules of the cluster"
                );
            }
            *number = row.number;
            let mut ledger = shared.ledger.lock();
            ledger.take(row);
            if ledger.is_long() {
                drop(ledger);
                self.remove_obsolete();
            }
        }
        if is_followed {
            for shard in self.shards.iter().filter(|_| is_new) {
                shard.precede_rights(row.number, change.clone());
            }
            return Vec::new();
        }
        // The shards ignore a change that they know, and answer when it is settled.
        self.give_to_shards(row.number, &change)
    }

    /// Deletes rows without an effect. If that fails, the next change tries again.
    fn remove_obsolete(self: &Arc<Self>) {
        let Some(shared) = &self.shared else {
            return;
        };
        let rights = Arc::clone(self);
        shared.runtime.spawn(async move {
            let Some(shared) = &rights.shared else {
                return;
            };
            let obsolete = shared.ledger.lock().obsolete(jwt::now());
            if obsolete.is_empty() {
                return;
            }
            match shared.log().await.remove(&obsolete).await {
                Ok(()) => shared.ledger.lock().removed(&obsolete),
                Err(error) => tracing::debug!(%error, "old changes of rights were not deleted"),
            }
        });
    }
}

impl Shared {
    pub(super) fn new(runtime: Handle, compile: Compile) -> Self {
        Self {
            runtime,
            compile,
            log: watch::Sender::default(),
            ledger: Mutex::default(),
            level: AtomicU16::new(0),
            rules: RwLock::default(),
            unusable_rules: Mutex::default(),
            adding: tokio::sync::Mutex::default(),
            reading: tokio::sync::Mutex::default(),
        }
    }

    /// Makes rules of a row. A node that can't must not continue by older rules.
    fn compile(
        &self,
        number: u64,
        rules: &RulesText,
        since: WallTime,
    ) -> Result<RulesInForce, StoreError> {
        match (self.compile)(rules) {
            Ok(permission) => Ok(RulesInForce {
                number,
                rules: rules.clone(),
                since,
                permission,
            }),
            Err(problem) => {
                let text = format!(
                    "this node can't use the rules of the cluster (change {number}): {problem}; upgrade the node to the version of the others"
                );
                *self.unusable_rules.lock() = Some(text.clone());
                Err(StoreError::unavailable(text))
            }
        }
    }

    async fn log(&self) -> RightsLog {
        let mut log = self.log.subscribe();
        let found = log.wait_for(Option::is_some).await;
        let found = found.ok().and_then(|log| log.clone());
        found.expect("the sender is in `self`")
    }
}

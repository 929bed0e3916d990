//! The state of the node, which `/health` and `/ready` report. It comes from the shards, the stores and the shutdown.

use std::time::Duration;

use parking_lot::RwLock;
use serde::Serialize;
use tokio::sync::watch;

/// A shard that has not finished a turn for this long is stuck.
const TURN_TIMEOUT: Duration = Duration::from_secs(1);

/// The stage of the node's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The node does not serve clients yet.
    Starting,
    /// The node serves clients.
    Serving,
    /// The node has begun to stop. It still accepts connections, so that load balancers can remove it first.
    Leaving,
    /// The node no longer accepts connections.
    Draining,
}

/// A reason why the node should get no new connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// A fixed code for programs.
    pub code: &'static str,
    /// A description for the operator.
    pub text: String,
}

/// Returns the time since a shard's last turn ended. Every shard ends a turn at least twice a second.
pub type SinceTurn = Box<dyn Fn() -> Duration + Send + Sync>;

/// Returns the reason if the store is failing.
pub type StoreFailure = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// Returns whether a store has used up its quota.
pub type IsFull = Box<dyn Fn() -> bool + Send + Sync>;

/// Returns the problems of the auth chain, and for each whether logins fail because of it.
pub type AuthTroubles = Box<dyn Fn() -> Vec<(Reason, bool)> + Send + Sync>;

/// Returns the problems of the cluster, and for each whether the node should get no new connections because of it.
pub type ClusterTroubles = Box<dyn Fn() -> Vec<(Reason, bool)> + Send + Sync>;

/// Returns a problem that does not prevent logins.
pub type Warning = Box<dyn Fn() -> Option<Reason> + Send + Sync>;

/// The state of a node, which all its threads share.
pub struct Status {
    stage: watch::Sender<Stage>,
    shards: RwLock<Vec<SinceTurn>>,
    store: RwLock<StoreFailure>,
    /// The stores other than the default one, by name.
    other_stores: RwLock<Vec<(String, StoreFailure)>>,
    auth: RwLock<AuthTroubles>,
    cluster: RwLock<ClusterTroubles>,
    rules: RwLock<Warning>,
    damage: RwLock<Warning>,
    /// The stores with a quota, by name.
    full_stores: RwLock<Vec<(String, IsFull)>>,
    /// Why acknowledged writes may be lost, if the operator has configured such a store.
    relaxed_stores: RwLock<Vec<String>>,
}

impl Default for Status {
    fn default() -> Self {
        Self {
            stage: watch::Sender::new(Stage::Starting),
            shards: RwLock::default(),
            store: RwLock::new(Box::new(|| None)),
            auth: RwLock::new(Box::new(Vec::new)),
            cluster: RwLock::new(Box::new(Vec::new)),
            rules: RwLock::new(Box::new(|| None)),
            damage: RwLock::new(Box::new(|| None)),
            other_stores: RwLock::default(),
            full_stores: RwLock::default(),
            relaxed_stores: RwLock::default(),
        }
    }
}

impl Status {
    /// Adds the next shard to the shards that `/health` checks.
    pub fn watch_shard(&self, since_turn: SinceTurn) {
        self.shards.write().push(since_turn);
    }

    /// Sets the check of the default store.
    pub fn watch_store(&self, failure: StoreFailure) {
        *self.store.write() = failure;
    }

    /// Adds the check of another store. While it fails, all other records still work, so the node remains ready for new
    /// connections.
    pub fn watch_other_store(&self, name: String, failure: StoreFailure) {
        self.other_stores.write().push((name, failure));
    }

    /// Sets the check of the auth chain.
    pub fn watch_auth(&self, troubles: AuthTroubles) {
        *self.auth.write() = troubles;
    }

    /// Sets the check of the cluster.
    pub fn watch_cluster(&self, troubles: ClusterTroubles) {
        *self.cluster.write() = troubles;
    }

    /// Sets the check of the rule file.
    pub fn watch_rules(&self, warning: Warning) {
        *self.rules.write() = warning;
    }

    /// Sets the check for damaged records.
    pub fn watch_damage(&self, warning: Warning) {
        *self.damage.write() = warning;
    }

    /// Adds the check of a store's quota. A store that has used it up can still be read, and its records can be deleted.
    pub fn watch_quota(&self, name: String, is_full: IsFull) {
        self.full_stores.write().push((name, is_full));
    }

    /// Adds a warning that an acknowledged write may be lost.
    pub fn warn_of_store(&self, weakness: String) {
        self.relaxed_stores.write().push(weakness);
    }

    /// Problems that do not make the node unready: it should still get new connections.
    #[must_use]
    pub fn warnings(&self) -> Vec<Reason> {
        let mut warnings = self.auth_troubles(false);
        warnings.extend(self.cluster_troubles(false));
        warnings.extend((self.rules.read())());
        warnings.extend((self.damage.read())());
        let relaxed = self.relaxed_stores.read();
        warnings.extend(relaxed.iter().map(|weakness| Reason {
            code: "store_relaxed",
            text: format!("acknowledged writes may be lost: {weakness}"),
        }));
        let stores = self.full_stores.read();
        let full = stores.iter().filter(|(_, is_full)| is_full());
        warnings.extend(full.map(|(name, _)| Reason {
            code: "store_full",
            text: format!(
                "the store {name} has used up limits.store_bytes_max, and writes that need more room are refused; delete \
                 records or raise the limit"
            ),
        }));
        let others = self.other_stores.read();
        warnings.extend(others.iter().filter_map(|(name, failure)| {
            let text = format!("the store {name} fails: {}", failure()?);
            let code = "store_failing";
            Some(Reason { code, text })
        }));
        warnings
    }

    fn cluster_troubles(&self, is_blocking: bool) -> Vec<Reason> {
        let troubles = (self.cluster.read())().into_iter();
        let wanted = troubles.filter(|(_, blocks)| *blocks == is_blocking);
        wanted.map(|(reason, _)| reason).collect()
    }

    fn auth_troubles(&self, is_blocking: bool) -> Vec<Reason> {
        let troubles = (self.auth.read())().into_iter();
        let wanted = troubles.filter(|(_, blocks)| *blocks == is_blocking);
        wanted.map(|(reason, _)| reason).collect()
    }

    /// The node's stage.
    #[must_use]
    pub fn stage(&self) -> Stage {
        *self.stage.borrow()
    }

    /// Moves the node to another stage.
    pub fn set_stage(&self, stage: Stage) {
        self.stage.send_replace(stage);
    }

    /// Waits until the node no longer accepts connections.
    pub async fn draining(&self) {
        let mut stage = self.stage.subscribe();
        // `self` owns the sender, so waiting can't fail.
        let _ = stage.wait_for(|stage| *stage == Stage::Draining).await;
    }

    /// The shards that have not finished a turn within the last second.
    #[must_use]
    pub fn stuck_shards(&self) -> Vec<usize> {
        let shards = self.shards.read();
        let numbered = shards.iter().enumerate();
        numbered
            .filter(|(_, since_turn)| since_turn() > TURN_TIMEOUT)
            .map(|(shard, _)| shard)
            .collect()
    }

    /// Why the node should get no new connections; empty when it is ready.
    #[must_use]
    pub fn reasons(&self) -> Vec<Reason> {
        let mut reasons = Vec::new();
        let mut add = |code, text: String| reasons.push(Reason { code, text });
        match self.stage() {
            Stage::Starting => add("starting", "the server is starting".into()),
            Stage::Serving => {}
            Stage::Leaving | Stage::Draining => add("draining", "the server is stopping".into()),
        }
        for shard in self.stuck_shards() {
            add(
                "shard_stuck",
                format!("shard {shard} has not finished a turn for a second"),
            );
        }
        if let Some(cause) = (self.store.read())() {
            add("store_failing", format!("the store fails: {cause}"));
        }
        reasons.extend(self.auth_troubles(true));
        reasons.extend(self.cluster_troubles(true));
        reasons
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    fn codes(status: &Status) -> Vec<&'static str> {
        status.reasons().iter().map(|reason| reason.code).collect()
    }

    #[test]
    fn ready_only_while_serving() {
        let status = Status::default();
        assert_eq!(codes(&status), ["starting"]);
        status.set_stage(Stage::Serving);
        assert_eq!(codes(&status), [""; 0]);
        status.set_stage(Stage::Leaving);
        assert_eq!(codes(&status), ["draining"]);
        status.set_stage(Stage::Draining);
        assert_eq!(codes(&status), ["draining"]);
    }

    #[test]
    fn trouble_of_authentication_is_a_reason_only_while_logins_fail() {
        let status = Status::default();
        status.set_stage(Stage::Serving);
        let is_blocking = Arc::new(Mutex::new(false));
        let blocks = Arc::clone(&is_blocking);
        status.watch_auth(Box::new(move || {
            let (code, text) = ("jwt_keys", "they can't be read".into());
            vec![(Reason { code, text }, *blocks.lock())]
        }));
        assert_eq!(codes(&status), [""; 0]);
        assert_eq!(status.warnings()[0].code, "jwt_keys");
        *is_blocking.lock() = true;
        assert_eq!(codes(&status), ["jwt_keys"]);
        assert_eq!(status.warnings(), []);
    }

    #[test]
    fn a_stuck_shard_and_a_failing_store_are_named() {
        let status = Status::default();
        status.set_stage(Stage::Serving);
        let second = Arc::new(Mutex::new(Duration::ZERO));
        let since_turn = Arc::clone(&second);
        status.watch_shard(Box::new(|| Duration::ZERO));
        status.watch_shard(Box::new(move || *since_turn.lock()));
        assert_eq!(codes(&status), [""; 0]);
        *second.lock() = TURN_TIMEOUT + Duration::from_millis(1);
        assert_eq!(status.stuck_shards(), [1]);
        assert_eq!(codes(&status), ["shard_stuck"]);
        *second.lock() = TURN_TIMEOUT;
        status.watch_store(Box::new(|| Some("disk full".into())));
        assert_eq!(status.stuck_shards(), [0; 0], "health is about turns only");
        assert_eq!(codes(&status), ["store_failing"]);
        assert_eq!(status.reasons()[0].text, "the store fails: disk full");
    }

    #[test]
    fn a_failing_further_store_is_a_warning() {
        let status = Status::default();
        status.set_stage(Stage::Serving);
        status.watch_other_store("a".into(), Box::new(|| None));
        status.watch_other_store("b".into(), Box::new(|| Some("disk full".into())));
        status.warn_of_store("one".into());
        status.warn_of_store("two".into());
        assert_eq!(codes(&status), [""; 0]);
        let texts: Vec<String> = status
            .warnings()
            .into_iter()
            .map(|warning| warning.text)
            .collect();
        let expected = [
            "acknowledged writes may be lost: one",
            "acknowledged writes may be lost: two",
            "the store b fails: disk full",
        ];
        assert_eq!(texts, expected);
    }
}

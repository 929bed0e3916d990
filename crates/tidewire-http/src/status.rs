//! How the node is: what `/health` and `/ready` say, and what they are told by shards, store and the stop.

use std::time::Duration;

use parking_lot::RwLock;
use serde::Serialize;
use tokio::sync::watch;

/// A shard that has not finished a turn for this long is stuck.
const TURN_TIMEOUT: Duration = Duration::from_secs(1);

/// Where the node is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Not serving yet.
    Starting,
    /// Serving.
    Serving,
    /// Asked to stop; connections are still accepted so that load balancers can go elsewhere first.
    Leaving,
    /// No longer accepting.
    Draining,
}

/// Why the node should get no new connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// A constant word for programs.
    pub code: &'static str,
    /// A sentence for people.
    pub text: String,
}

/// Says how long ago a shard's last turn ended. It ends one at least twice a second.
pub type SinceTurn = Box<dyn Fn() -> Duration + Send + Sync>;

/// Says why the store fails, if it does.
pub type StoreFailure = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// Says whether a store has used up its quota.
pub type IsFull = Box<dyn Fn() -> bool + Send + Sync>;

/// Says what keeps the auth chain from deciding as it should, and for each whether logins fail because of it.
pub type AuthTroubles = Box<dyn Fn() -> Vec<(Reason, bool)> + Send + Sync>;

/// Says what is wrong, if something is, that keeps nobody out.
pub type Warning = Box<dyn Fn() -> Option<Reason> + Send + Sync>;

/// The state that is shared by all threads of a node.
pub struct Status {
    stage: watch::Sender<Stage>,
    shards: RwLock<Vec<SinceTurn>>,
    store: RwLock<StoreFailure>,
    /// By name, the stores beside it.
    other_stores: RwLock<Vec<(String, StoreFailure)>>,
    auth: RwLock<AuthTroubles>,
    rules: RwLock<Warning>,
    damage: RwLock<Warning>,
    /// By name, the stores that may be full.
    full_stores: RwLock<Vec<(String, IsFull)>>,
    /// Why acknowledged writes may be lost, where somebody has asked for that.
    relaxed_stores: RwLock<Vec<String>>,
}

impl Default for Status {
    fn default() -> Self {
        Self {
            stage: watch::Sender::new(Stage::Starting),
            shards: RwLock::default(),
            store: RwLock::new(Box::new(|| None)),
            auth: RwLock::new(Box::new(Vec::new)),
            rules: RwLock::new(Box::new(|| None)),
            damage: RwLock::new(Box::new(|| None)),
            other_stores: RwLock::default(),
            full_stores: RwLock::default(),
            relaxed_stores: RwLock::default(),
        }
    }
}

impl Status {
    /// Adds the next shard to what `/health` looks at.
    pub fn watch_shard(&self, since_turn: SinceTurn) {
        self.shards.write().push(since_turn);
    }

    /// Says how the store is found to fail.
    pub fn watch_store(&self, failure: StoreFailure) {
        *self.store.write() = failure;
    }

    /// Says how a store beside it is found to fail. All other records go on, so that makes the node no worse for new
    /// connections.
    pub fn watch_other_store(&self, name: String, failure: StoreFailure) {
        self.other_stores.write().push((name, failure));
    }

    /// Says how the auth chain is found to be in trouble.
    pub fn watch_auth(&self, troubles: AuthTroubles) {
        *self.auth.write() = troubles;
    }

    /// Says how the file of rules is found to be wrong.
    pub fn watch_rules(&self, warning: Warning) {
        *self.rules.write() = warning;
    }

    /// Says how stored records are found to be damaged.
    pub fn watch_damage(&self, warning: Warning) {
        *self.damage.write() = warning;
    }

    /// Says how a store is found to have used up its quota. It is still read, and records can be deleted.
    pub fn watch_quota(&self, name: String, is_full: IsFull) {
        self.full_stores.write().push((name, is_full));
    }

    /// Says from now on that an acknowledged write may be lost.
    pub fn warn_of_store(&self, weakness: String) {
        self.relaxed_stores.write().push(weakness);
    }

    /// What is wrong without making the node useless: it should get new connections all the same.
    #[must_use]
    pub fn warnings(&self) -> Vec<Reason> {
        let mut warnings = self.auth_troubles(false);
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

    /// Waits until the node accepts nothing more.
    pub async fn draining(&self) {
        let mut stage = self.stage.subscribe();
        // The sender is here, so it is not gone.
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
                format!("shard {shard} has finished no turn for a second"),
            );
        }
        if let Some(cause) = (self.store.read())() {
            add("store_failing", format!("the store fails: {cause}"));
        }
        reasons.extend(self.auth_troubles(true));
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
    fn a_failing_store_beside_the_default_one_is_a_warning() {
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
            .map(|told| told.text)
            .collect();
        let expected = [
            "acknowledged writes may be lost: one",
            "acknowledged writes may be lost: two",
            "the store b fails: disk full",
        ];
        assert_eq!(texts, expected);
    }
}

//! Changes the rights on all shards of a node or cluster, and waits until every shard has applied the change.
//!
//! All sources of such changes use this module: the admin API, a signal, and watched files.
//!
//! In a cluster the numbers of the changes come from the store (`rights_log.rs`). The node that makes a change adds its row and passes it to
//! its shards. They post it to the shards of the other nodes, and their nodes pass it to all their shards before those handle the post. So
//! each shard applies all changes in their order, and the shards of the node that made the change know when all have. This part is in
//! `rights/member.rs`.

mod member;

use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tidewire_core::permission::Permission;
use tidewire_core::principal::Principal;
use tidewire_core::rights::{Revocation, Revocations, Revoked, RightsChange};
use tidewire_core::time::WallTime;
use tidewire_shard::handle::ShardHandle;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::rights_log::LoggedChange;

use member::Shared;
pub use member::{Compile, RulesChange, RulesInForce};

/// The node has stopped, or a shard has ended, before the change was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardEnded;

impl fmt::Display for ShardEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a shard has ended")
    }
}

impl std::error::Error for ShardEnded {}

/// Why a change of rights failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeError {
    /// The server remembers as many revocations as it may (`limits.revocations_max`).
    Full,
    /// The node has stopped, or a shard has ended. Some shards may have applied the change.
    ShardEnded,
    /// A member of the cluster has a version that does not take part in changes of this kind.
    OlderMember,
    /// The store of the cluster may not have the change.
    NotStored(String),
    /// The rules are not valid: the first problem.
    Invalid(String),
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("too many revocations; raise limits.revocations_max"),
            Self::ShardEnded => ShardEnded.fmt(f),
            Self::OlderMember => f.write_str(
                "a node of the cluster has a version that can't apply this change; upgrade all nodes first",
            ),
            Self::NotStored(why) => {
                write!(f, "the store may not have the change, repeat it: {why}")
            }
            Self::Invalid(problem) => f.write_str(problem),
        }
    }
}

impl std::error::Error for ChangeError {}

impl From<ShardEnded> for ChangeError {
    fn from(_: ShardEnded) -> Self {
        Self::ShardEnded
    }
}

/// The rules that must be applied next.
#[derive(Debug, Default)]
struct Wanted {
    /// The number of the latest request.
    request: u64,
    /// The rules of the latest request, until they are sent to the shards.
    permission: Option<Arc<dyn Permission>>,
    /// The latest request whose rules, or newer ones, every shard has applied.
    done: u64,
}

/// The rights of all sessions. See the comment at the top of this file.
#[derive(Debug)]
pub struct Rights {
    shards: Arc<[ShardHandle]>,
    /// The number of the last change. It is locked while a change is sent to the shards, so that all shards get all changes in
    /// the same order.
    number: Mutex<u64>,
    wanted: Mutex<Wanted>,
    /// Held while a change of rules is in progress, so that only one runs at a time. Otherwise each new change would make the
    /// shards authorize all subscriptions from the beginning again, and with frequent changes that would never end.
    turn: tokio::sync::Mutex<()>,
    /// All revocations that were sent to the shards, for logins that do not go through a shard.
    revocations: RwLock<Revocations>,
    revocations_max: usize,
    /// `None` for a node alone.
    shared: Option<Shared>,
}

impl Rights {
    /// The rights of the sessions of these shards.
    #[must_use]
    pub fn new(shards: Arc<[ShardHandle]>, revocations_max: usize) -> Self {
        Self {
            shards,
            revocations: RwLock::default(),
            revocations_max,
            number: Mutex::new(0),
            wanted: Mutex::default(),
            turn: tokio::sync::Mutex::new(()),
            shared: None,
        }
    }

    /// The same for a member of a cluster, which shares its changes with all members. `compile` makes rules of the texts that the store has.
    #[must_use]
    pub fn of_member(self, runtime: Handle, compile: Compile) -> Self {
        let shared = Some(Shared::new(runtime, compile));
        Self { shared, ..self }
    }

    /// Whether the node shares its changes with the members of a cluster.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Replaces the permission implementation of a node alone. When this returns, every subscription that the new one denies has ended, and no
    /// shard writes to a socket any message for a right that was lost. If several changes arrive while one is in progress, only
    /// the newest of them is applied, and the others return when it is.
    ///
    /// # Errors
    /// The node is stopping.
    pub async fn set_rules(&self, permission: Arc<dyn Permission>) -> Result<(), ShardEnded> {
        let request = {
            let mut wanted = self.wanted.lock();
            wanted.request += 1;
            wanted.permission = Some(permission);
            wanted.request
        };
        // Requests that wait for `turn` leave their rules in `wanted`, where newer rules replace them. The request that gets
        // the turn applies the newest rules. The requests up to `newest` then find `done` at or above their number and return.
        let _turn = self.turn.lock().await;
        let (newest, permission) = {
            let mut wanted = self.wanted.lock();
            if wanted.done >= request {
                return Ok(());
            }
            (wanted.request, wanted.permission.take())
        };
        if let Some(permission) = permission {
            settled(self.give(&RightsChange::Rules(permission))).await?;
        }
        self.wanted.lock().done = newest;
        Ok(())
    }

    /// Ends all sessions of a revoked user or credential, and refuses its further logins. When this returns, no shard writes to
    /// the sockets of these sessions, and none of their messages is in flight. In a cluster this is so on all nodes, and the store has the
    /// revocation; the change is made also if the caller stops waiting.
    ///
    /// # Errors
    /// `limits.revocations_max` is reached, the node is stopping, or the cluster can't make the change now.
    pub async fn revoke(
        self: &Arc<Self>,
        revocation: Revocation,
        now: WallTime,
    ) -> Result<(), ChangeError> {
        if self.is_shared() {
            let since = now;
            return self
                .share_change(LoggedChange::Revoke { revocation, since })
                .await;
        }
        let change = self.remember(revocation, now)?;
        Ok(settled(self.give(&change)).await?)
    }

    /// Repeats the revocations of an earlier run before the server accepts connections. It does not wait for the shards,
    /// because no session exists yet.
    ///
    /// # Errors
    /// `limits.revocations_max` is reached.
    pub fn revoke_again(
        &self,
        revocations: impl IntoIterator<Item = Revocation>,
        now: WallTime,
    ) -> Result<(), ChangeError> {
        for revocation in revocations {
            let change = self.remember(revocation, now)?;
            self.give(&change);
        }
        Ok(())
    }

    /// Removes a revocation, so that the user or credential can log in again.
    ///
    /// # Errors
    /// The node is stopping, or the cluster can't make the change now.
    pub async fn restore(self: &Arc<Self>, what: Revoked) -> Result<(), ChangeError> {
        if self.is_shared() {
            return self.share_change(LoggedChange::Restore(what)).await;
        }
        self.revocations.write().remove(&what);
        Ok(settled(self.give(&RightsChange::Restore(what))).await?)
    }

    /// Whether the principal is revoked, for logins that do not go through a session of a shard.
    #[must_use]
    pub fn is_revoked(&self, principal: &Principal, now: WallTime) -> bool {
        self.revocations.read().covers(principal, now)
    }

    /// The end of a revocation.
    #[must_use]
    pub fn revoked_until(&self, what: &Revoked) -> Option<WallTime> {
        self.revocations.read().end(what)
    }

    fn remember(&self, revocation: Revocation, now: WallTime) -> Result<RightsChange, ChangeError> {
        let mut revocations = self.revocations.write();
        if revocations.count() >= self.revocations_max && !revocations.has(&revocation.what) {
            return Err(ChangeError::Full);
        }
        revocations.add(revocation.clone(), now);
        Ok(RightsChange::Revoke(revocation))
    }

    fn give(&self, change: &RightsChange) -> Vec<oneshot::Receiver<()>> {
        let mut number = self.number.lock();
        *number += 1;
        self.give_to_shards(*number, change)
    }

    fn give_to_shards(&self, number: u64, change: &RightsChange) -> Vec<oneshot::Receiver<()>> {
        let shards = self.shards.iter();
        shards
            .map(|shard| shard.change_rights(number, change.clone()))
            .collect()
    }
}

/// Waits until every shard has applied a change.
async fn settled(answers: Vec<oneshot::Receiver<()>>) -> Result<(), ShardEnded> {
    for answer in answers {
        answer.await.map_err(|_| ShardEnded)?;
    }
    Ok(())
}

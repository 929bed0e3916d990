//! Changes the rights on all shards of a node, and waits until every shard has applied the change.
//!
//! All sources of such changes use this module: the admin API, a signal, and watched files.

use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tidewire_core::permission::Permission;
use tidewire_core::principal::Principal;
use tidewire_core::rights::{Revocation, Revocations, Revoked, RightsChange};
use tidewire_core::time::WallTime;
use tidewire_shard::handle::ShardHandle;
use tokio::sync::oneshot;

/// The node has stopped, or a shard has ended, before the change was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardEnded;

impl fmt::Display for ShardEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a shard has ended")
    }
}

impl std::error::Error for ShardEnded {}

/// Why a revocation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevokeError {
    /// The server remembers as many revocations as it may (`limits.revocations_max`).
    Full,
    /// The node has stopped, or a shard has ended. Some shards may have applied the revocation.
    ShardEnded,
}

impl fmt::Display for RevokeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "too many revocations; raise limits.revocations_max",
            Self::ShardEnded => "a shard has ended",
        })
    }
}

impl std::error::Error for RevokeError {}

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
        }
    }

    /// Replaces the permission implementation. When this returns, every subscription that the new one denies has ended, and no
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
            self.change(&RightsChange::Rules(permission)).await?;
        }
        self.wanted.lock().done = newest;
        Ok(())
    }

    /// Ends all sessions of a revoked user or credential, and refuses its further logins. When this returns, no shard writes to
    /// the sockets of these sessions, and none of their messages is in flight.
    ///
    /// # Errors
    /// `limits.revocations_max` is reached, or the node is stopping.
    pub async fn revoke(&self, revocation: Revocation, now: WallTime) -> Result<(), RevokeError> {
        let change = self.remember(revocation, now)?;
        let changed = self.change(&change).await;
        changed.map_err(|ShardEnded| RevokeError::ShardEnded)
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
    ) -> Result<(), RevokeError> {
        for revocation in revocations {
            let change = self.remember(revocation, now)?;
            self.give(&change);
        }
        Ok(())
    }

    /// Removes a revocation, so that the user or credential can log in again.
    ///
    /// # Errors
    /// The node is stopping.
    pub async fn restore(&self, what: Revoked) -> Result<(), ShardEnded> {
        self.revocations.write().remove(&what);
        self.change(&RightsChange::Restore(what)).await
    }

    /// Whether the principal is revoked, for logins that do not go through a session of a shard.
    #[must_use]
    pub fn is_revoked(&self, principal: &Principal, now: WallTime) -> bool {
        self.revocations.read().covers(principal, now)
    }

    fn remember(&self, revocation: Revocation, now: WallTime) -> Result<RightsChange, RevokeError> {
        let mut revocations = self.revocations.write();
        if revocations.count() >= self.revocations_max && !revocations.has(&revocation.what) {
            return Err(RevokeError::Full);
        }
        revocations.add(revocation.clone(), now);
        Ok(RightsChange::Revoke(revocation))
    }

    async fn change(&self, change: &RightsChange) -> Result<(), ShardEnded> {
        for answer in self.give(change) {
            answer.await.map_err(|_| ShardEnded)?;
        }
        Ok(())
    }

    fn give(&self, change: &RightsChange) -> Vec<oneshot::Receiver<()>> {
        let mut number = self.number.lock();
        *number += 1;
        let shards = self.shards.iter();
        shards
            .map(|shard| shard.change_rights(*number, change.clone()))
            .collect()
    }
}

//! Changes of rights for all shards of a node, acknowledged when they hold everywhere.
//!
//! Whoever changes them (the admin API, a signal, a file that is watched) does it here.

use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tidewire_core::effect::Principal;
use tidewire_core::permission::Permission;
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

/// Why nothing was revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevokeError {
    /// As many are revoked as can be remembered (`limits.revocations_max`).
    Full,
    /// The node has stopped, or a shard has ended. The revocation may hold.
    ShardEnded,
}

impl fmt::Display for RevokeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "no more can be revoked; raise limits.revocations_max",
            Self::ShardEnded => "a shard has ended",
        })
    }
}

impl std::error::Error for RevokeError {}

/// The rules that are to hold next.
#[derive(Debug, Default)]
struct Wanted {
    /// Counts the requests for rules.
    request: u64,
    /// The newest request's, until they are given to the shards.
    permission: Option<Arc<dyn Permission>>,
    /// The last request whose rules, or newer ones, hold everywhere.
    done: u64,
}

/// See the head of this file.
#[derive(Debug)]
pub struct Rights {
    shards: Arc<[ShardHandle]>,
    /// The last change's; held while one is given to the shards, so that all get all in one order.
    number: Mutex<u64>,
    wanted: Mutex<Wanted>,
    /// Held by whoever waits for a change of rules. One at a time: judging everybody again would else begin anew for
    /// each and, where they come fast, never end.
    turn: tokio::sync::Mutex<()>,
    /// What the shards have been told, for those who let people in elsewhere.
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

    /// Puts another judge in the place of the one before. When this returns, every subscription that it does not allow has
    /// ended, and nothing is written to a socket any more for a right that was lost. Of changes that come while one is under
    /// way only the newest takes place, and answers for all.
    ///
    /// # Errors
    /// The node stops.
    pub async fn set_rules(&self, permission: Arc<dyn Permission>) -> Result<(), ShardEnded> {
        let request = {
            let mut wanted = self.wanted.lock();
            wanted.request += 1;
            wanted.permission = Some(permission);
            wanted.request
        };
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

    /// Ends all sessions of whoever is revoked, and lets nobody in with that any more. When this returns, nothing is
    /// written to their sockets any more, and nothing that they have sent is on its way.
    ///
    /// # Errors
    /// Too many are revoked, or the node stops.
    pub async fn revoke(&self, revocation: Revocation, now: WallTime) -> Result<(), RevokeError> {
        let change = self.remember(revocation, now)?;
        let changed = self.change(&change).await;
        changed.map_err(|ShardEnded| RevokeError::ShardEnded)
    }

    /// The same for revocations of an earlier run, before anybody is let in. Does not wait, because nobody is there yet.
    ///
    /// # Errors
    /// There are too many.
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

    /// Takes a revocation back: whoever it kept out may log in again.
    ///
    /// # Errors
    /// The node stops.
    pub async fn restore(&self, what: Revoked) -> Result<(), ShardEnded> {
        self.revocations.write().remove(&what);
        self.change(&RightsChange::Restore(what)).await
    }

    /// Whether somebody must not be let in, for those who let people in without a session of a shard.
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

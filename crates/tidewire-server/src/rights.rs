//! Changes of rights for all shards of a node, acknowledged when they hold everywhere.
//!
//! Whoever changes them (the admin API, a signal, a file that is watched) does it here.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tidewire_core::permission::Permission;
use tidewire_core::rights::RightsChange;
use tokio::sync::oneshot;

use crate::shard::handle::ShardHandle;

/// The node has stopped, or a shard has ended, before the change was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardEnded;

impl fmt::Display for ShardEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a shard has ended")
    }
}

impl std::error::Error for ShardEnded {}

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
}

impl Rights {
    /// The rights of the sessions of these shards.
    #[must_use]
    pub fn new(shards: Arc<[ShardHandle]>) -> Self {
        Self {
            shards,
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

    async fn change(&self, change: &RightsChange) -> Result<(), ShardEnded> {
        let answers: Vec<oneshot::Receiver<()>> = {
            let mut number = self.number.lock();
            *number += 1;
            let shards = self.shards.iter();
            shards
                .map(|shard| shard.change_rights(*number, change.clone()))
                .collect()
        };
        for answer in answers {
            answer.await.map_err(|_| ShardEnded)?;
        }
        Ok(())
    }
}

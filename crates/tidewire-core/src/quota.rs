//! What stores may still take: the room that is left in each of them, and the users that have used up theirs.
//!
//! A store says both after its commits, so what is written and not committed yet comes on top of a user's quota. Deletes and writes
//! that make a record no larger are always taken, so room can be made at the limit.

use crate::route::StoreId;
use crate::table::{self, Set};
use crate::text::Name;

/// What a store says of its quotas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuotaChange {
    /// Bytes that it may still grow by.
    Room(u64),
    /// A user has used up its quota, or has room again.
    User {
        /// The user.
        user: Name,
        /// Whether its writes are refused.
        is_full: bool,
    },
}

/// Which quota is in the way of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuotaLimit {
    Store,
    User,
}

/// See the head of this file. Without quotas both parts are empty.
#[derive(Debug)]
pub(crate) struct Quotas {
    /// By the number of the store; those behind the end have no limit.
    rooms: Vec<u64>,
    full_users: Set<(StoreId, Name)>,
}

impl Quotas {
    /// No limits.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            rooms: Vec::new(),
            full_users: table::set(seed),
        }
    }

    /// A store has told something.
    pub(crate) fn change(&mut self, store: StoreId, change: QuotaChange) {
        match change {
            QuotaChange::Room(bytes) => {
                let count = self.rooms.len().max(store.index() + 1);
                self.rooms.resize(count, u64::MAX);
                self.rooms[store.index()] = bytes;
            }
            QuotaChange::User { user, is_full } => {
                if is_full {
                    self.full_users.insert((store, user));
                } else {
                    self.full_users.remove(&(store, user));
                }
            }
        }
    }

    /// Whether a store has room for `bytes` that are not committed yet.
    pub(crate) fn has_room(&self, store: StoreId, bytes: usize) -> bool {
        let room = self.rooms.get(store.index());
        room.is_none_or(|room| *room >= bytes as u64)
    }

    /// What is in the way of a user's write that makes a record larger, with `bytes` of its store that are not committed yet.
    pub(crate) fn limit(&self, store: StoreId, bytes: usize, user: &Name) -> Option<QuotaLimit> {
        if !self.has_room(store, bytes) {
            return Some(QuotaLimit::Store);
        }
        // So it is nearly always, and nothing has to be looked up then.
        if self.full_users.is_empty() {
            return None;
        }
        let is_full = self.full_users.contains(&(store, user.clone()));
        is_full.then_some(QuotaLimit::User)
    }
}

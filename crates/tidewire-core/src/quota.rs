//! Quotas of stores: the room that is left in each store, and the users that have reached their quota.
//!
//! A store reports both after its commits, so writes that are not committed yet may exceed a user's quota. Deletes and writes that do not
//! enlarge a record are always accepted, so a client can make room at the limit.

use crate::route::StoreId;
pub use crate::store::QuotaChange;
use crate::table::{self, Set};
use crate::text::Name;

/// The quota that refuses a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuotaLimit {
    Store,
    User,
}

/// See the head of this file. Without quotas both parts are empty.
#[derive(Debug)]
pub(crate) struct Quotas {
    /// By the number of the store. Stores beyond the end have no limit.
    rooms: Vec<u64>,
    full_users: Set<(StoreId, Name)>,
}

impl Quotas {
    /// Creates it without limits.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            rooms: Vec::new(),
            full_users: table::set(seed),
        }
    }

    /// Applies a store's report.
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

    /// The quota that refuses a user's write that enlarges a record, given the `bytes` of its store that are not committed yet.
    pub(crate) fn limit(&self, store: StoreId, bytes: usize, user: &Name) -> Option<QuotaLimit> {
        if !self.has_room(store, bytes) {
            return Some(QuotaLimit::Store);
        }
        // Nearly always true, and avoids a lookup.
        if self.full_users.is_empty() {
            return None;
        }
        let is_full = self.full_users.contains(&(store, user.clone()));
        is_full.then_some(QuotaLimit::User)
    }
}

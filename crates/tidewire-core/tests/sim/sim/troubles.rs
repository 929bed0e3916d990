//! Applies the troubles of the network, the disk and the machine.

use tidewire_core::address::SessionId;
use tidewire_core::route::StoreId;
use tidewire_core::store::Loaded;
use tidewire_core::time::Instant;

use super::rights::Rights;
use super::{NANOS_PER_MILLI, Sim};
use crate::check::{Check, Checked, Violation, ensure};
use crate::disk::Failures;
use crate::nodes::{SHARDS, index_of};
use crate::outside::Outside;
use crate::shared::is_shared;
use crate::store::End;
use crate::stores::SimStores;
use crate::trouble::Trouble;

/// The maximum number of disk operations that fail in a row.
const FAILURES_MAX: usize = 4;
/// The maximum time for which a connection is delayed or connections are reordered.
const NETWORK_MS: usize = 4_000;
/// Longer than the timeouts of loads and of acknowledged writes.
const SLOW_MS: usize = 9_000;

impl Sim {
    /// Applies the troubles that are due.
    pub(super) fn troubles_strike(&mut self) -> Checked {
        while let Some(trouble) = self.troubles.take_due(self.now.monotonic) {
            if !self.strikes(trouble)? {
                self.troubles.put_back(self.now.monotonic, trouble);
                break;
            }
        }
        Ok(())
    }

    /// Applies one trouble. Returns false if it has no target now.
    fn strikes(&mut self, trouble: Trouble) -> Result<bool, Violation> {
        match trouble {
            Trouble::PowerCut => self.crash(End::PowerCut)?,
            Trouble::Kill => self.crash(End::Kill)?,
            Trouble::ConnectionLost => {
                let index = self.random.below(self.clients.len());
                if self.clients[index].session.is_none() {
                    return Ok(false);
                }
                self.drop_client(index);
            }
            Trouble::Delay => {
                let sessions: Vec<SessionId> = self.connections.keys().copied().collect();
                if sessions.is_empty() {
                    return Ok(false);
                }
                let session = *self.random.pick(&sessions);
                let until = self.later(NETWORK_MS);
                if let Some(connection) = self.connections.get_mut(&session) {
                    connection.delayed_until = Some(until);
                }
            }
            Trouble::Reorder => self.reordered_until = self.later(NETWORK_MS),
            Trouble::SlowStore => {
                let until = self.later(SLOW_MS);
                self.stores.any(&mut self.random).slow_until = until;
            }
            // While the store has only few records, no value is safe to flip, so a sync fails instead.
            Trouble::BitFlip => {
                let which = self.random.next() as usize;
                if !self.stores.any(&mut self.random).flip(which) {
                    return self.strikes(Trouble::SyncError);
                }
            }
            Trouble::WriteError | Trouble::SyncError | Trouble::ReadError | Trouble::DiskFull => {
                let count = 1 + self.random.below(FAILURES_MAX);
                let mut failures = Failures::default();
                *match trouble {
                    Trouble::WriteError => &mut failures.writes,
                    Trouble::SyncError => &mut failures.syncs,
                    Trouble::ReadError => &mut failures.reads,
                    _ => &mut failures.growths,
                } = count;
                self.stores.any(&mut self.random).fail(failures);
            }
        }
        self.met.add(trouble.name());
        if self.trace {
            println!("{:6} {trouble:?}", self.summary.steps);
        }
        Ok(true)
    }

    fn later(&mut self, most_ms: usize) -> Instant {
        let millis = 1 + self.random.below(most_ms) as u64;
        Instant(self.now.monotonic.0 + millis * NANOS_PER_MILLI)
    }

    /// Whether the network delays this connection now.
    pub(super) fn is_delayed(&self, session: SessionId) -> bool {
        let until = self
            .connections
            .get(&session)
            .and_then(|connection| connection.delayed_until);
        !self.calm && until.is_some_and(|until| until > self.now.monotonic)
    }

    /// The connections of a shard, in the order in which the shard visits them.
    pub(super) fn sessions_of(&mut self, shard: usize) -> Vec<SessionId> {
        let mut sessions: Vec<SessionId> = self
            .connections
            .keys()
            .filter(|session| index_of(session.address) == shard)
            .copied()
            .collect();
        if self.reordered_until > self.now.monotonic {
            for index in (1..sessions.len()).rev() {
                sessions.swap(index, self.random.below(index + 1));
            }
        }
        sessions
    }

    /// Counts messages that arrive before an earlier one of another connection.
    pub(super) fn note_order(&mut self, session: SessionId, sent: u64) {
        let overtakes = self.connections.iter().any(|(other, connection)| {
            *other != session
                && other.address == session.address
                && connection
                    .inbox
                    .front()
                    .is_some_and(|first| first.sent < sent)
        });
        if overtakes {
            self.met.add("network: overtaken by another connection");
        }
    }

    /// The node ends at once, loses all uncommitted writes, and starts again.
    pub(super) fn crash(&mut self, end: End) -> Checked {
        self.stores.crash(end, &mut self.random);
        self.store_is_right()?;
        self.records.crash(&self.stores)?;
        self.events.crash();
        self.rpcs.crash();
        self.unlistened.clear();
        self.presences.crash();
        self.rights = Rights::default();
        for index in 0..self.clients.len() {
            // Some messages that are in flight still reach the client.
            while self.random.chance(70) && self.client_reads_one(index) {}
            self.clients[index].lost();
        }
        self.connections.clear();
        self.visible.clear();
        self.late.clear();
        self.met.merge(&self.outside.met);
        let faults = self.outside.faults.clone();
        self.outside = Outside::new(SHARDS, faults);
        for shard in 0..SHARDS {
            let count = self.generations[shard].len() as u32;
            self.free_slots[shard] = (0..count).collect();
        }
        self.start();
        Ok(())
    }

    /// The node stops in order. All writes must be in the store afterwards, even if disks fail while it stops.
    pub(super) fn stop(&mut self) -> Checked {
        self.stores.stop(&mut self.random);
        self.store_is_right()?;
        self.records.crash(&self.stores)
    }

    /// Checks that every readable record has a committed value.
    pub(super) fn store_is_right(&mut self) -> Checked {
        for store in SimStores::all() {
            let page = 1 + self.random.below(4);
            let failures = self.random.below(2);
            for (name, loaded) in self.stores.at(store).scan(page, failures) {
                self.is_routed(&name, store)?;
                let count = self.stores.of(&name).change_count(&name);
                if let Loaded::Found(record) = loaded {
                    let is_right = match is_shared(&name) {
                        true => self.shared.has_made(&name, &record),
                        false => self.records.has_made(&name, count, &record),
                    };
                    ensure(is_right, Check::StoreContent, || {
                        format!("{name} is stored after change {count} as {record:?}")
                    })?;
                }
            }
        }
        Ok(())
    }

    /// Checks that a record belongs to a store.
    pub(super) fn is_routed(&self, name: &str, store: StoreId) -> Checked {
        let own = self.stores.route(name);
        ensure(own == store, Check::Routed, || {
            format!("{name} belongs to store {}, and not to {}", own.0, store.0)
        })
    }
}

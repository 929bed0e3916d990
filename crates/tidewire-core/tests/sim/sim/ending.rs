//! The end of a run: all pending work ends, and the checks compare the final state with the models.

use std::collections::VecDeque;

use tidewire_core::store::Loaded;
use tidewire_core::time::Instant;

use super::{PAUSE_MS, PAUSES, ROUNDS_MAX, Sim, shown};
use crate::check::{Check, Checked, Violation, ensure, violated};
use crate::client::{Client, EVENTS, RECORDS};
use crate::nodes::SHARDS;
use crate::shared::{SHARED, number_of};

impl Sim {
    pub(super) fn quiet(&self) -> Checked {
        self.records.quiet()?;
        self.events.quiet()?;
        self.rpcs.quiet()?;
        self.presences.quiet()?;
        self.rights.quiet()?;
        self.check_logins()
    }

    pub(super) fn all_clients(&mut self, act: impl Fn(&mut Client)) {
        for index in 0..self.clients.len() {
            if self.clients[index].open {
                act(&mut self.clients[index]);
                self.send(index);
            }
        }
    }

    /// Checks which clients provide each name, and whether subscribers know it.
    pub(super) fn providers_are_right(&self) -> Checked {
        let records = RECORDS.iter().map(|name| (true, *name));
        let events = EVENTS.iter().map(|name| (false, *name));
        for (records, name) in records.chain(events) {
            let wanted = if records {
                self.records.is_wanted(name)
            } else {
                self.events.is_wanted(name)
            };
            let count = |holds: &dyn Fn(&Client) -> bool| {
                self.clients.iter().filter(|client| holds(client)).count()
            };
            let providers = count(&|client| client.services.provides(records, name));
            let listeners = count(&|client| client.services.would_provide(records, name));
            let right = usize::from(wanted && listeners > 0);
            ensure(providers == right, Check::OneProvider, || {
                format!("{name} has {providers} providers of {listeners}, wanted: {wanted}")
            })?;
            for client in self.clients.iter().filter(|client| records && client.open) {
                let known = client.open_records().find(|(open, _)| *open == name);
                ensure(
                    known.is_none_or(|(_, provided)| provided == (providers == 1)),
                    Check::HasProvider,
                    || {
                        format!(
                            "{name} has {providers} providers, {:?} thinks: {known:?}",
                            client.session
                        )
                    },
                )?;
            }
        }
        Ok(())
    }

    /// At the end of a run one client writes the shared records. Every other client that holds one must then have the stored
    /// value, whether it is this write or a write of the other process.
    pub(super) fn shared_records_go_on(&mut self) -> Checked {
        let writer = self.clients.iter().position(|client| client.open);
        let Some(writer) = writer.filter(|_| self.is_shared) else {
            return Ok(());
        };
        let mut number = self.next_event;
        self.clients[writer].write_all(&SHARED, &mut number);
        self.next_event = number;
        self.send(writer);
        self.settle()?;
        for name in SHARED {
            let found = self.stores.of_mut(name).scan(usize::MAX, 0);
            let stored = found.into_iter().find(|(found, _)| found.as_str() == name);
            let Some((_, Loaded::Found(stored))) = stored else {
                return violated(Check::Shared, format!("{name} is stored as {stored:?}"));
            };
            for (index, client) in self.clients.iter().enumerate() {
                let Some(session) = client.session else {
                    continue;
                };
                if index != writer && client.shared.wants(name) {
                    let stored = number_of(stored.data.as_str());
                    self.shared.is_up_to_date(session, name, stored)?;
                }
            }
        }
        Ok(())
    }

    /// Runs until all pending work has ended.
    pub(super) fn settle(&mut self) -> Checked {
        let mut pauses = 0;
        for rounds in 0.. {
            if pauses == PAUSES {
                break;
            }
            ensure(rounds < ROUNDS_MAX, Check::Quiet, || {
                let stuck = self
                    .connections
                    .iter()
                    .filter(|(_, connection)| !connection.inbox.is_empty())
                    .map(|(session, connection)| (shown(*session), connection.inbox.front()));
                format!(
                    "something goes on and on, these wait: {:?}",
                    stuck.collect::<Vec<_>>()
                )
            })?;
            // Providers and listeners get time to answer. When no work is left, the pauses let all timers end.
            if self.round()? {
                self.advance(50);
            } else {
                pauses += 1;
                self.advance(PAUSE_MS);
            }
        }
        Ok(())
    }

    /// Lets every part of the node and every client do all its pending work once. Returns false if no work is left.
    pub(super) fn round(&mut self) -> Result<bool, Violation> {
        self.summary.steps += 1;
        self.records.step = self.summary.steps;
        self.late_things_come()?;
        while !self.outside.logins.is_empty() {
            self.log_in()?;
        }
        let now = match self.calm {
            true => Instant(u64::MAX),
            false => self.now.monotonic,
        };
        while let Some(store) = self.stores.ready(&mut self.random, now) {
            store.work(0, &mut self.outside.faults);
        }
        while self.store_answers()? {}
        for shard in 0..SHARDS {
            self.interest_moves()?;
            if let Some(up_to) = self.outside.interest.make_visible(shard, usize::MAX) {
                self.visible.push_back((shard, up_to));
            }
        }
        while !self.visible.is_empty() {
            self.confirm_interest()?;
        }
        for shard in 0..SHARDS {
            self.turn(shard)?;
        }
        self.all_drain()?;
        for index in 0..self.clients.len() {
            while self.client_reads_one(index) {}
        }
        Ok(!self.is_still())
    }

    /// Whether no message or request is in flight.
    pub(super) fn is_still(&self) -> bool {
        self.outside.mailboxes.iter().all(VecDeque::is_empty)
            && self.outside.held_back.is_empty()
            && self.outside.logins.is_empty()
            && self.stores.are_still()
            && self.visible.is_empty()
            && (0..SHARDS).all(|shard| self.outside.interest.pending(shard) == 0)
            && self.connections.values().all(|connection| {
                connection.inbox.is_empty()
                    && connection.outbox.is_empty()
                    && !connection.dropped
                    && !connection.lags
            })
            && self.outside.awaited.is_empty()
            && self.rights.is_still()
    }

    pub(super) fn nothing_leaks(&self) -> Checked {
        for (shard, engine) in self.shards.iter().enumerate() {
            let counts = engine.counts();
            let left = [
                counts.sessions,
                counts.subscribed_names,
                counts.dirty_records,
                counts.dirty_bytes,
                counts.calls,
                counts.patterns,
                counts.wanted_names,
                counts.provided_rpcs,
                counts.users_online,
                counts.pending_replies,
                counts.delayed,
                counts.lag.sessions,
                counts.lagging_names,
                counts.expiring,
            ];
            ensure(
                left.iter().all(|count| *count == 0),
                Check::NothingLeaks,
                || format!("shard {shard} keeps {counts:?}"),
            )?;
            ensure(counts.underflows == 0, Check::NothingLeaks, || {
                format!("counts of shard {shard} fell below zero: {counts:?}")
            })?;
        }
        let wanted = self.outside.interest.wanted();
        ensure(wanted.is_empty(), Check::NothingLeaks, || {
            format!("publishers still see interest in {wanted:?}")
        })
    }
}

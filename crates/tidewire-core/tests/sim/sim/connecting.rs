//! Clients connect, log in, send, read and disconnect.

use std::collections::VecDeque;
use std::sync::Arc;

use tidewire_core::address::SessionId;
use tidewire_core::effect::{AuthCompletion, AuthOutcome, AuthRequest, Input};
use tidewire_core::principal::Principal;
use tidewire_core::text::Name;

use super::{Connection, Sim};
use crate::check::Checked;
use crate::client::Client;
use crate::fault::Fault;
use crate::nodes::{SHARDS, address, index_of};
use crate::wire::{Heard, Said, parse};

impl Sim {
    pub(super) fn client_acts(&mut self) {
        let index = self.random.below(self.clients.len());
        let client = &mut self.clients[index];
        let count = 1 + self.random.below(3);
        for _ in 0..count {
            if !client.open {
                break;
            }
            if self.random.chance(12) {
                client.turn_gate(&mut self.random);
            } else {
                client.act(&mut self.random, &mut self.next_event);
            }
        }
        let client = &self.clients[index];
        self.summary.size.operations += client.outgoing().len() as u64;
        for said in client.outgoing() {
            if let Said::Write { name, .. } = said {
                self.writers.entry(name.clone()).or_default().insert(index);
            }
        }
        self.send(index);
    }

    pub(super) fn send(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let outgoing = client.take_outgoing(self.sent_count);
        self.sent_count += outgoing.len() as u64;
        if let Some(connection) = client
            .session
            .and_then(|session| self.connections.get_mut(&session))
        {
            connection.inbox.extend(outgoing);
        }
    }

    pub(super) fn client_reads(&mut self) {
        let index = self.random.below(self.clients.len());
        let count = 1 + self.random.below(8);
        for _ in 0..count {
            if !self.client_reads_one(index) {
                return;
            }
        }
    }

    pub(super) fn client_reads_one(&mut self, index: usize) -> bool {
        let Some(session) = self.clients[index].session else {
            return false;
        };
        if self.is_delayed(session) {
            return false;
        }
        let Some((heard, stamp)) = self
            .connections
            .get_mut(&session)
            .and_then(|connection| connection.outbox.pop_front())
        else {
            return false;
        };
        if let Heard::EventAck {
            subscribed: true,
            id,
        } = &heard
        {
            self.events.acked(session, id);
        }
        if let Heard::PresenceAck { action, id } = &heard {
            self.presences.acked(session, *action, id);
        }
        self.clients[index].hear(&heard, stamp.as_ref(), &mut self.random);
        self.send(index);
        true
    }

    pub(super) fn log_in(&mut self) -> Checked {
        let index = self.random.below(self.outside.logins.len());
        let AuthRequest { session, data } = self.outside.logins.remove(index);
        let outcome = if self.random.chance(90) || self.calm {
            let user = parse(data.as_str())["user"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            AuthOutcome::Accepted(Arc::new(Principal::new(Name::from(user.as_str()))))
        } else {
            AuthOutcome::Refused { client_data: None }
        };
        if self.random.chance(8) {
            self.delay(session)?;
        }
        if let AuthOutcome::Accepted(principal) = &outcome
            && let Some(connection) = self.connections.get_mut(&session)
        {
            if let Some(delay) = &mut connection.delay {
                delay.accepted = true;
                let completion = AuthCompletion { session, outcome };
                return self.input(index_of(session.address), Input::Auth(completion));
            }
            let shard = index_of(session.address);
            if self
                .rights
                .is_revoked(shard, &principal.user_id, self.now.wall)
            {
                let completion = AuthCompletion { session, outcome };
                return self.input(shard, Input::Auth(completion));
            }
            connection.open = true;
            let principal = (**principal).clone();
            let principal = self.expiring(session, principal);
            let outcome = AuthOutcome::Accepted(Arc::new(principal.clone()));
            let owner = self.owner(&principal.user_id);
            if owner == index_of(session.address) {
                self.presences.count(&principal.user_id, Some(session));
            }
            let completion = AuthCompletion { session, outcome };
            return self.input(shard, Input::Auth(completion));
        }
        let completion = AuthCompletion { session, outcome };
        self.input(index_of(session.address), Input::Auth(completion))
    }

    pub(super) fn connection_changes(&mut self) -> Checked {
        let away = |client: &Client| client.session.is_none();
        if self.random.chance(80)
            && let Some(index) = self.clients.iter().position(away)
        {
            return self.connect(index);
        }
        let index = self.random.below(self.clients.len());
        if away(&self.clients[index]) {
            return self.connect(index);
        } else if self.random.chance(15) {
            self.drop_client(index);
        }
        Ok(())
    }

    pub(super) fn connect(&mut self, index: usize) -> Checked {
        let shard = self.random.below(SHARDS);
        let slot = self.free_slots[shard].pop().unwrap_or_else(|| {
            self.generations[shard].push(0);
            (self.generations[shard].len() - 1) as u32
        });
        let generation = &mut self.generations[shard][slot as usize];
        *generation += 1;
        let session = SessionId {
            address: address(shard),
            index: slot,
            generation: *generation,
        };
        let format = self.clients[index].format;
        self.connections.insert(
            session,
            Connection {
                client: index,
                delayed_until: None,
                inbox: VecDeque::new(),
                waiting: false,
                outbox: VecDeque::new(),
                dropped: false,
                number: 0,
                open: false,
                given: None,
                coalesces: self.clients[index].coalesces,
                lags: false,
                delay: None,
                closing: false,
                expires_at: None,
            },
        );
        self.records.session_began(session);
        self.input(
            shard,
            Input::Opened {
                session,
                format,
                coalesces: None,
            },
        )?;
        if self.random.chance(8) {
            self.delay(session)?;
        }
        let coalesces =
            self.clients[index].coalesces || self.outside.faults.hits(Fault::CoalescedUnasked);
        self.clients[index].connected(session, coalesces);
        self.send(index);
        Ok(())
    }

    /// Drops a client's connection: a part of the sent messages still arrives, and the client receives nothing more.
    pub(super) fn drop_client(&mut self, index: usize) {
        let Some(session) = self.clients[index].session else {
            return;
        };
        self.clients[index].lost();
        if let Some(connection) = self.connections.get_mut(&session) {
            connection.dropped = true;
            let arrives = self.random.below(connection.inbox.len() + 1);
            connection.inbox.truncate(arrives);
            if connection.waiting {
                connection.inbox.clear();
            }
        }
    }

    /// The shard learns that a connection is gone.
    pub(super) fn close(&mut self, session: SessionId) -> Checked {
        let shard = index_of(session.address);
        let Some(connection) = self.connections.remove(&session) else {
            return Ok(());
        };
        let client = &mut self.clients[connection.client];
        let user = client.user.clone();
        if client.session == Some(session) {
            client.lost();
        }
        if self.outside.faults.hits(Fault::CloseForgotten) {
            return Ok(());
        }
        self.input(shard, Input::Closed { session })?;
        self.records.session_ended(session);
        self.events.session_ended(session);
        self.rpcs.session_ended(session);
        self.presences.session_ended(session);
        self.rights.session_ended(session);
        if connection.open && self.owner(&user) == shard {
            self.presences.count(&user, None);
        }
        self.free_slots[shard].push(session.index);
        Ok(())
    }
}

//! Clients that read slowly for a while, and answers that the server holds back from clients that it disconnected for that.

use std::time::Duration;

use tidewire_core::address::SessionId;
use tidewire_core::effect::Input;

use super::{AnswerDelay, Sim};
use crate::check::{Check, Checked, ensure};
use crate::fault::Fault;
use crate::nodes::index_of;
use crate::wire::Heard;

impl Sim {
    /// A shard learns that a connection lags, or that the connection has read its backlog.
    pub(super) fn slowness_changes(&mut self) -> Checked {
        let sessions: Vec<SessionId> = self.connections.keys().copied().collect();
        if sessions.is_empty() {
            return Ok(());
        }
        let session = *self.random.pick(&sessions);
        let awaited = self.outside.awaited.contains(&session);
        let Some(connection) = self.connections.get_mut(&session) else {
            return Ok(());
        };
        // A session with a pending drain may lag again before it has read its backlog.
        if connection.lags || (awaited && self.random.chance(70)) {
            return self.drains(session);
        }
        connection.lags = true;
        if connection.coalesces {
            self.records.session_lags(session);
        }
        let shard = index_of(session.address);
        self.input(shard, Input::Lagging { session })
    }

    /// Every session that lags reads its whole backlog.
    pub(super) fn all_drain(&mut self) -> Checked {
        let sessions: Vec<SessionId> = self.connections.keys().copied().collect();
        self.outside
            .awaited
            .retain(|session| sessions.contains(session));
        for session in sessions {
            if self
                .connections
                .get(&session)
                .is_some_and(|connection| connection.lags)
                || self.outside.awaited.contains(&session)
            {
                self.drains(session)?;
            }
        }
        Ok(())
    }

    fn drains(&mut self, session: SessionId) -> Checked {
        self.outside.awaited.remove(&session);
        if let Some(connection) = self.connections.get_mut(&session) {
            connection.lags = false;
        }
        if self.outside.faults.hits(Fault::DrainForgotten) {
            return Ok(());
        }
        let shard = index_of(session.address);
        self.input(shard, Input::Drained { session })?;
        for (name, missed) in std::mem::take(&mut self.outside.gaps) {
            if !self.outside.faults.hits(Fault::GapNoticeLost) {
                self.events.heard_gap(session, &name, missed)?;
            }
        }
        Ok(())
    }

    /// The server holds back the next answer of a session.
    pub(super) fn delay(&mut self, session: SessionId) -> Checked {
        let Some(connection) = self.connections.get_mut(&session) else {
            return Ok(());
        };
        let wait = Duration::from_millis(self.random.below(3_000) as u64);
        let until = self.now.monotonic + wait;
        let refuse = self.random.chance(15);
        connection.delay = Some(AnswerDelay {
            until,
            refuse,
            accepted: false,
        });
        let until = match self.outside.faults.hits(Fault::DelayShort) {
            true => self.now.monotonic,
            false => until,
        };
        let delay = Input::Delay {
            session,
            until,
            refuse,
        };
        self.input(index_of(session.address), delay)
    }

    /// A shard handles its deadlines: a login whose delay has ended opens its session.
    pub(super) fn delays_end(&mut self, shard: usize) {
        let now = self.now.monotonic;
        let mut opened = Vec::new();
        for (session, connection) in &mut self.connections {
            let here = index_of(session.address) == shard;
            let Some(delay) = connection.delay.take_if(|delay| here && delay.until <= now) else {
                continue;
            };
            let user = &self.clients[connection.client].user;
            let revoked = self.rights.is_revoked(shard, user, self.now.wall);
            if delay.accepted && !delay.refuse && !revoked {
                connection.open = true;
                opened.push((*session, connection.client));
            }
        }
        for (session, client) in opened {
            let user = self.clients[client].user.clone();
            if self.owner(&user) == shard {
                self.presences.count(&user, Some(session));
            }
        }
    }

    /// Checks that a session gets no answer during its delay.
    pub(super) fn not_delayed(&self, session: SessionId, heard: &Heard) -> Checked {
        let is_answer = matches!(
            heard,
            Heard::Accepted | Heard::LoggedIn | Heard::LoginRefused
        );
        let delay = self
            .connections
            .get(&session)
            .and_then(|connection| connection.delay.as_ref());
        ensure(!is_answer || delay.is_none(), Check::Delayed, || {
            format!("{session:?} hears {heard:?} in {delay:?}")
        })
    }

    /// Checks that every connected client has logged in.
    pub(super) fn check_logins(&self) -> Checked {
        let mut clients = self.clients.iter();
        let waiting = clients.find(|client| client.session.is_some() && !client.open);
        ensure(waiting.is_none(), Check::AnsweredOnce, || {
            format!(
                "{:?} was never let in",
                waiting.map(|client| client.session)
            )
        })
    }
}

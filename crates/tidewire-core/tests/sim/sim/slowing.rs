//! Clients that read slowly for a while, and answers that are held back from those who were closed for it.

use std::time::Duration;

use tidewire_core::address::SessionId;
use tidewire_core::effect::Input;

use super::{AnswerDelay, Sim};
use crate::check::{Check, Checked, ensure};
use crate::fault::Fault;
use crate::wire::Heard;

impl Sim {
    /// A shard learns that a connection lags, or has read what waited for it.
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
        // Who is awaited may also begin to lag again before it has read what it was given.
        if connection.lags || (awaited && self.random.chance(70)) {
            return self.drains(session);
        }
        connection.lags = true;
        if connection.coalesces {
            self.records.session_lags(session);
        }
        let shard = usize::from(session.address.shard);
        self.input(shard, Input::Lagging { session })
    }

    /// Whoever lags reads everything.
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
        let shard = usize::from(session.address.shard);
        self.input(shard, Input::Drained { session })?;
        for (name, missed) in std::mem::take(&mut self.outside.gaps) {
            if !self.outside.faults.hits(Fault::GapUntold) {
                self.events.told_gap(session, &name, missed)?;
            }
        }
        Ok(())
    }

    /// The next answer of a session is held back.
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
        self.input(usize::from(session.address.shard), delay)
    }

    /// A shard looks at its deadlines: whoever has waited for its login to be answered is in now.
    pub(super) fn delays_end(&mut self, shard: usize) {
        let now = self.now.monotonic;
        let mut opened = Vec::new();
        for (session, connection) in &mut self.connections {
            let here = usize::from(session.address.shard) == shard;
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

    /// Nobody is answered whose answer is held back.
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

    /// Everybody who is connected was let in in the end.
    pub(super) fn everybody_is_in(&self) -> Checked {
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

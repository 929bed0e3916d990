//! Reports each delivery to the models.

use std::hash::Hash;

use tidewire_core::address::SessionId;

use super::{Sim, shown};
use crate::check::{Check, Checked, ensure};
use crate::expected::name_of;
use crate::right::is_guarded;
use crate::rude::is_rude;
use crate::shared::is_shared;
use crate::wire::Heard;

/// The record whose value or acknowledged write the message contains.
fn written_or_shown(heard: &Heard) -> Option<&str> {
    match heard {
        Heard::Written { name, .. } => Some(name),
        _ => name_of(heard),
    }
}

impl Sim {
    pub(super) fn deliver(&mut self, session: SessionId, heard: Heard) -> Checked {
        self.summary.deliveries += 1;
        (session, &heard).hash(&mut self.digest);
        if self.trace {
            println!(
                "{:6} {} hears {heard:?}",
                self.summary.steps,
                shown(session)
            );
        }
        if let Some(kinds) = &mut self.kinds {
            *kinds.entry(heard.kind()).or_insert(0) += 1;
        }
        self.not_delayed(session, &heard)?;
        self.not_after_end(session, &heard)?;
        self.authorized_by_new_rules(session, &heard)?;
        let now = self.now.monotonic.0;
        if let Some(name) = written_or_shown(&heard).filter(|name| is_shared(name)) {
            let kept = self.stores.of(name).shared(name);
            self.shared.hear(session, &heard, &kept)?;
        }
        let stamp = match &heard {
            _ if written_or_shown(&heard).is_some_and(is_shared) => None,
            Heard::Event { name, data } => Some(self.events.hear(session, name, data)?),
            Heard::Ended { .. } => None,
            Heard::Written { name, .. } if is_guarded(name) => {
                self.guarded.hear(session, &heard);
                None
            }
            _ if name_of(&heard).is_some_and(is_guarded) => {
                self.guarded.hear(session, &heard);
                None
            }
            Heard::Rpc { name, .. } if is_rude(name) => None,
            _ if name_of(&heard).is_some_and(is_rude) => None,
            Heard::Rpc { name, id, what } => {
                self.rpcs
                    .hear(session, name, id, what, self.now.monotonic)?;
                None
            }
            Heard::ProvideAck { id } => {
                self.rpcs.acked(session, id);
                None
            }
            Heard::Presence { user, online, all } => {
                self.presences.hear(session, user, *online, *all)?;
                None
            }
            Heard::Online { users } => {
                let user = self.user_of(session);
                self.presences
                    .hear_all(session, &user, users, self.truthful)?;
                None
            }
            Heard::OnlineOf { id, data } => {
                self.presences.hear_of(session, id, data, self.truthful)?;
                None
            }
            Heard::Unlistened { .. } | Heard::Found { .. } | Heard::Removed { .. } => {
                self.hear_of_pattern(session, &heard)?;
                None
            }
            _ => self
                .records
                .hear(now, session, &heard, &self.stores, &self.outside)?,
        };
        if let Some(connection) = self.connections.get_mut(&session) {
            connection.outbox.push_back((heard, stamp));
        }
        Ok(())
    }

    pub(super) fn hear_of_pattern(&mut self, session: SessionId, heard: &Heard) -> Checked {
        match heard {
            Heard::Unlistened { records, pattern } => {
                let key = (session, *records, pattern.clone());
                if let Some(unlistened) = self.unlistened.get_mut(&key) {
                    unlistened.acks_due -= 1;
                }
                Ok(())
            }
            Heard::Found {
                records, pattern, ..
            }
            | Heard::Removed {
                records, pattern, ..
            } => {
                let key = (session, *records, pattern.clone());
                ensure(
                    self.unlistened
                        .get(&key)
                        .is_none_or(|unlistened| unlistened.listens || unlistened.acks_due > 0),
                    Check::ListenEnded,
                    || format!("{session:?} hears {heard:?} after the end"),
                )
            }
            _ => Ok(()),
        }
    }

    pub(super) fn user_of(&self, session: SessionId) -> String {
        self.connections
            .get(&session)
            .map(|connection| self.clients[connection.client].user.clone())
            .unwrap_or_default()
    }
}

//! Rights that change: other rules, users that are revoked for a while, logins that expire. The node gives changes to its
//! shards at different times, and each also learns of them from the others' markers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use tidewire_core::address::SessionId;
use tidewire_core::effect::{CloseReason, Input, Principal};
use tidewire_core::rights::{Revocation, Revoked, RightsChange};
use tidewire_core::text::Name;
use tidewire_core::time::WallTime;

use super::{SHARDS, Sim};
use crate::check::{Check, Checked, ensure};
use crate::fault::Fault;
use crate::judge::{Judge, Rules};
use crate::wire::Heard;

/// The events that rules may forbid.
const RULED: [&str; 3] = ["e/0", "e/1", "e/2"];
/// Changes that may be under way at a time.
const OVERLAPPING_MAX: u64 = 2;

#[derive(Clone, Debug)]
enum Change {
    Rules(Arc<Rules>),
    Revoke { user: String, until: WallTime },
}

/// Which changes there were, and how far they have come.
#[derive(Debug, Default)]
pub struct Rights {
    /// The first one has the number 1.
    changes: Vec<Change>,
    /// Numbers that the node has given and the shard has not seen, by shard.
    on_way: [VecDeque<u64>; SHARDS],
    /// The last change that each shard has taken over.
    taken: [u64; SHARDS],
    /// The last one that each shard has settled, with everything sent.
    settled: [u64; SHARDS],
    acknowledged: u64,
    /// By event: the last change that its sender's shard had taken over.
    published: BTreeMap<String, u64>,
    gone: BTreeSet<SessionId>,
}

impl Rights {
    /// The rules by which a shard judges.
    pub fn at(&self, shard: usize) -> Arc<Rules> {
        self.after(self.taken[shard])
    }

    /// A shard publishes an event.
    pub fn published(&mut self, data: &str, shard: usize) {
        self.published.insert(data.into(), self.taken[shard]);
    }

    /// A shard takes over a change, unless it has already.
    pub fn taken_over(&mut self, shard: usize, number: u64) {
        self.taken[shard] = self.taken[shard].max(number);
    }

    /// Whether a shard lets nobody of this name in.
    pub fn is_revoked(&self, shard: usize, user: &str, now: WallTime) -> bool {
        let taken = &self.changes[..self.taken[shard] as usize];
        let last = taken.iter().rev().find_map(|change| match change {
            Change::Revoke { user: of, until } if of == user => Some(*until),
            _ => None,
        });
        last.is_some_and(|until| until > now)
    }

    /// Whether a shard has taken over that this user is revoked, for however short a time.
    fn was_revoked(&self, shard: usize, user: &str) -> bool {
        let mut taken = self.changes[..self.taken[shard] as usize].iter();
        taken.any(|change| matches!(change, Change::Revoke { user: of, .. } if of == user))
    }

    /// Whether no shard has one to take over.
    pub fn is_still(&self) -> bool {
        self.on_way.iter().all(VecDeque::is_empty)
    }

    /// All were acknowledged.
    pub fn quiet(&self) -> Checked {
        ensure(
            self.acknowledged == self.changes.len() as u64,
            Check::Settled,
            || {
                let (settled, taken) = (&self.settled, &self.taken);
                format!(
                    "{} changes: taken over {taken:?}, settled {settled:?}",
                    self.changes.len()
                )
            },
        )
    }

    /// The rules that hold after a change.
    fn after(&self, number: u64) -> Arc<Rules> {
        let rules = self.changes[..number as usize].iter().rev();
        let mut rules = rules.filter_map(|change| match change {
            Change::Rules(rules) => Some(Arc::clone(rules)),
            Change::Revoke { .. } => None,
        });
        rules.next().unwrap_or_default()
    }

    /// The number of the rules that hold after a change.
    fn rules_number(&self, number: u64) -> u64 {
        let changes = &self.changes[..number as usize];
        let is_rules = |change: &Change| matches!(change, Change::Rules(_));
        changes
            .iter()
            .rposition(is_rules)
            .map_or(0, |place| place as u64 + 1)
    }

    /// Whether one of the rules after a change, up to another one, is like this.
    fn any(&self, after: u64, up_to: u64, holds: impl Fn(&Rules) -> bool) -> bool {
        (after..=up_to).any(|number| holds(&self.after(number)))
    }
}

impl Sim {
    /// The node changes rights.
    pub(super) fn rights_change(&mut self) {
        let rights = &self.rights;
        let ends = self.calm || !self.is_changing;
        if ends || rights.changes.len() as u64 >= rights.acknowledged + OVERLAPPING_MAX {
            return;
        }
        let change = if !self.is_ruled || self.random.chance(25) {
            let user = format!("user{}", self.random.below(3));
            let until = WallTime(self.now.wall.0 + 1 + self.random.below(3_000) as u64);
            Change::Revoke { user, until }
        } else {
            let mut some = |percent| {
                let random = &mut self.random;
                let names = RULED.iter().filter(|_| random.chance(percent));
                names.map(|name| (*name).to_owned()).collect()
            };
            let (closed, mute) = (some(40), some(30));
            Change::Rules(Arc::new(Rules { closed, mute }))
        };
        self.rights.changes.push(change);
        let number = self.rights.changes.len() as u64;
        for shard in &mut self.rights.on_way {
            shard.push_back(number);
        }
    }

    /// A shard takes in some of what the node has given to it.
    pub(super) fn take_rights(&mut self, shard: usize) -> Checked {
        while !self.rights.on_way[shard].is_empty() && (self.calm || self.random.chance(30)) {
            let Some(number) = self.rights.on_way[shard].pop_front() else {
                break;
            };
            self.rights.taken_over(shard, number);
            let change = match self.rights.changes[number as usize - 1].clone() {
                Change::Rules(rules) => RightsChange::Rules(Arc::new(Judge {
                    rulings: self.rulings.clone(),
                    rules,
                })),
                Change::Revoke { mut user, until } => {
                    if self.outside.faults.is_on(Fault::RevokedOther) {
                        user.push('x');
                    }
                    let what = Revoked::User(Name::from(user.as_str()));
                    RightsChange::Revoke(Revocation { what, until })
                }
            };
            self.input(shard, Input::Rights { number, change })?;
        }
        Ok(())
    }

    /// A turn of a shard is over: perhaps it has settled something, and was the last.
    pub(super) fn settle_rights(&mut self, shard: usize) -> Checked {
        if self.shards[shard].owed_count() > 0 {
            return Ok(());
        }
        self.rights.settled[shard] = self.shards[shard].settled();
        let all = self.rights.settled.iter().copied().min().unwrap_or(0);
        if all > self.rights.acknowledged {
            self.rights.acknowledged = all;
            self.rights_hold()?;
        }
        Ok(())
    }

    /// Nobody has what the acknowledged changes have taken away.
    fn rights_hold(&self) -> Checked {
        let (rights, now) = (&self.rights, self.now.wall);
        let newest = rights.changes.len() as u64;
        for (session, name) in self.events.lasting() {
            let allows = |rules: &Rules| !rules.closed.contains(name);
            ensure(
                rights.any(rights.acknowledged, newest, allows),
                Check::RightsEnded,
                || {
                    format!(
                        "{session:?} still holds {name} after {}",
                        rights.acknowledged
                    )
                },
            )?;
        }
        for (session, connection) in &self.connections {
            let user = &self.clients[connection.client].user;
            let shard = usize::from(session.home.shard);
            let revoked = connection.open && rights.is_revoked(shard, user, now);
            ensure(!revoked, Check::RightsEnded, || {
                format!(
                    "{session:?} of {user} is still there after {}",
                    rights.acknowledged
                )
            })?;
        }
        Ok(())
    }

    /// What was judged before an acknowledged change is not delivered, and what ends has to.
    pub(super) fn judged_by_new_rules(&mut self, session: SessionId, heard: &Heard) -> Checked {
        let rights = &self.rights;
        let newest = rights.changes.len() as u64;
        match heard {
            Heard::Event { name, data } => {
                let allows = |rules: &Rules| !rules.closed.contains(name);
                let judged = rights.published.get(data).copied().unwrap_or(0);
                let needed = rights.rules_number(rights.acknowledged);
                ensure(
                    rights.any(rights.acknowledged, newest, allows) && judged >= needed,
                    Check::OldRules,
                    || {
                        let acknowledged = rights.acknowledged;
                        format!("{session:?} hears {heard:?} of {judged} after {acknowledged}")
                    },
                )?;
                if self.outside.faults.hits(Fault::EndUnjust) {
                    let (name, asked) = (name.clone(), false);
                    let unjust = Heard::EventEnded { name, asked };
                    return self.judged_by_new_rules(session, &unjust);
                }
            }
            Heard::EventEnded { name, asked: false } => {
                let shard = usize::from(session.home.shard);
                let (after, up_to) = (rights.acknowledged + 1, rights.taken[shard]);
                let forbids = |rules: &Rules| rules.closed.contains(name);
                ensure(
                    rights.any(after, up_to, forbids),
                    Check::RightsEnded,
                    || format!("{session:?} hears {heard:?} between {after} and {up_to}"),
                )?;
                if !self.outside.faults.hits(Fault::EndUntold) {
                    self.events.lose(session, name, self.place);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The principal of a session, sometimes with an expiry.
    pub(super) fn expiring(&mut self, session: SessionId, principal: Principal) -> Principal {
        if self.calm || !self.is_changing || !self.random.chance(15) {
            return principal;
        }
        let expires_at = WallTime(self.now.wall.0 + 1 + self.random.below(3_000) as u64);
        if let Some(connection) = self.connections.get_mut(&session) {
            connection.expires_at = Some(expires_at);
        }
        let late = u64::from(self.outside.faults.is_on(Fault::ExpiryLate)) * 5_000;
        principal.with_expiry(WallTime(expires_at.0 + late))
    }

    /// The engine has ended a session.
    pub(super) fn expel(&mut self, session: SessionId, reason: CloseReason) -> Checked {
        let Some(connection) = self.connections.get(&session) else {
            return Ok(());
        };
        let shard = usize::from(session.home.shard);
        let (user, now) = (&self.clients[connection.client].user, self.now.wall);
        let is_right = match reason {
            CloseReason::Expired => connection.expires_at.is_some_and(|end| end <= now),
            _ => self.rights.was_revoked(shard, user),
        };
        ensure(is_right, Check::RightsEnded, || {
            format!("{session:?} of {user} was ended: {reason:?}")
        })?;
        self.rights.gone.insert(session);
        self.close(session)
    }

    /// Who is nobody any more hears nothing.
    pub(super) fn not_expelled(&self, session: SessionId, heard: &Heard) -> Checked {
        let connection = self.connections.get(&session);
        let expires_at = connection.and_then(|connection| connection.expires_at);
        let has_expired = expires_at.is_some_and(|end| end <= self.now.wall);
        let is_gone = self.rights.gone.contains(&session);
        ensure(!is_gone && !has_expired, Check::Expelled, || {
            format!("{session:?} hears {heard:?} after its end")
        })
    }

    /// The end of the log of a session's format.
    pub(super) fn log_end(&self, session: SessionId) -> usize {
        let shard = usize::from(session.home.shard);
        let connection = self.connections.get(&session);
        connection.map_or(0, |connection| {
            let format = self.clients[connection.client].format;
            self.outside.logs[shard][usize::from(format.0)].len()
        })
    }
}

//! Rights that change: the node changes rules, revokes users for a while, and lets logins expire. Shards receive a change from
//! the node at different times, and each shard also learns of it from the markers of the others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use tidewire_core::address::SessionId;
use tidewire_core::effect::{CloseReason, Input};
use tidewire_core::principal::Principal;
use tidewire_core::rights::{Revocation, Revoked, RightsChange};
use tidewire_core::text::Name;
use tidewire_core::time::WallTime;

use super::Sim;
use crate::check::{Check, Checked, ensure};
use crate::fault::Fault;
use crate::guarded::written_number;
use crate::nodes::{SHARDS, index_of};
use crate::permission::{Rules, TestPermission};
use crate::right::{GUARDED, Holding, Right, holding_of, is_guarded, mutable};
use crate::wire::{Heard, RpcHeard};

/// The maximum number of changes in progress at a time.
const OVERLAPPING_MAX: u64 = 2;

#[derive(Clone, Debug)]
enum Change {
    Rules(Arc<Rules>),
    Revoke { user: String, until: WallTime },
}

/// When a session took a holding, and whether the holding is granted.
#[derive(Clone, Copy, Debug)]
struct HeldRight {
    /// The end of the log of the session's shard when the session took it.
    begun: usize,
    /// The owner has granted it too.
    granted: bool,
}

/// The changes of a run and their progress.
#[derive(Debug, Default)]
pub struct Rights {
    /// The first change has the number 1.
    changes: Vec<Change>,
    /// By shard: the numbers of the changes that the node has sent and the shard has not taken.
    on_way: [VecDeque<u64>; SHARDS],
    /// By shard: the last change that the shard has applied.
    taken: [u64; SHARDS],
    /// By shard: the last change that the shard has settled, with all its messages sent.
    settled: [u64; SHARDS],
    acknowledged: u64,
    /// By the number of an event, a call or a write to a guarded record: the last change that the shard had applied when it
    /// decided.
    published: BTreeMap<String, u64>,
    /// Writes to guarded records that their owners must have refused.
    refused: BTreeSet<String>,
    gone: BTreeSet<SessionId>,
    held: BTreeMap<(SessionId, Right), HeldRight>,
}

impl Rights {
    /// The rules that a shard applies now.
    pub fn at(&self, shard: usize) -> Arc<Rules> {
        self.after(self.taken[shard])
    }

    /// An owner authorizes a write to a guarded record.
    pub fn authorized_write(&mut self, name: &str, number: &str, owner: usize) {
        if self.at(owner).mute.contains(name) {
            self.refused.insert(number.into());
        }
        self.published(number, owner);
    }

    /// A shard publishes an event.
    pub fn published(&mut self, data: &str, shard: usize) {
        self.published.insert(data.into(), self.taken[shard]);
    }

    /// A shard applies a change, unless it already has.
    pub fn taken_over(&mut self, shard: usize, number: u64) {
        self.taken[shard] = self.taken[shard].max(number);
    }

    /// A session is gone.
    pub fn session_ended(&mut self, session: SessionId) {
        self.held.retain(|(of, _), _| *of != session);
    }

    /// Whether a shard refuses the logins of this user.
    pub fn is_revoked(&self, shard: usize, user: &str, now: WallTime) -> bool {
        let taken = &self.changes[..self.taken[shard] as usize];
        let last = taken.iter().rev().find_map(|change| match change {
            Change::Revoke { user: of, until } if of == user => Some(*until),
            _ => None,
        });
        last.is_some_and(|until| until > now)
    }

    /// Whether a shard has ever applied a revocation of this user, even if the revocation has ended since.
    fn was_revoked(&self, shard: usize, user: &str) -> bool {
        let mut taken = self.changes[..self.taken[shard] as usize].iter();
        taken.any(|change| matches!(change, Change::Revoke { user: of, .. } if of == user))
    }

    /// Whether no change is in flight to a shard.
    pub fn is_still(&self) -> bool {
        self.on_way.iter().all(VecDeque::is_empty)
    }

    /// Whether all shards have acknowledged the last change, and so all changes.
    pub fn all_acknowledged(&self) -> bool {
        self.acknowledged == self.changes.len() as u64
    }

    /// Returns a violation if a change is not acknowledged.
    pub fn quiet(&self) -> Checked {
        ensure(self.all_acknowledged(), Check::Settled, || {
            let (settled, taken) = (&self.settled, &self.taken);
            let count = self.changes.len();
            format!("{count} changes: taken over {taken:?}, settled {settled:?}")
        })
    }

    /// The rules that are valid after a change.
    fn after(&self, number: u64) -> Arc<Rules> {
        let rules = self.changes[..number as usize].iter().rev();
        let mut rules = rules.filter_map(|change| match change {
            Change::Rules(rules) => Some(Arc::clone(rules)),
            Change::Revoke { .. } => None,
        });
        rules.next().unwrap_or_default()
    }

    /// The number of the last change of rules up to a change.
    fn rules_number(&self, number: u64) -> u64 {
        let changes = &self.changes[..number as usize];
        let is_rules = |change: &Change| matches!(change, Change::Rules(_));
        changes
            .iter()
            .rposition(is_rules)
            .map_or(0, |index| index as u64 + 1)
    }

    /// Whether the rules after at least one change in the range meet the condition.
    fn any(&self, after: u64, up_to: u64, holds: impl Fn(&Rules) -> bool) -> bool {
        (after..=up_to).any(|number| holds(&self.after(number)))
    }
}

impl Sim {
    /// The node starts a change of rights.
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
            let random = &mut self.random;
            let names = mutable().filter(|_| random.chance(30));
            let mute = names.map(str::to_owned).collect();
            let rights = Right::all().into_iter();
            let forbidden = rights.filter(|_| random.chance(30)).collect();
            Change::Rules(Arc::new(Rules { forbidden, mute }))
        };
        self.rights.changes.push(change);
        let number = self.rights.changes.len() as u64;
        for shard in &mut self.rights.on_way {
            shard.push_back(number);
        }
    }

    /// A shard takes some of the changes that the node has sent to it.
    pub(super) fn take_rights(&mut self, shard: usize) -> Checked {
        while !self.rights.on_way[shard].is_empty() && (self.calm || self.random.chance(30)) {
            let Some(number) = self.rights.on_way[shard].pop_front() else {
                break;
            };
            self.rights_taken_over(shard, number);
            let forgotten = self.outside.faults.is_on(Fault::ShardForgotten)
                && shard == number as usize % SHARDS;
            let change = match self.rights.changes[number as usize - 1].clone() {
                Change::Rules(_) if forgotten => {
                    let (rules, rulings) = (self.rights.after(number - 1), self.rulings.clone());
                    RightsChange::Rules(Arc::new(TestPermission { rulings, rules }))
                }
                Change::Rules(mut rules) => {
                    let known = Arc::make_mut(&mut rules);
                    match self.outside.faults.on() {
                        Some(Fault::RightKept(of)) => {
                            known.forbidden.retain(|right| right.holding() != of);
                        }
                        Some(Fault::MuteKept(of)) => {
                            known.mute.retain(|name| holding_of(name) != of);
                        }
                        _ => {}
                    }
                    let rulings = self.rulings.clone();
                    RightsChange::Rules(Arc::new(TestPermission { rulings, rules }))
                }
                Change::Revoke { mut user, until } => {
                    if self.outside.faults.is_on(Fault::RevokedOther) {
                        user.push('x');
                    }
                    let what = Revoked::User(Name::from(user.as_str()));
                    RightsChange::Revoke(Revocation { what, until })
                }
            };
            if let RightsChange::Rules(rules) = &change {
                self.outside.link.know(number, Arc::clone(rules));
            }
            self.input(shard, Input::Rights { number, change })?;
        }
        Ok(())
    }

    /// After a turn of a shard: the shard may have settled a change, and may be the last shard to do so.
    pub(super) fn settle_rights(&mut self, shard: usize) -> Checked {
        if self.shards[shard].owed_count() > 0 {
            return Ok(());
        }
        self.rights.settled[shard] = self.shards[shard].settled();
        let all = self.rights.settled.iter().copied().min().unwrap_or(0);
        if all > self.rights.acknowledged {
            self.rights.acknowledged = all;
            self.check_rights()?;
        }
        Ok(())
    }

    /// Checks that no session has a right that an acknowledged change has taken away.
    fn check_rights(&self) -> Checked {
        let (rights, now) = (&self.rights, self.now.wall);
        let newest = rights.changes.len() as u64;
        let unseen = match self.outside.faults.on() {
            Some(Fault::RightKept(holding)) => Some(holding),
            _ => None,
        };
        for ((session, right), held_right) in &rights.held {
            let is_checked = held_right.granted && unseen != Some(right.holding());
            let allows = |rules: &Rules| !rules.forbids(right);
            ensure(
                !is_checked || rights.any(rights.acknowledged, newest, allows),
                Check::RightsEnded,
                || {
                    let acknowledged = rights.acknowledged;
                    format!("{session:?} still holds {right:?} after {acknowledged}")
                },
            )?;
        }
        for (session, connection) in &self.connections {
            let user = &self.clients[connection.client].user;
            let shard = index_of(session.address);
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

    /// A shard has applied a change.
    pub(super) fn rights_taken_over(&mut self, shard: usize, number: u64) {
        self.rights.taken_over(shard, number);
        let rules = self.rights.at(shard);
        self.rpcs.doubt(|session, name| {
            index_of(session.address) == shard && rules.forbids(&Right::Provide(name.to_owned()))
        });
    }

    /// A session requests a holding from its shard. Returns whether the shard grants it; the owner of a record decides later.
    pub(super) fn takes_right(&mut self, session: SessionId, right: Right) -> bool {
        let is_record = right.holding() == Holding::Record;
        let rules = self.rights.at(index_of(session.address));
        let is_taken = is_record || !rules.forbids(&right);
        if is_taken {
            let held_right = HeldRight {
                begun: self.log_end(session),
                granted: !is_record,
            };
            self.rights
                .held
                .entry((session, right))
                .or_insert(held_right);
        }
        is_taken
    }

    /// A session gives up a holding at its shard.
    pub(super) fn gives_back(&mut self, session: SessionId, right: Right) {
        self.rights.held.remove(&(session, right));
    }

    /// Checks that no message from before an acknowledged change arrives, and that each holding that must end does end.
    pub(super) fn authorized_by_new_rules(&mut self, session: SessionId, heard: &Heard) -> Checked {
        if let Heard::Ended { right, asked } = heard {
            return self.right_ended(session, right, *asked);
        }
        let rights = &mut self.rights;
        if let Heard::Written { name, id } = heard {
            let is_right = !is_guarded(name) || !rights.refused.contains(id);
            return ensure(is_right, Check::OldRules, || {
                format!("{session:?} hears {heard:?}, which was forbidden")
            });
        }
        let Some(right) = Right::behind(heard) else {
            return Ok(());
        };
        let newest = rights.changes.len() as u64;
        let allows = |rules: &Rules| !rules.forbids(&right);
        let needed = rights.rules_number(rights.acknowledged);
        // A session that coalesces and lagged gets the newest value, whenever it was written.
        let coalesces = self.connections.get(&session).is_none_or(|to| to.coalesces);
        let number = match heard {
            Heard::Event { data, .. } => Some(data.clone()),
            Heard::Changed { delta, .. } if !coalesces => written_number(delta),
            // A call that was already offered to a provider continues.
            Heard::Rpc {
                what: RpcHeard::Request(number),
                ..
            } if self.rpcs.is_fresh(number) => Some(number.clone()),
            _ => None,
        };
        let decided = number.map_or(newest, |number| {
            rights.published.get(&number).copied().unwrap_or(0)
        });
        ensure(
            rights.any(rights.acknowledged, newest, allows) && decided >= needed,
            Check::OldRules,
            || {
                let acknowledged = rights.acknowledged;
                format!("{session:?} hears {heard:?} of {decided} after {acknowledged}")
            },
        )?;
        // Here a value is always the answer to a subscription.
        if let Heard::Value { .. } = heard
            && let Some(held_right) = rights.held.get_mut(&(session, right.clone()))
        {
            held_right.granted |= held_right.begun <= self.log_index;
        }
        let fault = Fault::EndUnjust(right.holding());
        if self.outside.faults.hits(fault) {
            return self.right_ended(session, &right, Some(false));
        }
        Ok(())
    }

    /// A session receives a refusal, or the end of a holding.
    fn right_ended(&mut self, session: SessionId, right: &Right, asked: Option<bool>) -> Checked {
        let shard = index_of(session.address);
        let (rights, key) = (&self.rights, (session, right.clone()));
        let holds = rights
            .held
            .get(&key)
            .is_some_and(|held_right| held_right.begun <= self.log_index);
        let is_end = !asked.unwrap_or(!holds);
        let (after, up_to) = match is_end {
            true => (rights.acknowledged + 1, rights.taken[shard]),
            false => (rights.acknowledged, rights.changes.len() as u64),
        };
        let forbids = |rules: &Rules| rules.forbids(right);
        ensure(
            rights.any(after, up_to, forbids),
            Check::RightsEnded,
            || format!("{session:?} hears the end of {right:?} between {after} and {up_to}"),
        )?;
        let fault = Fault::EndNoticeLost(right.holding());
        if !holds || is_end && self.outside.faults.hits(fault) {
            return Ok(());
        }
        self.rights.held.remove(&key);
        match right {
            Right::Event(name) => self.events.unsubscribe(session, name),
            Right::Provide(name) => self.rpcs.unprovide(session, name),
            Right::Watch(user) => self.presences.unwatch(session, user.as_deref()),
            Right::Record(_) | Right::Listen(..) => {}
        }
        Ok(())
    }

    /// At the end of a run all clients write the guarded records. Each session that still holds one must hear of the writes: its
    /// holding has not ended silently.
    pub(super) fn guarded_records_go_on(&mut self) -> Checked {
        if !self.is_ruled {
            return Ok(());
        }
        let from = self.next_event + 1;
        let mut number = self.next_event;
        for index in 0..self.clients.len() {
            if self.clients[index].open {
                self.clients[index].write_all(&GUARDED, &mut number);
                self.send(index);
            }
        }
        self.next_event = number;
        self.settle()?;
        for ((session, right), held_right) in &self.rights.held {
            if let (Right::Record(name), true) = (right, held_right.granted) {
                let missed = self.guarded.missed(*session, name, from);
                ensure(missed.is_none(), Check::RightsEnded, || {
                    format!("{session:?} holds {name} and has not heard {missed:?}")
                })?;
            }
        }
        Ok(())
    }

    /// The principal of a session, in some cases with an expiry.
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
    pub(super) fn ended_by_engine(&mut self, session: SessionId, reason: CloseReason) -> Checked {
        let Some(connection) = self.connections.get(&session) else {
            return Ok(());
        };
        let shard = index_of(session.address);
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

    /// Checks that a session hears nothing after its login has expired or was revoked.
    pub(super) fn not_after_end(&self, session: SessionId, heard: &Heard) -> Checked {
        let connection = self.connections.get(&session);
        let expires_at = connection.and_then(|connection| connection.expires_at);
        let has_expired = expires_at.is_some_and(|end| end <= self.now.wall);
        let is_gone = self.rights.gone.contains(&session);
        ensure(!is_gone && !has_expired, Check::Revoked, || {
            format!("{session:?} hears {heard:?} after its end")
        })
    }

    /// The end of the log that has the session's format.
    pub(super) fn log_end(&self, session: SessionId) -> usize {
        let shard = index_of(session.address);
        let connection = self.connections.get(&session);
        connection.map_or(0, |connection| {
            let format = self.clients[connection.client].format;
            self.outside.logs[shard][usize::from(format.0)].len()
        })
    }
}

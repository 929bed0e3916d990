//! Changes of rights: revocations of one user and their ends, and rules that deny another user a record and an event. Each node makes some of
//! them.
//!
//! The log of the changes is that of the store. Like a node, the world passes a change to all shards of a node before it delivers a marker of
//! it, and reads the log when a node starts or has a new view.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidewire_core::address::{Address, SessionId};
use tidewire_core::effect::Input;
use tidewire_core::permission::{Access, AllowAll, Decision, Permission, QueryRight, Question};
use tidewire_core::rights::{Revocation, Revoked, RightsChange};
use tidewire_core::text::Name;
use tidewire_core::time::WallTime;
use tidewire_core::view::{MemberId, MemberState, View};

use super::{CLIENTS, Checked, Violation, World, ensure, user_of};
use crate::client::{Client, Heard, Known, Said};

/// The user that is revoked and restored.
pub const REVOCABLE: &str = "dora";

/// The user that some rules deny a record, a card and an event.
pub(super) const GUARDED: &str = "ben";
const GUARDED_RECORD: &str = "h";
pub(super) const GUARDED_CARD: &str = "cards/3";
const GUARDED_EVENT: &str = "stored/c";

/// A record that no client uses.
const GATE: &str = "gate";

/// The rules that deny them.
#[derive(Debug)]
struct Guard;

impl Permission for Guard {
    fn decide(&self, question: &Question<'_>) -> Decision {
        let guarded: &[&str] = match question.access {
            Access::RecordRead => &[GUARDED_RECORD, GUARDED_CARD],
            Access::EventSubscribe => &[GUARDED_EVENT],
            _ => &[],
        };
        let is_guarded = question.name.is_some_and(|name| guarded.contains(&name));
        match is_guarded && question.principal.user_id.as_str() == GUARDED {
            true => Decision::Deny,
            false => Decision::Allow,
        }
    }

    fn query_right(&self, _prefix: &str) -> QueryRight {
        QueryRight::ByPrincipal
    }
}

/// Rules that read a record before they allow another one.
#[derive(Debug)]
struct Gate;

impl Permission for Gate {
    fn decide(&self, question: &Question<'_>) -> Decision {
        let is_gated =
            question.access == Access::RecordRead && question.name == Some(GUARDED_RECORD);
        match question.record(GATE) {
            Err(needed) if is_gated => needed,
            _ => Decision::Allow,
        }
    }
}

/// A change that its node has not acknowledged yet.
#[derive(Debug)]
struct Pending {
    number: u64,
    maker: MemberId,
}

/// See the documentation of this module.
#[derive(Debug, Default)]
pub struct Rights {
    pending: Vec<Pending>,
    /// The makers of changes that the store has and has not confirmed.
    unanswered: Vec<MemberId>,
    /// Whether the user is revoked after all changes, and that is acknowledged.
    is_revoked: bool,
    /// Whether the rules deny after all changes, and that is acknowledged.
    is_guarded: bool,
    /// The changes of rules, and whether they deny.
    rules: BTreeMap<u64, bool>,
    /// By shard, the newest change before which its messages have left.
    sent: BTreeMap<Address, u64>,
    /// The sessions that have lost a right since a change was settled at their shards. A node cuts off those that do not read.
    losers: BTreeSet<SessionId>,
}

impl Rights {
    /// Whether the rules of a change deny.
    pub(super) fn denies(&self, change: u64) -> bool {
        self.rules[&change]
    }
}

impl World {
    /// A node revokes the user, ends its revocation, or replaces the rules.
    pub(super) fn changes_rights(&mut self) {
        let numbers = self.node_numbers();
        let node = *self.random.pick(&numbers);
        let birth = self.nodes[&node].birth;
        // The store refuses a process that its view does not have.
        let maker = MemberId { node, birth };
        if !self.views.current.has(maker) {
            return;
        }
        let change = match self.random.chance(50) {
            true => self.next_rules(),
            false => self.next_revocation(),
        };
        self.outside.changes.push(change);
        let number = self.outside.changes.len() as u64;
        // The store may answer late or with an error: others may read the row first, and the process may end before.
        match self.random.chance(80) {
            true => {
                self.outside.read_changes(node);
                self.rights.pending.push(Pending { number, maker });
            }
            false => self.rights.unanswered.push(maker),
        }
        self.met.changes += 1;
    }

    fn next_revocation(&mut self) -> RightsChange {
        self.rights.is_revoked = false;
        let mut before = self.outside.changes.iter().rev();
        let is_revoked = before.find_map(|change| match change {
            RightsChange::Revoke(_) => Some(true),
            RightsChange::Restore(_) => Some(false),
            RightsChange::Rules(_) => None,
        });
        let what = Revoked::User(Name::from(REVOCABLE));
        match is_revoked {
            Some(true) => RightsChange::Restore(what),
            Some(false) | None => RightsChange::Revoke(Revocation {
                what,
                until: WallTime(u64::MAX),
            }),
        }
    }

    fn next_rules(&mut self) -> RightsChange {
        self.rights.is_guarded = false;
        let denies = self.random.chance(60);
        let number = self.outside.changes.len() as u64 + 1;
        self.rights.rules.insert(number, denies);
        RightsChange::Rules(match denies {
            true => Arc::new(Guard),
            false => Arc::new(AllowAll),
        })
    }

    /// The store answers all nodes, which then read the changes.
    pub(super) fn store_confirms(&mut self) {
        for maker in std::mem::take(&mut self.rights.unanswered) {
            if self.birth(maker.node) == Some(maker.birth) {
                self.outside.read_changes(maker.node);
            }
        }
    }

    /// Of two nodes, the first loses the link to the second, and makes a change.
    pub fn loses_a_link_during_a_change(&mut self) -> Checked {
        self.rest()?;
        let numbers = self.node_numbers();
        let (node, lost) = (numbers[0], numbers[1]);
        let own: Vec<Address> = self
            .live()
            .into_iter()
            .filter(|it| it.node == node)
            .collect();
        for shard in &own {
            self.input(*shard, Input::NodeLost { node: lost });
        }
        let what = Revoked::User(Name::from(REVOCABLE));
        let until = WallTime(u64::MAX);
        let change = RightsChange::Revoke(Revocation { what, until });
        self.outside.changes.push(change);
        self.outside.read_changes(node);
        for _ in 0..10 {
            for shard in &own {
                self.turn(*shard, true)?;
            }
        }
        for shard in &own {
            let settled = self.shards[shard].settled();
            ensure(settled == 0, || {
                format!("{shard:?} has settled the change without the node {lost}")
            })?;
        }
        self.views.remove(lost);
        self.rest()?;
        self.rights_are_settled()
    }

    /// Of two nodes, one is lost with records to which clients of the other are subscribed, and rules that deny them change. Returns the
    /// count of these clients. The rules are not acknowledged before the next owners have denied the subscriptions.
    pub fn loses_an_owner_during_a_change(&mut self, lost: u16) -> Result<usize, Violation> {
        self.rest()?;
        for _ in 0..CLIENTS {
            self.connect();
        }
        let is_guarded = |client: &&mut Client| user_of(client.session) == GUARDED;
        for client in self.clients.iter_mut().filter(is_guarded) {
            client.inbox.push_back(Said::Subscribe(GUARDED_RECORD));
        }
        self.rest()?;
        self.crash(lost);
        let own = self.live();
        for shard in &own {
            self.input(*shard, Input::NodeLost { node: lost });
        }
        let node = own[0].node;
        let birth = self.nodes[&node].birth;
        let maker = MemberId { node, birth };
        self.rights.rules.insert(1, true);
        self.outside
            .changes
            .push(RightsChange::Rules(Arc::new(Guard)));
        self.outside.read_changes(node);
        self.rights.pending.push(Pending { number: 1, maker });
        for shard in &own {
            self.turn(*shard, true)?;
        }
        self.views.remove(lost);
        self.node_reads_view(node);
        // The next owner can't load the record, so it decides nothing.
        for _ in 0..10 {
            for shard in &own {
                self.turn(*shard, true)?;
            }
        }
        let subscribed = self.clients.iter();
        let subscribed = subscribed.filter(|it| it.records.contains_key(GUARDED_RECORD));
        let count = subscribed.count();
        self.rest()?;
        self.rights_are_settled()?;
        Ok(count)
    }

    /// Of two nodes, one leaves while owners check subscriptions by rules that read a record, which the store does not return. Returns the
    /// count of the subscriptions on the other node, which all stay.
    pub fn drains_an_owner_during_a_check(&mut self, leaving: u16) -> Result<usize, Violation> {
        self.rest()?;
        for _ in 0..CLIENTS {
            self.connect();
        }
        for client in &mut self.clients {
            client.inbox.push_back(Said::Subscribe(GUARDED_RECORD));
        }
        self.rest()?;
        self.outside
            .changes
            .push(RightsChange::Rules(Arc::new(Gate)));
        for node in self.node_numbers() {
            self.outside.read_changes(node);
        }
        self.continues_without_store()?;
        self.views.set(leaving, MemberState::Leaving);
        for node in self.node_numbers() {
            self.node_reads_view(node);
        }
        self.continues_without_store()?;
        let others = self.clients.iter().map(|client| client.session);
        let others = others.filter(|session| session.address.node != leaving);
        let others: BTreeSet<SessionId> = others.collect();
        self.rest()?;
        let has_kept = |client: &&Client| {
            let known = client.records.get(GUARDED_RECORD);
            others.contains(&client.session) && matches!(known, Some(Known::Value(..)))
        };
        let kept = self.clients.iter().filter(has_kept).count();
        ensure(kept == others.len(), || {
            format!("{kept} of {} subscriptions are left", others.len())
        })?;
        self.rights_are_settled()?;
        Ok(kept)
    }

    fn continues_without_store(&mut self) -> Checked {
        for _ in 0..10 {
            let wires: Vec<(u16, u16)> = self.outside.wires.keys().copied().collect();
            for wire in wires {
                while self.outside.deliver(wire) {}
            }
            for shard in self.live() {
                self.turn(shard, true)?;
            }
        }
        Ok(())
    }

    /// The messages of a shard have left. It reports that with the newest change that is settled.
    pub(super) fn has_sent(&mut self, address: Address, all: bool) {
        if !all && self.random.chance(50) {
            return;
        }
        if let Some(shard) = self.shards.get_mut(&address) {
            self.outside.at = address;
            let settled = shard.settled();
            let before = self.rights.sent.insert(address, settled);
            shard.rights_sent(settled, &mut self.outside);
            if before != Some(settled) {
                let losers = &mut self.rights.losers;
                losers.retain(|session| session.address != address);
            }
        }
    }

    /// Notes the sessions that have lost rights in this turn of a shard.
    pub(super) fn note_losers(&mut self, address: Address) {
        if let Some(shard) = self.shards.get_mut(&address) {
            self.rights.losers.extend(shard.take_losers());
        }
    }

    /// Acknowledges what has settled, and checks what must hold afterwards.
    pub(super) fn rights_hold(&mut self) -> Checked {
        let mut acknowledged = Vec::new();
        for (index, pending) in self.rights.pending.iter().enumerate() {
            let Pending { number, maker } = pending;
            let mut own = self
                .shards
                .iter()
                .filter(|(shard, _)| shard.node == maker.node);
            let has_settled = |(address, shard): (&Address, &tidewire_core::engine::Shard)| {
                let sent = self.rights.sent.get(address).copied().unwrap_or(0);
                sent >= *number && shard.sent_elsewhere() >= *number
            };
            let is_alive = self.birth(maker.node) == Some(maker.birth);
            if is_alive && own.all(has_settled) {
                acknowledged.push(index);
            }
        }
        for index in acknowledged.into_iter().rev() {
            let Pending { number, .. } = self.rights.pending.remove(index);
            self.met.settled += 1;
            self.is_applied(number)?;
            let mut later = self.outside.changes[number as usize..].iter();
            let is_rules = |change: &RightsChange| matches!(change, RightsChange::Rules(_));
            let change = &self.outside.changes[number as usize - 1];
            let is_newest = !later.any(|later| is_rules(later) == is_rules(change));
            match change {
                RightsChange::Revoke(_) => self.rights.is_revoked |= is_newest,
                RightsChange::Restore(_) => {}
                RightsChange::Rules(_) => {
                    self.met.rules += 1;
                    self.rights.is_guarded |= is_newest && self.rights.rules[&number];
                }
            }
            self.guard_holds()?;
        }
        if self.rights.is_revoked {
            for client in &self.clients {
                let session = client.session;
                let mut closed = self.outside.closed.iter();
                let is_closed = closed.any(|(closed, _)| *closed == session);
                let counts = user_of(session) == REVOCABLE && self.serves(session.address.node);
                ensure(is_closed || !counts, || {
                    format!("{session:?} of the revoked user is open")
                })?;
            }
        }
        Ok(())
    }

    /// If acknowledged rules deny a name, no client of a member that serves clients has a subscription to it.
    fn guard_holds(&self) -> Checked {
        for client in self.clients.iter().filter(|_| self.rights.is_guarded) {
            let session = client.session;
            let known = client.records.get(GUARDED_RECORD);
            let is_subscribed = matches!(known, Some(Known::Value(..)))
                || client.events.contains_key(GUARDED_EVENT);
            let is_denied = is_subscribed && user_of(session) == GUARDED;
            ensure(!is_denied || !self.serves(session.address.node), || {
                format!("{session:?} has a subscription that acknowledged rules deny")
            })?;
        }
        Ok(())
    }

    /// If acknowledged rules deny a name, no client of a member that serves clients hears anything of it.
    pub(super) fn may_hear(&mut self, session: SessionId, heard: &Heard) -> Checked {
        let name = match heard {
            Heard::Value(name, ..) | Heard::Patched(name, ..) | Heard::Replaced(name, ..) => name,
            Heard::Event(name, _) | Heard::Position(name, _) | Heard::Gap(name) => name,
            Heard::Refused(name) | Heard::NotFollowed(name) => {
                self.met.denied += usize::from(is_guarded(session, name));
                return self.is_loser(session, name);
            }
            _ => return Ok(()),
        };
        let is_denied = self.rights.is_guarded && is_guarded(session, name);
        ensure(!is_denied || !self.serves(session.address.node), || {
            format!("{session:?} hears {heard:?} after the rules that deny it are acknowledged")
        })
    }

    /// A session that loses a subscription to new rules is one of the losers, so it gets no earlier message after the change is settled.
    fn is_loser(&self, session: SessionId, name: &str) -> Checked {
        let mut clients = self.clients.iter();
        let client = clients.find(|client| client.session == session);
        let known = client.and_then(|client| client.records.get(name));
        let has_lost = is_guarded(session, name) && matches!(known, Some(Known::Value(..)));
        ensure(!has_lost || self.rights.losers.contains(&session), || {
            format!("{session:?} loses {name} and may get its earlier messages")
        })
    }

    /// Whether the node serves clients as a member: it had a complete view, and no later view has evicted it.
    pub(super) fn serves(&self, node: u16) -> bool {
        let birth = self.birth(node);
        let is_member = birth.is_some_and(|birth| self.views.current.has(MemberId { node, birth }));
        is_member && self.has_served(node)
    }

    /// Whether a process has had a complete view, so that it may have clients.
    pub(super) fn has_served(&self, node: u16) -> bool {
        let mut shards = self.shards.iter().filter(|(shard, _)| shard.node == node);
        shards.all(|(_, shard)| shard.handed_over() > View(0))
    }

    /// Each member that serves clients has applied an acknowledged change, and has sent everything that was decided before.
    fn is_applied(&self, number: u64) -> Checked {
        for address in self.shards.keys() {
            let sent = self.rights.sent.get(address).copied().unwrap_or(0);
            ensure(sent >= number || !self.serves(address.node), || {
                format!("change {number} is acknowledged, {address:?} has sent {sent}")
            })?;
        }
        Ok(())
    }

    /// At rest, all changes are settled everywhere.
    pub(super) fn rights_are_settled(&self) -> Checked {
        self.guard_holds()?;
        let newest = self.outside.changes.len() as u64;
        for (address, shard) in &self.shards {
            let settled = shard.settled().min(shard.sent_elsewhere());
            ensure(settled == newest, || {
                format!("{address:?} has settled change {settled} of {newest}")
            })?;
        }
        ensure(
            self.rights
                .pending
                .iter()
                .all(|it| self.birth(it.maker.node) != Some(it.maker.birth)),
            || format!("not acknowledged: {:?}", self.rights.pending),
        )
    }
}

/// Whether some rules deny the name to the user of the session.
pub(super) fn is_guarded(session: SessionId, name: &str) -> bool {
    user_of(session) == GUARDED && [GUARDED_RECORD, GUARDED_EVENT].contains(&name)
}

//! The members and the subscribers of scopes, at the owner of each scope.
//!
//! The owner collects the changes of a turn and posts them at its end. A subscriber gets the whole list first, at the end of a turn, too,
//! behind the changes that the list includes. So no change is missing between a list and the changes that follow it. In a scope with many
//! subscribers, updates wait for each other (decision 0156).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::address::{Address, SessionId};
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::entry::{Entry, ScopeEntry};
use crate::grace::GracePeriods;
use crate::handover::Handover;
use crate::identity::NAMELESS;
use crate::json;
use crate::shard_counts::ShardCounts;
use crate::text::{Name, Payload};
use crate::time::Instant;

/// Approximate bytes of a member, of its change and of a subscriber, without their texts.
const MEMBER_BYTES: usize = 200;
const SUBSCRIBER_BYTES: usize = 64;

/// In a scope with fewer subscribers, updates leave at the end of each turn.
const PACED_SUBSCRIBERS_MIN: usize = 16;
/// The time between two messages with updates alone, for each subscriber. A send costs 2 to 6 µs, so the updates of a scope take three
/// hundredths of a processor at most, however many members move at once.
const PACE_PER_SUBSCRIBER: Duration = Duration::from_micros(200);
/// The longest time between them: less than a frame of a screen.
const PACE_MAX: Duration = Duration::from_millis(10);

/// A member of a scope.
#[derive(Debug)]
struct Member {
    user: Name,
    state: Payload,
    /// Whether its node is lost. The member stays until the grace period has passed.
    is_lost: bool,
}

impl Member {
    fn bytes(&self) -> usize {
        MEMBER_BYTES + self.state.len()
    }
}

/// A session with a subscription.
#[derive(Debug)]
struct Subscriber {
    serial: u32,
    /// Whether it has the list of members, so that it gets changes.
    has_list: bool,
}

/// A change of a member that subscribers do not know yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// Subscribers do not know a member with this id.
    Joined,
    /// Subscribers know an earlier member with this id, or another user of it.
    Replaced,
    Updated,
    Left,
}

impl Change {
    /// The change that has the effect of both; `None` if that is none.
    fn then(self, next: Self) -> Option<Self> {
        match (self, next) {
            (Self::Joined, Self::Left) => None,
            (Self::Joined, _) => Some(Self::Joined),
            (_, Self::Left) => Some(Self::Left),
            (Self::Updated, Self::Updated) => Some(Self::Updated),
            _ => Some(Self::Replaced),
        }
    }
}

/// A scope with members or subscribers.
#[derive(Debug, Default)]
struct Scope {
    members: BTreeMap<SessionId, Member>,
    subscribers: BTreeMap<SessionId, Subscriber>,
    /// The number of subscribers of each shard that have the list.
    informed: ShardCounts,
    /// The changes since the last end of a turn.
    changes: BTreeMap<SessionId, Change>,
    /// Updates alone wait until then.
    next_updates: Instant,
}

impl Scope {
    fn note(&mut self, session: SessionId, change: Change) {
        let noted = match self.changes.get(&session) {
            Some(before) => before.then(change),
            None => Some(change),
        };
        match noted {
            Some(change) => self.changes.insert(session, change),
            None => self.changes.remove(&session),
        };
    }

    /// Removes a subscriber. Returns its bytes.
    fn remove_subscriber(&mut self, session: SessionId) -> usize {
        let Some(removed) = self.subscribers.remove(&session) else {
            return 0;
        };
        if removed.has_list {
            let was_counted = self.informed.remove(session.address);
            debug_assert!(was_counted, "each subscriber with the list is counted");
        }
        SUBSCRIBER_BYTES
    }

    /// Removes a member. Returns its bytes.
    fn remove_member(&mut self, session: SessionId) -> usize {
        let Some(removed) = self.members.remove(&session) else {
            return 0;
        };
        self.note(session, Change::Left);
        removed.bytes()
    }

    /// Until when its changes wait, if they do. Only updates wait: a later one replaces them.
    fn waits_until(&self, now: Instant) -> Option<Instant> {
        let is_paced = self.subscribers.len() >= PACED_SUBSCRIBERS_MIN
            && self.next_updates > now
            && self.subscribers.values().all(|known| known.has_list)
            && self.changes.values().all(|it| *it == Change::Updated);
        is_paced.then_some(self.next_updates)
    }

    /// Notes that changes have left.
    fn pace(&mut self, now: Instant) {
        let count = u32::try_from(self.subscribers.len()).unwrap_or(u32::MAX);
        self.next_updates = now + PACE_PER_SUBSCRIBER.saturating_mul(count).min(PACE_MAX);
    }

    fn is_unused(&self) -> bool {
        self.members.is_empty() && self.subscribers.is_empty()
    }

    /// All members, as JSON.
    fn list(&self) -> Payload {
        let mut out = String::from("{\"members\":[");
        for (index, (session, member)) in self.members.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            out.push('{');
            write_id(*session, &mut out);
            write_user(member, &mut out);
            write_state(member, &mut out);
        }
        out.push_str("]}");
        Payload::from(out)
    }

    /// The changes as JSON; `None` if there are none. Afterwards none is left.
    fn take_changes(&mut self) -> Option<Payload> {
        let changes = std::mem::take(&mut self.changes);
        if changes.is_empty() || self.informed.is_empty() {
            return None;
        }
        let mut out = String::from("[");
        for (session, change) in changes {
            if out.len() > 1 {
                out.push(',');
            }
            let (word, member) = match (change, self.members.get(&session)) {
                (Change::Joined | Change::Replaced, Some(member)) => ("joined", Some(member)),
                (Change::Updated, Some(member)) => ("updated", Some(member)),
                _ => ("left", None),
            };
            out.push_str(&format!("{{\"type\":\"{word}\","));
            write_id(session, &mut out);
            let Some(member) = member else {
                out.push('}');
                continue;
            };
            if change != Change::Updated {
                write_user(member, &mut out);
            }
            write_state(member, &mut out);
        }
        out.push(']');
        Some(Payload::from(out))
    }
}

/// The id of a member: no other session of the cluster has it at the same time.
pub(super) fn member_id(session: SessionId) -> String {
    let SessionId {
        address: Address { node, shard },
        index,
        generation,
    } = session;
    format!("{node}.{shard}.{index}.{generation}")
}

fn write_id(session: SessionId, out: &mut String) {
    out.push_str("\"id\":");
    json::string(&member_id(session), out);
}

/// Appends the user, if it has a name.
fn write_user(member: &Member, out: &mut String) {
    if member.user.as_str() != NAMELESS {
        out.push_str(",\"user\":");
        json::string(&member.user, out);
    }
}

/// Appends the state and the end of the object.
fn write_state(member: &Member, out: &mut String) {
    out.push_str(",\"state\":");
    out.push_str(member.state.as_str());
    out.push('}');
}

/// The scopes that a shard owns.
#[derive(Debug, Default)]
pub(crate) struct ScopeOwner {
    scopes: BTreeMap<Name, Scope>,
    /// The scopes with changes, or with subscribers that wait for the list.
    pub(crate) unsent: BTreeSet<Name>,
    /// The scopes whose updates wait, and until when.
    paced: BTreeSet<(Instant, Name)>,
    /// Lost nodes, with the ends of their grace periods.
    lost: GracePeriods,
    bytes: usize,
}

impl ScopeOwner {
    /// The number of scopes with members or subscribers.
    pub(crate) fn count(&self) -> usize {
        self.scopes.len()
    }

    /// Bytes of the members and subscribers.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Handles an entry for the owner.
    pub(crate) fn handle<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>, entry: ScopeEntry) {
        match entry {
            ScopeEntry::Join {
                session,
                scope,
                user,
                state,
                is_member,
            } => {
                let member = Member {
                    user,
                    state,
                    is_lost: false,
                };
                self.join(turn, session, scope, member, is_member);
            }
            ScopeEntry::Update {
                session,
                scope,
                state,
            } => self.update(turn, session, &scope, state),
            ScopeEntry::Leave { session, scope } => {
                self.change(&scope, |known| known.remove_member(session));
            }
            ScopeEntry::Subscribe {
                session,
                serial,
                scope,
            } => self.subscribe(session, serial, scope),
            ScopeEntry::Release { session, scope } => {
                self.change(&scope, |known| known.remove_subscriber(session));
            }
            // For the shards of sessions.
            ScopeEntry::Joined { .. }
            | ScopeEntry::Full { .. }
            | ScopeEntry::Snapshot { .. }
            | ScopeEntry::Changed { .. } => {}
        }
    }

    fn join<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        session: SessionId,
        scope: Name,
        member: Member,
        is_member: bool,
    ) {
        let members_max = turn.shard.settings.limits.presence_members_max;
        let known = self.scopes.entry(scope.clone()).or_default();
        let before = known.members.get(&session);
        if before.is_none() && !is_member {
            // The user's session on a lost node has probably moved here.
            let is_moved = |other: &Member| other.is_lost && other.user == member.user;
            let may_have_moved = !self.lost.is_empty() && member.user.as_str() != NAMELESS;
            if may_have_moved
                && let Some((&moved, _)) = known.members.iter().find(|(_, it)| is_moved(it))
            {
                self.bytes -= known.remove_member(moved);
            }
            if known.members.len() >= members_max {
                turn.shard.count(|refused| refused.scopes += 1);
                self.unsent.insert(scope.clone());
                self.drop_unused(&scope);
                return turn.post(
                    session.address,
                    Entry::Scope(ScopeEntry::Full { session, scope }),
                );
            }
        }
        let before = known.members.get(&session);
        let change = match before {
            Some(before) if before.user == member.user && !before.is_lost => {
                (before.state != member.state).then_some(Change::Updated)
            }
            Some(_) => Some(Change::Replaced),
            None => Some(Change::Joined),
        };
        self.bytes += member.bytes();
        if let Some(before) = known.members.insert(session, member) {
            self.bytes -= before.bytes();
        }
        if let Some(change) = change {
            known.note(session, change);
            self.unsent.insert(scope.clone());
        }
        turn.post(
            session.address,
            Entry::Scope(ScopeEntry::Joined { session, scope }),
        );
    }

    fn update<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        session: SessionId,
        scope: &Name,
        state: Payload,
    ) {
        let Some(known) = self.scopes.get_mut(scope) else {
            return;
        };
        let Some(member) = known.members.get_mut(&session) else {
            return;
        };
        turn.shard.count_work(state.len());
        self.bytes = self.bytes - member.state.len() + state.len();
        member.state = state;
        known.note(session, Change::Updated);
        if !self.unsent.contains(scope) {
            self.unsent.insert(scope.clone());
        }
    }

    fn subscribe(&mut self, session: SessionId, serial: u32, scope: Name) {
        let known = self.scopes.entry(scope.clone()).or_default();
        self.bytes -= known.remove_subscriber(session);
        self.bytes += SUBSCRIBER_BYTES;
        let has_list = false;
        let subscriber = Subscriber { serial, has_list };
        known.subscribers.insert(session, subscriber);
        self.unsent.insert(scope);
    }

    /// Changes a scope, if it is known, by a function that returns the bytes that it has removed.
    fn change(&mut self, scope: &Name, change: impl FnOnce(&mut Scope) -> usize) {
        if let Some(known) = self.scopes.get_mut(scope) {
            self.bytes -= change(known);
            if !known.changes.is_empty() {
                self.unsent.insert(scope.clone());
            }
            self.drop_unused(scope);
        }
    }

    fn drop_unused(&mut self, scope: &Name) {
        if self.scopes.get(scope).is_some_and(Scope::is_unused) {
            self.scopes.remove(scope);
            self.unsent.remove(scope);
        }
    }

    /// Posts the changes of the turn, and the lists to new subscribers of scopes that this shard holds: the shards of the sessions have
    /// posted all members of such a scope.
    pub(crate) fn end_turn<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        handover: &Handover,
    ) {
        let owner = turn.shard.address;
        for scope in std::mem::take(&mut self.unsent) {
            let Some(known) = self.scopes.get_mut(&scope) else {
                continue;
            };
            if let Some(until) = known.waits_until(turn.now.monotonic) {
                self.paced.insert((until, scope));
                continue;
            }
            if let Some(data) = known.take_changes() {
                known.pace(turn.now.monotonic);
                turn.shard.count_work(data.len());
                for shard in known.informed.shards() {
                    let changed = ScopeEntry::Changed {
                        owner,
                        scope: scope.clone(),
                        data: data.clone(),
                    };
                    turn.post(shard, Entry::Scope(changed));
                }
            }
            if known.subscribers.values().all(|known| known.has_list) {
                continue;
            }
            if !handover.holds(turn.shard.slot(&scope)) {
                self.unsent.insert(scope);
                continue;
            }
            let data = known.list();
            turn.shard.count_work(data.len());
            for (session, subscriber) in &mut known.subscribers {
                if subscriber.has_list {
                    continue;
                }
                subscriber.has_list = true;
                known.informed.add(session.address);
                let snapshot = ScopeEntry::Snapshot {
                    session: *session,
                    serial: subscriber.serial,
                    owner,
                    scope: scope.clone(),
                    data: data.clone(),
                };
                turn.post(session.address, Entry::Scope(snapshot));
            }
        }
    }

    /// Ends the subscriptions of a lost node, and keeps its members until the grace period has passed.
    pub(crate) fn node_lost(&mut self, node: u16, until: Instant) {
        let mut has_members = false;
        for scope in self.scopes.keys().cloned().collect::<Vec<_>>() {
            self.change(&scope, |known| {
                let subscribers = known.subscribers.keys();
                let lost = subscribers.filter(|session| session.address.node == node);
                let lost: Vec<SessionId> = lost.copied().collect();
                for (session, member) in &mut known.members {
                    member.is_lost |= session.address.node == node;
                    has_members |= member.is_lost;
                }
                lost.into_iter()
                    .map(|session| known.remove_subscriber(session))
                    .sum()
            });
        }
        if has_members {
            self.lost.begin(node, until);
        }
    }

    /// When the first grace period ends, or the first updates have waited for their time.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let paced = self.paced.first().map(|(until, _)| *until);
        [self.lost.next_deadline(), paced]
            .into_iter()
            .flatten()
            .min()
    }

    /// Removes the members of nodes whose grace period has passed, and lets the updates leave that have waited for their time.
    pub(crate) fn deadline_reached(&mut self, now: Instant) {
        while let Some((until, scope)) = self.paced.pop_first() {
            if until > now {
                self.paced.insert((until, scope));
                break;
            }
            if self.scopes.contains_key(&scope) {
                self.unsent.insert(scope);
            }
        }
        for node in self.lost.take_ended(now) {
            for scope in self.scopes.keys().cloned().collect::<Vec<_>>() {
                self.change(&scope, |known| {
                    let members = known.members.iter();
                    let gone = members.filter(|(id, it)| it.is_lost && id.address.node == node);
                    let gone: Vec<SessionId> = gone.map(|(session, _)| *session).collect();
                    gone.into_iter()
                        .map(|session| known.remove_member(session))
                        .sum()
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(index: u32) -> SessionId {
        let (node, shard) = (0, 0);
        SessionId {
            address: Address { node, shard },
            index,
            generation: 1,
        }
    }

    /// The changes of a member after these, in the order in which they are noted.
    fn check(noted: &[Change], expected: Option<Change>) {
        let mut scope = Scope::default();
        for change in noted {
            scope.note(session(0), *change);
        }
        assert_eq!(
            scope.changes.get(&session(0)).copied(),
            expected,
            "{noted:?}"
        );
    }

    #[test]
    fn changes_of_a_turn_are_one() {
        use Change::{Joined, Left, Replaced, Updated};
        check(&[Joined, Updated, Updated], Some(Joined));
        check(&[Updated, Updated], Some(Updated));
        check(&[Updated, Left], Some(Left));
        check(&[Joined, Left], None);
        check(&[Joined, Left, Joined], Some(Joined));
        // Subscribers know an earlier member of this id.
        check(&[Left, Joined, Updated], Some(Replaced));
        check(&[Left, Joined, Left], Some(Left));
        check(&[Updated, Replaced, Updated], Some(Replaced));
        check(&[Replaced, Left], Some(Left));
    }
}

//! Presence: which users have an open session, at the session's shard and at the user's owner.

use std::collections::BTreeMap;

use crate::address::{Address, SessionId};
use crate::context::{LostRight, TurnContext};
use crate::effect::{Effects, Flow};
use crate::entry::{
    AnnouncedUser, DelayedAck, Entry, PendingReplyId, PresenceChange, ReplyAction, ReplyPart,
    ViewEntry,
};
use crate::grace::GracePeriods;
use crate::hub::{Edge, HubTopic};
use crate::identity::NAMELESS;
use crate::json;
use crate::message::{Message, Presence, PresenceAction, Reason, Refusal};
use crate::permission::{Access, Authorization, Decision, Question, RequestedAction};
use crate::principal::Principal;
use crate::publication::InterestTopic;
use crate::session::{Session, SessionFlag};
use crate::shard_counts::ShardCounts;
use crate::text::Name;
use crate::time::Instant;
use crate::work::NAME_WORK;

/// The name in answers about all users.
const EVERYONE: &str = "%_EVERYONE_%";

const USER: HubTopic = HubTopic::Interest(InterestTopic::User);
const ALL: HubTopic = HubTopic::Interest(InterestTopic::Everyone);

/// The users that this shard owns and that are online. A user is in one of the maps. Most users have one session, and the bytes matter
/// because every idle session has them.
#[derive(Debug, Default)]
pub(crate) struct PresenceOwner {
    /// The users with one session, and the shard that has it.
    single: BTreeMap<Name, Address>,
    /// The other users, with the number of their sessions on each shard.
    several: BTreeMap<Name, ShardCounts>,
    /// Lost nodes, with the ends of their grace periods.
    lost: GracePeriods,
}

/// In place of the shards of a lost node whose users still count as online. No node has this number of shards.
const LOST_SHARD: u16 = u16::MAX;

impl PresenceOwner {
    /// The number of users that are online.
    pub(crate) fn count_online(&self) -> usize {
        self.single.len() + self.several.len()
    }

    fn is_online(&self, user: &Name) -> bool {
        self.single.contains_key(user) || self.several.contains_key(user)
    }

    /// Changes the numbers of a user's sessions. Returns the result of `change`, and whether the user was and is online.
    fn change<T>(
        &mut self,
        user: &Name,
        change: impl FnOnce(&mut ShardCounts) -> T,
    ) -> (T, bool, bool) {
        let mut counts = match self.single.remove(user) {
            Some(shard) => ShardCounts::one(shard),
            None => self.several.remove(user).unwrap_or_default(),
        };
        let was_online = !counts.is_empty();
        let result = change(&mut counts);
        let is_online = !counts.is_empty();
        match counts.only() {
            Some(shard) => {
                self.single.insert(user.clone(), shard);
            }
            None if is_online => {
                self.several.insert(user.clone(), counts);
            }
            None => {}
        }
        (result, was_online, is_online)
    }

    /// Counts a session of a user that has opened, and answers its shard if the login waits for that.
    pub(crate) fn opened<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        user: &Name,
        session: SessionId,
        reply: Option<PendingReplyId>,
    ) {
        let ((), was_online, _) = self.change(user, |counts| counts.add(session.address));
        if !was_online {
            publish_except(turn, user, true, Some(session));
        }
        if let Some(reply) = reply {
            turn.part_done(reply, ReplyPart::Done);
        }
    }

    /// Counts that a session of a user on this shard has ended.
    pub(crate) fn ended<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        user: &Name,
        shard: Address,
    ) {
        let (was_counted, _, is_online) = self.change(user, |counts| counts.remove(shard));
        if !was_counted {
            // In a cluster, the opening may have been posted while this owner was not linked or did not own the user. The announcement of
            // the shard then has the number.
            if !turn.shard.is_clustered {
                turn.shard.count_underflow();
            }
        } else if !is_online {
            publish(turn, user, false);
        }
    }

    /// Keeps the sessions of a lost node until the grace period has passed.
    pub(crate) fn node_lost(&mut self, node: u16, until: Instant) {
        let lost = Address {
            node,
            shard: LOST_SHARD,
        };
        let single = self.single.iter().filter(|(_, shard)| shard.node == node);
        let mut users: Vec<Name> = single.map(|(user, _)| user.clone()).collect();
        let several = self.several.iter();
        let several = several.filter(|(_, counts)| counts.shards().any(|it| it.node == node));
        users.extend(several.map(|(user, _)| user.clone()));
        for user in &users {
            self.change(user, |counts| {
                counts.remove_node(node);
                counts.add(lost);
            });
        }
        if !users.is_empty() {
            self.lost.begin(node, until);
        }
    }

    /// When the first grace period ends.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.lost.next_deadline()
    }

    /// Ends the sessions of nodes whose grace period has passed.
    pub(crate) fn deadline_reached<E: Effects>(&mut self, turn: &mut TurnContext<'_, E>) {
        for node in self.lost.take_ended(turn.now.monotonic) {
            let lost = Address {
                node,
                shard: LOST_SHARD,
            };
            let single = self.single.iter().filter(|(_, shard)| **shard == lost);
            let mut users: Vec<Name> = single.map(|(user, _)| user.clone()).collect();
            users.extend(self.several.keys().cloned());
            for user in users {
                let ((), was, is) = self.change(&user, |counts| counts.set(lost, 0));
                if was && !is {
                    publish(turn, &user, false);
                }
            }
        }
    }

    /// Notes the sessions of a user on a shard that the former owner knew of. The watchers know of them too.
    pub(crate) fn announced(&mut self, shard: Address, announced: &AnnouncedUser) {
        self.change(&announced.user, |counts| {
            counts.set(shard, announced.before)
        });
    }

    /// Notes the sessions that the same user has now.
    pub(crate) fn announced_now<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        shard: Address,
        announced: &AnnouncedUser,
    ) {
        let user = &announced.user;
        let ((), was, is) = self.change(user, |counts| counts.set(shard, announced.count));
        if was != is {
            publish(turn, user, is);
        }
    }

    /// Forgets users that pass to another owner.
    pub(crate) fn leave(&mut self, is_leaving: impl Fn(&str) -> bool) {
        self.single.retain(|user, _| !is_leaving(user));
        self.several.retain(|user, _| !is_leaving(user));
    }

    /// Answers a part of a query.
    pub(crate) fn query<E: Effects>(
        &self,
        turn: &mut TurnContext<'_, E>,
        reply: PendingReplyId,
        users: Option<Vec<Name>>,
    ) {
        let online = match users {
            None => self
                .single
                .keys()
                .chain(self.several.keys())
                .cloned()
                .collect(),
            Some(users) => users
                .into_iter()
                .filter(|user| self.is_online(user))
                .collect(),
        };
        turn.part_done(reply, ReplyPart::Users(online));
    }
}

/// Publishes to all watchers that a user came online, or went offline.
fn publish<E: Effects>(turn: &mut TurnContext<'_, E>, user: &Name, online: bool) {
    publish_except(turn, user, online, None);
}

/// The same, except to the session with which the user came online.
fn publish_except<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    user: &Name,
    online: bool,
    except: Option<SessionId>,
) {
    for everyone in [true, false] {
        let change = PresenceChange {
            everyone,
            user: user.clone(),
            online,
            except,
        };
        deliver(turn, &change);
        let (topic, name) = match everyone {
            true => (InterestTopic::Everyone, ""),
            false => (InterestTopic::User, user.as_str()),
        };
        let entry = || Entry::PresenceChanged(change.clone());
        turn.out.publish(topic, name, entry);
    }
}

/// Posts the users of this shard whose owner has changed to their owners.
pub(crate) fn announce<E: Effects>(turn: &mut TurnContext<'_, E>, is_moved: impl Fn(&str) -> bool) {
    let mut counts: BTreeMap<Name, u32> = BTreeMap::new();
    for index in 0..turn.sessions.table_len() {
        let session = turn.sessions.at(index as u32);
        let session = session.filter(|session| !session.has(SessionFlag::Passing));
        if let Some(principal) = session.and_then(Session::principal)
            && principal.user_id.as_str() != NAMELESS
            && is_moved(&principal.user_id)
        {
            *counts.entry(principal.user_id.clone()).or_default() += 1;
        }
    }
    // The former owner does not know of the changes that were withheld.
    let mut withheld = std::mem::take(&mut turn.interest.withheld);
    withheld.retain(|user, _| is_moved(user));
    for user in withheld.keys() {
        counts.entry(user.clone()).or_default();
    }
    let mut by_owner: BTreeMap<Address, Vec<AnnouncedUser>> = BTreeMap::new();
    for (user, count) in counts {
        let change = withheld.get(&user).copied().unwrap_or(0);
        let owner = turn.shard.owner(&user);
        by_owner.entry(owner).or_default().push(AnnouncedUser {
            before: count.saturating_add_signed(-change),
            user,
            count,
        });
    }
    let shard = turn.shard.address;
    for (owner, users) in by_owner {
        turn.post(owner, Entry::View(ViewEntry::Users { shard, users }));
    }
}

/// Sends a change to this shard's watchers.
pub(crate) fn deliver<E: Effects>(turn: &mut TurnContext<'_, E>, change: &PresenceChange) {
    let &PresenceChange {
        everyone,
        ref user,
        online,
        except,
    } = change;
    let message = Message::Presence(Presence::Changed {
        name: user,
        online,
        all: everyone,
    });
    if !everyone {
        return turn.fan_out(USER, user, except, &message);
    }
    let withheld = withheld(turn, user);
    turn.fan_out_without(ALL, "", except, &withheld, &message);
}

/// The sessions of this shard that watch all users and are not allowed to see this user, by index.
fn withheld<E: Effects>(turn: &TurnContext<'_, E>, user: &str) -> Vec<u32> {
    let Some(channel) = turn.hub.find(ALL, "") else {
        return Vec::new();
    };
    let members = turn.hub.members(channel).iter().copied();
    members
        .filter(|index| {
            let watching = turn.sessions.at(*index).and_then(Session::principal);
            watching
                .is_some_and(|watching| !may_know(turn, watching, PresenceAction::Subscribe, user))
        })
        .collect()
}

/// Whether a principal that may query all users may also query this user. If a rule needs another record first, the answer is no: a
/// change of presence can't wait for records.
fn may_know<E: Effects>(
    turn: &TurnContext<'_, E>,
    principal: &Principal,
    action: PresenceAction,
    user: &str,
) -> bool {
    let permission = &turn.shard.permission;
    let question = Question {
        principal,
        access: Access::Presence,
        by: RequestedAction::Presence(action),
        name: Some(user),
        data: None,
        old_data: None,
        now: turn.now.wall,
        values: &[],
    };
    !permission.tells_users_apart(principal) || permission.decide(&question) == Decision::Allow
}

/// Handles a message of an open session.
pub(crate) fn message<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    message: &Presence<'_>,
) -> Flow {
    match message {
        Presence::QueryAll => authorize_all_users(turn, id, PresenceAction::QueryAll, |turn| {
            let shards = turn.shard.shard_count();
            let reply = turn.begin_reply(
                id,
                shards,
                reply_action(PresenceAction::QueryAll, &[], None),
            );
            turn.post_all(&Entry::PresenceQuery { reply, users: None });
        }),
        Presence::Query { names, correlation } => authorize_users(
            turn,
            id,
            PresenceAction::Query,
            names,
            *correlation,
            |turn, allowed| query(turn, id, allowed, *correlation),
        ),
        Presence::Subscribe { names, correlation } => authorize_users(
            turn,
            id,
            PresenceAction::Subscribe,
            names,
            *correlation,
            |turn, allowed| {
                subscribe(turn, id, PresenceAction::Subscribe, allowed, *correlation);
            },
        ),
        Presence::SubscribeAll => {
            authorize_all_users(turn, id, PresenceAction::SubscribeAll, |turn| {
                subscribe(turn, id, PresenceAction::SubscribeAll, &[""], None);
            })
        }
        Presence::Unsubscribe { names, correlation } => {
            unsubscribe(turn, id, PresenceAction::Unsubscribe, names, *correlation)
        }
        Presence::UnsubscribeAll => {
            unsubscribe(turn, id, PresenceAction::UnsubscribeAll, &[""], None)
        }
        // Clients must not send a server's answers. They have no effect.
        Presence::QueryAllResponse { .. }
        | Presence::QueryResponse { .. }
        | Presence::Ack { .. }
        | Presence::Changed { .. }
        | Presence::Error(_) => Flow::Taken,
    }
}

/// Handles that an ended session was the last watcher of the name.
pub(crate) fn lost_last<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    topic: InterestTopic,
    name: Name,
) {
    turn.change_interest(topic, name, false);
}

/// Ends a watch whose right was lost. Returns false if the session has no such watch.
pub(crate) fn lose<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    topic: InterestTopic,
    name: Name,
    lost: LostRight,
) -> bool {
    let key = HubTopic::Interest(topic);
    match turn.hub.revoke(key, &name, id, turn.sessions) {
        Edge::Unchanged => return false,
        Edge::Inside => {}
        Edge::Crossed => lost_last(turn, topic, name.clone()),
    }
    let (action, name) = match topic {
        InterestTopic::Everyone => (PresenceAction::SubscribeAll, None),
        _ => (PresenceAction::Subscribe, Some(name.as_str())),
    };
    refuse(turn, id, lost.refusal(action, name));
    true
}

/// Answers a query after all its parts have arrived.
pub(crate) fn answer<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    action: PresenceAction,
    correlation: Option<&str>,
    asked: &[Name],
    mut online: Vec<Name>,
) {
    if action == PresenceAction::QueryAll {
        let Some(asking) = turn.principal(id) else {
            return;
        };
        online.retain(|user| {
            asking.user_id != *user && may_know(turn, &asking, PresenceAction::Query, user)
        });
        online.sort_unstable();
        // While a user passes to another owner, the former one and the next one may both have answered.
        online.dedup();
        let names = online.iter().map(Name::as_str).collect();
        turn.send(id, &Message::Presence(Presence::QueryAllResponse { names }));
        return;
    }
    online.sort_unstable();
    let mut data = String::from("{");
    for (index, user) in asked.iter().enumerate() {
        if index > 0 {
            data.push(',');
        }
        json::string(user, &mut data);
        data.push_str(if online.binary_search(user).is_ok() {
            ":true"
        } else {
            ":false"
        });
    }
    data.push('}');
    turn.send(
        id,
        &Message::Presence(Presence::QueryResponse {
            correlation,
            data: &data,
        }),
    );
}

/// Authorizes a request about all users. If it is allowed, calls `act`.
fn authorize_all_users<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    action: PresenceAction,
    act: impl FnOnce(&mut TurnContext<'_, E>),
) -> Flow {
    let refusal = Refusal::new(Reason::Denied, action);
    match turn.authorize(id, action, None, None) {
        Authorization::Wait => return Flow::Wait,
        Authorization::Allow => act(turn),
        Authorization::Failed => refuse(turn, id, refusal.because(Reason::RuleFailed)),
        Authorization::Deny => refuse(turn, id, refusal),
    }
    Flow::Taken
}

/// Authorizes all names, and calls `act` with the allowed ones.
fn authorize_users<'n, E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    action: PresenceAction,
    names: &[&'n str],
    correlation: Option<&str>,
    act: impl FnOnce(&mut TurnContext<'_, E>, &[&'n str]),
) -> Flow {
    let refusal = Refusal {
        correlation,
        ..Refusal::new(Reason::InvalidData, action)
    };
    if !turn.shard.is_bulk(names) {
        refuse(turn, id, refusal);
        return Flow::Taken;
    }
    let Some(mut authorized) = turn.authorize_names(id, action, names) else {
        return Flow::Wait;
    };
    if action == PresenceAction::Subscribe {
        turn.fit(id, &mut authorized);
    }
    for why in &authorized.denied {
        refuse(turn, id, why.refusal(refusal));
    }
    if authorized.is_acknowledged() {
        act(turn, &authorized.allowed);
    }
    Flow::Taken
}

fn refuse<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    refusal: Refusal<'_, PresenceAction>,
) {
    turn.send(id, &Message::Presence(Presence::Error(refusal)));
}

fn reply_action(action: PresenceAction, asked: &[&str], correlation: Option<&str>) -> ReplyAction {
    let asked = asked.iter().map(|user| Name::from(*user)).collect();
    ReplyAction::Presence {
        action,
        correlation: correlation.map(Box::from),
        asked,
        online: Vec::new(),
    }
}

fn query<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    users: &[&str],
    correlation: Option<&str>,
) {
    let mut by_owner: BTreeMap<Address, Vec<Name>> = BTreeMap::new();
    for user in users {
        by_owner
            .entry(turn.shard.owner(user))
            .or_default()
            .push(Name::from(*user));
    }
    if by_owner.is_empty() {
        turn.send(
            id,
            &Message::Presence(Presence::QueryResponse {
                correlation,
                data: "{}",
            }),
        );
        return;
    }
    let what = reply_action(PresenceAction::Query, users, correlation);
    let reply = turn.begin_bulk_reply(id, by_owner.len(), what);
    for (owner, users) in by_owner {
        turn.post(
            owner,
            Entry::PresenceQuery {
                reply,
                users: Some(users),
            },
        );
    }
}

fn subscribe<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    action: PresenceAction,
    names: &[&str],
    correlation: Option<&str>,
) {
    let (topic, interest) = topics(action);
    let mut visible_from = 0;
    for name in names {
        let shown = if name.is_empty() { EVERYONE } else { name };
        let owned = Name::from(*name);
        match turn.hub.join(topic, &owned, id, turn.sessions) {
            Edge::Unchanged => {
                let refusal = Refusal {
                    name: Some(shown),
                    ..Refusal::new(Reason::MultipleSubscriptions, action)
                };
                refuse(turn, id, refusal);
            }
            Edge::Inside => {}
            Edge::Crossed => turn.change_interest(interest, owned, true),
        }
        visible_from = visible_from.max(turn.hub.interest(topic, name));
    }
    let ack = DelayedAck::Presence {
        action,
        correlation: correlation.map(Box::from),
    };
    turn.ack_bulk(id, visible_from, ack);
}

fn unsubscribe<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    action: PresenceAction,
    names: &[&str],
    correlation: Option<&str>,
) -> Flow {
    let (topic, interest) = topics(action);
    turn.shard.count_work(names.len() * NAME_WORK);
    for name in names {
        if turn.hub.leave(topic, name, id, turn.sessions) == Edge::Crossed {
            lost_last(turn, interest, Name::from(*name));
        }
    }
    if turn.is_last_piece() {
        let ack = Presence::Ack {
            action,
            correlation,
        };
        turn.send(id, &Message::Presence(ack));
    }
    Flow::Taken
}

fn topics(action: PresenceAction) -> (HubTopic, InterestTopic) {
    match action {
        PresenceAction::SubscribeAll | PresenceAction::UnsubscribeAll => {
            (ALL, InterestTopic::Everyone)
        }
        _ => (USER, InterestTopic::User),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_owner_knows_the_users_with_sessions(
            steps in prop::collection::vec((0usize..3, 0u16..2, 0u16..2, any::<bool>()), 0..60),
        ) {
            let mut owner = PresenceOwner::default();
            let users = ["a", "a/b", "b"].map(Name::from);
            let mut model = [const { BTreeMap::<Address, u32>::new() }; 3];
            for (user, node, shard, is_opened) in steps {
                let shard = Address { node, shard };
                let known = model[user].get(&shard).copied().unwrap_or(0);
                let was_online = model[user].values().any(|count| *count > 0);
                let change = |counts: &mut ShardCounts| match is_opened {
                    true => {
                        counts.add(shard);
                        true
                    }
                    false => counts.remove(shard),
                };
                let (is_counted, was, is) = owner.change(&users[user], change);
                prop_assert_eq!(is_counted, is_opened || known > 0);
                let left = if is_opened { known + 1 } else { known.saturating_sub(1) };
                model[user].insert(shard, left);
                let is_online = model[user].values().any(|count| *count > 0);
                prop_assert_eq!((was, is), (was_online, is_online));
                let online = |user: usize| model[user].values().any(|count| *count > 0);
                prop_assert_eq!(owner.count_online(), (0..3).filter(|user| online(*user)).count());
                prop_assert!((0..3).all(|user| owner.is_online(&users[user]) == online(user)));
            }
        }
    }
}

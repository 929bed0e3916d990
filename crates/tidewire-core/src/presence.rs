//! Presence: which users have an open session, at the session's shard and at the user's owner.

use std::collections::BTreeMap;

use crate::address::SessionId;
use crate::desk::{Desk, LeftOut, Lost, Verdict};
use crate::effect::{Effects, Flow, InterestTopic, News, Principal};
use crate::entry::{Entry, Gather, GatheredPart, Gathering, HeldAck};
use crate::hub::{Edge, HubTopic};
use crate::json;
use crate::message::{Message, Presence, PresenceAction, PresenceError, Refusal};
use crate::permission::{Access, Asked, Decision, Question};
use crate::session::Session;
use crate::text::Name;
use crate::work::NAME_WORK;

/// What an answer about all users has for a name.
const EVERYONE: &str = "%_EVERYONE_%";

const USER: HubTopic = HubTopic::Interest(InterestTopic::User);
const ALL: HubTopic = HubTopic::Interest(InterestTopic::Everyone);

/// The users that this shard owns, with the number of their open sessions.
#[derive(Debug, Default)]
pub(crate) struct PresenceOwner {
    online: BTreeMap<Name, u32>,
}

impl PresenceOwner {
    /// The number of users that are online.
    pub(crate) fn count_online(&self) -> usize {
        self.online.len()
    }

    /// This session of the user has opened, or one has ended. The first and the last are news to all but themselves.
    pub(crate) fn count<E: Effects>(
        &mut self,
        desk: &mut Desk<'_, E>,
        user: Name,
        opened: Option<SessionId>,
    ) {
        let sessions = self.online.entry(user.clone()).or_insert(0);
        *sessions = match opened {
            Some(_) => *sessions + 1,
            None => sessions.saturating_sub(1),
        };
        let sessions = *sessions;
        if sessions == 0 {
            self.online.remove(&user);
        }
        if sessions == u32::from(opened.is_some()) {
            for everyone in [true, false] {
                let news = News::User {
                    everyone,
                    user: &user,
                    online: opened.is_some(),
                    except: opened,
                };
                deliver(desk, &news);
                desk.out.publish(news);
            }
        }
    }

    /// Answers a part of a query.
    pub(crate) fn query<E: Effects>(
        &self,
        desk: &mut Desk<'_, E>,
        gather: Gather,
        users: Option<Vec<Name>>,
    ) {
        let online = match users {
            None => self.online.keys().cloned().collect(),
            Some(users) => users
                .into_iter()
                .filter(|user| self.online.contains_key(user))
                .collect(),
        };
        desk.part_done(gather, GatheredPart::Users(online));
    }
}

/// Tells this shard's watchers.
pub(crate) fn deliver<E: Effects>(desk: &mut Desk<'_, E>, news: &News<'_>) {
    if let News::User {
        everyone,
        user,
        online,
        except,
    } = *news
    {
        let message = Message::Presence(Presence::Changed {
            name: user,
            online,
            all: everyone,
        });
        if !everyone {
            return desk.fan_out(USER, user, except, &message);
        }
        let withheld = withheld(desk, user);
        desk.fan_out_without(ALL, "", except, &withheld, &message);
    }
}

/// The watchers of everyone on this shard that may not know of a user, by their place among the sessions.
fn withheld<E: Effects>(desk: &Desk<'_, E>, user: &str) -> Vec<u32> {
    let Some(channel) = desk.hub.find(ALL, "") else {
        return Vec::new();
    };
    let members = desk.hub.members(channel).iter().copied();
    members
        .filter(|index| {
            let watching = desk.sessions.at(*index).and_then(Session::principal);
            watching
                .is_some_and(|watching| !may_know(desk, watching, PresenceAction::Subscribe, user))
        })
        .collect()
}

/// Whether a principal that may ask for everyone may ask for this user as well. A rule that needs another record first does not
/// allow it: nothing waits for records at each change of each user.
fn may_know<E: Effects>(
    desk: &Desk<'_, E>,
    principal: &Principal,
    action: PresenceAction,
    user: &str,
) -> bool {
    let permission = &desk.place.permission;
    let question = Question {
        principal,
        access: Access::Presence,
        by: Asked::Presence(action),
        name: Some(user),
        data: None,
        old_data: None,
        now: desk.now.wall,
        values: &[],
    };
    !permission.tells_users_apart(principal) || permission.decide(&question) == Decision::Allow
}

/// Handles a message of an open session.
pub(crate) fn message<E: Effects>(
    desk: &mut Desk<'_, E>,
    id: SessionId,
    message: &Presence<'_>,
) -> Flow {
    match message {
        Presence::QueryAll => judged_all(desk, id, PresenceAction::QueryAll, |desk| {
            let shards = usize::from(desk.place.shard_count);
            let gather = desk.gather(id, shards, gathering(PresenceAction::QueryAll, &[], None));
            desk.post_all(&Entry::PresenceQuery {
                gather,
                users: None,
            });
        }),
        Presence::Query { names, correlation } => judged(
            desk,
            id,
            PresenceAction::Query,
            names,
            *correlation,
            |desk, allowed| query(desk, id, allowed, *correlation),
        ),
        Presence::Subscribe { names, correlation } => judged(
            desk,
            id,
            PresenceAction::Subscribe,
            names,
            *correlation,
            |desk, allowed| {
                subscribe(desk, id, PresenceAction::Subscribe, allowed, *correlation);
            },
        ),
        Presence::SubscribeAll => judged_all(desk, id, PresenceAction::SubscribeAll, |desk| {
            subscribe(desk, id, PresenceAction::SubscribeAll, &[""], None);
        }),
        Presence::Unsubscribe { names, correlation } => {
            unsubscribe(desk, id, PresenceAction::Unsubscribe, names, *correlation)
        }
        Presence::UnsubscribeAll => {
            unsubscribe(desk, id, PresenceAction::UnsubscribeAll, &[""], None)
        }
        // Answers of a server have no meaning here.
        Presence::QueryAllResponse { .. }
        | Presence::QueryResponse { .. }
        | Presence::Ack { .. }
        | Presence::Changed { .. }
        | Presence::Error(_) => Flow::Taken,
    }
}

/// A session that has ended was the last watcher of the name.
pub(crate) fn lost_last<E: Effects>(desk: &mut Desk<'_, E>, topic: InterestTopic, name: Name) {
    desk.change_interest(topic, name, false);
}

/// Ends a watch whose right was lost; false if there is none.
pub(crate) fn lose<E: Effects>(
    desk: &mut Desk<'_, E>,
    id: SessionId,
    topic: InterestTopic,
    name: Name,
    lost: Lost,
) -> bool {
    let key = HubTopic::Interest(topic);
    match desk.hub.expel(key, &name, id, desk.sessions) {
        Edge::Unchanged => return false,
        Edge::Inside => {}
        Edge::Crossed => lost_last(desk, topic, name.clone()),
    }
    let (action, name) = match topic {
        InterestTopic::Everyone => (PresenceAction::SubscribeAll, None),
        _ => (PresenceAction::Subscribe, Some(name.as_str())),
    };
    let (denied, failed) = (PresenceError::Denied, PresenceError::PermissionError);
    refuse(desk, id, lost.told(action, name, denied, failed));
    true
}

/// Answers a query whose parts are all in.
pub(crate) fn answer<E: Effects>(
    desk: &mut Desk<'_, E>,
    id: SessionId,
    action: PresenceAction,
    correlation: Option<&str>,
    asked: &[Name],
    mut online: Vec<Name>,
) {
    if action == PresenceAction::QueryAll {
        let Some(asking) = desk.principal(id) else {
            return;
        };
        online.retain(|user| {
            asking.user_id != *user && may_know(desk, &asking, PresenceAction::Query, user)
        });
        online.sort_unstable();
        let names = online.iter().map(Name::as_str).collect();
        desk.send(id, &Message::Presence(Presence::QueryAllResponse { names }));
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
    desk.send(
        id,
        &Message::Presence(Presence::QueryResponse {
            correlation,
            data: &data,
        }),
    );
}

/// Judges a request about all users and goes on with it if it is allowed.
fn judged_all<E: Effects>(
    desk: &mut Desk<'_, E>,
    id: SessionId,
    action: PresenceAction,
    act: impl FnOnce(&mut Desk<'_, E>),
) -> Flow {
    let refusal = Refusal {
        action,
        name: None,
        correlation: None,
        write_ack: false,
    };
    match desk.judge(id, action, None, None) {
        Verdict::Wait => return Flow::Wait,
        Verdict::Allow => act(desk),
        Verdict::Failed => refuse(desk, id, PresenceError::PermissionError(refusal)),
        Verdict::Deny => refuse(desk, id, PresenceError::Denied(refusal)),
    }
    Flow::Taken
}

/// Judges all names and goes on with those that are allowed.
fn judged<'n, E: Effects>(
    desk: &mut Desk<'_, E>,
    id: SessionId,
    action: PresenceAction,
    names: &[&'n str],
    correlation: Option<&str>,
    act: impl FnOnce(&mut Desk<'_, E>, &[&'n str]),
) -> Flow {
    let refusal = |name| Refusal {
        action,
        name,
        correlation,
        write_ack: false,
    };
    if !desk.place.is_bulk(names) {
        refuse(desk, id, PresenceError::InvalidData(refusal(None)));
        return Flow::Taken;
    }
    let Some(mut sifted) = desk.sift(id, action, names) else {
        return Flow::Wait;
    };
    if action == PresenceAction::Subscribe {
        desk.fit(id, &mut sifted);
    }
    for why in &sifted.left_out {
        let error = match *why {
            LeftOut::Denied(name) => PresenceError::Denied(refusal(Some(name))),
            LeftOut::RuleFailed(name) => PresenceError::PermissionError(refusal(Some(name))),
            LeftOut::NoName => PresenceError::InvalidData(refusal(None)),
        };
        refuse(desk, id, error);
    }
    if sifted.is_acknowledged() {
        act(desk, &sifted.allowed);
    }
    Flow::Taken
}

fn refuse<E: Effects>(desk: &mut Desk<'_, E>, id: SessionId, error: PresenceError<'_>) {
    desk.send(id, &Message::Presence(Presence::Error(error)));
}

fn gathering(action: PresenceAction, asked: &[&str], correlation: Option<&str>) -> Gathering {
    let asked = asked.iter().map(|user| Name::from(*user)).collect();
    Gathering::Presence {
        action,
        correlation: correlation.map(Box::from),
        asked,
        online: Vec::new(),
    }
}

fn query<E: Effects>(
    desk: &mut Desk<'_, E>,
    id: SessionId,
    users: &[&str],
    correlation: Option<&str>,
) {
    let mut by_owner: BTreeMap<u16, Vec<Name>> = BTreeMap::new();
    for user in users {
        by_owner
            .entry(desk.place.owner(user).shard)
            .or_default()
            .push(Name::from(*user));
    }
    if by_owner.is_empty() {
        desk.send(
            id,
            &Message::Presence(Presence::QueryResponse {
                correlation,
                data: "{}",
            }),
        );
        return;
    }
    let what = gathering(PresenceAction::Query, users, correlation);
    let gather = desk.gather_bulk(id, by_owner.len(), what);
    let node = desk.place.address.node;
    for (shard, users) in by_owner {
        let to = crate::address::Address { node, shard };
        desk.post(
            to,
            Entry::PresenceQuery {
                gather,
                users: Some(users),
            },
        );
    }
}

fn subscribe<E: Effects>(
    desk: &mut Desk<'_, E>,
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
        match desk.hub.join(topic, &owned, id, desk.sessions) {
            Edge::Unchanged => {
                let name = shown;
                refuse(
                    desk,
                    id,
                    PresenceError::MultipleSubscriptions { name, action },
                );
            }
            Edge::Inside => {}
            Edge::Crossed => desk.change_interest(interest, owned, true),
        }
        visible_from = visible_from.max(desk.hub.interest(topic, name));
    }
    let ack = HeldAck::Presence {
        action,
        correlation: correlation.map(Box::from),
    };
    desk.ack_bulk(id, visible_from, ack);
}

fn unsubscribe<E: Effects>(
    desk: &mut Desk<'_, E>,
    id: SessionId,
    action: PresenceAction,
    names: &[&str],
    correlation: Option<&str>,
) -> Flow {
    let (topic, interest) = topics(action);
    desk.place.count_work(names.len() * NAME_WORK);
    for name in names {
        if desk.hub.leave(topic, name, id, desk.sessions) == Edge::Crossed {
            lost_last(desk, interest, Name::from(*name));
        }
    }
    if desk.is_last_piece() {
        let ack = Presence::Ack {
            action,
            correlation,
        };
        desk.send(id, &Message::Presence(ack));
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

//! The scopes of the sessions of a shard: what each session has requested, and which owner knows of it.
//!
//! A session gets the changes of a scope only after the list of its members. If the owner changes or its node is lost, the shard posts the
//! memberships and subscriptions to the next owner, and a new list replaces the one before.

use std::collections::BTreeMap;

use super::owner::member_id;
use crate::address::{Address, SessionId};
use crate::context::{LostRight, TurnContext};
use crate::effect::{Effects, Flow};
use crate::entry::{Entry, ScopeEntry};
use crate::json;
use crate::message::{Message, Reason, Scope, ScopeAction, ScopeReason};
use crate::permission::{Access, Authorization};
use crate::session::scopes::{Membership, Subscription, UsedScope, used_bytes};
use crate::text::{Name, Payload};

/// The right that an action needs.
pub(crate) fn access_of(action: ScopeAction) -> Access {
    match action {
        ScopeAction::Join | ScopeAction::Update => Access::PresenceJoin,
        ScopeAction::Subscribe => Access::PresenceSubscribe,
    }
}

/// Handles a message of an open session.
pub(crate) fn message<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    message: &Scope<'_>,
) -> Flow {
    let (action, name, state) = match *message {
        Scope::Join { name, state } => (ScopeAction::Join, name, Some(state)),
        Scope::Update { name, state } => (ScopeAction::Update, name, Some(state)),
        Scope::Subscribe { name } => (ScopeAction::Subscribe, name, None),
        Scope::Leave { name } => {
            leave(turn, id, name);
            return Flow::Taken;
        }
        Scope::Unsubscribe { name } => {
            unsubscribe(turn, id, name);
            return Flow::Taken;
        }
        // Clients must not send a server's messages. They have no effect.
        Scope::Joined { .. }
        | Scope::Snapshot { .. }
        | Scope::Changed { .. }
        | Scope::Error { .. } => return Flow::Taken,
    };
    let refused = match check(turn, name, state) {
        Err(reason) => reason,
        Ok(()) => match turn.authorize(id, access_of(action), Some(name), state) {
            Authorization::Wait => return Flow::Wait,
            Authorization::Deny => ScopeReason::Denied,
            Authorization::Failed => ScopeReason::RuleFailed,
            Authorization::Allow => {
                let done = match (action, state) {
                    (ScopeAction::Join, Some(state)) => join(turn, id, name, state),
                    (ScopeAction::Update, Some(state)) => update(turn, id, name, state),
                    _ => subscribe(turn, id, name),
                };
                match done {
                    Ok(()) => return Flow::Taken,
                    Err(reason) => reason,
                }
            }
        },
    };
    // The client need not know what it had before the refusal. A member whose update is refused stays a member with the state before.
    match action {
        ScopeAction::Join => leave(turn, id, name),
        ScopeAction::Subscribe => unsubscribe(turn, id, name),
        ScopeAction::Update => {}
    }
    refuse(turn, id, refused, action, name);
    Flow::Taken
}

/// Checks the parts of a request that do not depend on rights.
fn check<E: Effects>(
    turn: &TurnContext<'_, E>,
    name: &str,
    state: Option<&str>,
) -> Result<(), ScopeReason> {
    let shard = turn.shard;
    if !shard.is_name(name) {
        return Err(ScopeReason::Invalid);
    }
    let Some(state) = state else {
        return Ok(());
    };
    if state.len() > shard.settings.limits.presence_state_bytes_max {
        shard.count(|refused| refused.scopes += 1);
        return Err(ScopeReason::TooLarge);
    }
    match shard.json_kind(state) {
        Ok(_) => Ok(()),
        Err(json::JsonError::TooLarge) => Err(ScopeReason::TooLarge),
        Err(_) => Err(ScopeReason::Invalid),
    }
}

fn refuse<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    reason: ScopeReason,
    action: ScopeAction,
    name: &str,
) {
    let error = Scope::Error {
        reason,
        action,
        name,
    };
    turn.send(id, &Message::Scope(error));
}

/// Changes a scope that the session uses or is to use, and counts its bytes. `change` gets the scope's owner of now.
fn with_used<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    name: &str,
    state_bytes: usize,
    change: impl FnOnce(&mut UsedScope),
) -> Result<Address, ScopeReason> {
    let scopes = turn.scopes.sessions.get(&id);
    let known = scopes.and_then(|scopes| scopes.get(name));
    let bytes_before = known.map_or(0, |known| known.bytes(name));
    let scopes_max = turn.shard.settings.limits.presence_scopes_max;
    if known.is_none() && scopes.map_or(0, BTreeMap::len) >= scopes_max {
        turn.shard.count(|refused| refused.scopes += 1);
        return Err(ScopeReason::TooMany);
    }
    let more = used_bytes(name, state_bytes).saturating_sub(bytes_before);
    let kept = turn.sessions.find(id).map_or(0, |it| it.kept_bytes);
    if !turn.shard.has_memory(kept, more) {
        return Err(ScopeReason::Unavailable);
    }
    let owner = turn.shard.owner(name);
    let scopes = turn.scopes.sessions.entry(id).or_default();
    let used = scopes.entry(Name::from(name)).or_insert(UsedScope {
        owner: None,
        membership: None,
        subscription: None,
    });
    change(used);
    let owner = *used.owner.get_or_insert(owner);
    let bytes = used.bytes(name);
    count_bytes(turn, id, bytes_before, bytes);
    Ok(owner)
}

/// Counts that a scope of a session keeps another number of bytes.
fn count_bytes<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    before: usize,
    after: usize,
) {
    turn.scopes.bytes = turn.scopes.bytes - before + after;
    if let Some(session) = turn.sessions.find_mut(id) {
        session.let_go(before);
        session.keep(after);
    }
}

fn join<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    name: &str,
    state: &str,
) -> Result<(), ScopeReason> {
    let state = Payload::from_checked(state);
    let mut is_member = false;
    let owner = with_used(turn, id, name, state.len(), |used| {
        let (unanswered, is_accepted) = used
            .membership
            .as_ref()
            .map_or((0, false), |it| (it.unanswered, it.is_accepted));
        is_member = is_accepted;
        used.membership = Some(Membership {
            state: state.clone(),
            unanswered: unanswered + 1,
            is_accepted,
        });
    })?;
    post_join(turn, id, owner, Name::from(name), state, is_member);
    Ok(())
}

fn post_join<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    session: SessionId,
    owner: Address,
    scope: Name,
    state: Payload,
    is_member: bool,
) {
    let Some(principal) = turn.principal(session) else {
        return;
    };
    let join = ScopeEntry::Join {
        session,
        scope,
        user: principal.user_id.clone(),
        state,
        is_member,
    };
    turn.post(owner, Entry::Scope(join));
}

fn update<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    name: &str,
    state: &str,
) -> Result<(), ScopeReason> {
    match turn.scopes.state(id, name) {
        None => return Err(ScopeReason::NotMember),
        Some(before) if before.as_str() == state => return Ok(()),
        Some(_) => {}
    }
    let state = Payload::from_checked(state);
    let owner = with_used(turn, id, name, state.len(), |used| {
        if let Some(membership) = &mut used.membership {
            membership.state = state.clone();
        }
    })?;
    let update = ScopeEntry::Update {
        session: id,
        scope: Name::from(name),
        state,
    };
    turn.post(owner, Entry::Scope(update));
    Ok(())
}

fn subscribe<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    name: &str,
) -> Result<(), ScopeReason> {
    let serial = turn.scopes.serial();
    let state_bytes = turn.scopes.state(id, name).map_or(0, |state| state.len());
    let owner = with_used(turn, id, name, state_bytes, |used| {
        used.subscription = Some(Subscription {
            serial,
            has_list: false,
            has_missed: false,
        });
    })?;
    let scope = Name::from(name);
    let subscribers = turn.scopes.subscribers.entry(scope.clone());
    subscribers.or_default().insert(id);
    let session = id;
    let subscribe = ScopeEntry::Subscribe {
        session,
        serial,
        scope,
    };
    turn.post(owner, Entry::Scope(subscribe));
    Ok(())
}

fn leave<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId, name: &str) {
    let Some(used) = turn.scopes.used_mut(id, name) else {
        return;
    };
    let bytes = used.bytes(name);
    if used.membership.take().is_none() {
        return;
    }
    let owner = used.owner;
    drop_unused(turn, id, name, bytes);
    if let Some(owner) = owner {
        let (session, scope) = (id, Name::from(name));
        turn.post(owner, Entry::Scope(ScopeEntry::Leave { session, scope }));
    }
}

fn unsubscribe<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId, name: &str) {
    let Some(used) = turn.scopes.used_mut(id, name) else {
        return;
    };
    let bytes = used.bytes(name);
    if used.subscription.take().is_none() {
        return;
    }
    let owner = used.owner;
    turn.scopes.forget_subscriber(id, name);
    drop_unused(turn, id, name, bytes);
    if let Some(owner) = owner {
        let (session, scope) = (id, Name::from(name));
        turn.post(owner, Entry::Scope(ScopeEntry::Release { session, scope }));
    }
}

/// Counts the bytes of a scope after a part of it has ended, and forgets it if that was the last one.
fn drop_unused<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    name: &str,
    bytes_before: usize,
) {
    let Some(scopes) = turn.scopes.sessions.get_mut(&id) else {
        return;
    };
    let bytes = match scopes.get(name) {
        Some(used) if !used.is_unused() => used.bytes(name),
        _ => {
            scopes.remove(name);
            0
        }
    };
    if scopes.is_empty() {
        turn.scopes.sessions.remove(&id);
    }
    count_bytes(turn, id, bytes_before, bytes);
}

/// Ends a right that was lost. Returns false if the session does not use it.
pub(crate) fn lose<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    action: ScopeAction,
    name: &Name,
    lost: LostRight,
) -> bool {
    let Some(used) = turn.scopes.used_mut(id, name) else {
        return false;
    };
    let is_used = match action {
        ScopeAction::Subscribe => used.subscription.is_some(),
        _ => used.membership.is_some(),
    };
    if !is_used {
        return false;
    }
    match action {
        ScopeAction::Subscribe => unsubscribe(turn, id, name),
        _ => leave(turn, id, name),
    }
    let reason = match lost.reason() {
        Reason::RuleFailed => ScopeReason::RuleFailed,
        _ => ScopeReason::Denied,
    };
    refuse(turn, id, reason, action, name);
    true
}

/// Ends everything of a session that has ended.
pub(crate) fn session_ended<E: Effects>(turn: &mut TurnContext<'_, E>, session: SessionId) {
    for (scope, used) in turn.scopes.sessions.remove(&session).unwrap_or_default() {
        turn.scopes.bytes -= used.bytes(&scope);
        turn.scopes.forget_subscriber(session, &scope);
        let Some(owner) = used.owner else {
            continue;
        };
        if used.subscription.is_some() {
            let scope = scope.clone();
            turn.post(owner, Entry::Scope(ScopeEntry::Release { session, scope }));
        }
        if used.membership.is_some() {
            turn.post(owner, Entry::Scope(ScopeEntry::Leave { session, scope }));
        }
    }
}

/// Handles an entry for the shard of a session.
pub(crate) fn handle<E: Effects>(turn: &mut TurnContext<'_, E>, entry: ScopeEntry) {
    match entry {
        ScopeEntry::Joined { session, scope } => joined(turn, session, &scope),
        ScopeEntry::Full { session, scope } => full(turn, session, &scope),
        ScopeEntry::Snapshot {
            session,
            serial,
            scope,
            data,
            ..
        } => listed(turn, (session, serial), &scope, &data),
        ScopeEntry::Changed { owner, scope, data } => changed(turn, owner, &scope, &data),
        // For the owner.
        ScopeEntry::Join { .. }
        | ScopeEntry::Update { .. }
        | ScopeEntry::Leave { .. }
        | ScopeEntry::Subscribe { .. }
        | ScopeEntry::Release { .. } => {}
    }
}

fn joined<E: Effects>(turn: &mut TurnContext<'_, E>, session: SessionId, scope: &Name) {
    let used = turn.scopes.used_mut(session, scope);
    let Some(membership) = used.and_then(|used| used.membership.as_mut()) else {
        // An earlier request to join was refused, and has ended the membership.
        let owner = turn.shard.owner(scope);
        let scope = scope.clone();
        return turn.post(owner, Entry::Scope(ScopeEntry::Leave { session, scope }));
    };
    membership.is_accepted = true;
    let answers = std::mem::take(&mut membership.unanswered);
    let mut id = String::new();
    json::string(&member_id(session), &mut id);
    for _ in 0..answers {
        let joined = Scope::Joined {
            name: scope,
            data: &id,
        };
        turn.send(session, &Message::Scope(joined));
    }
}

fn full<E: Effects>(turn: &mut TurnContext<'_, E>, session: SessionId, scope: &Name) {
    let Some(used) = turn.scopes.used_mut(session, scope) else {
        return;
    };
    let bytes = used.bytes(scope);
    let Some(membership) = used.membership.take_if(|it| !it.is_accepted) else {
        return;
    };
    drop_unused(turn, session, scope, bytes);
    for _ in 0..membership.unanswered {
        refuse(turn, session, ScopeReason::Full, ScopeAction::Join, scope);
    }
}

/// Passes the list of members to a subscriber.
fn listed<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    (session, serial): (SessionId, u32),
    scope: &Name,
    data: &Payload,
) {
    let is_behind = turn.is_behind(session);
    let subscription = turn.scopes.subscription_mut(session, scope);
    let Some(subscription) = subscription.filter(|it| it.serial == serial) else {
        return;
    };
    subscription.has_list = true;
    subscription.has_missed = is_behind;
    if !is_behind {
        let snapshot = Scope::Snapshot {
            name: scope,
            data: data.as_str(),
        };
        turn.send(session, &Message::Scope(snapshot));
    }
}

/// Passes changes to all subscribers that have the list. A lagging one gets the list again later.
fn changed<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    owner: Address,
    scope: &Name,
    data: &Payload,
) {
    let Some(subscribers) = turn.scopes.subscribers.get(scope) else {
        return;
    };
    let mut recipients = Vec::with_capacity(subscribers.len());
    for session in subscribers.iter().copied().collect::<Vec<_>>() {
        let is_behind = turn.is_behind(session);
        let Some(used) = turn.scopes.used_mut(session, scope) else {
            continue;
        };
        // An earlier owner may have posted it before it knew that another one has the scope.
        if used.owner != Some(owner) {
            continue;
        }
        let subscription = used.subscription.as_mut();
        let Some(subscription) = subscription.filter(|subscription| subscription.has_list) else {
            continue;
        };
        subscription.has_missed |= is_behind;
        if !subscription.has_missed {
            recipients.push(session);
        }
    }
    let changed = Scope::Changed {
        name: scope,
        data: data.as_str(),
    };
    turn.send_to_all(&recipients, &Message::Scope(changed));
}

/// Handles that a session has read its messages: it gets the lists of which it has missed changes.
pub(crate) fn drained<E: Effects>(turn: &mut TurnContext<'_, E>, session: SessionId) {
    if turn.is_behind(session) {
        return;
    }
    let Some(scopes) = turn.scopes.sessions.get(&session) else {
        return;
    };
    let has_missed = |used: &UsedScope| {
        let subscription = used.subscription.as_ref();
        subscription.is_some_and(|subscription| subscription.has_missed)
    };
    let missed = scopes.iter().filter(|(_, used)| has_missed(used));
    for scope in missed.map(|(scope, _)| scope.clone()).collect::<Vec<_>>() {
        post_again(turn, session, scope, Part::Subscription);
    }
}

/// Handles that the principal of a session has changed: the members that it is may have another user.
pub(crate) fn renewed<E: Effects>(turn: &mut TurnContext<'_, E>, session: SessionId) {
    let scopes = turn.scopes.sessions.get(&session);
    let names: Vec<Name> = scopes
        .into_iter()
        .flat_map(BTreeMap::keys)
        .cloned()
        .collect();
    for scope in names {
        post_again(turn, session, scope, Part::Membership);
    }
}

/// The part of a used scope that is posted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Membership,
    Subscription,
    Both,
}

/// Posts what a session has of a scope to the owner of now, without any need of an answer from the one before.
fn post_again<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    session: SessionId,
    scope: Name,
    part: Part,
) {
    let serial = turn.scopes.serial();
    let Some(used) = turn.scopes.used_mut(session, &scope) else {
        return;
    };
    let Some(owner) = used.owner else {
        return;
    };
    let membership = used
        .membership
        .as_ref()
        .filter(|_| part != Part::Subscription);
    let member = membership.map(|it| (it.state.clone(), it.is_accepted));
    let mut is_subscriber = false;
    if let Some(subscription) = &mut used.subscription
        && part != Part::Membership
    {
        is_subscriber = true;
        subscription.serial = serial;
        subscription.has_list = false;
        subscription.has_missed = false;
    }
    if let Some((state, is_member)) = member {
        post_join(turn, session, owner, scope.clone(), state, is_member);
    }
    if is_subscriber {
        let subscribe = ScopeEntry::Subscribe {
            session,
            serial,
            scope,
        };
        turn.post(owner, Entry::Scope(subscribe));
    }
}

/// Handles a view: posts what the sessions have of scopes whose owner has changed, and releases it at the owner before.
pub(crate) fn view_changed<E: Effects>(turn: &mut TurnContext<'_, E>) {
    let mut moved = Vec::new();
    for (session, scopes) in &mut turn.scopes.sessions {
        for (scope, used) in scopes {
            let owner = turn.shard.owner(scope);
            if used.owner != Some(owner) {
                let before = used.owner.replace(owner);
                moved.push((*session, scope.clone(), before));
            }
        }
    }
    for (session, name, before) in moved {
        if let Some(before) = before {
            let scope = name.clone();
            turn.post(before, Entry::Scope(ScopeEntry::Leave { session, scope }));
            let scope = name.clone();
            turn.post(before, Entry::Scope(ScopeEntry::Release { session, scope }));
        }
        post_again(turn, session, name, Part::Both);
    }
}

/// Handles that a node of the view is linked: posts what the sessions have of the scopes of its shards. Everything that was posted to it
/// before is lost.
pub(crate) fn node_linked<E: Effects>(turn: &mut TurnContext<'_, E>, node: u16) {
    let mut of_node = Vec::new();
    for (session, scopes) in &mut turn.scopes.sessions {
        for (scope, used) in scopes {
            let owner = turn.shard.owner(scope);
            // One that has moved is released at the owner before, when the view is adopted.
            if owner.node == node && used.owner.is_none_or(|known| known == owner) {
                used.owner = Some(owner);
                of_node.push((*session, scope.clone()));
            }
        }
    }
    for (session, scope) in of_node {
        post_again(turn, session, scope, Part::Both);
    }
}

/// Handles the loss of a node: the scopes that it owned wait for their next owner.
pub(crate) fn node_lost<E: Effects>(turn: &mut TurnContext<'_, E>, node: u16) {
    for scopes in turn.scopes.sessions.values_mut() {
        for used in scopes.values_mut() {
            used.owner.take_if(|owner| owner.node == node);
        }
    }
}

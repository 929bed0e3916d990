//! Registrations at the provider's shard: a session provides a name, withdraws it, or loses its right to it.

use std::collections::BTreeMap;

use super::session::refuse;
use crate::address::{Address, SessionId};
use crate::context::{LostRight, TurnContext};
use crate::effect::{Effects, Flow};
use crate::entry::{Entry, ReplyAction, RpcEntry, ViewEntry};
use crate::footprint::{PROVIDED_BYTES, text_bytes};
use crate::message::{Message, Reason, Refusal, Rpc, RpcAction};
use crate::permission::Access;
use crate::text::Name;
use crate::work::NAME_WORK;

pub(super) fn provide<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    names: &[&str],
    correlation: Option<&str>,
) -> Flow {
    let refusal = Refusal {
        correlation,
        ..Refusal::new(Reason::InvalidData, RpcAction::Provide)
    };
    if !turn.shard.is_bulk(names) {
        return refuse(turn, id, refusal);
    }
    let Some(mut authorized) = turn.authorize_names(id, Access::RpcProvide, names) else {
        return Flow::Wait;
    };
    turn.fit(id, &mut authorized);
    for why in &authorized.denied {
        turn.send(id, &Message::Rpc(Rpc::Error(why.refusal(refusal))));
    }
    let mut added = Vec::new();
    for name in &authorized.allowed {
        let owned = Name::from(*name);
        if add_provided(turn, id, &owned) {
            added.push(owned);
        } else {
            let refusal = Refusal {
                name: Some(name),
                ..Refusal::new(Reason::MultipleProviders, RpcAction::Provide)
            };
            turn.send(id, &Message::Rpc(Rpc::Error(refusal)));
        }
    }
    if authorized.is_acknowledged() {
        register(turn, id, added, true, correlation);
    }
    Flow::Taken
}

pub(super) fn unprovide<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    names: &[&str],
    correlation: Option<&str>,
) -> Flow {
    let seed = turn.shard.seed;
    turn.shard.count_work(names.len() * NAME_WORK);
    let mut removed = Vec::new();
    if let Some(session) = turn.sessions.find_mut(id) {
        let provided = &mut session.offers(seed).provided;
        removed.extend(
            names
                .iter()
                .filter_map(|name| provided.take(name))
                .map(|(name, ())| name),
        );
    }
    let bytes = removed.iter().map(provided_bytes).sum();
    turn.sessions.remove_state_bytes(id, bytes);
    register(turn, id, removed, false, correlation);
    Flow::Taken
}

/// Ends a registration whose right was lost. Returns false if the session has no such registration.
pub(crate) fn lose<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    name: Name,
    lost: LostRight,
) -> bool {
    let session = turn.sessions.find_mut(id);
    let has_provided = session
        .and_then(|session| session.state.as_mut())
        .is_some_and(|with| with.provided.remove(&name).is_some());
    if !has_provided {
        return false;
    }
    turn.sessions.remove_state_bytes(id, provided_bytes(&name));
    let refusal = lost.refusal(RpcAction::Provide, Some(&name));
    turn.send(id, &Message::Rpc(Rpc::Error(refusal)));
    let owner = turn.shard.owner(&name);
    let provider = id;
    turn.post(owner, Entry::Rpc(RpcEntry::Revoke { name, provider }));
    true
}

/// Posts the provided names whose owner has changed to their owners.
pub(crate) fn announce<E: Effects>(turn: &mut TurnContext<'_, E>, is_moved: impl Fn(&str) -> bool) {
    for index in 0..turn.sessions.table_len() {
        let Some(session) = turn.sessions.at(index as u32) else {
            continue;
        };
        let Some(state) = &session.state else {
            continue;
        };
        let provider = session.id;
        let provided = state.provided.names().filter(|name| is_moved(name));
        let mut provided: Vec<Name> = provided.cloned().collect();
        provided.sort_unstable();
        for (owner, names) in by_owner(turn, provided) {
            let providers = ViewEntry::Providers { provider, names };
            turn.post(owner, Entry::View(providers));
        }
    }
}

fn by_owner<E: Effects>(
    turn: &TurnContext<'_, E>,
    names: Vec<Name>,
) -> BTreeMap<Address, Vec<Name>> {
    let mut by_owner: BTreeMap<Address, Vec<Name>> = BTreeMap::new();
    for name in names {
        let owner = turn.shard.owner(&name);
        by_owner.entry(owner).or_default().push(name);
    }
    by_owner
}

/// Notes that the session provides the name. Returns false if it already does.
fn add_provided<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId, name: &Name) -> bool {
    let seed = turn.shard.seed;
    let is_new = turn
        .sessions
        .find_mut(id)
        .is_some_and(|session| session.offers(seed).provided.insert(name.clone(), ()));
    if is_new {
        turn.sessions.add_state_bytes(id, provided_bytes(name));
    }
    is_new
}

/// Bytes of a registration at the provider's shard, with the text that it shares with the owner.
fn provided_bytes(name: &Name) -> usize {
    PROVIDED_BYTES + text_bytes(name)
}

/// Posts the names to their owners, and acknowledges when all owners have handled them.
fn register<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    names: Vec<Name>,
    provide: bool,
    correlation: Option<&str>,
) {
    let by_owner = by_owner(turn, names);
    if by_owner.is_empty() && !turn.is_piece() {
        turn.send(
            id,
            &Message::Rpc(Rpc::Ack {
                provide,
                correlation,
            }),
        );
        return;
    }
    let what = ReplyAction::Provide {
        provide,
        correlation: correlation.map(Box::from),
    };
    let reply = turn.begin_bulk_reply(id, by_owner.len(), what);
    for (owner, names) in by_owner {
        let entry = if provide {
            RpcEntry::Provide {
                names,
                provider: id,
                reply,
            }
        } else {
            RpcEntry::Unprovide {
                names,
                provider: id,
                reply,
            }
        };
        turn.post(owner, Entry::Rpc(entry));
    }
}

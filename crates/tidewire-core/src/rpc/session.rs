//! Rpc at the session's shard: checks the requests of requestors and the answers of providers, posts them to the owners, and sends the
//! sessions what the owners decide.

use super::registration::{provide, unprovide};
use crate::address::SessionId;
use crate::context::TurnContext;
use crate::effect::{Effects, Flow};
use crate::entry::{CallAnswer, CallNotice, Entry, OwnedCall, RpcDelivery, RpcEntry, call_bytes};
use crate::message::{Call, Message, Reason, Refusal, Rpc, RpcAction};
use crate::permission::{Access, Authorization};
use crate::text::Payload;

/// Handles a message of an open session.
pub(crate) fn message<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    message: &Rpc<'_>,
) -> Flow {
    match message {
        Rpc::Provide { names, correlation } => provide(turn, id, names, *correlation),
        Rpc::Unprovide { names, correlation } => unprovide(turn, id, names, *correlation),
        Rpc::Request { call, data, .. } => request(turn, id, *call, *data),
        Rpc::Accept(call) => answer(turn, id, *call, CallAnswer::Accept, None),
        Rpc::Reject(call) => answer(turn, id, *call, CallAnswer::Reject, None),
        Rpc::Response { call, data } => answer(turn, id, *call, CallAnswer::Response, *data),
        Rpc::RequestError { call, data } => answer(turn, id, *call, CallAnswer::Error, *data),
        // Clients must not send a server's answers. They have no effect.
        Rpc::Ack { .. } | Rpc::Error(_) => Flow::Taken,
    }
}

/// Sends a message of a call to a session of this shard.
pub(crate) fn deliver<E: Effects>(turn: &mut TurnContext<'_, E>, delivery: &RpcDelivery) {
    let call = Call {
        name: &delivery.name,
        correlation: &delivery.correlation,
    };
    if delivery.what.ends_call()
        && let Some(session) = turn.sessions.find_mut(delivery.session)
    {
        match session.calls.checked_sub(1) {
            Some(calls) => session.calls = calls,
            None => turn.shard.count_underflow(),
        }
        session.let_go(delivery.kept_bytes);
    }
    if matches!(delivery.what, CallNotice::Request { .. }) && has_withdrawn(turn, delivery) {
        return withdraw(turn, delivery);
    }
    let message = match &delivery.what {
        CallNotice::Request {
            data,
            requestor_name,
            requestor_data,
        } => Rpc::Request {
            call,
            data: data.as_ref().map(Payload::as_str),
            requestor_name: requestor_name.as_deref(),
            requestor_data: requestor_data.as_ref().map(Payload::as_str),
        },
        CallNotice::Accepted => Rpc::Accept(call),
        CallNotice::Response(data) => Rpc::Response {
            call,
            data: data.as_ref().map(Payload::as_str),
        },
        CallNotice::Error(data) => Rpc::RequestError {
            call,
            data: data.as_ref().map(Payload::as_str),
        },
        CallNotice::Failed(reason) => Rpc::Error(call.refusal(*reason, RpcAction::Request)),
        CallNotice::MultipleAccept => {
            Rpc::Error(call.refusal(Reason::MultipleAccept, RpcAction::Accept))
        }
        CallNotice::Unknown(answer) => {
            let action = match answer {
                CallAnswer::Accept => RpcAction::Accept,
                CallAnswer::Reject | CallAnswer::Withdrawn => RpcAction::Reject,
                CallAnswer::Response => RpcAction::Response,
                CallAnswer::Error => RpcAction::RequestError,
            };
            Rpc::Error(call.refusal(Reason::InvalidCorrelation, action))
        }
    };
    turn.send(delivery.session, &Message::Rpc(message));
}

/// Whether the chosen provider has withdrawn the name or lost its right to it. The owner did not know this yet when it chose the
/// provider.
fn has_withdrawn<E: Effects>(turn: &TurnContext<'_, E>, delivery: &RpcDelivery) -> bool {
    turn.sessions.find(delivery.session).is_some_and(|session| {
        let with = session.state.as_ref();
        with.is_none_or(|with| !with.provided.contains(&delivery.name))
    })
}

/// Answers for a provider that no longer provides the name, so that the owner chooses the next provider.
fn withdraw<E: Effects>(turn: &mut TurnContext<'_, E>, delivery: &RpcDelivery) {
    let answer = RpcEntry::Answer {
        name: delivery.name.clone(),
        correlation: delivery.correlation.clone(),
        provider: delivery.session,
        what: CallAnswer::Withdrawn,
        data: None,
    };
    turn.post(turn.shard.owner(&delivery.name), Entry::Rpc(answer));
}

fn request<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    call: Call<'_>,
    data: Option<&str>,
) -> Flow {
    let refusal = call.refusal(Reason::InvalidData, RpcAction::Request);
    if !turn.shard.is_name(call.name)
        || !turn.shard.is_name(call.correlation)
        || !turn.shard.is_json(data)
    {
        let name = refusal.name.filter(|name| turn.shard.is_name(name));
        let correlation = refusal
            .correlation
            .filter(|correlation| turn.shard.is_name(correlation));
        return refuse(
            turn,
            id,
            Refusal {
                name,
                correlation,
                ..refusal
            },
        );
    }
    match turn.authorize(id, Access::RpcRequest, Some(call.name), data) {
        Authorization::Wait => return Flow::Wait,
        Authorization::Deny => return refuse(turn, id, refusal.because(Reason::Denied)),
        Authorization::Failed => return refuse(turn, id, refusal.because(Reason::RuleFailed)),
        Authorization::Allow => {}
    }
    let calls_max = turn.shard.settings.limits.calls_max;
    let draining = turn.shard.draining;
    let Some(session) = turn.sessions.find_mut(id) else {
        return Flow::Taken;
    };
    let is_over = session.calls as usize >= calls_max;
    if is_over {
        turn.shard.count(|refused| refused.calls += 1);
    }
    let bytes = call_bytes(call.name, call.correlation, data);
    // The memory budget is checked before the call is copied, because the copy is kept until the answer arrives.
    if draining || is_over || !turn.shard.has_memory(session.kept_bytes, bytes) {
        return refuse(turn, id, refusal.because(Reason::NoProvider));
    }
    session.calls += 1;
    session.keep(bytes);
    let principal = session.principal().cloned();
    let settings = &turn.shard.settings;
    let requestor_name = principal
        .as_ref()
        .filter(|_| settings.rpc_requestor_name)
        .map(|principal| principal.user_id.clone());
    let requestor_data = principal
        .filter(|_| settings.rpc_requestor_data)
        .and_then(|principal| principal.client_data().cloned())
        .filter(|data| data.as_str() != "null");
    let owned = OwnedCall {
        name: call.name.into(),
        correlation: call.correlation.into(),
        requestor: id,
        data: data.map(Payload::from_checked),
        requestor_name,
        requestor_data,
    };
    turn.post(
        turn.shard.owner(call.name),
        Entry::Rpc(RpcEntry::Request(Box::new(owned))),
    );
    Flow::Taken
}

fn answer<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    call: Call<'_>,
    what: CallAnswer,
    data: Option<&str>,
) -> Flow {
    if !turn.shard.is_json(data) {
        let action = if what == CallAnswer::Error {
            RpcAction::RequestError
        } else {
            RpcAction::Response
        };
        return refuse(turn, id, call.refusal(Reason::InvalidData, action));
    }
    let entry = RpcEntry::Answer {
        name: call.name.into(),
        correlation: call.correlation.into(),
        provider: id,
        what,
        data: data.map(Payload::from_checked),
    };
    turn.post(turn.shard.owner(call.name), Entry::Rpc(entry));
    Flow::Taken
}

pub(super) fn refuse<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    refusal: Refusal<'_, RpcAction>,
) -> Flow {
    turn.send(id, &Message::Rpc(Rpc::Error(refusal)));
    Flow::Taken
}

//! Listening at the provider's shard: checks the requests of a session, posts its patterns to all shards and its answers to the owners
//! of the names, and passes the owners' notices on.

use std::sync::Arc;

use super::pattern::compile;
use super::prefix::literal_prefix;
use crate::address::SessionId;
use crate::context::{LostRight, TurnContext};
use crate::effect::{Effects, Flow};
use crate::entry::{Entry, ListenNotice, Listening, ReplyAction};
use crate::footprint::{PATTERN_BYTES, text_bytes};
use crate::message::{
    Event, EventAction, Listen, Message, Reason, Record, RecordAction, Refusal, Topic,
};
use crate::permission::{Access, Authorization};
use crate::session::Session;
use crate::text::Name;

/// Handles a listen message of an open session.
pub(crate) fn message<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    topic: Topic,
    message: &Listen<'_>,
) -> Flow {
    match *message {
        Listen::Listen { pattern } => listen(turn, id, topic, pattern),
        Listen::Unlisten { pattern } => unlisten(turn, id, topic, pattern),
        Listen::Accept {
            pattern,
            subscription,
        } => answer(turn, id, topic, pattern, subscription, true),
        Listen::Reject {
            pattern,
            subscription,
        } => answer(turn, id, topic, pattern, subscription, false),
        // Answers of a server have no meaning here.
        Listen::ListenAck { .. }
        | Listen::UnlistenAck { .. }
        | Listen::Found { .. }
        | Listen::Removed { .. }
        | Listen::ResponseTimeout { .. }
        | Listen::InvalidPattern { .. }
        | Listen::AlreadyListening { .. } => Flow::Taken,
    }
}

/// Sends a provider of this shard a notice about a name, unless the provider has taken the pattern back in the meantime. After the
/// acknowledgement of that, it gets no further notice of the pattern.
pub(crate) fn notify<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    provider: SessionId,
    topic: Topic,
    pattern: &Name,
    subscription: &str,
    notice: ListenNotice,
) {
    let key = (topic, pattern.clone());
    let listens = turn
        .sessions
        .find(provider)
        .and_then(|session| session.state.as_ref())
        .is_some_and(|with| with.patterns.contains(&key));
    if !listens {
        return;
    }
    let message = match notice {
        ListenNotice::Found => Listen::Found {
            pattern,
            subscription,
        },
        ListenNotice::Removed => Listen::Removed {
            pattern,
            subscription,
        },
        ListenNotice::TimedOut => Listen::ResponseTimeout { subscription },
    };
    turn.send(provider, &wrap(topic, message));
}

/// The listen message of a topic.
pub(crate) fn wrap(topic: Topic, message: Listen<'_>) -> Message<'_> {
    match topic {
        Topic::Record => Message::Record(Record::Listen(message)),
        _ => Message::Event(Event::Listen(message)),
    }
}

fn listen<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    topic: Topic,
    pattern: &str,
) -> Flow {
    let access = if topic == Topic::Record {
        Access::RecordListen
    } else {
        Access::EventListen
    };
    let authorization = turn.authorize_pattern(id, access, pattern, &literal_prefix(pattern));
    let allowed = match authorization {
        Authorization::Wait => return Flow::Wait,
        Authorization::Allow => turn.has_room(id, 1) && has_room(turn, id),
        Authorization::Deny | Authorization::Failed => false,
    };
    if !allowed {
        let reason = match authorization {
            Authorization::Failed => Reason::RuleFailed,
            _ => Reason::Denied,
        };
        turn.send(id, &refusal(topic, pattern, reason));
        return Flow::Taken;
    }
    let regex = if turn.shard.is_name(pattern) {
        let regex = compile(pattern);
        if regex.is_none() {
            turn.shard.count(|refused| refused.uncompilable += 1);
        }
        regex
    } else {
        None
    };
    let Some((regex, weight)) = regex else {
        let pattern = if pattern.len() <= turn.shard.settings.limits.name_bytes_max {
            pattern
        } else {
            ""
        };
        turn.send(id, &wrap(topic, Listen::InvalidPattern { pattern }));
        return Flow::Taken;
    };
    let seed = turn.shard.seed;
    let name = Name::from(pattern);
    let Some(principal) = turn.principal(id) else {
        return Flow::Taken;
    };
    let Some(session) = turn.sessions.find_mut(id) else {
        return Flow::Taken;
    };
    if !session.offers(seed).patterns.insert((topic, name.clone())) {
        turn.send(id, &wrap(topic, Listen::AlreadyListening { pattern }));
        return Flow::Taken;
    }
    turn.sessions.add_state_bytes(id, pattern_bytes(&name));
    let shards = usize::from(turn.shard.shard_count);
    let reply = turn.begin_reply(
        id,
        shards,
        ReplyAction::Listen {
            topic,
            pattern: name.clone(),
        },
    );
    let regex = Arc::new(regex);
    turn.post_all(&Entry::Listening(Listening::Add {
        topic,
        pattern: name,
        regex,
        weight,
        provider: id,
        principal,
        reply,
    }));
    Flow::Taken
}

/// Bytes that a pattern takes, with its expression.
fn pattern_bytes(pattern: &Name) -> usize {
    PATTERN_BYTES + text_bytes(pattern)
}

/// Whether a session may listen with one more pattern. All shards keep each pattern compiled and try it with each new name, so the limit of
/// patterns is lower than the limit of other subscriptions.
fn has_room<E: Effects>(turn: &TurnContext<'_, E>, id: SessionId) -> bool {
    let held = turn.sessions.find(id).map_or(0, Session::pattern_count);
    let has_room = held < turn.shard.settings.limits.patterns_max;
    if !has_room {
        turn.shard.count(|refused| refused.patterns += 1);
    }
    has_room
}

/// Takes a pattern back. The acknowledgement waits until every shard knows it: the provider then gets all earlier notices of the pattern
/// before the acknowledgement, and no shard mistakes a new registration of the same pattern for the old one.
fn unlisten<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    topic: Topic,
    pattern: &str,
) -> Flow {
    let name = Name::from(pattern);
    let seed = turn.shard.seed;
    let held = turn
        .sessions
        .find_mut(id)
        .is_some_and(|session| session.offers(seed).patterns.remove(&(topic, name.clone())));
    if !held {
        turn.send(id, &wrap(topic, Listen::UnlistenAck { pattern }));
        return Flow::Taken;
    }
    turn.sessions.remove_state_bytes(id, pattern_bytes(&name));
    let shards = usize::from(turn.shard.shard_count);
    let what = ReplyAction::Unlisten {
        topic,
        pattern: name.clone(),
    };
    let reply = turn.begin_reply(id, shards, what);
    turn.post_all(&Entry::Listening(Listening::Remove {
        topic,
        pattern: name,
        provider: id,
        reply: Some(reply),
    }));
    Flow::Taken
}

/// Takes back a pattern whose right was lost. Returns false if the session does not have the pattern.
pub(crate) fn lose<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    topic: Topic,
    pattern: Name,
    lost: LostRight,
) -> bool {
    let session = turn.sessions.find_mut(id);
    let has_listened = session
        .and_then(|session| session.state.as_mut())
        .is_some_and(|with| with.patterns.remove(&(topic, pattern.clone())));
    if !has_listened {
        return false;
    }
    turn.sessions
        .remove_state_bytes(id, pattern_bytes(&pattern));
    turn.send(id, &refusal(topic, &pattern, lost.reason()));
    turn.post_all(&Entry::Listening(Listening::Remove {
        topic,
        pattern,
        provider: id,
        reply: None,
    }));
    true
}

fn answer<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    topic: Topic,
    pattern: &str,
    subscription: &str,
    accepted: bool,
) -> Flow {
    let owner = turn.shard.owner(subscription);
    let (pattern, name) = (Name::from(pattern), Name::from(subscription));
    turn.post(
        owner,
        Entry::Listening(Listening::Answered {
            topic,
            pattern,
            name,
            provider: id,
            accepted,
        }),
    );
    Flow::Taken
}

fn refusal(topic: Topic, pattern: &str, reason: Reason) -> Message<'_> {
    let name = Some(pattern);
    if topic == Topic::Record {
        let refusal = Refusal::new(reason, RecordAction::Listen);
        Message::Record(Record::Error(Refusal { name, ..refusal }))
    } else {
        let refusal = Refusal::new(reason, EventAction::Listen);
        Message::Event(Event::Error(Refusal { name, ..refusal }))
    }
}

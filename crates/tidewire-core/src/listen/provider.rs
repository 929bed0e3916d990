//! Listening at the provider's shard: checks the requests of a session, posts its patterns to all shards and its answers to the owners
//! of the names, and passes the owners' notices on.

use super::literal_prefix;
use crate::address::SessionId;
use crate::context::{LostRight, TurnContext};
use crate::effect::{Effects, Flow};
use crate::entry::{Entry, ListenNotice, Listening, ReplyAction};
use crate::footprint::text_bytes;
use crate::listen_pattern::ListenPattern;
use crate::message::{
    Event, EventAction, Listen, Message, Reason, Record, RecordAction, Refusal, Topic,
};
use crate::permission::{Access, Authorization};
use crate::session::Session;
use crate::text::Name;
use crate::work::{COMPILE_WORK, COMPILE_WORK_PER_BYTE, REFUSED_COMPILE_WORK};

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
        .is_some_and(|with| with.patterns.contains_key(&key));
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
    let compiled = if turn.shard.is_name(pattern) {
        compile(turn, pattern)
    } else {
        None
    };
    let Some(compiled) = compiled else {
        let pattern = if pattern.len() <= turn.shard.settings.limits.name_bytes_max {
            pattern
        } else {
            ""
        };
        turn.send(id, &wrap(topic, Listen::InvalidPattern { pattern }));
        return Flow::Taken;
    };
    let seed = turn.shard.seed;
    let name = compiled.text().clone();
    let Some(principal) = turn.principal(id) else {
        return Flow::Taken;
    };
    let Some(session) = turn.sessions.find_mut(id) else {
        return Flow::Taken;
    };
    let bytes = compiled.expression().bytes() + text_bytes(&name);
    let patterns = &mut session.offers(seed).patterns;
    if patterns.contains_key(&(topic, name.clone())) {
        turn.send(id, &wrap(topic, Listen::AlreadyListening { pattern }));
        return Flow::Taken;
    }
    patterns.insert((topic, name.clone()), bytes);
    turn.sessions.add_state_bytes(id, bytes);
    let shards = turn.shard.shard_count();
    let reply = turn.begin_reply(
        id,
        shards,
        ReplyAction::Listen {
            topic,
            pattern: name,
        },
    );
    turn.post_all(&Entry::Listening(Listening::Add {
        topic,
        pattern: compiled,
        provider: id,
        principal,
        reply: Some(reply),
    }));
    Flow::Taken
}

/// Compiles a pattern at the cost of the session.
fn compile<E: Effects>(turn: &mut TurnContext<'_, E>, pattern: &str) -> Option<ListenPattern> {
    let compiled = ListenPattern::compile(Name::from(pattern));
    let bytes = compiled.as_ref().map_or(0, |it| it.expression().bytes());
    turn.shard
        .count_work(COMPILE_WORK + COMPILE_WORK_PER_BYTE * bytes);
    if compiled.is_none() {
        turn.shard.count_work(REFUSED_COMPILE_WORK);
        turn.shard.count(|refused| refused.uncompilable += 1);
    }
    compiled
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
        .and_then(|session| session.offers(seed).patterns.remove(&(topic, name.clone())));
    let Some(bytes) = held else {
        turn.send(id, &wrap(topic, Listen::UnlistenAck { pattern }));
        return Flow::Taken;
    };
    turn.sessions.remove_state_bytes(id, bytes);
    let shards = turn.shard.shard_count();
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
    let held = session
        .and_then(|session| session.state.as_mut())
        .and_then(|with| with.patterns.remove(&(topic, pattern.clone())));
    let Some(bytes) = held else {
        return false;
    };
    turn.sessions.remove_state_bytes(id, bytes);
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

//! The commands of backends: checked at the shard of the backend, executed at the shards of their sessions.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::ask;
use super::assign::refuse;
use super::nodes::LEVEL;
use super::{Backends, Source, backed_mut, shards_of_node};
use crate::address::{Address, SessionId};
use crate::attachments::Attachments;
use crate::context::TurnContext;
use crate::effect::{CloseReason, Effects};
use crate::entry::{BackendEntry, Entry, OwnedBackend};
use crate::event;
use crate::hub::HubTopic;
use crate::identity;
use crate::json::JsonKind;
use crate::message::{Backend, BackendKind, Event, Message, Publication};
use crate::namespace::{covers, event_of};
use crate::principal::Principal;
use crate::publication::InterestTopic;
use crate::session::{Phase, SessionFlag};
use crate::text::{Name, Payload};
use crate::work::NAME_WORK;

const TOPIC: HubTopic = HubTopic::Interest(InterestTopic::Event);

/// Namespaces that one backend may serve.
const NAMESPACES_MAX: usize = 1_000;
/// Bytes of the public id of a session, and of its secret.
const ID_BYTES_MAX: usize = 128;

/// Work of a recipient of a broadcast to several rooms.
const RECIPIENT_WORK: usize = 64;

const NOT_A_BACKEND: &str =
    r#"{"message":"this login has no right to serve namespaces; use the key of backend.key"}"#;
const NO_NAMESPACES: &str = r#"{"message":"namespaces begin with /, and there are 1 to 1,000"}"#;
const NOT_CONFIGURED: &str =
    r#"{"message":"a namespace is not in backend.namespaces; add it there, or do not serve it"}"#;
const NOT_SERVING: &str = r#"{"message":"events come again in namespaces that the backend serves: send SERVE first, then at most 1,000 names"}"#;
const NOT_SERVED: &str = r#"{"message":"the backend does not serve the namespace"}"#;
const NO_SESSION: &str = r#"{"message":"the message needs a session"}"#;
const NO_KIND: &str = r#"{"message":"only sessions and the server send such messages"}"#;
const NO_DATA: &str =
    r#"{"message":"the data are missing, not of the required form, or too large"}"#;
const LARGE_DATA: &str =
    r#"{"message":"the data of a session are larger than limits.backend_data_bytes_max"}"#;
const NO_ID: &str = r#"{"message":"the id and the secret of a session have 1 to 128 bytes"}"#;
const NO_ROOM: &str =
    r#"{"message":"a room is empty, reserved or too long, or there are too many"}"#;
const NO_NUMBER: &str =
    r#"{"message":"the id of an event that a client answers has 1 to 9 digits"}"#;
const NOT_LEAVING: &str =
    r#"{"message":"a backend hands sessions over after a HAND_OVER without a session"}"#;
const NOT_SENT: &str = r#"{"message":"more messages are confirmed than were sent"}"#;

impl Backends {
    /// Handles a message of an open session that no backend serves: a command, if the session is a backend.
    pub(super) fn command<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        id: SessionId,
        message: &Backend<'_>,
    ) {
        let is_backend = turn.principal(id).is_some_and(|it| it.is_backend());
        let checked = match is_backend {
            true => self.check(turn, id, message),
            false => Err(NOT_A_BACKEND),
        };
        if let Err(data) = checked {
            let kind = match is_backend {
                true => BackendKind::InvalidCommand,
                false => BackendKind::NotABackend,
            };
            let refusal = message.refusal(kind, data);
            turn.send(id, &Message::Backend(Box::new(refusal)));
        }
    }

    fn check<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        id: SessionId,
        message: &Backend<'_>,
    ) -> Result<(), &'static str> {
        let has_data = |kinds: &[JsonKind]| {
            let data = message.data.filter(|data| {
                let kind = turn.shard.json_kind(data);
                kind.is_ok_and(|kind| kinds.is_empty() || kinds.contains(&kind))
            });
            let attachments = message.attachments.as_ref();
            data.is_some_and(|data| attachments.is_none_or(|it| it.fit(data)))
        };
        let bulk_max = turn.shard.settings.limits.bulk_names_max;
        let data_max = turn.shard.settings.limits.backend_data_bytes_max;
        let is_bulk = message.names.len() + message.except.len() <= bulk_max;
        match message.kind {
            BackendKind::Serve => return self.serve(turn, id, message),
            BackendKind::Confirm => return self.confirm(turn, id, message.count),
            BackendKind::Broadcast | BackendKind::Ask if !has_data(&[]) => return Err(NO_DATA),
            BackendKind::Broadcast | BackendKind::Ask if !is_bulk => return Err(NO_ROOM),
            BackendKind::Ask => {
                let publication = self.publication(turn, id, message)?;
                return self.begin_ask(turn, id, message, publication);
            }
            BackendKind::Tell if !has_data(&[]) => return Err(NO_DATA),
            BackendKind::Tell => return self.begin_tell(turn, id, message),
            BackendKind::Reply if !has_data(&[JsonKind::Array]) => return Err(NO_DATA),
            BackendKind::Reply => {
                self.reply(turn, id, message);
                return Ok(());
            }
            BackendKind::Broadcast => return self.publish(turn, id, message),
            BackendKind::Received => {
                self.note_received(turn, id, message);
                return Ok(());
            }
            BackendKind::DeliverAgain => return self.deliver_again(turn, id, message),
            BackendKind::SetData if !has_data(&[]) || message.attachments.is_some() => {
                return Err(NO_DATA);
            }
            BackendKind::SetData if message.data.is_some_and(|it| it.len() > data_max) => {
                return Err(LARGE_DATA);
            }
            BackendKind::HandOver if message.session.is_none() => {
                return self.begin_hand_over(turn, id, message);
            }
            BackendKind::HandOver | BackendKind::Release if !self.is_leaving(id) => {
                return Err(NOT_LEAVING);
            }
            BackendKind::Accept => {
                let is_id = |id: &str| !id.is_empty() && id.len() <= ID_BYTES_MAX;
                if !message.name.is_some_and(is_id) || !message.correlation.is_none_or(is_id) {
                    return Err(NO_ID);
                }
            }
            BackendKind::Refuse if !has_data(&[JsonKind::Object]) => return Err(NO_DATA),
            BackendKind::Send | BackendKind::Answer if !has_data(&[JsonKind::Array]) => {
                return Err(NO_DATA);
            }
            BackendKind::Send if !message.correlation.is_none_or(ask::is_free) => {
                return Err(NO_NUMBER);
            }
            BackendKind::Join | BackendKind::Leave if !is_bulk => return Err(NO_ROOM),
            BackendKind::Refuse
            | BackendKind::Send
            | BackendKind::Answer
            | BackendKind::Join
            | BackendKind::Leave
            | BackendKind::End
            | BackendKind::EndConnection
            | BackendKind::HandOver
            | BackendKind::Release
            | BackendKind::SetData => {}
            BackendKind::Served
            | BackendKind::Opened
            | BackendKind::Event
            | BackendKind::Answered
            | BackendKind::Closed
            | BackendKind::Response
            | BackendKind::Asked
            | BackendKind::Told
            | BackendKind::HandedOver
            | BackendKind::NotABackend
            | BackendKind::InvalidCommand
            | BackendKind::AskFailed => return Err(NO_KIND),
        }
        let session = message.session.ok_or(NO_SESSION)?;
        // A session of a lost node has ended.
        if !turn.shard.shards.contains(&session.address) {
            return Ok(());
        }
        if let Some(own) = self.own.get_mut(&id) {
            own.note_command(message.kind, session);
            own.announce_load(turn, id);
        }
        let command = BackendEntry::Command {
            backend: id,
            message: Box::new(OwnedBackend::of(message)),
        };
        turn.post(session.address, Entry::Backend(command));
        Ok(())
    }

    /// Handles that a backend serves namespaces.
    fn serve<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        id: SessionId,
        message: &Backend<'_>,
    ) -> Result<(), &'static str> {
        let names = &message.names;
        let is_name = |name: &&str| name.starts_with('/') && turn.shard.is_name(name);
        if names.is_empty() || names.len() > NAMESPACES_MAX || !names.iter().all(is_name) {
            return Err(NO_NAMESPACES);
        }
        let configured = &turn.shard.settings.backend_namespaces;
        let is_configured = |name: &&str| configured.iter().any(|it| covers(it, name));
        if !names.iter().all(is_configured) {
            return Err(NOT_CONFIGURED);
        }
        let own = self.own.entry(id).or_default();
        own.namespaces = names.iter().map(|name| Name::from(*name)).collect();
        own.announce(turn, id, message.session);
        let served = Backend {
            correlation: message.correlation,
            session: Some(id),
            ..Backend::new(BackendKind::Served)
        };
        turn.send(id, &Message::Backend(Box::new(served)));
        Ok(())
    }

    /// Handles that events of namespaces come again, if the backend is lost before it has confirmed them.
    fn deliver_again<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        id: SessionId,
        message: &Backend<'_>,
    ) -> Result<(), &'static str> {
        let own = self.own.get_mut(&id);
        let own = own.filter(|own| !own.namespaces.is_empty());
        let names = &message.names;
        let are_names = names.iter().all(|name| turn.shard.is_name(name));
        let (Some(own), true) = (own, names.len() <= NAMESPACES_MAX && are_names) else {
            return Err(NOT_SERVING);
        };
        own.again = names.iter().map(|name| Name::from(*name)).collect();
        let again = BackendEntry::DeliverAgain {
            backend: id,
            namespaces: own.again.clone(),
        };
        turn.post_all(&Entry::Backend(again));
        Ok(())
    }

    /// Handles that a backend has handled some of its messages.
    fn confirm<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        id: SessionId,
        count: u32,
    ) -> Result<(), &'static str> {
        let mut left = count;
        let mut confirmed: Vec<(Source, u32)> = Vec::new();
        let own = self.own.get_mut(&id);
        if let Some(own) = own {
            while left > 0
                && let Some((source, of_source)) = own.unconfirmed.front_mut()
            {
                let part = left.min(*of_source);
                (left, *of_source) = (left - part, *of_source - part);
                match confirmed.iter_mut().find(|(known, _)| known == source) {
                    Some((_, count)) => *count += part,
                    None => confirmed.push((*source, part)),
                }
                if *of_source == 0 {
                    own.unconfirmed.pop_front();
                }
            }
        }
        for (source, count) in confirmed {
            match source {
                Source::Shard(shard) => {
                    let confirmed = BackendEntry::Confirmed { backend: id, count };
                    turn.post(shard, Entry::Backend(confirmed));
                }
                Source::Asks => self.answers_confirmed(turn, id, count),
                Source::Lost => {}
            }
        }
        match left {
            0 => Ok(()),
            _ => Err(NOT_SENT),
        }
    }

    /// Handles a broadcast of a backend.
    fn publish<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        id: SessionId,
        message: &Backend<'_>,
    ) -> Result<(), &'static str> {
        let broadcast = self.publication(turn, id, message)?;
        // This shard gets it as an entry, too: it must not overtake a session that joins a room.
        for shard in audience(turn, message.is_local) {
            let broadcast = BackendEntry::Broadcast(Arc::clone(&broadcast));
            turn.post(shard, Entry::Backend(broadcast));
        }
        Ok(())
    }

    /// Checks that a backend serves a namespace.
    pub(super) fn check_served(&self, id: SessionId, namespace: &str) -> Result<(), &'static str> {
        match self.own.get(&id).is_some_and(|own| own.serves(namespace)) {
            true => Ok(()),
            false => Err(NOT_SERVED),
        }
    }

    /// A broadcast or an ask of a backend, with the events of its rooms.
    pub(super) fn publication<E: Effects>(
        &self,
        turn: &TurnContext<'_, E>,
        id: SessionId,
        message: &Backend<'_>,
    ) -> Result<Arc<OwnedBackend>, &'static str> {
        let namespace = message.name.unwrap_or_default();
        self.check_served(id, namespace)?;
        let is_room =
            |room: &&str| !room.is_empty() && turn.shard.is_name(&event_of(namespace, room));
        if !message.names.iter().chain(&message.except).all(is_room) {
            return Err(NO_ROOM);
        }
        let events = |rooms: &[&str]| -> Vec<Name> {
            let events = rooms.iter().map(|room| event_of(namespace, room));
            events.map(|event| Name::from(event.as_str())).collect()
        };
        let mut names = events(&message.names);
        if names.is_empty() {
            names.push(event_of(namespace, "").as_str().into());
        }
        Ok(Arc::new(OwnedBackend {
            names,
            except: events(&message.except),
            name: None,
            only: message.is_local.then_some(id),
            ..OwnedBackend::of(message)
        }))
    }

    /// Executes a command about a session of this shard. A session of another backend, and one that has ended, is not affected.
    pub(super) fn execute<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        backend: SessionId,
        command: &OwnedBackend,
    ) {
        let Some(id) = command.session else {
            return;
        };
        let backed = backed_mut(turn, id).filter(|it| it.backend == Some(backend));
        let Some(backed) = backed else {
            return;
        };
        let is_new = backed.id.is_none();
        let is_handed_over = backed.is_handed_over;
        let namespace = backed.namespace.clone();
        match command.kind {
            BackendKind::Accept if is_new => accept(turn, id, &namespace, command),
            BackendKind::Refuse if is_new => {
                self.unassign(turn, id);
                let data = command.data.as_ref().map_or("{}", Payload::as_str);
                refuse(turn, id, data);
            }
            BackendKind::HandOver => self.stop_events(turn, backend, id),
            // A session that was not handed over may have events on their way to the backend.
            BackendKind::Release if is_handed_over => self.release(turn, id),
            BackendKind::Release => {}
            // A client that comes back keeps the events that it has missed until its session is open.
            BackendKind::Send if is_new && command.correlation.is_none() => send(turn, id, command),
            // Otherwise the session gets nothing before it is open.
            _ if is_new => {}
            BackendKind::Send | BackendKind::Answer => send(turn, id, command),
            BackendKind::SetData => set_data(turn, id, command),
            BackendKind::Join => {
                for room in command.names.iter().filter(|room| !room.is_empty()) {
                    join(turn, id, &event_of(&namespace, room));
                }
            }
            BackendKind::Leave => {
                for room in command.names.iter().filter(|room| !room.is_empty()) {
                    event::depart(turn, id, &event_of(&namespace, room));
                }
            }
            BackendKind::End | BackendKind::EndConnection => {
                self.unassign(turn, id);
                let memberships = turn.hub.memberships(id, turn.sessions);
                for (topic, name) in memberships {
                    if topic == TOPIC {
                        event::depart(turn, id, &name);
                    }
                }
                if let Some(backed) = backed_mut(turn, id) {
                    backed.has_ended = true;
                }
                let reason = match command.kind {
                    BackendKind::End => CloseReason::Dismissed,
                    _ => CloseReason::Disconnected,
                };
                turn.out.close(id, reason);
            }
            _ => {}
        }
    }
}

/// The shards whose sessions get a broadcast. A node that does not know backends of other nodes has no sessions of this one.
pub(super) fn audience<E>(turn: &TurnContext<'_, E>, is_local: bool) -> Vec<Address> {
    match is_local && turn.shard.level < LEVEL {
        true => shards_of_node(turn),
        false => turn.shard.shards().collect(),
    }
}

/// Whether a member of a room is among the sessions for a broadcast.
fn is_among<E>(turn: &TurnContext<'_, E>, id: SessionId, only: SessionId) -> bool {
    let state = turn.sessions.find(id).and_then(|it| it.state.as_ref());
    match state.and_then(|with| with.backed.as_deref()) {
        Some(backed) => backed.backend == Some(only),
        None => id.address.node == only.address.node,
    }
}

/// Sends the client of a session an event or an answer.
fn send<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId, command: &OwnedBackend) {
    let message = Backend {
        session: None,
        ..command.message()
    };
    turn.send(id, &Message::Backend(Box::new(message)));
}

/// Keeps the data of a session for its next backend. They count for the memory of the session.
fn set_data<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId, command: &OwnedBackend) {
    let Some(backed) = backed_mut(turn, id) else {
        return;
    };
    let before = backed.data_bytes();
    backed.data = command.data.clone();
    let after = backed.data_bytes();
    turn.sessions.remove_state_bytes(id, before);
    turn.sessions.add_state_bytes(id, after);
}

/// Opens a session.
fn accept<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    namespace: &str,
    command: &OwnedBackend,
) {
    if let Some(backed) = backed_mut(turn, id) {
        backed.id = command.name.clone();
    }
    let Some(session) = turn.sessions.find_mut(id) else {
        return;
    };
    // Its backend decides what it may do, so the session has no user for the rules.
    session.phase = Phase::Open(Arc::new(Principal::new(identity::NAMELESS.into())));
    session.set_flag(SessionFlag::Passing, true);
    let accepted = Backend {
        name: command.name.as_ref().map(Name::as_str),
        correlation: command.correlation.as_deref(),
        ..Backend::new(BackendKind::Accept)
    };
    turn.send(id, &Message::Backend(Box::new(accepted)));
    join(turn, id, &event_of(namespace, ""));
    turn.out.resume(id);
}

/// Makes a session a member of the event of a room. The rules do not decide about it.
fn join<E: Effects>(turn: &mut TurnContext<'_, E>, id: SessionId, event: &str) {
    if turn.shard.is_name(event) && turn.has_room(id, 1) {
        turn.shard.count_work(NAME_WORK);
        event::enter(turn, id, event);
    }
}

/// Delivers a broadcast to the sessions of this shard: each gets it once, whatever rooms it is in.
pub(crate) fn broadcast<E: Effects>(turn: &mut TurnContext<'_, E>, message: &OwnedBackend) {
    if let ([name], [], None) = (&message.names[..], &message.except[..], message.only) {
        return event::deliver(turn, published(message, name), message.session);
    }
    for (name, recipients) in recipients(turn, message) {
        let event = Message::Event(Event::Publication(published(message, &name)));
        turn.send_to_all(&recipients, &event);
    }
}

/// The event that the members of a room get.
pub(super) fn published<'m>(message: &'m OwnedBackend, name: &'m str) -> Publication<'m> {
    let data = message.data.as_ref().map(Payload::as_str);
    let attachments: Option<Attachments> = message.attachments.clone();
    Publication::new(name, data, None, None).with_attachments(attachments)
}

/// The sessions of this shard for a broadcast, each once, by the events of its rooms.
pub(super) fn recipients<E: Effects>(
    turn: &TurnContext<'_, E>,
    message: &OwnedBackend,
) -> Vec<(Name, Vec<SessionId>)> {
    let members = |name: &str| -> Vec<SessionId> {
        let channel = turn.hub.find(TOPIC, name);
        let current = channel.map_or(&[][..], |channel| turn.hub.members(channel));
        let current = current.iter().filter_map(|index| turn.sessions.at(*index));
        let current = current.map(|session| session.id);
        current
            .chain(turn.hub.lagging_sessions(TOPIC, name, turn.sessions))
            .collect()
    };
    let mut done: BTreeSet<SessionId> = message.session.into_iter().collect();
    for name in &message.except {
        done.extend(members(name));
    }
    let of_room = |name: &Name| {
        let mut recipients = members(name);
        turn.shard.count_work(recipients.len() * RECIPIENT_WORK);
        let is_among = |id| message.only.is_none_or(|only| is_among(turn, id, only));
        recipients.retain(|id| done.insert(*id) && is_among(*id));
        (name.clone(), recipients)
    };
    message.names.iter().map(of_room).collect()
}

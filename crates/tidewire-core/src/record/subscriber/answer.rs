//! Messages that a session gets about records: answers to its requests, changes of its subscriptions, refusals.
//!
//! The owner decides; this module only turns its decisions into messages and updates the session's subscriptions.

use super::subscription::{
    TOPIC, forget_subscription, grant, is_asked_again, release, subscription_bytes,
};
use super::{note_incarnation, note_shown, note_version, post_request};
use crate::address::SessionId;
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::entry::{
    Answer, BulkName, OwnedChange, Published, RecordAnswer, RecordRefusal, RecordRequestKind,
    Snapshot,
};
use crate::message::{
    Change, Message, Reason, Record, RecordAction, RecordBulk, Refusal, Tag, WireVersion, Write,
};
use crate::store::Version;
use crate::text::{Name, Payload};

/// The version on the wire of a record that does not exist.
const MISSING: WireVersion = -1;

/// Sends the owner's answer to the session. Returns true if the name is done, or false if the shard asks the owner again.
pub(crate) fn answered<E: Effects>(turn: &mut TurnContext<'_, E>, answer: RecordAnswer) -> bool {
    let RecordAnswer {
        session: id,
        name,
        reply,
        what,
    } = answer;
    if ends_read(&what)
        && turn
            .sessions
            .find_mut(id)
            .is_some_and(|session| session.end_read())
    {
        turn.out.resume(id);
    }
    match what {
        Answer::Granted {
            serial,
            epoch,
            action,
            correlation,
            ..
        } if is_asked_again(turn, id, &name, serial) => {
            release(turn, name.clone(), epoch, (id, serial));
            let names = vec![BulkName {
                name: name.clone(),
                index: reply.map_or(0, |reply| reply.index),
                serial: Some(serial),
            }];
            let what = RecordRequestKind::Bulk {
                action,
                names,
                reply,
                correlation,
            };
            post_request(turn, id, &name, what);
            return false;
        }
        Answer::Granted {
            serial,
            epoch,
            provided,
            value_bytes,
            snapshot,
            ..
        } => {
            if !grant(turn, id, &name, serial, epoch, value_bytes) {
                return true;
            }
            let shown = match &snapshot {
                Snapshot::Read(found) => found.as_ref().map(|(tag, _)| *tag),
                Snapshot::Known(tag) => Some(*tag),
                Snapshot::Head(version) => version.map(|version| Tag {
                    incarnation: 0,
                    version: on_wire(version),
                }),
                Snapshot::Nothing => None,
            };
            note_shown(turn, &name, shown);
            if provided {
                turn.send(
                    id,
                    &Message::Record(Record::HasProvider {
                        name: &name,
                        provided,
                    }),
                );
            }
            tell(turn, id, &name, &snapshot);
        }
        Answer::Resumed(resumed) => super::resumed(turn, id, &name, *resumed),
        Answer::Snapshot(snapshot) => tell(turn, id, &name, &snapshot),
        Answer::NotFound => {
            let refusal = Refusal {
                name: Some(&name),
                ..Refusal::new(Reason::NotFound, RecordAction::Read)
            };
            turn.send(id, &error(refusal));
        }
        Answer::Deleted => turn.send(id, &Message::Record(Record::DeleteSuccess { name: &name })),
        Answer::Written { correlation } => {
            let correlation = correlation.as_deref();
            turn.send(
                id,
                &Message::Record(Record::WriteAck {
                    name: &name,
                    correlation,
                }),
            );
        }
        Answer::Fetched { correlation, state } => {
            let state = state
                .as_ref()
                .map(|record| (record.tag(), record.data.as_str()));
            let fetched = Record::Fetched {
                name: &name,
                correlation: &correlation,
                state,
            };
            turn.send(id, &Message::Record(fetched));
        }
        Answer::Stored {
            correlation,
            stored,
        } => {
            let stored = Record::Stored {
                name: &name,
                correlation: &correlation,
                existed: stored.existed,
                tag: stored.tag,
            };
            turn.send(id, &Message::Record(stored));
        }
        Answer::PreconditionFailed { correlation, tag } => {
            let failed = Record::PreconditionFailed {
                name: &name,
                correlation: &correlation,
                tag,
            };
            turn.send(id, &Message::Record(failed));
        }
        Answer::Decided {
            correlation,
            result,
        } => super::transaction::decided(turn, id, &correlation, &result),
        Answer::VersionExists {
            version,
            data,
            action,
            correlation,
            write_ack,
        } => {
            let refusal = Refusal {
                reason: Reason::VersionExists,
                action,
                name: Some(&name),
                correlation: correlation.as_deref(),
                write_ack,
                version: Some(on_wire(version)),
                data: data.as_ref().map(Payload::as_str),
            };
            turn.send(id, &error(refusal));
        }
        Answer::InvalidVersion {
            version,
            action,
            correlation,
            write_ack,
        } => {
            let refusal = Refusal {
                name: Some(&name),
                correlation: correlation.as_deref(),
                write_ack,
                version: Some(on_wire(version)),
                ..Refusal::new(Reason::InvalidVersion, action)
            };
            turn.send(id, &error(refusal));
        }
        Answer::Refused {
            why,
            action,
            serial,
            correlation,
            write_ack,
        } => {
            forget_subscription(turn, id, &name, serial);
            if let Some(reply) = reply
                && matches!(why, RecordRefusal::Denied | RecordRefusal::RuleFailed)
                && let Some(records) = turn.pending_replies.records_mut(reply)
            {
                records.denied.push((reply.index, name, why));
                return true;
            }
            let refusal = Refusal {
                name: Some(&name),
                correlation: correlation.as_deref(),
                write_ack,
                ..Refusal::new(reason(why), action)
            };
            turn.send(id, &error(refusal));
        }
        // The engine hands these answers to the reauthorizer.
        Answer::Reauthorized { .. } | Answer::Lost { .. } => {}
    }
    true
}

/// Whether this is the answer to a read of a single record. Each such read gets one.
fn ends_read(answer: &Answer) -> bool {
    match answer {
        Answer::Snapshot(Snapshot::Read(_) | Snapshot::Head(_)) | Answer::NotFound => true,
        Answer::Refused { action, .. } => {
            matches!(action, RecordAction::Read | RecordAction::Head)
        }
        _ => false,
    }
}

pub(super) fn tell<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    name: &Name,
    snapshot: &Snapshot,
) {
    let message = match snapshot {
        Snapshot::Read(Some((tag, data))) => Record::ReadResponse {
            name,
            version: tag.version,
            data: data.as_str(),
            incarnation: Some(tag.incarnation),
        },
        Snapshot::Read(None) => Record::ReadResponse {
            name,
            version: MISSING,
            data: "{}",
            incarnation: None,
        },
        Snapshot::Head(version) => Record::HeadResponse {
            name,
            version: version.map_or(MISSING, on_wire),
        },
        Snapshot::Nothing | Snapshot::Known(_) => return,
    };
    turn.send(id, &Message::Record(message));
}

/// Delivers a record's change, its deletion or the change of its provider to this shard's subscribers.
pub(crate) fn published<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    name: &Name,
    what: &Published,
    except: Option<SessionId>,
) {
    match what {
        Published::Changed {
            version,
            change,
            full,
        } => {
            note_version(turn, name, on_wire(*version));
            let write = Write {
                name,
                version: on_wire(*version),
                correlation: None,
                write_ack: false,
                key: None,
            };
            let change = match change {
                OwnedChange::Update(data) => Change::Update {
                    data: Some(data.as_str()),
                },
                OwnedChange::Patch(patch) => Change::Patch {
                    path: &patch.text,
                    data: patch.data.as_ref().map(Payload::as_str),
                },
                OwnedChange::PatchMulti {
                    text: Some(text), ..
                } => Change::PatchMulti {
                    data: Some(text.as_str()),
                    full: Some(full.as_str()),
                },
                OwnedChange::PatchMulti { text: None, .. } => Change::Update {
                    data: Some(full.as_str()),
                },
            };
            let message = Message::Record(Record::Write(write, change));
            turn.fan_out_value(name, except, &message, full.len());
        }
        Published::Created(incarnation) => note_incarnation(turn, name, *incarnation),
        // The subscriptions end here, so a lagging session could not receive the message later.
        Published::Deleted => {
            turn.fan_out_to_all(
                TOPIC,
                name,
                except,
                &Message::Record(Record::Deleted { name }),
            );
            for member in turn.hub.dissolve(TOPIC, name, turn.sessions) {
                let session = turn.sessions.find_mut(member);
                let state = session.and_then(|session| session.state.as_mut());
                if state.is_some_and(|with| with.subscriptions.remove(name).is_some()) {
                    turn.sessions
                        .remove_state_bytes(member, subscription_bytes(name));
                }
            }
        }
        Published::Provided(provided) => {
            let message = Record::HasProvider {
                name,
                provided: *provided,
            };
            turn.fan_out_to_all(TOPIC, name, except, &Message::Record(message));
        }
    }
}

/// Sends a session that has missed changes the value after them.
pub(crate) fn catch_up<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    name: &Name,
    version: Version,
    data: &Payload,
) {
    let write = Write {
        name,
        version: on_wire(version),
        correlation: None,
        write_ack: false,
        key: None,
    };
    let change = Change::Update {
        data: Some(data.as_str()),
    };
    turn.send(id, &Message::Record(Record::Write(write, change)));
}

/// The reason that the session gets for a refusal of the owner.
pub(super) fn reason(why: RecordRefusal) -> Reason {
    match why {
        RecordRefusal::Denied => Reason::Denied,
        RecordRefusal::RuleFailed => Reason::RuleFailed,
        RecordRefusal::LoadTimeout => Reason::LoadTimeout,
        RecordRefusal::LoadFailed => Reason::LoadFailed,
        RecordRefusal::CreateFailed => Reason::CreateFailed,
        RecordRefusal::UpdateFailed => Reason::UpdateFailed,
        RecordRefusal::DeleteFailed => Reason::DeleteFailed,
        RecordRefusal::InvalidData => Reason::InvalidData,
        RecordRefusal::PatchOnHotPath => Reason::PatchOnHotPath,
        RecordRefusal::WriteUnknown => Reason::WriteUnknown,
    }
}

pub(super) fn error(refusal: Refusal<'_, RecordAction>) -> Message<'_> {
    let is_notify = refusal.action == RecordAction::Bulk(RecordBulk::Notify);
    let refusal = match refusal.reason {
        Reason::LoadTimeout | Reason::LoadFailed if is_notify => Refusal {
            reason: Reason::NotifyFailed,
            name: None,
            data: Some("\"the record could not be loaded\""),
            ..refusal
        },
        // The protocols have no field for more than the name.
        Reason::DeleteFailed => Refusal {
            name: refusal.name,
            ..Refusal::new(Reason::DeleteFailed, RecordAction::Delete)
        },
        _ => refusal,
    };
    Message::Record(Record::Error(refusal))
}

/// Versions stay within `Version::LAST`, so the conversion never saturates.
pub(super) fn on_wire(version: Version) -> WireVersion {
    WireVersion::try_from(version.0).unwrap_or(WireVersion::MAX)
}

//! Topic EVENT: publish and subscribe.

use std::borrow::Cow;

use tidewire_core::attachments::Attachments;
use tidewire_core::binary::Binary;
use tidewire_core::message::{
    Event, EventAction, EventBulk, Position, Publication, Reason, Refusal,
};

use super::DecodeError;
use super::action::event as action;
use super::fields::Fields;
use super::listen;

/// The event message in `fields`, `None` for an action that no peer sends.
pub(super) fn from_wire(fields: Fields<'_>) -> Result<Option<Event<'_>>, DecodeError> {
    if let Some(message) = listen::from_wire(&listen::EVENT, &fields) {
        return Ok(Some(Event::Listen(message)));
    }
    let (name, correlation) = (fields.name(), fields.correlation);
    Ok(Some(match fields.action {
        action::EMIT => {
            let trace = fields.trace.map(|trace| *trace);
            let binary = fields
                .bytes
                .map(|bytes| Binary::new(fields.content_type, bytes));
            let publication = Publication::new(name, fields.data, fields.offset, trace);
            let attachments = Attachments::new(fields.attachments.iter().copied());
            let publication = publication.with_binary(binary);
            Event::Publication(publication.with_attachments(attachments))
        }
        action::GAP => match (position(&fields), fields.missed) {
            (None, Some(missed)) => Event::Gap { name, missed },
            (first, missed) => Event::HistoryGap {
                name,
                missed,
                first,
            },
        },
        action::POSITION => match position(&fields) {
            Some(position) => Event::Position { name, position },
            None => return Ok(None),
        },
        action::SUBSCRIBE if fields.is_ack() => Event::Ack {
            action: EventBulk::Subscribe,
            correlation,
        },
        action::UNSUBSCRIBE if fields.is_ack() => Event::Ack {
            action: EventBulk::Unsubscribe,
            correlation,
        },
        action::SUBSCRIBE_PATTERNS if fields.is_ack() => Event::Ack {
            action: EventBulk::SubscribePatterns,
            correlation,
        },
        action::UNSUBSCRIBE_PATTERNS if fields.is_ack() => Event::Ack {
            action: EventBulk::UnsubscribePatterns,
            correlation,
        },
        action::SUBSCRIBE_PATTERNS => Event::SubscribePatterns {
            patterns: fields.names.into_owned(),
            correlation,
        },
        action::UNSUBSCRIBE_PATTERNS => Event::UnsubscribePatterns {
            patterns: fields.names.into_owned(),
            correlation,
        },
        action::PATTERN_GAP => match fields.missed {
            Some(missed) => Event::PatternGap {
                pattern: name,
                missed,
            },
            None => return Ok(None),
        },
        action::SUBSCRIBE => Event::Subscribe {
            names: fields.names.into_owned(),
            correlation,
            positions: fields.positions.into_owned(),
        },
        action::UNSUBSCRIBE => Event::Unsubscribe {
            names: fields.names.into_owned(),
            correlation,
        },
        _ => return error_from_wire(&fields).map(|error| error.map(Event::Error)),
    }))
}

fn error_from_wire<'a>(
    fields: &Fields<'a>,
) -> Result<Option<Refusal<'a, EventAction>>, DecodeError> {
    let reason = match fields.action {
        action::MESSAGE_DENIED => Reason::Denied,
        action::MESSAGE_PERMISSION_ERROR => Reason::RuleFailed,
        action::INVALID_MESSAGE_DATA => Reason::InvalidData,
        action::INVALID_PATTERN => Reason::InvalidPattern,
        action::MULTIPLE_SUBSCRIPTIONS => {
            let of_pattern = fields.original_action == Some(action::SUBSCRIBE_PATTERNS);
            let action = match of_pattern {
                true => EventAction::SubscribePatterns,
                false => EventAction::Subscribe,
            };
            let refusal = fields.named_refusal(Reason::MultipleSubscriptions, action);
            return Ok(Some(refusal));
        }
        _ => return Ok(None),
    };
    fields.refusal(reason, action_from_wire).map(Some)
}

fn position(fields: &Fields<'_>) -> Option<Position> {
    let (epoch, offset) = fields.epoch.zip(fields.offset)?;
    Some(Position { epoch, offset })
}

pub(super) fn to_wire<'m>(message: &'m Event<'_>) -> Fields<'m> {
    match message {
        Event::Publication(publication) | Event::Publish { publication, .. } => Fields {
            data: publication.data,
            offset: publication.offset(),
            trace: publication.trace().copied().map(Box::new),
            content_type: publication.binary().map(Binary::content_type),
            bytes: publication.binary().map(Binary::bytes),
            attachments: match publication.attachments() {
                Some(attachments) => attachments.iter().collect(),
                None => Cow::default(),
            },
            ..Fields::named(action::EMIT, publication.name)
        },
        Event::Position { name, position } => Fields {
            epoch: Some(position.epoch),
            offset: Some(position.offset),
            ..Fields::named(action::POSITION, name)
        },
        Event::HistoryGap {
            name,
            missed,
            first,
        } => Fields {
            missed: *missed,
            epoch: first.map(|first| first.epoch),
            offset: first.map(|first| first.offset),
            ..Fields::named(action::GAP, name)
        },
        Event::Subscribe {
            names,
            correlation,
            positions,
        } => Fields {
            positions: positions.as_slice().into(),
            ..Fields::bulk(action::SUBSCRIBE, names, *correlation)
        },
        Event::Unsubscribe { names, correlation } => {
            Fields::bulk(action::UNSUBSCRIBE, names, *correlation)
        }
        Event::SubscribePatterns {
            patterns,
            correlation,
        } => Fields::bulk(action::SUBSCRIBE_PATTERNS, patterns, *correlation),
        Event::UnsubscribePatterns {
            patterns,
            correlation,
        } => Fields::bulk(action::UNSUBSCRIBE_PATTERNS, patterns, *correlation),
        Event::PatternGap { pattern, missed } => Fields {
            missed: Some(*missed),
            ..Fields::named(action::PATTERN_GAP, pattern)
        },
        Event::Ack {
            action,
            correlation,
        } => Fields::ack(bulk_to_wire(*action), *correlation),
        Event::Listen(message) => listen::to_wire(&listen::EVENT, message),
        Event::Gap { name, missed } => Fields {
            missed: Some(*missed),
            ..Fields::named(action::GAP, name)
        },
        Event::Error(error) => error_to_wire(error),
    }
}

fn error_to_wire<'m>(refusal: &Refusal<'m, EventAction>) -> Fields<'m> {
    let number = match refusal.reason {
        Reason::RuleFailed => action::MESSAGE_PERMISSION_ERROR,
        Reason::InvalidData => action::INVALID_MESSAGE_DATA,
        Reason::InvalidPattern => action::INVALID_PATTERN,
        Reason::MultipleSubscriptions => {
            return Fields {
                original_action: Some(action_to_wire(refusal.action)),
                ..Fields::named(
                    action::MULTIPLE_SUBSCRIPTIONS,
                    refusal.name.unwrap_or_default(),
                )
            };
        }
        // Events have no other reasons.
        _ => action::MESSAGE_DENIED,
    };
    Fields::refused(number, refusal, action_to_wire)
}

fn action_from_wire(number: u32) -> Option<EventAction> {
    match number {
        action::EMIT => Some(EventAction::Emit),
        action::SUBSCRIBE => Some(EventAction::Subscribe),
        action::LISTEN => Some(EventAction::Listen),
        action::SUBSCRIBE_PATTERNS => Some(EventAction::SubscribePatterns),
        _ => None,
    }
}

fn action_to_wire(action: EventAction) -> u32 {
    match action {
        EventAction::Emit => action::EMIT,
        EventAction::Subscribe => action::SUBSCRIBE,
        EventAction::Listen => action::LISTEN,
        EventAction::SubscribePatterns => action::SUBSCRIBE_PATTERNS,
    }
}

fn bulk_to_wire(action: EventBulk) -> u32 {
    match action {
        EventBulk::Publish => action::EMIT,
        EventBulk::Subscribe => action::SUBSCRIBE,
        EventBulk::Unsubscribe => action::UNSUBSCRIBE,
        EventBulk::SubscribePatterns => action::SUBSCRIBE_PATTERNS,
        EventBulk::UnsubscribePatterns => action::UNSUBSCRIBE_PATTERNS,
    }
}

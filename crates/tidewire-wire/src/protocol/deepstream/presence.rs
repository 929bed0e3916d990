//! Topic PRESENCE: online users.

use tidewire_core::message::{Presence, PresenceAction, Reason, Refusal};

use super::DecodeError;
use super::action::presence as action;
use super::fields::Fields;

/// The presence message in `fields`, `None` for an action that no peer sends.
pub(super) fn from_wire(fields: Fields<'_>) -> Result<Option<Presence<'_>>, DecodeError> {
    let (name, correlation) = (fields.name(), fields.correlation);
    if let Some(action) = action_from_wire(fields.action).filter(|_| fields.is_ack()) {
        return Ok(Some(Presence::Ack {
            action,
            correlation,
        }));
    }
    let changed = |online, all| Presence::Changed { name, online, all };
    Ok(Some(match fields.action {
        action::QUERY_ALL => Presence::QueryAll,
        action::QUERY_ALL_RESPONSE => Presence::QueryAllResponse {
            names: fields.names.into_owned(),
        },
        action::QUERY => Presence::Query {
            names: fields.names.into_owned(),
            correlation,
        },
        action::QUERY_RESPONSE => Presence::QueryResponse {
            correlation,
            data: fields.data.unwrap_or_default(),
        },
        action::JOIN => changed(true, false),
        action::JOIN_ALL => changed(true, true),
        action::LEAVE => changed(false, false),
        action::LEAVE_ALL => changed(false, true),
        action::SUBSCRIBE => Presence::Subscribe {
            names: fields.names.into_owned(),
            correlation,
        },
        action::UNSUBSCRIBE => Presence::Unsubscribe {
            names: fields.names.into_owned(),
            correlation,
        },
        action::SUBSCRIBE_ALL => Presence::SubscribeAll,
        action::UNSUBSCRIBE_ALL => Presence::UnsubscribeAll,
        _ => return error_from_wire(&fields).map(|error| error.map(Presence::Error)),
    }))
}

fn error_from_wire<'a>(
    fields: &Fields<'a>,
) -> Result<Option<Refusal<'a, PresenceAction>>, DecodeError> {
    let reason = match fields.action {
        action::MESSAGE_DENIED => Reason::Denied,
        action::MESSAGE_PERMISSION_ERROR => Reason::RuleFailed,
        action::INVALID_PRESENCE_USERS => Reason::InvalidData,
        action::MULTIPLE_SUBSCRIPTIONS => {
            let action = fields.original(action_from_wire)?;
            let refusal = fields.named_refusal(Reason::MultipleSubscriptions, action);
            return Ok(Some(refusal));
        }
        _ => return Ok(None),
    };
    fields.refusal(reason, action_from_wire).map(Some)
}

pub(super) fn to_wire<'m>(message: &'m Presence<'_>) -> Fields<'m> {
    match message {
        Presence::QueryAll => Fields::new(action::QUERY_ALL),
        Presence::QueryAllResponse { names } => {
            Fields::bulk(action::QUERY_ALL_RESPONSE, names, None)
        }
        Presence::Query { names, correlation } => Fields::bulk(action::QUERY, names, *correlation),
        Presence::QueryResponse { correlation, data } => Fields {
            data: Some(data),
            correlation: *correlation,
            ..Fields::new(action::QUERY_RESPONSE)
        },
        Presence::Subscribe { names, correlation } => {
            Fields::bulk(action::SUBSCRIBE, names, *correlation)
        }
        Presence::Unsubscribe { names, correlation } => {
            Fields::bulk(action::UNSUBSCRIBE, names, *correlation)
        }
        Presence::SubscribeAll => Fields::new(action::SUBSCRIBE_ALL),
        Presence::UnsubscribeAll => Fields::new(action::UNSUBSCRIBE_ALL),
        Presence::Ack {
            action,
            correlation,
        } => Fields::ack(action_to_wire(*action), *correlation),
        Presence::Changed { name, online, all } => {
            let action = match (online, all) {
                (true, false) => action::JOIN,
                (true, true) => action::JOIN_ALL,
                (false, false) => action::LEAVE,
                (false, true) => action::LEAVE_ALL,
            };
            Fields::named(action, name)
        }
        Presence::Error(error) => error_to_wire(error),
    }
}

fn error_to_wire<'m>(refusal: &Refusal<'m, PresenceAction>) -> Fields<'m> {
    let number = match refusal.reason {
        Reason::RuleFailed => action::MESSAGE_PERMISSION_ERROR,
        Reason::InvalidData => action::INVALID_PRESENCE_USERS,
        Reason::MultipleSubscriptions => {
            return Fields {
                original_action: Some(action_to_wire(refusal.action)),
                ..Fields::named(
                    action::MULTIPLE_SUBSCRIPTIONS,
                    refusal.name.unwrap_or_default(),
                )
            };
        }
        // Presence has no other reasons.
        _ => action::MESSAGE_DENIED,
    };
    Fields::refused(number, refusal, action_to_wire)
}

fn action_from_wire(number: u32) -> Option<PresenceAction> {
    match number {
        action::QUERY_ALL => Some(PresenceAction::QueryAll),
        action::QUERY => Some(PresenceAction::Query),
        action::SUBSCRIBE => Some(PresenceAction::Subscribe),
        action::UNSUBSCRIBE => Some(PresenceAction::Unsubscribe),
        action::SUBSCRIBE_ALL => Some(PresenceAction::SubscribeAll),
        action::UNSUBSCRIBE_ALL => Some(PresenceAction::UnsubscribeAll),
        _ => None,
    }
}

fn action_to_wire(action: PresenceAction) -> u32 {
    match action {
        PresenceAction::QueryAll => action::QUERY_ALL,
        PresenceAction::Query => action::QUERY,
        PresenceAction::Subscribe => action::SUBSCRIBE,
        PresenceAction::Unsubscribe => action::UNSUBSCRIBE,
        PresenceAction::SubscribeAll => action::SUBSCRIBE_ALL,
        PresenceAction::UnsubscribeAll => action::UNSUBSCRIBE_ALL,
    }
}

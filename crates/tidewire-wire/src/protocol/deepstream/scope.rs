//! Topic PRESENCE: presence in scopes. Additions of Tidewire, which clients of deepstream do not use.

use tidewire_core::message::{Scope, ScopeAction, ScopeReason};

use super::action::presence as action;
use super::fields::Fields;

/// The message about a scope in `fields`, `None` for another action of the topic.
pub(super) fn from_wire<'a>(fields: &Fields<'a>) -> Option<Scope<'a>> {
    let name = fields.name();
    // An absent state is not JSON, so the engine refuses it.
    let data = fields.data.unwrap_or_default();
    Some(match fields.action {
        action::SCOPE_JOIN => Scope::Join { name, state: data },
        action::SCOPE_JOINED => Scope::Joined { name, data },
        action::SCOPE_UPDATE => Scope::Update { name, state: data },
        action::SCOPE_LEAVE => Scope::Leave { name },
        action::SCOPE_SUBSCRIBE => Scope::Subscribe { name },
        action::SCOPE_UNSUBSCRIBE => Scope::Unsubscribe { name },
        action::SCOPE_SNAPSHOT => Scope::Snapshot { name, data },
        action::SCOPE_CHANGED => Scope::Changed { name, data },
        number => Scope::Error {
            reason: reason_from_wire(number)?,
            action: fields.original_action.and_then(action_from_wire)?,
            name,
        },
    })
}

pub(super) fn to_wire<'m>(message: &'m Scope<'_>) -> Fields<'m> {
    let with = |action, name: &'m str, data: &'m str| Fields {
        data: Some(data),
        ..Fields::named(action, name)
    };
    match message {
        Scope::Join { name, state } => with(action::SCOPE_JOIN, name, state),
        Scope::Joined { name, data } => with(action::SCOPE_JOINED, name, data),
        Scope::Update { name, state } => with(action::SCOPE_UPDATE, name, state),
        Scope::Leave { name } => Fields::named(action::SCOPE_LEAVE, name),
        Scope::Subscribe { name } => Fields::named(action::SCOPE_SUBSCRIBE, name),
        Scope::Unsubscribe { name } => Fields::named(action::SCOPE_UNSUBSCRIBE, name),
        Scope::Snapshot { name, data } => with(action::SCOPE_SNAPSHOT, name, data),
        Scope::Changed { name, data } => with(action::SCOPE_CHANGED, name, data),
        Scope::Error {
            reason,
            action,
            name,
        } => Fields {
            is_error: Some(true),
            original_action: Some(action_to_wire(*action)),
            ..Fields::named(reason_to_wire(*reason), name)
        },
    }
}

fn reason_from_wire(number: u32) -> Option<ScopeReason> {
    Some(match number {
        action::MESSAGE_PERMISSION_ERROR => ScopeReason::RuleFailed,
        action::MESSAGE_DENIED => ScopeReason::Denied,
        action::INVALID_SCOPE_DATA => ScopeReason::Invalid,
        action::STATE_TOO_LARGE => ScopeReason::TooLarge,
        action::TOO_MANY_SCOPES => ScopeReason::TooMany,
        action::SCOPE_FULL => ScopeReason::Full,
        action::NOT_A_MEMBER => ScopeReason::NotMember,
        action::SCOPE_UNAVAILABLE => ScopeReason::Unavailable,
        _ => return None,
    })
}

fn reason_to_wire(reason: ScopeReason) -> u32 {
    match reason {
        ScopeReason::RuleFailed => action::MESSAGE_PERMISSION_ERROR,
        ScopeReason::Denied => action::MESSAGE_DENIED,
        ScopeReason::Invalid => action::INVALID_SCOPE_DATA,
        ScopeReason::TooLarge => action::STATE_TOO_LARGE,
        ScopeReason::TooMany => action::TOO_MANY_SCOPES,
        ScopeReason::Full => action::SCOPE_FULL,
        ScopeReason::NotMember => action::NOT_A_MEMBER,
        ScopeReason::Unavailable => action::SCOPE_UNAVAILABLE,
    }
}

fn action_from_wire(number: u32) -> Option<ScopeAction> {
    match number {
        action::SCOPE_JOIN => Some(ScopeAction::Join),
        action::SCOPE_UPDATE => Some(ScopeAction::Update),
        action::SCOPE_SUBSCRIBE => Some(ScopeAction::Subscribe),
        _ => None,
    }
}

fn action_to_wire(action: ScopeAction) -> u32 {
    match action {
        ScopeAction::Join => action::SCOPE_JOIN,
        ScopeAction::Update => action::SCOPE_UPDATE,
        ScopeAction::Subscribe => action::SCOPE_SUBSCRIBE,
    }
}

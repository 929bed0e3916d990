//! Listening, which is the same for events and records except for the numbers.

use tidewire_core::message::Listen;

use super::action;
use super::fields::Fields;

/// The numbers of one topic.
pub(super) struct Numbers {
    listen: u32,
    unlisten: u32,
    accept: u32,
    reject: u32,
    found: u32,
    removed: u32,
    invalid_pattern: u32,
    response_timeout: u32,
    multiple: u32,
}

pub(super) const EVENT: Numbers = Numbers {
    listen: action::event::LISTEN,
    unlisten: 6,
    accept: 7,
    reject: 8,
    found: 11,
    removed: 12,
    invalid_pattern: 100,
    response_timeout: 101,
    multiple: action::event::MULTIPLE_SUBSCRIPTIONS,
};

pub(super) const RECORD: Numbers = Numbers {
    listen: action::record::LISTEN,
    unlisten: 28,
    accept: 29,
    reject: 30,
    found: 33,
    removed: 34,
    invalid_pattern: 110,
    response_timeout: 111,
    multiple: action::record::MULTIPLE_SUBSCRIPTIONS,
};

/// The listening message, `None` if it is another message of the topic.
pub(super) fn from_wire<'a>(numbers: &Numbers, fields: &Fields<'a>) -> Option<Listen<'a>> {
    let pattern = fields.name();
    let subscription = fields.subscription.unwrap_or_default();
    Some(match fields.action {
        number if number == numbers.listen && fields.is_ack() => Listen::ListenAck { pattern },
        number if number == numbers.listen => Listen::Listen { pattern },
        number if number == numbers.unlisten && fields.is_ack() => Listen::UnlistenAck { pattern },
        number if number == numbers.unlisten => Listen::Unlisten { pattern },
        number if number == numbers.accept => Listen::Accept {
            pattern,
            subscription,
        },
        number if number == numbers.reject => Listen::Reject {
            pattern,
            subscription,
        },
        number if number == numbers.found => Listen::Found {
            pattern,
            subscription,
        },
        number if number == numbers.removed => Listen::Removed {
            pattern,
            subscription,
        },
        number if number == numbers.response_timeout => Listen::ResponseTimeout { subscription },
        number if number == numbers.invalid_pattern => Listen::InvalidPattern { pattern },
        number if number == numbers.multiple && fields.original_action == Some(numbers.listen) => {
            Listen::AlreadyListening { pattern }
        }
        _ => return None,
    })
}

pub(super) fn to_wire<'m>(numbers: &Numbers, message: &'m Listen<'_>) -> Fields<'m> {
    let provided = |action, pattern, subscription| Fields {
        subscription: Some(subscription),
        ..Fields::named(action, pattern)
    };
    match *message {
        Listen::Listen { pattern } => Fields::named(numbers.listen, pattern),
        Listen::Unlisten { pattern } => Fields::named(numbers.unlisten, pattern),
        Listen::ListenAck { pattern } => Fields {
            name: Some(pattern),
            ..Fields::ack(numbers.listen, None)
        },
        Listen::UnlistenAck { pattern } => Fields {
            name: Some(pattern),
            ..Fields::ack(numbers.unlisten, None)
        },
        Listen::Accept {
            pattern,
            subscription,
        } => provided(numbers.accept, pattern, subscription),
        Listen::Reject {
            pattern,
            subscription,
        } => provided(numbers.reject, pattern, subscription),
        Listen::Found {
            pattern,
            subscription,
        } => provided(numbers.found, pattern, subscription),
        Listen::Removed {
            pattern,
            subscription,
        } => provided(numbers.removed, pattern, subscription),
        Listen::ResponseTimeout { subscription } => Fields {
            subscription: Some(subscription),
            ..Fields::new(numbers.response_timeout)
        },
        Listen::InvalidPattern { pattern } => Fields::named(numbers.invalid_pattern, pattern),
        Listen::AlreadyListening { pattern } => Fields {
            original_action: Some(numbers.listen),
            ..Fields::named(numbers.multiple, pattern)
        },
    }
}

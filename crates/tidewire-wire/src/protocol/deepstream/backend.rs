//! Topic BACKEND: programs with application logic. An addition of Tidewire, which clients of deepstream do not use. The number of an action is
//! that of its kind. Contract: `spec/backend.md`.

use tidewire_core::attachments::Attachments;
use tidewire_core::message::{Backend, BackendKind};

use super::action::backend as action;
use super::fields::Fields;

/// The message of backends in `fields`, `None` for an action that no peer sends.
pub(super) fn from_wire(fields: Fields<'_>) -> Option<Backend<'_>> {
    let kind = BackendKind::of(fields.action)?;
    let attachments = fields.attachments.iter().copied();
    Some(Backend {
        session: fields.session,
        name: fields.name,
        data: fields.data,
        correlation: fields.correlation,
        attachments: Attachments::new(attachments),
        count: fields.count.unwrap_or_default(),
        timeout: fields.timeout.unwrap_or_default(),
        is_local: fields.is_local == Some(true),
        names: fields.names.into_owned(),
        except: fields.except.into_owned(),
        ..Backend::new(kind)
    })
}

pub(super) fn to_wire<'m>(message: &'m Backend<'_>) -> Fields<'m> {
    let attachments = message.attachments.iter().flat_map(Attachments::iter);
    let is_error = matches!(
        message.kind as u32,
        action::NOT_A_BACKEND | action::INVALID_COMMAND | action::ASK_FAILED
    );
    Fields {
        session: message.session,
        name: message.name,
        data: message.data,
        correlation: message.correlation,
        is_error: is_error.then_some(true),
        attachments: attachments.collect(),
        count: (message.count > 0).then_some(message.count),
        timeout: (message.timeout > 0).then_some(message.timeout),
        is_local: message.is_local.then_some(true),
        names: message.names.as_slice().into(),
        except: message.except.as_slice().into(),
        ..Fields::new(message.kind as u32)
    }
}

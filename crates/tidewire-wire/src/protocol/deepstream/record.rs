//! Topic RECORD: versioned documents.

use tidewire_core::message::{
    Change, Only, Reason, Record, RecordAction, RecordBulk, Refusal, Tag, Write, WriteKey,
};

use super::action::record as action;
use super::fields::Fields;
use super::{DecodeError, Dialect, listen};
use crate::protobuf::FieldError;

/// The numbers of [`Only`].
const ALWAYS: u32 = 0;
const MISSING: u32 = 1;
const PRESENT: u32 = 2;
const IS: u32 = 3;

/// The record message in `fields`, `None` for an action that no peer sends.
pub(super) fn from_wire(fields: Fields<'_>) -> Result<Option<Record<'_>>, DecodeError> {
    if let Some(message) = listen::from_wire(&listen::RECORD, &fields) {
        return Ok(Some(Record::Listen(message)));
    }
    if let Some(change) = change_from_wire(fields.action, fields.path, fields.data) {
        return Ok(Some(Record::Write(write_from_wire(&fields)?, change)));
    }
    let (name, correlation) = (fields.name(), fields.correlation);
    if let Some(action) = bulk_from_wire(fields.action) {
        let acked = fields.is_ack();
        let names = fields.names.into_owned();
        return Ok(Some(match acked {
            true => Record::Ack {
                action,
                names,
                correlation,
            },
            false => Record::Bulk {
                action,
                names,
                correlation,
            },
        }));
    }
    let version = fields.version.unwrap_or_default();
    Ok(Some(match fields.action {
        action::READ => Record::Read { name },
        action::HEAD => Record::Head { name },
        action::DELETE => Record::Delete { name },
        action::READ_RESPONSE => Record::ReadResponse {
            name,
            version,
            data: fields.data.unwrap_or_default(),
            incarnation: fields.incarnation,
        },
        action::HEAD_RESPONSE => Record::HeadResponse { name, version },
        action::HEAD_RESPONSE_BULK => Record::HeadResponseBulk {
            versions: fields.versions.into_owned(),
        },
        action::DELETE_SUCCESS => Record::DeleteSuccess { name },
        action::DELETED => Record::Deleted { name },
        action::FETCH => Record::Fetch {
            name,
            correlation: correlation.unwrap_or_default(),
        },
        action::FETCHED => Record::Fetched {
            name,
            correlation: correlation.unwrap_or_default(),
            state: tag_from_wire(&fields).map(|tag| (tag, fields.data.unwrap_or_default())),
        },
        action::PUT => Record::Put {
            name,
            correlation: correlation.unwrap_or_default(),
            only: only_from_wire(&fields)?,
            data: fields.data,
        },
        action::STORED => Record::Stored {
            name,
            correlation: correlation.unwrap_or_default(),
            existed: fields.existed == Some(true),
            tag: tag_from_wire(&fields),
        },
        action::COMMIT => Record::Commit {
            correlation: correlation.unwrap_or_default(),
            data: fields.data,
            names: fields.names.into_owned(),
        },
        action::COMMITTED => Record::Committed {
            correlation: correlation.unwrap_or_default(),
            data: fields.data.unwrap_or_default(),
        },
        action::PRECONDITION_FAILED => Record::PreconditionFailed {
            name,
            correlation: correlation.unwrap_or_default(),
            tag: tag_from_wire(&fields),
        },
        action::WRITE_ACKNOWLEDGEMENT => Record::WriteAck { name, correlation },
        action::HAS_PROVIDER => Record::HasProvider {
            name,
            provided: true,
        },
        action::HAS_NO_PROVIDER => Record::HasProvider {
            name,
            provided: false,
        },
        _ => return error_from_wire(&fields).map(|error| error.map(Record::Error)),
    }))
}

/// The state in a message; absent if the record does not exist.
fn tag_from_wire(fields: &Fields<'_>) -> Option<Tag> {
    Some(Tag {
        incarnation: fields.incarnation?,
        version: fields.version.unwrap_or_default(),
    })
}

fn only_from_wire(fields: &Fields<'_>) -> Result<Only, DecodeError> {
    Ok(match (fields.only, tag_from_wire(fields)) {
        (None | Some(ALWAYS), _) => Only::Always,
        (Some(MISSING), _) => Only::Missing,
        (Some(PRESENT), _) => Only::Present,
        (Some(IS), Some(tag)) => Only::Is(tag),
        // An unknown condition must not be ignored.
        _ => return Err(DecodeError::Field(FieldError::Range)),
    })
}

fn tagged<'a>(action: u32, name: &'a str, correlation: &'a str, tag: Option<Tag>) -> Fields<'a> {
    Fields {
        correlation: Some(correlation),
        incarnation: tag.map(|tag| tag.incarnation),
        version: tag.map(|tag| tag.version),
        ..Fields::named(action, name)
    }
}

fn write_from_wire<'a>(fields: &Fields<'a>) -> Result<Write<'a>, DecodeError> {
    let seen = match (fields.seen_version, fields.incarnation) {
        (None, _) => None,
        (Some(version), Some(incarnation)) => Some(Tag {
            incarnation,
            version,
        }),
        // Without the incarnation the version could be that of another creation of the record.
        (Some(_), None) => return Err(DecodeError::Field(FieldError::Range)),
    };
    Ok(Write {
        name: fields.name(),
        version: fields.version.unwrap_or_default(),
        correlation: fields.correlation,
        write_ack: fields.is_write_ack == Some(true),
        key: fields.key.map(|text| WriteKey { text, seen }),
    })
}

/// The change of an action, `None` for actions without one.
pub(super) fn change_from_wire<'a>(
    action: u32,
    path: Option<&'a str>,
    data: Option<&'a str>,
) -> Option<Change<'a>> {
    Some(match action {
        action::UPDATE => Change::Update { data },
        action::PATCH => Change::Patch {
            path: path.unwrap_or_default(),
            data,
        },
        action::ERASE => Change::Erase { path },
        action::PATCH_MULTI => Change::PatchMulti { data, full: None },
        action::CREATE_AND_UPDATE => Change::CreateAndUpdate { data },
        action::CREATE_AND_PATCH => Change::CreateAndPatch { path, data },
        _ => return None,
    })
}

fn error_from_wire<'a>(
    fields: &Fields<'a>,
) -> Result<Option<Refusal<'a, RecordAction>>, DecodeError> {
    let refused = |reason| fields.refusal(reason, action_from_wire);
    let failed = |reason| refused(reason).map(as_load_error);
    let version = Some(fields.version.unwrap_or_default());
    Ok(Some(match fields.action {
        action::MESSAGE_DENIED => refused(Reason::Denied)?,
        action::MESSAGE_PERMISSION_ERROR => refused(Reason::RuleFailed)?,
        action::INVALID_MESSAGE_DATA => refused(Reason::InvalidData)?,
        action::MULTIPLE_SUBSCRIPTIONS => {
            let action = RecordAction::Bulk(RecordBulk::Subscribe);
            fields.named_refusal(Reason::MultipleSubscriptions, action)
        }
        action::VERSION_EXISTS => Refusal {
            name: Some(fields.name()),
            version,
            data: fields.data,
            ..refused(Reason::VersionExists)?
        },
        action::INVALID_VERSION => Refusal {
            name: Some(fields.name()),
            version,
            ..refused(Reason::InvalidVersion)?
        },
        action::RECORD_NOT_FOUND => {
            let action = fields.original(action_from_wire)?;
            fields.named_refusal(Reason::NotFound, action)
        }
        action::CACHE_RETRIEVAL_TIMEOUT | action::STORAGE_RETRIEVAL_TIMEOUT => {
            failed(Reason::LoadTimeout)?
        }
        action::RECORD_LOAD_ERROR => failed(Reason::LoadFailed)?,
        action::RECORD_CREATE_ERROR => failed(Reason::CreateFailed)?,
        // Peers do not send the original action of this error.
        action::RECORD_UPDATE_ERROR => Refusal {
            name: fields.name,
            correlation: fields.correlation,
            write_ack: fields.is_write_ack == Some(true),
            ..Refusal::new(Reason::UpdateFailed, RecordAction::Update)
        },
        action::RECORD_DELETE_ERROR => {
            fields.named_refusal(Reason::DeleteFailed, RecordAction::Delete)
        }
        action::RECORD_NOTIFY_ERROR => Refusal {
            data: Some(fields.data.unwrap_or_default()),
            correlation: fields.correlation,
            ..Refusal::new(Reason::NotifyFailed, RecordAction::Bulk(RecordBulk::Notify))
        },
        action::INVALID_PATCH_ON_HOTPATH => refused(Reason::PatchOnHotPath)?,
        action::WRITE_UNKNOWN => refused(Reason::WriteUnknown)?,
        action::TRANSACTION_REFUSED => Refusal {
            data: Some(fields.data.unwrap_or_default()),
            ..refused(Reason::TransactionRefused)?
        },
        _ => return Ok(None),
    }))
}

pub(super) fn to_wire<'m>(dialect: Dialect, message: &'m Record<'_>) -> Fields<'m> {
    match message {
        Record::Bulk {
            action,
            names,
            correlation,
        } => Fields::bulk(bulk_to_wire(*action), names, *correlation),
        Record::Ack {
            action,
            names,
            correlation,
        } => Fields {
            names: (&names[..]).into(),
            ..Fields::ack(bulk_to_wire(*action), *correlation)
        },
        Record::Read { name } => Fields::named(action::READ, name),
        Record::Head { name } => Fields::named(action::HEAD, name),
        Record::Delete { name } => Fields::named(action::DELETE, name),
        Record::Write(write, change) => write_to_wire(dialect, write, change),
        Record::ReadResponse {
            name,
            version,
            data,
            incarnation,
        } => Fields {
            data: Some(data),
            incarnation: *incarnation,
            ..versioned(action::READ_RESPONSE, name, *version)
        },
        Record::HeadResponse { name, version } => versioned(action::HEAD_RESPONSE, name, *version),
        Record::HeadResponseBulk { versions } => Fields {
            versions: (&versions[..]).into(),
            ..Fields::new(action::HEAD_RESPONSE_BULK)
        },
        Record::DeleteSuccess { name } => Fields::named(action::DELETE_SUCCESS, name),
        Record::Deleted { name } => Fields::named(action::DELETED, name),
        Record::Fetch { name, correlation } => tagged(action::FETCH, name, correlation, None),
        Record::Fetched {
            name,
            correlation,
            state,
        } => Fields {
            data: state.map(|(_, data)| data),
            ..tagged(
                action::FETCHED,
                name,
                correlation,
                state.map(|(tag, _)| tag),
            )
        },
        Record::Put {
            name,
            correlation,
            only,
            data,
        } => {
            let (number, tag) = match only {
                Only::Always => (ALWAYS, None),
                Only::Missing => (MISSING, None),
                Only::Present => (PRESENT, None),
                Only::Is(tag) => (IS, Some(*tag)),
            };
            Fields {
                only: Some(number),
                data: *data,
                ..tagged(action::PUT, name, correlation, tag)
            }
        }
        Record::Stored {
            name,
            correlation,
            existed,
            tag,
        } => Fields {
            existed: Some(*existed),
            ..tagged(action::STORED, name, correlation, *tag)
        },
        Record::Commit {
            names,
            correlation,
            data,
        } => Fields {
            names: (&names[..]).into(),
            correlation: Some(correlation),
            data: *data,
            ..Fields::new(action::COMMIT)
        },
        Record::Committed { correlation, data } => Fields {
            correlation: Some(correlation),
            data: Some(data),
            ..Fields::new(action::COMMITTED)
        },
        Record::PreconditionFailed {
            name,
            correlation,
            tag,
        } => tagged(action::PRECONDITION_FAILED, name, correlation, *tag),
        Record::WriteAck { name, correlation } => Fields {
            correlation: *correlation,
            is_write_ack: Some(true),
            ..Fields::named(action::WRITE_ACKNOWLEDGEMENT, name)
        },
        Record::HasProvider {
            name,
            provided: true,
        } => Fields::named(action::HAS_PROVIDER, name),
        Record::HasProvider {
            name,
            provided: false,
        } => Fields::named(action::HAS_NO_PROVIDER, name),
        Record::Listen(message) => listen::to_wire(&listen::RECORD, message),
        Record::Error(error) => error_to_wire(error),
    }
}

fn write_to_wire<'m>(dialect: Dialect, write: &Write<'m>, change: &Change<'m>) -> Fields<'m> {
    let (action, path, data) = change_to_wire(dialect, change);
    let seen = write.key.and_then(|key| key.seen);
    Fields {
        path,
        data,
        correlation: write.correlation,
        is_write_ack: write.write_ack.then_some(true),
        key: write.key.map(|key| key.text),
        seen_version: seen.map(|seen| seen.version),
        incarnation: seen.map(|seen| seen.incarnation),
        ..versioned(action, write.name, write.version)
    }
}

/// Action, path and data of a change for this reader: a client gets a deleted path as a patch without data, and an
/// old one gets the whole value instead of a list of patches.
pub(super) fn change_to_wire<'m>(
    dialect: Dialect,
    change: &Change<'m>,
) -> (u32, Option<&'m str>, Option<&'m str>) {
    match *change {
        Change::Update { data } => (action::UPDATE, None, data),
        Change::Patch { path, data } => (action::PATCH, Some(path), data),
        Change::Erase { path } if dialect == Dialect::Server => (action::ERASE, path, None),
        Change::Erase { path } => (action::PATCH, Some(path.unwrap_or_default()), None),
        Change::PatchMulti {
            full: Some(full), ..
        } if dialect == Dialect::Client => (action::UPDATE, None, Some(full)),
        Change::PatchMulti { data, .. } => (action::PATCH_MULTI, None, data),
        Change::CreateAndUpdate { data } => (action::CREATE_AND_UPDATE, None, data),
        Change::CreateAndPatch { path, data } => (action::CREATE_AND_PATCH, path, data),
    }
}

fn error_to_wire<'m>(refusal: &Refusal<'m, RecordAction>) -> Fields<'m> {
    let refused = |number| Fields::refused(number, refusal, action_to_wire);
    let name = refusal.name.unwrap_or_default();
    let original_action = Some(action_to_wire(refusal.action));
    let conflict = |number| Fields {
        original_action,
        correlation: refusal.correlation,
        is_write_ack: refusal.write_ack.then_some(true),
        ..versioned(number, name, refusal.version.unwrap_or_default())
    };
    match refusal.reason {
        Reason::RuleFailed => refused(action::MESSAGE_PERMISSION_ERROR),
        Reason::InvalidData => refused(action::INVALID_MESSAGE_DATA),
        Reason::PatchOnHotPath => refused(action::INVALID_PATCH_ON_HOTPATH),
        Reason::WriteUnknown => refused(action::WRITE_UNKNOWN),
        Reason::TransactionRefused => Fields {
            data: refusal.data,
            ..refused(action::TRANSACTION_REFUSED)
        },
        Reason::LoadTimeout => load_error(action::STORAGE_RETRIEVAL_TIMEOUT, refusal),
        Reason::LoadFailed => load_error(action::RECORD_LOAD_ERROR, refusal),
        Reason::CreateFailed => Fields {
            is_error: refusal.write_ack.then_some(true),
            ..load_error(action::RECORD_CREATE_ERROR, refusal)
        },
        Reason::UpdateFailed => Fields {
            original_action: None,
            ..refused(action::RECORD_UPDATE_ERROR)
        },
        Reason::MultipleSubscriptions => Fields {
            original_action,
            ..Fields::named(action::MULTIPLE_SUBSCRIPTIONS, name)
        },
        Reason::VersionExists => Fields {
            data: refusal.data,
            ..conflict(action::VERSION_EXISTS)
        },
        Reason::InvalidVersion => Fields {
            is_error: Some(true),
            ..conflict(action::INVALID_VERSION)
        },
        Reason::NotFound => Fields {
            original_action,
            is_error: Some(true),
            ..Fields::named(action::RECORD_NOT_FOUND, name)
        },
        Reason::DeleteFailed => Fields::named(action::RECORD_DELETE_ERROR, name),
        Reason::NotifyFailed => Fields {
            data: refusal.data,
            correlation: refusal.correlation,
            is_error: Some(true),
            ..Fields::new(action::RECORD_NOTIFY_ERROR)
        },
        // Records have no other reasons.
        _ => refused(action::MESSAGE_DENIED),
    }
}

/// A failed load has the correlation id of an acknowledged write only, whose callback needs it.
fn as_load_error(refusal: Refusal<'_, RecordAction>) -> Refusal<'_, RecordAction> {
    let correlation = refusal.correlation.filter(|_| refusal.write_ack);
    Refusal {
        correlation,
        ..refusal
    }
}

fn load_error<'m>(action: u32, refusal: &Refusal<'m, RecordAction>) -> Fields<'m> {
    Fields::refused(action, &as_load_error(*refusal), action_to_wire)
}

/// A message with a version, which is written even if it is 0.
fn versioned(action: u32, name: &str, version: i32) -> Fields<'_> {
    Fields {
        version: Some(version),
        ..Fields::named(action, name)
    }
}

fn bulk_from_wire(number: u32) -> Option<RecordBulk> {
    match number {
        action::SUBSCRIBE => Some(RecordBulk::Subscribe),
        action::UNSUBSCRIBE => Some(RecordBulk::Unsubscribe),
        action::SUBSCRIBE_CREATE_AND_READ => Some(RecordBulk::SubscribeCreateAndRead),
        action::SUBSCRIBE_AND_READ => Some(RecordBulk::SubscribeAndRead),
        action::SUBSCRIBE_AND_HEAD => Some(RecordBulk::SubscribeAndHead),
        action::NOTIFY => Some(RecordBulk::Notify),
        _ => None,
    }
}

fn bulk_to_wire(bulk: RecordBulk) -> u32 {
    match bulk {
        RecordBulk::Subscribe => action::SUBSCRIBE,
        RecordBulk::Unsubscribe => action::UNSUBSCRIBE,
        RecordBulk::SubscribeCreateAndRead => action::SUBSCRIBE_CREATE_AND_READ,
        RecordBulk::SubscribeAndRead => action::SUBSCRIBE_AND_READ,
        RecordBulk::SubscribeAndHead => action::SUBSCRIBE_AND_HEAD,
        RecordBulk::Notify => action::NOTIFY,
    }
}

fn action_from_wire(number: u32) -> Option<RecordAction> {
    Some(match number {
        action::READ => RecordAction::Read,
        action::HEAD => RecordAction::Head,
        action::DELETE => RecordAction::Delete,
        action::UPDATE => RecordAction::Update,
        action::PATCH => RecordAction::Patch,
        action::ERASE => RecordAction::Erase,
        action::PATCH_MULTI => RecordAction::PatchMulti,
        action::CREATE_AND_UPDATE => RecordAction::CreateAndUpdate,
        action::CREATE_AND_PATCH => RecordAction::CreateAndPatch,
        action::LISTEN => RecordAction::Listen,
        _ => RecordAction::Bulk(bulk_from_wire(number)?),
    })
}

fn action_to_wire(action: RecordAction) -> u32 {
    match action {
        RecordAction::Bulk(bulk) => bulk_to_wire(bulk),
        RecordAction::Read => action::READ,
        RecordAction::Head => action::HEAD,
        RecordAction::Delete => action::DELETE,
        RecordAction::Update => action::UPDATE,
        RecordAction::Patch => action::PATCH,
        RecordAction::Erase => action::ERASE,
        RecordAction::PatchMulti => action::PATCH_MULTI,
        RecordAction::CreateAndUpdate => action::CREATE_AND_UPDATE,
        RecordAction::CreateAndPatch => action::CREATE_AND_PATCH,
        RecordAction::Listen => action::LISTEN,
    }
}

//! Requests in the form that the model keeps, and the check that an owner got the request that the shard sent.

use std::collections::BTreeMap;
use std::rc::Rc;

use tidewire_core::address::SessionId;
use tidewire_core::entry::{RecordOperation, RecordRead, RecordRequestKind};
use tidewire_core::message::{RecordAction, RecordBulk};

use crate::permission::gate_of;
use crate::wire::{Act, Delta};

/// The client message that caused an effect, and the messages that its sender had seen by then.
#[derive(Clone, Debug)]
pub struct Stamp {
    pub session: SessionId,
    pub number: u64,
    pub seen: Rc<Seen>,
}

/// For each session: its newest message whose effects a client has seen, directly or through other clients.
pub type Seen = BTreeMap<SessionId, u64>;

/// A request for one record in flight to the owner.
#[derive(Clone, Debug)]
pub struct Request {
    pub name: String,
    pub stamp: Rc<Stamp>,
    pub kind: RequestKind,
    /// The correlation id of the bulk message, which gets its acknowledgement once all its names are done.
    pub bulk: Option<String>,
}

#[derive(Clone, Debug)]
pub enum RequestKind {
    Subscribe {
        action: RecordBulk,
        instance: usize,
    },
    Read,
    Head,
    Delete,
    Notify,
    /// The second half of `Notify`, after the load.
    Reloaded,
    Write {
        version: i32,
        id: Option<String>,
        act: Act,
        delta: Delta,
    },
}

impl RequestKind {
    /// Whether the permission reads a gate for this request.
    pub(super) fn is_ruled(&self, name: &str) -> bool {
        matches!(self, Self::Delete | Self::Write { .. }) && gate_of(name).is_some()
    }
}

/// Whether the owner got the request that the shard sent.
pub(super) fn is_same(got: &RecordRequestKind, sent: &[Request]) -> bool {
    let [first, ..] = sent else {
        return false;
    };
    match (got, &first.kind) {
        (
            RecordRequestKind::Bulk { action, names, .. },
            RequestKind::Subscribe { .. } | RequestKind::Notify,
        ) => {
            let wanted = match first.kind {
                RequestKind::Subscribe { action, .. } => action,
                _ => RecordBulk::Notify,
            };
            *action == wanted
                && names.len() == sent.len()
                && names
                    .iter()
                    .zip(sent)
                    .all(|(one, request)| one.name.as_str() == request.name)
        }
        (
            RecordRequestKind::One(name, RecordOperation::Read(RecordRead::Value)),
            RequestKind::Read,
        )
        | (
            RecordRequestKind::One(name, RecordOperation::Read(RecordRead::Version)),
            RequestKind::Head,
        )
        | (RecordRequestKind::One(name, RecordOperation::Delete), RequestKind::Delete) => {
            name.as_str() == first.name
        }
        (
            RecordRequestKind::One(name, RecordOperation::Write(write)),
            RequestKind::Write {
                version, id, act, ..
            },
        ) => {
            name.as_str() == first.name
                && write.version.map_or(-1, |version| i64::from(version.0)) == i64::from(*version)
                && write.correlation.as_deref() == id.as_deref()
                && write.action == action_of(*act)
        }
        _ => false,
    }
}

fn action_of(act: Act) -> RecordAction {
    match act {
        Act::Update => RecordAction::Update,
        Act::Patch => RecordAction::Patch,
        Act::Erase => RecordAction::Erase,
        Act::PatchMulti => RecordAction::PatchMulti,
        Act::CreateAndUpdate => RecordAction::CreateAndUpdate,
        Act::CreateAndPatch => RecordAction::CreateAndPatch,
    }
}

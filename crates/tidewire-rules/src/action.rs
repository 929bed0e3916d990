//! The numbers of actions, which rules see as `action`.

use tidewire_core::message::{PresenceAction, RecordAction, RecordBulk};
use tidewire_core::permission::{Access, RequestedAction};

/// The action number of a question. Each step of a compound action has the number of the step.
pub(crate) fn number(access: Access, by: RequestedAction) -> u8 {
    match (access, by) {
        (Access::EventPublish, _) => 2,
        (Access::EventSubscribe, _) => 3,
        (Access::EventListen, _) => 5,
        (Access::RpcProvide, _) => 8,
        (Access::RpcRequest, _) => 2,
        (Access::RecordCreate, _) => 15,
        (Access::RecordListen, _) => 27,
        (Access::RecordNotify, _) => 2,
        (Access::RecordRead, RequestedAction::Record(action)) => read(action),
        (Access::RecordRead, _) => 3,
        (Access::RecordWrite, RequestedAction::Record(action)) => write(action),
        (Access::RecordWrite, _) => 18,
        (Access::RecordDelete, RequestedAction::Record(RecordAction::Erase)) => 20,
        (Access::RecordDelete, _) => 9,
        (Access::Presence, RequestedAction::Presence(action)) => presence(action),
        (Access::Presence, _) => 2,
        (Access::PresenceJoin, _) => 60,
        (Access::PresenceSubscribe, _) => 64,
    }
}

fn read(action: RecordAction) -> u8 {
    match action {
        RecordAction::Head => 5,
        RecordAction::Bulk(RecordBulk::SubscribeAndHead) => 21,
        RecordAction::Bulk(RecordBulk::SubscribeAndRead) => 22,
        RecordAction::Bulk(RecordBulk::Subscribe) => 25,
        _ => 3,
    }
}

fn write(action: RecordAction) -> u8 {
    match action {
        RecordAction::Patch | RecordAction::CreateAndPatch => 19,
        RecordAction::PatchMulti => 35,
        _ => 18,
    }
}

fn presence(action: PresenceAction) -> u8 {
    match action {
        PresenceAction::QueryAll => 2,
        PresenceAction::Query => 4,
        PresenceAction::Subscribe => 10,
        PresenceAction::Unsubscribe => 11,
        PresenceAction::SubscribeAll => 12,
        PresenceAction::UnsubscribeAll => 13,
    }
}

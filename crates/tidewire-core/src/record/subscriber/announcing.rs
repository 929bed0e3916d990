//! Subscriptions whose record has passed to another owner: the session's shard announces them, and the new owner continues them.

use std::collections::BTreeMap;

use super::subscription::{TOPIC, forget_subscription, release};
use crate::address::{Address, SessionId};
use crate::context::TurnContext;
use crate::effect::{CloseReason, Effects};
use crate::entry::{AnnouncedRecord, Entry, Resumed, Snapshot, ViewEntry};
use crate::message::{Message, Record, Tag, WireVersion};
use crate::query::collection::is_under;
use crate::record::subscriber::catch_up;
use crate::session::SessionFlag;
use crate::store::{Incarnation, Version};
use crate::text::Name;

/// Notes the state of a record that its subscribers on this shard have. Names pass to other owners only between nodes.
pub(crate) fn note_shown<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    name: &str,
    shown: Option<Tag>,
) {
    if turn.shard.is_clustered {
        let shown = shown.map(|tag| (tag.incarnation, tag.version as u64));
        turn.hub.set_shown(TOPIC, name, shown);
    }
}

/// Notes to which creation of the record the next change belongs.
pub(crate) fn note_incarnation<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    name: &str,
    incarnation: Incarnation,
) {
    if turn.shard.is_clustered {
        let version = turn
            .hub
            .shown(TOPIC, name)
            .map_or(0, |(_, version)| version);
        turn.hub
            .set_shown(TOPIC, name, Some((incarnation.0, version)));
    }
}

/// Notes the version of a change, which is of the same creation of the record as the state before.
pub(crate) fn note_version<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    name: &str,
    version: WireVersion,
) {
    if turn.shard.is_clustered
        && let Some((incarnation, _)) = turn.hub.shown(TOPIC, name)
    {
        turn.hub
            .set_shown(TOPIC, name, Some((incarnation, version as u64)));
    }
}

/// Posts the granted subscriptions to such records to their owners, with the state that the sessions have.
pub(crate) fn announce<E: Effects>(turn: &mut TurnContext<'_, E>, is_moved: impl Fn(&str) -> bool) {
    for index in 0..turn.sessions.table_len() {
        let Some(session) = turn.sessions.at(index as u32) else {
            continue;
        };
        let (Some(principal), Some(state)) = (session.principal(), &session.state) else {
            continue;
        };
        let (id, principal) = (session.id, principal.clone());
        let moved = state.subscriptions.iter();
        let moved = moved.filter(|(name, held)| held.granted.is_some() && is_moved(name));
        let moved =
            moved.filter_map(|(name, held)| Some((name.clone(), held.serial, held.granted?)));
        let mut moved: Vec<(Name, u32, u64)> = moved.collect();
        moved.sort_unstable();
        let mut by_owner: BTreeMap<Address, Vec<AnnouncedRecord>> = BTreeMap::new();
        for (name, serial, epoch) in moved {
            let shown = turn.hub.shown(TOPIC, &name);
            let shown = shown.map(|(incarnation, version)| Tag {
                incarnation,
                version: version as WireVersion,
            });
            let owner = turn.shard.owner(&name);
            by_owner.entry(owner).or_default().push(AnnouncedRecord {
                name,
                serial,
                epoch,
                shown,
            });
        }
        for (owner, names) in by_owner {
            let records = ViewEntry::Records {
                session: id,
                principal: principal.clone(),
                names,
            };
            turn.post(owner, Entry::View(records));
        }
    }
}

/// Handles that the new owner continues a subscription. After a crash of the former owner, the record may have another state than the
/// session has: newer, because changes were lost on their way, or older, because the store did not have them yet.
pub(crate) fn resumed<E: Effects>(
    turn: &mut TurnContext<'_, E>,
    id: SessionId,
    name: &Name,
    resumed: Resumed,
) {
    let Resumed {
        serial,
        epoch,
        provided,
        shown,
        snapshot,
    } = resumed;
    let is_hot = is_under(&turn.shard.settings.hot_path_prefixes, name);
    let Some(session) = turn.sessions.find_mut(id) else {
        return release(turn, name.clone(), epoch, (id, serial));
    };
    let allows_jumps = session.has(SessionFlag::Coalesces);
    let state = session.state.as_mut();
    let held = state.and_then(|with| with.subscriptions.get_mut(name));
    let Some(held) = held.filter(|held| held.serial == serial) else {
        return release(turn, name.clone(), epoch, (id, serial));
    };
    held.granted = Some(epoch);
    match snapshot {
        Snapshot::Read(Some((tag, data))) => {
            let version = Version(u32::try_from(tag.version).unwrap_or(u32::MAX));
            // A session that applies each change in turn can take the next one as a whole value.
            let is_next = match shown {
                Some(shown) => {
                    is_hot
                        || (shown.incarnation, shown.version + 1) == (tag.incarnation, tag.version)
                }
                None => version == Version::CREATED,
            };
            if allows_jumps || is_next {
                catch_up(turn, id, name, version, &data);
            } else {
                // No later change may reach it before its connection ends.
                turn.hub.revoke(TOPIC, name, id, turn.sessions);
                turn.out.close(id, CloseReason::NotCaughtUp);
            }
            note_shown(turn, name, Some(tag));
        }
        Snapshot::Read(None) => {
            turn.send(id, &Message::Record(Record::Deleted { name }));
            turn.hub.leave(TOPIC, name, id, turn.sessions);
            forget_subscription(turn, id, name, Some(serial));
            return release(turn, name.clone(), epoch, (id, serial));
        }
        Snapshot::Head(_) | Snapshot::Known(_) | Snapshot::Nothing => {}
    }
    if provided {
        turn.send(id, &Message::Record(Record::HasProvider { name, provided }));
    }
}

//! The registry of members in Redis, and the scripts that change who may write.
//!
//! All of it is in the meta hash: `view`, `members` (their number), `member:BIRTH` with the node of each member, `joining:BIRTH` with the
//! node of each process that belongs to no view yet, `connection:BIRTH`, and `epoch:SLOT`. So a transaction that watches this one key notices
//! each change.

use std::collections::HashMap;
use std::sync::LazyLock;

use redis::{Connection, RedisResult, Script};
use tidewire_core::address::Epoch;
use tidewire_core::store::{MemberId, Opened, Registry, StoreError, StoredView, View};

use super::{Location, META};
use crate::epoch_after;
use crate::remote::{Membership, unknown_member};

/// Stores an opening. Arguments: this version's format, the epoch to use after an unclean stop, the number of the node, and whether the
/// process writes alone. Returns format, epoch and opening. The format is raised before the records are changed, so that no older server
/// opens a store that has rows and hashes.
static OPEN: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local meta = KEYS[1]
        redis.call('HSETNX', meta, 'format', ARGV[1])
        redis.call('HSETNX', meta, 'epoch', '0')
        local format = redis.call('HGET', meta, 'format')
        if tonumber(format) > tonumber(ARGV[1]) then return {format, '0', '0'} end
        if tonumber(format) < 3 then redis.call('HSET', meta, 'upgrading', '1') end
        redis.call('HSET', meta, 'format', ARGV[1])
        local opening = tostring(redis.call('HINCRBY', meta, 'opening', 1))
        if ARGV[4] == '1' then
            local has_later_epochs = false
            for _, field in ipairs(redis.call('HKEYS', meta)) do
                if string.find(field, '^%a+:%d+$') then
                    if string.find(field, '^epoch:') then has_later_epochs = true end
                    redis.call('HDEL', meta, field)
                end
            end
            if has_later_epochs or redis.call('HGET', meta, 'clean') ~= '1' then
                redis.call('HSET', meta, 'epoch', ARGV[2])
            end
            redis.call('HSET', meta, 'clean', '0', 'view', opening, 'members', '1',
                'member:' .. opening, ARGV[3])
        else
            redis.call('HSET', meta, 'joining:' .. opening, ARGV[3])
        end
        return {format, redis.call('HGET', meta, 'epoch'), opening}",
    )
});

/// Makes a connection the one for writing of a process and returns its number, or 0 if the view has changed without this member. Batches of
/// earlier connections that Redis has not started yet then have no effect.
static TAKE_OVER: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('HEXISTS', KEYS[1], 'member:' .. ARGV[1]) == 0
            and redis.call('HEXISTS', KEYS[1], 'joining:' .. ARGV[1]) == 0 then return 0 end
        return redis.call('HINCRBY', KEYS[1], 'connection:' .. ARGV[1], 1)",
    )
});

/// Marks a clean stop if the process is the only member.
static CLOSE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('HEXISTS', KEYS[1], 'member:' .. ARGV[1]) == 1
            and redis.call('HGET', KEYS[1], 'members') == '1' then
            redis.call('HSET', KEYS[1], 'clean', '1')
        end",
    )
});

/// Makes a view. Arguments: the expected view, the epoch of the raised slots, the number of members, their births, and the slots. Returns 0
/// if another view is current, 1 if the view was made, and 2 if a member has not opened the store.
static PROPOSE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local meta, members = KEYS[1], {}
        if redis.call('HGET', meta, 'view') ~= ARGV[1] then return 0 end
        for place = 4, 3 + tonumber(ARGV[3]) do
            local birth = ARGV[place]
            local node = redis.call('HGET', meta, 'member:' .. birth)
                or redis.call('HGET', meta, 'joining:' .. birth)
            if not node then return 2 end
            members[birth] = node
        end
        for _, field in ipairs(redis.call('HKEYS', meta)) do
            local birth = string.match(field, '^member:(%d+)$')
            if birth and not members[birth] then
                redis.call('HDEL', meta, field, 'connection:' .. birth)
            end
        end
        for birth, node in pairs(members) do
            redis.call('HDEL', meta, 'joining:' .. birth)
            redis.call('HSET', meta, 'member:' .. birth, node)
        end
        for place = 4 + tonumber(ARGV[3]), #ARGV do
            redis.call('HSET', meta, 'epoch:' .. ARGV[place], ARGV[2])
        end
        local view = redis.call('HINCRBY', meta, 'opening', 1)
        redis.call('HSET', meta, 'view', view, 'members', ARGV[3], 'clean', '0')
        return 1",
    )
});

/// Stores an opening and returns the format that the store had.
pub(super) fn open(
    connection: &mut Connection,
    format: i64,
    membership: Membership,
) -> RedisResult<(i64, Opened)> {
    let fields = fields(connection)?;
    let next = epoch_after(Epoch(latest_epoch(&fields)));
    let (found, epoch, opening) = OPEN
        .key(META)
        .arg(format)
        .arg(next.0)
        .arg(membership.node())
        .arg(u8::from(membership == Membership::Alone))
        .invoke(connection)?;
    let epoch = Epoch(epoch);
    Ok((found, Opened { epoch, opening }))
}

/// Makes a connection the one for writing, and returns its number.
pub(super) fn take_over(connection: &mut Connection, opened: Opened) -> RedisResult<u64> {
    TAKE_OVER.key(META).arg(opened.opening).invoke(connection)
}

/// Marks a clean stop if the process is the only member.
pub(super) fn close(connection: &mut Connection, opened: Opened) -> RedisResult<()> {
    CLOSE.key(META).arg(opened.opening).invoke(connection)
}

/// The registry, with its own connection.
pub(super) struct RedisRegistry {
    pub(super) location: Location,
    pub(super) connection: Option<Connection>,
}

impl Registry for RedisRegistry {
    fn view(&mut self) -> Result<StoredView, StoreError> {
        let fields = self.location.attempt(&mut self.connection, fields)?;
        Ok(view_of(&fields))
    }

    fn propose(
        &mut self,
        expected: View,
        members: &[MemberId],
        raised: &[u16],
    ) -> Result<StoredView, StoreError> {
        let made = self.location.attempt(&mut self.connection, |connection| {
            let next = epoch_after(Epoch(latest_epoch(&fields(connection)?)));
            let mut call = PROPOSE.key(META);
            call.arg(expected.0).arg(next.0).arg(members.len());
            for member in members {
                call.arg(member.birth);
            }
            for slot in raised {
                call.arg(*slot);
            }
            call.invoke::<u8>(connection)
        })?;
        if made == 2 {
            return Err(unknown_member());
        }
        self.view()
    }
}

type Fields = HashMap<String, String>;

fn fields(connection: &mut Connection) -> RedisResult<Fields> {
    redis::cmd("HGETALL").arg(META).query(connection)
}

/// The latest epoch of all slots.
fn latest_epoch(fields: &Fields) -> u64 {
    let epochs = fields
        .iter()
        .filter(|(field, _)| *field == "epoch" || field.starts_with("epoch:"));
    let epochs = epochs.filter_map(|(_, epoch)| epoch.parse().ok());
    epochs.max().unwrap_or(0)
}

fn view_of(fields: &Fields) -> StoredView {
    let number = |field: &str| fields.get(field).and_then(|value| value.parse().ok());
    let numbered = |kind: &'static str| {
        fields.iter().filter_map(move |(field, value)| {
            let (found, number) = field.split_once(':')?;
            (found == kind).then_some((number, value))
        })
    };
    let mut members: Vec<MemberId> = numbered("member")
        .filter_map(|(birth, node)| {
            Some(MemberId {
                node: node.parse().ok()?,
                birth: birth.parse().ok()?,
            })
        })
        .collect();
    members.sort_unstable_by_key(|member| member.birth);
    let mut raised: Vec<(u16, Epoch)> = numbered("epoch")
        .filter_map(|(slot, epoch)| Some((slot.parse().ok()?, Epoch(epoch.parse().ok()?))))
        .collect();
    raised.sort_unstable();
    StoredView {
        number: View(number("view").unwrap_or(0)),
        members,
        epoch: Epoch(number("epoch").unwrap_or(0)),
        raised,
    }
}

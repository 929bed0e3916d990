//! The registry of members in Redis, and the scripts that change who may write.
//!
//! All of it is in the meta hash: `view`, `body` with the document of the view, `members` (their number), `member:BIRTH` with the node of each
//! member, `joining:BIRTH` with the node of each process that belongs to no view yet, `connection:BIRTH`, and `indexes:BIRTH` with the indexes
//! that a process declares. So a transaction that watches this one key notices each change.

use std::sync::LazyLock;

use redis::{Connection, ErrorKind, RedisError, RedisResult, Script};
use tidewire_core::address::Epoch;
use tidewire_core::store::{
    Heartbeat, MemberId, Opened, Proposal, Registry, StoreError, StoredView, View,
};
use tidewire_core::view::Generation;

use super::{FORMAT_WITHOUT_INDEXES, Location, META};
use crate::remote::{Membership, unknown_member};
use crate::{epoch_after, view_document};

/// Stores an opening. Arguments: the format of a store that has never had an index, the former opening, the epoch, the number of the node,
/// whether the process writes alone, then the document of its view, and the newest format that this version reads. Returns format, epoch and opening, or the opening 0 if there was another one in between. The
/// format is raised before the records are changed, so that no older server opens a store that has rows and hashes.
static OPEN: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local meta = KEYS[1]
        redis.call('HSETNX', meta, 'format', ARGV[1])
        redis.call('HSETNX', meta, 'epoch', '0')
        local format = redis.call('HGET', meta, 'format')
        if tonumber(format) > tonumber(ARGV[7]) then return {format, '0', '0'} end
        if (redis.call('HGET', meta, 'opening') or '0') ~= ARGV[2] then return {format, '0', '0'} end
        if tonumber(format) < 3 then redis.call('HSET', meta, 'upgrading', '1') end
        if tonumber(format) < tonumber(ARGV[1]) then redis.call('HSET', meta, 'format', ARGV[1]) end
        local opening = tostring(redis.call('HINCRBY', meta, 'opening', 1))
        if ARGV[5] == '1' then
            for _, field in ipairs(redis.call('HKEYS', meta)) do
                if string.find(field, '^%a+:%d+$') then redis.call('HDEL', meta, field) end
            end
            redis.call('HSET', meta, 'epoch', ARGV[3], 'clean', '0', 'view', opening, 'members', '1',
                'member:' .. opening, ARGV[4], 'body', ARGV[6])
        else
            redis.call('HSET', meta, 'joining:' .. opening, ARGV[4])
        end
        redis.call('HSET', meta, 'indexes:' .. opening, '')
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

/// Makes a view. Arguments: the expected view, the expected opening, the epoch, the document, and the births of the members. Returns 0 if
/// another view is current, 1 if the view was made, 2 if a member has not opened the store, and 3 if there was an opening in between.
static PROPOSE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local meta, members = KEYS[1], {}
        if (redis.call('HGET', meta, 'view') or '0') ~= ARGV[1] then return 0 end
        if redis.call('HGET', meta, 'opening') ~= ARGV[2] then return 3 end
        for place = 5, #ARGV do
            local birth = ARGV[place]
            local node = redis.call('HGET', meta, 'member:' .. birth)
                or redis.call('HGET', meta, 'joining:' .. birth)
            if not node then return 2 end
            members[birth] = node
        end
        for _, field in ipairs(redis.call('HKEYS', meta)) do
            local birth = string.match(field, '^member:(%d+)$')
            if birth and not members[birth] then
                redis.call('HDEL', meta, field, 'connection:' .. birth, 'indexes:' .. birth)
            end
        end
        for birth, node in pairs(members) do
            redis.call('HDEL', meta, 'joining:' .. birth)
            redis.call('HSET', meta, 'member:' .. birth, node)
        end
        local view = redis.call('HINCRBY', meta, 'opening', 1)
        redis.call('HSET', meta, 'view', view, 'members', #ARGV - 4, 'clean', '0', 'epoch', ARGV[3],
            'body', ARGV[4])
        return 1",
    )
});

/// How often an opening or a proposal is repeated because of another opening in between.
const ATTEMPTS_MAX: usize = 20;

/// The meta fields that an opening and a proposal need.
struct Meta {
    opening: u64,
    epoch: Epoch,
    is_clean: bool,
    view: StoredView,
}

impl Meta {
    fn read(connection: &mut Connection) -> RedisResult<Self> {
        type Fields = (Option<u64>, Option<u64>, Option<u64>, Option<String>);
        let fields = ["opening", "epoch", "clean", "body"];
        let (opening, epoch, clean, body): Fields = redis::cmd("HMGET")
            .arg(META)
            .arg(&fields)
            .query(connection)?;
        let epoch = Epoch(epoch.unwrap_or(0));
        let view = match body {
            Some(body) => view_document::decode(&body).map_err(unreadable)?,
            None => {
                let mut view = StoredView::empty();
                view.epochs.epoch = epoch;
                view
            }
        };
        Ok(Self {
            opening: opening.unwrap_or(0),
            epoch,
            is_clean: clean == Some(1),
            view,
        })
    }
}

fn unreadable(error: StoreError) -> RedisError {
    RedisError::from((
        ErrorKind::UnexpectedReturnType,
        "the stored view",
        error.message,
    ))
}

fn too_often() -> RedisError {
    let text = "others open the store again and again";
    RedisError::from((ErrorKind::Client, text))
}

/// The generation of the server now: each takeover and each start draws a new replication id.
pub(super) fn generation(connection: &mut Connection) -> RedisResult<Generation> {
    let info: String = redis::cmd("INFO").arg("replication").query(connection)?;
    let id = info
        .lines()
        .find_map(|line| line.strip_prefix("master_replid:"));
    Ok(Generation(id.unwrap_or_default().trim().to_owned()))
}

/// Whether the server has another generation than the current view. Its last commits may be missing, and the members must agree on a view
/// with later epochs before they commit again.
pub(super) fn has_new_generation(connection: &mut Connection) -> RedisResult<bool> {
    let view = Meta::read(connection)?.view;
    Ok(view.number > View(0) && generation(connection)? != view.generation)
}

/// Stores an opening and returns the format that the store had.
pub(super) fn open(
    connection: &mut Connection,
    format: i64,
    membership: Membership,
) -> RedisResult<(i64, Opened)> {
    let is_alone = membership == Membership::Alone;
    // Only members need it, and a user may not be allowed to run the command.
    let generation = generation(connection).unwrap_or_default();
    for _ in 0..ATTEMPTS_MAX {
        let meta = Meta::read(connection)?;
        // All slots get one epoch again. It must be later than that of each slot if one has a later one.
        let epoch = match meta.is_clean && meta.view.epochs.raised.is_empty() {
            true => meta.epoch,
            false => epoch_after(meta.epoch.max(meta.view.epochs.latest())),
        };
        let own = MemberId {
            node: membership.node(),
            birth: meta.opening + 1,
        };
        let mut view = StoredView::of_one_node(epoch, own);
        view.generation = generation.clone();
        let (found, epoch, opening): (i64, u64, u64) = OPEN
            .key(META)
            .arg(FORMAT_WITHOUT_INDEXES)
            .arg(meta.opening)
            .arg(epoch.0)
            .arg(own.node)
            .arg(u8::from(is_alone))
            .arg(view_document::encode(&view))
            .arg(format)
            .invoke(connection)?;
        if found > format || opening > 0 {
            let epoch = Epoch(epoch);
            return Ok((found, Opened { epoch, opening }));
        }
    }
    Err(too_often())
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
        let meta = self.location.attempt(&mut self.connection, Meta::read)?;
        Ok(meta.view)
    }

    fn propose(&mut self, expected: View, proposal: &Proposal) -> Result<StoredView, StoreError> {
        let made = self.location.attempt(&mut self.connection, |connection| {
            let generation = generation(connection)?;
            for _ in 0..ATTEMPTS_MAX {
                let meta = Meta::read(connection)?;
                if meta.view.number != expected {
                    return Ok(0);
                }
                let number = View(meta.opening + 1);
                let view = view_document::next(&meta.view, number, proposal, generation.clone());
                let mut call = PROPOSE.key(META);
                call.arg(expected.0).arg(meta.opening);
                call.arg(view.epochs.epoch.0)
                    .arg(view_document::encode(&view));
                for member in &proposal.members {
                    call.arg(member.id.birth);
                }
                let made: u8 = call.invoke(connection)?;
                if made != 3 {
                    return Ok(made);
                }
            }
            Err(too_often())
        })?;
        if made == 2 {
            return Err(unknown_member());
        }
        self.view()
    }

    fn heartbeat(&mut self) -> Result<Heartbeat, StoreError> {
        self.location.attempt(&mut self.connection, |connection| {
            let view: Option<u64> = redis::cmd("HGET").arg(META).arg("view").query(connection)?;
            Ok(Heartbeat {
                view: View(view.unwrap_or(0)),
                generation: generation(connection)?,
            })
        })
    }
}

//! Commits a batch in Redis: one script, or for a large batch a transaction without a script. Decision 0081 has the figures of both.

use std::sync::LazyLock;

use redis::{Connection, Pipeline, RedisError, RedisResult, Script};
use tidewire_core::store::{Expected, MemberId, StoreChange, StoreWrite, View};

use super::{META, NAMES, record_key, row};

/// Fewest writes of a batch that is a transaction. A smaller one is faster as a script, which needs only one round trip.
const TRANSACTION_COUNT_MIN: usize = 32;

/// Most bytes per write of a batch that is a transaction, on average: it reads the stored records, so large ones would pass through the
/// connection twice.
const TRANSACTION_WRITE_BYTES_MAX: usize = 4 << 10;

/// Commits a batch. Keys: the meta key, the key of all names, and one key for each write. Arguments: the view, the birth of the member, the
/// number of its connection, and two for each write: the bytes with which the stored row must start (`-` for no row, nothing for any
/// state), and the new row (nothing for a delete). Returns the current view, whether the member belongs to it, whether the connection is
/// its newest one, and the numbers of the refused writes, counted from 1.
///
/// A call of a command costs the script more than the command, so it reads and writes many records with each. Lua passes at most 8,000
/// arguments to a call.
static COMMIT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local fence = redis.call('HMGET', KEYS[1], 'view', 'member:' .. ARGV[2],
            'connection:' .. ARGV[2])
        local view, is_member, is_newest = fence[1] or '0', fence[2] and '1' or '0', '0'
        if fence[3] == ARGV[3] then is_newest = '1' end
        local answer = {view, is_member, is_newest}
        if view ~= ARGV[1] or is_member == '0' or is_newest == '0' then return answer end
        local sub, name_at = string.sub, #'{tidewire}:record:' + 1
        for first = 3, #KEYS, 2000 do
            local last = math.min(first + 1999, #KEYS)
            local stored = redis.call('MGET', unpack(KEYS, first, last))
            local rows, names, gone, gone_names = {}, {}, {}, {}
            for place = first, last do
                local key, found = KEYS[place], stored[place - first + 1]
                local expected, row = ARGV[place * 2 - 2], ARGV[place * 2 - 1]
                local is_met = expected == '' or (expected == '-' and not found)
                    or (found and sub(found, 1, #expected) == expected)
                if is_met and row ~= '' then
                    rows[#rows + 1] = key
                    rows[#rows + 1] = row
                    if not found then
                        names[#names + 1] = 0
                        names[#names + 1] = sub(key, name_at)
                    end
                elseif is_met and found then
                    gone[#gone + 1] = key
                    gone_names[#gone_names + 1] = sub(key, name_at)
                elseif found and found ~= row or not found and row ~= '' then
                    answer[#answer + 1] = tostring(place - 2)
                end
            end
            if #rows > 0 then redis.call('MSET', unpack(rows)) end
            if #names > 0 then redis.call('ZADD', KEYS[2], unpack(names)) end
            if #gone > 0 then
                redis.call('DEL', unpack(gone))
                redis.call('ZREM', KEYS[2], unpack(gone_names))
            end
        end
        return answer",
    )
});

/// The answer to a batch.
pub(super) struct Answer {
    /// The current view.
    pub(super) current: View,
    /// Whether the member belongs to it.
    pub(super) is_member: bool,
    /// Whether the batch came on the newest connection of the member.
    pub(super) is_newest: bool,
    /// The numbers of the refused writes, counted from 1.
    pub(super) refused: Vec<usize>,
}

/// A write in the form that is sent.
struct Prepared<'a> {
    name: &'a str,
    key: String,
    /// The start of the stored row.
    expected: String,
    /// Empty for a delete.
    row: String,
}

impl<'a> Prepared<'a> {
    fn new(write: &'a StoreWrite) -> Self {
        Self {
            name: write.name.as_str(),
            key: record_key(&write.name),
            expected: match write.expected {
                Expected::Anything => String::new(),
                Expected::Missing => "-".to_owned(),
                Expected::At(incarnation, version) => row::state(incarnation, version),
            },
            row: match &write.change {
                StoreChange::Put(record) => row::encode(&write.name, record),
                StoreChange::Delete => String::new(),
            },
        }
    }

    fn is_met(&self, found: Option<&[u8]>) -> bool {
        match (self.expected.as_str(), found) {
            ("", _) | ("-", None) => true,
            ("-", Some(_)) | (_, None) => false,
            (expected, Some(found)) => found.starts_with(expected.as_bytes()),
        }
    }

    fn is_done(&self, found: Option<&[u8]>) -> bool {
        match found {
            Some(found) => found == self.row.as_bytes(),
            None => self.row.is_empty(),
        }
    }
}

/// Commits a batch on the connection with this number.
pub(super) fn commit(
    connection: &mut Connection,
    number: u64,
    owner: (View, MemberId),
    writes: &[StoreWrite],
) -> RedisResult<Answer> {
    let prepared: Vec<Prepared<'_>> = writes.iter().map(Prepared::new).collect();
    let bytes: usize = prepared.iter().map(|write| write.row.len()).sum();
    let is_large = prepared.len() >= TRANSACTION_COUNT_MIN
        && bytes <= prepared.len() * TRANSACTION_WRITE_BYTES_MAX;
    if is_large && let Some(answer) = transaction(connection, number, owner, &prepared)? {
        return Ok(answer);
    }
    script(connection, number, owner, &prepared)
}

/// Whether the error is an answer of the server, so that the connection can be used.
fn is_answer(error: &RedisError) -> bool {
    !error.is_io_error() && !error.is_timeout() && !error.is_connection_dropped()
}

fn script(
    connection: &mut Connection,
    number: u64,
    (view, member): (View, MemberId),
    writes: &[Prepared<'_>],
) -> RedisResult<Answer> {
    let mut call = COMMIT.prepare_invoke();
    call.key(META).key(NAMES);
    call.arg(view.0).arg(member.birth).arg(number);
    for write in writes {
        call.key(&write.key).arg(&write.expected).arg(&write.row);
    }
    let answer: Vec<u64> = call.invoke(connection)?;
    let (fence, refused) = answer.split_first_chunk().unwrap_or((&[0; 3], &[]));
    let [current, is_member, is_newest] = *fence;
    Ok(Answer {
        current: View(current),
        is_member: is_member == 1,
        is_newest: is_newest == 1,
        refused: refused.iter().map(|number| *number as usize).collect(),
    })
}

/// The same as the script, decided here. `None` if it was not done and the script must decide.
///
/// Redis does the commands of a transaction only if the meta key was not written since `WATCH`. Each opening, each new view and each new
/// connection for writing writes it. While the view has one member, no other connection may write records. So if the transaction is done,
/// no other server has written a record since it was read. With several members the script decides: to watch each record would cost Redis
/// the square of their number.
fn transaction(
    connection: &mut Connection,
    number: u64,
    (view, member): (View, MemberId),
    writes: &[Prepared<'_>],
) -> RedisResult<Option<Answer>> {
    let mut read = Pipeline::new();
    read.cmd("WATCH").arg(META).ignore();
    read.cmd("HMGET")
        .arg(META)
        .arg("members")
        .arg("view")
        .arg(format!("member:{}", member.birth))
        .arg(format!("connection:{}", member.birth));
    let keys = read.cmd("MGET");
    for write in writes {
        keys.arg(&write.key);
    }
    type Found = ([Option<u64>; 4], Vec<Option<Vec<u8>>>);
    let ([count, current, own, newest], found): Found = read.query(connection)?;
    if (count, current) != (Some(1), Some(view.0)) || own.is_none() || newest != Some(number) {
        redis::cmd("UNWATCH").exec(connection)?;
        return Ok(None);
    }
    let (mut rows, mut names) = (redis::cmd("MSET"), redis::cmd("ZADD"));
    let (mut gone, mut gone_names) = (redis::cmd("DEL"), redis::cmd("ZREM"));
    names.arg(NAMES);
    gone_names.arg(NAMES);
    let (mut has_rows, mut has_names, mut has_gone) = (false, false, false);
    let mut refused = Vec::new();
    for (index, (write, found)) in std::iter::zip(writes, &found).enumerate() {
        let found = found.as_deref();
        if !write.is_met(found) {
            if !write.is_done(found) {
                refused.push(index + 1);
            }
        } else if !write.row.is_empty() {
            rows.arg(&write.key).arg(&write.row);
            has_rows = true;
            if found.is_none() {
                names.arg(0).arg(write.name);
                has_names = true;
            }
        } else if found.is_some() {
            gone.arg(&write.key);
            gone_names.arg(write.name);
            has_gone = true;
        }
    }
    let mut change = Pipeline::new();
    change.atomic();
    for (is_used, commands) in [
        (has_rows, vec![rows]),
        (has_names, vec![names]),
        (has_gone, vec![gone, gone_names]),
    ] {
        if is_used {
            for command in commands {
                change.add_command(command).ignore();
            }
        }
    }
    // An empty transaction ends the watch, too, and shows that the batch came from the newest connection.
    match change.query::<Option<()>>(connection) {
        Ok(Some(())) => Ok(Some(Answer {
            current: view,
            is_member: true,
            is_newest: true,
            refused,
        })),
        Ok(None) => Ok(None),
        // A transaction only reports that one of its commands was refused. The answer to the script has the cause, such as full memory.
        Err(error) if is_answer(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

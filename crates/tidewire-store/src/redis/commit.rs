//! Commits a batch in Redis: one script, or for a large batch a transaction without a script. Decision 0081 has the figures of both.

use std::sync::LazyLock;

use redis::{Connection, RedisResult, Script, Value, from_redis_value};
use tidewire_core::store::{Expected, MemberId, StoreChange, StoreWrite, View};

use super::requests::Requests;
use super::{META, NAMES, RECORD, record_key, row};

/// Fewest writes of a batch that is a transaction. A smaller one is faster as a script, which needs only one round trip.
const TRANSACTION_COUNT_MIN: usize = 32;

/// Most bytes per write of a batch that is a transaction, on average: it reads the stored records, so large ones would pass through the
/// connection twice.
const TRANSACTION_WRITE_BYTES_MAX: usize = 4 << 10;

/// Bytes of a usual key, or of the first line of a row, with those around it in a request.
const KEY_BYTES: usize = 64;

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

/// Whether the stored row is in the state that a write expects. `state` is a buffer.
fn is_met(write: &StoreWrite, found: Option<&[u8]>, state: &mut Vec<u8>) -> bool {
    match (write.expected, found) {
        (Expected::Anything, _) | (Expected::Missing, None) => true,
        (Expected::Missing, Some(_)) | (Expected::At(..), None) => false,
        (Expected::At(incarnation, version), Some(found)) => {
            state.clear();
            row::append_state(incarnation, version, state);
            found.starts_with(state)
        }
    }
}

/// Whether the stored row is the result of a write.
fn is_done(write: &StoreWrite, found: Option<&[u8]>) -> bool {
    match (&write.change, found) {
        (StoreChange::Put(record), Some(found)) => {
            let mut row = Vec::new();
            row::append(&write.name, record, &mut row);
            found == row
        }
        (StoreChange::Delete, None) => true,
        (StoreChange::Put(_), None) | (StoreChange::Delete, Some(_)) => false,
    }
}

/// Commits a batch on the connection with this number.
pub(super) fn commit(
    connection: &mut Connection,
    number: u64,
    owner: (View, MemberId),
    writes: &[StoreWrite],
) -> RedisResult<Answer> {
    let bytes = writes.iter().map(|write| match &write.change {
        StoreChange::Put(record) => record.data.len(),
        StoreChange::Delete => 0,
    });
    let bytes: usize = bytes.sum();
    let is_large = writes.len() >= TRANSACTION_COUNT_MIN
        && bytes <= writes.len() * TRANSACTION_WRITE_BYTES_MAX;
    if is_large && let Some(answer) = transaction(connection, number, owner, writes, bytes)? {
        return Ok(answer);
    }
    script(connection, number, owner, writes)
}

fn script(
    connection: &mut Connection,
    number: u64,
    (view, member): (View, MemberId),
    writes: &[StoreWrite],
) -> RedisResult<Answer> {
    let mut call = COMMIT.prepare_invoke();
    call.key(META).key(NAMES);
    call.arg(view.0).arg(member.birth).arg(number);
    for write in writes {
        let (mut expected, mut row) = (Vec::new(), Vec::new());
        match write.expected {
            Expected::Anything => {}
            Expected::Missing => expected.push(b'-'),
            Expected::At(incarnation, version) => {
                row::append_state(incarnation, version, &mut expected);
            }
        }
        if let StoreChange::Put(record) = &write.change {
            row::append(&write.name, record, &mut row);
        }
        call.key(record_key(&write.name)).arg(expected).arg(row);
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
    writes: &[StoreWrite],
    data_bytes: usize,
) -> RedisResult<Option<Answer>> {
    let mut read = Requests::with_capacity(writes.len() * KEY_BYTES);
    read.add(["WATCH", META]);
    let (own, newest) = (
        format!("member:{}", member.birth),
        format!("connection:{}", member.birth),
    );
    read.add(["HMGET", META, "members", "view", &own, &newest]);
    read.begin(1 + writes.len());
    read.word(&["MGET".as_bytes()]);
    for write in writes {
        read.word(&[RECORD.as_bytes(), write.name.as_bytes()]);
    }
    read.send(connection)?;
    // Redis reads the records while the new rows are encoded here.
    let rows = Rows::new(writes, data_bytes);
    received(connection)?;
    let fence: [Option<u64>; 4] = from_redis_value(received(connection)?)?;
    let found = match received(connection)? {
        Value::Array(found) => found,
        _ => Vec::new(),
    };
    let [count, current, own, newest] = fence;
    let is_own = (count, current) == (Some(1), Some(view.0)) && own.is_some();
    if !is_own || newest != Some(number) || found.len() != writes.len() {
        redis::cmd("UNWATCH").exec(connection)?;
        return Ok(None);
    }
    let mut changes = Changes::default();
    let mut refused = Vec::new();
    let mut state = Vec::new();
    for (index, (write, found)) in std::iter::zip(writes, &found).enumerate() {
        let found = match found {
            Value::BulkString(row) => Some(row.as_slice()),
            _ => None,
        };
        if !is_met(write, found, &mut state) {
            if !is_done(write, found) {
                refused.push(index + 1);
            }
        } else if matches!(write.change, StoreChange::Put(_)) {
            changes.rows.push(index);
            if found.is_none() {
                changes.names.push(index);
            }
        } else if found.is_some() {
            changes.gone.push(index);
        }
    }
    let count = changes.send(connection, writes, &rows)?;
    // If Redis refuses a command, it refuses the transaction.
    for _ in 1..count {
        connection.recv_response()?;
    }
    // An empty transaction ends the watch, too, and shows that the batch came from the newest connection.
    match connection.recv_response()?.extract_error() {
        Ok(Value::Nil) => Ok(None),
        Ok(_) => Ok(Some(Answer {
            current: view,
            is_member: true,
            is_newest: true,
            refused,
        })),
        // A transaction only reports that one of its commands was refused. The answer to the script has the cause, such as full memory.
        Err(_) => Ok(None),
    }
}

/// The next response. If it is an error, others may be unread, so the caller must give up the connection.
fn received(connection: &mut Connection) -> RedisResult<Value> {
    match connection.recv_response()? {
        Value::ServerError(error) => Err(error.into()),
        value => Ok(value),
    }
}

/// The rows of the puts of a batch, as the words of an `MSET`.
struct Rows {
    words: Vec<u8>,
    /// The end of the words of each write.
    ends: Vec<usize>,
}

impl Rows {
    fn new(writes: &[StoreWrite], data_bytes: usize) -> Self {
        let mut requests = Requests::with_capacity(data_bytes + writes.len() * 2 * KEY_BYTES);
        let mut ends = Vec::with_capacity(writes.len());
        let mut row = Vec::new();
        for write in writes {
            if let StoreChange::Put(record) = &write.change {
                row.clear();
                row::append(&write.name, record, &mut row);
                requests.word(&[RECORD.as_bytes(), write.name.as_bytes()]);
                requests.word(&[&row]);
            }
            ends.push(requests.bytes().len());
        }
        Self {
            words: requests.into_bytes(),
            ends,
        }
    }

    /// The words of one write.
    fn words(&self, index: usize) -> &[u8] {
        let start = match index {
            0 => 0,
            _ => self.ends[index - 1],
        };
        &self.words[start..self.ends[index]]
    }
}

/// The changes of a transaction, as indexes of writes.
#[derive(Default)]
struct Changes {
    /// Puts.
    rows: Vec<usize>,
    /// Puts of new records.
    names: Vec<usize>,
    /// Deletes of records.
    gone: Vec<usize>,
}

impl Changes {
    /// Sends the transaction. Returns the number of its responses.
    fn send(
        &self,
        connection: &mut Connection,
        writes: &[StoreWrite],
        rows: &Rows,
    ) -> RedisResult<usize> {
        let name = |index: &usize| writes[*index].name.as_bytes();
        let mut requests = Requests::with_capacity(rows.words.len() + KEY_BYTES);
        requests.add(["MULTI"]);
        if !self.rows.is_empty() {
            requests.begin(1 + 2 * self.rows.len());
            requests.word(&[b"MSET"]);
            for index in &self.rows {
                requests.encoded(rows.words(*index));
            }
        }
        if !self.names.is_empty() {
            requests.begin(2 + 2 * self.names.len());
            requests.word(&[b"ZADD"]);
            requests.word(&[NAMES.as_bytes()]);
            for index in &self.names {
                requests.word(&[b"0"]);
                requests.word(&[name(index)]);
            }
        }
        if !self.gone.is_empty() {
            requests.begin(1 + self.gone.len());
            requests.word(&[b"DEL"]);
            for index in &self.gone {
                requests.word(&[RECORD.as_bytes(), name(index)]);
            }
            requests.begin(2 + self.gone.len());
            requests.word(&[b"ZREM"]);
            requests.word(&[NAMES.as_bytes()]);
            for index in &self.gone {
                requests.word(&[name(index)]);
            }
        }
        requests.add(["EXEC"]);
        requests.send(connection)?;
        Ok(requests.count())
    }
}

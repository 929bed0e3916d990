//! Commits a batch in Redis: one transaction if the states of its records are known, otherwise a script, or for a large batch a transaction
//! that reads the records first. Decisions 0081 and 0109 have the figures of each.

use std::sync::LazyLock;

use redis::{Connection, ErrorKind, RedisError, RedisResult, Script, Value, from_redis_value};
use tidewire_core::store::{Expected, IndexBuild, MemberId, StoreChange, StoreWrite, View};

use super::indexes::{self, Indexes};
use super::requests::Requests;
use super::{META, NAMES, RECORD, record_key, row};
use crate::index_list::Entry;
use crate::recent::Recent;

/// Fewest writes of a batch that is a transaction. A smaller one is faster as a script, which needs only one round trip.
const TRANSACTION_COUNT_MIN: usize = 32;

/// Most bytes per write of a batch that is a transaction, on average: it reads the stored records, so large ones would pass through the
/// connection twice.
const TRANSACTION_WRITE_BYTES_MAX: usize = 4 << 10;

/// How often a commit reads the list of indexes again.
const LIST_READS_MAX: usize = 4;

/// Bytes of a usual key, or of the first line of a row, with those around it in a request.
const KEY_BYTES: usize = 64;

/// Commits a batch. Keys: the meta key, the key of all names, and one key for each write. Arguments: the view, the birth of the member, the
/// number of its connection, the number of the list of indexes, and two for each write: the bytes with which the stored row must start (`-`
/// for no row, nothing for any state), and the new row (nothing for a delete). Then for each index with entries its number, the number of its
/// entries, and for each of them the number of its write and the key in the index (nothing for a delete). Returns the current view, whether the
/// member belongs to it, whether the connection is its newest one, whether the list of indexes is the current one, and the numbers of the
/// refused writes, counted from 1.
///
/// The entries of a write that was done before are changed as well: if the script ended in the middle, they may be missing.
///
/// A call of a command costs the script more than the command, so it reads and writes many records with each. Lua passes at most 8,000
/// arguments to a call.
static COMMIT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local fence = redis.call('HMGET', KEYS[1], 'view', 'member:' .. ARGV[2],
            'connection:' .. ARGV[2], 'indexes')
        local view, is_member, is_newest = fence[1] or '0', fence[2] and '1' or '0', '0'
        if fence[3] == ARGV[3] then is_newest = '1' end
        local is_listed = (fence[4] or '0') == ARGV[4] and '1' or '0'
        local answer = {view, is_member, is_newest, is_listed}
        if view ~= ARGV[1] or is_member == '0' or is_newest == '0' or is_listed == '0' then
            return answer
        end
        local sub, name_at, refused = string.sub, #'{tidewire}:record:' + 1, {}
        for first = 3, #KEYS, 2000 do
            local last = math.min(first + 1999, #KEYS)
            local stored = redis.call('MGET', unpack(KEYS, first, last))
            local rows, names, gone, gone_names = {}, {}, {}, {}
            for place = first, last do
                local key, found = KEYS[place], stored[place - first + 1]
                local expected, row = ARGV[place * 2 - 1], ARGV[place * 2]
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
                    refused[place] = true
                end
            end
            if #rows > 0 then redis.call('MSET', unpack(rows)) end
            if #names > 0 then redis.call('ZADD', KEYS[2], unpack(names)) end
            if #gone > 0 then
                redis.call('DEL', unpack(gone))
                redis.call('ZREM', KEYS[2], unpack(gone_names))
            end
        end
        local at = #KEYS * 2 + 1
        while at <= #ARGV do
            local entries, keys = '{tidewire}:index:' .. ARGV[at], '{tidewire}:index-keys:' .. ARGV[at]
            local last = at + 1 + 2 * ARGV[at + 1]
            at = at + 2
            while at <= last do
                local names, new = {}, {}
                while at <= last and #names < 2000 do
                    local place = ARGV[at] + 2
                    if not refused[place] then
                        names[#names + 1] = sub(KEYS[place], name_at)
                        new[#names] = ARGV[at + 1]
                    end
                    at = at + 2
                end
                local old = #names > 0 and redis.call('HMGET', keys, unpack(names)) or {}
                local added, removed, changed, gone = {}, {}, {}, {}
                for index, name in ipairs(names) do
                    local before, key = old[index], new[index]
                    if before and before ~= key then
                        removed[#removed + 1] = string.gsub(before, '%z', '%0\\255') .. '\\0' .. name
                    end
                    if key == '' then
                        if before then gone[#gone + 1] = name end
                    elseif before ~= key then
                        added[#added + 1] = 0
                        added[#added + 1] = string.gsub(key, '%z', '%0\\255') .. '\\0' .. name
                        changed[#changed + 1] = name
                        changed[#changed + 1] = key
                    end
                end
                if #removed > 0 then redis.call('ZREM', entries, unpack(removed)) end
                if #added > 0 then
                    redis.call('ZADD', entries, unpack(added))
                    redis.call('HSET', keys, unpack(changed))
                end
                if #gone > 0 then redis.call('HDEL', keys, unpack(gone)) end
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
    /// Whether the member knows the current indexes.
    is_listed: bool,
    /// The numbers of the refused writes, counted from 1.
    pub(super) refused: Vec<usize>,
}

impl Answer {
    /// Whether the store takes batches of this view from the connection.
    fn is_of(&self, view: View) -> bool {
        self.is_member && self.is_newest && self.current == view
    }

    /// The answer of a batch that was done in this view, but for the refused writes.
    fn done(view: View, refused: Vec<usize>) -> Self {
        Self {
            current: view,
            is_member: true,
            is_newest: true,
            is_listed: true,
            refused,
        }
    }
}

/// A batch whose expectations are all met, as far as the writer knows.
#[derive(Default)]
struct KnownWrites {
    put_count: usize,
    /// The indexes of puts of new records.
    added: Vec<usize>,
    /// The indexes of deletes of records that exist.
    gone: Vec<usize>,
}

impl KnownWrites {
    /// `None` if the state of a record is unknown, or not the expected one.
    fn new(states: &Recent<Expected>, writes: &[StoreWrite]) -> Option<Self> {
        let mut known = Self::default();
        for (index, write) in writes.iter().enumerate() {
            let state = states.of(&write.name)?;
            if write.expected != Expected::Anything && write.expected != state {
                return None;
            }
            let is_missing = state == Expected::Missing;
            match write.change {
                StoreChange::Put(_) => {
                    known.put_count += 1;
                    if is_missing {
                        known.added.push(index);
                    }
                }
                StoreChange::Delete if is_missing => {}
                StoreChange::Delete => known.gone.push(index),
            }
        }
        Some(known)
    }
}

/// Bytes of the values of a batch.
fn data_bytes(writes: &[StoreWrite]) -> usize {
    let bytes = writes.iter().map(|write| match &write.change {
        StoreChange::Put(record) => record.data.len(),
        StoreChange::Delete => 0,
    });
    bytes.sum()
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

/// The fields of the meta key that a batch depends on.
#[derive(Clone, Copy, Debug)]
struct Fence {
    /// The member whose fields these are.
    birth: u64,
    member_count: Option<u64>,
    view: Option<u64>,
    /// The node of the member.
    own: Option<u64>,
    /// The newest connection of the member.
    newest: Option<u64>,
    /// The number of the list of indexes.
    indexes: Option<u64>,
}

impl Fence {
    /// Adds the requests that watch and read the meta key.
    fn request(birth: u64, requests: &mut Requests) {
        requests.add(["WATCH", META]);
        let (own, newest) = (format!("member:{birth}"), format!("connection:{birth}"));
        requests.add(["HMGET", META, "members", "view", &own, &newest, "indexes"]);
    }

    /// Receives their responses.
    fn receive(birth: u64, connection: &mut Connection) -> RedisResult<Self> {
        received(connection)?;
        let [member_count, view, own, newest, indexes] = from_redis_value(received(connection)?)?;
        Ok(Self {
            birth,
            member_count,
            view,
            own,
            newest,
            indexes,
        })
    }

    /// Whether the fields are those of this member and view.
    fn is_of(&self, (view, member): (View, MemberId)) -> bool {
        (self.birth, self.view) == (member.birth, Some(view.0))
    }

    /// Whether the list of indexes has this number.
    fn has_list(&self, number: u64) -> bool {
        self.indexes.unwrap_or(0) == number
    }

    /// Whether the connection with this number is the only one that may write records.
    fn is_alone(&self, number: u64) -> bool {
        self.member_count == Some(1) && self.own.is_some() && self.newest == Some(number)
    }
}

/// The connection for writing.
pub(super) struct Writer {
    connection: Connection,
    number: u64,
    /// The view of the last batch.
    view: View,
    /// The states in which this connection has left records in this view. If the view has one member, they are the stored ones. In another
    /// view they are unknown, because the members of the views between may have written.
    states: Recent<Expected>,
    /// The meta key as it was when this connection began to watch it; absent if it is not watched. If the key has changed since, Redis does
    /// no transaction.
    watched: Option<Fence>,
    indexes: Indexes,
}

impl Writer {
    /// The connection with this number.
    pub(super) fn new(mut connection: Connection, number: u64) -> RedisResult<Self> {
        Ok(Self {
            indexes: Indexes::read(&mut connection)?,
            connection,
            number,
            view: View(0),
            states: Recent::default(),
            watched: None,
        })
    }

    /// Whether an index is to be built or removed.
    pub(super) fn has_pending_indexes(&self) -> bool {
        self.indexes.is_pending()
    }

    /// Reads which indexes the store has.
    pub(super) fn read_indexes(&mut self) -> RedisResult<()> {
        self.indexes = Indexes::read(&mut self.connection)?;
        Ok(())
    }

    /// Does a step of a build or of a removal.
    pub(super) fn build(&mut self) -> RedisResult<IndexBuild> {
        let (indexes, state) = indexes::step(&mut self.connection)?;
        self.indexes = indexes;
        Ok(state)
    }

    /// The connection.
    pub(super) fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Commits a batch. After an error the connection must be given up: responses may be unread, and states unknown.
    pub(super) fn commit(
        &mut self,
        owner: (View, MemberId),
        writes: &[StoreWrite],
    ) -> RedisResult<Answer> {
        if self.view != owner.0 {
            self.view = owner.0;
            self.states = Recent::default();
        }
        let mut answer = self.decided(owner, writes)?;
        let mut reads = 0;
        while !answer.is_listed && answer.is_of(owner.0) {
            // Another member has declared indexes.
            if reads == LIST_READS_MAX {
                let text = "the list of indexes changed during each attempt";
                return Err(RedisError::from((ErrorKind::Client, text)));
            }
            reads += 1;
            self.read_indexes()?;
            answer = self.decided(owner, writes)?;
        }
        if answer.is_of(owner.0) {
            for write in writes {
                self.states.note(&write.name, write.change.leaves());
            }
        }
        for number in &answer.refused {
            self.states.forget(&writes[number - 1].name);
        }
        Ok(answer)
    }

    fn decided(&mut self, owner: (View, MemberId), writes: &[StoreWrite]) -> RedisResult<Answer> {
        // Only the script finds the entries that the records had.
        let entries = self.indexes.entries(writes);
        if !entries.is_empty() {
            return self.script(owner, writes, &entries);
        }
        // Several members may write. Until the view changes, only a script can compare and write.
        let has_others = self
            .watched
            .is_some_and(|fence| fence.is_of(owner) && !fence.is_alone(self.number));
        if !has_others {
            let known = KnownWrites::new(&self.states, writes);
            if let Some(known) = known
                && let Some(answer) = self.without_reading(owner, writes, &known)?
            {
                return Ok(answer);
            }
            let bytes = data_bytes(writes);
            let is_large = writes.len() >= TRANSACTION_COUNT_MIN
                && bytes <= writes.len() * TRANSACTION_WRITE_BYTES_MAX;
            if is_large && let Some(answer) = self.after_reading(owner, writes, bytes)? {
                return Ok(answer);
            }
        }
        self.script(owner, writes, &[])
    }

    /// Commits a batch whose expectations are known to be met, with one transaction and no read. `None` if it was not done.
    ///
    /// If the view has one member, only this connection may write records, so each has the state in which this connection has left it. Each
    /// opening, each new view and each new connection for writing writes the meta key, so Redis does nothing if that has changed. The next
    /// transaction is prepared by the same message: Redis watches and reads the meta key behind this one.
    fn without_reading(
        &mut self,
        owner: (View, MemberId),
        writes: &[StoreWrite],
        known: &KnownWrites,
    ) -> RedisResult<Option<Answer>> {
        let birth = owner.1.birth;
        let fence = match self.watched {
            Some(fence) if fence.is_of(owner) && fence.has_list(self.indexes.number) => fence,
            _ => {
                let mut requests = Requests::with_capacity(4 * KEY_BYTES);
                Fence::request(birth, &mut requests);
                requests.send(&mut self.connection)?;
                *self
                    .watched
                    .insert(Fence::receive(birth, &mut self.connection)?)
            }
        };
        if !fence.is_of(owner)
            || !fence.is_alone(self.number)
            || !fence.has_list(self.indexes.number)
        {
            return Ok(None);
        }
        let bytes = data_bytes(writes) + (2 * writes.len() + 8) * KEY_BYTES;
        let mut requests = Requests::with_capacity(bytes);
        requests.add(["MULTI"]);
        if known.put_count > 0 {
            requests.begin(1 + 2 * known.put_count);
            requests.word(&[b"MSET"]);
            let mut row = Vec::new();
            for write in writes {
                append_put(write, &mut row, &mut requests);
            }
        }
        add_names(writes, &known.added, &mut requests);
        add_deletes(writes, &known.gone, &mut requests);
        requests.add(["EXEC"]);
        let count = requests.count();
        Fence::request(birth, &mut requests);
        requests.send(&mut self.connection)?;
        // If Redis refuses a command, it refuses the transaction.
        for _ in 1..count {
            self.connection.recv_response()?;
        }
        let done = self.connection.recv_response()?.extract_error();
        self.watched = Some(Fence::receive(birth, &mut self.connection)?);
        Ok(match done {
            Ok(Value::Nil) | Err(_) => None,
            Ok(_) => Some(Answer::done(owner.0, Vec::new())),
        })
    }

    /// The same as the script, decided here. `None` if it was not done and the script must decide.
    ///
    /// Redis does the commands of a transaction only if the meta key was not written since `WATCH`. Each opening, each new view and each new
    /// connection for writing writes it. While the view has one member, no other connection may write records. So if the transaction is done,
    /// no other server has written a record since it was read. With several members the script decides: to watch each record would cost Redis
    /// the square of their number.
    fn after_reading(
        &mut self,
        owner: (View, MemberId),
        writes: &[StoreWrite],
        data_bytes: usize,
    ) -> RedisResult<Option<Answer>> {
        // `EXEC` and `UNWATCH` end the watch.
        self.watched = None;
        let (birth, connection) = (owner.1.birth, &mut self.connection);
        let mut read = Requests::with_capacity(writes.len() * KEY_BYTES);
        Fence::request(birth, &mut read);
        read.begin(1 + writes.len());
        read.word(&["MGET".as_bytes()]);
        for write in writes {
            read.word(&[RECORD.as_bytes(), write.name.as_bytes()]);
        }
        read.send(connection)?;
        // Redis reads the records while the new rows are encoded here.
        let rows = Rows::new(writes, data_bytes);
        let fence = Fence::receive(birth, connection)?;
        let found = match received(connection)? {
            Value::Array(found) => found,
            _ => Vec::new(),
        };
        if !fence.is_of(owner)
            || !fence.is_alone(self.number)
            || !fence.has_list(self.indexes.number)
            || found.len() != writes.len()
        {
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
            Ok(_) => Ok(Some(Answer::done(owner.0, refused))),
            // A transaction only reports that one of its commands was refused. The answer to the script has the cause, such as full memory.
            Err(_) => Ok(None),
        }
    }

    /// Commits a batch as a script.
    fn script(
        &mut self,
        (view, member): (View, MemberId),
        writes: &[StoreWrite],
        entries: &[Entry],
    ) -> RedisResult<Answer> {
        let mut call = COMMIT.prepare_invoke();
        call.key(META).key(NAMES);
        call.arg(view.0).arg(member.birth).arg(self.number);
        call.arg(self.indexes.number);
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
        for of_index in entries.chunk_by(|one, next| one.number == next.number) {
            call.arg(of_index[0].number).arg(of_index.len());
            for entry in of_index {
                let key = entry.key.as_deref().unwrap_or_default();
                call.arg(entry.write_index + 1).arg(key);
            }
        }
        let answer: Vec<u64> = call.invoke(&mut self.connection)?;
        let (fence, refused) = answer.split_first_chunk().unwrap_or((&[0; 4], &[]));
        let [current, is_member, is_newest, is_listed] = *fence;
        Ok(Answer {
            current: View(current),
            is_member: is_member == 1,
            is_newest: is_newest == 1,
            is_listed: is_listed == 1,
            refused: refused.iter().map(|number| *number as usize).collect(),
        })
    }
}

/// The next response. If it is an error, others may be unread, so the caller must give up the connection.
fn received(connection: &mut Connection) -> RedisResult<Value> {
    match connection.recv_response()? {
        Value::ServerError(error) => Err(error.into()),
        value => Ok(value),
    }
}

/// Adds the key and the row of a put, as words. `row` is a buffer.
fn append_put(write: &StoreWrite, row: &mut Vec<u8>, requests: &mut Requests) {
    if let StoreChange::Put(record) = &write.change {
        row.clear();
        row::append(&write.name, record, row);
        requests.word(&[RECORD.as_bytes(), write.name.as_bytes()]);
        requests.word(&[row]);
    }
}

/// Adds the request that lists the names of new records.
fn add_names(writes: &[StoreWrite], added: &[usize], requests: &mut Requests) {
    if added.is_empty() {
        return;
    }
    requests.begin(2 + 2 * added.len());
    requests.word(&[b"ZADD"]);
    requests.word(&[NAMES.as_bytes()]);
    for index in added {
        requests.word(&[b"0"]);
        requests.word(&[writes[*index].name.as_bytes()]);
    }
}

/// Adds the requests that delete records and their names.
fn add_deletes(writes: &[StoreWrite], gone: &[usize], requests: &mut Requests) {
    if gone.is_empty() {
        return;
    }
    requests.begin(1 + gone.len());
    requests.word(&[b"DEL"]);
    for index in gone {
        requests.word(&[RECORD.as_bytes(), writes[*index].name.as_bytes()]);
    }
    requests.begin(2 + gone.len());
    requests.word(&[b"ZREM"]);
    requests.word(&[NAMES.as_bytes()]);
    for index in gone {
        requests.word(&[writes[*index].name.as_bytes()]);
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
            append_put(write, &mut row, &mut requests);
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
        let mut requests = Requests::with_capacity(rows.words.len() + KEY_BYTES);
        requests.add(["MULTI"]);
        if !self.rows.is_empty() {
            requests.begin(1 + 2 * self.rows.len());
            requests.word(&[b"MSET"]);
            for index in &self.rows {
                requests.encoded(rows.words(*index));
            }
        }
        add_names(writes, &self.names, &mut requests);
        add_deletes(writes, &self.gone, &mut requests);
        requests.add(["EXEC"]);
        requests.send(connection)?;
        Ok(requests.count())
    }
}

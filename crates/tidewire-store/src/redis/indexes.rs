//! Indexes of collections: their entries change in the script that changes the records, and any member builds a new index in steps
//! (`index_list.rs`). Contract: `spec/store-redis.md`, "Indexes".
//!
//! Several members commit, and each of them must know all indexes. The list of indexes has a number in the meta key. A commit with another
//! number than the current one does nothing: its member reads the list and repeats it. So every commit since the declaration of an index has
//! changed the entries of the index.
//!
//! A build computes the keys of some records first. Then a script adds the entries of those records that exist and have no entry. If a commit
//! has changed a record in between, that commit has left the entry.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use redis::{Connection, FromRedisValue, RedisResult, Script, Value, pipe};
use tidewire_core::indexes::Tape;
use tidewire_core::store::{IndexBuild, IndexEnd, IndexRead, Loaded, Opened, StoreWrite};
use tidewire_core::text::Name;

use super::{FORMAT, META, NAMES, record_key, row};
use crate::index_list::{
    BUILDING, COMPLETE, Entry, IndexList, KeptIndex, REMOVED, STEP_BYTES, STEP_ROWS,
};
use crate::range::prefix_end;

/// The hash with the list of indexes.
const INDEXES: &str = "{tidewire}:indexes";
/// The sorted set of the entries of an index, followed by its number.
const ENTRIES: &str = "{tidewire}:index:";
/// The hash with the key of each record in an index, followed by its number.
const KEYS: &str = "{tidewire}:index-keys:";

/// Records whose values a step requests together, so that a step of large values holds few of them.
const STEP_PAGE: usize = 50;

/// Reads the list and its number, of one moment. A transaction would fail on a connection that watches the meta key.
static LIST: LazyLock<Script> = LazyLock::new(|| {
    Script::new("return {redis.call('HGET', KEYS[1], 'indexes'), redis.call('HGETALL', KEYS[2])}")
});

/// Declares the indexes of a process: adds those that are new to the list, and removes those that no process declares. Keys: the meta key and
/// the list. Arguments: the birth of the process, the format of a store with indexes, and the definitions of the process, joined by two line
/// feeds. Returns 1, or 0 if the list stays as it is because a member keeps no indexes. A process that keeps none and has not joined yet
/// opens the store again, which the format refuses.
static DECLARE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local meta, list = KEYS[1], KEYS[2]
        if redis.call('HEXISTS', meta, 'member:' .. ARGV[1]) == 1
            or redis.call('HEXISTS', meta, 'joining:' .. ARGV[1]) == 1 then
            redis.call('HSET', meta, 'indexes:' .. ARGV[1], ARGV[3])
        end
        local wanted, ordered, older, joining = {}, {}, false, {}
        local fields = redis.call('HKEYS', meta)
        table.sort(fields)
        for _, field in ipairs(fields) do
            local kind, birth = string.match(field, '^(%a+):(%d+)$')
            if kind == 'member' or kind == 'joining' then
                local declared = redis.call('HGET', meta, 'indexes:' .. birth)
                if not declared and kind == 'member' then older = true end
                if not declared and kind == 'joining' then joining[#joining + 1] = field end
                local at, text = 1, declared or ''
                while at <= #text do
                    local first, last = string.find(text, '\\n\\n', at, true)
                    local definition = string.sub(text, at, (first or #text + 1) - 1)
                    if not wanted[definition] then ordered[#ordered + 1] = definition end
                    wanted[definition] = true
                    at = (last or #text) + 1
                end
            end
        end
        local known, gone = {}, {}
        for _, field in ipairs(redis.call('HKEYS', list)) do
            local number = string.match(field, '^definition:(%d+)$')
            if number and redis.call('HGET', list, 'state:' .. number) ~= '2' then
                local definition = redis.call('HGET', list, field)
                if wanted[definition] then known[definition] = true else gone[#gone + 1] = number end
            end
        end
        local new = {}
        for _, definition in ipairs(ordered) do
            if not known[definition] then new[#new + 1] = definition end
        end
        if #new == 0 and #gone == 0 then return 1 end
        if older then return 0 end
        if #joining > 0 then redis.call('HDEL', meta, unpack(joining)) end
        for _, number in ipairs(gone) do redis.call('HSET', list, 'state:' .. number, '2') end
        for _, definition in ipairs(new) do
            local number = redis.call('HINCRBY', list, 'last', 1)
            redis.call('HSET', list, 'definition:' .. number, definition, 'state:' .. number, '0',
                'position:' .. number, '')
            if tonumber(redis.call('HGET', meta, 'format')) < tonumber(ARGV[2]) then
                redis.call('HSET', meta, 'format', ARGV[2])
            end
        end
        redis.call('HINCRBY', meta, 'indexes', 1)
        return 1",
    )
});

/// Adds the entries of a step. Keys: the list, the entries and the keys of the index. Arguments: the number of the index, the position that
/// the step began at, the position and the state after it, and for each record its key in the store, its name and its key in the index.
/// Returns 0 if another member has done the step.
static BUILD: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local number = ARGV[1]
        local found = redis.call('HMGET', KEYS[1], 'state:' .. number, 'position:' .. number)
        if found[1] ~= '0' or found[2] ~= ARGV[2] then return 0 end
        for at = 5, #ARGV, 3 do
            local name, key = ARGV[at + 1], ARGV[at + 2]
            if redis.call('EXISTS', ARGV[at]) == 1
                and redis.call('HSETNX', KEYS[3], name, key) == 1 then
                local escaped = string.gsub(key, '%z', '%0\\255')
                redis.call('ZADD', KEYS[2], 0, escaped .. '\\0' .. name)
            end
        end
        redis.call('HSET', KEYS[1], 'position:' .. number, ARGV[3], 'state:' .. number, ARGV[4])
        return 1",
    )
});

/// Removes an index and its entries. Redis frees them in the background.
static REMOVE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('HGET', KEYS[1], 'state:' .. ARGV[1]) ~= '2' then return 0 end
        redis.call('UNLINK', KEYS[2], KEYS[3])
        redis.call('HDEL', KEYS[1], 'definition:' .. ARGV[1], 'state:' .. ARGV[1], 'position:' .. ARGV[1])
        return 1",
    )
});

/// The indexes of the store, as the connection for writing knows them.
#[derive(Debug, Default)]
pub(super) struct Indexes {
    list: IndexList,
    /// The number of the list.
    pub(super) number: u64,
    tape: Tape,
}

impl Indexes {
    /// Reads which indexes the store has.
    pub(super) fn read(connection: &mut Connection) -> RedisResult<Self> {
        let answer: (Option<u64>, Vec<Vec<u8>>) = LIST.key(META).key(INDEXES).invoke(connection)?;
        let (number, fields) = answer;
        let pairs = fields.chunks_exact(2);
        let fields: HashMap<String, &[u8]> = pairs
            .map(|pair| (String::from_utf8_lossy(&pair[0]).into_owned(), &*pair[1]))
            .collect();
        let mut indexes = Self {
            number: number.unwrap_or(0),
            ..Self::default()
        };
        let text = |field: &str, number: i64| {
            let bytes = fields.get(&format!("{field}:{number}"))?;
            Some(String::from_utf8_lossy(bytes).into_owned())
        };
        let numbers = fields
            .keys()
            .filter_map(|field| field.strip_prefix("definition:"));
        let mut numbers: Vec<i64> = numbers.filter_map(|number| number.parse().ok()).collect();
        numbers.sort_unstable();
        for number in numbers {
            let state = text("state", number).and_then(|state| state.parse().ok());
            let definition = text("definition", number).unwrap_or_default();
            let position = text("position", number).unwrap_or_default();
            let state = state.unwrap_or(REMOVED);
            indexes.list.add(number, definition, state, position);
        }
        Ok(indexes)
    }

    /// The entries that a batch leaves.
    pub(super) fn entries(&mut self, writes: &[StoreWrite]) -> Vec<Entry> {
        self.list.entries(&mut self.tape, writes)
    }

    /// Whether an index is to be built or removed.
    pub(super) fn is_pending(&self) -> bool {
        self.list.is_pending()
    }

    fn state(&self) -> IndexBuild {
        match self.is_pending() {
            true => IndexBuild::Pending,
            false => IndexBuild::Complete,
        }
    }
}

/// Declares the indexes of a process. Returns whether the list has them.
pub(super) fn declare(
    connection: &mut Connection,
    opened: Opened,
    definitions: &[Arc<str>],
) -> RedisResult<bool> {
    DECLARE
        .key(META)
        .key(INDEXES)
        .arg(opened.opening)
        .arg(FORMAT)
        .arg(definitions.join("\n\n"))
        .invoke(connection)
}

/// Does a step of a build or of a removal. Returns the list after it.
pub(super) fn step(connection: &mut Connection) -> RedisResult<(Indexes, IndexBuild)> {
    let mut before = Indexes::read(connection)?;
    let is_done: bool = if let Some(number) = before.list.removed.first() {
        let mut call = REMOVE.key(INDEXES);
        call.key(format!("{ENTRIES}{number}"))
            .key(format!("{KEYS}{number}"));
        call.arg(number).invoke(connection)?
    } else if let Some(index) = before.list.building() {
        build(connection, index, &mut before.tape)?
    } else {
        return Ok((before, IndexBuild::Complete));
    };
    let after = Indexes::read(connection)?;
    after.list.log_completed(&before.list);
    let state = match (is_done, after.state()) {
        // Another member builds as well. One of them is enough.
        (false, IndexBuild::Pending) => IndexBuild::Waiting,
        (_, state) => state,
    };
    Ok((after, state))
}

/// Adds the entries of the next records to an index. Returns whether this member has done the step.
fn build(connection: &mut Connection, index: &KeptIndex, tape: &mut Tape) -> RedisResult<bool> {
    let start = match &*index.position {
        "" => format!("[{}", index.prefix),
        position => format!("({position}"),
    };
    let end = prefix_end(&index.prefix).unwrap_or_default();
    let names: Vec<Vec<u8>> = redis::cmd("ZRANGE")
        .arg(NAMES)
        .arg(start)
        .arg(format!("({end}"))
        .arg(&["BYLEX", "LIMIT", "0"])
        .arg(STEP_ROWS)
        .query(connection)?;
    let mut is_last = names.len() < STEP_ROWS;
    let names: Vec<Name> = (names.iter())
        .map(|name| Name::from(&*String::from_utf8_lossy(name)))
        .collect();
    let mut call = BUILD.key(INDEXES);
    let number = index.number;
    call.key(format!("{ENTRIES}{number}"))
        .key(format!("{KEYS}{number}"));
    let (mut entries, mut bytes) = (Vec::new(), 0);
    let mut last = index.position.clone();
    for page in names.chunks(STEP_PAGE) {
        let own: Vec<&Name> = page.iter().filter(|name| index.has(name)).collect();
        let keys: Vec<String> = own.iter().map(|name| record_key(name)).collect();
        let rows: Vec<Option<Vec<u8>>> = match &*keys {
            [] => Vec::new(),
            keys => redis::cmd("MGET").arg(keys).query(connection)?,
        };
        for ((name, key), row) in own.into_iter().zip(keys).zip(rows) {
            let Some(row) = row else {
                continue;
            };
            bytes += row.len();
            let in_index = match row::decode(name, &row) {
                Loaded::Found(record) => index.key(tape, name, record.data.as_str()),
                Loaded::Missing | Loaded::Corrupt => index.unknown_key(),
            };
            entries.push((key, name.clone(), in_index));
        }
        last = page.last().map_or(last, |name| name.to_string());
        if bytes > STEP_BYTES {
            is_last &= names.last().is_some_and(|name| **name == *last);
            break;
        }
    }
    let state = if is_last { COMPLETE } else { BUILDING };
    call.arg(number).arg(&index.position).arg(last).arg(state);
    for (key, name, in_index) in entries {
        call.arg(key).arg(name.as_str()).arg(in_index);
    }
    call.invoke(connection)
}

/// Appends a key with each 00 followed by FF, so that the bytes behind it do not change the order of keys.
pub(super) fn escape(key: &[u8], out: &mut Vec<u8>) {
    for byte in key {
        out.push(*byte);
        if *byte == 0 {
            out.push(0xFF);
        }
    }
}

/// The key and the name of an entry.
fn split(entry: &[u8]) -> Option<(Vec<u8>, &str)> {
    let mut key = Vec::with_capacity(entry.len());
    let mut at = 0;
    loop {
        match (*entry.get(at)?, entry.get(at + 1)) {
            (0, Some(0xFF)) => {
                key.push(0);
                at += 2;
            }
            (0, _) => return Some((key, std::str::from_utf8(entry.get(at + 1..)?).ok()?)),
            (byte, _) => {
                key.push(byte);
                at += 1;
            }
        }
    }
}

/// Reads entries of an index, all of one moment.
pub(super) fn read(
    connection: &mut Connection,
    read: &IndexRead,
    visit: &mut dyn FnMut(&[u8], &str),
) -> RedisResult<IndexEnd> {
    let indexes = Indexes::read(connection)?;
    let is_usable =
        |kept: &&KeptIndex| kept.definition == *read.definition && kept.state == COMPLETE;
    let Some(index) = indexes.list.kept.iter().find(is_usable) else {
        return Ok(IndexEnd::Unusable);
    };
    let mut requests = pipe();
    requests.atomic();
    requests
        .cmd("HGET")
        .arg(INDEXES)
        .arg(format!("state:{}", index.number));
    for (low, high) in &read.ranges {
        let (mut first, mut end) = (vec![b'['], vec![b'(']);
        escape(low, &mut first);
        escape(high, &mut end);
        let request = requests
            .cmd("ZRANGE")
            .arg(format!("{ENTRIES}{}", index.number));
        match read.descending {
            true => request.arg(end).arg(first).arg(&["BYLEX", "REV"]),
            false => request.arg(first).arg(end).arg("BYLEX"),
        };
        request
            .arg(&["LIMIT", "0"])
            .arg(read.count_max.saturating_add(1).min(i64::MAX as usize));
    }
    let answers: Vec<Value> = requests.query(connection)?;
    let mut answers = answers.into_iter();
    let state: Option<i64> =
        FromRedisValue::from_redis_value(answers.next().unwrap_or(Value::Nil))?;
    // It was removed after the list was read.
    if state != Some(COMPLETE) {
        return Ok(IndexEnd::Unusable);
    }
    let mut left = read.count_max;
    for range in answers {
        let entries: Vec<Vec<u8>> = FromRedisValue::from_redis_value(range)?;
        for entry in &entries {
            if left == 0 {
                return Ok(IndexEnd::More);
            }
            left -= 1;
            if let Some((key, name)) = split(entry) {
                visit(&key, name);
            }
        }
    }
    Ok(IndexEnd::Complete)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_in_the_order_of_keys_and_names() {
        let keys: [&[u8]; 7] = [
            b"\x01",
            b"\x02",
            b"\x02\0",
            b"\x02\0\0",
            b"\x02\0\x01",
            b"\x02\x01",
            b"\x02\xfe",
        ];
        let mut entries = Vec::new();
        for key in keys {
            for name in ["cards/\0", "cards/1", "cards/\u{10ffff}"] {
                let mut entry = Vec::new();
                escape(key, &mut entry);
                entry.push(0);
                entry.extend_from_slice(name.as_bytes());
                assert_eq!(split(&entry), Some((key.to_vec(), name)));
                entries.push(entry);
            }
        }
        assert!(entries.is_sorted());
        // Each end of a range is at its place among the entries.
        for (at, key) in keys.iter().enumerate() {
            let mut end = Vec::new();
            escape(key, &mut end);
            let before = entries.iter().filter(|entry| **entry < end).count();
            assert_eq!(before, at * 3, "{key:?}");
        }
        assert_eq!(split(b"\x02"), None);
    }
}

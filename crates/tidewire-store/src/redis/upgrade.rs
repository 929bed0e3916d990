//! Formats 1 and 2, in which a record was a hash: reading it, and its replacement by a row.

use std::sync::LazyLock;

use redis::{Connection, FromRedisValue, Pipeline, RedisResult, Script};
use tidewire_core::store::{Incarnation, Loaded, StoredRecord, Version};
use tidewire_core::text::{Name, Payload};

use super::{META, RECORD, record_key};
use crate::{checksum, write_keys};

/// The field of the meta hash that exists while there may be hashes.
pub(super) const UPGRADING: &str = "upgrading";

/// Number of keys that one step looks at. Redis runs nothing else during a step.
const STEP_COUNT: usize = 1_000;

/// Replaces those keys that are hashes. The fields are copied unchanged, so a damaged record stays damaged.
static REPLACE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "for place = 1, #KEYS do
            local key = KEYS[place]
            if redis.call('TYPE', key).ok == 'hash' then
                local found = redis.call('HMGET', key, 'incarnation', 'version', 'checksum',
                    'write_keys', 'data')
                for field = 1, 5 do found[field] = found[field] or '' end
                redis.call('SET', key, found[1] .. ' ' .. found[2] .. ' ' .. found[3] .. ' '
                    .. #found[4] .. '\\n' .. found[4] .. found[5])
            end
        end",
    )
});

/// Whether the store may have hashes.
pub(super) fn has_hashes(connection: &mut Connection) -> RedisResult<bool> {
    let fields = redis::cmd("HMGET")
        .arg(META)
        .arg("format")
        .arg(UPGRADING)
        .query::<(Option<i64>, Option<String>)>(connection)?;
    Ok(matches!(fields, (Some(..=2), _) | (_, Some(_))))
}

/// Replaces all hashes. May be repeated after an interruption.
pub(super) fn replace_hashes(connection: &mut Connection) -> RedisResult<()> {
    let mut cursor = 0_u64;
    loop {
        // The keys and not the set of names: a name may be missing there if an earlier version was killed within a script.
        let (next, keys): (u64, Vec<Vec<u8>>) = redis::cmd("SCAN")
            .arg(cursor)
            .arg("MATCH")
            .arg(format!("{RECORD}*"))
            .arg("COUNT")
            .arg(STEP_COUNT)
            .arg("TYPE")
            .arg("hash")
            .query(connection)?;
        if !keys.is_empty() {
            let mut call = REPLACE.prepare_invoke();
            keys.iter().for_each(|key| {
                call.key(key);
            });
            call.invoke::<()>(connection)?;
        }
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    redis::cmd("HDEL").arg(META).arg(UPGRADING).exec(connection)
}

/// Looks up records that may be hashes.
pub(super) fn load_hashes(connection: &mut Connection, names: &[Name]) -> RedisResult<Vec<Loaded>> {
    let mut lookups = Pipeline::with_capacity(names.len());
    for name in names {
        lookups.cmd("HMGET").arg(record_key(name)).arg(&[
            "incarnation",
            "version",
            "checksum",
            "data",
            "write_keys",
        ]);
    }
    let rows: Vec<Fields> = lookups.query(connection)?;
    let loaded = std::iter::zip(names, rows).map(|(name, row)| row.loaded(name));
    Ok(loaded.collect())
}

/// The stored fields of a record. If the record does not exist, all are missing.
struct Fields {
    incarnation: Option<u64>,
    version: Option<u32>,
    checksum: Option<u32>,
    data: Option<Vec<u8>>,
    write_keys: Option<Vec<u8>>,
    is_there: bool,
}

impl FromRedisValue for Fields {
    fn from_redis_value(value: redis::Value) -> Result<Self, redis::ParsingError> {
        let fields: [Option<Vec<u8>>; 5] = FromRedisValue::from_redis_value(value)?;
        let is_there = fields.iter().any(Option::is_some);
        let [incarnation, version, checksum, data, write_keys] = fields;
        Ok(Self {
            incarnation: number(incarnation),
            version: number(version),
            checksum: number(checksum),
            data,
            write_keys,
            is_there,
        })
    }
}

fn number<T: std::str::FromStr>(field: Option<Vec<u8>>) -> Option<T> {
    std::str::from_utf8(&field?).ok()?.parse().ok()
}

impl Fields {
    fn loaded(self, name: &str) -> Loaded {
        if !self.is_there {
            return Loaded::Missing;
        }
        let sound = || {
            let keys_text = match &self.write_keys {
                Some(text) => Some(std::str::from_utf8(text).ok()?),
                None => None,
            };
            let record = StoredRecord {
                incarnation: Incarnation(self.incarnation?),
                version: Version(self.version?),
                data: Payload::from_checked(std::str::from_utf8(self.data.as_deref()?).ok()?),
                write_keys: write_keys::of_row(keys_text)?,
            };
            (self.checksum? == checksum(name, &record, keys_text)).then_some(record)
        };
        sound().map_or(Loaded::Corrupt, Loaded::Found)
    }
}

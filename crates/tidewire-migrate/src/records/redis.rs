//! Reads the records of deepstream's connector for Redis: the keys `NAME_v` with a version and `NAME_d` with JSON.

use std::iter;

use redis::{Connection, Pipeline, RedisResult};
use tidewire_store::redis::connect_to_any;

use super::{Found, MigrationError, Source, Visit, too_large};

/// Keys that one request scans.
const PAGE_COUNT: u32 = 100;

const DATA: &str = "_d";
const VERSION: &str = "_v";

pub(super) fn read(
    source: &Source,
    bytes_max: usize,
    visit: Visit<'_>,
) -> Result<(), MigrationError> {
    let mut connection = connect_to_any(&source.options)?;
    let mut cursor: u64 = 0;
    loop {
        let (next, keys): (u64, Vec<Vec<u8>>) = value(
            redis::cmd("SCAN")
                .arg(cursor)
                .arg(&["MATCH", &format!("*{DATA}")])
                .arg("COUNT")
                .arg(PAGE_COUNT)
                .query(&mut connection),
        )?;
        // deepstream's names are text, so other keys are not from it.
        let keys = keys
            .into_iter()
            .filter_map(|key| String::from_utf8(key).ok());
        let names: Vec<_> = keys
            .filter_map(|key| key.strip_suffix(DATA).map(str::to_owned))
            .collect();
        // An answer may have more keys than requested.
        for names in names.chunks(PAGE_COUNT as usize) {
            for found in value(look_up(&mut connection, names, bytes_max))? {
                visit(found)?;
            }
        }
        if next == 0 {
            return Ok(());
        }
        cursor = next;
    }
}

/// Loads the records with these names. A name without a version is skipped: another program has written its key, or the record was
/// deleted since the scan.
fn look_up(
    connection: &mut Connection,
    names: &[String],
    bytes_max: usize,
) -> RedisResult<Vec<Found>> {
    let keys: Vec<_> = names
        .iter()
        .map(|name| format!("{name}{VERSION}"))
        .collect();
    let versions: Vec<Option<String>> = redis::cmd("MGET").arg(keys).query(connection)?;
    let records: Vec<_> = iter::zip(names, versions)
        .filter_map(|(name, version)| Some((name, version?)))
        .collect();
    let mut lengths = Pipeline::new();
    for (name, _) in &records {
        lengths.cmd("STRLEN").arg(format!("{name}{DATA}"));
    }
    let lengths: Vec<u64> = lengths.query(connection)?;
    let mut found = Vec::with_capacity(records.len());
    for ((name, version), bytes) in iter::zip(records, lengths) {
        let data = if bytes > bytes_max as u64 {
            Err(too_large(bytes, bytes_max))
        } else {
            let key = format!("{name}{DATA}");
            let data: Option<Vec<u8>> = redis::cmd("GET").arg(key).query(connection)?;
            String::from_utf8(data.unwrap_or_default())
                .map_err(|_| "the data are not UTF-8".to_owned())
        };
        found.push(Found {
            name: name.clone(),
            version: version.parse().ok(),
            data,
        });
    }
    Ok(found)
}

fn value<T>(answer: RedisResult<T>) -> Result<T, MigrationError> {
    answer.map_err(|error| MigrationError::source(error.to_string()))
}

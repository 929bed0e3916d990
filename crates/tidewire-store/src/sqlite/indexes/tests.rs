//! The entries of indexes equal a full rebuild after random writes, interrupted builds and openings without a close.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidewire_core::indexes::{Tape, belongs, parse_definition};
use tidewire_core::store::{
    Expected, Incarnation, IndexEnd, IndexRead, Opened, Store, StoreChange, StoreWrite,
    StoredRecord, Version, Written,
};
use tidewire_core::text::{Name, Payload};

use super::super::{SqliteOptions, SqliteStore};
use super::STEP_ROWS;
use crate::folder::DataFolder;

const DEFINITIONS: [&str; 3] = ["cards\nboard", "cards\nboard\nposition", "notes\ncard.id"];

/// Splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed ^ mixed >> 27) % bound
    }
}

fn open(folder: &DataFolder) -> (SqliteStore, Opened) {
    SqliteStore::open(folder, SqliteOptions::default()).expect("opens")
}

fn declare(store: &mut SqliteStore, definitions: &[&str]) {
    let definitions: Vec<Arc<str>> = definitions.iter().map(|text| (*text).into()).collect();
    store.set_indexes(&definitions).expect("declared");
}

fn build_all(store: &mut SqliteStore) {
    while store.build_indexes().expect("a step") {}
}

fn put(name: &str, data: &str) -> StoreWrite {
    StoreWrite {
        writer: None,
        name: Name::from(name),
        expected: Expected::Anything,
        change: StoreChange::Put(StoredRecord {
            incarnation: Incarnation(1),
            version: Version(1),
            data: Payload::from_checked(data),
            write_keys: None,
        }),
    }
}

fn delete(name: &str) -> StoreWrite {
    StoreWrite {
        change: StoreChange::Delete,
        ..put(name, "{}")
    }
}

#[track_caller]
fn commit(store: &mut SqliteStore, opened: Opened, writes: &[StoreWrite]) {
    let written = store.commit(opened.view(), opened.member(), writes);
    let written = written.expect("committed");
    assert!(written.iter().all(|written| *written == Written::Done));
}

/// All entries of an index as its readers see them; `None` if it is not usable.
fn entries(store: &mut SqliteStore, definition: &str) -> Option<BTreeSet<(Vec<u8>, String)>> {
    let read = IndexRead {
        definition: definition.into(),
        ranges: vec![(vec![0], vec![0xFF])],
        descending: false,
        count_max: usize::MAX,
    };
    let mut found = BTreeSet::new();
    let end = store
        .reader()
        .expect("a reader")
        .read_index(&read, &mut |key, name| {
            let is_new = found.insert((key.to_vec(), name.to_owned()));
            assert!(is_new, "{name} has one entry");
        });
    match end.expect("read") {
        IndexEnd::Complete => Some(found),
        IndexEnd::Unusable => None,
        IndexEnd::More => panic!("all were requested"),
    }
}

/// The entries that a rebuild from the records would have.
fn rebuilt(store: &mut SqliteStore, definition: &str) -> BTreeSet<(Vec<u8>, String)> {
    let (collection, index) = parse_definition(definition).expect("a definition");
    let prefix = format!("{collection}/");
    let connection = store.connection().expect("a connection");
    let mut records = connection
        .prepare("SELECT name, data FROM records")
        .expect("SQL");
    let rows = records.query_map([], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
    });
    let mut tape = Tape::new();
    rows.expect("rows")
        .map(|row| row.expect("a row"))
        .filter(|(name, _)| belongs(&prefix, name))
        .map(|(name, data)| (index.key(tape.read(&name, 0, &data).as_ref()), name))
        .collect()
}

#[track_caller]
fn check_all(store: &mut SqliteStore, definitions: &[&str]) {
    for definition in definitions {
        let found = entries(store, definition).expect("usable");
        assert_eq!(found, rebuilt(store, definition), "{definition}");
    }
    let connection = store.connection().expect("a connection");
    let stray =
        "SELECT count(*) FROM index_entries WHERE number NOT IN (SELECT number FROM indexes)";
    let stray: i64 = connection
        .query_row(stray, [], |row| row.get(0))
        .expect("a count");
    assert_eq!(stray, 0, "removed indexes leave no entries");
}

/// A name of one of the collections, of one below them, or of none.
fn name(random: &mut Random) -> String {
    let collection = ["cards/", "cards/7/", "notes/", "cards", "other/"][random.below(5) as usize];
    format!("{collection}{}", random.below(60))
}

/// A value, of which some are such that no index could have them whole.
fn value(random: &mut Random) -> String {
    let field = |random: &mut Random| match random.below(14) {
        0 => "null".to_owned(),
        1 => r#""\u0000""#.to_owned(),
        2 => format!("\"{}\"", "x".repeat(5_000)),
        3 => format!("{}{}", "[".repeat(60), "]".repeat(60)),
        4 => "1e999".to_owned(),
        5 => "123456789012345678901234567890".to_owned(),
        6 => r#"["a",1,null]"#.to_owned(),
        7 => r#"{"id":1}"#.to_owned(),
        8 => r#""\ud800""#.to_owned(),
        9 => "true".to_owned(),
        _ => random.below(5).to_string(),
    };
    match random.below(12) {
        0 => "[]".to_owned(),
        1 => "{}".to_owned(),
        _ => {
            let (board, position, card) = (field(random), field(random), field(random));
            format!(r#"{{"board":{board},"position":{position},"card":{{"id":{card}}}}}"#)
        }
    }
}

fn write(random: &mut Random) -> Vec<StoreWrite> {
    let mut writes: BTreeMap<String, StoreWrite> = BTreeMap::new();
    for _ in 0..random.below(6) {
        let name = name(random);
        let write = match random.below(4) {
            0 => delete(&name),
            _ => put(&name, &value(random)),
        };
        writes.insert(name, write);
    }
    writes.into_values().collect()
}

#[test]
fn entries_equal_a_rebuild_after_random_writes_and_kills() {
    for seed in 0..12 {
        let mut random = Random(seed);
        let directory = tempfile::tempdir().expect("a folder");
        let mut declared: Vec<&str> = Vec::new();
        for _ in 0..8 {
            // Each round ends without a close, in the middle of a build or after it.
            let folder = DataFolder::open(directory.path()).expect("a data folder");
            let (mut store, opened) = open(&folder);
            if random.below(2) == 0 {
                declared = DEFINITIONS
                    .into_iter()
                    .filter(|_| random.below(3) > 0)
                    .collect();
                declare(&mut store, &declared);
            }
            for _ in 0..30 {
                commit(&mut store, opened, &write(&mut random));
                if random.below(3) == 0 {
                    store.build_indexes().expect("a step");
                }
            }
            if random.below(2) == 0 {
                build_all(&mut store);
                check_all(&mut store, &declared);
            }
        }
        let folder = DataFolder::open(directory.path()).expect("a data folder");
        let (mut store, _) = open(&folder);
        build_all(&mut store);
        check_all(&mut store, &declared);
    }
}

#[test]
fn a_new_index_is_used_when_it_is_complete() {
    let directory = tempfile::tempdir().expect("a folder");
    let folder = DataFolder::open(directory.path()).expect("a data folder");
    let (mut store, opened) = open(&folder);
    let count = STEP_ROWS * 2 + 10;
    let writes: Vec<StoreWrite> = (0..count)
        .map(|number| put(&format!("cards/{number:06}"), r#"{"board":1}"#))
        .collect();
    commit(&mut store, opened, &writes);
    declare(&mut store, &DEFINITIONS[..1]);
    assert_eq!(entries(&mut store, DEFINITIONS[0]), None);
    assert!(
        store.build_indexes().expect("a step"),
        "one step is not enough"
    );
    assert_eq!(entries(&mut store, DEFINITIONS[0]), None);
    // Writes in front of the build and behind it, then a kill.
    let last = format!("cards/{:06}", count - 1);
    commit(
        &mut store,
        opened,
        &[
            put("cards/000000", r#"{"board":2}"#),
            put(&last, "[]"),
            delete("cards/000001"),
        ],
    );
    drop(store);
    drop(folder);
    let folder = DataFolder::open(directory.path()).expect("a data folder");
    let (mut store, _) = open(&folder);
    assert_eq!(entries(&mut store, DEFINITIONS[0]), None);
    build_all(&mut store);
    assert_eq!(
        entries(&mut store, DEFINITIONS[0]).map(|all| all.len()),
        Some(count - 1)
    );
    check_all(&mut store, &DEFINITIONS[..1]);
    // An index that is no longer declared can't be used at once, and leaves nothing.
    declare(&mut store, &[]);
    assert_eq!(entries(&mut store, DEFINITIONS[0]), None);
    build_all(&mut store);
    check_all(&mut store, &[]);
}

#[test]
fn ranges_are_read_in_their_order_and_both_directions() {
    let directory = tempfile::tempdir().expect("a folder");
    let folder = DataFolder::open(directory.path()).expect("a data folder");
    let (mut store, opened) = open(&folder);
    declare(&mut store, &DEFINITIONS[..1]);
    build_all(&mut store);
    let writes: Vec<StoreWrite> = (0..6)
        .map(|number| {
            put(
                &format!("cards/{number}"),
                &format!(r#"{{"board":{}}}"#, number / 2),
            )
        })
        .collect();
    commit(&mut store, opened, &writes);
    let mut all: Vec<Vec<u8>> = entries(&mut store, DEFINITIONS[0])
        .expect("usable")
        .into_iter()
        .map(|(key, _)| key)
        .collect();
    all.dedup();
    let [zero, one, two] = &all[..] else {
        panic!("{all:?}");
    };
    let behind = [&**two, &[0xFF]].concat();
    let mut check = |descending, count_max, expected: &[u8], end| {
        let read = IndexRead {
            definition: DEFINITIONS[0].into(),
            ranges: vec![(one.clone(), behind.clone()), (zero.clone(), one.clone())],
            descending,
            count_max,
        };
        let mut found = Vec::new();
        let ended = store
            .reader()
            .expect("a reader")
            .read_index(&read, &mut |_, name| {
                found.push(name.as_bytes()[name.len() - 1] - b'0');
            });
        assert_eq!((&*found, ended.expect("read")), (expected, end));
    };
    check(false, 10, &[2, 3, 4, 5, 0, 1], IndexEnd::Complete);
    check(true, 10, &[5, 4, 3, 2, 1, 0], IndexEnd::Complete);
    check(false, 6, &[2, 3, 4, 5, 0, 1], IndexEnd::Complete);
    check(true, 5, &[5, 4, 3, 2, 1], IndexEnd::More);
    check(false, 4, &[2, 3, 4, 5], IndexEnd::More);
}

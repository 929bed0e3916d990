//! The suite of the stores that keep indexes: entries equal a full rebuild after random writes, interrupted builds and openings without a
//! close, also if several members write and build.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidewire_core::indexes::{Tape, belongs, parse_definition};
use tidewire_core::store::{
    Expected, IndexBuild, IndexEnd, IndexRead, Loaded, Store, StoreChange, StoreReader, StoreWrite,
    Written,
};

use crate::store_suite::{Open, Subject, delete, put, record, write};

const DEFINITIONS: [&str; 3] = ["cards\nboard", "cards\nboard\nposition", "notes\ncard.id"];
/// More records than a build handles in a step.
const MANY: usize = 1_010;

/// A place where a store keeps indexes.
pub trait Indexed: Subject {
    /// Entries of indexes that the store does not have.
    fn stray_entries(&mut self) -> u64;
}

/// The cases as tests of one store: `index_suite!(name, subject)`.
#[macro_export]
macro_rules! index_suite {
    ($store:ident, $subject:expr $(, #[$attribute:meta])?) => {
        $crate::index_suite! { @cases $store, $subject, [$(#[$attribute])?],
            entries_equal_a_rebuild_after_random_writes_and_kills
            a_new_index_is_used_when_it_is_complete
            ranges_are_read_in_their_order_and_both_directions
            only_done_writes_change_entries
            no_value_and_no_name_blocks_a_batch
        }
    };
    (@cases $store:ident, $subject:expr, $attributes:tt, $($case:ident)*) => {
        mod $store {
            $($crate::index_suite! { @case $case, $subject, $attributes })*
        }
    };
    (@case $case:ident, $subject:expr, [$(#[$attribute:meta])?]) => {
        #[test]
        $(#[$attribute])?
        fn $case() {
            $crate::indexes::$case($subject);
        }
    };
}

/// Splitmix64.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed ^ mixed >> 27) % bound
    }
}

pub fn declare(store: &mut dyn Store, definitions: &[&str]) {
    let definitions: Vec<Arc<str>> = definitions.iter().map(|text| (*text).into()).collect();
    store.set_indexes(&definitions).expect("declared");
}

fn build_all(store: &mut dyn Store) {
    while store.build_indexes().expect("a step") != IndexBuild::Complete {}
}

#[track_caller]
fn commit(store: &mut Open, writes: &[StoreWrite]) {
    let written = store.commit(writes).expect("committed");
    assert!(written.iter().all(|written| *written == Written::Done));
}

fn object(name: &str, data: &str) -> StoreWrite {
    put(name, record(1, data))
}

/// All entries of an index as its readers see them; `None` if it is not usable.
pub fn entries(
    reader: &mut dyn StoreReader,
    definition: &str,
) -> Option<BTreeSet<(Vec<u8>, String)>> {
    let read = IndexRead {
        definition: definition.into(),
        ranges: vec![(vec![0], vec![0xFF])],
        descending: false,
        count_max: 1 << 20,
    };
    let mut found = BTreeSet::new();
    let mut names = BTreeSet::new();
    let end = reader.read_index(&read, &mut |key, name| {
        assert!(key.len() <= 512, "{name}: {} bytes", key.len());
        assert!(names.insert(name.to_owned()), "{name} has one entry");
        found.insert((key.to_vec(), name.to_owned()));
    });
    match end.expect("read") {
        IndexEnd::Complete => Some(found),
        IndexEnd::Unusable => None,
        IndexEnd::More => panic!("all were requested"),
    }
}

/// The entries that a rebuild from the records would have.
pub fn rebuilt(reader: &mut dyn StoreReader, definition: &str) -> BTreeSet<(Vec<u8>, String)> {
    let (collection, index) = parse_definition(definition).expect("a definition");
    let prefix = format!("{collection}/");
    let mut tape = Tape::new();
    let mut found = BTreeSet::new();
    let mut after = None;
    let mut has_more = true;
    while has_more {
        let mut last = None;
        let visit = &mut |name: tidewire_core::text::Name, loaded| {
            if let (true, Loaded::Found(record)) = (belongs(&prefix, &name), loaded) {
                let key = index.key(tape.read(&name, 0, record.data.as_str()).as_ref());
                found.insert((key, name.to_string()));
            }
            last = Some(name);
        };
        has_more = reader
            .scan(&prefix, after.as_ref(), 500, visit)
            .expect("scanned");
        after = last.or(after);
    }
    found
}

#[track_caller]
fn check_all(store: &mut dyn Store, definitions: &[&str]) {
    let mut reader = store.reader().expect("a reader");
    for definition in definitions {
        let found = entries(&mut *reader, definition).expect("usable");
        assert_eq!(found, rebuilt(&mut *reader, definition), "{definition}");
    }
}

/// A name of one of the collections, of one below them, or of none.
fn name(random: &mut Random) -> String {
    let collection = ["cards/", "cards/7/", "notes/", "cards", "other/"][random.below(5) as usize];
    format!("{collection}{}", random.below(60))
}

/// A value, of which some are such that no index could have them whole.
pub fn value(random: &mut Random) -> String {
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

fn batch(random: &mut Random, mut name: impl FnMut(&mut Random) -> String) -> Vec<StoreWrite> {
    let mut writes: BTreeMap<String, StoreWrite> = BTreeMap::new();
    for _ in 0..random.below(6) {
        let name = name(random);
        let write = match random.below(4) {
            0 => delete(&name),
            _ => object(&name, &value(random)),
        };
        writes.insert(name, write);
    }
    writes.into_values().collect()
}

fn some_definitions(random: &mut Random) -> Vec<&'static str> {
    let all = DEFINITIONS.into_iter();
    all.filter(|_| random.below(3) > 0).collect()
}

pub fn entries_equal_a_rebuild_after_random_writes_and_kills(mut subject: impl Indexed) {
    let mut random = Random(1);
    let mut declared: Vec<&str> = Vec::new();
    for round in 0..40 {
        // Each round ends without a close, in the middle of a build or after it.
        let mut store = subject.open();
        if random.below(2) == 0 {
            declared = some_definitions(&mut random);
            declare(&mut *store, &declared);
        }
        for _ in 0..20 {
            commit(&mut store, &batch(&mut random, name));
            if random.below(3) == 0 {
                store.build_indexes().expect("a step");
            }
        }
        if round % 4 == 3 || random.below(3) == 0 {
            build_all(&mut *store);
            check_all(&mut *store, &declared);
            drop(store);
            assert_eq!(subject.stray_entries(), 0, "round {round}");
        }
    }
}

pub fn a_new_index_is_used_when_it_is_complete(mut subject: impl Indexed) {
    let mut store = subject.open();
    let writes: Vec<StoreWrite> = (0..MANY)
        .map(|number| object(&format!("cards/{number:06}"), r#"{"board":1}"#))
        .collect();
    commit(&mut store, &writes);
    let all = |store: &mut dyn Store| {
        let mut reader = store.reader().expect("a reader");
        entries(&mut *reader, DEFINITIONS[0])
    };
    declare(&mut *store, &DEFINITIONS[..1]);
    assert_eq!(all(&mut *store), None);
    let first = store.build_indexes().expect("a step");
    assert_eq!(first, IndexBuild::Pending, "one step is not enough");
    assert_eq!(all(&mut *store), None);
    // Writes in front of the build and behind it, then a kill.
    let last = format!("cards/{:06}", MANY - 1);
    commit(
        &mut store,
        &[
            object("cards/000000", r#"{"board":2}"#),
            object(&last, "[]"),
            delete("cards/000001"),
        ],
    );
    drop(store);
    let mut store = subject.open();
    assert_eq!(all(&mut *store), None);
    declare(&mut *store, &DEFINITIONS[..1]);
    build_all(&mut *store);
    assert_eq!(all(&mut *store).map(|all| all.len()), Some(MANY - 1));
    check_all(&mut *store, &DEFINITIONS[..1]);
    // An index that is no longer declared can't be used at once, and leaves nothing.
    declare(&mut *store, &[]);
    assert_eq!(all(&mut *store), None);
    build_all(&mut *store);
    drop(store);
    assert_eq!(subject.stray_entries(), 0);
}

pub fn ranges_are_read_in_their_order_and_both_directions(mut subject: impl Indexed) {
    let mut store = subject.open();
    declare(&mut *store, &DEFINITIONS[..1]);
    build_all(&mut *store);
    let writes: Vec<StoreWrite> = (0..6)
        .map(|number| {
            let board = format!(r#"{{"board":{}}}"#, number / 2);
            object(&format!("cards/{number}"), &board)
        })
        .collect();
    commit(&mut store, &writes);
    let mut reader = store.reader().expect("a reader");
    let all = entries(&mut *reader, DEFINITIONS[0]).expect("usable");
    let mut all: Vec<Vec<u8>> = all.into_iter().map(|(key, _)| key).collect();
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
        let ended = reader.read_index(&read, &mut |_, name| {
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

/// A refused write leaves the entry of the stored record. A repeated batch leaves the same entries.
pub fn only_done_writes_change_entries(mut subject: impl Indexed) {
    let mut store = subject.open();
    declare(&mut *store, &DEFINITIONS);
    build_all(&mut *store);
    let at = |version| Expected::of(&record(version, "{}"));
    let value =
        |version, board: u32| StoreChange::Put(record(version, &format!(r#"{{"board":{board}}}"#)));
    let made: Vec<StoreWrite> = (0..50)
        .map(|number| write(&format!("cards/{number}"), Expected::Missing, value(1, 0)))
        .collect();
    let mixed: Vec<StoreWrite> = (0..50)
        .map(|number| {
            let name = format!("cards/{number}");
            match number % 5 {
                0 => write(&name, at(1), value(2, 1)),
                1 => write(&name, at(7), value(8, 2)),
                2 => write(&name, at(1), StoreChange::Delete),
                3 => write(&name, at(7), StoreChange::Delete),
                _ => write(&name, Expected::Missing, value(1, 3)),
            }
        })
        .collect();
    for writes in [&made, &mixed] {
        let first = store.commit(writes).expect("committed");
        assert_eq!(store.commit(writes).expect("repeated"), first);
        check_all(&mut *store, &DEFINITIONS);
    }
}

/// Values and names that a database could refuse in an index, in batches before, during and after a build.
pub fn no_value_and_no_name_blocks_a_batch(mut subject: impl Indexed) {
    let mut store = subject.open();
    let long = "\u{1}\u{10ffff}é\"\\".repeat(80);
    let values = [
        "null",
        "\"\\u0000\"",
        "\"\\ud800\"",
        "1e999",
        "-0",
        "123456789012345678901234567890",
        "[[[[]]]]",
        "{\"\\u0000\":{}}",
        &format!("\"{}\"", "\\u0000".repeat(900)),
        &format!("\"{}\"", "0123456789abcdef".repeat(400)),
    ];
    let names = ["\0", "é", &*long, &"n".repeat(2_400)];
    let mut writes = Vec::new();
    for (at, value) in values.iter().enumerate() {
        for (number, name) in names.iter().enumerate() {
            let name = format!("cards/{at}{number}{name}");
            let name: String = name.chars().take(2_500 / 4).collect();
            writes.push(object(
                &name,
                &format!(r#"{{"board":{value},"position":{value}}}"#),
            ));
        }
    }
    let longest = format!("cards/{}", "n".repeat(2_400));
    writes.push(object(&longest, &format!(r#"{{"board":{}}}"#, values[9])));
    let (before, rest) = writes.split_at(writes.len() / 3);
    let (during, after) = rest.split_at(rest.len() / 2);
    commit(&mut store, before);
    declare(&mut *store, &DEFINITIONS);
    commit(&mut store, during);
    build_all(&mut *store);
    commit(&mut store, after);
    let mut reader = store.reader().expect("a reader");
    for definition in &DEFINITIONS[..2] {
        let found = entries(&mut *reader, definition).expect("usable");
        // A store may give a record with a very long name the key of records that each query reads.
        let mut expected = rebuilt(&mut *reader, definition);
        if !found.contains(
            expected
                .iter()
                .find(|(_, name)| *name == longest)
                .expect("stored"),
        ) {
            expected.retain(|(_, name)| *name != longest);
            expected.insert((vec![1], longest.clone()));
        }
        assert_eq!(found, expected, "{definition}");
        assert_eq!(found.len(), writes.len());
    }
}

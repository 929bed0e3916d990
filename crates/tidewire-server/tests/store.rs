//! The suite that every registered store must pass, written once, and what only the default store can show: its
//! files, its lock and its damage.

use std::collections::BTreeMap;
use std::path::Path;

use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use tempfile::TempDir;
use tidewire_core::store::{
    Incarnation, Loaded, Opened, Store, StoreChange, StoreWrite, StoredRecord, Version,
};
use tidewire_core::text::{Name, Payload};
use tidewire_server::store::folder::{DataFolder, FolderError};
use tidewire_server::store::memory::MemoryDisk;
use tidewire_server::store::sqlite::{self, SqliteOptions};
use tidewire_server::store::{self, StoreKind};

/// A place where a store can be opened again and again.
trait Subject {
    fn open_limited(&mut self, bytes_max: Option<u64>) -> (Box<dyn Store>, Opened);

    fn open(&mut self) -> (Box<dyn Store>, Opened) {
        self.open_limited(None)
    }
}

impl Subject for MemoryDisk {
    fn open_limited(&mut self, bytes_max: Option<u64>) -> (Box<dyn Store>, Opened) {
        let (store, opened) = MemoryDisk::open(self, bytes_max);
        (Box::new(store), opened)
    }
}

struct SqliteFolder {
    place: TempDir,
    folder: DataFolder,
}

impl Default for SqliteFolder {
    fn default() -> Self {
        let place = tempfile::tempdir().expect("a temporary folder");
        let folder = DataFolder::open(place.path()).expect("an empty folder opens");
        Self { place, folder }
    }
}

impl SqliteFolder {
    /// A connection beside the store, to look at and damage what it wrote.
    fn sql(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.place.path().join(sqlite::FILE)).expect("opens")
    }
}

impl Subject for SqliteFolder {
    fn open_limited(&mut self, bytes_max: Option<u64>) -> (Box<dyn Store>, Opened) {
        let kind = StoreKind::Sqlite(SqliteOptions {
            bytes_max,
            ..SqliteOptions::default()
        });
        store::open(&kind, &self.folder).expect("the store opens")
    }
}

macro_rules! suite {
    ($($case:ident)*) => {
        mod memory {
            $(#[test] fn $case() { super::$case(super::MemoryDisk::default()); })*
        }
        mod sqlite_file {
            $(#[test] fn $case() { super::$case(super::SqliteFolder::default()); })*
        }
    };
}

suite! {
    each_name_is_answered_in_its_place
    the_last_write_of_a_name_counts
    unusual_names_and_values_come_back_unchanged
    a_batch_may_be_repeated
    a_batch_that_does_not_fit_leaves_nothing
    deleting_makes_room
    a_reader_sees_every_commit_that_returned
    pages_of_a_scan_join_without_gap_or_repetition
    a_scan_agrees_with_the_model_for_every_prefix
    a_scan_may_start_before_its_prefix_and_ask_for_nothing
    everything_is_there_when_it_is_opened_again
    only_an_unclean_stop_starts_a_new_epoch
    a_closed_store_refuses_commits
}

fn record(version: u32, data: &str) -> StoredRecord {
    StoredRecord {
        incarnation: Incarnation(7),
        version: Version(version),
        data: Payload::from_checked(data),
    }
}

fn put(name: &str, record: StoredRecord) -> StoreWrite {
    StoreWrite {
        name: Name::from(name),
        change: StoreChange::Put(record),
    }
}

fn delete(name: &str) -> StoreWrite {
    StoreWrite {
        name: Name::from(name),
        change: StoreChange::Delete,
    }
}

fn load(store: &mut dyn Store, names: &[&str]) -> Vec<Loaded> {
    let names: Vec<_> = names.iter().copied().map(Name::from).collect();
    let mut reader = store.reader().expect("a reader");
    reader.load(&names).expect("loads")
}

fn scan(
    store: &mut dyn Store,
    prefix: &str,
    after: Option<&str>,
    max: usize,
) -> (Vec<String>, bool) {
    let mut names = Vec::new();
    let after = after.map(Name::from);
    let mut reader = store.reader().expect("a reader");
    let more = reader
        .scan(prefix, after.as_ref(), max, &mut |name, _| {
            names.push(name.to_string())
        })
        .expect("scans");
    (names, more)
}

fn each_name_is_answered_in_its_place(mut subject: impl Subject) {
    let (mut store, _) = subject.open();
    let (a, b) = (record(1, "[1]"), record(2, "{}"));
    store
        .commit(&[put("a", a.clone()), put("b", b.clone())])
        .unwrap();
    let (a, b) = (Loaded::Found(a), Loaded::Found(b));
    assert_eq!(
        load(&mut *store, &["b", "missing", "a", "b", "A", ""]),
        [
            b.clone(),
            Loaded::Missing,
            a.clone(),
            b.clone(),
            Loaded::Missing,
            Loaded::Missing
        ],
    );
    assert_eq!(load(&mut *store, &[]), []);
    // More than one read transaction looks up.
    let names: Vec<_> = (0..1000)
        .map(|i| if i % 2 == 0 { "a" } else { "b" })
        .collect();
    let expected: Vec<_> = (0..1000)
        .map(|i| if i % 2 == 0 { a.clone() } else { b.clone() })
        .collect();
    assert_eq!(load(&mut *store, &names), expected);
}

fn the_last_write_of_a_name_counts(mut subject: impl Subject) {
    let (mut store, _) = subject.open();
    let mut newer = record(2, "[2]");
    newer.incarnation = Incarnation(8);
    store
        .commit(&[put("a", record(1, "[1]")), put("b", record(1, "[1]"))])
        .unwrap();
    store
        .commit(&[put("a", newer.clone()), delete("b"), delete("never")])
        .unwrap();
    let found = load(&mut *store, &["a", "b", "never"]);
    assert_eq!(
        found,
        [Loaded::Found(newer), Loaded::Missing, Loaded::Missing]
    );
    store.commit(&[put("b", record(0, "{}"))]).unwrap();
    assert_eq!(load(&mut *store, &["b"]), [Loaded::Found(record(0, "{}"))]);
    store.commit(&[]).unwrap();
}

fn unusual_names_and_values_come_back_unchanged(mut subject: impl Subject) {
    let long = "n".repeat(1024);
    let big = format!("[\"{}\"]", "x".repeat(1 << 20));
    let names = [
        "a/b",
        "A",
        "a",
        "ä",
        "a\u{308}",
        "\u{10ffff}",
        "\0",
        "a\0b",
        "'\"%_;--",
        " ",
        &long,
    ];
    let values = [
        "{}",
        "[]",
        "{\"a\":\"\\u0000\u{1f600}\"}",
        "[1e400,-0]",
        &big,
    ];
    let (mut store, _) = subject.open();
    let mut writes = Vec::new();
    for (index, name) in names.into_iter().enumerate() {
        writes.push(put(
            name,
            StoredRecord {
                incarnation: Incarnation([0, 1, u64::MAX, 1 << 63][index % 4]),
                version: [Version::CREATED, Version(1), Version::LAST][index % 3],
                data: Payload::from_checked(values[index % values.len()]),
            },
        ));
    }
    store.commit(&writes).unwrap();
    for (found, write) in load(&mut *store, &names).into_iter().zip(&writes) {
        let Loaded::Found(found) = found else {
            panic!("{:?} is {found:?}", write.name)
        };
        assert_eq!(
            StoreChange::Put(found),
            write.change,
            "for {:?}",
            write.name
        );
    }
    let mut sorted = names.map(str::to_owned);
    sorted.sort();
    assert_eq!(scan(&mut *store, "", None, 100), (sorted.to_vec(), false));
}

fn a_batch_may_be_repeated(mut subject: impl Subject) {
    let (mut store, _) = subject.open();
    store.commit(&[put("b", record(1, "[1]"))]).unwrap();
    let batch = [put("a", record(3, "[3]")), delete("b")];
    for _ in 0..3 {
        store.commit(&batch).unwrap();
        let found = load(&mut *store, &["a", "b"]);
        assert_eq!(found, [Loaded::Found(record(3, "[3]")), Loaded::Missing]);
    }
}

fn a_batch_that_does_not_fit_leaves_nothing(mut subject: impl Subject) {
    let (mut store, _) = subject.open_limited(Some(1 << 20));
    store
        .commit(&[put("kept", record(1, "[1]")), put("old", record(1, "[1]"))])
        .unwrap();
    let big = format!("[\"{}\"]", "x".repeat(2 << 20));
    let batch = [
        put("new", record(1, "[1]")),
        delete("old"),
        put("kept", record(2, &big)),
    ];
    for _ in 0..2 {
        let error = store.commit(&batch).unwrap_err();
        assert!(error.full, "not reported as full: {error}");
        let found = load(&mut *store, &["kept", "old", "new"]);
        let kept = Loaded::Found(record(1, "[1]"));
        assert_eq!(found, [kept.clone(), kept, Loaded::Missing]);
    }
    // What fits goes on, and with more room the whole batch goes through.
    store.commit(&[put("other", record(1, "[1]"))]).unwrap();
    drop(store);
    let (mut store, _) = subject.open();
    store.commit(&batch).unwrap();
    let found = load(&mut *store, &["kept", "old", "new", "other"]);
    let one = Loaded::Found(record(1, "[1]"));
    assert_eq!(
        found,
        [
            Loaded::Found(record(2, &big)),
            Loaded::Missing,
            one.clone(),
            one
        ]
    );
}

fn deleting_makes_room(mut subject: impl Subject) {
    let (mut store, _) = subject.open_limited(Some(1 << 20));
    let big = format!("[\"{}\"]", "x".repeat(600 << 10));
    store.commit(&[put("first", record(1, &big))]).unwrap();
    assert!(
        store
            .commit(&[put("second", record(1, &big))])
            .unwrap_err()
            .full
    );
    store.commit(&[delete("first")]).unwrap();
    store.commit(&[put("second", record(1, &big))]).unwrap();
    let found = load(&mut *store, &["first", "second"]);
    assert_eq!(found, [Loaded::Missing, Loaded::Found(record(1, &big))]);
}

fn a_reader_sees_every_commit_that_returned(mut subject: impl Subject) {
    let (mut store, _) = subject.open();
    let mut readers = [store.reader().unwrap(), store.reader().unwrap()];
    let names = [Name::from("a")];
    for version in 1..200 {
        store.commit(&[put("a", record(version, "[]"))]).unwrap();
        for reader in &mut readers {
            let expected = Loaded::Found(record(version, "[]"));
            assert_eq!(reader.load(&names).unwrap(), [expected]);
        }
    }
}

fn pages_of_a_scan_join_without_gap_or_repetition(mut subject: impl Subject) {
    let (mut store, _) = subject.open();
    let names: Vec<_> = (0..10).map(|i| format!("list/{i}")).collect();
    let mut writes: Vec<_> = names
        .iter()
        .map(|name| put(name, record(1, "[]")))
        .collect();
    writes.extend(["list", "list.", "list0", "lisu"].map(|name| put(name, record(1, "[]"))));
    store.commit(&writes).unwrap();
    for max in 1..12 {
        let mut found = Vec::new();
        loop {
            let after = found.last().cloned();
            let (page, more) = scan(&mut *store, "list/", after.as_deref(), max);
            assert!(page.len() <= max);
            assert!(
                page.len() == max || !more,
                "a short page that is not the last"
            );
            found.extend(page);
            if !more {
                break;
            }
        }
        assert_eq!(found, names, "in pages of {max}");
    }
    let (page, more) = scan(&mut *store, "list/", None, 10);
    assert_eq!(
        (page.len(), more),
        (10, false),
        "nothing follows a full last page"
    );
}

fn a_scan_agrees_with_the_model_for_every_prefix(mut subject: impl Subject) {
    let letters = [
        "a",
        "b",
        "\0",
        "\u{7f}",
        "\u{80}",
        "é",
        "\u{d7ff}",
        "\u{e000}",
        "\u{10ffff}",
    ];
    let mut names = vec![String::new()];
    for first in letters {
        for second in letters {
            names.extend([first.to_owned(), format!("{first}{second}")]);
            names.extend(letters.map(|third| format!("{first}{second}{third}")));
        }
    }
    let (mut store, _) = subject.open();
    let mut model = BTreeMap::new();
    let mut writes = Vec::new();
    // Every third name is left out, so prefixes that are no names are asked for as well.
    for (index, name) in names.iter().enumerate() {
        if index % 3 != 0 && model.insert(name.clone(), ()).is_none() {
            writes.push(put(name, record(1, "[]")));
        }
    }
    store.commit(&writes).unwrap();
    for prefix in &names {
        let expected: Vec<_> = model
            .keys()
            .filter(|name| name.starts_with(prefix))
            .cloned()
            .collect();
        let middle = expected.get(expected.len() / 2).cloned();
        assert_eq!(
            scan(&mut *store, prefix, None, 1000),
            (expected.clone(), false),
            "{prefix:?}"
        );
        if let Some(middle) = middle {
            let rest: Vec<_> = expected.into_iter().filter(|name| *name > middle).collect();
            assert_eq!(
                scan(&mut *store, prefix, Some(&middle), 1000),
                (rest, false),
                "{prefix:?}"
            );
        }
    }
}

fn a_scan_may_start_before_its_prefix_and_ask_for_nothing(mut subject: impl Subject) {
    let (mut store, _) = subject.open();
    let names = ["a", "m", "ma", "z"];
    store
        .commit(&names.map(|name| put(name, record(1, "[]"))))
        .unwrap();
    let both = vec!["m".to_owned(), "ma".to_owned()];
    assert_eq!(scan(&mut *store, "m", Some("a"), 9), (both, false));
    assert_eq!(scan(&mut *store, "m", Some("z"), 9), (vec![], false));
    assert_eq!(scan(&mut *store, "m", Some("ma"), 9), (vec![], false));
    assert_eq!(scan(&mut *store, "m", None, 0), (vec![], true));
    assert_eq!(scan(&mut *store, "q", None, 0), (vec![], false));
}

fn everything_is_there_when_it_is_opened_again(mut subject: impl Subject) {
    for (clean, version) in [(false, 1), (true, 2), (false, 3)] {
        let (mut store, _) = subject.open();
        let earlier = load(&mut *store, &["a", "gone"]);
        let expected = match version {
            1 => Loaded::Missing,
            _ => Loaded::Found(record(version - 1, "[]")),
        };
        assert_eq!(earlier, [expected, Loaded::Missing]);
        store
            .commit(&[
                put("a", record(version, "[]")),
                put("gone", record(1, "[]")),
            ])
            .unwrap();
        store.commit(&[delete("gone")]).unwrap();
        if clean {
            store.close().unwrap();
        }
    }
}

fn only_an_unclean_stop_starts_a_new_epoch(mut subject: impl Subject) {
    let mut open = |close: bool| {
        let (mut store, opened) = subject.open();
        store.commit(&[put("a", record(1, "[]"))]).unwrap();
        if close {
            store.close().unwrap();
        }
        opened
    };
    let first = open(true);
    let after_clean = open(false);
    let after_unclean = open(false);
    let after_another = open(true);
    let last = open(true);
    assert_eq!(first.epoch, after_clean.epoch);
    assert!(after_unclean.epoch > after_clean.epoch);
    assert!(after_another.epoch > after_unclean.epoch);
    assert_eq!(last.epoch, after_another.epoch);
    let openings = [first, after_clean, after_unclean, after_another, last];
    assert_eq!(openings.map(|opened| opened.opening), [1, 2, 3, 4, 5]);
}

fn a_closed_store_refuses_commits(mut subject: impl Subject) {
    let (mut store, _) = subject.open();
    store.close().unwrap();
    let error = store.commit(&[put("a", record(1, "[]"))]).unwrap_err();
    assert!(!error.full && error.message.contains("closed"), "{error}");
    assert_eq!(load(&mut *store, &["a"]), [Loaded::Missing]);
}

/// Each column of a row is covered by the checksum, and the damage is kept when the name is written again.
#[test]
fn a_damaged_row_is_kept_aside_and_never_served() {
    let damages = [
        "data = '[2]'",
        "data = CAST(x'5bff5d' AS TEXT)",
        "data = ''",
        "version = 2",
        "version = -1",
        "version = 4294967296",
        "incarnation = 8",
        "checksum = checksum + 1",
        "checksum = -1",
        "name = 'a'",
    ];
    for damage in damages {
        let mut subject = SqliteFolder::default();
        let (mut store, _) = subject.open();
        store
            .commit(&[put("b", record(1, "[1]")), put("c", record(1, "[1]"))])
            .unwrap();
        let changed = subject
            .sql()
            .execute(&format!("UPDATE records SET {damage} WHERE name = 'b'"), []);
        assert_eq!(changed, Ok(1));
        let name = if damage.starts_with("name") { "a" } else { "b" };

        let sound = Loaded::Found(record(1, "[1]"));
        for _ in 0..2 {
            assert_eq!(
                load(&mut *store, &[name, "c"]),
                [Loaded::Corrupt, sound.clone()],
                "{damage}"
            );
        }
        let mut scanned = Vec::new();
        let mut reader = store.reader().unwrap();
        reader
            .scan("", None, 9, &mut |name, loaded| {
                scanned.push((name, loaded))
            })
            .unwrap();
        assert_eq!(
            scanned,
            [
                (Name::from(name), Loaded::Corrupt),
                (Name::from("c"), sound)
            ]
        );
        let report = sqlite::check(&subject.folder).unwrap();
        assert_eq!(
            (report.sound_count, report.quarantined_count),
            (1, 1),
            "{damage}"
        );
        assert_eq!(report.corrupt, [Name::from(name)]);
        assert!(!report.is_sound());

        store.commit(&[put(name, record(9, "[9]"))]).unwrap();
        assert_eq!(
            load(&mut *store, &[name]),
            [Loaded::Found(record(9, "[9]"))]
        );
        let report = sqlite::check(&subject.folder).unwrap();
        assert_eq!(
            (report.sound_count, report.quarantined_count),
            (2, 1),
            "{damage}"
        );
        assert!(report.is_sound());
    }
}

#[test]
fn a_check_leaves_the_epoch_alone() {
    let mut subject = SqliteFolder::default();
    let (mut store, first) = subject.open();
    store.commit(&[put("a", record(1, "[]"))]).unwrap();
    store.close().unwrap();
    drop(store);
    assert_eq!(sqlite::check(&subject.folder).unwrap().sound_count, 1);
    let (_store, second) = subject.open();
    assert_eq!(
        (first.epoch, first.opening + 1),
        (second.epoch, second.opening)
    );
}

#[test]
fn a_check_needs_a_store_that_nobody_uses() {
    let subject = SqliteFolder::default();
    let path = subject.place.path();
    assert!(matches!(
        store::check(path),
        Err(FolderError::Locked { .. })
    ));
    let SqliteFolder { place, folder } = subject;
    drop(folder);
    let missing = place.path().join("missing");
    for path in [place.path(), &missing] {
        let checked = store::check(path);
        assert!(
            matches!(checked, Err(FolderError::NoStore { .. })),
            "{checked:?}"
        );
    }
    assert!(!missing.exists(), "a check makes no folder");
}

#[test]
fn a_report_names_what_is_corrupt() {
    let mut subject = SqliteFolder::default();
    let (mut store, _) = subject.open();
    store
        .commit(&["a", "b", "c"].map(|name| put(name, record(1, "[1]"))))
        .unwrap();
    store.close().unwrap();
    let damage = "UPDATE records SET version = 5 WHERE name <> 'b'";
    assert_eq!(subject.sql().execute(damage, []), Ok(2));
    let SqliteFolder { place, folder } = subject;
    drop(folder);
    let report = store::check(place.path()).unwrap();
    assert!(!report.is_sound());
    let text = "1 sound, 2 corrupt, 2 kept aside\ncorrupt record \"a\"\ncorrupt record \"c\"";
    assert_eq!(report.to_string(), text);
}

/// The first page of the index of names is overwritten, which no checksum of a record covers.
#[test]
fn a_check_looks_at_the_structure() {
    let mut subject = SqliteFolder::default();
    let (mut store, _) = subject.open();
    let writes: Vec<_> = (0..500)
        .map(|i| put(&format!("name/{i}"), record(1, "[1]")))
        .collect();
    store.commit(&writes).unwrap();
    store.close().unwrap();
    let sql = subject.sql();
    let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_records_1'";
    let page: u32 = sql.query_row(root, [], |row| row.get(0)).unwrap();
    drop(sql);
    let file = subject.place.path().join(sqlite::FILE);
    let mut bytes = std::fs::read(&file).unwrap();
    let start = (page as usize - 1) * 4096;
    bytes[start..start + 4096].fill(0);
    std::fs::write(&file, bytes).unwrap();
    match sqlite::check(&subject.folder) {
        Ok(report) => assert!(!report.is_sound(), "{report}"),
        Err(error) => assert!(matches!(error, FolderError::Damaged { .. }), "{error}"),
    }
}

/// Everything in a folder but the lock.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
        .filter(|(name, _)| name != "lock")
        .map(|(name, path)| (name, std::fs::read(path).unwrap()))
        .collect()
}

/// A folder with a newer format: cleanly closed, and as a killed process leaves it, with the news in the log only.
fn newer_folders() -> [SqliteFolder; 2] {
    let mut subject = SqliteFolder::default();
    let (mut store, _) = subject.open();
    store.commit(&[put("a", record(1, "[]"))]).unwrap();
    let newer = "UPDATE meta SET value = 2 WHERE key = 'format'";
    let sql = subject.sql();
    sql.execute(newer, []).unwrap();
    let killed = SqliteFolder::default();
    for (name, bytes) in files(subject.place.path()) {
        std::fs::write(killed.place.path().join(name), bytes).unwrap();
    }
    drop(sql);
    store.close().unwrap();
    [subject, killed]
}

#[test]
fn a_newer_format_is_refused_unchanged() {
    for subject in newer_folders() {
        let path = subject.place.path();
        let before = files(path);
        for _ in 0..2 {
            match store::open(
                &StoreKind::Sqlite(SqliteOptions::default()),
                &subject.folder,
            ) {
                Err(FolderError::NewerFormat {
                    found: 2, known: 1, ..
                }) => {}
                Err(other) => panic!("refused for another reason: {other}"),
                Ok(_) => panic!("opened"),
            }
            assert!(matches!(
                sqlite::check(&subject.folder),
                Err(FolderError::NewerFormat { .. })
            ));
        }
        let after = files(path);
        for (name, bytes) in &before {
            // The log's index is scratch space of whoever looks.
            if !name.ends_with("-shm") {
                assert!(after.get(name) == Some(bytes), "{name} has changed");
            }
        }
    }
}

#[test]
fn what_is_no_store_is_refused_and_left_alone() {
    let other = SqliteFolder::default();
    other
        .sql()
        .execute("CREATE TABLE other (value)", [])
        .unwrap();
    let garbage = SqliteFolder::default();
    std::fs::write(
        garbage.place.path().join(sqlite::FILE),
        "no database".repeat(1000),
    )
    .unwrap();
    for subject in [other, garbage] {
        let before = files(subject.place.path());
        match store::open(
            &StoreKind::Sqlite(SqliteOptions::default()),
            &subject.folder,
        ) {
            Err(FolderError::Damaged { .. }) => {}
            Err(other) => panic!("refused for another reason: {other}"),
            Ok(_) => panic!("opened"),
        }
        assert_eq!(
            files(subject.place.path())[sqlite::FILE],
            before[sqlite::FILE]
        );
    }
}

#[test]
fn the_log_is_emptied_when_it_has_grown() {
    let mut subject = SqliteFolder::default();
    let (mut store, _) = subject.open();
    let log = subject.place.path().join(format!("{}-wal", sqlite::FILE));
    let log_bytes = || std::fs::metadata(&log).unwrap().len();
    let value = format!("[\"{}\"]", "x".repeat(1 << 20));
    let mut bytes_max = 0;
    for index in 0..40 {
        store
            .commit(&[put(&format!("{index}"), record(1, &value))])
            .unwrap();
        bytes_max = bytes_max.max(log_bytes());
        store.tidy().unwrap();
        assert!(
            log_bytes() < 17 << 20,
            "the log has {} bytes after tidying",
            log_bytes()
        );
    }
    assert!(bytes_max > 16 << 20, "the log never reached the mark");
    let names: Vec<_> = (0..40).map(|index| index.to_string()).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let expected = Loaded::Found(record(1, &value));
    assert!(
        load(&mut *store, &names)
            .iter()
            .all(|found| *found == expected)
    );
}

#[test]
fn a_store_that_was_replaced_is_noticed_before_the_next_commit() {
    let mut subject = SqliteFolder::default();
    let (mut store, _) = subject.open_limited(Some(1 << 20));
    let big = format!("[\"{}\"]", "x".repeat(2 << 20));
    assert!(store.commit(&[put("a", record(1, &big))]).unwrap_err().full);
    subject
        .sql()
        .execute(
            "UPDATE meta SET value = value + 1 WHERE key = 'opening'",
            [],
        )
        .unwrap();
    let error = store.commit(&[put("a", record(1, "[]"))]).unwrap_err();
    assert!(error.message.contains("replaced"), "{error}");
}

#[derive(Clone, Debug)]
enum Step {
    /// Few names and versions, so that steps meet each other. A name with no version is deleted.
    Commit(BTreeMap<u8, Option<u32>>),
    /// Asks for more than fits, behind some writes that would.
    Overfill(u8),
    Close,
    Drop,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => btree_map(0..20_u8, of(0..9_u32), 0..8).prop_map(Step::Commit),
        1 => any::<u8>().prop_map(Step::Overfill),
        1 => Just(Step::Close),
        1 => Just(Step::Drop),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Both stores hold what a map holds, whatever happens to them in whatever order.
    #[test]
    fn stores_agree_with_a_map(steps in vec(step(), 1..30)) {
        agrees_with_a_map(&mut MemoryDisk::default(), &steps);
        agrees_with_a_map(&mut SqliteFolder::default(), &steps);
    }
}

fn agrees_with_a_map(subject: &mut impl Subject, steps: &[Step]) {
    let limit = Some(1 << 20);
    let mut model = BTreeMap::new();
    let (mut store, mut opened) = subject.open_limited(limit);
    for step in steps {
        match step {
            Step::Commit(changes) => {
                let mut writes = Vec::new();
                for (name, version) in changes {
                    let name = format!("name/{name}");
                    match version {
                        Some(version) => {
                            writes.push(put(&name, record(*version, "[]")));
                            model.insert(name, record(*version, "[]"));
                        }
                        None => {
                            writes.push(delete(&name));
                            model.remove(&name);
                        }
                    }
                }
                store.commit(&writes).unwrap();
            }
            Step::Overfill(name) => {
                let big = format!("[\"{}\"]", "x".repeat(2 << 20));
                let name = format!("name/{name}");
                let writes = [put("small", record(1, "[]")), put(&name, record(1, &big))];
                assert!(store.commit(&writes).unwrap_err().full);
            }
            Step::Close | Step::Drop => {
                let is_clean = matches!(step, Step::Close);
                if is_clean {
                    store.close().unwrap();
                }
                drop(store);
                let before = opened;
                (store, opened) = subject.open_limited(limit);
                assert_eq!(opened.opening, before.opening + 1);
                assert_eq!(opened.epoch == before.epoch, is_clean);
            }
        }
        let mut found = BTreeMap::new();
        let mut reader = store.reader().unwrap();
        let more = reader.scan("", None, 1000, &mut |name, loaded| {
            found.insert(name.to_string(), loaded);
        });
        assert_eq!(more, Ok(false));
        let expected: BTreeMap<_, _> = model
            .iter()
            .map(|(name, record)| (name.clone(), Loaded::Found(record.clone())))
            .collect();
        assert_eq!(found, expected, "after {step:?}");
    }
}

/// Names the folder for the second process of the next test, which is this program again.
const SECOND_PROCESS: &str = "TIDEWIRE_TEST_SECOND_PROCESS";

#[test]
fn a_second_process_is_refused_with_the_first_ones_id() {
    if let Some(folder) = std::env::var_os(SECOND_PROCESS) {
        match DataFolder::open(Path::new(&folder)) {
            Err(error) => println!("refused: {error}"),
            Ok(_) => println!("opened"),
        }
        return;
    }
    let run_second = |folder: &Path| {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "--nocapture",
                "a_second_process_is_refused_with_the_first_ones_id",
            ])
            .env(SECOND_PROCESS, folder)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let SqliteFolder { place, folder } = SqliteFolder::default();
    let refused = run_second(place.path());
    let process = format!("in use by process {};", std::process::id());
    assert!(
        refused.contains("refused: ") && refused.contains(&process),
        "{refused}"
    );
    drop(folder);
    let opened = run_second(place.path());
    assert!(opened.contains("opened"), "{opened}");
}

//! The store suite on the stores that need no server, and tests of the default store only: its files, its lock, and damage to
//! them.

#[path = "store_suite/indexes.rs"]
mod indexes;
#[path = "store_suite/limited.rs"]
mod limited;
#[path = "store_suite/moves.rs"]
mod moves;
mod store_suite;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use indexes::Indexed;
use limited::LimitedSubject;
use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use store_suite::{Open, Subject, delete, load, put, record};
use tempfile::TempDir;
use tidewire_core::store::{Expected, Loaded, StoreWrite, StoredRecord, Written};
use tidewire_core::text::Name;
use tidewire_store::folder::{DataFolder, FolderError};
use tidewire_store::memory::MemoryDisk;
use tidewire_store::sqlite::{self, SqliteOptions};
use tidewire_store::{OpenError, StoreKind};

impl Subject for MemoryDisk {
    fn open(&mut self) -> Open {
        self.open_limited(None)
    }
}

impl LimitedSubject for MemoryDisk {
    fn open_limited(&mut self, bytes_max: Option<u64>) -> Open {
        let (store, opened) = MemoryDisk::open(self, bytes_max);
        Open::new((Box::new(store), opened))
    }
}

struct SqliteFolder {
    directory: TempDir,
    folder: DataFolder,
}

impl Default for SqliteFolder {
    fn default() -> Self {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let folder = DataFolder::open(directory.path()).expect("an empty folder opens");
        Self { directory, folder }
    }
}

impl SqliteFolder {
    /// A separate connection to the database, for reading and damaging it.
    fn sql(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.directory.path().join(sqlite::FILE)).expect("opens")
    }
}

impl Subject for SqliteFolder {
    fn open(&mut self) -> Open {
        self.open_limited(None)
    }
}

impl LimitedSubject for SqliteFolder {
    fn open_limited(&mut self, bytes_max: Option<u64>) -> Open {
        let kind = StoreKind::Sqlite(SqliteOptions {
            bytes_max,
            ..SqliteOptions::default()
        });
        let open = tidewire_store::open(&kind, &self.folder).expect("the store opens");
        Open::new((open.store, open.opened))
    }
}

impl Indexed for SqliteFolder {
    fn stray_entries(&mut self) -> u64 {
        let stray =
            "SELECT count(*) FROM index_entries WHERE number NOT IN (SELECT number FROM indexes)";
        let count: i64 = self
            .sql()
            .query_row(stray, [], |row| row.get(0))
            .expect("a count");
        count.unsigned_abs()
    }
}

suite!(memory, super::MemoryDisk::default());
suite!(sqlite_file, super::SqliteFolder::default());
index_suite!(sqlite_indexes, super::SqliteFolder::default());

/// The cases of a store with a size limit.
macro_rules! limited_suite {
    ($($case:ident)*) => {
        mod limited_memory {
            $(#[test] fn $case() { crate::limited::$case(super::MemoryDisk::default()); })*
        }
        mod limited_sqlite_file {
            $(#[test] fn $case() { crate::limited::$case(super::SqliteFolder::default()); })*
        }
    };
}

limited_suite! {
    a_batch_that_does_not_fit_leaves_nothing
    deleting_makes_room
}

#[test]
fn records_move_between_stores_that_need_no_server() {
    moves::between_all(&[
        ("sqlite", &|| StoreKind::Sqlite(SqliteOptions::default())),
        ("memory", &|| StoreKind::Memory { bytes_max: None }),
    ]);
}

/// The checksum covers each column of a row. The damaged row stays in the quarantine when the name is written again.
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
        let mut store = subject.open();
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
        assert_eq!(report.corrupt.names, [Name::from(name)]);
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
    let mut store = subject.open();
    let first = store.opened;
    store.commit(&[put("a", record(1, "[]"))]).unwrap();
    store.close().unwrap();
    drop(store);
    assert_eq!(sqlite::check(&subject.folder).unwrap().sound_count, 1);
    let second = subject.open().opened;
    assert_eq!(
        (first.epoch, first.opening + 1),
        (second.epoch, second.opening)
    );
}

#[test]
fn a_check_needs_an_unused_store() {
    let subject = SqliteFolder::default();
    let path = subject.directory.path();
    assert!(matches!(
        tidewire_store::check(path),
        Err(FolderError::Locked { .. })
    ));
    let SqliteFolder { directory, folder } = subject;
    drop(folder);
    let missing = directory.path().join("missing");
    for path in [directory.path(), &missing] {
        let checked = tidewire_store::check(path);
        assert!(
            matches!(checked, Err(FolderError::NoStore { .. })),
            "{checked:?}"
        );
    }
    assert!(!missing.exists(), "a check must not create the folder");
}

#[test]
fn a_report_names_what_is_corrupt() {
    let mut subject = SqliteFolder::default();
    let mut store = subject.open();
    store
        .commit(&["a", "b", "c"].map(|name| put(name, record(1, "[1]"))))
        .unwrap();
    store.close().unwrap();
    let damage = "UPDATE records SET version = 5 WHERE name <> 'b'";
    assert_eq!(subject.sql().execute(damage, []), Ok(2));
    let SqliteFolder { directory, folder } = subject;
    drop(folder);
    let report = tidewire_store::check(directory.path()).unwrap();
    assert!(!report.is_sound());
    let text = "1 sound, 2 corrupt, 2 quarantined\ncorrupt record \"a\"\ncorrupt record \"c\"";
    assert_eq!(report.to_string(), text);
}

/// The store remembers the row of a written record, and SQLite reuses the row of a deleted record for the next new name.
#[test]
fn a_row_that_went_to_another_name_is_not_written_over() {
    let mut subject = SqliteFolder::default();
    let mut store = subject.open();
    let expecting = |expected, name, record: &StoredRecord| StoreWrite {
        writer: None,
        expected,
        ..put(name, record.clone())
    };
    let [first, second, third] = [1, 2, 3].map(|version| record(version, "[]"));
    let mut commit = |write| assert_eq!(store.commit(&[write]).unwrap(), [Written::Done]);
    commit(expecting(Expected::Missing, "a", &first));
    commit(expecting(Expected::of(&first), "a", &second));
    commit(delete("a"));
    commit(expecting(Expected::Missing, "b", &first));
    commit(expecting(Expected::Missing, "a", &first));
    commit(expecting(Expected::of(&first), "a", &second));
    commit(expecting(Expected::of(&second), "a", &third));
    let found = [Loaded::Found(third), Loaded::Found(first)];
    assert_eq!(load(&mut *store, &["a", "b"]), found);
}

/// Overwrites the first page of the index of names, which no checksum of a record covers.
#[test]
fn a_check_covers_the_structure() {
    let mut subject = SqliteFolder::default();
    let mut store = subject.open();
    let writes: Vec<_> = (0..500)
        .map(|i| put(&format!("name/{i}"), record(1, "[1]")))
        .collect();
    store.commit(&writes).unwrap();
    store.close().unwrap();
    let sql = subject.sql();
    let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_records_1'";
    let page: u32 = sql.query_row(root, [], |row| row.get(0)).unwrap();
    drop(sql);
    let file = subject.directory.path().join(sqlite::FILE);
    let mut bytes = std::fs::read(&file).unwrap();
    let start = (page as usize - 1) * 4096;
    bytes[start..start + 4096].fill(0);
    std::fs::write(&file, bytes).unwrap();
    match sqlite::check(&subject.folder) {
        Ok(report) => assert!(!report.is_sound(), "{report}"),
        Err(error) => assert!(matches!(error, FolderError::Damaged { .. }), "{error}"),
    }
}

/// All files in a folder except the lock.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
        .filter(|(name, _)| name != "lock")
        .map(|(name, path)| (name, std::fs::read(path).unwrap()))
        .collect()
}

/// A folder with a newer format: once cleanly closed, and once as a killed process leaves it, with the changes only in the log.
fn newer_folders() -> [SqliteFolder; 2] {
    let mut subject = SqliteFolder::default();
    let mut store = subject.open();
    store.commit(&[put("a", record(1, "[]"))]).unwrap();
    let newer = "UPDATE meta SET value = 5 WHERE key = 'format'";
    let sql = subject.sql();
    sql.execute(newer, []).unwrap();
    let killed = SqliteFolder::default();
    for (name, bytes) in files(subject.directory.path()) {
        std::fs::write(killed.directory.path().join(name), bytes).unwrap();
    }
    drop(sql);
    store.close().unwrap();
    [subject, killed]
}

#[test]
fn a_newer_format_is_refused_unchanged() {
    for subject in newer_folders() {
        let path = subject.directory.path();
        let before = files(path);
        for _ in 0..2 {
            match tidewire_store::open(
                &StoreKind::Sqlite(SqliteOptions::default()),
                &subject.folder,
            ) {
                Err(OpenError::Folder(FolderError::NewerFormat {
                    found: 5, known: 4, ..
                })) => {}
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
            // Any reader may change the log's index.
            if !name.ends_with("-shm") {
                assert!(after.get(name) == Some(bytes), "{name} has changed");
            }
        }
    }
}

#[test]
fn files_that_are_not_a_store_are_refused_and_stay_unchanged() {
    let other = SqliteFolder::default();
    other
        .sql()
        .execute("CREATE TABLE other (value)", [])
        .unwrap();
    let garbage = SqliteFolder::default();
    std::fs::write(
        garbage.directory.path().join(sqlite::FILE),
        "no database".repeat(1000),
    )
    .unwrap();
    for subject in [other, garbage] {
        let before = files(subject.directory.path());
        match tidewire_store::open(
            &StoreKind::Sqlite(SqliteOptions::default()),
            &subject.folder,
        ) {
            Err(OpenError::Folder(FolderError::Damaged { .. })) => {}
            Err(other) => panic!("refused for another reason: {other}"),
            Ok(_) => panic!("opened"),
        }
        assert_eq!(
            files(subject.directory.path())[sqlite::FILE],
            before[sqlite::FILE]
        );
    }
}

#[test]
fn the_log_begins_again_when_it_has_grown() {
    log_begins_again(400, 100 << 10, 16 << 20..=16 << 20);
}

#[test]
fn the_log_begins_again_earlier_after_large_commits() {
    log_begins_again(40, 1 << 20, 512 << 10..=4 << 20);
}

/// Writes `count` records of `bytes` bytes, one in each commit, and checks that the log restarts at a size in `marks`.
fn log_begins_again(count: usize, bytes: usize, marks: std::ops::RangeInclusive<u64>) {
    let mut subject = SqliteFolder::default();
    let mut store = subject.open();
    let log = subject
        .directory
        .path()
        .join(format!("{}-wal", sqlite::FILE));
    let log_bytes = || std::fs::metadata(&log).unwrap().len();
    let value = format!("[\"{}\"]", "x".repeat(bytes));
    let mut bytes_max = 0;
    for index in 0..count {
        store
            .commit(&[put(&format!("{index}"), record(1, &value))])
            .unwrap();
        store.tidy().unwrap();
        bytes_max = bytes_max.max(log_bytes());
        let bytes = log_bytes();
        assert!(bytes < marks.end() + (2 << 20), "the log has {bytes} bytes");
        // The log is overwritten and not emptied, so that a sync need not store a new file size.
        assert!(log_bytes() + (2 << 20) > bytes_max, "the log has shrunk");
    }
    assert!(bytes_max > *marks.start(), "the log never reached the mark");
    let names: Vec<_> = (0..count).map(|index| index.to_string()).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let expected = Loaded::Found(record(1, &value));
    assert!(
        load(&mut *store, &names)
            .iter()
            .all(|found| *found == expected)
    );
}

/// A store that writes a record of a megabyte in each commit, and a reader of the same database.
struct Growing {
    subject: SqliteFolder,
    store: Open,
    reader: rusqlite::Connection,
    count: u32,
}

impl Growing {
    fn new() -> Self {
        let mut subject = SqliteFolder::default();
        let store = subject.open();
        let reader = subject.sql();
        Self {
            subject,
            store,
            reader,
            count: 0,
        }
    }

    fn commit(&mut self) {
        let value = format!("[\"{}\"]", "x".repeat(1 << 20));
        let name = self.count.to_string();
        self.store.commit(&[put(&name, record(1, &value))]).unwrap();
        self.count += 1;
    }

    fn tidy(&mut self) -> Duration {
        let began = Instant::now();
        self.store.tidy().unwrap();
        began.elapsed()
    }

    /// Begins a transaction that keeps the log as it is.
    fn begin_to_read(&self) {
        self.reader.execute_batch("BEGIN").unwrap();
        assert_eq!(self.read(), self.count);
    }

    fn end_to_read(&self) {
        self.reader.execute_batch("COMMIT").unwrap();
    }

    /// The number of records that the reader sees.
    fn read(&self) -> u32 {
        let count = "SELECT count(*) FROM records";
        self.reader.query_row(count, [], |row| row.get(0)).unwrap()
    }

    fn log_bytes(&self) -> u64 {
        let log = format!("{}-wal", sqlite::FILE);
        std::fs::metadata(self.subject.directory.path().join(log))
            .unwrap()
            .len()
    }

    /// Commits until the log's file becomes shorter, which it does when the log restarts after it has grown.
    fn commit_until_it_restarts(&mut self) {
        let restarted = (0..30).any(|_| {
            self.commit();
            self.tidy();
            self.log_bytes() <= 16 << 20
        });
        assert!(restarted, "the log has {} bytes", self.log_bytes());
        assert_eq!(self.read(), self.count);
    }
}

#[test]
fn a_reader_that_stays_delays_no_checkpoint_and_the_log_restarts_after_it() {
    let mut growing = Growing::new();
    growing.commit();
    growing.begin_to_read();
    let mut durations = Vec::new();
    for _ in 0..30 {
        growing.commit();
        durations.push(growing.tidy());
    }
    durations.sort();
    // A checkpoint that waits for a reader waits 200 ms.
    assert!(
        durations[durations.len() / 2] < Duration::from_millis(100),
        "{durations:?}"
    );
    assert_eq!(growing.read(), 1, "the reader sees later commits");
    assert!(
        growing.log_bytes() > 30 << 20,
        "the reader did not keep the log"
    );
    growing.end_to_read();
    growing.commit_until_it_restarts();
}

#[test]
fn a_long_log_waits_for_readers_but_not_at_each_commit() {
    let mut growing = Growing::new();
    growing.commit();
    growing.begin_to_read();
    let mut durations = Vec::new();
    while growing.log_bytes() < 90 << 20 {
        growing.commit();
        durations.push(growing.tidy());
        // The reader is always one commit behind, so no checkpoint without a wait moves the whole log.
        growing.end_to_read();
        growing.begin_to_read();
        assert!(growing.count < 120, "{} bytes", growing.log_bytes());
    }
    durations.sort();
    let [.., second, longest] = durations.as_slice() else {
        unreachable!("90 MB need many commits");
    };
    assert!(*longest >= Duration::from_millis(200), "{durations:?}");
    assert!(*second < Duration::from_millis(200), "{durations:?}");
    growing.end_to_read();
    growing.commit_until_it_restarts();
}

#[test]
fn a_store_that_was_replaced_is_noticed_before_the_next_commit() {
    let mut subject = SqliteFolder::default();
    let mut store = subject.open_limited(Some(1 << 20));
    let big = format!("[\"{}\"]", "x".repeat(2 << 20));
    assert!(
        store
            .commit(&[put("a", record(1, &big))])
            .unwrap_err()
            .is_full()
    );
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
    /// Few names and versions, so that steps interact. A name without a version is deleted.
    Commit(BTreeMap<u8, Option<u32>>),
    /// A batch that does not fit, after some writes that would fit.
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

    /// Both stores hold the same records as a map after any sequence of steps.
    #[test]
    fn stores_agree_with_a_map(steps in vec(step(), 1..30)) {
        agrees_with_a_map(&mut MemoryDisk::default(), &steps);
        agrees_with_a_map(&mut SqliteFolder::default(), &steps);
    }
}

fn agrees_with_a_map(subject: &mut impl LimitedSubject, steps: &[Step]) {
    let limit = Some(1 << 20);
    let mut model = BTreeMap::new();
    let mut store = subject.open_limited(limit);
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
                assert!(store.commit(&writes).unwrap_err().is_full());
            }
            Step::Close | Step::Drop => {
                let is_clean = matches!(step, Step::Close);
                if is_clean {
                    store.close().unwrap();
                }
                let before = store.opened;
                drop(store);
                store = subject.open_limited(limit);
                let opened = store.opened;
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

/// The environment variable with the folder for the second process of the next test, which is this program again.
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
    let SqliteFolder { directory, folder } = SqliteFolder::default();
    let refused = run_second(directory.path());
    let process = format!("in use by process {};", std::process::id());
    assert!(
        refused.contains("refused: ") && refused.contains(&process),
        "{refused}"
    );
    drop(folder);
    let opened = run_second(directory.path());
    assert!(opened.contains("opened"), "{opened}");
}

//! `tidewire store backup`, `restore`, `export` and `import`, run as a program.

mod client;
mod process;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use client::{Client, acknowledged, wait_until, write};
use process::{Server, run};
use rustix::process::Signal;
use tempfile::TempDir;
use tidewire_core::store::{
    Expected, Incarnation, Loaded, Store, StoreChange, StoreReader, StoreWrite, StoredRecord,
    Version,
};
use tidewire_core::text::{Name, Payload};
use tidewire_store::backup::{MANIFEST, OPENING_STEP};
use tidewire_store::folder::DataFolder;
use tidewire_store::sqlite::{self, SqliteOptions, SqliteStore};

/// All records of a data folder, in order.
fn contents(data: &Path) -> Vec<(Name, Loaded)> {
    let mut all = Vec::new();
    let mut reader = sqlite::reader(data).expect("a store");
    let visit = &mut |name, loaded| all.push((name, loaded));
    assert!(!reader.scan("", None, 100_000, visit).expect("scans"));
    all
}

/// Runs a command in a folder, and returns its standard output and standard error.
fn output_of(directory: &Path, arguments: &[&str], expected: i32) -> String {
    let (code, out, error) = run(directory, arguments);
    assert_eq!(code, expected, "{arguments:?}: {out}{error}");
    if code != 0 {
        let last = error.lines().last().unwrap_or_default();
        assert!(last.starts_with("tidewire: "), "{arguments:?}: {error}");
    }
    format!("{out}{error}")
}

fn record(incarnation: u64, version: Version, data: &str) -> StoredRecord {
    StoredRecord {
        incarnation: Incarnation(incarnation),
        version,
        data: Payload::from_checked(data),
        write_keys: None,
    }
}

/// Records of every shape, including one of the server's own records.
fn shapes() -> Vec<(&'static str, StoredRecord)> {
    vec![
        ("created", record(1 << 40, Version::CREATED, "{}")),
        ("last", record(u64::MAX, Version::LAST, "[]")),
        (
            "q\"uo\\te\n\0",
            record(7, Version(3), "{\"a\":\"\\ud800\\u0000\"}"),
        ),
        (
            "spaced",
            record(7, Version(2), " {\"a\" :\n1,\r\n\t\"b\":[1e400,-0]} "),
        ),
        (
            "user/é\u{10ffff}",
            record(8, Version(1), "{\"é\":1,\"é\":2}"),
        ),
        (
            "\u{1}user/ann",
            record(9, Version(4), "{\"password\":\"x\"}"),
        ),
    ]
}

/// A data folder with these records, closed.
fn filled(directory: &TempDir, data: &str, records: &[(&str, StoredRecord)]) {
    let folder = DataFolder::open(&directory.path().join(data)).expect("an empty folder");
    let (mut store, opened) = SqliteStore::open(&folder, SqliteOptions::default()).expect("opens");
    let put = |(name, record): &(&str, StoredRecord)| StoreWrite {
        writer: None,
        name: Name::from(*name),
        expected: Expected::Missing,
        change: StoreChange::Put(record.clone()),
    };
    let writes: Vec<_> = records.iter().map(put).collect();
    store
        .commit(opened.view(), opened.member(), &writes)
        .expect("committed");
    store.close().expect("closed");
}

/// Writes `a` and `b` alternately, each after the acknowledgement of the other. So in every state of the store `b` is equal to `a`, or
/// one behind.
fn write_pairs(client: &mut Client, pairs: &AtomicI32, is_over: &AtomicBool) {
    for number in 1.. {
        let data = format!("{{\"n\":{number}}}");
        for name in ["a", "b"] {
            client.send(&write(name, number, &data));
            client.receive_until(|message| *message == acknowledged(name));
        }
        pairs.store(number, Ordering::SeqCst);
        if is_over.load(Ordering::SeqCst) {
            return;
        }
    }
}

/// Sets the flag that ends the writing thread, also if a test fails, because the scope of the test waits for that thread.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_backup_under_load_is_one_state_with_every_write_acknowledged_before_it() {
    let server = Server::start(&["--data", "data"]);
    let directory = server.folder.path();
    let (pairs, is_over) = (AtomicI32::new(0), AtomicBool::new(false));
    let mut before = Vec::new();
    std::thread::scope(|scope| {
        let mut client = server.log_in();
        let (pairs, is_over) = (&pairs, &is_over);
        scope.spawn(move || write_pairs(&mut client, pairs, is_over));
        let _end = AtEnd(is_over);
        for round in 0..5 {
            let last = pairs.load(Ordering::SeqCst);
            wait_until(|| pairs.load(Ordering::SeqCst) > last + 20);
            before.push(pairs.load(Ordering::SeqCst));
            let to = format!("backup-{round}");
            let text = output_of(directory, &["store", "backup", &to, "--data", "data"], 0);
            assert!(text.contains("while the server runs"), "{text}");
            assert!(text.contains(": 2 sound, 0 corrupt"), "{text}");
        }
    });
    let all = pairs.load(Ordering::SeqCst);
    for (round, before) in before.into_iter().enumerate() {
        let (from, data) = (format!("backup-{round}"), format!("restored-{round}"));
        output_of(directory, &["store", "restore", &from, "--data", &data], 0);
        let found: Vec<u32> = contents(&directory.join(&data))
            .into_iter()
            .map(|(_, loaded)| match loaded {
                Loaded::Found(record) => record.version.0,
                other => panic!("{other:?}"),
            })
            .collect();
        let [a, b] = found[..] else {
            panic!("{found:?}")
        };
        let before = u32::try_from(before).expect("positive");
        assert!(before <= b && b <= a && a <= b + 1, "{before} {a} {b}");
        assert!(i64::from(a) <= i64::from(all), "from the future");
    }
}

#[test]
fn a_restore_keeps_records_and_begins_a_new_epoch() {
    let directory = tempfile::tempdir().expect("a folder");
    filled(&directory, "data", &shapes());
    let path = directory.path();
    let original = contents(&path.join("data"));
    let text = output_of(path, &["store", "backup", "backup", "--data", "data"], 0);
    assert!(!text.contains("while the server runs"), "{text}");
    let text = output_of(path, &["store", "restore", "backup", "--data", "new"], 0);
    assert!(
        text.contains(": 6 sound, 0 corrupt, 0 quarantined"),
        "{text}"
    );
    assert_eq!(contents(&path.join("new")), original);

    let opened = |data: &str| {
        let folder = DataFolder::open(&path.join(data)).expect("the folder");
        let opened = SqliteStore::open(&folder, SqliteOptions::default());
        opened.expect("opens").1
    };
    let (old, new) = (opened("data"), opened("new"));
    assert!(new.epoch > old.epoch, "{new:?} after {old:?}");
    assert_eq!(new.opening, old.opening + OPENING_STEP.cast_unsigned());
    let mut server = Server::start_in(directory, &["--data", "new"]);
    assert_eq!(server.get("/ready").map(|(status, _)| status), Some(200));
    server.signal(Signal::TERM);
    assert_eq!(server.expect_end().0, 0);
}

#[test]
fn nothing_is_overwritten_and_damage_is_refused() {
    let directory = tempfile::tempdir().expect("a folder");
    filled(&directory, "data", &shapes());
    let path = directory.path();
    let backup = |to| ["store", "backup", to, "--data", "data"];
    let restore = |from| ["store", "restore", from, "--data", "new"];
    output_of(path, &backup("backup"), 0);
    let refused = |arguments: &[&str], parts: &[&str]| {
        let text = output_of(path, arguments, 4);
        for part in parts {
            assert!(text.contains(part), "{arguments:?}: {text}");
        }
    };
    refused(&backup("backup"), &["backup", "nothing is overwritten"]);
    refused(&["store", "backup", "b", "--data", "none"], &["no store"]);
    refused(
        &["store", "restore", "backup", "--data", "data"],
        &["data", "already holds a store", "nothing is overwritten"],
    );
    refused(&restore("missing"), &["not a complete backup"]);
    refused(&restore("data"), &["not a complete backup"]);

    let file = path.join("backup").join(sqlite::FILE);
    let bytes = fs::read(&file).expect("read");
    let mut flipped = bytes.clone();
    flipped[5000] ^= 1;
    let short = bytes[..4096].to_vec();
    let long = [&bytes[..], &[0]].concat();
    for damaged in [flipped, short, long] {
        fs::write(&file, damaged).expect("written");
        refused(&restore("backup"), &[sqlite::FILE, "is damaged"]);
        assert!(!path.join("new").join(sqlite::FILE).exists());
    }
    fs::write(&file, bytes).expect("written");
    let manifest = path.join("backup").join(MANIFEST);
    let text = fs::read_to_string(&manifest).expect("read");
    let newer = text.replace("\"tidewire_backup\": 1", "\"tidewire_backup\": 2");
    fs::write(&manifest, newer).expect("written");
    refused(&restore("backup"), &["format 2", "up to format 1"]);
    fs::write(&manifest, text.replace(sqlite::FILE, "../other")).expect("written");
    refused(&restore("backup"), &[MANIFEST, "../other"]);
    fs::write(&manifest, text).expect("written");
    output_of(path, &restore("backup"), 0);
}

#[test]
fn a_corrupt_record_is_backed_up_and_reported_each_time() {
    let directory = tempfile::tempdir().expect("a folder");
    filled(&directory, "data", &shapes());
    let path = directory.path();
    let sql = rusqlite::Connection::open(path.join("data").join(sqlite::FILE)).expect("opens");
    let damage = "UPDATE records SET data = '[1]' WHERE name = 'last'";
    assert_eq!(sql.execute(damage, []), Ok(1));
    drop(sql);
    for arguments in [
        ["store", "backup", "backup", "--data", "data"],
        ["store", "restore", "backup", "--data", "new"],
        ["store", "export", "lines", "--data", "data"],
    ] {
        let text = output_of(path, &arguments, 1);
        assert!(text.contains("1 corrupt"), "{text}");
        assert!(text.contains("corrupt record \"last\""), "{text}");
    }
    assert_eq!(contents(&path.join("new")), contents(&path.join("data")));
    let text = output_of(path, &["store", "import", "lines", "--data", "moved"], 0);
    assert!(text.starts_with("5 records added"), "{text}");
}

#[test]
fn a_scrub_finds_damage_while_the_server_runs() {
    let directory = tempfile::tempdir().expect("a folder");
    filled(&directory, "data", &shapes());
    let database = directory.path().join("data").join(sqlite::FILE);
    let scrub = ["--data", "data", "--store-scrub-interval", "10ms"];
    let mut server = Server::start_in(directory, &scrub);
    let metric = |name: &str| server.metric(name).unwrap_or_default();
    let next_pass = || {
        let passes = metric("tidewire_store_scrub_passes_total");
        // The current pass may have started before this call.
        wait_until(|| metric("tidewire_store_scrub_passes_total") > passes + 1);
    };
    next_pass();
    assert!(metric("tidewire_store_scrubbed_records_total") >= 12);
    assert_eq!(metric("tidewire_store_damaged_records"), 0);
    let ready = || server.get("/ready").expect("an answer");
    assert!(!ready().1.contains("damaged_records"));

    let sql = rusqlite::Connection::open(&database).expect("opens");
    let change = |data: &str| {
        let change = "UPDATE records SET data = ?1 WHERE name = 'last'";
        assert_eq!(sql.execute(change, [data]), Ok(1));
    };
    change("[1]");
    next_pass();
    assert_eq!(metric("tidewire_store_damaged_records"), 1);
    let (status, body) = ready();
    assert_eq!(status, 200);
    assert!(body.contains("damaged_records"), "{body}");
    server.expect_log("do not pass their checksums");
    let kept: i64 = sql
        .query_row(
            "SELECT count(*) FROM quarantine WHERE name = 'last'",
            [],
            |row| row.get(0),
        )
        .expect("a number");
    assert_eq!(kept, 1);
    // Each pass counts the damaged records again.
    change("[]");
    next_pass();
    assert_eq!(metric("tidewire_store_damaged_records"), 0);
    drop(sql);
    server.signal(Signal::TERM);
    assert_eq!(server.expect_end().0, 0);
}

/// The parts of each record that a move must keep: its value without surrounding white space, and its version.
fn moved(data: &Path) -> Vec<(Name, Version, String)> {
    let all = contents(data).into_iter().map(|(name, loaded)| {
        let Loaded::Found(record) = loaded else {
            panic!("{name:?} is {loaded:?}")
        };
        let line = record.data.as_str().trim().replace(['\n', '\r'], " ");
        (name, record.version, line)
    });
    all.collect()
}

#[test]
fn an_export_from_a_running_server_is_imported_and_may_be_repeated() {
    let directory = tempfile::tempdir().expect("a folder");
    filled(&directory, "data", &shapes());
    let server = Server::start_in(directory, &["--data", "data"]);
    let path = server.folder.path();
    let export = ["store", "export", "lines", "--data", "data"];
    let text = output_of(path, &export, 0);
    assert!(text.starts_with("6 records exported in "), "{text}");
    assert!(output_of(path, &export, 2).contains("a new file"));
    let (code, lines, _) = run(path, &["store", "export", "-", "--data", "data"]);
    assert_eq!(code, 0);
    assert_eq!(lines, fs::read_to_string(path.join("lines")).expect("read"));

    let import = |data: &'static str| ["store", "import", "lines", "--data", data];
    let text = output_of(path, &import("data"), 4);
    assert!(text.contains("in use by process"), "{text}");
    let text = output_of(path, &import("new"), 0);
    let nothing = "0 replaced, 0 there already, 0 kept as they were";
    assert!(
        text.starts_with(&format!("6 records added, {nothing}")),
        "{text}"
    );
    assert_eq!(moved(&path.join("new")), moved(&path.join("data")));
    let text = output_of(path, &import("new"), 0);
    assert!(
        text.starts_with("0 records added, 0 replaced, 6 there already"),
        "{text}"
    );
    let memory = ["store", "import", "lines", "--store-kind", "memory"];
    assert!(output_of(path, &memory, 2).contains("the memory store ends with this command"));
}

#[test]
fn existing_records_stay_without_the_replace_option() {
    let directory = tempfile::tempdir().expect("a folder");
    let path = directory.path();
    let stored = |version, data| record(7, Version(version), data);
    let stored = [
        ("a", stored(1, "[1]")),
        ("b", stored(1, "[]")),
        ("c", stored(2, "[]")),
    ];
    filled(&directory, "new", &stored);
    let lines = "{\"tidewire_export\":1}\n\
        {\"name\":\"a\",\"version\":1,\"data\":[1]}\n\
        {\"name\":\"b\",\"version\":1,\"data\":[2]}\n\
        {\"name\":\"d\",\"data\":{}}\n\
        {\"name\":\"d\",\"data\":{}}\n\
        {\"end\":4}\n";
    fs::write(path.join("lines"), lines).expect("written");
    let import = ["store", "import", "lines", "--data", "new"];
    let text = output_of(path, &import, 1);
    let figures = "1 records added, 0 replaced, 2 there already, 1 kept as they were";
    assert!(
        text.starts_with(figures) && text.contains("--replace"),
        "{text}"
    );
    let before = contents(&path.join("new"));
    let text = output_of(path, &[&import[..], &["--replace"]].concat(), 0);
    let figures = "0 records added, 1 replaced, 3 there already, 0 kept";
    assert!(text.starts_with(figures), "{text}");
    let after = contents(&path.join("new"));
    // Only `b` has changed, and has a new incarnation.
    let changed: Vec<_> = std::iter::zip(&before, &after)
        .filter(|(b, a)| a != b)
        .collect();
    let [(_, (name, Loaded::Found(new)))] = changed[..] else {
        panic!("{changed:?}")
    };
    assert_eq!(
        (name.as_str(), new.version, new.data.as_str()),
        ("b", Version(1), "[2]")
    );
    assert_ne!(new.incarnation, Incarnation(7));
}

#[test]
fn a_damaged_line_is_named_and_nothing_is_imported() {
    let directory = tempfile::tempdir().expect("a folder");
    filled(&directory, "data", &shapes());
    let path = directory.path();
    output_of(path, &["store", "export", "lines", "--data", "data"], 0);
    let good = fs::read_to_string(path.join("lines")).expect("read");
    let big = format!("{{\"name\":\"x\",\"data\":[\"{}\"]}}", "x".repeat(2 << 20));
    let with = |line: usize, text: &str| {
        let mut lines: Vec<&str> = good.lines().collect();
        lines[line - 1] = text;
        lines.join("\n")
    };
    let history = "{\"name\":\"\\u0001history/4:news/\",\"data\":[1,2]}";
    let cases = [
        (String::new(), "line 1: not an export"),
        (with(1, "{}"), "line 1: not an export"),
        (
            with(1, "{\"tidewire_export\":1,\"more\":1}"),
            "line 1: unknown field",
        ),
        (
            with(1, "{\"tidewire_export\":2,\"more\":1}"),
            "format 2, and this version reads up to format 1",
        ),
        (with(3, ""), "line 3: EOF"),
        (
            with(3, "{\"name\":\"x\",\"data\":[}"),
            "line 3: expected value at byte 21",
        ),
        (
            with(4, "{\"name\":\"x\",\"data\":1}"),
            "line 4: the data are not an object or array",
        ),
        (with(4, "{\"name\":\"x\"}"), "line 4: missing field `data`"),
        (
            with(4, "{\"name\":\"\",\"data\":{}}"),
            "line 4: the name has 0 bytes",
        ),
        (
            with(4, "{\"name\":\"x\",\"vresion\":1,\"data\":{}}"),
            "line 4: unknown field `vresion`",
        ),
        (
            with(4, "{\"name\":\"x\",\"version\":2147483648,\"data\":{}}"),
            "line 4: the version",
        ),
        (
            with(4, "{\"name\":\"x\",\"incarnation\":\"-1\",\"data\":{}}"),
            "line 4: the incarnation",
        ),
        (with(5, history), "line 5: it is a row of an event history"),
        (with(5, &big), "line 5: it has more than"),
        (
            good.replace("\"version\":3", "\"version\":4"),
            "line 5: the checksum is",
        ),
        (
            good.replace("\\u0000\"", "\\u0001\""),
            "line 5: the checksum is",
        ),
        (
            good.replace("{\"end\":6}\n", ""),
            "line 8: the file is cut off",
        ),
        (
            good.replace("{\"end\":6}", "{\"end\":7}"),
            "should have 7 records, but has 6",
        ),
        (format!("{good}{{}}\n"), "line 9: there is another line"),
    ];
    for (text, part) in cases {
        assert_ne!(text, good);
        fs::write(path.join("lines"), &text).expect("written");
        let line = output_of(path, &["store", "import", "lines", "--data", "new"], 2);
        assert!(line.contains(part), "{part:?} for {line}");
        assert!(!path.join("new").exists(), "{part}");
    }
}

#[test]
fn a_move_out_of_a_store_on_a_server_names_what_is_missing() {
    let directory = tempfile::tempdir().expect("a folder");
    let path = directory.path();
    for word in ["backup", "restore"] {
        let text = output_of(path, &["store", word, "x", "--store-kind", "memory"], 2);
        assert!(text.contains("store export"), "{text}");
    }
    let text = output_of(path, &["store", "export", "x", "--store-kind", "memory"], 4);
    assert!(text.contains("exist only in its server"), "{text}");
    assert!(!path.join("x").exists());
}

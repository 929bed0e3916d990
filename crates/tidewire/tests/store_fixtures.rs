//! The data folders of `spec/fixtures/store`, each written by a version of Tidewire. This version opens all of them, and writes the same
//! content as the newest one.
//!
//! `TIDEWIRE_WRITE_FIXTURE=1 cargo test --package tidewire --test store_fixtures` writes the folder of the current format.

mod client;
mod process;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use client::{acknowledged, emit, write};
use process::{Server, run, tidewire};
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use tempfile::TempDir;
use tidewire_core::message::{Event, Message};
use tidewire_core::store::{
    Dropped, Expected, Incarnation, Loaded, Store, StoreChange, StoreReader, StoreWrite, StoredKey,
    StoredRecord, Version, WriteKeys,
};
use tidewire_core::text::{Name, Payload};
use tidewire_store::backup::MANIFEST;
use tidewire_store::folder::DataFolder;
use tidewire_store::sqlite::{self, FORMAT, SqliteOptions, SqliteStore};

/// File with the content of a folder, next to that folder.
const EXPECTED: &str = "expected.txt";
/// The record that does not pass its checksum.
const CORRUPT: &str = "corrupt";
/// The name whose events the store keeps.
const EVENTS: &str = "news";

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/fixtures/store")
}

/// The folders, with the number of their format.
fn all() -> BTreeMap<i64, PathBuf> {
    let entries = fs::read_dir(fixtures()).expect("there are fixtures");
    let folders = entries.map(|entry| entry.expect("an entry").path());
    folders
        .filter(|path| path.is_dir())
        .map(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            let format = name.and_then(|name| name.parse().ok());
            (format.expect("called like its format"), path)
        })
        .collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("made");
    for entry in fs::read_dir(from).expect("read") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name");
        // The index of the log is temporary data of a process that has ended.
        if path.extension().is_none_or(|end| end != "sqlite-shm") && name != "lock" {
            fs::copy(&path, to.join(name)).expect("copied");
        }
    }
}

/// The content of a folder as text: a line for each record, and one for each table.
fn text(data: &Path) -> String {
    let mut text = String::new();
    let mut reader = sqlite::reader(data).expect("a store");
    let visit = &mut |name: Name, loaded| {
        let name = name.escape_debug();
        match loaded {
            Loaded::Found(StoredRecord {
                incarnation,
                version,
                data,
                write_keys,
            }) => {
                let (incarnation, version) = (incarnation.0, version.0);
                let data = data.as_str().escape_debug();
                write!(text, "{name} {incarnation}/{version} {data}").expect("text");
                if let Some(keys) = write_keys {
                    let kept = keys.kept().iter();
                    let kept = kept.map(|key| (&key.user, &key.key, key.version.0));
                    let (kept, dropped) = (Vec::from_iter(kept), keys.dropped());
                    write!(text, " {kept:?} {dropped:?}").expect("text");
                }
                writeln!(text).expect("text");
            }
            Loaded::Corrupt => writeln!(text, "{name} corrupt").expect("text"),
            Loaded::Missing => panic!("{name} is listed and missing"),
        }
    };
    assert!(!reader.scan("", None, 10_000, visit).expect("scans"));
    text
}

/// The statements that made the tables and indexes of a database.
fn schema(database: &Path) -> String {
    let sql = Connection::open(database).expect("opens");
    let mut rows = sql
        .prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name")
        .expect("prepared");
    let rows = rows.query_map([], |row| row.get::<_, String>(0));
    let words = |row: rusqlite::Result<String>| {
        let text = row.expect("a row");
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let rows: Vec<String> = rows.expect("read").map(words).collect();
    rows.join("\n")
}

fn record(incarnation: u64, version: Version, data: &str) -> StoreChange {
    StoreChange::Put(StoredRecord {
        incarnation: Incarnation(incarnation),
        version,
        data: Payload::from_checked(data),
        write_keys: None,
    })
}

/// A record with the keys of writes of two users, of which one was dropped.
fn keyed(incarnation: u64, version: Version, data: &str) -> StoreChange {
    let key = |(user, key, version): (&str, &str, u32)| StoredKey {
        user: Name::from(user),
        key: key.into(),
        version: Version(version),
    };
    let kept = [("ann", "k-1", 4), ("b\"é", "\0", 12)].map(key);
    let keys = WriteKeys::stored(kept.to_vec(), Dropped::UpTo(Version(3)));
    let StoreChange::Put(plain) = record(incarnation, version, data) else {
        unreachable!("a record is put")
    };
    StoreChange::Put(StoredRecord {
        write_keys: Some(Arc::new(keys)),
        ..plain
    })
}

/// Writes a data folder with every shape of record. The store writes records that no client can create, a command creates a user, and a
/// server writes the others. The server is killed, so that its log is not yet in the database.
fn write_folder() -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let data = directory.path().join("data");
    let folder = DataFolder::open(&data).expect("an empty folder");
    let (mut store, opened) = SqliteStore::open(&folder, SqliteOptions::default()).expect("opens");
    let big = format!("{{\"filling\":\"{}\"}}", "x".repeat(10_000));
    let shapes = [
        ("array", record(1, Version(1), "[1,[2,{}]]")),
        ("big", record(1, Version(1), &big)),
        (CORRUPT, record(1, Version(1), "{\"is\":\"sound\"}")),
        ("created", record(1, Version::CREATED, "{}")),
        ("keyed", keyed(1, Version(12), "{\"n\":1}")),
        (
            "last/version",
            record(u64::MAX, Version::LAST, "{\"a\":null}"),
        ),
        (
            "numbers",
            record(1, Version(2), "[1e400,-0,0.1,12345678901234567890]"),
        ),
        (
            "odd name \0\n\"\u{10ffff}é",
            record(1, Version(3), "{\"\\ud800\":\"\\u0000\"}"),
        ),
        ("spaced", record(1, Version(4), " {\n\t\"a\" : 1 } ")),
    ];
    let put = |(name, change): &(&str, StoreChange)| StoreWrite {
        writer: None,
        name: Name::from(*name),
        expected: Expected::Missing,
        change: change.clone(),
    };
    let writes: Vec<_> = shapes.iter().map(put).collect();
    store
        .commit(opened.view(), opened.member(), &writes)
        .expect("committed");
    store.close().expect("closed");
    drop((store, folder));

    let add = [
        "user",
        "add",
        "ann",
        "--data",
        "data",
        "--auth-chain",
        "store",
        "--permissions",
        "allow_all",
    ];
    let mut add = tidewire(directory.path(), &add);
    let add = add.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = add.spawn().expect("it starts");
    let mut input = child.stdin.take().expect("piped");
    input.write_all(b"a password of a fixture\n").expect("read");
    drop(input);
    assert!(child.wait().expect("it ends").success());

    let history = format!("{EVENTS} count=10 keep=store");
    let arguments = [
        "start",
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--shards",
        "1",
        "--data",
        "data",
        "--event-history",
        &history,
    ];
    let command = tidewire(directory.path(), &arguments);
    let elsewhere = tempfile::tempdir().expect("a temporary folder");
    let server = Server::start_command(elsewhere, command);
    let (mut client, mut subscriber) = (server.log_in(), server.log_in());
    subscriber.send(&Message::Event(Event::Subscribe {
        names: vec![EVENTS],
        correlation: Some("0"),
        positions: Vec::new(),
    }));
    subscriber.receive_until(|message| matches!(message, Message::Event(Event::Ack { .. })));
    client.send(&emit(EVENTS, "{\"first\":1}"));
    client.send(&emit(EVENTS, "\"second\""));
    // Subscribers get an event after its commit.
    for _ in 0..2 {
        subscriber
            .receive_until(|message| matches!(message, Message::Event(Event::Publication(_))));
    }
    for version in [1, 2] {
        client.send(&write("written", version, &format!("{{\"n\":{version}}}")));
        client.receive_until(|message| *message == acknowledged("written"));
    }
    // This kills the server.
    drop(server);

    let sql = Connection::open(data.join(sqlite::FILE)).expect("opens");
    let keep_log = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
    sql.set_db_config(keep_log, true).expect("set");
    let damage = "UPDATE records SET data = '{\"is\":\"damaged\"}' WHERE name = ?1";
    assert_eq!(sql.execute(damage, [CORRUPT]), Ok(1));
    directory
}

/// The content of a folder without incarnations, times and secrets, which differ between two runs of the same version.
fn shape(text: &str) -> String {
    let line = |line: &str| {
        let (name, rest) = line.split_once(' ').expect("a name");
        if name.starts_with("\\u{1}user/") {
            let data = rest.split_once(' ').expect("data").1.replace("\\\"", "\"");
            let user: serde_json::Value = serde_json::from_str(&data).expect("JSON");
            let keys: Vec<&String> = user.as_object().expect("an object").keys().collect();
            return format!("{name} {keys:?}\n");
        }
        let rest = match rest.split_once('/') {
            Some((_incarnation, rest)) => rest,
            None => rest,
        };
        if !name.starts_with("\\u{1}history/") {
            return format!("{name} {rest}\n");
        }
        let is_time = |word: &str| word.len() > 12 && word.chars().all(|c| c.is_ascii_digit());
        let words = rest.split_inclusive(['[', ']', ',']).map(|word| {
            let end = word.len() - usize::from(word.ends_with([',', ']']));
            match is_time(&word[..end]) {
                true => format!("TIME{}", &word[end..]),
                false => word.to_owned(),
            }
        });
        format!("{name} {}\n", words.collect::<String>())
    };
    text.lines().map(line).collect()
}

#[test]
fn a_new_store_equals_the_newest_fixture() {
    let directory = write_folder();
    let data = directory.path().join("data");
    let new = fixtures().join(FORMAT.to_string());
    if std::env::var_os("TIDEWIRE_WRITE_FIXTURE").is_some() {
        assert!(
            !new.exists(),
            "{new:?} is there; a fixture is never written again"
        );
        fs::create_dir_all(fixtures()).expect("made");
        copy(&data, &new);
        fs::write(new.join(EXPECTED), text(&data)).expect("written");
    }
    let (format, newest) = all().pop_last().expect("a fixture");
    let advice = "a change of a stored format needs a new FORMAT and a fixture of it, see spec/fixtures/README.md";
    assert_eq!(format, FORMAT, "{advice}");
    let expected = fs::read_to_string(newest.join(EXPECTED)).expect("read");
    assert_eq!(shape(&text(&data)), shape(&expected), "{advice}");

    let old = tempfile::tempdir().expect("a temporary folder");
    copy(&newest, &old.path().join("data"));
    let tables = |data: &Path, file: &str| schema(&data.join(file));
    for file in [sqlite::FILE, "auth.db"] {
        let is_there = |data: &Path| data.join(file).exists();
        assert!(is_there(&data) && is_there(&newest), "{file}");
        assert_eq!(
            tables(&data, file),
            tables(&old.path().join("data"), file),
            "{file}: {advice}"
        );
    }
}

#[test]
fn every_fixture_is_opened_with_its_records() {
    for (format, fixture) in all() {
        let expected = fs::read_to_string(fixture.join(EXPECTED)).expect("read");
        let log = fixture.join(format!("{}-wal", sqlite::FILE));
        let log_bytes = fs::metadata(log).expect("a log that was not emptied").len();
        assert!(log_bytes > 0, "format {format} was stopped cleanly");
        let directory = tempfile::tempdir().expect("a temporary folder");
        let (path, data) = (directory.path(), directory.path().join("data"));
        copy(&fixture, &data);
        assert_eq!(text(&data), expected, "format {format}, not opened yet");
        let folder = DataFolder::open(&data).expect("the folder");
        let (store, opened) = SqliteStore::open(&folder, SqliteOptions::default()).expect("opens");
        let largest = expected.matches("history/").count();
        assert!(largest >= 3, "format {format} has a history");
        assert!(opened.epoch.0 > 1 && opened.opening > 2, "{opened:?}");
        drop((store, folder));
        assert_eq!(text(&data), expected, "format {format}, opened");

        let (code, out, _) = run(path, &["store", "check", "--data", "data"]);
        let count = expected.lines().count() - 1;
        let report =
            format!("{count} sound, 1 corrupt, 1 quarantined\ncorrupt record {CORRUPT:?}\n");
        assert_eq!((code, out), (1, report), "format {format}");

        let (code, ..) = run(path, &["store", "backup", "backup", "--data", "data"]);
        assert!(code == 1 && path.join("backup").join(MANIFEST).exists());
        let (code, ..) = run(path, &["store", "restore", "backup", "--data", "new"]);
        assert_eq!(code, 1);
        assert_eq!(
            text(&path.join("new")),
            expected,
            "format {format}, restored"
        );

        let server = Server::start_in(directory, &["--data", "data"]);
        let mut client = server.log_in();
        // The version after the last one of the fixture. The server accepts it only if it has that one.
        client.send(&write("written", 3, "{\"n\":3}"));
        client.receive_until(|message| *message == acknowledged("written"));
        assert_eq!(
            server.metric("tidewire_store_corrupt_records_total"),
            Some(0)
        );
    }
}

#[test]
fn a_newer_format_names_the_way_back() {
    let (_, newest) = all().pop_last().expect("a fixture");
    let directory = tempfile::tempdir().expect("a temporary folder");
    let data = directory.path().join("data");
    copy(&newest, &data);
    let sql = Connection::open(data.join(sqlite::FILE)).expect("opens");
    let newer = "UPDATE meta SET value = value + 1 WHERE key = 'format'";
    assert_eq!(sql.execute(newer, []), Ok(1));
    drop(sql);
    let before = fs::read(data.join(sqlite::FILE)).expect("read");
    for arguments in [
        &["start", "--port", "0"][..],
        &["store", "check"],
        &["store", "backup", "backup"],
        &["store", "export", "lines"],
    ] {
        let (code, _, line) = run(directory.path(), &[arguments, &["--data", "data"]].concat());
        assert_eq!(
            (code, line.lines().count()),
            (4, 1),
            "{arguments:?}: {line}"
        );
        let formats = format!(
            "has format {}, and this version reads up to format {FORMAT}",
            FORMAT + 1
        );
        for part in [&*formats, "tidewire store export", "tidewire store import"] {
            assert!(line.contains(part), "{arguments:?}: {line}");
        }
    }
    assert_eq!(fs::read(data.join(sqlite::FILE)).expect("read"), before);
}

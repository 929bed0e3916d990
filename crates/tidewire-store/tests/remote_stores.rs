//! The store suite on real servers, and tests that need real servers, such as the check of their settings for durability.
//!
//! `npm --prefix e2e run stores` starts the servers and passes their addresses. By default these tests are ignored; a test that is
//! requested without its server fails.

#![cfg(all(feature = "mongodb", feature = "postgres", feature = "redis"))]

#[path = "store_suite/building_members.rs"]
mod building_members;
#[path = "store_suite/cutting_proxy.rs"]
mod cutting_proxy;
#[path = "store_suite/fence.rs"]
mod fence;
#[path = "store_suite/indexes.rs"]
mod indexes;
#[path = "store_suite/members.rs"]
mod members;
mod mongodb;
#[path = "store_suite/moves.rs"]
mod moves;
mod store_suite;

use std::cell::RefCell;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use indexes::Indexed;
use members::Shared;
use store_suite::{Open, Subject, load, put, record, scan, with_keys, write};
use tidewire_core::store::{Dropped, Expected, Loaded, StoreChange, StoreReader, Written};
use tidewire_store::StoreKind;
use tidewire_store::remote::{Membership, OpenStore, RemoteError, RemoteOptions};
use tidewire_store::sqlite::SqliteOptions;
use tokio::runtime::Runtime;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));

/// Counts the places of this run's tests.
static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);

fn next_number() -> u32 {
    NEXT_NUMBER.fetch_add(1, Ordering::Relaxed)
}

/// The address of a server of these tests.
fn address(variable: &str) -> String {
    let missing =
        || format!("{variable} must be the server's address; npm --prefix e2e run stores sets it");
    std::env::var(variable).unwrap_or_else(|_| panic!("{}", missing()))
}

fn options(url: String) -> RemoteOptions {
    RemoteOptions {
        url,
        password: String::new().into(),
        ca: None,
        timeout: Duration::from_secs(10),
        is_relaxed: false,
        membership: Membership::Alone,
        runtime: RUNTIME.handle().clone(),
    }
}

type Opener = fn(RemoteOptions) -> Result<OpenStore, RemoteError>;

/// A separate database on a server.
struct Location {
    url: String,
    open: Opener,
}

impl Location {
    fn try_open(&self) -> Result<OpenStore, RemoteError> {
        (self.open)(options(self.url.clone()))
    }
}

impl Subject for Location {
    fn open(&mut self) -> Open {
        let OpenStore { store, opened, .. } = self.try_open().expect("the store opens");
        Open::new((store, opened))
    }
}

impl Indexed for Location {
    fn stray_entries(&mut self) -> u64 {
        match self.url.starts_with("redis") {
            true => stray_in_redis(&self.url),
            false => postgres::stray(&self.url),
        }
    }
}

impl Shared for Location {
    fn join(&mut self, node: u16) -> Open {
        let mut options = options(self.url.clone());
        options.membership = Membership::Joins { node };
        let OpenStore { store, opened, .. } = (self.open)(options).expect("the store opens");
        Open::new((store, opened))
    }
}

/// Two servers open one store: commits of the first one fail, and the store takes none of its unsaved writes.
fn the_first_of_two_servers_is_refused(location: &mut Location) {
    let mut first = location.open();
    first.commit(&[put("a", record(1, "[1]"))]).unwrap();
    let mut second = location.open();
    assert!(second.opened.epoch > first.opened.epoch);
    for _ in 0..2 {
        let error = first.commit(&[put("a", record(2, "[2]"))]).unwrap_err();
        assert!(error.trouble.is_eviction(), "{error}");
    }
    assert_eq!(
        load(&mut *second, &["a"]),
        [Loaded::Found(record(1, "[1]"))]
    );
    // A clean stop of the first server does not mark the store as closed.
    first.close().unwrap();
    second.commit(&[put("a", record(2, "[2]"))]).unwrap();
    drop(second);
    let (second, third) = (first.opened, location.open().opened);
    assert!(third.epoch > second.epoch, "the second one was not closed");
}

/// A batch of many writes has one outcome for each, done, refused and repeated, and no write of a stale one is done.
fn a_large_batch_decides_each_write(location: &mut Location) {
    let mut first = location.open();
    let name = |number: u32| format!("many/{number}");
    let made: Vec<_> = (0..300)
        .map(|number| put(&name(number), record(number % 3, "[1]")))
        .collect();
    assert_eq!(first.commit(&made).unwrap(), [Written::Done; 300]);
    // Every third write finds the version that it expects, every third one is already done, and the others are refused.
    let next: Vec<_> = (0..300)
        .map(|number| {
            let (expected, new) = match number % 3 {
                0 => (record(0, "[1]"), record(1, "[2]")),
                1 => (record(0, "[0]"), record(1, "[1]")),
                _ => (record(1, "[1]"), record(2, "[2]")),
            };
            write(
                &name(number),
                Expected::of(&expected),
                StoreChange::Put(new),
            )
        })
        .collect();
    let outcomes: Vec<_> = (0..300)
        .map(|number| match number % 3 {
            0 | 1 => Written::Done,
            _ => Written::Refused,
        })
        .collect();
    for _ in 0..2 {
        assert_eq!(first.commit(&next).unwrap(), outcomes);
    }
    let mut second = location.open();
    let gone: Vec<_> = (0..300)
        .map(|number| {
            let version = [1, 1, 2][number as usize % 3];
            let expected = Expected::of(&record(version, "[]"));
            write(&name(number), expected, StoreChange::Delete)
        })
        .collect();
    let error = first.commit(&gone).unwrap_err();
    assert!(error.trouble.is_eviction(), "{error}");
    assert_eq!(
        load(&mut *second, &[&name(0)]),
        [Loaded::Found(record(1, "[2]"))]
    );
    assert_eq!(second.commit(&gone).unwrap(), [Written::Done; 300]);
    assert_eq!(second.commit(&gone).unwrap(), [Written::Done; 300]);
    assert_eq!(
        load(&mut *second, &[&name(0), &name(299)]),
        [Loaded::Missing, Loaded::Missing]
    );
    assert_eq!(scan(&mut *second, "many/", None, 10), (Vec::new(), false));
}

/// If the server has ended a connection, the store opens a new one and recovers.
fn a_cut_connection_is_replaced(location: &mut Location, mut cut: impl FnMut()) {
    let mut store = location.open();
    let mut reader = store.reader().unwrap();
    let names = ["a".into()];
    let attempts = 5;
    for version in 1..4 {
        let batch = [put("a", record(version, "[]"))];
        let is_done = (0..attempts).any(|_| store.commit(&batch).is_ok());
        assert!(is_done, "version {version} was not committed");
        let found = (0..attempts).find_map(|_| reader.load(&names).ok());
        assert_eq!(found, Some(vec![Loaded::Found(record(version, "[]"))]));
        cut();
    }
}

/// The checksum of the record `a` with incarnation 7, version 1 and the data `[1]`.
const CHECKSUM_OF_A: &str = "997353011";

/// A store of an earlier format has the record `a`. It is read before an upgrade, and takes write keys afterwards.
fn an_old_store_is_upgraded(reader: &mut dyn StoreReader, location: &Location) {
    let sound = [Loaded::Found(record(1, "[1]"))];
    assert_eq!(reader.load(&["a".into()]).unwrap(), sound);
    let OpenStore { store, opened, .. } = location.try_open().unwrap();
    let mut store = Open::new((store, opened));
    assert_eq!(load(&mut *store, &["a"]), sound);
    let keyed = with_keys(record(2, "[2]"), &["ann"], Dropped::Nothing);
    store.commit(&[put("a", keyed.clone())]).unwrap();
    assert_eq!(load(&mut *store, &["a"]), [Loaded::Found(keyed)]);
}

/// Entries of indexes that a store in Redis does not have. Each entry is in two keys.
fn stray_in_redis(url: &str) -> u64 {
    let client = redis::Client::open(url).unwrap();
    let mut other = client.get_connection().unwrap();
    let list: std::collections::HashMap<String, Vec<u8>> = redis::cmd("HGETALL")
        .arg("{tidewire}:indexes")
        .query(&mut other)
        .unwrap();
    let keys: Vec<String> = redis::cmd("KEYS")
        .arg("{tidewire}:index*:*")
        .query(&mut other)
        .unwrap();
    let is_known = |key: &&String| {
        let number = key.rsplit(':').next().unwrap();
        list.contains_key(&format!("definition:{number}"))
    };
    for entries in keys
        .iter()
        .filter(is_known)
        .filter(|key| !key.contains("keys"))
    {
        let of_names = entries.replace(":index:", ":index-keys:");
        let count: u64 = redis::cmd("ZCARD").arg(entries).query(&mut other).unwrap();
        let names: u64 = redis::cmd("HLEN").arg(of_names).query(&mut other).unwrap();
        assert_eq!(count, names, "{entries}");
    }
    keys.iter().filter(|key| !is_known(key)).count() as u64
}

mod postgres {
    use tidewire_store::postgres::PostgresStore;
    use tokio_postgres::NoTls;

    use crate::{Location, RUNTIME, address, next_number};

    /// Runs statements on a separate connection.
    pub fn run(url: &str, statements: &str) {
        RUNTIME.block_on(async {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
            tokio::spawn(connection);
            client.batch_execute(statements).await.unwrap();
        });
    }

    /// The number in the first row of a query, if it finds a row.
    fn number(url: &str, query: &str) -> Option<i32> {
        RUNTIME.block_on(async {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
            tokio::spawn(connection);
            let row = client.query_opt(query, &[]).await.unwrap();
            row.map(|row| row.get(0))
        })
    }

    /// A separate database.
    pub fn location() -> Location {
        let server = address("TIDEWIRE_TEST_POSTGRES");
        let name = format!("test_{}_{}", std::process::id(), next_number());
        run(
            &format!("{server}/postgres"),
            &format!("CREATE DATABASE {name}"),
        );
        let url = format!("{server}/{name}");
        let open = PostgresStore::open;
        Location { url, open }
    }

    /// Entries of indexes that the store does not have.
    pub fn stray(url: &str) -> u64 {
        let count = "SELECT count(*)::INT FROM tidewire_index_entries
            WHERE number NOT IN (SELECT number FROM tidewire_indexes)";
        number(url, count).unwrap().try_into().unwrap()
    }

    crate::index_suite!(
        index_suite,
        super::location(),
        #[ignore = "needs PostgreSQL; npm --prefix e2e run stores starts one"]
    );

    #[test]
    #[ignore = "needs PostgreSQL; npm --prefix e2e run stores starts one"]
    fn three_members_write_and_build() {
        crate::building_members::three_members_write_and_build(location());
    }

    #[test]
    #[ignore = "needs PostgreSQL; npm --prefix e2e run stores starts one"]
    fn an_index_waits_for_an_older_member() {
        let location = location();
        let url = location.url.clone();
        crate::building_members::an_index_waits_for_an_older_member(location, |birth| {
            let forget = format!("DELETE FROM tidewire_index_members WHERE birth = {birth}");
            run(&url, &forget);
        });
    }

    crate::suite!(
        suite,
        super::location(),
        #[ignore = "needs PostgreSQL; npm --prefix e2e run stores starts one"]
    );

    #[test]
    #[ignore = "needs PostgreSQL; npm --prefix e2e run stores starts one"]
    fn two_servers() {
        super::the_first_of_two_servers_is_refused(&mut location());
    }

    #[test]
    #[ignore = "needs PostgreSQL; npm --prefix e2e run stores starts one"]
    fn a_member_that_is_alone_again_finds_the_writes_of_others() {
        crate::members::a_member_that_is_alone_again_finds_the_writes_of_others(location());
    }

    #[test]
    #[ignore = "needs PostgreSQL; npm --prefix e2e run stores starts one"]
    fn two_members_of_one_view_both_commit() {
        crate::members::two_members_of_one_view_both_commit(location());
    }

    #[test]
    #[ignore = "needs PostgreSQL; npm --prefix e2e run stores starts one"]
    fn a_view_follows_the_one_that_was_expected() {
        crate::members::a_view_follows_the_one_that_was_expected(location());
    }

    #[test]
    #[ignore = "needs PostgreSQL; npm --prefix e2e run stores starts one"]
    fn a_view_changes_between_commits() {
        crate::members::a_view_changes_between_commits(location());
    }

    #[test]
    #[ignore = "needs PostgreSQL; npm --prefix e2e run stores starts one"]
    fn a_member_that_is_cut_off_within_a_commit_does_not_hold_up_a_view() {
        crate::fence::a_member_that_is_cut_off_within_a_commit_does_not_hold_up_a_view(location());
    }

    /// With `TIDEWIRE_TEST_FENCE_SECONDS` it runs for that long, and each change of the view must be fast.
    #[test]
    #[ignore = "needs PostgreSQL; npm --prefix e2e run stores starts one"]
    fn commits_and_views_leave_no_multixacts() {
        crate::fence::commits_and_views_leave_no_multixacts(location());
    }

    #[test]
    #[ignore = "needs PostgreSQL; npm --prefix e2e run stores starts one"]
    fn a_view_is_kept_as_it_was_proposed() {
        crate::members::a_view_is_kept_as_it_was_proposed(location());
    }

    #[test]
    #[ignore = "needs PostgreSQL; npm --prefix e2e run stores starts one"]
    fn another_generation_stops_commits_until_a_new_view() {
        let location = location();
        let url = location.url.clone();
        // A promotion needs a standby; the view of another generation has the same effect on a new connection.
        crate::members::another_generation_stops_commits_until_a_new_view(location, || {
            run(
                &url,
                r#"UPDATE tidewire_view SET body = regexp_replace(body, '"generation":"[^"]*"', '"generation":"other"')"#,
            );
            let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE datname = current_database() AND pid <> pg_backend_pid()";
            run(&url, end);
        });
    }

    #[test]
    #[ignore = "needs PostgreSQL; npm --prefix e2e run stores starts one"]
    fn large_batches() {
        super::a_large_batch_decides_each_write(&mut location());
    }

    #[test]
    #[ignore = "needs PostgreSQL; npm --prefix e2e run stores starts one"]
    fn cut_connections() {
        let mut location = location();
        let url = location.url.clone();
        super::a_cut_connection_is_replaced(&mut location, || {
            let statement = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE datname = current_database() AND pid <> pg_backend_pid()";
            run(&url, statement);
        });
    }

    /// The server receives a batch and starts it only after the batch was repeated and followed by another one. The record is again in the
    /// state that the batch expects.
    #[test]
    #[ignore = "needs PostgreSQL; npm --prefix e2e run stores starts one"]
    fn an_abandoned_batch_is_never_written() {
        use tidewire_core::store::{Expected, StoreChange};

        use crate::Loaded;
        use crate::store_suite::{Open, load, put, record, write};
        use rustix::process::{Pid, Signal, kill_process};
        let location = location();
        let mut options = crate::options(location.url.clone());
        options.timeout = std::time::Duration::from_millis(1_500);
        let open = (location.open)(options).unwrap();
        let mut store = Open::new((open.store, open.opened));
        let first = record(0, "[0]");
        let next = |data| {
            write(
                "hot",
                Expected::of(&first),
                StoreChange::Put(record(0, data)),
            )
        };
        store.commit(&[put("hot", first.clone())]).unwrap();
        let pid = number(
            &location.url,
            "SELECT pid FROM pg_stat_activity
            WHERE datname = current_database() AND application_name = 'tidewire'",
        );
        let held = Pid::from_raw(pid.unwrap()).unwrap();
        kill_process(held, Signal::STOP).unwrap();
        let error = store.commit(&[next("[1]")]).unwrap_err();
        assert!(error.message.contains("no answer"), "{error}");
        store.commit(&[next("[1]")]).unwrap();
        store.commit(&[next("[2]")]).unwrap();
        kill_process(held, Signal::CONT).unwrap();
        // The server process ends when it has processed the batch and finds its client gone.
        let is_there = format!(
            "SELECT pid FROM pg_stat_activity WHERE pid = {}",
            pid.unwrap()
        );
        let start = std::time::Instant::now();
        while number(&location.url, &is_there).is_some() {
            assert!(
                start.elapsed() < std::time::Duration::from_secs(30),
                "the process still runs"
            );
        }
        let newest = Loaded::Found(record(0, "[2]"));
        assert_eq!(load(&mut *store, &["hot"]), [newest]);
    }

    #[test]
    #[ignore = "needs PostgreSQL; npm --prefix e2e run stores starts one"]
    fn a_server_that_does_not_sync_is_refused() {
        let mut weak = location();
        weak.url.push_str("?options=-csynchronous_commit%3Doff");
        let refused = weak.try_open().map(|_| ()).unwrap_err();
        let text = refused.to_string();
        assert!(
            text.contains("synchronous_commit is off; set it to on"),
            "{text}"
        );
        let mut relaxed = super::options(weak.url.clone());
        relaxed.is_relaxed = true;
        let promise = (weak.open)(relaxed).unwrap().promise;
        assert!(promise.weakness.is_some(), "{promise:?}");
        let promise = location().try_open().unwrap().promise;
        assert_eq!(promise.weakness, None);
        assert!(promise.text.contains("fsync=on"), "{promise:?}");
    }

    #[test]
    #[ignore = "needs PostgreSQL; npm --prefix e2e run stores starts one"]
    fn damage_and_newer_formats_are_refused() {
        use crate::store_suite::{Subject, load, put, record};
        use crate::{Loaded, RemoteError};
        let mut location = location();
        let mut store = location.open();
        store
            .commit(&[put("a", record(1, "[1]")), put("b", record(1, "[1]"))])
            .unwrap();
        let damage = "UPDATE tidewire_records SET data = '[2]' WHERE name = 'a'";
        run(&location.url, damage);
        let sound = Loaded::Found(record(1, "[1]"));
        assert_eq!(load(&mut *store, &["a", "b"]), [Loaded::Corrupt, sound]);
        let newer = "UPDATE tidewire_meta SET value = 6 WHERE key = 'format'";
        run(&location.url, newer);
        let refused = location.try_open().map(|_| ()).unwrap_err();
        assert_eq!(refused, RemoteError::NewerFormat { found: 6, known: 5 });
    }

    /// Format 1 had no write keys and no members.
    #[test]
    #[ignore = "needs PostgreSQL; npm --prefix e2e run stores starts one"]
    fn a_store_of_format_1_is_upgraded() {
        use tidewire_store::postgres::PostgresReader;

        let location = location();
        let old = "CREATE TABLE tidewire_meta (key TEXT PRIMARY KEY, value BIGINT NOT NULL);
            CREATE TABLE tidewire_records (
                name BYTEA PRIMARY KEY,
                incarnation BIGINT NOT NULL,
                version BIGINT NOT NULL,
                data TEXT NOT NULL,
                checksum BIGINT NOT NULL
            );
            INSERT INTO tidewire_meta VALUES ('format', 1), ('epoch', 5), ('opening', 3), ('clean', 1),
                ('connection', 4);
            INSERT INTO tidewire_records VALUES ('\\x61', 7, 1, '[1]', CHECKSUM)";
        run(
            &location.url,
            &old.replace("CHECKSUM", super::CHECKSUM_OF_A),
        );
        let options = super::options(location.url.clone());
        let mut reader = PostgresReader::read_only(options).unwrap();
        super::an_old_store_is_upgraded(&mut reader, &location);
        let format = "SELECT value::INT FROM tidewire_meta WHERE key = 'format'";
        assert_eq!(number(&location.url, format), Some(4));
    }
}

/// Redis and Valkey, each with a database for each test.
macro_rules! redis_like {
    ($server:ident, $variable:literal, $ignored:literal) => {
        mod $server {
            use std::sync::atomic::{AtomicU32, Ordering};

            use tidewire_core::store::{Expected, Loaded, StoreChange, Written};
            use tidewire_store::redis::RedisStore;

            use crate::store_suite::{Subject, load, put, record, scan, write};
            use crate::{Location, address};

            /// A separate database, emptied. The server numbers its databases from 0 to its setting `databases`.
            pub fn location() -> Location {
                static NEXT_DATABASE: AtomicU32 = AtomicU32::new(0);
                let number = NEXT_DATABASE.fetch_add(1, Ordering::Relaxed);
                let url = format!("{}/{number}", address($variable));
                let _: () = redis::cmd("FLUSHDB").query(&mut connection(&url)).unwrap();
                Location { url, open: RedisStore::open }
            }

            fn connection(url: &str) -> redis::Connection {
                redis::Client::open(url).unwrap().get_connection().unwrap()
            }

            crate::index_suite!(index_suite, super::location(), #[ignore = $ignored]);

            #[test]
            #[ignore = $ignored]
            fn three_members_write_and_build() {
                crate::building_members::three_members_write_and_build(location());
            }

            #[test]
            #[ignore = $ignored]
            fn an_index_waits_for_an_older_member() {
                let location = location();
                let url = location.url.clone();
                crate::building_members::an_index_waits_for_an_older_member(location, |birth| {
                    let mut forget = redis::cmd("HDEL");
                    forget.arg("{tidewire}:meta").arg(format!("indexes:{birth}"));
                    let _: i64 = forget.query(&mut connection(&url)).unwrap();
                });
            }

            crate::suite!(suite, super::location(), #[ignore = $ignored]);

            #[test]
            #[ignore = $ignored]
            fn two_servers() {
                crate::the_first_of_two_servers_is_refused(&mut location());
            }

            #[test]
            #[ignore = $ignored]
            fn cut_connections() {
                let mut location = location();
                let url = location.url.clone();
                crate::a_cut_connection_is_replaced(&mut location, || cut(&url));
            }

            /// Ends all connections to a database.
            fn cut(url: &str) {
                let (mut other, database) = (connection(url), url.rsplit('/').next().unwrap());
                let list = redis::cmd("CLIENT").arg("LIST").query(&mut other);
                let list: String = list.unwrap();
                let own = redis::cmd("CLIENT").arg("ID").query(&mut other);
                let own: String = own.unwrap();
                for line in list.lines() {
                    let field = |name: &str| {
                        let mut fields = line.split(' ').filter_map(|f| f.split_once('='));
                        fields.find(|(key, _)| *key == name).unwrap().1.to_owned()
                    };
                    if field("db") == database && field("id") != own {
                        let mut kill = redis::cmd("CLIENT");
                        kill.arg(&["KILL", "ID", &field("id")]);
                        let _: i64 = kill.query(&mut other).unwrap();
                    }
                }
            }

            /// In formats 1 and 2 a record was a hash, in format 1 without write keys. An interrupted upgrade is continued.
            #[test]
            #[ignore = $ignored]
            fn a_store_of_an_earlier_format_is_upgraded() {
                use tidewire_core::store::Dropped;
                use tidewire_store::redis::RedisReader;

                use crate::store_suite::{Open, load, record, with_keys};
                use crate::{Loaded, OpenStore};

                for format in ["1", "2", "3"] {
                    let location = location();
                    let mut other = connection(&location.url);
                    let mut set = |key: &str, fields: &[(&str, &str)]| {
                        let _: () = redis::cmd("HSET").arg(key).arg(fields).query(&mut other).unwrap();
                    };
                    let meta = [("format", format), ("epoch", "5"), ("opening", "3"), ("clean", "1")];
                    set("{tidewire}:meta", &meta);
                    if format == "3" {
                        set("{tidewire}:meta", &[("upgrading", "1")]);
                    }
                    let fields = [("incarnation", "7"), ("version", "1"), ("data", "[1]")];
                    let sum = ("checksum", crate::CHECKSUM_OF_A);
                    set("{tidewire}:record:a", &fields);
                    set("{tidewire}:record:a", &[sum]);
                    // A record without its value, one with another value, and one with keys that its checksum does not cover.
                    set("{tidewire}:record:b", &[("incarnation", "7"), ("version", "1"), sum]);
                    set("{tidewire}:record:c", &fields);
                    set("{tidewire}:record:d", &fields);
                    set("{tidewire}:record:d", &[sum, ("write_keys", "{\"kept\":[]}")]);
                    let names = "{tidewire}:names";
                    for name in ["a", "b", "c", "d"] {
                        let _: () = redis::cmd("ZADD").arg(names).arg(0).arg(name).query(&mut other).unwrap();
                    }
                    let options = crate::options(location.url.clone());
                    let mut reader = RedisReader::read_only(options).unwrap();
                    crate::an_old_store_is_upgraded(&mut reader, &location);
                    let OpenStore { store, opened, .. } = location.try_open().unwrap();
                    let mut store = Open::new((store, opened));
                    let keyed = with_keys(record(2, "[2]"), &["ann"], Dropped::Nothing);
                    let found = load(&mut *store, &["a", "b", "c", "d", "e"]);
                    let damaged = || Loaded::Corrupt;
                    let expected = [Loaded::Found(keyed), damaged(), damaged(), damaged(), Loaded::Missing];
                    assert_eq!(found, expected);
                    let meta = redis::cmd("HMGET").arg("{tidewire}:meta").arg(&["format", "upgrading"]).query(&mut other);
                    assert_eq!(meta, Ok(("4".to_owned(), None::<String>)));
                }
            }

            #[test]
            #[ignore = $ignored]
            fn a_member_that_is_alone_again_finds_the_writes_of_others() {
                crate::members::a_member_that_is_alone_again_finds_the_writes_of_others(location());
            }

            #[test]
            #[ignore = $ignored]
            fn two_members_of_one_view_both_commit() {
                crate::members::two_members_of_one_view_both_commit(location());
            }

            #[test]
            #[ignore = $ignored]
            fn a_view_follows_the_one_that_was_expected() {
                crate::members::a_view_follows_the_one_that_was_expected(location());
            }

            #[test]
            #[ignore = $ignored]
            fn a_view_changes_between_commits() {
                crate::members::a_view_changes_between_commits(location());
            }

            #[test]
            #[ignore = $ignored]
            fn a_view_is_kept_as_it_was_proposed() {
                crate::members::a_view_is_kept_as_it_was_proposed(location());
            }

            #[test]
            #[ignore = $ignored]
            fn another_generation_stops_commits_until_a_new_view() {
                let location = location();
                let url = location.url.clone();
                // A takeover needs a replica; the view of another generation has the same effect on a new connection.
                crate::members::another_generation_stops_commits_until_a_new_view(location, || {
                    let (mut other, meta) = (connection(&url), "{tidewire}:meta");
                    let body = redis::cmd("HGET").arg(meta).arg("body").query(&mut other);
                    let body: String = body.unwrap();
                    let (start, rest) = body.split_once("\"generation\":\"").unwrap();
                    let (_, end) = rest.split_once('"').unwrap();
                    let body = format!("{start}\"generation\":\"other\"{end}");
                    let _: i64 = redis::cmd("HSET").arg(meta).arg("body").arg(body).query(&mut other).unwrap();
                    drop(other);
                    cut(&url);
                });
            }

            #[test]
            #[ignore = $ignored]
            fn large_batches() {
                crate::a_large_batch_decides_each_write(&mut location());
            }

            /// A store that is the only writer reads no record that its connection has written. After another program has changed one, a new
            /// connection refuses to write it.
            #[test]
            #[ignore = $ignored]
            fn known_records_are_not_read() {
                let mut location = location();
                let mut store = location.open();
                let of = |version: u32| record(version, "[]");
                let next = |name, version| {
                    let change = StoreChange::Put(of(version + 1));
                    write(name, Expected::of(&of(version)), change)
                };
                store.commit(&[put("a", of(0)), put("b", of(0))]).unwrap();
                for version in 0..3 {
                    let all = [
                        next("a", version),
                        next("b", version),
                        write("c", Expected::Missing, StoreChange::Put(of(version))),
                    ];
                    let gone = write("c", Expected::of(&of(version)), StoreChange::Delete);
                    // A repetition has the same outcome, although its expectations are no longer met.
                    for _ in 0..2 {
                        assert_eq!(store.commit(&all).unwrap(), [Written::Done; 3]);
                    }
                    assert_eq!(scan(&mut *store, "", None, 10).0, ["a", "b", "c"]);
                    for _ in 0..2 {
                        assert_eq!(store.commit(std::slice::from_ref(&gone)).unwrap(), [Written::Done]);
                    }
                    assert_eq!(scan(&mut *store, "", None, 10).0, ["a", "b"]);
                }
                assert_eq!(
                    store.commit(&[next("a", 3), next("b", 7)]).unwrap(),
                    [Written::Done, Written::Refused]
                );
                let url = location.url.clone();
                let change = || {
                    let mut set = redis::cmd("SET");
                    set.arg("{tidewire}:record:a").arg("7 9 1 0\n[9]");
                    let _: () = set.query(&mut connection(&url)).unwrap();
                };
                change();
                assert_eq!(store.commit(&[next("a", 4)]).unwrap(), [Written::Done]);
                assert_eq!(load(&mut *store, &["a"]), [Loaded::Found(of(5))]);
                change();
                cut(&url);
                let outcome = (0..5).find_map(|_| store.commit(&[next("a", 5)]).ok());
                assert_eq!(outcome, Some(vec![Written::Refused]));
            }

            #[test]
            #[ignore = $ignored]
            fn a_server_that_may_lose_something_is_refused() {
                // A separate server, because the weak settings would make the other tests fail.
                let location = Location {
                    url: address(concat!($variable, "_SETTINGS")),
                    open: RedisStore::open,
                };
                let mut other = connection(&location.url);
                let mut set = |setting: &str, value: &str| {
                    let mut set = redis::cmd("CONFIG");
                    set.arg(&["SET", setting, value]);
                    let _: () = set.query(&mut other).unwrap();
                };
                for (setting, weak, right) in [
                    ("appendfsync", "everysec", "always"),
                    ("no-appendfsync-on-rewrite", "yes", "no"),
                ] {
                    set(setting, weak);
                    let refused = location.try_open().map(|_| ()).unwrap_err().to_string();
                    set(setting, right);
                    let text = format!("{setting} is {weak}; set it to {right}");
                    assert!(refused.contains(&text), "{refused}");
                }
                assert_eq!(location.try_open().unwrap().promise.weakness, None);
            }
        }
    };
}

redis_like!(
    redis_server,
    "TIDEWIRE_TEST_REDIS",
    "needs Redis; npm --prefix e2e run stores starts one"
);
redis_like!(
    valkey_server,
    "TIDEWIRE_TEST_VALKEY",
    "needs Valkey; npm --prefix e2e run stores starts one"
);

/// Records move from each store into each other one, even while a server has the stores open.
#[test]
#[ignore = "needs MongoDB, PostgreSQL, Redis and Valkey; npm --prefix e2e run stores starts them"]
fn records_move_between_all_stores() {
    let remote =
        |kind: fn(RemoteOptions) -> StoreKind, location: Location| kind(options(location.url));
    let _alone = mongodb::without_the_other();
    let mongodb_locations = RefCell::new(Vec::<mongodb::Location>::new());
    moves::between_all(&[
        ("sqlite", &|| StoreKind::Sqlite(SqliteOptions::default())),
        ("memory", &|| StoreKind::Memory { bytes_max: None }),
        ("mongodb", &|| {
            // Dropping the place drops its database.
            let mut locations = mongodb_locations.borrow_mut();
            locations.push(mongodb::location());
            locations[locations.len() - 1].kind()
        }),
        ("postgres", &|| {
            remote(StoreKind::Postgres, postgres::location())
        }),
        ("redis", &|| {
            remote(StoreKind::Redis, redis_server::location())
        }),
        ("valkey", &|| {
            remote(StoreKind::Redis, valkey_server::location())
        }),
    ]);
}

//! The store suite on MongoDB, and tests of MongoDB only. `TIDEWIRE_TEST_MONGODB` is the address of the server, MongoDB itself or
//! another one with its protocol. Each test has a separate database, which it drops at the end.

mod relay;

use std::slice;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mongodb::Client;
use mongodb::bson::{Document, doc};
use tidewire_core::store::{Expected, Loaded, StoreChange, StoreWrite, Written};
use tidewire_store::StoreKind;
use tidewire_store::mongodb::{MongodbReader, MongodbStore};
use tidewire_store::remote::RemoteError;

use crate::store_suite::{Open, Subject, delete, load, put, record, scan, write};
use crate::{RUNTIME, address, next_number, options};
use relay::Relay;

/// A separate database, dropped at the end.
pub struct Location {
    inner: crate::Location,
}

impl Location {
    /// The options for opening it with `tidewire_store::open`.
    pub fn kind(&self) -> StoreKind {
        StoreKind::Mongodb(options(self.inner.url.clone()))
    }
}

impl Subject for Location {
    fn open(&mut self) -> Open {
        self.inner.open()
    }
}

impl Drop for Location {
    fn drop(&mut self) {
        run(&self.inner.url, doc! { "dropDatabase": 1 });
    }
}

pub fn location() -> Location {
    let server = address("TIDEWIRE_TEST_MONGODB");
    let (server, query) = server.split_once('?').unwrap_or((&server, ""));
    let server = server.trim_end_matches('/');
    let name = format!("test_{}_{}", std::process::id(), next_number());
    Location {
        inner: crate::Location {
            url: format!("{server}/{name}?{query}"),
            open: MongodbStore::open,
        },
    }
}

/// Runs a command on a separate connection.
fn run(url: &str, command: Document) {
    RUNTIME.block_on(async {
        let client = Client::with_uri_str(url).await.unwrap();
        let database = client.default_database().unwrap();
        database.run_command(command).await.unwrap();
    });
}

crate::suite!(
    suite,
    super::location(),
    #[ignore = "needs MongoDB; npm --prefix e2e run stores starts one"]
);

#[test]
#[ignore = "needs MongoDB; npm --prefix e2e run stores starts one"]
fn two_servers() {
    crate::the_first_of_two_servers_is_refused(&mut location().inner);
}

#[test]
#[ignore = "needs MongoDB; npm --prefix e2e run stores starts one"]
fn cut_connections() {
    let mut location = location();
    let relay = Relay::before(&mut location.inner.url);
    crate::a_cut_connection_is_replaced(&mut location.inner, || relay.cut());
}

/// Holds back the test of large batches while requests have a short timeout or while records move between all stores, and the other way
/// round: the server handles other requests, and the driver's heartbeats, only after a large one.
pub fn without_the_other() -> MutexGuard<'static, ()> {
    static LARGE_OR_LATE: Mutex<()> = Mutex::new(());
    LARGE_OR_LATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A case in which the server receives one request late.
struct Late {
    /// Texts that the late request contains.
    held: &'static [&'static str],
    /// The writes before.
    before: Vec<StoreWrite>,
    /// The write that the store gives up and repeats.
    batch: StoreWrite,
    /// The writes after it.
    after: Vec<StoreWrite>,
    /// The state of the record at the end.
    expected: Loaded,
}

fn late_batches() -> [(&'static str, Late); 5] {
    let first = record(0, "[0]");
    let put_at = |data, expected| write("a", expected, StoreChange::Put(record(0, data)));
    let hot = Expected::of(&first);
    [
        (
            "a write without a version",
            Late {
                held: &["update", "[1]"],
                before: vec![put("a", first.clone())],
                batch: put_at("[1]", hot),
                after: vec![put_at("[2]", hot)],
                expected: Loaded::Found(record(0, "[2]")),
            },
        ),
        (
            "a write that expects anything",
            Late {
                held: &["update", "[1]"],
                before: vec![put("a", first.clone())],
                batch: put("a", record(0, "[1]")),
                after: vec![put("a", record(0, "[2]"))],
                expected: Loaded::Found(record(0, "[2]")),
            },
        ),
        (
            "the reservation of a record that is deleted since",
            Late {
                held: &["update", "upsert"],
                before: vec![],
                batch: put_at("[1]", Expected::Missing),
                after: vec![delete("a")],
                expected: Loaded::Missing,
            },
        ),
        (
            "the creation of a record that is deleted since",
            Late {
                held: &["update", "[1]"],
                before: vec![],
                batch: put_at("[1]", Expected::Missing),
                after: vec![delete("a")],
                expected: Loaded::Missing,
            },
        ),
        (
            "the deletion of a record that is created again since",
            Late {
                held: &["delete", "limit"],
                before: vec![put("a", first.clone())],
                batch: write("a", hot, StoreChange::Delete),
                after: vec![put_at("[0]", Expected::Missing)],
                expected: Loaded::Found(first.clone()),
            },
        ),
    ]
}

/// A server may receive a request after its batch was given up, repeated and followed by others.
#[test]
#[ignore = "needs MongoDB; npm --prefix e2e run stores starts one"]
fn an_abandoned_batch_is_never_written() {
    let _alone = without_the_other();
    for (name, late) in late_batches() {
        assert_eq!(what_is_late(late), Ok(()), "{name}");
    }
}

/// Gives up a batch, repeats it, commits further ones, and then sends the late request to the server.
fn what_is_late(late: Late) -> Result<(), String> {
    let mut location = location();
    let relay = Relay::before(&mut location.inner.url);
    let mut options = options(location.inner.url.clone());
    options.timeout = Duration::from_millis(1_500);
    let open = (location.inner.open)(options).unwrap();
    let mut store = Open::new((open.store, open.opened));
    store.commit(&late.before).unwrap();
    relay.hold(late.held);
    let error = store.commit(slice::from_ref(&late.batch)).unwrap_err();
    assert!(error.message.contains("no answer"), "{error}");
    let mut done = |writes: &[StoreWrite]| match store.commit(writes) {
        Ok(written) if written == [Written::Done] => Ok(()),
        other => Err(format!("{writes:?}: {other:?}")),
    };
    done(slice::from_ref(&late.batch))?;
    done(&late.after)?;
    relay.release();
    let found = load(&mut *store, &["a"]);
    if found != slice::from_ref(&late.expected) {
        return Err(format!("{found:?} is stored"));
    }
    let names: &[String] = match late.expected {
        Loaded::Missing => &[],
        _ => &["a".to_owned()],
    };
    let scanned = scan(&mut *store, "", None, 10);
    if scanned != (names.to_vec(), false) {
        return Err(format!("{scanned:?} is found"));
    }
    // The late request must not block further writes of the name.
    let expected = match &late.expected {
        Loaded::Missing => Expected::Missing,
        Loaded::Found(record) => Expected::of(record),
        Loaded::Corrupt => return Err("nothing is corrupt".to_owned()),
    };
    let newest = record(0, "[3]");
    let rewrite = write("a", expected, StoreChange::Put(newest.clone()));
    match store.commit(&[rewrite]) {
        Ok(written) if written == [Written::Done] => {}
        other => return Err(format!("the name is taken: {other:?}")),
    }
    let found = load(&mut *store, &["a"]);
    match found == [Loaded::Found(newest)] {
        true => Ok(()),
        false => Err(format!("{found:?} is stored instead of the newest")),
    }
}

/// The batch exceeds the limits of one command in writes and in bytes.
#[test]
#[ignore = "needs MongoDB; npm --prefix e2e run stores starts one"]
fn a_large_batch_is_done_in_parts() {
    let _alone = without_the_other();
    let mut location = location();
    let mut store = location.open();
    let large = format!("[\"{}\"]", "x".repeat(5 << 20));
    let mut batch: Vec<_> = (0..1_100)
        .map(|n| put(&format!("n/{n:04}"), record(1, "[1]")))
        .collect();
    batch.extend((0..4).map(|n| put(&format!("large/{n}"), record(1, &large))));
    let written = store.commit(&batch).unwrap();
    assert_eq!(written, vec![Written::Done; batch.len()]);
    let found = load(&mut *store, &["n/0000", "n/1099", "large/3"]);
    let small = Loaded::Found(record(1, "[1]"));
    assert_eq!(
        found,
        [small.clone(), small, Loaded::Found(record(1, &large))]
    );
}

#[test]
#[ignore = "needs MongoDB; npm --prefix e2e run stores starts one"]
fn an_address_that_asks_for_less_is_refused() {
    let mut location = location();
    let separator = if location.inner.url.ends_with('?') {
        ""
    } else {
        "&"
    };
    let sound = location.inner.url.clone();
    for (less, is_weak) in [
        ("w=1", true),
        ("journal=false", true),
        ("w=majority", false),
    ] {
        location.inner.url = format!("{sound}{separator}{less}");
        let mut relaxed = options(location.inner.url.clone());
        relaxed.is_relaxed = true;
        let promise = (location.inner.open)(relaxed).unwrap().promise;
        assert_eq!(promise.weakness.is_some(), is_weak, "{promise:?}");
        match location.inner.try_open() {
            Ok(open) => assert!(!is_weak && open.promise.weakness.is_none(), "{less}"),
            Err(error) => {
                let text = error.to_string();
                assert!(
                    is_weak && text.contains(&format!("sets {less}; remove that option")),
                    "{text}"
                );
            }
        }
    }
    location.inner.url = sound;
}

#[test]
#[ignore = "needs MongoDB; npm --prefix e2e run stores starts one"]
fn damage_and_newer_formats_are_refused() {
    let mut location = location();
    let mut store = location.open();
    let both = [put("a", record(1, "[1]")), put("b", record(1, "[1]"))];
    store.commit(&both).unwrap();
    let damage = doc! { "q": { "_id": "a" }, "u": { "$set": { "data": "[2]" } } };
    run(
        &location.inner.url,
        doc! { "update": "tidewire_records", "updates": [damage] },
    );
    let sound = Loaded::Found(record(1, "[1]"));
    assert_eq!(load(&mut *store, &["a", "b"]), [Loaded::Corrupt, sound]);
    let newer = doc! { "q": { "_id": "store" }, "u": { "$set": { "format": 3 } } };
    run(
        &location.inner.url,
        doc! { "update": "tidewire_meta", "updates": [newer] },
    );
    let refused = location.inner.try_open().map(|_| ()).unwrap_err();
    assert_eq!(refused, RemoteError::NewerFormat { found: 3, known: 2 });
}

/// Format 1 had no write keys; its documents are documents of records without keys.
#[test]
#[ignore = "needs MongoDB; npm --prefix e2e run stores starts one"]
fn a_store_of_format_1_is_upgraded() {
    let mut location = location();
    let mut store = location.open();
    store.commit(&[put("a", record(1, "[1]"))]).unwrap();
    store.close().unwrap();
    let set_format = |format: i64, expected: i64| {
        let set = doc! { "q": { "_id": "store", "format": expected }, "u": { "$set": { "format": format } } };
        run(
            &location.inner.url,
            doc! { "update": "tidewire_meta", "updates": [set] },
        );
    };
    set_format(1, 2);
    let mut reader = MongodbReader::read_only(options(location.inner.url.clone())).unwrap();
    crate::an_old_store_is_upgraded(&mut reader, &location.inner);
    // The upgrade has set the format to 2, so it can be set to a newer one here.
    set_format(3, 2);
    let refused = location.inner.try_open().map(|_| ()).unwrap_err();
    assert_eq!(refused, RemoteError::NewerFormat { found: 3, known: 2 });
}

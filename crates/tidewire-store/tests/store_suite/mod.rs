//! The suite that every registered store must pass, written once.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use tidewire_core::store::{
    Dropped, Expected, Incarnation, Loaded, MemberId, Opened, Store, StoreChange, StoreError,
    StoreReader, StoreWrite, StoredKey, StoredRecord, Version, View, WriteKeys, Written,
};
use tidewire_core::text::{Name, Payload};

/// A place where a store can be opened repeatedly.
pub trait Subject {
    fn open(&mut self) -> Open;
}

/// An open store that commits as its only member.
pub struct Open {
    store: Box<dyn Store>,
    pub opened: Opened,
}

impl Open {
    pub fn new((store, opened): (Box<dyn Store>, Opened)) -> Self {
        Self { store, opened }
    }

    pub fn commit(&mut self, writes: &[StoreWrite]) -> Result<Vec<Written>, StoreError> {
        self.store
            .commit(self.opened.view(), self.opened.member(), writes)
    }
}

impl Deref for Open {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}

impl DerefMut for Open {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut *self.store
    }
}

/// The cases as tests of one store: `suite!(name, subject)`.
#[macro_export]
macro_rules! suite {
    ($store:ident, $subject:expr $(, #[$attribute:meta])?) => {
        $crate::suite! { @cases $store, $subject, [$(#[$attribute])?],
            each_name_is_answered_at_its_position
            the_last_write_of_a_name_counts
            unusual_names_and_values_come_back_unchanged
            the_keys_of_writes_are_stored_with_the_record
            a_batch_may_be_repeated
            unexpected_records_are_refused_and_stay_unchanged
            a_stale_view_refuses_the_whole_batch
            a_reader_sees_every_commit_that_returned
            pages_of_a_scan_join_without_gap_or_repetition
            a_scan_agrees_with_the_model_for_every_prefix
            a_scan_may_start_before_its_prefix_and_ask_for_nothing
            everything_is_there_when_it_is_opened_again
            only_an_unclean_stop_starts_a_new_epoch
            a_closed_store_refuses_commits
        }
    };
    (@cases $store:ident, $subject:expr, $attributes:tt, $($case:ident)*) => {
        mod $store {
            $($crate::suite! { @case $case, $subject, $attributes })*
        }
    };
    (@case $case:ident, $subject:expr, [$(#[$attribute:meta])?]) => {
        #[test]
        $(#[$attribute])?
        fn $case() {
            $crate::store_suite::$case($subject);
        }
    };
}

pub fn record(version: u32, data: &str) -> StoredRecord {
    StoredRecord {
        incarnation: Incarnation(7),
        version: Version(version),
        data: Payload::from_checked(data),
        write_keys: None,
    }
}

pub fn put(name: &str, record: StoredRecord) -> StoreWrite {
    StoreWrite {
        writer: None,
        name: Name::from(name),
        expected: Expected::Anything,
        change: StoreChange::Put(record),
    }
}

pub fn delete(name: &str) -> StoreWrite {
    StoreWrite {
        writer: None,
        name: Name::from(name),
        expected: Expected::Anything,
        change: StoreChange::Delete,
    }
}

pub fn load(store: &mut dyn Store, names: &[&str]) -> Vec<Loaded> {
    let names: Vec<_> = names.iter().copied().map(Name::from).collect();
    let mut reader = store.reader().expect("a reader");
    reader.load(&names).expect("loads")
}

pub fn scan(
    store: &mut dyn Store,
    prefix: &str,
    after: Option<&str>,
    max: usize,
) -> (Vec<String>, bool) {
    let mut reader = store.reader().expect("a reader");
    read_page(&mut *reader, prefix, after, max)
}

fn read_page(
    reader: &mut dyn StoreReader,
    prefix: &str,
    after: Option<&str>,
    max: usize,
) -> (Vec<String>, bool) {
    let mut names = Vec::new();
    let after = after.map(Name::from);
    let more = reader
        .scan(prefix, after.as_ref(), max, &mut |name, _| {
            names.push(name.to_string())
        })
        .expect("scans");
    (names, more)
}

pub fn each_name_is_answered_at_its_position(mut subject: impl Subject) {
    let mut store = subject.open();
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
    // More names than one read transaction looks up.
    let names: Vec<_> = (0..1000)
        .map(|i| if i % 2 == 0 { "a" } else { "b" })
        .collect();
    let expected: Vec<_> = (0..1000)
        .map(|i| if i % 2 == 0 { a.clone() } else { b.clone() })
        .collect();
    assert_eq!(load(&mut *store, &names), expected);
}

pub fn the_last_write_of_a_name_counts(mut subject: impl Subject) {
    let mut store = subject.open();
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

pub fn unusual_names_and_values_come_back_unchanged(mut subject: impl Subject) {
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
    let mut store = subject.open();
    let mut writes = Vec::new();
    for (index, name) in names.into_iter().enumerate() {
        writes.push(put(
            name,
            StoredRecord {
                incarnation: Incarnation([0, 1, u64::MAX, 1 << 63][index % 4]),
                version: [Version::CREATED, Version(1), Version::LAST][index % 3],
                data: Payload::from_checked(values[index % values.len()]),
                write_keys: None,
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

/// The record with the keys of writes of these users.
pub fn with_keys(record: StoredRecord, users: &[&str], dropped: Dropped) -> StoredRecord {
    let key = |user: &&str| StoredKey {
        user: Name::from(*user),
        key: format!("key of {user}\0\"é").into(),
        version: record.version,
    };
    let keys = WriteKeys::stored(users.iter().map(key).collect(), dropped);
    StoredRecord {
        write_keys: Some(Arc::new(keys)),
        ..record
    }
}

pub fn the_keys_of_writes_are_stored_with_the_record(mut subject: impl Subject) {
    let mut store = subject.open();
    let plain = record(1, "[1]");
    let dropped = Dropped::UpTo(Version(3));
    let many = with_keys(record(4, "[4]"), &["a", "b\0", "\"é"], dropped);
    let unordered = with_keys(record(0, "[]"), &[], Dropped::Unordered);
    let names = ["many", "plain", "unordered"];
    let records = [many.clone(), plain.clone(), unordered];
    let found = |records: &[StoredRecord]| -> Vec<Loaded> {
        records.iter().cloned().map(Loaded::Found).collect()
    };
    let writes = std::iter::zip(names, &records).map(|(name, record)| put(name, record.clone()));
    let writes: Vec<_> = writes.collect();
    store.commit(&writes).unwrap();
    assert_eq!(load(&mut *store, &names), found(&records));
    let mut scanned = Vec::new();
    let mut reader = store.reader().unwrap();
    let visit = &mut |_, loaded| scanned.push(loaded);
    reader.scan("", None, 10, visit).unwrap();
    assert_eq!(scanned, found(&records));
    // A write with the same value and another key is another write, which another owner has made.
    let theirs = with_keys(record(5, "[5]"), &["theirs"], Dropped::Nothing);
    let ours = with_keys(record(5, "[5]"), &["ours"], Dropped::Nothing);
    let at = |change| write("many", Expected::of(&many), StoreChange::Put(change));
    for (change, outcome) in [
        (&theirs, Written::Done),
        (&theirs, Written::Done),
        (&ours, Written::Refused),
        (&record(5, "[5]"), Written::Refused),
    ] {
        assert_eq!(store.commit(&[at(change.clone())]).unwrap(), [outcome]);
    }
    assert_eq!(load(&mut *store, &["many"]), found(&[theirs]));
    // A value without keys leaves none behind, and a record gets keys with a later value.
    let [later, keyed] = [plain.clone(), with_keys(record(2, "[2]"), &["u"], dropped)];
    store
        .commit(&[put("many", later.clone()), put("plain", keyed.clone())])
        .unwrap();
    drop(store);
    let mut store = subject.open();
    let expected = found(&[later, keyed]);
    assert_eq!(load(&mut *store, &["many", "plain"]), expected);
}

pub fn a_batch_may_be_repeated(mut subject: impl Subject) {
    let mut store = subject.open();
    store.commit(&[put("b", record(1, "[1]"))]).unwrap();
    let batch = [put("a", record(3, "[3]")), delete("b")];
    for _ in 0..3 {
        store.commit(&batch).unwrap();
        let found = load(&mut *store, &["a", "b"]);
        assert_eq!(found, [Loaded::Found(record(3, "[3]")), Loaded::Missing]);
    }
}

/// A write with an expected state.
pub fn write(name: &str, expected: Expected, change: StoreChange) -> StoreWrite {
    StoreWrite {
        writer: None,
        name: Name::from(name),
        expected,
        change,
    }
}

pub fn unexpected_records_are_refused_and_stay_unchanged(mut subject: impl Subject) {
    let mut store = subject.open();
    let stored = record(4, "[4]");
    let elsewhere = record(5, "[\"elsewhere\"]");
    let other_life = StoredRecord {
        incarnation: Incarnation(8),
        ..stored.clone()
    };
    let at = Expected::of;
    let (four, missing) = (Some(&stored), None);
    let new = StoreChange::Put(record(5, "[5]"));
    let cases = [
        (four, at(&stored), new.clone(), Written::Done),
        (four, Expected::Anything, new.clone(), Written::Done),
        (four, at(&other_life), new.clone(), Written::Refused),
        (four, at(&record(3, "[4]")), new.clone(), Written::Refused),
        (four, Expected::Missing, new.clone(), Written::Refused),
        (missing, Expected::Missing, new.clone(), Written::Done),
        (missing, Expected::Anything, new.clone(), Written::Done),
        (missing, at(&stored), new.clone(), Written::Refused),
        // Another owner has written the same version with another value.
        (Some(&elsewhere), at(&stored), new.clone(), Written::Refused),
        (four, at(&stored), StoreChange::Delete, Written::Done),
        (four, at(&other_life), StoreChange::Delete, Written::Refused),
        (
            four,
            Expected::Missing,
            StoreChange::Delete,
            Written::Refused,
        ),
        // If the stored state is already the result of the write, the write is done, whatever state it expects.
        (missing, at(&stored), StoreChange::Delete, Written::Done),
        (
            four,
            at(&other_life),
            StoreChange::Put(stored.clone()),
            Written::Done,
        ),
    ];
    let name = |index| format!("case/{index}");
    let before: Vec<_> = cases
        .iter()
        .enumerate()
        .filter_map(|(index, (before, ..))| Some(put(&name(index), (*before)?.clone())))
        .collect();
    store.commit(&before).unwrap();
    let batch: Vec<_> = cases
        .iter()
        .enumerate()
        .map(|(index, (_, expected, change, _))| write(&name(index), *expected, change.clone()))
        .collect();
    let outcomes: Vec<_> = cases.iter().map(|(.., outcome)| *outcome).collect();
    // A repetition has the same outcomes.
    for _ in 0..2 {
        assert_eq!(store.commit(&batch).unwrap(), outcomes);
        for (index, (before, _, change, outcome)) in cases.iter().enumerate() {
            let expected = match (outcome, change) {
                (Written::Refused, _) => before.cloned(),
                (Written::Done, StoreChange::Put(record)) => Some(record.clone()),
                (Written::Done, StoreChange::Delete) => None,
            };
            let expected = expected.map_or(Loaded::Missing, Loaded::Found);
            assert_eq!(load(&mut *store, &[&name(index)]), [expected], "{index}");
        }
    }
}

pub fn a_stale_view_refuses_the_whole_batch(mut subject: impl Subject) {
    let mut store = subject.open();
    store.commit(&[put("a", record(1, "[1]"))]).unwrap();
    let (current, member) = (store.opened.view(), store.opened.member());
    let earlier = MemberId {
        birth: member.birth - 1,
        ..member
    };
    let batch = [put("a", record(2, "[2]")), put("b", record(1, "[1]"))];
    for _ in 0..2 {
        let view = View(current.0 - 1);
        let error = Store::commit(&mut *store, view, earlier, &batch).unwrap_err();
        assert!(error.trouble.is_eviction(), "{error}");
        let error = Store::commit(&mut *store, current, earlier, &batch).unwrap_err();
        assert!(error.trouble.is_eviction(), "{error}");
        let found = load(&mut *store, &["a", "b"]);
        assert_eq!(found, [Loaded::Found(record(1, "[1]")), Loaded::Missing]);
    }
    assert_eq!(store.commit(&batch).unwrap(), [Written::Done; 2]);
}

pub fn a_reader_sees_every_commit_that_returned(mut subject: impl Subject) {
    let mut store = subject.open();
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

pub fn pages_of_a_scan_join_without_gap_or_repetition(mut subject: impl Subject) {
    let mut store = subject.open();
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

pub fn a_scan_agrees_with_the_model_for_every_prefix(mut subject: impl Subject) {
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
    let mut store = subject.open();
    let mut model = BTreeMap::new();
    let mut writes = Vec::new();
    // Skips every third name, so that the scans also use prefixes that are not stored names.
    for (index, name) in names.iter().enumerate() {
        if index % 3 != 0 && model.insert(name.clone(), ()).is_none() {
            writes.push(put(name, record(1, "[]")));
        }
    }
    store.commit(&writes).unwrap();
    let mut reader = store.reader().unwrap();
    for prefix in &names {
        let expected: Vec<_> = model
            .keys()
            .filter(|name| name.starts_with(prefix))
            .cloned()
            .collect();
        let middle = expected.get(expected.len() / 2).cloned();
        assert_eq!(
            read_page(&mut *reader, prefix, None, 1000),
            (expected.clone(), false),
            "{prefix:?}"
        );
        if let Some(middle) = middle {
            let rest: Vec<_> = expected.into_iter().filter(|name| *name > middle).collect();
            assert_eq!(
                read_page(&mut *reader, prefix, Some(&middle), 1000),
                (rest, false),
                "{prefix:?}"
            );
        }
    }
}

pub fn a_scan_may_start_before_its_prefix_and_ask_for_nothing(mut subject: impl Subject) {
    let mut store = subject.open();
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

pub fn everything_is_there_when_it_is_opened_again(mut subject: impl Subject) {
    for (clean, version) in [(false, 1), (true, 2), (false, 3)] {
        let mut store = subject.open();
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

pub fn only_an_unclean_stop_starts_a_new_epoch(mut subject: impl Subject) {
    let mut open = |close: bool| {
        let mut store = subject.open();
        store.commit(&[put("a", record(1, "[]"))]).unwrap();
        if close {
            store.close().unwrap();
        }
        store.opened
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
    let number = |opened: Opened| opened.opening - first.opening;
    assert_eq!(openings.map(number), [0, 1, 2, 3, 4]);
}

pub fn a_closed_store_refuses_commits(mut subject: impl Subject) {
    let mut store = subject.open();
    store.close().unwrap();
    let error = store.commit(&[put("a", record(1, "[]"))]).unwrap_err();
    assert!(
        !error.is_full() && error.message.contains("closed"),
        "{error}"
    );
    assert_eq!(load(&mut *store, &["a"]), [Loaded::Missing]);
}

//! The cases of stores whose size can be limited.

use tidewire_core::store::Loaded;

use crate::store_suite::{Open, Subject, delete, load, put, record};

/// A place for a store with a size limit.
pub trait LimitedSubject: Subject {
    fn open_limited(&mut self, bytes_max: Option<u64>) -> Open;
}

pub fn a_batch_that_does_not_fit_leaves_nothing(mut subject: impl LimitedSubject) {
    let mut store = subject.open_limited(Some(1 << 20));
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
        assert!(error.is_full(), "not reported as full: {error}");
        let found = load(&mut *store, &["kept", "old", "new"]);
        let kept = Loaded::Found(record(1, "[1]"));
        assert_eq!(found, [kept.clone(), kept, Loaded::Missing]);
    }
    // Writes that fit still succeed, and with more room the whole batch does.
    store.commit(&[put("other", record(1, "[1]"))]).unwrap();
    drop(store);
    let mut store = subject.open();
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

pub fn deleting_makes_room(mut subject: impl LimitedSubject) {
    let mut store = subject.open_limited(Some(1 << 20));
    let big = format!("[\"{}\"]", "x".repeat(600 << 10));
    store.commit(&[put("first", record(1, &big))]).unwrap();
    assert!(
        store
            .commit(&[put("second", record(1, &big))])
            .unwrap_err()
            .is_full()
    );
    store.commit(&[delete("first")]).unwrap();
    store.commit(&[put("second", record(1, &big))]).unwrap();
    let found = load(&mut *store, &["first", "second"]);
    assert_eq!(found, [Loaded::Missing, Loaded::Found(record(1, &big))]);
}

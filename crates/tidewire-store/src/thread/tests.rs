//! Tests of the store's threads.

use tidewire_core::address::Epoch;
use tidewire_core::route::StoreId;
use tidewire_core::store::{Expected, Incarnation, MemberId, StoreChange, StoredRecord, Version};
use tidewire_core::text::Payload;

use super::super::folder::DataFolder;
use super::super::memory::MemoryDisk;
use super::super::sqlite::{SqliteOptions, SqliteStore};
use super::*;

/// Longer than any step here takes on a busy machine; only a failing test waits for it.
const DEADLINE: Duration = Duration::from_secs(30);

/// A memory store whose commits report their number of writes and then wait for their outcome.
struct Gated {
    inner: Box<dyn Store>,
    entered: Sender<usize>,
    outcomes: Receiver<Result<(), StoreError>>,
}

impl Store for Gated {
    fn reader(&mut self) -> Result<Box<dyn StoreReader>, StoreError> {
        self.inner.reader()
    }

    fn commit(
        &mut self,
        view: View,
        member: MemberId,
        writes: &[StoreWrite],
    ) -> Result<Vec<Written>, StoreError> {
        self.entered.send(writes.len()).unwrap();
        self.outcomes.recv_timeout(DEADLINE).unwrap()?;
        self.inner.commit(view, member, writes)
    }

    fn close(&mut self) -> Result<(), StoreError> {
        self.inner.close()
    }
}

/// The opening of the memory store in these tests.
const OPENED: Opened = Opened {
    epoch: Epoch(1),
    opening: 1,
};

struct Rig {
    disk: MemoryDisk,
    threads: StoreThreads,
    entered: Receiver<usize>,
    outcomes: Sender<Result<(), StoreError>>,
    answers: Receiver<(u16, StoreCompletion)>,
}

fn start(store: Box<dyn Store>) -> (StoreThreads, Receiver<(u16, StoreCompletion)>) {
    let (answer, answers) = mpsc::channel();
    let answer = Arc::new(move |shard, completion| {
        // A test may stop listening before the last answer.
        let _ = answer.send((shard, completion));
    });
    (StoreThreads::start(store, OPENED, answer).unwrap(), answers)
}

impl Rig {
    /// Shard 0 commits a write, which then waits for its outcome in the store.
    fn enter_commit(&self) {
        commit(&self.threads.client(), 0, 1, vec![put("a", 1)]);
        assert_eq!(self.entered.recv_timeout(DEADLINE), Ok(1));
    }
}

fn rig() -> Rig {
    let disk = MemoryDisk::default();
    let (entered_sender, entered) = mpsc::channel();
    let (outcomes, outcome_receiver) = mpsc::channel();
    let (threads, answers) = start(Box::new(Gated {
        inner: Box::new(disk.open(None).0),
        entered: entered_sender,
        outcomes: outcome_receiver,
    }));
    Rig {
        disk,
        threads,
        entered,
        outcomes,
        answers,
    }
}

fn put(name: &str, version: u32) -> StoreWrite {
    StoreWrite {
        writer: None,
        name: Name::from(name),
        expected: Expected::Anything,
        change: StoreChange::Put(record(version)),
    }
}

fn record(version: u32) -> StoredRecord {
    StoredRecord {
        incarnation: Incarnation(1),
        version: Version(version),
        data: Payload::from_checked("[]"),
        write_keys: None,
    }
}

fn commit(client: &StoreClient, shard: u16, batch: u64, writes: Vec<StoreWrite>) {
    let store = StoreId::DEFAULT;
    client.request(
        shard,
        StoreRequest::Commit {
            store,
            batch,
            writes: writes.into(),
        },
    );
}

fn request_load(client: &StoreClient, shard: u16, name: &str) {
    let names = vec![Name::from(name)];
    let store = StoreId::DEFAULT;
    client.request(shard, StoreRequest::Load { store, names });
}

fn committed(
    answers: &Receiver<(u16, StoreCompletion)>,
) -> (u16, u64, Result<Vec<Written>, StoreError>) {
    match answers.recv_timeout(DEADLINE).unwrap() {
        (shard, StoreCompletion::Committed { batch, result, .. }) => (shard, batch, result),
        other => panic!("not a commit's answer: {other:?}"),
    }
}

fn loaded(answers: &Receiver<(u16, StoreCompletion)>) -> (u16, Result<Loaded, StoreError>) {
    match answers.recv_timeout(DEADLINE).unwrap() {
        (shard, StoreCompletion::Loaded { mut records }) if records.len() == 1 => {
            (shard, records.remove(0).1)
        }
        other => panic!("not the answer of one load: {other:?}"),
    }
}

fn failure() -> StoreError {
    StoreError {
        message: "planted".to_owned(),
        trouble: StoreTrouble::Full,
    }
}

/// The result of a commit with `count` writes that are all done.
fn done(count: usize) -> Result<Vec<Written>, StoreError> {
    Ok(vec![Written::Done; count])
}

#[test]
fn batches_that_wait_share_one_commit() {
    let rig = rig();
    let client = rig.threads.client();
    rig.enter_commit();
    for shard in 1..=5 {
        let name = format!("b{shard}");
        let other = format!("c{shard}");
        commit(&client, shard, 10, vec![put(&name, 1), put(&other, 2)]);
    }
    rig.outcomes.send(Ok(())).unwrap();
    rig.outcomes.send(Ok(())).unwrap();
    assert_eq!(
        rig.entered.recv_timeout(DEADLINE),
        Ok(10),
        "five batches of two"
    );
    assert_eq!(committed(&rig.answers), (0, 1, done(1)));
    for shard in 1..=5 {
        assert_eq!(committed(&rig.answers), (shard, 10, done(2)));
    }
    rig.threads.stop(Ending::Complete).unwrap();
    assert_eq!(client.health().commit_count.load(Ordering::Relaxed), 2);
    assert_eq!(client.health().write_count.load(Ordering::Relaxed), 11);
}

#[test]
fn a_failed_commit_fails_every_batch_in_it_and_the_next_success_clears_the_health() {
    let rig = rig();
    let client = rig.threads.client();
    rig.enter_commit();
    commit(&client, 1, 1, vec![put("b", 1)]);
    commit(&client, 2, 1, vec![put("c", 1)]);
    rig.outcomes.send(Ok(())).unwrap();
    rig.outcomes.send(Err(failure())).unwrap();
    assert_eq!(committed(&rig.answers), (0, 1, done(1)));
    assert_eq!(committed(&rig.answers), (1, 1, Err(failure())));
    assert_eq!(committed(&rig.answers), (2, 1, Err(failure())));
    assert_eq!(client.health().commit_error(), Some(failure()));
    request_load(&client, 3, "b");
    assert_eq!(loaded(&rig.answers), (3, Ok(Loaded::Missing)));

    rig.outcomes.send(Ok(())).unwrap();
    commit(&client, 1, 2, vec![put("b", 1)]);
    assert_eq!(committed(&rig.answers), (1, 2, done(1)));
    assert_eq!(client.health().commit_error(), None);
    assert_eq!(
        client.health().failed_commit_count.load(Ordering::Relaxed),
        1
    );
    rig.threads.stop(Ending::Complete).unwrap();
}

#[test]
fn a_store_that_does_not_answer_is_slow_until_it_does() {
    let rig = rig();
    let client = rig.threads.client();
    assert_eq!(client.health().unanswered(), Duration::ZERO);
    rig.enter_commit();
    let start = Instant::now();
    while !client.health().is_slow() {
        assert!(start.elapsed() < DEADLINE, "never slow");
        std::thread::yield_now();
    }
    rig.outcomes.send(Ok(())).unwrap();
    assert_eq!(committed(&rig.answers), (0, 1, done(1)));
    assert!(!client.health().is_slow());
    rig.threads.stop(Ending::Complete).unwrap();
}

#[test]
fn a_load_of_many_names_is_answered_in_parts_of_bounded_memory() {
    let rig = rig();
    let names: Vec<Name> = (0..2 * ANSWERED_MAX + 1)
        .map(|number| Name::from(&*format!("n{number}")))
        .collect();
    let (store, wanted) = (StoreId::DEFAULT, names.clone());
    let request = StoreRequest::Load { store, names };
    rig.threads.client().request(1, request);
    let mut answered = Vec::new();
    for count in [ANSWERED_MAX, ANSWERED_MAX, 1] {
        let answer = rig.answers.recv_timeout(DEADLINE).unwrap();
        let (1, StoreCompletion::Loaded { records }) = answer else {
            panic!("not a part of the load: {answer:?}");
        };
        assert_eq!(records.len(), count);
        assert!(records.capacity() <= ANSWERED_MAX, "{}", records.capacity());
        answered.extend(records.into_iter().map(|(name, _)| name));
    }
    assert_eq!(answered, wanted);
    rig.threads.stop(Ending::Complete).unwrap();
}

#[test]
fn reads_do_not_wait_behind_a_commit() {
    let rig = rig();
    let client = rig.threads.client();
    rig.enter_commit();
    request_load(&client, 1, "a");
    assert_eq!(loaded(&rig.answers), (1, Ok(Loaded::Missing)));
    let (page, pages) = mpsc::channel();
    let scan = Scan {
        prefix: String::new(),
        after: None,
        count_max: 10,
    };
    client.scan(scan, Box::new(move |answer| page.send(answer).unwrap()));
    let empty = ScanPage {
        records: vec![],
        more: false,
    };
    assert_eq!(pages.recv_timeout(DEADLINE).unwrap(), Ok(empty));
    rig.outcomes.send(Ok(())).unwrap();
    assert_eq!(committed(&rig.answers), (0, 1, done(1)));
    rig.threads.stop(Ending::Complete).unwrap();
}

/// A reader whose first `count` requests fail, as if its connection had ended.
struct Ended {
    inner: Box<dyn StoreReader>,
    count: usize,
}

impl Ended {
    fn notice(&mut self) -> Result<(), StoreError> {
        match self.count.checked_sub(1) {
            None => Ok(()),
            Some(left) => {
                self.count = left;
                Err(failure())
            }
        }
    }
}

impl StoreReader for Ended {
    fn load(&mut self, names: &[Name]) -> Result<Vec<Loaded>, StoreError> {
        self.notice()?;
        self.inner.load(names)
    }

    fn scan(
        &mut self,
        prefix: &str,
        after: Option<&Name>,
        count_max: usize,
        visit: &mut dyn FnMut(Name, Loaded),
    ) -> Result<bool, StoreError> {
        self.notice()?;
        self.inner.scan(prefix, after, count_max, visit)
    }
}

#[test]
fn a_read_that_fails_at_once_is_done_once_more() {
    let check = |count, expected: Result<(), StoreError>| {
        let ended = || Ended {
            inner: MemoryDisk::default().open(None).0.reader().unwrap(),
            count,
        };
        let health = StoreHealth::default();
        let loaded = load(&mut ended(), &[Name::from("a")], &health);
        assert_eq!(loaded.map(|_| ()), expected, "{count}");
        assert_eq!(health.read_error(), expected.clone().err());
        let scan = Scan {
            prefix: String::new(),
            after: None,
            count_max: 10,
        };
        let (page, pages) = mpsc::channel();
        let (tasks, waiting) = mpsc::channel();
        let answer = Box::new(move |answer| page.send(answer).unwrap());
        tasks.send(ReadTask::Scan { scan, answer }).unwrap();
        drop(tasks);
        let ignored: CompletionSender = Arc::new(|_, _| ());
        read(&mut ended(), &waiting, &ignored, &health);
        assert_eq!(pages.recv().unwrap().map(|_| ()), expected, "{count}");
    };
    check(0, Ok(()));
    check(1, Ok(()));
    check(2, Err(failure()));
}

#[test]
fn a_load_sees_every_commit_that_was_answered() {
    let directory = tempfile::tempdir().unwrap();
    let folder = DataFolder::open(directory.path()).unwrap();
    let (store, _) = SqliteStore::open(&folder, SqliteOptions::default()).unwrap();
    let (threads, answers) = start(Box::new(store));
    let client = threads.client();
    for version in 1..=200 {
        commit(&client, 0, 1, vec![put("a", version)]);
        assert_eq!(committed(&answers), (0, 1, done(1)));
        request_load(&client, 1, "a");
        assert_eq!(loaded(&answers), (1, Ok(Loaded::Found(record(version)))));
    }
    threads.stop(Ending::Complete).unwrap();
}

#[test]
fn stopping_answers_what_was_requested_and_closes_cleanly() {
    let rig = rig();
    let client = rig.threads.client();
    rig.enter_commit();
    commit(&client, 1, 1, vec![put("b", 1)]);
    rig.outcomes.send(Ok(())).unwrap();
    rig.outcomes.send(Ok(())).unwrap();
    rig.threads.stop(Ending::Complete).unwrap();
    assert_eq!(committed(&rig.answers), (0, 1, done(1)));
    assert_eq!(committed(&rig.answers), (1, 1, done(1)));

    commit(&client, 2, 7, vec![put("c", 1)]);
    assert_eq!(committed(&rig.answers), (2, 7, Err(stopped())));
    request_load(&client, 2, "a");
    assert_eq!(loaded(&rig.answers), (2, Err(stopped())));
    let (page, pages) = mpsc::channel();
    let scan = Scan {
        prefix: String::new(),
        after: None,
        count_max: 10,
    };
    client.scan(scan, Box::new(move |answer| page.send(answer).unwrap()));
    assert_eq!(pages.recv_timeout(DEADLINE).unwrap(), Err(stopped()));

    let before = rig.disk.open(None).1;
    assert_eq!(before.opening, 2);
    let after_unclean = rig.disk.open(None).1;
    assert!(after_unclean.epoch > before.epoch);
}

#[test]
fn only_a_complete_stop_keeps_the_epoch() {
    for (ending, keeps) in [(Ending::Complete, true), (Ending::CutOff, false)] {
        let disk = MemoryDisk::default();
        let (store, before) = disk.open(None);
        let (threads, _answers) = start(Box::new(store));
        threads.stop(ending).unwrap();
        let (_store, after) = disk.open(None);
        assert_eq!(after.epoch == before.epoch, keeps, "{ending:?}");
    }
}

#[test]
fn a_thread_that_panics_is_reported() {
    let rig = rig();
    let client = rig.threads.client();
    // Without a sender of outcomes, the commit panics.
    drop(rig.outcomes);
    commit(&client, 0, 1, vec![put("a", 1)]);
    let error = rig.threads.stop(Ending::Complete).unwrap_err();
    assert!(error.message.contains("panicked"), "{error}");
}

/// The view and the writes of a commit.
type Attempt = (View, Vec<StoreWrite>);

/// A store whose view changes: each commit of another view than the newest one reports it.
struct Viewed {
    inner: Box<dyn Store>,
    /// The view after this many commits.
    views: VecDeque<View>,
    is_member: bool,
    committed: Sender<Attempt>,
}

impl Store for Viewed {
    fn reader(&mut self) -> Result<Box<dyn StoreReader>, StoreError> {
        self.inner.reader()
    }

    fn commit(
        &mut self,
        view: View,
        member: MemberId,
        writes: &[StoreWrite],
    ) -> Result<Vec<Written>, StoreError> {
        self.committed.send((view, writes.to_vec())).unwrap();
        match self.views.pop_front() {
            Some(current) => Err(StoreError::stale_view(view, current, self.is_member)),
            None => self.inner.commit(OPENED.view(), member, writes),
        }
    }

    fn close(&mut self) -> Result<(), StoreError> {
        self.inner.close()
    }
}

fn viewed(
    views: &[u64],
    is_member: bool,
) -> (
    StoreThreads,
    Receiver<(u16, StoreCompletion)>,
    Receiver<Attempt>,
) {
    let (sender, committed) = mpsc::channel();
    let (threads, answers) = start(Box::new(Viewed {
        inner: Box::new(MemoryDisk::default().open(None).0),
        views: views.iter().copied().map(View).collect(),
        is_member,
        committed: sender,
    }));
    (threads, answers, committed)
}

#[test]
fn a_member_of_the_new_view_repeats_its_batch_unchanged() {
    let (threads, answers, committed) = viewed(&[5, 8], true);
    let client = threads.client();
    commit(&client, 0, 1, vec![put("a", 1), put("b", 2)]);
    assert_eq!(self::committed(&answers), (0, 1, done(2)));
    commit(&client, 0, 2, vec![put("a", 3)]);
    assert_eq!(self::committed(&answers), (0, 2, done(1)));
    threads.stop(Ending::Complete).unwrap();
    let attempts: Vec<_> = committed.iter().collect();
    let first = vec![put("a", 1), put("b", 2)];
    // The next batch is committed in the adopted view at once.
    let expected = [
        (1, first.clone()),
        (5, first.clone()),
        (8, first),
        (8, vec![put("a", 3)]),
    ];
    assert_eq!(
        attempts,
        expected.map(|(view, writes)| (View(view), writes))
    );
}

#[test]
fn a_member_that_is_not_in_the_new_view_fails_its_batch() {
    let (threads, answers, committed) = viewed(&[5], false);
    let client = threads.client();
    commit(&client, 0, 1, vec![put("a", 1)]);
    let error = StoreError::stale_view(View(1), View(5), false);
    assert!(error.trouble.is_eviction());
    assert_eq!(self::committed(&answers), (0, 1, Err(error)));
    threads.stop(Ending::Complete).unwrap();
    assert_eq!(committed.iter().count(), 1);
}

#[test]
fn a_view_that_changes_without_end_is_left_to_the_engine() {
    let views: Vec<u64> = (2..2 + ADOPTIONS_MAX as u64 + 1).collect();
    let (threads, answers, committed) = viewed(&views, true);
    commit(&threads.client(), 0, 1, vec![put("a", 1)]);
    let (_, _, result) = self::committed(&answers);
    let trouble = result.unwrap_err().trouble;
    assert!(!trouble.is_eviction(), "{trouble:?}");
    // The engine repeats it after a pause, in the newest view.
    commit(&threads.client(), 0, 2, vec![put("a", 1)]);
    assert_eq!(self::committed(&answers), (0, 2, done(1)));
    threads.stop(Ending::Complete).unwrap();
    assert_eq!(committed.iter().count(), ADOPTIONS_MAX + 2);
}

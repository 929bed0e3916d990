//! Runs a store on two threads: one commits, one reads, so that no shard ever blocks and reads never wait behind
//! commits.
//!
//! The committing thread puts the batches that wait into one commit, up to a bound in bytes, so a busy server pays one sync for
//! all shards.
//! The queues need no limit of their own: a shard has one commit on its way at most, and what it loads is limited by
//! the operations that wait for it. When to try again is the engine's decision.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use tidewire_core::effect::{StoreCompletion, StoreRequest};
use tidewire_core::quota::QuotaChange;
use tidewire_core::store::{
    Loaded, Store, StoreChange, StoreError, StoreReader, StoreTrouble, StoreWrite, Term, Written,
};
use tidewire_core::text::Name;

/// Takes a completion to the shard that asked; called from the store's threads, so it must not block.
pub type Answer = Arc<dyn Fn(u16, StoreCompletion) + Send + Sync>;

/// Takes one page of a scan; called from the reading thread.
pub type PageAnswer = Box<dyn FnOnce(Result<ScanPage, StoreError>) + Send>;

/// Takes what was found, in the order of the names; called from the reading thread.
pub type LoadAnswer = Box<dyn FnOnce(Result<Vec<Loaded>, StoreError>) + Send>;

/// Takes what became of each write of a commit, in their order; called from the committing thread.
pub type CommitAnswer = Box<dyn FnOnce(Result<Vec<Written>, StoreError>) + Send>;

/// Takes what shards are to learn of a store's quotas; called from the committing thread, so it must not block.
pub type OnQuotaChange = Box<dyn Fn(QuotaChange) + Send>;

/// A part of the records whose names share a prefix, in byte order of their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanPage {
    /// The records.
    pub records: Vec<(Name, Loaded)>,
    /// Whether there may be more after the last of them.
    pub more: bool,
}

/// What a scan asks for.
#[derive(Clone, Debug)]
pub struct Scan {
    /// What the names start with.
    pub prefix: String,
    /// The last name of the page before.
    pub after: Option<Name>,
    /// Records of the page.
    pub count_max: usize,
}

/// Bytes of the batches that share one transaction; one that is larger has one for itself. Whoever writes next waits for one
/// transaction, so it should take tens of milliseconds. Batches of shards are bounded by `limits.batch_bytes_max`.
const TRANSACTION_BYTES_MAX: usize = 8 << 20;

/// A store that has not answered for so long is reported.
const SLOW: Duration = Duration::from_millis(800);

/// How the store is doing, for `/ready` and metrics. Counters only grow.
#[derive(Debug, Default)]
pub struct StoreHealth {
    /// What the log calls the store; empty where there is one only.
    name: String,
    /// Commits that succeeded, each one sync.
    pub commit_count: AtomicU64,
    /// Writes in them.
    pub write_count: AtomicU64,
    /// Bytes of the names and values of those writes.
    pub written_bytes: AtomicU64,
    /// Writes in them that were refused because another owner had written the record.
    pub refused_write_count: AtomicU64,
    /// Nanoseconds spent in them.
    pub commit_ns: AtomicU64,
    /// Commits that failed.
    pub failed_commit_count: AtomicU64,
    /// Names that were looked up.
    pub load_count: AtomicU64,
    /// Bytes that the store uses, where it says so.
    pub used_bytes: AtomicU64,
    /// Bytes that it may use; 0 without a limit.
    pub bytes_max: AtomicU64,
    /// Users that have used up their quotas.
    pub full_users: AtomicU64,
    /// Look-ups that found a record which does not pass its checksum.
    pub corrupt_count: AtomicU64,
    commit_error: Mutex<Option<StoreError>>,
    read_error: Mutex<Option<StoreError>>,
    /// When the commit and the read that run now began.
    commit_began: Mutex<Option<Instant>>,
    read_began: Mutex<Option<Instant>>,
    is_slow: AtomicBool,
}

impl StoreHealth {
    /// The store as the log says it.
    fn shown(&self) -> String {
        match self.name.as_str() {
            "" => "the store".to_owned(),
            name => format!("the store {name}"),
        }
    }

    /// Why the last commit failed, if it did. Written records are in memory only until the next one succeeds.
    #[must_use]
    pub fn commit_error(&self) -> Option<StoreError> {
        lock(&self.commit_error).clone()
    }

    /// Why the last read failed, if it did.
    #[must_use]
    pub fn read_error(&self) -> Option<StoreError> {
        lock(&self.read_error).clone()
    }

    /// How long the longest of the requests has run that the store has not answered yet.
    #[must_use]
    pub fn unanswered(&self) -> Duration {
        [&self.commit_began, &self.read_began]
            .into_iter()
            .filter_map(|began| lock(began).map(|began| began.elapsed()))
            .max()
            .unwrap_or_default()
    }

    /// Whether the store takes longer than it may.
    #[must_use]
    pub fn is_slow(&self) -> bool {
        self.unanswered() >= SLOW
    }

    /// Writes into the log that the store has become slow, or quick again.
    pub fn note_slow(&self) {
        let is_slow = self.is_slow();
        if self.is_slow.swap(is_slow, Ordering::Relaxed) == is_slow {
            return;
        }
        if is_slow {
            let shown = self.shown();
            tracing::warn!("{shown} has not answered for {SLOW:?}; writes wait in memory");
        } else {
            tracing::info!("{} answers again", self.shown());
        }
    }

    /// Whether the store uses as much as it may, and by how much.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let bytes_max = self.bytes_max.load(Ordering::Relaxed);
        bytes_max > 0 && self.used_bytes.load(Ordering::Relaxed) >= bytes_max
    }

    fn log_full(&self) {
        let shown = self.shown();
        match self.is_full() {
            true => tracing::error!(
                "{shown} has used up limits.store_bytes_max; writes that need more room are refused until records are deleted"
            ),
            false => tracing::info!("{shown} has room again"),
        }
    }

    fn note_commit(&self, error: Option<&StoreError>) {
        match change(&self.commit_error, error) {
            Change::Failed(error) => {
                let remedy = match error.trouble {
                    StoreTrouble::Unavailable => "",
                    StoreTrouble::Full => "; make room on the disk",
                    StoreTrouble::StaleTerm => "; stop one of the two servers",
                };
                let shown = self.shown();
                tracing::error!(%error, "{shown} can't commit, writes stay in memory until it can{remedy}");
            }
            Change::Recovered => tracing::info!("{} commits again", self.shown()),
            Change::Same => {}
        }
    }

    fn note_read(&self, error: Option<&StoreError>) {
        match change(&self.read_error, error) {
            Change::Failed(error) => tracing::error!(%error, "{} can't be read", self.shown()),
            Change::Recovered => tracing::info!("{} can be read again", self.shown()),
            Change::Same => {}
        }
    }
}

/// What is new about a part of the store. Only changes are logged, because a disk that stays full would fill the log.
enum Change<'a> {
    Failed(&'a StoreError),
    Recovered,
    Same,
}

fn change<'a>(slot: &Mutex<Option<StoreError>>, error: Option<&'a StoreError>) -> Change<'a> {
    let mut slot = lock(slot);
    if slot.as_ref() == error {
        return Change::Same;
    }
    *slot = error.cloned();
    error.map_or(Change::Recovered, Change::Failed)
}

/// The shards' way to the store; clones lead to the same one.
#[derive(Clone)]
pub struct StoreClient {
    commits: Sender<CommitTask>,
    reads: Sender<ReadTask>,
    answer: Answer,
    health: Arc<StoreHealth>,
}

impl StoreClient {
    /// Hands over a request of a shard and returns at once. Each request is answered once, commits of a shard in
    /// their order. A load sees every commit that was answered before it was requested.
    pub fn request(&self, shard: u16, request: StoreRequest) {
        match request {
            StoreRequest::Load { names, .. } => {
                if let Err(unsent) = self.reads.send(ReadTask::Load { shard, names }) {
                    unsent.0.fail(&self.answer);
                }
            }
            StoreRequest::Commit {
                store,
                batch,
                writes,
            } => {
                let answer = Arc::clone(&self.answer);
                let answer = move |result| {
                    let completion = StoreCompletion::Committed {
                        store,
                        batch,
                        result,
                    };
                    answer(shard, completion);
                };
                self.commit(writes, Box::new(answer));
            }
        }
    }

    /// Commits what the server keeps itself, together with what shards have written. Answered once.
    pub fn commit(&self, writes: Arc<[StoreWrite]>, answer: CommitAnswer) {
        let task = CommitTask::Batch(Batch { writes, answer });
        if let Err(mpsc::SendError(CommitTask::Batch(batch))) = self.commits.send(task) {
            (batch.answer)(Err(stopped()));
        }
    }

    /// Finds what the server keeps itself. It sees every commit that was answered before. Answered once.
    pub fn load(&self, names: Vec<Name>, answer: LoadAnswer) {
        if let Err(unsent) = self.reads.send(ReadTask::Find { names, answer }) {
            unsent.0.fail(&self.answer);
        }
    }

    /// Reads a page of records on the reading thread, between loads.
    pub fn scan(&self, scan: Scan, answer: PageAnswer) {
        if let Err(unsent) = self.reads.send(ReadTask::Scan { scan, answer }) {
            unsent.0.fail(&self.answer);
        }
    }

    /// How the store is doing.
    #[must_use]
    pub fn health(&self) -> &Arc<StoreHealth> {
        &self.health
    }
}

/// How a store ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All that was shown to anybody is committed, so the next opening goes on with the same epoch.
    Complete,
    /// Something that was shown is lost. Its version numbers will be used again, so the next opening must start a new
    /// epoch, and the store is left as a crash leaves it.
    CutOff,
}

/// The running threads of a store.
pub struct StoreThreads {
    client: StoreClient,
    writer: JoinHandle<Result<(), StoreError>>,
    reader: JoinHandle<()>,
}

impl StoreThreads {
    /// Starts the threads of `store`, which commit in `term`. Completions go to `answer`.
    ///
    /// # Errors
    /// The store has no reader to give, or the system no thread.
    pub fn start(store: Box<dyn Store>, term: Term, answer: Answer) -> Result<Self, StoreError> {
        Self::start_named("", store, term, answer, Box::new(|_| ()))
    }

    /// The same for one of several stores, by the name that the log has for it. Shards learn of its quotas through `news`.
    ///
    /// # Errors
    /// As [`StoreThreads::start`].
    pub fn start_named(
        name: &str,
        mut store: Box<dyn Store>,
        term: Term,
        answer: Answer,
        on_change: OnQuotaChange,
    ) -> Result<Self, StoreError> {
        let mut reader = store.reader()?;
        let (commits, commit_tasks) = mpsc::channel();
        let (reads, read_tasks) = mpsc::channel();
        let client = StoreClient {
            commits,
            reads,
            answer,
            health: Arc::new(StoreHealth {
                name: name.to_owned(),
                ..StoreHealth::default()
            }),
        };
        let (answer, health) = (client.answer.clone(), client.health.clone());
        let reader = Builder::new()
            .name("store-reader".to_owned())
            .spawn(move || read(&mut *reader, &read_tasks, &answer, &health))
            .map_err(no_thread)?;
        let health = client.health.clone();
        tell_quota(&mut *store, &health, &on_change);
        let writer = Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || write(&mut *store, term, &commit_tasks, &health, &on_change))
            .map_err(no_thread)?;
        Ok(Self {
            client,
            writer,
            reader,
        })
    }

    /// The way to the store.
    #[must_use]
    pub fn client(&self) -> StoreClient {
        self.client.clone()
    }

    /// Answers what was requested before, then closes the store. For when no shard asks any more: a request at the same
    /// time may stay without an answer, a later one fails.
    ///
    /// # Errors
    /// The store could not be closed cleanly; the next opening starts a new epoch.
    pub fn stop(self, ending: Ending) -> Result<(), StoreError> {
        // The reader goes first, so that the last checkpoint has nobody in its way.
        let _ = self.client.reads.send(ReadTask::Stop);
        let reader_ended = self.reader.join();
        let _ = self.client.commits.send(CommitTask::Stop(ending));
        let writer_ended = self.writer.join();
        match (reader_ended, writer_ended) {
            (Ok(()), Ok(closed)) => closed,
            _ => Err(StoreError::unavailable(
                "a thread of the store has panicked",
            )),
        }
    }
}

struct Batch {
    writes: Arc<[StoreWrite]>,
    answer: CommitAnswer,
}

impl Batch {
    /// Bytes of its names and values.
    fn bytes(&self) -> usize {
        let bytes = self.writes.iter().map(|write| match &write.change {
            StoreChange::Put(record) => write.name.len() + record.data.len(),
            StoreChange::Delete => write.name.len(),
        });
        bytes.sum()
    }
}

enum CommitTask {
    Batch(Batch),
    Stop(Ending),
}

enum ReadTask {
    Load {
        shard: u16,
        names: Vec<Name>,
    },
    Find {
        names: Vec<Name>,
        answer: LoadAnswer,
    },
    Scan {
        scan: Scan,
        answer: PageAnswer,
    },
    Stop,
}

impl ReadTask {
    /// Answers a task that no thread takes any more.
    fn fail(self, answer: &Answer) {
        match self {
            Self::Load { shard, names } => {
                let fail = |name| (name, Err(stopped()));
                let records = names.into_iter().map(fail).collect();
                answer(shard, StoreCompletion::Loaded { records });
            }
            Self::Find { answer, .. } => answer(Err(stopped())),
            Self::Scan { answer, .. } => answer(Err(stopped())),
            Self::Stop => {}
        }
    }
}

fn write(
    store: &mut dyn Store,
    term: Term,
    tasks: &Receiver<CommitTask>,
    health: &StoreHealth,
    on_change: &OnQuotaChange,
) -> Result<(), StoreError> {
    let mut ending = None;
    let mut waiting = VecDeque::new();
    loop {
        if waiting.is_empty() {
            if ending.is_some() {
                break;
            }
            // Without senders it stays unknown how it ended.
            let Ok(first) = tasks.recv() else { break };
            take(first, &mut waiting, &mut ending);
        }
        // What was sent after a stop is not answered.
        while ending.is_none()
            && let Ok(task) = tasks.try_recv()
        {
            take(task, &mut waiting, &mut ending);
        }
        let batches = next_transaction(&mut waiting);
        if batches.is_empty() {
            continue;
        }
        commit_together(store, term, batches, health);
        tell_quota(store, health, on_change);
        if let Err(error) = store.tidy() {
            health.note_commit(Some(&error));
        }
    }
    match ending {
        Some(Ending::Complete) => store.close(),
        Some(Ending::CutOff) | None => Ok(()),
    }
}

/// Tells shards, metrics and `/ready` how the store stands to its quotas.
fn tell_quota(store: &mut dyn Store, health: &StoreHealth, on_change: &OnQuotaChange) {
    let Some(state) = store.quota() else {
        return;
    };
    let was_full = health.is_full();
    health.used_bytes.store(state.used_bytes, Ordering::Relaxed);
    let bytes_max = state.bytes_max.unwrap_or(0);
    health.bytes_max.store(bytes_max, Ordering::Relaxed);
    let full_users = state.full_users as u64;
    health.full_users.store(full_users, Ordering::Relaxed);
    if health.is_full() != was_full {
        health.log_full();
    }
    for change in state.changes {
        if let QuotaChange::User { user, is_full } = &change {
            let user = user.as_str();
            match is_full {
                true => tracing::warn!(
                    user,
                    "the user has used up limits.user_store_bytes_max; writes that need more room are refused"
                ),
                false => tracing::info!(user, "the user has room in the store again"),
            }
        }
        on_change(change);
    }
}

fn take(task: CommitTask, waiting: &mut VecDeque<Batch>, ending: &mut Option<Ending>) {
    match task {
        CommitTask::Batch(batch) => waiting.push_back(batch),
        CommitTask::Stop(how) => *ending = Some(how),
    }
}

/// The batches that have waited longest, as many as one transaction may have and at least one.
fn next_transaction(waiting: &mut VecDeque<Batch>) -> Vec<Batch> {
    let mut bytes = 0;
    let mut batches = Vec::new();
    while let Some(batch) = waiting.front() {
        bytes += batch.bytes();
        if bytes > TRANSACTION_BYTES_MAX && !batches.is_empty() {
            break;
        }
        batches.extend(waiting.pop_front());
    }
    batches
}

/// Makes one commit of all batches, and answers each of them.
fn commit_together(store: &mut dyn Store, term: Term, batches: Vec<Batch>, health: &StoreHealth) {
    let bytes: usize = batches.iter().map(Batch::bytes).sum();
    let result = match batches.as_slice() {
        [only] => commit(store, term, &only.writes, health),
        several => {
            let writes = several.iter().flat_map(|batch| batch.writes.iter());
            let writes: Vec<_> = writes.cloned().collect();
            commit(store, term, &writes, health)
        }
    };
    if result.is_ok() {
        let bytes = bytes as u64;
        health.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
    let mut written = result.map(Vec::into_iter);
    for Batch { writes, answer } in batches {
        let count = writes.len();
        // Whoever has made them frees them.
        drop(writes);
        answer(match &mut written {
            Ok(written) => Ok(written.take(count).collect()),
            Err(error) => Err(error.clone()),
        });
    }
}

fn commit(
    store: &mut dyn Store,
    term: Term,
    writes: &[StoreWrite],
    health: &StoreHealth,
) -> Result<Vec<Written>, StoreError> {
    let start = Instant::now();
    let result = timed(&health.commit_began, || store.commit(term, writes));
    match &result {
        Ok(written) => {
            let refused = std::iter::zip(writes, written)
                .filter(|(_, written)| **written == Written::Refused)
                .map(|(write, _)| &write.name);
            for name in refused {
                health.refused_write_count.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(
                    record = name.as_str(),
                    "another server has written the record; what it wrote counts, and unsaved writes of it are dropped"
                );
            }
            health.commit_count.fetch_add(1, Ordering::Relaxed);
            let count = writes.len() as u64;
            health.write_count.fetch_add(count, Ordering::Relaxed);
            let spent = nanoseconds(start.elapsed());
            health.commit_ns.fetch_add(spent, Ordering::Relaxed);
        }
        Err(_) => {
            health.failed_commit_count.fetch_add(1, Ordering::Relaxed);
        }
    }
    health.note_commit(result.as_ref().err());
    result
}

fn read(
    reader: &mut dyn StoreReader,
    tasks: &Receiver<ReadTask>,
    answer: &Answer,
    health: &StoreHealth,
) {
    for task in tasks {
        match task {
            ReadTask::Load { shard, names } => {
                let result = load(reader, &names, health);
                let records = match result {
                    Ok(found) => names.into_iter().zip(found.into_iter().map(Ok)).collect(),
                    Err(error) => names
                        .into_iter()
                        .map(|name| (name, Err(error.clone())))
                        .collect(),
                };
                answer(shard, StoreCompletion::Loaded { records });
            }
            ReadTask::Find { names, answer } => answer(load(reader, &names, health)),
            ReadTask::Scan { scan, answer } => {
                answer(patiently(health, || read_page(reader, &scan)));
            }
            ReadTask::Stop => break,
        }
    }
}

fn load(
    reader: &mut dyn StoreReader,
    names: &[Name],
    health: &StoreHealth,
) -> Result<Vec<Loaded>, StoreError> {
    let result = patiently(health, || reader.load(names));
    count_loaded(&result, health);
    result
}

/// Reads, and once more if that fails at once: a reader learns only so that its connection has ended since the last
/// time, and opens another one. A store that takes its time to fail is not asked twice.
fn patiently<T>(
    health: &StoreHealth,
    mut read: impl FnMut() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let start = Instant::now();
    let result = timed(&health.read_began, || match read() {
        Err(_) if start.elapsed() < SLOW => read(),
        other => other,
    });
    health.note_read(result.as_ref().err());
    result
}

fn count_loaded(result: &Result<Vec<Loaded>, StoreError>, health: &StoreHealth) {
    let Ok(found) = result else { return };
    let corrupt = found.iter().filter(|one| **one == Loaded::Corrupt).count();
    let (count, corrupt) = (found.len() as u64, corrupt as u64);
    health.load_count.fetch_add(count, Ordering::Relaxed);
    health.corrupt_count.fetch_add(corrupt, Ordering::Relaxed);
}

fn read_page(reader: &mut dyn StoreReader, scan: &Scan) -> Result<ScanPage, StoreError> {
    let mut records = Vec::new();
    let more = reader.scan(
        &scan.prefix,
        scan.after.as_ref(),
        scan.count_max,
        &mut |name, loaded| records.push((name, loaded)),
    )?;
    Ok(ScanPage { records, more })
}

/// Notes when a request begins, as long as it runs.
fn timed<T>(began: &Mutex<Option<Instant>>, request: impl FnOnce() -> T) -> T {
    *lock(began) = Some(Instant::now());
    let answer = request();
    *lock(began) = None;
    answer
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // What is inside is replaced as a whole, so a panic leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn stopped() -> StoreError {
    StoreError::unavailable("the store has stopped")
}

fn no_thread(error: std::io::Error) -> StoreError {
    StoreError::unavailable(format!("no thread for the store: {error}"))
}

#[cfg(test)]
mod tests;

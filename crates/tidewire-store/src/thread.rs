//! Runs a store on two threads: one commits, one reads. If the store keeps indexes, a third one reads these. So no shard ever blocks, and
//! reads never wait for commits.
//!
//! The committing thread combines waiting batches into one commit, up to a limit in bytes, so a busy server needs one sync for
//! all shards.
//! The queues need no separate limits: a shard has at most one commit in flight, and the operations that wait for loads limit the
//! number of loads. The engine decides when to retry.

mod index_reader;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use tidewire_core::effect::{StoreCompletion, StoreRequest};
use tidewire_core::quota::QuotaChange;
use tidewire_core::store::{
    IndexBuild, Loaded, MemberId, Opened, ScanPage, Store, StoreChange, StoreError, StoreReader,
    StoreTrouble, StoreWrite, View, Written,
};
use tidewire_core::text::Name;

use index_reader::IndexTask;

/// Sends a completion to the shard that requested it; called from the store's threads, so it must not block.
pub type CompletionSender = Arc<dyn Fn(u16, StoreCompletion) + Send + Sync>;

/// Takes one page of a scan; called from the reading thread.
pub type PageAnswer = Box<dyn FnOnce(Result<ScanPage, StoreError>) + Send>;

/// Takes the results of a load, in the order of the names; called from the reading thread.
pub type LoadAnswer = Box<dyn FnOnce(Result<Vec<Loaded>, StoreError>) + Send>;

/// Takes the outcomes of a commit's writes, in the order of the writes; called from the committing thread.
pub type CommitAnswer = Box<dyn FnOnce(Result<Vec<Written>, StoreError>) + Send>;

/// Sends a change of a store's quotas to the shards; called from the committing thread, so it must not block.
pub type OnQuotaChange = Box<dyn Fn(QuotaChange) + Send>;

/// The parameters of a scan.
#[derive(Clone, Debug)]
pub struct Scan {
    /// The prefix of the names.
    pub prefix: String,
    /// The last name of the previous page.
    pub after: Option<Name>,
    /// Maximum number of records in the page.
    pub count_max: usize,
}

/// Maximum size of the batches in one transaction, in bytes. A larger batch gets a separate transaction. Every write may have to wait for
/// one transaction, so it should take tens of milliseconds at most. `limits.batch_bytes_max` limits the batches of shards.
const TRANSACTION_BYTES_MAX: usize = 8 << 20;

/// How often a batch is repeated at once because the view of the store has changed.
const ADOPTIONS_MAX: usize = 4;

/// Maximum number of names in one answer of a load: a shard does other work between two answers, because the requests that waited for
/// the names continue with each of them.
const ANSWERED_MAX: usize = 128;

/// How much the nice value of the reading thread is above that of the others. On a machine where it shares a core with a shard and the
/// committing thread, loads of ever new names delay the acknowledgements of other clients' writes less.
const READER_NICE: i32 = 3;

/// A store that has not answered a request for this long counts as slow.
const SLOW: Duration = Duration::from_millis(800);

/// The state of the store, for `/ready` and metrics. Counters only grow.
#[derive(Debug, Default)]
pub struct StoreHealth {
    /// The store's name in the log; empty if it is the only store.
    name: String,
    /// Successful commits, each with one sync.
    pub commit_count: AtomicU64,
    /// Writes in successful commits.
    pub write_count: AtomicU64,
    /// Bytes of the names and values of those writes.
    pub written_bytes: AtomicU64,
    /// Writes in successful commits that the store refused, because another owner had written the record.
    pub refused_write_count: AtomicU64,
    /// Nanoseconds spent in successful commits.
    pub commit_ns: AtomicU64,
    /// Failed commits.
    pub failed_commit_count: AtomicU64,
    /// Names that were looked up.
    pub load_count: AtomicU64,
    /// Bytes that the store uses, if it reports them.
    pub used_bytes: AtomicU64,
    /// Bytes that the store may use; 0 without a limit.
    pub bytes_max: AtomicU64,
    /// Users that have used up their quotas.
    pub full_users: AtomicU64,
    /// Lookups of a record that does not pass its checksum.
    pub corrupt_count: AtomicU64,
    commit_error: Mutex<Option<StoreError>>,
    read_error: Mutex<Option<StoreError>>,
    /// When the running commit began.
    commit_began: Mutex<Option<Instant>>,
    /// When the running read began.
    read_began: Mutex<Option<Instant>>,
    is_slow: AtomicBool,
}

impl StoreHealth {
    /// The store's name for log lines.
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

    /// How long the oldest unanswered request has been running.
    #[must_use]
    pub fn unanswered(&self) -> Duration {
        [&self.commit_began, &self.read_began]
            .into_iter()
            .filter_map(|began| lock(began).map(|began| began.elapsed()))
            .max()
            .unwrap_or_default()
    }

    /// Whether a request has been running for too long.
    #[must_use]
    pub fn is_slow(&self) -> bool {
        self.unanswered() >= SLOW
    }

    /// Logs when the store becomes slow, and when it answers again.
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

    /// Whether the store has used up its quota.
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
                    StoreTrouble::Full => "; make room on the disk",
                    trouble if trouble.is_eviction() => "; stop one of the two servers",
                    StoreTrouble::Unavailable | StoreTrouble::StaleView { .. } => "",
                };
                let shown = self.shown();
                tracing::error!(%error, "{shown} can't commit; writes stay in memory until it can{remedy}");
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

/// How the state of commits or reads has changed. Only changes are logged, because a disk that stays full would flood the log.
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

/// The handle with which shards use the store; clones share the same store.
#[derive(Clone)]
pub struct StoreClient {
    commits: Sender<CommitTask>,
    reads: Sender<ReadTask>,
    /// `None` for a store without indexes.
    index_reads: Option<Sender<IndexTask>>,
    answer: CompletionSender,
    health: Arc<StoreHealth>,
}

impl StoreClient {
    /// Queues a request of a shard and returns at once. Each commit gets one completion, in the order of the shard's commits. The names of
    /// a load may get theirs in several parts. A load sees every commit that was answered before the load was requested.
    pub fn request(&self, shard: u16, request: StoreRequest) {
        match request {
            StoreRequest::Load { names, .. } => {
                if let Err(unsent) = self.reads.send(ReadTask::Load { shard, names }) {
                    unsent.0.fail(&self.answer);
                }
            }
            StoreRequest::Scan {
                number,
                prefix,
                after,
                count_max,
                ..
            } => {
                let answer = Arc::clone(&self.answer);
                let scan = Scan {
                    prefix: prefix.as_str().to_owned(),
                    after,
                    count_max,
                };
                let answer = move |page| {
                    answer(shard, StoreCompletion::Scanned { number, page });
                };
                self.scan(scan, Box::new(answer));
            }
            StoreRequest::Find { number, names, .. } => {
                let answer = Arc::clone(&self.answer);
                let asked = names.clone();
                let answer = move |found: Result<Vec<Loaded>, StoreError>| {
                    let page = found.map(|found| ScanPage {
                        records: std::iter::zip(asked, found).collect(),
                        more: false,
                    });
                    answer(shard, StoreCompletion::Scanned { number, page });
                };
                self.load(names, Box::new(answer));
            }
            StoreRequest::Index { number, read, .. } => {
                let task = IndexTask::Read {
                    shard,
                    number,
                    read,
                };
                let is_sent =
                    (self.index_reads.as_ref()).is_some_and(|reads| reads.send(task).is_ok());
                if !is_sent {
                    index_reader::answer_unusable(shard, number, &self.answer);
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

    /// Commits records that the server itself keeps, together with the writes of shards. Calls `answer` once.
    pub fn commit(&self, writes: Arc<[StoreWrite]>, answer: CommitAnswer) {
        let task = CommitTask::Batch(Batch { writes, answer });
        if let Err(mpsc::SendError(CommitTask::Batch(batch))) = self.commits.send(task) {
            (batch.answer)(Err(stopped()));
        }
    }

    /// Loads records that the server itself keeps. The load sees every commit that was answered before. Calls `answer` once.
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

    /// The state of the store.
    #[must_use]
    pub fn health(&self) -> &Arc<StoreHealth> {
        &self.health
    }
}

/// How a store is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All writes that clients have seen are committed, so the next opening keeps the epoch.
    Complete,
    /// Writes that clients have seen are lost. Their version numbers will be used again, so the next opening must start a new
    /// epoch, and the store is not marked as closed.
    CutOff,
}

/// The running threads of a store.
pub struct StoreThreads {
    client: StoreClient,
    writer: JoinHandle<Result<(), StoreError>>,
    reader: JoinHandle<()>,
    index_reader: Option<JoinHandle<()>>,
}

impl StoreThreads {
    /// Starts the threads of `store`, which was opened as `opened`. Completions go to `answer`.
    ///
    /// # Errors
    /// The store can't open a reader, or the system can't start a thread.
    pub fn start(
        store: Box<dyn Store>,
        opened: Opened,
        answer: CompletionSender,
    ) -> Result<Self, StoreError> {
        Self::start_named("", store, opened, answer, Box::new(|_| ()))
    }

    /// The same for one of several stores. Log lines contain `name`. Shards learn of its quotas through `on_change`.
    ///
    /// # Errors
    /// As [`StoreThreads::start`].
    pub fn start_named(
        name: &str,
        mut store: Box<dyn Store>,
        opened: Opened,
        answer: CompletionSender,
        on_change: OnQuotaChange,
    ) -> Result<Self, StoreError> {
        let mut reader = store.reader()?;
        let (commits, commit_tasks) = mpsc::channel();
        let (reads, read_tasks) = mpsc::channel();
        let (index_reads, index_tasks) = mpsc::channel();
        let has_indexes = store.has_indexes();
        let client = StoreClient {
            commits,
            reads,
            index_reads: has_indexes.then_some(index_reads),
            answer,
            health: Arc::new(StoreHealth {
                name: name.to_owned(),
                ..StoreHealth::default()
            }),
        };
        let (answer, health) = (client.answer.clone(), client.health.clone());
        let reader = Builder::new()
            .name("store-reader".to_owned())
            .spawn(move || {
                // If the system refuses it, the reader only competes with the other threads as an equal.
                let _ = rustix::process::nice(READER_NICE);
                read(&mut *reader, &read_tasks, &answer, &health);
            })
            .map_err(no_thread)?;
        let mut index_reader = None;
        if has_indexes {
            let mut reader = store.reader()?;
            let answer = client.answer.clone();
            let thread = Builder::new()
                .name("store-index".to_owned())
                .spawn(move || index_reader::run(&mut *reader, &index_tasks, &answer));
            index_reader = Some(thread.map_err(no_thread)?);
        }
        let health = client.health.clone();
        tell_quota(&mut *store, &health, &on_change);
        let writer = Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || {
                write(
                    Committer::new(store, opened),
                    &commit_tasks,
                    &health,
                    &on_change,
                )
            })
            .map_err(no_thread)?;
        Ok(Self {
            client,
            writer,
            reader,
            index_reader,
        })
    }

    /// A handle to the store.
    #[must_use]
    pub fn client(&self) -> StoreClient {
        self.client.clone()
    }

    /// Answers the earlier requests, then closes the store. Call this when no shard sends requests: one that is sent during the call may
    /// stay unanswered, and a later one fails.
    ///
    /// # Errors
    /// The store could not be closed cleanly; the next opening starts a new epoch.
    pub fn stop(self, ending: Ending) -> Result<(), StoreError> {
        // Stops the reader first, so that it can't block the last checkpoint.
        let _ = self.client.reads.send(ReadTask::Stop);
        if let Some(reads) = &self.client.index_reads {
            let _ = reads.send(IndexTask::Stop);
        }
        let mut reader_ended = self.reader.join();
        if let Some(index_reader) = self.index_reader {
            reader_ended = reader_ended.and(index_reader.join());
        }
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
    /// Answers a task with an error, because the reading thread has ended.
    fn fail(self, answer: &CompletionSender) {
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

/// The store of a member, and the view in which it commits.
struct Committer {
    store: Box<dyn Store>,
    view: View,
    member: MemberId,
}

impl Committer {
    /// The committer of a server that uses its store alone.
    fn new(store: Box<dyn Store>, opened: Opened) -> Self {
        Self {
            store,
            view: opened.view(),
            member: opened.member(),
        }
    }

    /// Commits a batch. If the view has changed and the member still belongs to it, the member adopts the current view and repeats the batch
    /// unchanged: the store has done nothing, and only this member knows of the writes. A view that grows with each attempt would mean that
    /// its members change faster than a commit, so the engine pauses after a few attempts.
    fn commit(&mut self, writes: &[StoreWrite]) -> Result<Vec<Written>, StoreError> {
        let mut result = self.store.commit(self.view, self.member, writes);
        for _ in 0..ADOPTIONS_MAX {
            let Err(StoreError {
                trouble:
                    StoreTrouble::StaleView {
                        current,
                        is_member: true,
                    },
                ..
            }) = result
            else {
                break;
            };
            tracing::info!(view = current.0, "the store has a new view");
            self.view = current;
            result = self.store.commit(self.view, self.member, writes);
        }
        result
    }
}

fn write(
    mut committer: Committer,
    tasks: &Receiver<CommitTask>,
    health: &StoreHealth,
    on_change: &OnQuotaChange,
) -> Result<(), StoreError> {
    let mut ending = None;
    let mut waiting = VecDeque::new();
    let mut builder = Builds::default();
    loop {
        if waiting.is_empty() {
            if ending.is_some() {
                break;
            }
            // If all senders are gone without a stop, the ending is unknown.
            let Some(first) = builder.next_task(&mut *committer.store, tasks, health) else {
                break;
            };
            take(first, &mut waiting, &mut ending);
        }
        // Tasks that were sent after a stop stay unanswered.
        while ending.is_none()
            && let Ok(task) = tasks.try_recv()
        {
            take(task, &mut waiting, &mut ending);
        }
        let batches = next_transaction(&mut waiting);
        if batches.is_empty() {
            continue;
        }
        commit_together(&mut committer, batches, health);
        tell_quota(&mut *committer.store, health, on_change);
        if let Err(error) = committer.store.tidy() {
            health.note_commit(Some(&error));
        }
        builder.committed(&mut *committer.store, health);
    }
    match ending {
        Some(Ending::Complete) => committer.store.close(),
        Some(Ending::CutOff) | None => Ok(()),
    }
}

/// Builds indexes while no batch waits, and now and then between commits that never end.
struct Builds {
    /// The state after the last step.
    state: IndexBuild,
    /// When the last step ended.
    stepped: Instant,
    /// Whether the last step failed. Only changes are logged.
    has_failed: bool,
}

/// While commits never end, a step delays the next one at most this often: builds then take a tenth of the time of the thread.
const BUILD_PAUSE: Duration = Duration::from_millis(50);
/// How long a build waits after a failure, and for another member.
const BUILD_RETRY: Duration = Duration::from_secs(1);

impl Default for Builds {
    fn default() -> Self {
        Self {
            state: IndexBuild::Pending,
            stepped: Instant::now(),
            has_failed: false,
        }
    }
}

impl Builds {
    /// Waits for the next task, and builds until it arrives. `None` if all senders are gone.
    fn next_task(
        &mut self,
        store: &mut dyn Store,
        tasks: &Receiver<CommitTask>,
        health: &StoreHealth,
    ) -> Option<CommitTask> {
        while self.state != IndexBuild::Complete {
            match tasks.recv_timeout(self.pause()) {
                Ok(task) => return Some(task),
                Err(mpsc::RecvTimeoutError::Timeout) => self.step(store, health),
                Err(mpsc::RecvTimeoutError::Disconnected) => return None,
            }
        }
        tasks.recv().ok()
    }

    /// Builds after a commit, if the last step was long ago. A commit may have found indexes that another member has declared, so there may
    /// be something to build again.
    fn committed(&mut self, store: &mut dyn Store, health: &StoreHealth) {
        if self.stepped.elapsed() >= self.pause().max(BUILD_PAUSE) {
            self.step(store, health);
        }
    }

    /// The time between two steps while no batch waits.
    fn pause(&self) -> Duration {
        match self.has_failed || self.state == IndexBuild::Waiting {
            true => BUILD_RETRY,
            false => Duration::ZERO,
        }
    }

    fn step(&mut self, store: &mut dyn Store, health: &StoreHealth) {
        let stepped = store.build_indexes();
        self.stepped = Instant::now();
        match &stepped {
            Ok(state) => self.state = *state,
            Err(error) if !self.has_failed => {
                tracing::warn!(%error, "{} can't build an index; it tries again", health.shown());
            }
            Err(_) => {}
        }
        self.has_failed = stepped.is_err();
        if self.state == IndexBuild::Pending
            && let Err(error) = store.tidy()
        {
            health.note_commit(Some(&error));
        }
    }
}

/// Publishes the use of the store's quotas to shards, metrics and `/ready`.
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

/// Takes the oldest batches, as many as fit into one transaction and at least one.
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

/// Commits all batches as one, and answers each of them.
fn commit_together(committer: &mut Committer, batches: Vec<Batch>, health: &StoreHealth) {
    let bytes: usize = batches.iter().map(Batch::bytes).sum();
    let result = match batches.as_slice() {
        [only] => commit(committer, &only.writes, health),
        several => {
            let writes = several.iter().flat_map(|batch| batch.writes.iter());
            let writes: Vec<_> = writes.cloned().collect();
            commit(committer, &writes, health)
        }
    };
    if result.is_ok() {
        let bytes = bytes as u64;
        health.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
    let mut written = result.map(Vec::into_iter);
    for Batch { writes, answer } in batches {
        let count = writes.len();
        // Drops this reference before the answer, so that the shard that made the writes frees them.
        drop(writes);
        answer(match &mut written {
            Ok(written) => Ok(written.take(count).collect()),
            Err(error) => Err(error.clone()),
        });
    }
}

fn commit(
    committer: &mut Committer,
    writes: &[StoreWrite],
    health: &StoreHealth,
) -> Result<Vec<Written>, StoreError> {
    let start = Instant::now();
    let result = timed(&health.commit_began, || committer.commit(writes));
    match &result {
        Ok(written) => {
            let refused = std::iter::zip(writes, written)
                .filter(|(_, written)| **written == Written::Refused)
                .map(|(write, _)| &write.name);
            for name in refused {
                health.refused_write_count.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(
                    record = name.as_str(),
                    "the store has another state of the record than expected: another program has written it, or the store has lost writes; the record is loaded again"
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
    answer: &CompletionSender,
    health: &StoreHealth,
) {
    for task in tasks {
        match task {
            ReadTask::Load { shard, names } => {
                let result = load(reader, &names, health);
                let records: Vec<_> = match result {
                    Ok(found) => names.into_iter().zip(found.into_iter().map(Ok)).collect(),
                    Err(error) => names
                        .into_iter()
                        .map(|name| (name, Err(error.clone())))
                        .collect(),
                };
                let mut left = records.into_iter();
                while left.len() > 0 {
                    let records = left.by_ref().take(ANSWERED_MAX).collect();
                    answer(shard, StoreCompletion::Loaded { records });
                }
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

/// Reads, and retries once if the read fails quickly. Only a failed read shows a reader that its connection has ended since the last
/// one, and the retry opens a new connection. If the read takes long to fail, there is no retry.
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

/// Runs a request, and keeps its start time in `began` while it runs.
fn timed<T>(began: &Mutex<Option<Instant>>, request: impl FnOnce() -> T) -> T {
    *lock(began) = Some(Instant::now());
    let answer = request();
    *lock(began) = None;
    answer
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // The value is always replaced as a whole, so a panic can't leave it half changed.
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

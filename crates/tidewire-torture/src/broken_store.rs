//! Servers that are broken on purpose, to prove that the torture test finds their losses.
//!
//! Only `tidewire torture-node` starts such a server, and only in a folder that the torture test has made. Its log, its first
//! screen, `/ready` and its metrics report that it loses acknowledged writes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tidewire_core::history;
use tidewire_core::store::{
    MemberId, Registry, Store, StoreError, StoreReader, StoreTrouble, StoreWrite, View, Written,
};
use tidewire_store::StoreKind;
use tidewire_store::remote::{OpenStore, Promise};
use tidewire_store::sqlite::Sync as SyncMode;
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};

use tidewire_server::exit::{Exit, Failure};
use tidewire_server::node::StoreWrapper;

/// The name of a file that only the data folders of the torture test contain.
pub const MARK: &str = "made-by-tidewire-torture";

/// How long a server that acknowledges first delays the commit.
const LATE: Duration = Duration::from_millis(20);

/// The fault of a server that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// The server acknowledges writes, delivers events with history, and commits both a little later.
    AckBeforeSync,
    /// The server acknowledges writes of records and commits them a little later. It delivers events with history as it should.
    WriteBeforeSync,
    /// The server delivers events with history and commits them a little later.
    EventBeforeSync,
    /// The server does not sync its commits.
    SkipSync,
    /// At a stop the server acknowledges the pending writes and drops them.
    DropOnDrain,
}

impl Break {
    /// All faults.
    pub const ALL: [Self; 5] = [
        Self::AckBeforeSync,
        Self::WriteBeforeSync,
        Self::EventBeforeSync,
        Self::SkipSync,
        Self::DropOnDrain,
    ];

    /// The name of the fault on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AckBeforeSync => "ack-before-sync",
            Self::WriteBeforeSync => "write-before-sync",
            Self::EventBeforeSync => "event-before-sync",
            Self::SkipSync => "skip-sync",
            Self::DropOnDrain => "drop-on-drain",
        }
    }

    /// The fault with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|broken| broken.name() == name)
    }
}

impl StoreWrapper for Break {
    fn adjust(&self, kind: &mut StoreKind) {
        if let (Self::SkipSync, StoreKind::Sqlite(options)) = (*self, kind) {
            options.sync = SyncMode::Off;
        }
    }

    fn wrap(&self, open: OpenStore, runtime: &Handle) -> std::io::Result<OpenStore> {
        let store: Box<dyn Store> = match *self {
            Self::SkipSync => open.store,
            Self::AckBeforeSync => Box::new(Early::new(open.store, |_| true)?),
            Self::WriteBeforeSync => {
                Box::new(Early::new(open.store, |writes| !is_history(writes))?)
            }
            Self::EventBeforeSync => Box::new(Early::new(open.store, is_history)?),
            Self::DropOnDrain => Box::new(Forgetful::new(open.store, runtime)?),
        };
        let weakness = format!("this server is broken on purpose (--break {})", self.name());
        Ok(OpenStore {
            store,
            promise: Promise::relaxed(weakness),
            ..open
        })
    }
}

/// Checks that the torture test has made a folder, because a broken server may use no other.
///
/// # Errors
/// The folder does not contain [`MARK`].
pub fn refuse_other_folders(folder: &Path) -> Result<(), Failure> {
    if folder.join(MARK).is_file() {
        return Ok(());
    }
    let line = format!(
        "`tidewire torture` did not create the data folder {folder:?}, and torture-node uses no other; run `tidewire start`"
    );
    Err(Failure::new(Exit::DataFolder, line))
}

/// Whether a batch is a batch of histories, which contains no other writes.
fn is_history(writes: &[StoreWrite]) -> bool {
    writes.iter().all(|write| history::is_row(&write.name))
}

type ReaderResult = Result<Box<dyn StoreReader>, StoreError>;
type RegistryResult = Result<Option<Box<dyn Registry>>, StoreError>;
type CommitResult = Result<Vec<Written>, StoreError>;

/// A request to the thread that owns the store.
enum Task {
    Reader(Sender<ReaderResult>),
    Registry(Sender<RegistryResult>),
    /// A batch that was already acknowledged, and when.
    Late((View, MemberId), Vec<StoreWrite>, Instant),
    Commit((View, MemberId), Vec<StoreWrite>, Sender<CommitResult>),
}

/// Acknowledges some batches before it commits them.
struct Early {
    is_early: fn(&[StoreWrite]) -> bool,
    tasks: Option<Sender<Task>>,
    committing: Option<JoinHandle<Box<dyn Store>>>,
}

impl Early {
    fn new(store: Box<dyn Store>, is_early: fn(&[StoreWrite]) -> bool) -> std::io::Result<Self> {
        let (sender, tasks) = channel();
        let committing = thread::Builder::new()
            .name("late".to_owned())
            .spawn(move || commit_late(store, tasks))?;
        Ok(Self {
            is_early,
            tasks: Some(sender),
            committing: Some(committing),
        })
    }

    fn give(&self, task: Task) -> Result<(), StoreError> {
        let sent = self.tasks.as_ref().map(|tasks| tasks.send(task));
        sent.and_then(Result::ok).ok_or_else(ended)
    }

    /// Waits for the answer to a request.
    fn ask<T>(
        &self,
        task: impl FnOnce(Sender<Result<T, StoreError>>) -> Task,
    ) -> Result<T, StoreError> {
        let (reply, answer) = channel();
        self.give(task(reply))?;
        answer.recv().map_err(|_| ended())?
    }
}

fn ended() -> StoreError {
    StoreError::unavailable("the thread for late commits has ended")
}

fn commit_late(mut store: Box<dyn Store>, tasks: Receiver<Task>) -> Box<dyn Store> {
    for task in tasks {
        // The sender of a request with a reply channel waits for the answer.
        match task {
            Task::Reader(reply) => {
                let _ = reply.send(store.reader());
            }
            Task::Registry(reply) => {
                let _ = reply.send(store.registry());
            }
            Task::Commit((view, member), writes, reply) => {
                let _ = reply.send(store.commit(view, member, &writes));
                let _ = store.tidy();
            }
            Task::Late((view, member), writes, acknowledged) => {
                thread::sleep(LATE.saturating_sub(acknowledged.elapsed()));
                while let Err(error) = store.commit(view, member, &writes) {
                    // A cluster has changed its view in between, so that the store never does this commit.
                    if matches!(error.trouble, StoreTrouble::StaleView { .. }) {
                        break;
                    }
                    thread::sleep(LATE);
                }
                let _ = store.tidy();
            }
        }
    }
    store
}

impl Store for Early {
    fn reader(&mut self) -> ReaderResult {
        self.ask(Task::Reader)
    }

    fn registry(&mut self) -> RegistryResult {
        self.ask(Task::Registry)
    }

    fn commit(&mut self, view: View, member: MemberId, writes: &[StoreWrite]) -> CommitResult {
        let written = writes.to_vec();
        if (self.is_early)(writes) {
            self.give(Task::Late((view, member), written, Instant::now()))?;
            return Ok(vec![Written::Done; writes.len()]);
        }
        self.ask(|reply| Task::Commit((view, member), written, reply))
    }

    fn close(&mut self) -> Result<(), StoreError> {
        drop(self.tasks.take());
        match self.committing.take().map(JoinHandle::join) {
            Some(Ok(mut store)) => store.close(),
            _ => Err(StoreError::unavailable(
                "the thread for late commits failed",
            )),
        }
    }
}

/// Commits nothing after the server has received SIGTERM.
struct Forgetful {
    store: Box<dyn Store>,
    is_stopping: Arc<AtomicBool>,
}

impl Forgetful {
    fn new(store: Box<dyn Store>, runtime: &Handle) -> std::io::Result<Self> {
        let is_stopping = Arc::<AtomicBool>::default();
        let _entered = runtime.enter();
        let mut stop = signal(SignalKind::terminate())?;
        let noted = Arc::clone(&is_stopping);
        runtime.spawn(async move {
            stop.recv().await;
            noted.store(true, Ordering::Release);
        });
        Ok(Self { store, is_stopping })
    }
}

impl Store for Forgetful {
    fn reader(&mut self) -> Result<Box<dyn StoreReader>, StoreError> {
        self.store.reader()
    }

    fn commit(
        &mut self,
        view: View,
        member: MemberId,
        writes: &[StoreWrite],
    ) -> Result<Vec<Written>, StoreError> {
        if self.is_stopping.load(Ordering::Acquire) {
            return Ok(vec![Written::Done; writes.len()]);
        }
        self.store.commit(view, member, writes)
    }

    fn registry(&mut self) -> RegistryResult {
        self.store.registry()
    }

    fn tidy(&mut self) -> Result<(), StoreError> {
        self.store.tidy()
    }

    fn close(&mut self) -> Result<(), StoreError> {
        self.store.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_break_has_its_name() {
        for broken in Break::ALL {
            assert_eq!(Break::named(broken.name()), Some(broken));
        }
        assert_eq!(Break::named("nothing"), None);
    }

    #[test]
    fn only_a_marked_folder_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let refused = refuse_other_folders(folder.path()).unwrap_err();
        assert_eq!(refused.exit, Exit::DataFolder);
        assert!(refused.line.contains("tidewire start"), "{refused}");
        std::fs::write(folder.path().join(MARK), "").unwrap();
        assert!(refuse_other_folders(folder.path()).is_ok());
    }
}

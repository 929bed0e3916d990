//! Servers that are broken on purpose, so that the torture test can show that it finds what they lose.
//!
//! Only `tidewire torture-node` starts one, and only in a folder that the torture test has made. It says in its log, on its first
//! screen, in `/ready` and in its metrics that it loses what it acknowledges.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tidewire_core::store::{Store, StoreError, StoreReader, StoreWrite, Term, Written};
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::{Exit, Failure};
use crate::store::StoreKind;
use crate::store::remote::{OpenStore, Promise};
use crate::store::sqlite::Sync as SyncMode;

/// Lies beside the data of the torture test, and of nobody else.
pub(crate) const MARK: &str = "made-by-tidewire-torture";

/// How late a server commits that acknowledges first.
const LATE: Duration = Duration::from_millis(20);

/// What a server does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// Writes are acknowledged, and committed a little later.
    AckBeforeSync,
    /// Commits are not synced.
    SkipSync,
    /// What is under way at a stop is acknowledged and dropped.
    DropOnDrain,
}

impl Break {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::AckBeforeSync, Self::SkipSync, Self::DropOnDrain];

    /// As the command line has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AckBeforeSync => "ack-before-sync",
            Self::SkipSync => "skip-sync",
            Self::DropOnDrain => "drop-on-drain",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|broken| broken.name() == name)
    }

    /// Breaks how a store is opened.
    pub(crate) fn loosen(self, kind: &mut StoreKind) {
        if let (Self::SkipSync, StoreKind::Sqlite(options)) = (self, kind) {
            options.sync = SyncMode::Off;
        }
    }

    /// Breaks an open store.
    pub(crate) fn apply(self, open: OpenStore, runtime: &Handle) -> std::io::Result<OpenStore> {
        let store: Box<dyn Store> = match self {
            Self::SkipSync => open.store,
            Self::AckBeforeSync => Box::new(Early::new(open.store)?),
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

/// Lets a server start only where the torture test keeps its data.
///
/// # Errors
/// The folder was made by somebody else.
pub(crate) fn refuse_other_folders(folder: &Path) -> Result<(), Failure> {
    if folder.join(MARK).is_file() {
        return Ok(());
    }
    let line = format!(
        "torture-node is a part of `tidewire torture` and data folder {folder:?} was not made by that; run `tidewire start`"
    );
    Err(Failure::new(Exit::DataFolder, line))
}

/// Acknowledges before it commits.
struct Early {
    commits: Option<Sender<(Term, Vec<StoreWrite>)>>,
    committing: Option<JoinHandle<Box<dyn Store>>>,
    readers: Receiver<Box<dyn StoreReader>>,
}

impl Early {
    fn new(mut store: Box<dyn Store>) -> std::io::Result<Self> {
        let (commits, tasks) = channel::<(Term, Vec<StoreWrite>)>();
        let (given, readers) = channel();
        let reader = store.reader().map_err(std::io::Error::other)?;
        let _ = given.send(reader);
        let committing = thread::Builder::new()
            .name("late".to_owned())
            .spawn(move || {
                for (term, writes) in tasks {
                    thread::sleep(LATE);
                    while store.commit(term, &writes).is_err() {
                        thread::sleep(LATE);
                    }
                    let _ = store.tidy();
                }
                store
            })?;
        Ok(Self {
            commits: Some(commits),
            committing: Some(committing),
            readers,
        })
    }
}

impl Store for Early {
    /// There is one, for the one thread that reads.
    fn reader(&mut self) -> Result<Box<dyn StoreReader>, StoreError> {
        let gone = |_| StoreError::unavailable("a broken store has one reader");
        self.readers.try_recv().map_err(gone)
    }

    fn commit(&mut self, term: Term, writes: &[StoreWrite]) -> Result<Vec<Written>, StoreError> {
        if let Some(commits) = &self.commits {
            let _ = commits.send((term, writes.to_vec()));
        }
        Ok(vec![Written::Done; writes.len()])
    }

    fn close(&mut self) -> Result<(), StoreError> {
        drop(self.commits.take());
        match self.committing.take().map(JoinHandle::join) {
            Some(Ok(mut store)) => store.close(),
            _ => Err(StoreError::unavailable("the late commits have failed")),
        }
    }
}

/// Keeps nothing once the server is to stop.
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

    fn commit(&mut self, term: Term, writes: &[StoreWrite]) -> Result<Vec<Written>, StoreError> {
        if self.is_stopping.load(Ordering::Acquire) {
            return Ok(vec![Written::Done; writes.len()]);
        }
        self.store.commit(term, writes)
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

//! The sweep of histories: looks through the rows of `keep=store` histories again and again, and tells the engine of names with events
//! that are too old. The engine removes what it has forgotten itself; without the sweep it would never be read again.
//!
//! It works in steps of one page, on a thread and a reader of its own, so that no load waits for it and the engine is never given more than
//! a page of names at a time.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidewire_core::history::{HistoryRules, old_history, row_prefix};
use tidewire_core::store::{Loaded, StoreError, StoreReader};
use tidewire_core::text::Name;
use tidewire_core::time::WallTime;

use super::passes::{Passes, Stopped};

/// Rows of one step.
const PAGE_ROWS: usize = 256;
/// The pause after a page without old rows, and after one with some: the engine reads these names, and a commit removes their rows.
const PAGE_PAUSE: Duration = Duration::from_millis(5);
const FOUND_PAUSE: Duration = Duration::from_millis(50);
/// The pause after the store could not be read.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Takes names whose histories may be too old to the engine; called from the sweep's thread.
pub type OldHistories = Box<dyn Fn(Vec<Name>) + Send>;

/// A sweep that runs until it is dropped.
#[derive(Debug)]
pub struct HistorySweep {
    /// They end when this is gone.
    _passes: Passes,
}

impl HistorySweep {
    /// Begins with a pass, and begins each further one `interval` after the last has ended.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub fn start(
        reader: Box<dyn StoreReader>,
        rules: HistoryRules,
        interval: Duration,
        tell: OldHistories,
    ) -> std::io::Result<Self> {
        let passes = Passes::start("history-sweep", |stopped| {
            let mut worker = Worker {
                reader,
                rules,
                interval,
                tell,
                stopped,
            };
            move || worker.pass()
        })?;
        Ok(Self { _passes: passes })
    }
}

struct Worker {
    reader: Box<dyn StoreReader>,
    rules: HistoryRules,
    interval: Duration,
    tell: OldHistories,
    stopped: Stopped,
}

/// What a step has found.
struct Page {
    old: BTreeSet<Name>,
    last: Option<Name>,
    has_more: bool,
}

impl Worker {
    /// Goes through all rows once, then waits for the next pass. None when it is to end.
    fn pass(&mut self) -> Option<()> {
        let prefix = row_prefix();
        let mut after = None;
        let mut has_failed = false;
        loop {
            match self.page(&prefix, after.as_ref()) {
                Ok(page) => {
                    has_failed = false;
                    let pause = if page.old.is_empty() {
                        PAGE_PAUSE
                    } else {
                        (self.tell)(page.old.into_iter().collect());
                        FOUND_PAUSE
                    };
                    if !page.has_more {
                        break;
                    }
                    after = page.last;
                    self.stopped.pause(pause)?;
                }
                Err(error) => {
                    if !std::mem::replace(&mut has_failed, true) {
                        tracing::warn!(%error, "the sweep of histories can't read the store and tries again");
                    }
                    self.stopped.pause(RETRY_PAUSE)?;
                }
            }
        }
        self.stopped.pause(self.interval)
    }

    fn page(&mut self, prefix: &str, after: Option<&Name>) -> Result<Page, StoreError> {
        let (rules, now) = (&self.rules, now());
        let (mut old, mut last) = (BTreeSet::new(), None);
        let has_more = self
            .reader
            .scan(prefix, after, PAGE_ROWS, &mut |name, loaded| {
                // The scrub and the load report what is corrupt.
                if let Loaded::Found(record) = &loaded {
                    old.extend(old_history(&name, record, rules, now));
                }
                last = Some(name);
            })?;
        Ok(Page {
            old,
            last,
            has_more,
        })
    }
}

fn now() -> WallTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    WallTime(since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }))
}

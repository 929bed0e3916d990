//! The history sweep: repeatedly reads the rows of `keep=store` histories. If a name has events that are too old, the sweep reports it
//! to the engine. The engine itself removes the rows of events that it drops; without the sweep, it would never read the rows of an
//! unused name again.
//!
//! The sweep reads one page at a time on its own thread and reader. So no load waits for it, and the engine never receives more than a
//! page of names at once.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidewire_core::history::{old_history, row_prefix};
use tidewire_core::history_rules::HistoryRules;
use tidewire_core::store::{Loaded, StoreError, StoreReader};
use tidewire_core::text::Name;
use tidewire_core::time::WallTime;

use super::passes::{Passes, Stopped};

/// Rows of one page.
const PAGE_ROWS: usize = 256;
/// The pause after a page without old rows.
const PAGE_PAUSE: Duration = Duration::from_millis(5);
/// The pause after a page with old rows, in which the engine reads their names and a commit removes the rows.
const FOUND_PAUSE: Duration = Duration::from_millis(50);
/// The pause after a failed read.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Sends names whose histories may be too old to the engine; called from the sweep's thread.
pub type OldHistories = Box<dyn Fn(Vec<Name>) + Send>;

/// A sweep that runs until it is dropped.
#[derive(Debug)]
pub struct HistorySweep {
    /// The passes end when this is dropped.
    _passes: Passes,
}

impl HistorySweep {
    /// Starts the first pass at once, and each further one `interval` after the end of the last.
    ///
    /// # Errors
    /// The system can't start a thread.
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

/// The result of reading one page.
struct Page {
    old: BTreeSet<Name>,
    last: Option<Name>,
    has_more: bool,
}

impl Worker {
    /// Reads all rows once, then waits for the next pass. `None` if the thread must end.
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
                        tracing::warn!(%error, "the history sweep can't read the store and tries again");
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
                // The scrub and loads report corrupt rows.
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

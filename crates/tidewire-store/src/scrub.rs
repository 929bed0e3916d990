//! The scrub: repeatedly reads all records of a store while the server runs. So the operator learns of damage before a client
//! requests a damaged record, and while backups from before the damage still exist.
//!
//! The scrub has its own thread and reader, so no load waits for it, and its bytes per second are limited.

use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tidewire_core::store::{Loaded, StoreError, StoreReader};
use tidewire_core::text::Name;

use super::passes::{Passes, Stopped};
use super::walk::{Page, Walk};

/// The pause after a failed read.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of damaged records that one log line names.
const NAMES_LOGGED_MAX: usize = 10;

/// How often a store is scrubbed, and how fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubOptions {
    /// Time from the start of one pass to the start of the next.
    pub interval: Duration,
    /// Bytes of names and values that the scrub reads in a second.
    pub bytes_per_second: u64,
}

/// The results of scrubs, for metrics and `/ready`. The scrubs of all stores add up in one value.
#[derive(Clone, Debug, Default)]
pub struct ScrubHealth {
    /// Records read in all passes.
    pub records: Counter,
    /// Complete passes.
    pub passes: Counter,
    /// Damaged records: the count of the last pass, or of the running pass once it has found more.
    pub damaged: Gauge,
}

/// A scrub that runs until it is dropped or stopped.
#[derive(Debug)]
pub struct Scrub {
    /// The passes end when this is dropped.
    _passes: Passes,
}

impl Scrub {
    /// Starts the first pass at once.
    ///
    /// # Errors
    /// The system can't start a thread.
    pub fn start(
        reader: Box<dyn StoreReader>,
        options: ScrubOptions,
        health: ScrubHealth,
    ) -> std::io::Result<Self> {
        let passes = Passes::start("store-scrub", |stopped| {
            let mut worker = Worker {
                reader,
                options,
                health,
                damaged: 0,
                stopped,
            };
            move || worker.pass()
        })?;
        Ok(Self { _passes: passes })
    }
}

/// The state of the thread.
struct Worker {
    reader: Box<dyn StoreReader>,
    options: ScrubOptions,
    health: ScrubHealth,
    /// This store's share of the gauge `damaged`.
    damaged: i64,
    stopped: Stopped,
}

impl Worker {
    /// Reads all records once, then waits until the next pass is due. `None` if the thread must end.
    fn pass(&mut self) -> Option<()> {
        let began = Instant::now();
        let mut walk = Walk::new();
        let mut found = Found::default();
        let mut has_failed = false;
        loop {
            match self.page(&mut walk, &mut found) {
                Ok(page) => {
                    has_failed = false;
                    if !page.has_more {
                        break;
                    }
                    self.stopped
                        .pause(time_of(page.bytes, self.options.bytes_per_second))?;
                }
                Err(error) => {
                    if !std::mem::replace(&mut has_failed, true) {
                        tracing::warn!(%error, "the scrub can't read the store and tries again");
                    }
                    self.stopped.pause(RETRY_PAUSE)?;
                }
            }
        }
        self.health.passes.inc();
        // Subtracts the records that were repaired since the last pass.
        self.health.damaged.dec_by(self.damaged - found.count);
        self.damaged = found.count;
        if found.count > 0 {
            tracing::error!(
                count = found.count,
                records = ?found.names,
                "stored records do not pass their checksums and are not served; restore them from a backup"
            );
        }
        self.stopped
            .pause(self.options.interval.saturating_sub(began.elapsed()))
    }

    fn page(&mut self, walk: &mut Walk, found: &mut Found) -> Result<Page, StoreError> {
        let (health, damaged) = (&self.health, &mut self.damaged);
        walk.next_page(&mut *self.reader, &mut |name, loaded| {
            health.records.inc();
            if loaded != Loaded::Corrupt {
                return;
            }
            found.count += 1;
            if found.names.len() < NAMES_LOGGED_MAX {
                found.names.push(name.clone());
            }
            if found.count > *damaged {
                health.damaged.inc();
                *damaged = found.count;
            }
        })
    }
}

/// The damaged records that a pass has found.
#[derive(Default)]
struct Found {
    count: i64,
    /// The names of the first few.
    names: Vec<Name>,
}

/// The time that reading `bytes` must take at this rate.
fn time_of(bytes: usize, bytes_per_second: u64) -> Duration {
    let nanoseconds = bytes as u128 * 1_000_000_000 / u128::from(bytes_per_second.max(1));
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};

    use tidewire_core::store::{
        Expected, Incarnation, Store, StoreChange, StoreWrite, StoredRecord, Version,
    };
    use tidewire_core::text::Payload;

    use super::*;
    use crate::memory::MemoryDisk;

    const DEADLINE: Duration = Duration::from_secs(30);

    /// A store in which every hundredth record is damaged, and whose first `failures` reads fail.
    struct Faulty {
        inner: Box<dyn StoreReader>,
        failures: u32,
        pages: Sender<usize>,
    }

    impl StoreReader for Faulty {
        fn load(&mut self, names: &[Name]) -> Result<Vec<Loaded>, StoreError> {
            self.inner.load(names)
        }

        fn scan(
            &mut self,
            prefix: &str,
            after: Option<&Name>,
            count_max: usize,
            visit: &mut dyn FnMut(Name, Loaded),
        ) -> Result<bool, StoreError> {
            if self.failures > 0 {
                self.failures -= 1;
                return Err(StoreError::unavailable("planted"));
            }
            let mut count = 0;
            let more = self
                .inner
                .scan(prefix, after, count_max, &mut |name, loaded| {
                    count += 1;
                    let is_damaged = name.ends_with("00");
                    visit(name, if is_damaged { Loaded::Corrupt } else { loaded });
                });
            let _ = self.pages.send(count);
            more
        }
    }

    fn faulty(count: usize) -> (Box<Faulty>, Receiver<usize>) {
        let (mut store, opened) = MemoryDisk::default().open(None);
        let writes: Vec<_> = (0..count)
            .map(|i| StoreWrite {
                writer: None,
                name: Name::from(format!("{i:06}").as_str()),
                expected: Expected::Missing,
                change: StoreChange::Put(StoredRecord {
                    incarnation: Incarnation(1),
                    version: Version(1),
                    data: Payload::from(format!("[\"{}\"]", "x".repeat(1_000))),
                    write_keys: None,
                }),
            })
            .collect();
        store
            .commit(opened.view(), opened.member(), &writes)
            .expect("committed");
        let (pages, seen) = mpsc::channel();
        let inner = store.reader().expect("a reader");
        let reader = Faulty {
            inner,
            failures: 0,
            pages,
        };
        (Box::new(reader), seen)
    }

    fn options(interval: Duration, bytes_per_second: u64) -> ScrubOptions {
        ScrubOptions {
            interval,
            bytes_per_second,
        }
    }

    fn wait_until(is_done: impl Fn() -> bool) {
        let start = Instant::now();
        while !is_done() {
            assert!(start.elapsed() < DEADLINE, "it did not happen in time");
            std::thread::yield_now();
        }
    }

    #[test]
    fn every_record_is_read_in_each_pass_and_damage_is_counted_once() {
        let (reader, _pages) = faulty(1_000);
        let health = ScrubHealth::default();
        let scrub = Scrub::start(reader, options(Duration::ZERO, u64::MAX), health.clone());
        wait_until(|| health.passes.get() >= 3);
        drop(scrub);
        let passes = health.passes.get();
        let read = health.records.get();
        assert!(
            (passes * 1_000..=(passes + 1) * 1_000).contains(&read),
            "{read} in {passes}"
        );
        assert_eq!(health.damaged.get(), 10);
    }

    #[test]
    fn a_pass_waits_for_its_time_and_a_stop_does_not() {
        let (reader, pages) = faulty(1_000);
        let health = ScrubHealth::default();
        // The first page has 16 records of 1 KB, so the next one follows only after 16 seconds.
        let start = Instant::now();
        let scrub = Scrub::start(reader, options(Duration::ZERO, 1_000), health.clone());
        assert_eq!(pages.recv_timeout(DEADLINE), Ok(16));
        let waited = pages.recv_timeout(Duration::from_millis(200));
        assert_eq!(waited, Err(RecvTimeoutError::Timeout));
        drop(scrub);
        assert!(start.elapsed() < Duration::from_secs(10), "the stop waited");
        assert_eq!(health.records.get(), 16);
    }

    #[test]
    fn a_store_that_can_not_be_read_is_tried_again_later() {
        let (mut reader, pages) = faulty(100);
        reader.failures = 1;
        let scrub = Scrub::start(reader, options(DEADLINE, u64::MAX), ScrubHealth::default());
        let waited = pages.recv_timeout(Duration::from_millis(200));
        assert_eq!(waited, Err(RecvTimeoutError::Timeout));
        assert_eq!(pages.recv_timeout(DEADLINE), Ok(16));
        drop(scrub);
    }

    #[test]
    fn time_follows_bytes() {
        assert_eq!(time_of(0, 1), Duration::ZERO);
        assert_eq!(time_of(1 << 20, 4 << 20), Duration::from_millis(250));
        assert_eq!(time_of(usize::MAX, 1), Duration::from_nanos(u64::MAX));
    }
}

//! The stop of a node, in phases that share one deadline.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidewire_config::stores::COUNT_MAX;
use tidewire_http::status::Stage;
use tidewire_shard::handle::{Closed, ShardHandle};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::Node;

/// How often it is looked whether calls still run.
const CALLS_INTERVAL: Duration = Duration::from_millis(20);
/// Connections that are closed in a second at most. Each comes back at once with a handshake and a login, and the next
/// server has to keep up with them.
const CLOSES_PER_SECOND: u64 = 10_000;

/// How long the last spans may take to the collector of traces.
const EXPORT_TIME_MAX: Duration = Duration::from_secs(2);

/// What a stop cut off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stopped {
    /// Calls without an answer.
    pub unanswered_calls: u64,
    /// Records that were shown to somebody and are not on disk.
    pub uncommitted_records: u64,
    /// Connections that were closed before they had read everything.
    pub cut_connections: u64,
    /// Whether the store was closed as it should be.
    pub has_unclean_store: bool,
}

impl Stopped {
    /// Whether nothing was cut off.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        *self == Self::default()
    }
}

/// The parts of the time that a stop may take.
#[derive(Clone, Copy, Debug)]
struct Deadlines {
    /// Until then load balancers go elsewhere.
    leaving: Instant,
    /// Until then running calls are waited for.
    calls: Instant,
    /// Until then what is under way is committed, acknowledged and sent.
    quiet: Instant,
    /// Until then connections are closed.
    end: Instant,
}

impl Deadlines {
    fn new(start: Instant, delay: Duration, whole: Duration) -> Self {
        let leaving = start + delay.min(whole / 4);
        Self {
            leaving,
            calls: leaving.max(start + whole / 2),
            quiet: start + whole * 3 / 4,
            end: start + whole,
        }
    }
}

impl Node {
    /// Stops in the order in which nobody loses anything: say no to load balancers, stop accepting, let running calls
    /// end, stop reading, commit and acknowledge, send what waits, close, and close the store.
    pub fn stop(mut self) -> Stopped {
        let deadlines = Deadlines::new(Instant::now(), self.drain_delay, self.drain_timeout);
        let accepting = std::mem::take(&mut self.accepting);
        let shards = &self.shards;
        let handles = shards.handles();
        let mut stopped = Stopped::default();
        let status = &self.front.status;
        status.set_stage(Stage::Leaving);
        self.runtime.block_on(async {
            if handles
                .iter()
                .any(|handle| handle.stats().connections.load(Ordering::Relaxed) > 0)
            {
                tracing::info!("stopping; a second signal ends at once");
            }
            tokio::time::sleep_until(deadlines.leaving).await;
            status.set_stage(Stage::Draining);
            let _ = self.stop_accepting.send(true);
            for task in accepting {
                let _ = task.await;
            }
            handles.iter().for_each(ShardHandle::refuse_new);
            stopped.unanswered_calls = calls_ended(handles, deadlines.calls).await;
            handles.iter().for_each(ShardHandle::stop_reading);
            if timeout_at(deadlines.quiet, shards.quiet()).await.is_err() {
                stopped.uncommitted_records =
                    sum(handles, |handle| &handle.stats().engine.dirty_records);
            }
            stopped.cut_connections = close_all(handles, deadlines.end).await;
        });
        // What counts is what was there when waiting for it ended.
        let dirty: [u64; COUNT_MAX + 1] = std::array::from_fn(|store| {
            let is_cut_off = stopped.uncommitted_records > 0;
            let of_store = |handle: &ShardHandle| {
                handle.stats().engine.dirty_by_store[store].load(Ordering::Relaxed)
            };
            if is_cut_off {
                handles.iter().map(of_store).sum()
            } else {
                0
            }
        });
        if let Err(error) = self.shards.stop() {
            tracing::error!(%error, "a shard ended with an error");
        }
        if let Some(exporting) = self.exporting.take() {
            // Spans are for people to look at; no stop waits long for a collector that is down.
            let exported = async { timeout(EXPORT_TIME_MAX, exporting).await };
            if self.runtime.block_on(exported).is_err() {
                tracing::warn!("the last spans were not taken by the collector in time");
            }
        }
        if let Err(error) = self.stores.stop(|store| dirty[store.index()]) {
            tracing::error!(%error, "a store was not closed cleanly");
            stopped.has_unclean_store = true;
        }
        drop(self.folder.take());
        self.runtime.shutdown_background();
        stopped
    }
}

fn sum(handles: &[ShardHandle], number: impl Fn(&ShardHandle) -> &AtomicU64) -> u64 {
    handles
        .iter()
        .map(|handle| number(handle).load(Ordering::Relaxed))
        .sum()
}

/// Waits for the end of all running calls and says how many still run at the deadline. Two looks in a row must find
/// none: the shards take note of the stop first, and a call may be on its way between two of them.
async fn calls_ended(handles: &[ShardHandle], deadline: Instant) -> u64 {
    let mut was_idle = false;
    loop {
        let running = sum(handles, |handle| &handle.stats().engine.calls);
        if (running == 0 && was_idle) || Instant::now() >= deadline {
            return running;
        }
        was_idle = running == 0;
        sleep(CALLS_INTERVAL).await;
    }
}

/// Closes all connections, no faster than clients can be let in again elsewhere.
async fn close_all(handles: &[ShardHandle], end: Instant) -> u64 {
    let connections = sum(handles, |handle| &handle.stats().connections);
    let left = end.saturating_duration_since(Instant::now());
    let spread = Duration::from_millis(connections * 1_000 / CLOSES_PER_SECOND).min(left / 2);
    let patience = left - spread;
    let closing: Vec<_> = handles
        .iter()
        .map(|handle| {
            let handle = handle.clone();
            tokio::spawn(async move { handle.close_all(spread, patience).await })
        })
        .collect();
    let mut cut = 0;
    for shard in closing {
        let closed: Closed = shard.await.unwrap_or_default();
        cut += closed.cut_count;
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_phases_share_the_deadline() {
        let start = Instant::now();
        let seconds = Duration::from_secs;
        let check = |delay, whole, expected: [u64; 4]| {
            let found = Deadlines::new(start, seconds(delay), seconds(whole));
            let found = [found.leaving, found.calls, found.quiet, found.end];
            assert_eq!(
                found,
                expected.map(|after| start + seconds(after)),
                "{delay} {whole}"
            );
        };
        check(0, 20, [0, 10, 15, 20]);
        check(5, 20, [5, 10, 15, 20]);
        check(60, 20, [5, 10, 15, 20]);
    }
}

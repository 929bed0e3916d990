//! The stop of a node, in phases that share one deadline.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidewire_config::stores::COUNT_MAX;
use tidewire_http::status::Stage;
use tidewire_shard::handle::{Closed, ShardHandle};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::Node;

/// How often the node checks whether calls still run.
const CALLS_INTERVAL: Duration = Duration::from_millis(20);
/// The most connections that the node closes per second. Each client reconnects at once with a handshake and a login, and the
/// next server must keep up.
const CLOSES_PER_SECOND: u64 = 10_000;

/// The longest time that the node waits for the trace collector to take the last spans.
const EXPORT_TIME_MAX: Duration = Duration::from_secs(2);

/// The work that a stop cut off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stopped {
    /// RPC calls that got no answer.
    pub unanswered_calls: u64,
    /// Records that clients have seen but that are not on disk.
    pub uncommitted_records: u64,
    /// Connections that were closed before their clients had read everything.
    pub cut_connections: u64,
    /// Whether a store was not closed cleanly.
    pub has_unclean_store: bool,
}

impl Stopped {
    /// Whether the stop cut nothing off.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        *self == Self::default()
    }
}

/// When each phase of a stop ends.
#[derive(Clone, Copy, Debug)]
struct Deadlines {
    /// Load balancers have until then to choose another node.
    leaving: Instant,
    /// Running calls have until then to end.
    calls: Instant,
    /// Shards have until then to commit, acknowledge and send the pending messages.
    quiet: Instant,
    /// All connections are closed by then.
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
    /// Stops in an order that loses nothing. The node reports itself unready to load balancers, stops accepting, waits for
    /// running calls, stops reading, commits and acknowledges, sends the queued output, closes the connections and then the stores.
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
                tracing::info!("stopping; a second signal ends the process at once");
            }
            tokio::time::sleep_until(deadlines.leaving).await;
            if let Some(cluster) = &self.cluster {
                cluster.hand_over(handles, deadlines.calls).await;
            }
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
        // Read before the shards end: the counts at the end of the wait decide whether a store lost writes.
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
        if let Some(cluster) = self.cluster.take() {
            let left = cluster.leave(handles, deadlines.end);
            self.runtime.block_on(left);
            cluster.stop();
        }
        if let Err(error) = self.shards.stop() {
            tracing::error!(%error, "a shard ended with an error");
        }
        if let Some(exporting) = self.exporting.take() {
            // Spans are only diagnostics, so a stop does not wait long for a collector that is down.
            let exported = async { timeout(EXPORT_TIME_MAX, exporting).await };
            if self.runtime.block_on(exported).is_err() {
                tracing::warn!(
                    "the trace collector did not take the last spans in time; they are lost"
                );
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

/// Waits for the end of all calls that this node owns or that its clients have made, and returns how many still run at the deadline. Two checks in a row must find
/// no call: shards learn of the stop at different times, and a call may be in transit between two shards.
async fn calls_ended(handles: &[ShardHandle], deadline: Instant) -> u64 {
    let mut was_idle = false;
    loop {
        let owned = sum(handles, |handle| &handle.stats().engine.calls);
        let elsewhere = sum(handles, |handle| &handle.stats().engine.awaited_calls);
        let running = owned + elsewhere;
        if (running == 0 && was_idle) || Instant::now() >= deadline {
            return running;
        }
        was_idle = running == 0;
        sleep(CALLS_INTERVAL).await;
    }
}

/// Closes all connections, no faster than another node can admit the clients. Returns how many connections it cut off.
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

//! The end of a turn in a loop: unsent bytes move from the turn logs into outboxes, and the connections that crossed a mark, or would take
//! more memory than the node has, are found.

use super::EventLoop;
use crate::connection::Key;
use crate::turn_log::TurnLogs;

/// Marks for the bytes that wait for one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutboxMarks {
    /// Above it the connection is closed. The bytes that a watched connection had when its owner learned that it lags
    /// do not count.
    pub bytes_max: usize,
    /// Above it a watched connection lags.
    pub lagging_bytes: usize,
    /// At or below it, the connection has drained. Not above `lagging_bytes`.
    pub drained_bytes: usize,
}

impl OutboxMarks {
    /// A limit alone, without lagging.
    #[must_use]
    pub const fn limit(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            lagging_bytes: usize::MAX,
            drained_bytes: 0,
        }
    }
}

/// Connections that crossed a mark in this turn.
#[derive(Debug, Default)]
pub struct Settled {
    /// Connections above the limit. Their owner removes them.
    pub cut: Vec<Key>,
    /// Watched connections that lag since this turn.
    pub lagging: Vec<Key>,
    /// Connections that lagged or were awaited, and have drained.
    pub drained: Vec<Key>,
}

impl<C> EventLoop<C> {
    /// Connections to close before [`EventLoop::settle`], the largest first, with the bytes of each that would wait after it. All others
    /// together then stay within [`crate::memory_budget::MemoryBudget::urgent_bytes`]. A connection with fewer than `least` bytes is
    /// never among them.
    #[must_use]
    pub fn outgrowing(&self, logs: &TurnLogs, least: usize) -> Vec<(usize, Key)> {
        // In most turns no connection is listed. The budget is memory that all shards write.
        if self.listed.is_empty() {
            return Vec::new();
        }
        // A turn reads megabytes, and each of a hundred readers that do not read may get all of them. Marks and the owner's own checks
        // see outboxes only after the copy, when the memory is already in use. The ending logs are part of the used memory until then.
        let budget = self.share.budget();
        let ending = logs.ending_bytes();
        let held = budget.used_without_spare().saturating_sub(ending);
        let room = budget.urgent_bytes().saturating_sub(held);
        if ending.saturating_mul(self.listed.len()) <= room {
            return Vec::new();
        }
        let mut growth = 0;
        let mut outgrowing = Vec::new();
        for &key in &self.listed {
            let connection = self.connections.get(key);
            let Some(outbox) = connection.and_then(|connection| connection.outbox.as_deref())
            else {
                continue;
            };
            let added = outbox.ending_bytes(logs);
            growth += added;
            let bytes = outbox.own_bytes() + added;
            if added > 0 && bytes >= least {
                outgrowing.push((bytes, key));
            }
        }
        let mut excess = growth.saturating_sub(room);
        outgrowing.sort_unstable_by(|one, other| other.cmp(one));
        let needed = outgrowing.iter().take_while(|(bytes, _)| {
            let is_needed = excess > 0;
            excess = excess.saturating_sub(*bytes);
            is_needed
        });
        let count = needed.count();
        outgrowing.truncate(count);
        outgrowing
    }

    /// Ends a turn after its sends. Copies the rest of the previous turn into the outboxes, and appends to `settled`
    /// the connections that crossed a mark; connections above their limit are to be closed. It reports the memory of
    /// the connections to the budget. While all shards together exceed the budget, their owners close the largest
    /// holders, see [`EventLoop::holders`].
    pub fn settle(&mut self, logs: &mut TurnLogs, marks: &OutboxMarks, settled: &mut Settled) {
        // An outbox may refer to ranges of the previous turn's log. So every listed outbox copies them before
        // `logs.release` frees that turn. All checks of a connection use the bytes that waited before the copy, so it
        // is never reported as drained and lagging at once. A watched connection that just started to lag is forgiven
        // the bytes that it has collected so far, because its owner could not react before. It is cut off only for
        // bytes that arrive although the owner skips it.
        let mut outbox_bytes = 0;
        let connections = &mut self.connections;
        self.listed.retain(|&key| {
            let Some(connection) = connections.get_mut(key) else {
                return false;
            };
            let flags = &mut connection.flags;
            let waiting = connection
                .outbox
                .as_ref()
                .map_or(0, |outbox| outbox.bytes());
            if (flags.lagging || flags.awaited) && waiting <= marks.drained_bytes {
                (flags.lagging, flags.just_lagging, flags.awaited) = (false, false, false);
                settled.drained.push(key);
            }
            let Some(outbox) = &mut connection.outbox else {
                flags.listed = false;
                return false;
            };
            outbox.settle(logs);
            outbox_bytes += outbox.own_bytes();
            // Bytes that the turn had collected before the owner learned of the lag come with the next turn, and do
            // not count either.
            if std::mem::take(&mut flags.just_lagging) {
                outbox.forgive();
            }
            if flags.watched && !flags.lagging && waiting > marks.lagging_bytes {
                (flags.lagging, flags.just_lagging) = (true, true);
                outbox.forgive();
                settled.lagging.push(key);
            }
            if outbox.counted_bytes() > marks.bytes_max {
                settled.cut.push(key);
            }
            true
        });
        logs.release();
        self.outbox_bytes = outbox_bytes;
        let held = outbox_bytes + self.inbound_bytes;
        self.share.report(held, 0);
    }
}

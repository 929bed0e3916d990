//! An hour of history of the figures, which the page plots. The server keeps it, so a page that opens later, and every page, shows the
//! same past.
//!
//! A task takes a sample each second. Five minutes are kept in steps of a second and an hour in steps of ten. That is a fixed number of
//! bytes ([`BYTES`]), which counts in the memory budget from the start.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hyper::StatusCode;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tidewire_auth::jwt;
use tidewire_core::latency::{LATENCIES, LatencyCounts};
use tidewire_net::memory_budget::{MemoryBudget, Share};
use tidewire_shard::stats::TURN_TIMES;
use tokio::time::{MissedTickBehavior, interval};

use super::{Outcome, Page, PageRequest, parameter, shown};
use crate::admin::api::invalid;
use crate::metrics::ShardNumbers;
use crate::metrics::process::resident_bytes;

/// Time between two samples.
const STEP: Duration = Duration::from_secs(1);
/// Steps that are kept one by one: five minutes.
const FINE_COUNT: usize = 300;
/// Steps in a coarse point.
const COARSE_STEPS: u32 = 10;
/// Coarse points that are kept: an hour.
const COARSE_COUNT: usize = 360;
/// Bytes of the history when it is full, which its buffers have from the start.
pub(super) const BYTES: usize = (FINE_COUNT + COARSE_COUNT) * size_of::<Point>();

/// The values of a point in their order. Rates are per second and times are seconds.
const NAMES: [&str; 15] = [
    "connections",
    "messagesIn",
    "deliveries",
    "bytesIn",
    "bytesOut",
    "writes",
    "turnMedian",
    "turn99",
    "deliveryMedian",
    "delivery99",
    "acknowledgementMedian",
    "acknowledgement99",
    "residentBytes",
    "outboxBytes",
    "dirtyRecords",
];

/// The counters and gauges at one time.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    /// Milliseconds since 1970.
    at: u64,
    /// Time since the start of the history. Unlike the wall clock it never steps.
    elapsed: Duration,
    connections: u64,
    messages_in: u64,
    deliveries: u64,
    bytes_in: u64,
    bytes_out: u64,
    writes: u64,
    turns: [u64; TURN_TIMES.len() + 1],
    delivery: LatencyCounts,
    acknowledgement: LatencyCounts,
    resident_bytes: u64,
    outbox_bytes: u64,
    dirty_records: u64,
}

/// The figures of one interval. A value that does not exist, such as the latency of no deliveries, is not a number.
#[derive(Clone, Copy, Debug)]
struct Point {
    /// The end of the interval in milliseconds since 1970.
    at: u64,
    values: [f64; NAMES.len()],
}

/// The history. See the head of this file.
#[derive(Debug)]
pub(super) struct History {
    started: Instant,
    kept: Mutex<Kept>,
    /// The memory that the history reports to the budget.
    _memory: Share,
}

#[derive(Debug)]
struct Kept {
    fine: VecDeque<Point>,
    coarse: VecDeque<Point>,
    last: Sample,
    /// The sample at the start of the next coarse point.
    last_coarse: Sample,
    steps: u32,
}

impl History {
    pub(super) fn new(budget: &MemoryBudget, numbers: &ShardNumbers) -> Self {
        let mut memory = budget.share();
        memory.report(BYTES, 0);
        let started = Instant::now();
        Self {
            started,
            kept: Mutex::new(Kept::new(sample(numbers, started))),
            _memory: memory,
        }
    }

    /// Takes a sample each second. Never ends.
    pub(super) async fn record(&self, numbers: &ShardNumbers) {
        let mut ticks = interval(STEP);
        // After a pause of the process the next point covers all of it; samples in quick succession would have no meaning.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        loop {
            ticks.tick().await;
            let sample = sample(numbers, self.started);
            self.kept.lock().add(sample);
        }
    }

    fn after(&self, at: u64) -> Value {
        let kept = self.kept.lock();
        let points = kept.points().filter(|point| point.at > at);
        let rows = points.map(|point| {
            let values = point.values.iter().map(|value| Value::from(*value));
            std::iter::once(Value::from(point.at))
                .chain(values)
                .collect::<Value>()
        });
        json!({ "names": NAMES, "points": rows.collect::<Vec<_>>() })
    }
}

impl Kept {
    fn new(first: Sample) -> Self {
        Self {
            fine: VecDeque::with_capacity(FINE_COUNT),
            coarse: VecDeque::with_capacity(COARSE_COUNT),
            last: first,
            last_coarse: first,
            steps: 0,
        }
    }

    fn add(&mut self, mut sample: Sample) {
        // The wall clock may be set back. Points are in the order of their times, and a page asks for those after its newest one.
        sample.at = sample.at.max(self.last.at + 1);
        push(&mut self.fine, FINE_COUNT, point(&self.last, &sample));
        self.last = sample;
        self.steps += 1;
        if self.steps == COARSE_STEPS {
            self.steps = 0;
            let coarse = point(&self.last_coarse, &sample);
            push(&mut self.coarse, COARSE_COUNT, coarse);
            self.last_coarse = sample;
        }
    }

    /// The coarse points before the first fine one, then the fine ones.
    fn points(&self) -> impl Iterator<Item = &Point> {
        let first = self.fine.front().map_or(u64::MAX, |point| point.at);
        let coarse = self.coarse.iter().take_while(move |point| point.at < first);
        coarse.chain(&self.fine)
    }
}

fn push(points: &mut VecDeque<Point>, count_max: usize, point: Point) {
    if points.len() == count_max {
        points.pop_front();
    }
    points.push_back(point);
}

/// Reads counters that the shards and stores maintain anyway.
fn sample(numbers: &ShardNumbers, started: Instant) -> Sample {
    let latencies = numbers.latencies();
    Sample {
        at: jwt::now().0,
        elapsed: started.elapsed(),
        connections: numbers.sum(|stats| &stats.connections),
        messages_in: numbers.messages_in(),
        deliveries: numbers.sum(|stats| &stats.deliveries),
        bytes_in: numbers.sum(|stats| &stats.bytes_in),
        bytes_out: numbers.sum(|stats| &stats.bytes_out),
        writes: numbers.store_sum(|store| store.write_count.load(Ordering::Relaxed)),
        turns: numbers.turns_by_time(),
        delivery: latencies.delivery,
        acknowledgement: latencies.acknowledgement,
        resident_bytes: resident_bytes().unwrap_or(0),
        outbox_bytes: numbers.sum(|stats| &stats.outbox_bytes),
        dirty_records: numbers.sum(|stats| &stats.engine.dirty_records),
    }
}

fn point(before: &Sample, after: &Sample) -> Point {
    let elapsed = after.elapsed.saturating_sub(before.elapsed);
    let seconds = elapsed.as_secs_f64().max(0.001);
    let rate =
        |number: fn(&Sample) -> u64| number(after).saturating_sub(number(before)) as f64 / seconds;
    let turn = |share| percentile(&TURN_TIMES, &before.turns, &after.turns, share);
    let delivery = |share| percentile(&LATENCIES, &before.delivery, &after.delivery, share);
    let acknowledgement = |share| {
        let (before, after) = (&before.acknowledgement, &after.acknowledgement);
        percentile(&LATENCIES, before, after, share)
    };
    Point {
        at: after.at,
        values: [
            after.connections as f64,
            rate(|sample| sample.messages_in),
            rate(|sample| sample.deliveries),
            rate(|sample| sample.bytes_in),
            rate(|sample| sample.bytes_out),
            rate(|sample| sample.writes),
            turn(0.5),
            turn(0.99),
            delivery(0.5),
            delivery(0.99),
            acknowledgement(0.5),
            acknowledgement(0.99),
            after.resident_bytes as f64,
            after.outbox_bytes as f64,
            after.dirty_records as f64,
        ],
    }
}

/// The percentile `share` of what a histogram counted between two samples, in seconds: its place within a bucket is interpolated. Not a
/// number if nothing was counted. Above the last bound it is that bound.
fn percentile(bounds: &[Duration], before: &[u64], after: &[u64], share: f64) -> f64 {
    let counts = after.iter().zip(before);
    let counts: Vec<u64> = counts
        .map(|(after, before)| after.saturating_sub(*before))
        .collect();
    let total: u64 = counts.iter().sum();
    if total == 0 {
        return f64::NAN;
    }
    let wanted = total as f64 * share;
    let mut seen = 0.0;
    let mut low = 0.0;
    for (bound, count) in bounds.iter().zip(&counts) {
        let (high, count) = (bound.as_secs_f64(), *count as f64);
        if count > 0.0 && seen + count >= wanted {
            return low + (high - low) * (wanted - seen) / count;
        }
        seen += count;
        low = high;
    }
    low
}

impl Page {
    /// Answers with the points after a time.
    pub(super) fn history(&self, asked: &PageRequest) -> Outcome {
        let parameters = asked.parameters()?;
        let after = match parameter(&parameters, "after") {
            None => 0,
            Some(text) => text
                .parse()
                .map_err(|_| invalid("`after` must be a number of milliseconds since 1970"))?,
        };
        Ok(shown(StatusCode::OK, &self.history.after(after)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Sample {
        Sample {
            at: seconds * 1_000,
            elapsed: Duration::from_secs(seconds),
            deliveries: seconds * 5,
            ..Sample::default()
        }
    }

    #[test]
    fn an_hour_is_kept_and_not_more() {
        let mut kept = Kept::new(at(0));
        for second in 1..=8_000 {
            kept.add(at(second));
        }
        let times: Vec<u64> = kept.points().map(|point| point.at / 1_000).collect();
        assert_eq!(times.last(), Some(&8_000));
        assert_eq!(times[times.len() - FINE_COUNT], 8_000 - 299);
        assert_eq!(times[0], 8_000 - 3_590);
        assert!(times.is_sorted());
        assert!(kept.points().all(|point| point.values[2] == 5.0));
        let capacity = kept.fine.capacity() + kept.coarse.capacity();
        assert_eq!(capacity * size_of::<Point>(), BYTES, "it never grows");
    }

    #[test]
    fn a_clock_that_is_set_back_changes_neither_rates_nor_order() {
        let mut kept = Kept::new(at(100));
        kept.add(at(101));
        kept.add(Sample {
            at: 40_000,
            ..at(102)
        });
        let found: Vec<(u64, f64)> = kept
            .points()
            .map(|point| (point.at, point.values[2]))
            .collect();
        assert_eq!(found, [(101_000, 5.0), (101_001, 5.0)]);
    }

    #[test]
    fn a_percentile_is_interpolated_within_its_bucket() {
        let bounds = [1, 2, 4].map(Duration::from_secs);
        let check = |counts: [u64; 4], share: f64, expected: f64| {
            let found = percentile(&bounds, &[1; 4], &counts.map(|count| count + 1), share);
            assert_eq!(found, expected, "{counts:?} {share}");
        };
        check([4, 0, 0, 0], 0.5, 0.5);
        check([2, 2, 0, 0], 0.75, 1.5);
        check([0, 0, 10, 0], 0.5, 3.0);
        check([0, 0, 0, 10], 0.99, 4.0);
        assert!(percentile(&bounds, &[3; 4], &[3; 4], 0.5).is_nan());
    }
}

//! Metrics of the process from the operating system: memory, processor time and file descriptors.
//!
//! They are read for each request. Metrics that a system does not provide are omitted.

use std::fmt;
use std::fs;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

/// The metrics of this process.
#[derive(Debug)]
pub struct ProcessNumbers;

impl Collector for ProcessNumbers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let descriptors_max = getrlimit(Resource::Nofile).current;
        let gauges = [
            (
                "resident",
                "Resident memory of the process",
                Some(Unit::Bytes),
                resident_bytes(),
            ),
            (
                "descriptors",
                "Open file descriptors of the process",
                None,
                descriptor_count(),
            ),
            (
                "descriptors_max",
                "Maximum number of open file descriptors of the process",
                None,
                descriptors_max,
            ),
        ];
        for (name, help, unit, number) in gauges {
            let Some(number) = number else { continue };
            let gauge = ConstGauge::new(i64::try_from(number).unwrap_or(i64::MAX));
            let kind = gauge.metric_type();
            gauge.encode(encoder.encode_descriptor(name, help, unit.as_ref(), kind)?)?;
        }
        let help = "CPU time of the process";
        let unit = Unit::Seconds;
        let counter = ConstCounter::new(cpu_time().as_secs_f64());
        counter.encode(encoder.encode_descriptor("cpu", help, Some(&unit), MetricType::Counter)?)
    }
}

/// Resident memory of the process.
#[must_use]
pub fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes << 10)
}

/// Open file descriptors, without the one that reads the list.
fn descriptor_count() -> Option<u64> {
    let found = fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    Some(found.saturating_sub(1))
}

/// Processor time of all threads since the start.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::Instant;

    use super::*;

    #[test]
    fn memory_descriptors_and_time_follow_what_the_process_does() {
        let before = resident_bytes().unwrap();
        let block = vec![1u8; 64 << 20];
        let grown = resident_bytes().unwrap();
        assert!(grown >= before + (32 << 20), "{before} {grown}");
        drop(block);

        let files: Vec<File> = (0..64)
            .map(|_| File::open("/proc/self/status").unwrap())
            .collect();
        assert!(descriptor_count().unwrap() >= files.len() as u64);

        let started = cpu_time();
        let deadline = Instant::now() + Duration::from_secs(10);
        while cpu_time() < started + Duration::from_millis(5) {
            assert!(Instant::now() < deadline);
        }
    }
}

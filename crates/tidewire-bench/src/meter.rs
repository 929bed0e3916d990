//! The cost of a measured period: wall time, the server's and the generator's processor time.

use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::process::{self, Process};
use crate::statistics::{nanos_each, per_second};
use crate::target::Target;

/// Above this share of a processor the generator, not the server, limits the speed.
pub const GENERATOR_SHARE_MAX: f64 = 0.9;
/// If the machine's host takes a larger share of one processor's time, the period is disturbed: one message of a
/// hundred is that late.
pub const STOLEN_SHARE_MAX: f64 = 0.01;

/// A running period.
#[derive(Debug)]
pub struct Meter {
    /// The processes of the server, and their time before.
    server: Vec<(Process, Duration)>,
    generator: Duration,
    stolen: Duration,
    start: Instant,
}

/// The cost of a period.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Wall time.
    pub elapsed: Duration,
    /// The server's processor time, of all its nodes, if its process is known.
    pub server: Option<Duration>,
    /// The time of the busiest node.
    pub busiest: Option<Duration>,
    /// The generator's.
    pub generator: Duration,
    /// The time that the machine's host gave to other machines, of all processors.
    pub stolen: Duration,
}

impl Meter {
    /// Starts a period.
    ///
    /// # Errors
    /// A process of the server has exited.
    pub fn start(target: &Target) -> Result<Self, Failure> {
        let server = target
            .processes()
            .map(|process| Ok((process.clone(), cpu_time(process)?)));
        Ok(Self {
            server: server.collect::<Result<_, Failure>>()?,
            generator: own_cpu_time()?,
            stolen: stolen_time()?,
            start: Instant::now(),
        })
    }

    /// The cost so far.
    ///
    /// # Errors
    /// A process of the server has exited.
    pub fn read(&self) -> Result<Usage, Failure> {
        let elapsed = self.start.elapsed();
        let mut times = Vec::new();
        for (process, before) in &self.server {
            times.push(cpu_time(process)?.saturating_sub(*before));
        }
        Ok(Usage {
            elapsed,
            server: times.iter().copied().reduce(|sum, time| sum + time),
            busiest: times.iter().copied().max(),
            generator: own_cpu_time()?.saturating_sub(self.generator),
            stolen: stolen_time()?.saturating_sub(self.stolen),
        })
    }
}

impl Usage {
    /// The share of one processor that the generator used.
    #[must_use]
    pub fn generator_share(&self) -> f64 {
        self.share(self.generator)
    }

    /// The share of one processor that the busiest node used.
    #[must_use]
    pub fn busiest_share(&self) -> Option<f64> {
        Some(self.share(self.busiest?))
    }

    /// The share of one processor that the machine's host gave to other machines. A tick may have begun before the
    /// period, so one is ignored.
    #[must_use]
    pub fn stolen_share(&self) -> f64 {
        self.share(self.stolen.saturating_sub(process::TICK))
    }

    fn share(&self, time: Duration) -> f64 {
        match self.elapsed.is_zero() {
            true => 0.0,
            false => time.as_secs_f64() / self.elapsed.as_secs_f64(),
        }
    }

    /// The server's nanoseconds per item, for `count` items.
    #[must_use]
    pub fn server_nanos(&self, count: u64) -> Option<f64> {
        nanos_each(self.server?, count)
    }

    /// Items per second of the server's time, for `count` items.
    #[must_use]
    pub fn per_server_second(&self, count: u64) -> Option<f64> {
        per_second(count, self.server?)
    }

    /// Items per second, for `count` items.
    #[must_use]
    pub fn per_second(&self, count: u64) -> Option<f64> {
        per_second(count, self.elapsed)
    }
}

fn cpu_time(process: &Process) -> Result<Duration, Failure> {
    process
        .cpu_time()
        .map_err(Failure::system("processor time"))
}

/// The generator is one thread, the calling one; neighbours have their own.
fn own_cpu_time() -> Result<Duration, Failure> {
    Process::own_thread_cpu_time().map_err(Failure::system("processor time"))
}

fn stolen_time() -> Result<Duration, Failure> {
    process::stolen_time().map_err(Failure::system("stolen time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usage_divides() {
        let usage = Usage {
            elapsed: Duration::from_secs(2),
            server: Some(Duration::from_secs(1)),
            busiest: Some(Duration::from_millis(500)),
            generator: Duration::from_millis(500),
            stolen: Duration::from_millis(30),
        };
        assert_eq!(usage.generator_share(), 0.25);
        assert_eq!(usage.busiest_share(), Some(0.25));
        assert_eq!(usage.stolen_share(), 0.01);
        assert_eq!(usage.per_second(10), Some(5.0));
        assert_eq!(usage.per_server_second(10), Some(10.0));
        assert_eq!(usage.server_nanos(10), Some(1e8));
        assert_eq!(Usage::default().generator_share(), 0.0);
        assert_eq!(Usage::default().stolen_share(), 0.0);
        assert_eq!(Usage::default().per_server_second(1), None);
    }
}

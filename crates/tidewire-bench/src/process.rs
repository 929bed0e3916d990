//! The kernel's figures of a process: its processor time and its memory. Linux only, from `/proc`.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// The unit of `/proc/stat`, whatever the kernel's own ticks are: `USER_HZ` is 100.
pub const TICK: Duration = Duration::from_millis(10);

/// A process of this machine.
#[derive(Clone, Debug)]
pub struct Process {
    folder: PathBuf,
}

/// Memory of a process, without the kernel's memory for its sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// All resident memory, including the program's own pages.
    pub resident_bytes: u64,
    /// Its proportional share: pages that others map too count in part.
    pub proportional_bytes: u64,
    /// Heap and stacks: memory without a file.
    pub anonymous_bytes: u64,
}

impl Process {
    /// The process with this number.
    #[must_use]
    pub fn new(pid: u32) -> Self {
        Self {
            folder: format!("/proc/{pid}").into(),
        }
    }

    /// This process.
    #[must_use]
    pub fn own() -> Self {
        Self::new(std::process::id())
    }

    /// Processor time of all living threads, to the nanosecond. The coarser figure in `stat` counts ticks of ten
    /// milliseconds. The time of threads that have ended is lost, so the difference of two readings is valid only if
    /// the threads are the same, as they are in a server.
    ///
    /// # Errors
    /// The process has exited or belongs to another user.
    pub fn cpu_time(&self) -> io::Result<Duration> {
        let mut total = Duration::ZERO;
        for task in fs::read_dir(self.folder.join("task"))? {
            match fs::read_to_string(task?.path().join("schedstat")) {
                Ok(text) => total += parse_schedstat(&text)?,
                Err(error) if has_ended(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(total)
    }

    /// Processor time of the calling thread, to the nanosecond.
    ///
    /// # Errors
    /// The system does not report it.
    pub fn own_thread_cpu_time() -> io::Result<Duration> {
        parse_schedstat(&fs::read_to_string("/proc/thread-self/schedstat")?)
    }

    /// Its current memory.
    ///
    /// # Errors
    /// The process has exited or belongs to another user.
    pub fn memory(&self) -> io::Result<Memory> {
        let text = fs::read_to_string(self.folder.join("smaps_rollup"))?;
        Ok(Memory {
            resident_bytes: parse_field(&text, "Rss:")?,
            proportional_bytes: parse_field(&text, "Pss:")?,
            anonymous_bytes: parse_field(&text, "Anonymous:")?,
        })
    }
}

/// Time since the start of the system for which a processor of this machine had work and its host ran other machines,
/// over all processors, in ticks. Zero without such a host, or if the host does not report it.
///
/// # Errors
/// The system does not report it.
pub fn stolen_time() -> io::Result<Duration> {
    parse_stolen(&fs::read_to_string("/proc/stat")?)
}

/// The eighth number of the first line.
fn parse_stolen(text: &str) -> io::Result<Duration> {
    text.strip_prefix("cpu ")
        .and_then(|rest| rest.lines().next()?.split_ascii_whitespace().nth(7))
        .and_then(|ticks| ticks.parse().ok())
        .map(|ticks: u32| TICK * ticks)
        .ok_or_else(|| malformed("stolen time", text))
}

/// Whether a thread ended between two calls.
fn has_ended(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

/// The first of the three numbers: nanoseconds on a processor.
fn parse_schedstat(text: &str) -> io::Result<Duration> {
    text.split_ascii_whitespace()
        .next()
        .and_then(|nanos| nanos.parse().ok())
        .map(Duration::from_nanos)
        .ok_or_else(|| malformed("schedstat", text))
}

/// The bytes in a line like `Rss:     1234 kB`.
fn parse_field(text: &str, field: &str) -> io::Result<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(field))
        .and_then(|rest| rest.trim().strip_suffix("kB"))
        .and_then(|number| number.trim().parse::<u64>().ok())
        .map(|kib| kib * 1024)
        .ok_or_else(|| malformed(field, text))
}

fn malformed(what: &str, text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("no {what} in {text:?}"))
}

/// One line that describes the machine of a figure.
#[must_use]
pub fn machine() -> String {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cpu_info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    // The system's own count: this thread may be pinned to one of them.
    let cores = cpu_info
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count();
    let model = cpu_info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown processor", |(_, model)| model);
    format!("{cores} cores, {model}, Linux {}", kernel.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedstat_lines() {
        assert_eq!(
            parse_schedstat("1500 20 3\n").unwrap(),
            Duration::from_nanos(1500)
        );
        assert!(parse_schedstat("").is_err());
        assert!(parse_schedstat("x 1 2").is_err());
    }

    #[test]
    fn stolen_lines() {
        let text = "cpu  1214288 12750 623759 1044959 14923 0 371085 31087 0 0\ncpu0 1 1 1 1 1 1 1 5 0 0\n";
        assert_eq!(parse_stolen(text).unwrap(), Duration::from_millis(310_870));
        for wrong in [
            "",
            "cpu  1 2 3 4 5 6 7\ncpu0 1",
            "cpu  1 2 3 4 5 6 7 x 9",
            "cpu0 1 2 3 4 5 6 7 8",
        ] {
            assert!(parse_stolen(wrong).is_err(), "{wrong:?}");
        }
        assert!(stolen_time().is_ok());
    }

    #[test]
    fn memory_lines() {
        let text = "5555-7fff ---p 00000000 00:00 0 [rollup]\nRss:                 868 kB\nAnonymous:    92 kB\n";
        assert_eq!(parse_field(text, "Rss:").unwrap(), 868 * 1024);
        assert_eq!(parse_field(text, "Anonymous:").unwrap(), 92 * 1024);
        assert!(parse_field(text, "Swap:").is_err());
        assert!(parse_field("Rss: many kB", "Rss:").is_err());
    }

    #[test]
    fn work_shows_in_the_own_process() {
        let own = Process::own();
        let before = own.cpu_time().unwrap();
        let start = std::time::Instant::now();
        let mut sum = 0u64;
        // The kernel brings a running thread's time up to date at its ticks.
        while own.cpu_time().unwrap() < before + Duration::from_millis(1) {
            sum = std::hint::black_box(sum.wrapping_add(1));
            assert!(start.elapsed() < Duration::from_secs(30), "{sum}");
        }
        let memory = own.memory().unwrap();
        assert!(memory.anonymous_bytes > 0 && memory.resident_bytes >= memory.anonymous_bytes);
    }

    #[test]
    fn a_missing_process_is_an_error() {
        assert!(Process::new(u32::MAX).cpu_time().is_err());
        assert!(Process::new(u32::MAX).memory().is_err());
    }
}

//! Resources of the process on this machine or in this container: processors, memory and descriptors.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::process::{Resource, getrlimit, setrlimit};

/// Assumed memory if the system does not report its size.
const UNKNOWN_MEMORY_BYTES: u64 = 1 << 30;
/// Descriptors that connections do not get: listeners, runtime and store use 17, and the others are a reserve for descriptors that they
/// open for a short time.
const OWN_DESCRIPTORS: u64 = 58;
/// Descriptors of a shard: its poll, its waker and its ring.
const SHARD_DESCRIPTORS: u64 = 3;

/// Resources that this process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Threads that run at the same time, by processors, affinity and CPU quota; at least 1.
    pub processors: u16,
    /// Bytes of memory, by the machine and the limit of the container.
    pub memory_bytes: u64,
}

impl Machine {
    /// Reads the resources of this machine.
    #[must_use]
    pub fn read() -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Self::read_below(Path::new("/"), processors)
    }

    /// Reads the files below `root`, on a machine with this number of processors.
    fn read_below(root: &Path, processors: usize) -> Self {
        let groups = Groups::read(root);
        let quota = groups.processors().unwrap_or(usize::MAX);
        let processors = processors.min(quota).max(1);
        let memory_bytes = [physical_memory(root), groups.memory_bytes()]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(UNKNOWN_MEMORY_BYTES);
        Self {
            processors: u16::try_from(processors).unwrap_or(u16::MAX),
            memory_bytes,
        }
    }
}

fn physical_memory(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// The control groups of the process, from its own up to the root. The tightest limit of all of them applies.
struct Groups {
    unified: Vec<PathBuf>,
    cpu: Vec<PathBuf>,
    memory: Vec<PathBuf>,
}

impl Groups {
    fn read(root: &Path) -> Self {
        let mut groups = Self {
            unified: Vec::new(),
            cpu: Vec::new(),
            memory: Vec::new(),
        };
        let mount = root.join("sys/fs/cgroup");
        let text = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
        for line in text.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
                continue;
            };
            if controllers.is_empty() {
                groups.unified = upwards(&mount, path);
            }
            for controller in controllers.split(',') {
                match controller {
                    "cpu" => groups.cpu = upwards(&mount.join("cpu"), path),
                    "memory" => groups.memory = upwards(&mount.join("memory"), path),
                    _ => {}
                }
            }
        }
        groups
    }

    /// Whole processors that the tightest quota allows; less than one counts as one.
    fn processors(&self) -> Option<usize> {
        let unified = self.unified.iter().filter_map(|group| {
            let text = fs::read_to_string(group.join("cpu.max")).ok()?;
            let (quota, period) = text.trim().split_once(' ')?;
            whole_processors(quota, period)
        });
        let divided = self.cpu.iter().filter_map(|group| {
            let quota = fs::read_to_string(group.join("cpu.cfs_quota_us")).ok()?;
            let period = fs::read_to_string(group.join("cpu.cfs_period_us")).ok()?;
            whole_processors(quota.trim(), period.trim())
        });
        unified.chain(divided).min()
    }

    fn memory_bytes(&self) -> Option<u64> {
        let limit = |path: PathBuf| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
        let unified = self.unified.iter().flat_map(|group| {
            [
                limit(group.join("memory.max")),
                limit(group.join("memory.high")),
            ]
        });
        let divided = self
            .memory
            .iter()
            .map(|group| limit(group.join("memory.limit_in_bytes")));
        unified.chain(divided).flatten().min()
    }
}

/// Whole processors of a quota, at least 1. `max` and `-1` mean that there is no quota.
fn whole_processors(quota: &str, period: &str) -> Option<usize> {
    let quota: usize = quota.parse().ok()?;
    let period: usize = period.parse().ok()?;
    Some(quota.checked_div(period)?.max(1))
}

/// The folders of a group and of all groups above it. In a container the path may be a path of the host that is not mounted; then the
/// root is the container's own group.
fn upwards(mount: &Path, path: &str) -> Vec<PathBuf> {
    let own = mount.join(path.trim_start_matches('/'));
    own.ancestors()
        .take_while(|folder| folder.starts_with(mount))
        .map(Path::to_owned)
        .collect()
}

/// Raises the soft limit of open files to the hard one.
///
/// # Errors
/// The limit can't be raised; it stays the same.
pub fn raise_descriptor_limit() -> io::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        setrlimit(Resource::Nofile, limit)?;
    }
    Ok(())
}

/// Connections that the limit of open files allows, without the descriptors that the server itself needs.
#[must_use]
pub fn connections_allowed(shards: u16) -> u64 {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let own = OWN_DESCRIPTORS + SHARD_DESCRIPTORS * u64::from(shards);
    descriptors.saturating_sub(own).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with 8 processors and 16 GiB whose files are `files`.
    fn machine(files: &[(&str, &str)]) -> Machine {
        let root = tempfile::tempdir().expect("a temporary folder");
        let memory = (
            "proc/meminfo",
            "MemTotal:       16777216 kB\nMemFree: 1 kB\n",
        );
        for (path, text) in files.iter().chain([&memory]) {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a file has a folder")).expect("folder made");
            fs::write(path, text).expect("file written");
        }
        Machine::read_below(root.path(), 8)
    }

    #[test]
    fn follows_the_tightest_limit() {
        let check = |files: &[(&str, &str)], processors: u16, gigabytes: u64| {
            let expected = Machine {
                processors,
                memory_bytes: gigabytes << 30,
            };
            assert_eq!(machine(files), expected, "{files:?}");
        };
        let own = ("proc/self/cgroup", "0::/app/web\n");
        check(&[], 8, 16);
        check(
            &[own, ("sys/fs/cgroup/app/web/cpu.max", "max 100000\n")],
            8,
            16,
        );
        check(
            &[own, ("sys/fs/cgroup/app/web/cpu.max", "250000 100000\n")],
            2,
            16,
        );
        check(
            &[own, ("sys/fs/cgroup/app/web/cpu.max", "50000 100000\n")],
            1,
            16,
        );
        check(
            &[own, ("sys/fs/cgroup/app/cpu.max", "300000 100000\n")],
            3,
            16,
        );
        check(
            &[own, ("sys/fs/cgroup/app/web/memory.max", "2147483648\n")],
            8,
            2,
        );
        check(
            &[own, ("sys/fs/cgroup/app/memory.high", "1073741824\n")],
            8,
            1,
        );
        check(&[own, ("sys/fs/cgroup/app/web/memory.max", "max\n")], 8, 16);
        check(
            &[
                own,
                ("sys/fs/cgroup/app/web/memory.max", "99999999999999\n"),
            ],
            8,
            16,
        );
        check(
            &[own, ("sys/fs/cgroup/app/web/cpu.max", "rubbish\n")],
            8,
            16,
        );
        let first_version = ("proc/self/cgroup", "4:memory:/m\n3:cpu,cpuacct:/c\n");
        let quota = ("sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "400000\n");
        let period = ("sys/fs/cgroup/cpu/c/cpu.cfs_period_us", "100000\n");
        let memory = (
            "sys/fs/cgroup/memory/m/memory.limit_in_bytes",
            "4294967296\n",
        );
        check(&[first_version, quota, period, memory], 4, 4);
        let no_quota = ("sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "-1\n");
        check(&[first_version, no_quota, period], 8, 16);
        let container = ("proc/self/cgroup", "0::/host/path/that/is/not/mounted\n");
        check(
            &[container, ("sys/fs/cgroup/cpu.max", "200000 100000\n")],
            2,
            16,
        );
    }
}

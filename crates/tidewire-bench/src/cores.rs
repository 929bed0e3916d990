//! Assigns cores: the generator gets the last one, servers get all others. On a machine with one core nothing is
//! pinned, and results report that both shared it.

use std::io;
use std::sync::OnceLock;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The assignment of this process, once it has one.
static DIVIDED: OnceLock<Cores> = OnceLock::new();

/// The cores of generator and servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores {
    generator: Vec<usize>,
    servers: Vec<usize>,
}

/// Pins this thread, the generator's, to its core. Servers that start afterwards get the others.
///
/// # Errors
/// The system refuses.
pub fn pin_generator() -> io::Result<()> {
    let cores = Cores::of_this_thread()?;
    DIVIDED.get_or_init(|| cores).pin_generator()
}

/// The assignment; `None` if nothing is pinned.
#[must_use]
pub fn divided() -> Option<&'static Cores> {
    DIVIDED.get()
}

/// Runs `spawn` so that the server it starts gets the servers' cores.
///
/// # Errors
/// The system refuses.
pub fn as_server<T>(spawn: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    match DIVIDED.get() {
        Some(cores) => cores.as_server(spawn),
        None => spawn(),
    }
}

impl Cores {
    /// Assigns the cores that this thread may use.
    ///
    /// # Errors
    /// The system does not report them.
    pub fn of_this_thread() -> io::Result<Self> {
        let permitted = sched_getaffinity(None)?;
        let all = (0..CpuSet::MAX_CPU).filter(|&core| permitted.is_set(core));
        Ok(Self::divide(all.collect()))
    }

    fn divide(mut all: Vec<usize>) -> Self {
        if all.len() < 2 {
            return Self {
                generator: all.clone(),
                servers: all,
            };
        }
        let generator = all.pop().into_iter().collect();
        Self {
            generator,
            servers: all,
        }
    }

    /// Whether servers have separate cores.
    #[must_use]
    pub fn are_apart(&self) -> bool {
        self.generator != self.servers
    }

    /// The number of the servers' cores.
    #[must_use]
    pub fn server_count(&self) -> usize {
        self.servers.len()
    }

    /// Pins this thread to the generator's core.
    ///
    /// # Errors
    /// The system refuses.
    pub fn pin_generator(&self) -> io::Result<()> {
        pin(&self.generator)
    }

    /// Runs `spawn` with this thread pinned to the servers' cores, which its processes and threads inherit, and
    /// restores the pinning.
    ///
    /// # Errors
    /// The system refuses.
    pub fn as_server<T>(&self, spawn: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let before = sched_getaffinity(None)?;
        pin(&self.servers)?;
        let spawned = spawn();
        sched_setaffinity(None, &before)?;
        spawned
    }
}

fn pin(cores: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &core in cores {
        set.set(core);
    }
    Ok(sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_has_the_last_core() {
        let check = |all: &[usize], generator: &[usize], servers: &[usize]| {
            let cores = Cores::divide(all.to_vec());
            assert_eq!(
                (&cores.generator[..], &cores.servers[..]),
                (generator, servers)
            );
            assert_eq!(cores.are_apart(), all.len() > 1);
            assert_eq!(cores.server_count(), servers.len());
        };
        check(&[3], &[3], &[3]);
        check(&[0, 1], &[1], &[0]);
        check(&[0, 2, 5], &[5], &[0, 2]);
    }

    #[test]
    fn server_processes_run_on_the_cores_of_the_server() {
        // On a separate thread, because other tests need all cores.
        let (seen, after, cores) = std::thread::spawn(|| {
            let cores = Cores::of_this_thread().unwrap();
            cores.pin_generator().unwrap();
            let thread = || Ok(std::thread::spawn(|| Cores::of_this_thread().unwrap()));
            let seen = cores.as_server(thread).unwrap().join().unwrap();
            (seen, Cores::of_this_thread().unwrap(), cores)
        })
        .join()
        .unwrap();
        assert_eq!(seen, Cores::divide(cores.servers.clone()));
        assert_eq!(after, Cores::divide(cores.generator));
    }
}

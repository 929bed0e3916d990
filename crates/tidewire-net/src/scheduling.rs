//! Scheduling classes of a thread, and processor time.

use std::io;
use std::time::Duration;

/// Lets this thread run only while its processor is otherwise idle. Any other thread that wakes up there preempts it
/// at once; next to a thread of merely low priority it might wait for the end of that thread's time slice, which is
/// milliseconds.
///
/// # Errors
/// The system refuses.
#[cfg(target_os = "linux")]
pub fn background() -> io::Result<()> {
    set(libc::SCHED_IDLE, 0)
}

/// Lets this thread run as soon as it wakes up, even while the system's own threads use its processor, for which
/// other threads wait up to a tick of 4 ms. Only for a thread that mostly sleeps: the system stops one that runs for
/// a second.
///
/// # Errors
/// The system refuses; it requires the privilege `CAP_SYS_NICE`.
#[cfg(target_os = "linux")]
pub fn realtime() -> io::Result<()> {
    set(libc::SCHED_FIFO, 1)
}

#[cfg(target_os = "linux")]
fn set(policy: libc::c_int, sched_priority: libc::c_int) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority };
    // SAFETY: the pointer is to a live value of the type that the call reads; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Time slice of a thread that answers others: short, so that it preempts a busy thread as soon as it wakes up.
#[cfg(target_os = "linux")]
const SHORT_SLICE_NS: u64 = 100_000;

/// Runs `start`. The threads that it starts get short time slices, of the same priority and share of the processor as before: a thread
/// that wakes up preempts one with longer slices at once, if it has not used up its share. Otherwise it would wait for the end of a slice, which
/// is up to a tick of 4 ms. Linux before 6.12 ignores it.
#[cfg(target_os = "linux")]
pub fn with_short_slices<T>(start: impl FnOnce() -> T) -> T {
    // Threads inherit the slice. If the system refuses it, they have the usual one.
    let _ = set_slice(SHORT_SLICE_NS);
    let started = start();
    let _ = set_slice(0);
    started
}

/// Other systems have no such setting.
#[cfg(not(target_os = "linux"))]
pub fn with_short_slices<T>(start: impl FnOnce() -> T) -> T {
    start()
}

/// The kernel's `struct sched_attr` in its second version.
#[cfg(target_os = "linux")]
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
    utilization_min: u32,
    utilization_max: u32,
}

/// Sets the time slice of this thread; 0 for the usual one. Its nice value stays.
#[cfg(target_os = "linux")]
fn set_slice(slice_ns: u64) -> io::Result<()> {
    let size = size_of::<Attributes>() as libc::c_uint;
    let mut attributes = Attributes::default();
    // SAFETY: the pointer is to a live value of the size that the call gets; 0 is the calling thread.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    if got != 0 || attributes.policy != libc::SCHED_OTHER as u32 {
        return Err(io::Error::last_os_error());
    }
    attributes.size = size;
    attributes.flags = 0;
    attributes.runtime_ns = slice_ns;
    // SAFETY: as above.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Other systems have no such class.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub fn background() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Not supported on other systems.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub fn realtime() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The processor time that this thread has used.
#[must_use]
pub fn thread_time() -> Duration {
    processor_time(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// The processor time that all threads of this process have used together.
#[must_use]
pub fn process_time() -> Duration {
    processor_time(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn processor_time(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a live value of the type that the call fills.
    let got = unsafe { libc::clock_gettime(clock, &raw mut time) };
    debug_assert_eq!(got, 0, "the system has the clock");
    let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
    seconds + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io;
    use std::time::{Duration, Instant};

    fn policy() -> String {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        // After the name in parentheses, which may contain spaces, the policy is the 39th field after the second.
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        fields.split(' ').nth(38).unwrap().to_owned()
    }

    /// The time slice and the nice value of this thread.
    fn slice() -> (u64, i32) {
        let mut attributes = super::Attributes::default();
        let size = size_of::<super::Attributes>() as libc::c_uint;
        // SAFETY: the pointer is to a live value of the size that the call gets.
        let got =
            unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
        assert_eq!(got, 0);
        (attributes.runtime_ns, attributes.nice)
    }

    #[test]
    fn only_the_started_threads_get_short_slices() {
        let (usual, nice) = slice();
        let started = super::with_short_slices(|| std::thread::spawn(slice));
        let (short, nice_there) = started.join().unwrap();
        assert_eq!((slice(), nice_there), ((usual, nice), nice));
        // Linux before 6.12 reports no slice.
        assert!(usual == 0 || short == super::SHORT_SLICE_NS, "{short}");
    }

    #[test]
    fn processor_time_counts_work_and_no_sleep() {
        // In this order the process has at least the time of the thread from here on.
        let (process, thread) = (super::process_time(), super::thread_time());
        std::thread::sleep(Duration::from_millis(20));
        assert!(super::thread_time() < thread + Duration::from_millis(10));
        let end = Instant::now() + Duration::from_secs(10);
        while super::thread_time() < thread + Duration::from_millis(10) {
            assert!(Instant::now() < end, "the clock stands still");
        }
        assert!(super::process_time() >= process + Duration::from_millis(10));
    }

    #[test]
    fn a_thread_leaves_the_usual_class() {
        let background = std::thread::spawn(|| {
            assert_eq!(policy(), "0", "SCHED_OTHER");
            super::background().unwrap();
            assert_eq!(policy(), "5", "SCHED_IDLE");
        });
        background.join().unwrap();
        let realtime = std::thread::spawn(|| match super::realtime() {
            Ok(()) => assert_eq!(policy(), "1", "SCHED_FIFO"),
            // Users of the tests may lack the privilege.
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        });
        realtime.join().unwrap();
    }
}

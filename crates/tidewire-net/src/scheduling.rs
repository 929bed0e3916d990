//! Scheduling classes of a thread.

use std::io;

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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io;

    fn policy() -> String {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        // After the name in parentheses, which may contain spaces, the policy is the 39th field after the second.
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        fields.split(' ').nth(38).unwrap().to_owned()
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

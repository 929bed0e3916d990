//! Threads that must not get in anybody's way.

use std::io;

/// Lets this thread run only while nobody else wants its processor. Whoever wakes up there takes it at once; beside a thread of
/// merely low priority it may wait for the end of that one's time slice, which is milliseconds.
///
/// # Errors
/// The system refuses.
#[cfg(target_os = "linux")]
pub fn enter() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the pointer is to a live value of the type that the call reads; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Other systems have no such class.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub fn enter() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #[test]
    fn a_thread_leaves_the_usual_class() {
        let policy = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            // Behind the name in parentheses, which may hold spaces, the policy is the 39th field behind the second.
            let (_, fields) = stat.rsplit_once(") ").unwrap();
            fields.split(' ').nth(38).unwrap().to_owned()
        };
        std::thread::spawn(move || {
            assert_eq!(policy(), "0", "SCHED_OTHER");
            super::enter().unwrap();
            assert_eq!(policy(), "5", "SCHED_IDLE");
        })
        .join()
        .unwrap();
    }
}

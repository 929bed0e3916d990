//! Ends the wait of a poll at a deadline. The timer stays set for later deadlines, so that a turn costs no system
//! call. With a timeout of the poll, the kernel would start and cancel a timer with each wait.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// A kernel timer that fires once, at the earliest deadline requested since it last fired.
#[derive(Debug)]
pub(crate) struct DeadlineTimer {
    timer: OwnedFd,
    due: Option<Instant>,
}

impl DeadlineTimer {
    /// A timer that is not set.
    ///
    /// # Errors
    /// The kernel has no descriptor.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: the call has no pointers.
        let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just created, and no other code knows it.
        let timer = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { timer, due: None })
    }

    /// Its descriptor, which becomes readable each time it fires, whether or not it is read.
    pub(crate) fn fd(&self) -> RawFd {
        self.timer.as_raw_fd()
    }

    /// Fires at `deadline` at the latest, at once if that has passed.
    ///
    /// # Errors
    /// The kernel refuses, for which it has no reason.
    pub(crate) fn set(&mut self, deadline: Instant) -> io::Result<()> {
        if self.due.is_some_and(|due| due <= deadline) {
            return Ok(());
        }
        // Zero would disable the timer.
        let left = deadline.saturating_duration_since(Instant::now());
        let left = left.max(Duration::from_nanos(1));
        let value = libc::timespec {
            tv_sec: left.as_secs() as libc::time_t,
            tv_nsec: left.subsec_nanos() as libc::c_long,
        };
        let once = libc::itimerspec {
            it_interval: libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: value,
        };
        // SAFETY: the descriptor is open, the pointer is to a live value, and the old setting is not asked for.
        match unsafe { libc::timerfd_settime(self.fd(), 0, &once, std::ptr::null_mut()) } {
            0 => self.due = Some(deadline),
            _ => return Err(io::Error::last_os_error()),
        }
        Ok(())
    }

    /// Records that it has fired.
    pub(crate) fn expire(&mut self) {
        self.due = None;
    }
}

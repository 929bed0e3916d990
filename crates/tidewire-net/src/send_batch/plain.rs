//! One system call for each send: supported by every kernel, and used for a single send in any case.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd};

use super::FLAGS;

/// One nonblocking send without a signal on a closed connection.
pub(super) fn send(socket: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    loop {
        let sent = if let [slice] = slices {
            // SAFETY: pointer and length belong to a live slice, which the call only reads.
            unsafe {
                libc::send(
                    socket.as_raw_fd(),
                    slice.as_ptr().cast(),
                    slice.len(),
                    FLAGS,
                )
            }
        } else {
            let message = message(slices);
            // SAFETY: the header's array and all it points to live through the call, which only reads them.
            unsafe { libc::sendmsg(socket.as_raw_fd(), &message, FLAGS) }
        };
        if let Ok(sent) = usize::try_from(sent) {
            return Ok(sent);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// The header of a send of several slices. It points to them; the caller must keep them alive.
pub(super) fn message(slices: &[IoSlice<'_>]) -> libc::msghdr {
    // SAFETY: all-zero is a valid `msghdr`: no address, no buffers, no control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    // `IoSlice` has the layout of `iovec`. The kernel only reads what a send points to.
    message.msg_iov = slices.as_ptr().cast_mut().cast();
    message.msg_iovlen = slices.len() as _;
    message
}

//! Options of a listening socket besides its address.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Makes the kernel report connections of a listening socket when their first bytes have arrived, or after about a
/// second without any. For protocols in which the client speaks first; it saves a wake-up for each connection.
///
/// # Errors
/// The kernel does not know the option and reports connections at once.
#[cfg(target_os = "linux")]
pub fn await_first_bytes(listener: BorrowedFd<'_>) -> io::Result<()> {
    // The kernel waits for one retransmission of its SYN-ACK, which comes after a second.
    let seconds: libc::c_int = 1;
    // SAFETY: the pointer is to a live value of the length that is given, and the descriptor is borrowed.
    let result = unsafe {
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_DEFER_ACCEPT,
            (&raw const seconds).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Other systems report connections at once.
///
/// # Errors
/// Always, because the option does not exist.
#[cfg(not(target_os = "linux"))]
pub fn await_first_bytes(_listener: BorrowedFd<'_>) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::{ErrorKind, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_connection_is_shown_with_its_first_bytes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        await_first_bytes(listener.as_fd()).unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        client.write_all(b"hello").unwrap();
        // On loopback the bytes have arrived when the write returns.
        assert!(listener.accept().is_ok());
        // A silent peer is reported too, only later.
        let _silent = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        listener.set_nonblocking(false).unwrap();
        assert!(listener.accept().is_ok());
    }
}

//! Cuts the power of a mounted file system: unsynced data is lost, synced data stays.
//!
//! Only durability tests need it. It is in this crate because no safe wrapper offers the system call.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// `EXT4_IOC_SHUTDOWN`, on other file systems `FS_IOC_SHUTDOWN`.
const SHUTDOWN: libc::c_ulong = 0x8004_587d;
/// The journal is not flushed first.
const NO_LOG_FLUSH: u32 = 2;

/// Shuts down the file system of `path`. Afterwards every access to it fails, until it is unmounted and mounted
/// again.
///
/// # Errors
/// The file system does not support it, or the process lacks the right (`CAP_SYS_ADMIN`).
pub fn cut(path: &Path) -> io::Result<()> {
    let folder = File::open(path)?;
    let flags = NO_LOG_FLUSH;
    // SAFETY: the descriptor is open and the pointer is to a live value of the type that this request reads.
    match unsafe { libc::ioctl(folder.as_raw_fd(), SHUTDOWN as _, &flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_file_system_without_the_switch_is_left_alone() {
        let proc = std::path::Path::new("/proc");
        assert!(super::cut(proc).is_err());
        assert!(proc.join("self").exists());
    }
}

//! The process's limit of descriptors: each connection needs exactly one.

use std::io;

/// Raises the soft limit of open descriptors to the hard one and returns the new limit.
///
/// # Errors
/// The limit can't be read. If it can't be raised, it is returned unchanged.
pub fn raise_limit() -> io::Result<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer is to a live, writable value of the right type.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let raised = libc::rlimit {
        rlim_cur: limit.rlim_max,
        rlim_max: limit.rlim_max,
    };
    // SAFETY: the pointer is to a live value of the right type.
    let is_raised = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raised) } == 0;
    Ok(if is_raised {
        raised.rlim_cur
    } else {
        limit.rlim_cur
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_raised_limit_stays() {
        let limit = super::raise_limit().unwrap();
        assert!(limit >= 256, "{limit}");
        assert_eq!(super::raise_limit().unwrap(), limit);
    }
}

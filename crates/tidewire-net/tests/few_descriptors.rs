//! A process without a free descriptor for a ring sends without one. A separate test program, because the limit
//! applies to the whole process.

use std::io::{IoSlice, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;

use tidewire_net::send_batch::{Path, RingFault, Sender};

#[test]
fn without_descriptors_for_a_ring_sends_are_plain() {
    let (near, mut far) = UnixStream::pair().unwrap();
    let highest = near.as_raw_fd().max(far.as_raw_fd()) as u64;
    // First the ring's own descriptor is missing, then one for the trial's sockets.
    for (left, action) in [(0, "io_uring_setup"), (1, "a test send through io_uring")] {
        limit_descriptors(highest + 1 + left);
        let mut sender = Sender::detect();
        let errno = libc::EMFILE;
        assert_eq!(
            sender.path(),
            Path::WithoutRing(RingFault { action, errno }),
            "{left} left"
        );
        let mut batch = sender.batch();
        for part in [&b"one"[..], b"two"] {
            batch.push(0, near.as_fd(), std::iter::once(IoSlice::new(part)));
        }
        let mut completions = Vec::new();
        sender.submit(batch, &mut completions);
        assert!(
            completions
                .iter()
                .all(|completion| completion.result.is_ok())
        );
        let mut received = [0; 6];
        far.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"onetwo");
    }
}

fn limit_descriptors(count: u64) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer is to a live, writable value of the right type.
    let outcome = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    assert_eq!(outcome, 0);
    limit.rlim_cur = count;
    // SAFETY: the pointer is to a live value of the right type.
    let outcome = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    assert_eq!(outcome, 0);
}

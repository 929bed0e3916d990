//! If the kernel refuses the ring, at the start or later, sends continue as separate system calls. The kernel refuses
//! by a filter of system calls, which each test applies to a new thread.

mod seccomp;

use std::io::{IoSlice, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread;

use seccomp::{Refusal, refuse};
use tidewire_net::send_batch::{Path, RingFault, Sender};

/// Sends one byte over each of ten sockets in one batch, and checks that they arrive.
fn send_ten(sender: &mut Sender) {
    let mut pairs: Vec<_> = (0..10).map(|_| UnixStream::pair().unwrap()).collect();
    let bytes: Vec<u8> = (0..10).collect();
    let mut batch = sender.batch();
    for (index, (near, _)) in pairs.iter().enumerate() {
        let slice = IoSlice::new(&bytes[index..=index]);
        batch.push(index as u32, near.as_fd(), std::iter::once(slice));
    }
    let mut completions = Vec::new();
    sender.submit(batch, &mut completions);
    assert_eq!(completions.len(), 10);
    for (index, ((_, far), completion)) in pairs.iter_mut().zip(completions).enumerate() {
        assert_eq!(completion.token, index as u32);
        assert_eq!(completion.result.unwrap(), 1);
        let mut received = [0];
        far.read_exact(&mut received).unwrap();
        assert_eq!(received[0], index as u8);
    }
}

/// Runs `test` in a thread that can be filtered without the others.
fn alone(test: impl FnOnce() + Send + 'static) {
    thread::spawn(test).join().unwrap();
}

fn refuse_setup(errno: i32) -> Sender {
    let call = libc::SYS_io_uring_setup;
    refuse(Refusal { call, errno }).unwrap();
    Sender::detect()
}

#[test]
fn a_refused_set_up_leaves_plain_sends() {
    // Missing, refused, too little lockable memory, no descriptors for the process, none for the machine.
    for errno in [
        libc::ENOSYS,
        libc::EPERM,
        libc::ENOMEM,
        libc::EMFILE,
        libc::ENFILE,
    ] {
        alone(move || {
            let mut sender = refuse_setup(errno);
            let fault = RingFault {
                action: "io_uring_setup",
                errno,
            };
            assert_eq!(sender.path(), Path::WithoutRing(fault));
            send_ten(&mut sender);
            assert_eq!(sender.submissions(), 0);
        });
    }
}

#[test]
fn a_ring_that_can_be_made_and_not_used_is_found_out_by_the_trial() {
    alone(|| {
        let (call, errno) = (libc::SYS_io_uring_enter, libc::EPERM);
        refuse(Refusal { call, errno }).unwrap();
        let mut sender = Sender::detect();
        let fault = RingFault {
            action: "io_uring_enter",
            errno,
        };
        assert_eq!(sender.path(), Path::WithoutRing(fault));
        send_ten(&mut sender);
    });
}

#[test]
fn a_ring_that_is_taken_away_later_loses_nothing() {
    alone(|| {
        let mut sender = Sender::detect();
        assert_eq!(sender.path(), Path::Ring, "this machine has no io_uring");
        send_ten(&mut sender);
        assert_eq!(sender.submissions(), 1);
        let (call, errno) = (libc::SYS_io_uring_enter, libc::EPERM);
        refuse(Refusal { call, errno }).unwrap();
        send_ten(&mut sender);
        assert!(matches!(sender.path(), Path::WithoutRing(_)));
        send_ten(&mut sender);
    });
}

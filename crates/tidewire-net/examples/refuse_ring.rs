//! Starts a program for which `io_uring_setup` fails: `refuse_ring EPERM PROGRAM ARGUMENT...`.
//!
//! The end-to-end tests launch servers with it, so the program becomes the process that was started here.

#[path = "../tests/seccomp/mod.rs"]
mod seccomp;

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use seccomp::{Refusal, refuse};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let Some((errno, [program, rest @ ..])) = arguments.split_first() else {
        return fail("usage: refuse_ring EPERM|ENOSYS PROGRAM ARGUMENT...");
    };
    let errno = match errno.to_str() {
        Some("EPERM") => libc::EPERM,
        Some("ENOSYS") => libc::ENOSYS,
        _ => return fail("the error is EPERM or ENOSYS"),
    };
    let call = libc::SYS_io_uring_setup;
    if let Err(error) = refuse(Refusal { call, errno }) {
        return fail(&format!("no filter of system calls: {error}"));
    }
    let error = Command::new(program).args(rest).exec();
    fail(&format!("{}: {error}", program.display()))
}

fn fail(what: &str) -> ExitCode {
    eprintln!("refuse_ring: {what}");
    ExitCode::FAILURE
}

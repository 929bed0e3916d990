//! A filter of system calls: the calls of `io_uring` fail in the calling thread and in its children, as they do in
//! containers and on old kernels. For the tests of the sends and for the launcher `refuse_ring`.

use std::io;

/// The system calls that a filter refuses, and its error number.
#[derive(Clone, Copy, Debug)]
pub struct Refusal {
    /// The number of the system call.
    pub call: libc::c_long,
    /// The error.
    pub errno: i32,
}

/// Puts the filter before the calling thread. It stays for the thread's life and is inherited, also through `execve`.
///
/// # Errors
/// The kernel has no such filters, or a filter that is in force already forbids more.
pub fn refuse(refusal: Refusal) -> io::Result<()> {
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let jump_if_equal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let answer = (libc::BPF_RET | libc::BPF_K) as u16;
    let instruction = |code, jump_true, jump_false, operand| libc::sock_filter {
        code,
        jt: jump_true,
        jf: jump_false,
        k: operand,
    };
    // The first word of `seccomp_data` is the number of the call. Another architecture's numbers need no check: this
    // filter protects nothing.
    let mut program = [
        instruction(load, 0, 0, 0),
        instruction(jump_if_equal, 0, 1, refusal.call as u32),
        instruction(answer, 0, 0, libc::SECCOMP_RET_ERRNO | refusal.errno as u32),
        instruction(answer, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // Without this only root may filter.
    // SAFETY: the call takes numbers only.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel reads filter and program, which live through the call, and keeps a copy.
    let outcome = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const filter,
        )
    };
    match outcome {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

//! How the C library's allocator gives memory back. Rust's allocations are its own, so what holds here holds for all buffers.

/// A block of at least this size is a mapping of its own, which goes back to the system when it is freed. Below it are the messages of
/// nearly everybody; above it outboxes, half-received messages and long turn logs, which make up a flood. Linux's own default; what matters
/// is that it stays.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_BYTES_MIN: libc::c_int = 128 << 10;

/// So much free memory at the end of an arena is kept for the next time, so that what a turn frees does not go to and fro.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const TRIMMED_BYTES_MIN: libc::c_int = 2 << 20;

/// Has memory of large blocks go back at once when they are freed, whatever was freed before. To be called before other threads run.
///
/// Left alone, the allocator raises both limits with each large block that is freed, to 32 and 64 MiB. From then on such blocks lie among
/// small ones in its arenas, where one that is in use keeps what was freed around it: after a flood the process stays as large as it
/// was. A decision of the process, not of a shard, hence no option.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn give_back_large_blocks() {
    for (option, bytes) in [
        (libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN),
        (libc::M_TRIM_THRESHOLD, TRIMMED_BYTES_MIN),
    ] {
        // SAFETY: it takes two numbers and changes the allocator's settings under its lock.
        let is_set = unsafe { libc::mallopt(option, bytes) };
        debug_assert_eq!(is_set, 1, "the allocator takes {option}");
    }
}

/// Gives the pages of free memory back to the system that lie between blocks which are in use. It looks at free blocks of a page and
/// more, and a thread that allocates meanwhile may have to wait for its part, so it is for the time after a flood.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn give_back_free_pages() {
    // SAFETY: it takes a number and works on the allocator's own structures under their locks.
    unsafe { libc::malloc_trim(0) };
}

/// Other C libraries have no such function.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn give_back_free_pages() {}

/// Other C libraries have no such limits.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn give_back_large_blocks() {}

//! Settings of the C library's allocator, which also serves Rust's allocations and so all buffers.

/// A block of at least this size is a separate mapping, which returns to the system when it is freed. Smaller blocks are
/// reused: new pages would cost a message of a megabyte more than its checks. Larger ones are outboxes and turn logs of
/// a flood.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_BYTES_MIN: libc::c_int = 3 << 19;

/// This much free memory stays at the end of an arena, so that a turn's memory does not move to and fro.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const TRIMMED_BYTES_MIN: libc::c_int = 4 << 20;

/// Makes large blocks return to the system at once when they are freed, whatever was freed before. Call it before
/// other threads run.
///
/// By default the allocator raises both limits with each large block that is freed, to 32 and 64 MiB. Afterwards such
/// blocks are among small ones in its arenas, and a used block pins the freed memory around it: after a flood the
/// process stays as large as it was. A decision of the process, not of a shard, so it is not an option.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn give_back_large_blocks() {
    for (option, bytes) in [
        (libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN),
        (libc::M_TRIM_THRESHOLD, TRIMMED_BYTES_MIN),
    ] {
        // SAFETY: it takes two numbers and changes the allocator's settings under its lock.
        let is_set = unsafe { libc::mallopt(option, bytes) };
        debug_assert_eq!(is_set, 1, "the allocator accepts option {option}");
    }
}

/// Returns the pages of free memory between used blocks to the system. It visits free blocks of a page and more, and
/// a thread that allocates at the same time may have to wait for its arena, so call it only after a flood.
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

//! Memory of large blocks returns to the system. A separate process, because the allocator is shared by the whole
//! process.

#![cfg(all(target_os = "linux", target_env = "gnu"))]

use std::fs;

const MEBIBYTE: usize = 1 << 20;

/// Resident bytes of the process.
fn resident_bytes() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Blocks with content, each with something small behind it that stays.
fn blocks_among_small_ones(count: usize, bytes: usize) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    (0..count).map(|_| (vec![1; bytes], vec![1; 64])).unzip()
}

// One test, in this order: free memory of small blocks in an arena would serve the large ones, which then do not go back.
#[test]
fn freed_memory_goes_back() {
    large_blocks_go_back_though_small_ones_between_them_stay();
    free_pages_between_blocks_that_stay_go_back_on_demand();
}

fn large_blocks_go_back_though_small_ones_between_them_stay() {
    tidewire_net::allocator::give_back_large_blocks();
    // A shard is a thread with its own arena.
    let kept = std::thread::spawn(|| {
        // A freed block of this size would raise the allocator's own limit.
        drop(vec![1_u8; 16 * MEBIBYTE]);
        let before = resident_bytes();
        let (large, small) = blocks_among_small_ones(32, 2 * MEBIBYTE);
        assert!(resident_bytes() > before + 60 * MEBIBYTE);
        drop(large);
        let kept = resident_bytes().saturating_sub(before);
        drop(small);
        kept
    });
    let kept = kept.join().unwrap();
    assert!(kept < 4 * MEBIBYTE, "{kept} bytes are kept");
}

fn free_pages_between_blocks_that_stay_go_back_on_demand() {
    let kept = std::thread::spawn(|| {
        let before = resident_bytes();
        let (small, stay) = blocks_among_small_ones(64 * 256, 4 * 4096);
        assert!(resident_bytes() > before + 60 * MEBIBYTE);
        drop(small);
        let kept_before = resident_bytes().saturating_sub(before);
        tidewire_net::allocator::give_back_free_pages();
        let kept = resident_bytes().saturating_sub(before);
        drop(stay);
        (kept_before, kept)
    });
    let (kept_before, kept) = kept.join().unwrap();
    assert!(kept_before > 60 * MEBIBYTE, "{kept_before}");
    // The pages around the blocks that stay are in use.
    assert!(kept < kept_before / 2, "{kept} of {kept_before} bytes");
}

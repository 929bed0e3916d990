//! Memory of large blocks goes back to the system. A process of its own, because the allocator is the process's.

#![cfg(all(target_os = "linux", target_env = "gnu"))]

use std::fs;

const MEBIBYTE: usize = 1 << 20;

/// Bytes of the process that lie in memory.
fn resident_bytes() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Blocks with content, each with something small behind it that stays.
fn blocks_among_small_ones(count: usize, bytes: usize) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    (0..count).map(|_| (vec![1; bytes], vec![1; 64])).unzip()
}

#[test]
fn large_blocks_go_back_though_small_ones_between_them_stay() {
    tidewire_net::allocator::give_back_large_blocks();
    // A shard is a thread with an arena of its own.
    let kept = std::thread::spawn(|| {
        // A freed block of this size would raise the allocator's own limit.
        drop(vec![1_u8; 16 * MEBIBYTE]);
        let before = resident_bytes();
        let (large, small) = blocks_among_small_ones(64, MEBIBYTE);
        assert!(resident_bytes() > before + 60 * MEBIBYTE);
        drop(large);
        let kept = resident_bytes().saturating_sub(before);
        drop(small);
        kept
    });
    let kept = kept.join().unwrap();
    assert!(kept < 4 * MEBIBYTE, "{kept} bytes are kept");
}

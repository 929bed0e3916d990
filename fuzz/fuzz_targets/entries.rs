//! The entries that nodes post to each other: a stream of batches, whole and split at random.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidewire_fuzz::entries::finding;

fuzz_target!(|input: &[u8]| {
    if let Some(what) = finding(input) {
        panic!("{what}");
    }
});

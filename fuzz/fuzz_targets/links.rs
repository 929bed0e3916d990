//! Frames of links: arbitrary operations and frames for one link.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidewire_fuzz::links::finding;

fuzz_target!(|input: &[u8]| {
    if let Some(what) = finding(input) {
        panic!("{what}");
    }
});

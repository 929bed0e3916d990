//! All decoders: a WebSocket stream, split at random, and the deepstream messages in it: as protobuf
//! if a message is binary, as JSON if it is text.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidewire_fuzz::harness::finding;

fuzz_target!(|input: &[u8]| {
    if let Some(what) = finding(input) {
        panic!("{what}");
    }
});

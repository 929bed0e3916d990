//! All decoders: a WebSocket stream in random cuts, and the deepstream message in each of its messages: in
//! protobuf where it is bytes, in JSON where it is text.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidewire_fuzz::harness::finding;

fuzz_target!(init: tidewire_fuzz::plant(), |input: &[u8]| {
    if let Some(what) = finding(input) {
        panic!("{what}");
    }
});

//! The parts of requests that the HTTP API parses: batches, targets, credentials, conditions, ids of streams.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidewire_fuzz::server::api::TARGET;

fuzz_target!(init: tidewire_fuzz::begin(&TARGET), |input: &[u8]| drop((TARGET.check_input)(input)));

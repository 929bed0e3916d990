//! Reading and verifying tokens, reading keys.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidewire_fuzz::server::jwt::TARGET;

fuzz_target!(init: tidewire_fuzz::begin(&TARGET), |input: &[u8]| drop((TARGET.check_input)(input)));

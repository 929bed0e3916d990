//! Heads of the PROXY protocol, `Forwarded` and `X-Forwarded-For`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidewire_fuzz::server::client_address::TARGET;

fuzz_target!(init: tidewire_fuzz::begin(&TARGET), |input: &[u8]| drop((TARGET.check_input)(input)));

//! JSON patches and merge patches of whole documents.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidewire_fuzz::server::json_patch::TARGET;

fuzz_target!(init: tidewire_fuzz::begin(&TARGET), |input: &[u8]| drop((TARGET.check_input)(input)));

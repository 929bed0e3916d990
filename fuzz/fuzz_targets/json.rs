//! Checking, patching and searching JSON as text.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/tidewire-json/tests/json_check/mod.rs"]
mod json_check;

fuzz_target!(|input: &str| json_check::check_input(input));

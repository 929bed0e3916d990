//! Checking, patching and searching JSON as text.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/tidewire-core/tests/json_judge/mod.rs"]
mod json_judge;

fuzz_target!(|input: &str| json_judge::judge(input));

//! Loads rules files, parses rules and evaluates them.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/tidewire-rules/tests/rule_check/mod.rs"]
mod rule_check;

fuzz_target!(|input: &str| {
    rule_check::check_input(input);
});

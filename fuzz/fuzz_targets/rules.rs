//! Loads rules files, parses rules and evaluates them.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/tidewire-rules/tests/rule_judge/mod.rs"]
mod rule_judge;

fuzz_target!(|input: &str| {
    rule_judge::judge(input);
});

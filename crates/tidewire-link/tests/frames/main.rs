//! Tests of frames and of a link that receives arbitrary frames: vectors, the fuzzer's corpus. One program, because both share the checks
//! in `check`, which the fuzz target uses too.

mod check;
mod corpus;
#[path = "../../../tidewire-wire/tests/shared/hex.rs"]
mod hex;
mod vectors;

//! Tests of the wire form of entries: vectors, properties, the fuzzer's corpus. One program, because all of them share the checks in
//! `check`, which the fuzz target uses too.

mod check;
mod corpus;
#[path = "../shared/hex.rs"]
mod hex;
mod properties;
mod samples;
mod vectors;

//! Tests of the codecs: vectors, properties, the fuzzer's corpus, planted faults. One program, because all of them
//! share the checks in `harness`, which the fuzz target uses too.

mod backend_vectors;
mod corpus;
mod deepstream_vectors;
mod harness;
#[path = "../shared/hex.rs"]
mod hex;
mod json_vectors;
mod mutation;
mod properties;
mod websocket_vectors;

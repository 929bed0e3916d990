//! What the fuzz targets and their tools share: the judge of the codecs, which `cargo test` runs over the committed
//! corpus, too.

#[path = "../../crates/tidewire-wire/tests/codec/harness/mod.rs"]
pub mod harness;

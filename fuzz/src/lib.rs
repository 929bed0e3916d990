//! Shared code of the fuzz targets and their tools: the checks, which `cargo test` also runs on the committed corpora.

pub mod corpus;
#[path = "../../crates/tidewire-wire/tests/entries/check/mod.rs"]
pub mod entries;
#[path = "../../crates/tidewire-wire/tests/codec/harness/mod.rs"]
pub mod harness;
#[path = "../../crates/tidewire-wire/tests/shared/hex.rs"]
pub mod hex;
#[path = "../../crates/tidewire-link/tests/frames/check/mod.rs"]
pub mod links;
#[cfg(feature = "server")]
#[path = "../../crates/tidewire-server/tests/fuzz/check/mod.rs"]
pub mod server;

/// Targets that do not contain the server, whose build takes most of the time.
pub const WITHOUT_SERVER: [&str; 5] = ["decode", "entries", "json", "links", "rules"];

/// The variable with the name of a planted fault. Only the copy of the tree in which `e2e/faults` plants faults reads it.
pub const PLANTED_FAULT: &str = "PLANTED_FAULT";

/// The variable with a folder. If it is set, a target of the server writes its seeds there and checks no inputs.
pub const SEEDS_FOLDER: &str = "SEEDS_FOLDER";

/// Starts a target of the server: writes its seeds if the environment names a folder.
///
/// # Panics
/// The seeds can't be written.
#[cfg(feature = "server")]
pub fn begin(target: &server::Target) {
    let Some(folder) = std::env::var_os(SEEDS_FOLDER).map(std::path::PathBuf::from) else {
        return;
    };
    for (index, seed) in (target.seeds)().iter().enumerate() {
        std::fs::write(folder.join(format!("seed-{index:03}")), seed).expect("a seed is written");
    }
    std::process::exit(0);
}

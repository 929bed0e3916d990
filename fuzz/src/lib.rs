//! What the fuzz targets and their tools share: the judges, which `cargo test` runs over the committed corpora, too, and the
//! way in for planted faults.

pub mod corpus;
#[path = "../../crates/tidewire-wire/tests/codec/harness/mod.rs"]
pub mod harness;
#[cfg(feature = "server")]
#[path = "../../crates/tidewire-server/tests/fuzz/judge/mod.rs"]
pub mod server;

/// Targets that do not contain the server, which is most of what cargo would have to build.
pub const WITHOUT_SERVER: [&str; 3] = ["decode", "json", "rules"];

/// The variable that names a fault to be planted.
pub const PLANTED_FAULT: &str = "PLANTED_FAULT";

/// Plants the fault that the environment asks for, if any.
pub fn plant() {
    if let Ok(fault) = std::env::var(PLANTED_FAULT) {
        tidewire_core::planted_fault::plant(Some(Box::leak(fault.into_boxed_str())));
    }
}

/// The variable that names a folder, into which a target of the server then writes its seeds in place of judging anything.
pub const SEEDS_FOLDER: &str = "SEEDS_FOLDER";

/// Begins a target of the server: writes its seeds, if the environment asks for that, or plants a fault.
///
/// # Panics
/// The seeds can't be written.
#[cfg(feature = "server")]
pub fn begin(target: &server::Target) {
    plant();
    let Some(folder) = std::env::var_os(SEEDS_FOLDER).map(std::path::PathBuf::from) else {
        return;
    };
    for (index, seed) in (target.seeds)().iter().enumerate() {
        std::fs::write(folder.join(format!("seed-{index:03}")), seed).expect("a seed is written");
    }
    std::process::exit(0);
}

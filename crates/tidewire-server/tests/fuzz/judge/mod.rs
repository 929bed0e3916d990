//! What must hold for any bytes from outside: the judges that the fuzz targets, the replay of their corpora and the mutation
//! loop share. Each compares the product with a model that was written without it, and names what an input reached.

pub mod api;
pub mod client_address;
pub mod config;
pub mod json_patch;
pub mod jwt;

use std::collections::BTreeSet;

/// What an input reached: outcomes, kinds of input, branches.
pub type Reached = BTreeSet<&'static str>;

/// Judges an input whose first letter says what the rest of it is.
fn judge_by_letter(input: &[u8], judge: impl FnOnce(u8, &str, &mut Reached)) -> Reached {
    let mut reached = Reached::new();
    if let Ok(text) = str::from_utf8(input)
        && let Some(letter) = text.bytes().next()
    {
        judge(letter, text.get(1..).unwrap_or_default(), &mut reached);
    }
    reached
}

/// One fuzz target.
pub struct Target {
    /// Of the target and of its archive in `fuzz/corpus`.
    pub name: &'static str,
    /// Panics if the input shows a fault.
    pub judge: fn(&[u8]) -> Reached,
    /// Inputs of every kind, from which the corpus grew.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Everything that the corpus has to reach.
    pub reachable: &'static [&'static str],
    /// Faults that can be planted in what it judges.
    pub faults: &'static [&'static str],
}

/// The targets of this crate.
pub const TARGETS: [&Target; 5] = [
    &jwt::TARGET,
    &api::TARGET,
    &json_patch::TARGET,
    &config::TARGET,
    &client_address::TARGET,
];

//! The checks for bytes from outside. The fuzz targets, the replay of their corpora and the mutation loop share them. Each check
//! compares the product with an independent model and names the places that an input reached.

pub mod api;
pub mod client_address;
pub mod config;
pub mod json_patch;
pub mod jwt;

use std::collections::BTreeSet;

/// The places that an input reached: outcomes, kinds of input, branches.
pub type Reached = BTreeSet<&'static str>;

/// Checks an input whose first letter is the kind of the rest.
fn check_by_letter(input: &[u8], check: impl FnOnce(u8, &str, &mut Reached)) -> Reached {
    let mut reached = Reached::new();
    if let Ok(text) = str::from_utf8(input)
        && let Some(letter) = text.bytes().next()
    {
        check(letter, text.get(1..).unwrap_or_default(), &mut reached);
    }
    reached
}

/// One fuzz target.
pub struct Target {
    /// The name of the target and of its archive in `fuzz/corpus`.
    pub name: &'static str,
    /// Panics if the input shows a fault.
    pub check_input: fn(&[u8]) -> Reached,
    /// Inputs of every kind, from which the fuzzer built the corpus.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// All places that the corpus must reach.
    pub reachable: &'static [&'static str],
}

/// The targets of this crate.
pub const TARGETS: [&Target; 5] = [
    &jwt::TARGET,
    &api::TARGET,
    &json_patch::TARGET,
    &config::TARGET,
    &client_address::TARGET,
];

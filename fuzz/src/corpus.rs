//! Reads the committed corpora: `fuzz/corpus/TARGET.tar.gz` holds the inputs of one fuzz target. The tests of several crates include
//! this file, because they replay a corpus without unpacking it. The program `corpus` writes the archives.

use std::fs::File;
use std::io::{Read, Result};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use tar::Archive;

/// The inputs of a target with their names, in the order of the names, so that mutations of them repeat.
///
/// # Errors
/// The archive is missing or damaged.
pub fn read(target: &str) -> Result<Vec<(String, Vec<u8>)>> {
    let archive = File::open(folder().join(format!("{target}.tar.gz")))?;
    let mut inputs = Vec::new();
    for entry in Archive::new(GzDecoder::new(archive)).entries()? {
        let mut entry = entry?;
        let name = entry.path()?.to_string_lossy().into_owned();
        let mut input = Vec::new();
        entry.read_to_end(&mut input)?;
        inputs.push((name, input));
    }
    inputs.sort();
    Ok(inputs)
}

/// The folder of the archives, as seen from the crate that includes this file.
///
/// # Panics
/// That crate is outside the repository.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|folder| folder.join("fuzz/corpus"))
        .find(|folder| folder.is_dir())
        .expect("the crate is in the repository")
}

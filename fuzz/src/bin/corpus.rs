//! Packs and unpacks the committed corpora. `corpus unpack [TARGET...]` writes the inputs of all or these targets to
//! `fuzz/corpus/TARGET/`, a folder that git ignores and `cargo fuzz run TARGET` adds to. `corpus pack TARGET...` makes the archives
//! from these folders: without copies of one input, in a fixed order and without times, so that equal inputs give equal archives.
//! `corpus minimise TARGET...` does both, and between them has `cargo fuzz cmin` delete the inputs that add no coverage.

use std::collections::HashSet;
use std::env;
use std::error::Error;
use std::fs::{self, File};
use std::process::Command;

use flate2::{Compression, GzBuilder};
use tar::{Builder, Header};
use tidewire_fuzz::{WITHOUT_SERVER, corpus};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Length of the names that libFuzzer gives: the input's SHA-1 in hexadecimal.
const HASH_NAME_BYTES: usize = 40;

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["unpack"] => all()?.iter().try_for_each(|target| unpack(target)),
        ["unpack", ref targets @ ..] => targets.iter().try_for_each(|target| unpack(target)),
        ["pack", ref targets @ ..] if !targets.is_empty() => {
            targets.iter().try_for_each(|target| pack(target))
        }
        ["minimise", ref targets @ ..] if !targets.is_empty() => {
            targets.iter().try_for_each(|target| minimise(target))
        }
        _ => Err("usage: corpus unpack [TARGET...] | corpus pack|minimise TARGET...".into()),
    }
}

/// The targets that have an archive.
fn all() -> Result<Vec<String>> {
    let mut targets = Vec::new();
    for entry in fs::read_dir(corpus::folder())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        targets.extend(name.strip_suffix(".tar.gz").map(str::to_owned));
    }
    targets.sort();
    Ok(targets)
}

fn unpack(target: &str) -> Result<()> {
    let inputs = corpus::read(target)?;
    let folder = corpus::folder().join(target);
    fs::create_dir_all(&folder)?;
    for (name, input) in &inputs {
        fs::write(folder.join(name), input)?;
    }
    println!("{target}: {} inputs in {}", inputs.len(), folder.display());
    Ok(())
}

fn minimise(target: &str) -> Result<()> {
    let folder = corpus::folder().join(target);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    unpack(target)?;
    let mut cargo = Command::new("cargo");
    // The sanitizer is unstable; this lets the installed stable compiler use it.
    cargo.env("RUSTC_BOOTSTRAP", "1").args(["fuzz", "cmin"]);
    if WITHOUT_SERVER.contains(&target) {
        cargo.arg("--no-default-features");
    }
    cargo.arg(target).current_dir(env!("CARGO_MANIFEST_DIR"));
    if !cargo.status()?.success() {
        return Err(format!("cargo fuzz cmin {target} failed; see its output above").into());
    }
    for (name, input) in corpus::read(target)? {
        if !is_hash(&name) {
            fs::write(folder.join(name), input)?;
        }
    }
    pack(target)
}

/// Whether libFuzzer chose the name. Tests look for the other names.
fn is_hash(name: &str) -> bool {
    name.len() == HASH_NAME_BYTES
}

fn pack(target: &str) -> Result<()> {
    let mut inputs = Vec::new();
    for entry in fs::read_dir(corpus::folder().join(target))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        inputs.push((name, fs::read(entry.path())?));
    }
    let found = inputs.len();
    // Of two equal inputs, keep the named one.
    inputs.sort_by_key(|(name, _)| (is_hash(name), name.clone()));
    let mut seen = HashSet::new();
    inputs.retain(|(_, input)| seen.insert(input.clone()));

    let file = File::create(corpus::folder().join(format!("{target}.tar.gz")))?;
    let mut archive = Builder::new(GzBuilder::new().mtime(0).write(file, Compression::best()));
    for (name, input) in &inputs {
        let mut header = Header::new_ustar();
        header.set_size(u64::try_from(input.len())?);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, input.as_slice())?;
    }
    archive.into_inner()?.finish()?;
    println!("{target}: {} inputs of {found} packed", inputs.len());
    Ok(())
}

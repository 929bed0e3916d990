//! Lists the web pages that go into the binary. Each folder in `pages/` is one site; `make pages` builds its files. The site of
//! the documentation is built here.

mod book;

use std::env::var;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    let package = PathBuf::from(var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(var("OUT_DIR").expect("cargo sets it"));
    let root = package.join("pages");
    println!("cargo:rerun-if-changed={}", root.display());
    let mut code = String::new();
    for folder in entries(&root) {
        let mut files = Vec::new();
        collect(&folder, "", &mut files);
        list(
            &mut code,
            file_name(&folder),
            files,
            ("CARGO_MANIFEST_DIR", &package),
        );
    }
    let documents = book::make(&package.join("../.."), &out.join("docs"));
    list(&mut code, "docs", documents, ("OUT_DIR", &out));
    fs::write(out.join("sites.rs"), code).expect("the target folder can be written to");
}

/// Writes the constant of a site. The paths of its files are relative to the folder that the environment variable names. The
/// code does not contain that folder itself, so a release is the same wherever it is built.
fn list(
    code: &mut String,
    name: &str,
    mut files: Vec<(String, PathBuf)>,
    (variable, folder): (&str, &Path),
) {
    files.sort();
    let constant = name.to_ascii_uppercase();
    let _ = writeln!(code, "static {constant}_FILES: [File; {}] = [", files.len());
    for (path, url_path) in files {
        let url_path = url_path.strip_prefix(folder).expect("a file of the site");
        let url_path = format!("/{}", url_path.display());
        let _ = writeln!(
            code,
            "    File::new({path:?}, include_bytes!(concat!(env!({variable:?}), {url_path:?}))),"
        );
    }
    let _ = writeln!(
        code,
        "];\n/// What was built of the site `{name}`.\npub static {constant}: Site = Site::new({name:?}, &{constant}_FILES);"
    );
}

/// All files below `folder`, each with its path relative to it.
fn collect(folder: &Path, prefix: &str, files: &mut Vec<(String, PathBuf)>) {
    for entry in entries(folder) {
        let path = format!("{prefix}{}", file_name(&entry));
        if entry.is_dir() {
            collect(&entry, &format!("{path}/"), files);
        } else {
            files.push((path, entry));
        }
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)
        .expect("a folder of pages")
        .map(|entry| entry.expect("a folder that can be read").path())
        .collect();
    entries.sort();
    entries
}

fn file_name(path: &Path) -> &str {
    let name = path.file_name().expect("an entry of a folder has a name");
    name.to_str().expect("names of pages are UTF-8")
}

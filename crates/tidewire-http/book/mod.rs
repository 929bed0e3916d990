//! Builds the documentation site from the documents in this repository, so that each version of the server serves its own
//! documentation.
//!
//! `render` turns a document into HTML, with the help of `highlight` for code; `frame` puts it into a page with the menu; `search`
//! writes the index for `search.js`. The addresses of pages do not end with `.html`; `site.rs` finds the files.

mod frame;
mod highlight;
mod render;
mod search;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use render::{Rendered, escaped};

/// A part of the menu: its name, and its documents with the addresses of their pages, relative to the site.
type Group = (&'static str, &'static [(&'static str, &'static str)]);

/// Documents and the pages built from them, in the order of the menu and of the links to the previous and the next page.
const MENU: [Group; 5] = [
    (
        "Start",
        &[
            ("README.md", ""),
            ("docs/comparison.md", "comparison"),
            ("docs/five-minutes.md", "five-minutes"),
            ("docs/tutorial.md", "tutorial"),
            ("packages/tidewire/README.md", "npx"),
            ("packages/create-tidewire/README.md", "new-app"),
            ("packages/client/README.md", "client"),
            ("packages/react/README.md", "react"),
            ("packages/vue/README.md", "vue"),
            ("packages/svelte/README.md", "svelte"),
            ("packages/solid/README.md", "solid"),
            ("packages/python/README.md", "python-start"),
            ("examples/demo/README.md", "demo"),
            ("docs/from-deepstream.md", "from-deepstream"),
            ("docs/from-socketio.md", "from-socketio"),
        ],
    ),
    (
        "User guide",
        &[
            ("docs/records.md", "records"),
            ("docs/data-modelling.md", "data-modelling"),
            ("docs/events.md", "events"),
            ("docs/rpc.md", "rpc"),
            ("docs/presence.md", "presence"),
            ("docs/listening.md", "listening"),
            ("docs/socketio.md", "socketio"),
            ("docs/backends.md", "backends"),
            ("docs/authentication.md", "authentication"),
            ("docs/permissions.md", "permissions"),
            ("docs/client.md", "client-reference"),
            ("docs/react.md", "react-reference"),
            ("docs/bindings.md", "bindings"),
            ("docs/python.md", "python"),
            ("docs/offline.md", "offline"),
            ("docs/testing-an-app.md", "testing-an-app"),
            ("docs/troubleshooting.md", "troubleshooting"),
        ],
    ),
    (
        "Reference",
        &[
            ("docs/guarantees.md", "guarantees"),
            ("docs/client-api.md", "client-api"),
            ("docs/http-api.md", "http-api"),
            ("docs/http-reference.md", "http-reference"),
            ("docs/configuration.md", "configuration"),
            ("docs/cli.md", "cli"),
            ("docs/errors.md", "errors"),
            ("docs/glossary.md", "glossary"),
        ],
    ),
    (
        "Operation",
        &[
            ("docs/deployment.md", "deployment"),
            ("docs/sizing.md", "sizing"),
            ("docs/operations.md", "operations"),
            ("docs/upgrades.md", "upgrades"),
            ("docs/stores.md", "stores"),
            ("docs/cluster.md", "cluster"),
            ("docs/admin-page.md", "admin-page"),
            ("docs/admin-api.md", "admin-api"),
            ("docs/torture.md", "torture"),
            ("SECURITY.md", "security"),
        ],
    ),
    (
        "Internals",
        &[
            ("ARCHITECTURE.md", "architecture"),
            ("CONTRIBUTING.md", "contributing"),
            ("docs/testing.md", "testing"),
            ("e2e/README.md", "e2e"),
            ("docs/internals/performance.md", "performance"),
            ("docs/bench.md", "bench"),
            ("docs/proof.md", "proof"),
            ("CHANGELOG.md", "changelog"),
        ],
    ),
];
/// Folders whose documents become pages with the same names. Each folder also gets a page with a list of them, at the end of the
/// menu.
const FOLDERS: [(&str, &str, &str); 3] = [
    ("docs/carriers", "carriers", "Carriers of links"),
    ("spec", "spec", "Specifications"),
    ("docs/decisions", "decisions", "Decisions"),
];
/// Other files of the site.
const FILES: [(&str, &str); 4] = [
    ("style.css", include_str!("style.css")),
    ("page.js", include_str!("page.js")),
    ("search.js", include_str!("search.js")),
    ("icon.svg", include_str!("../pages/demo/icon.svg")),
];

/// A document.
struct Document {
    /// The path relative to the root of the repository.
    source: String,
    /// The address of its page, relative to the root of the site.
    address: String,
    title: String,
    text: String,
}

/// Writes the site into `out`, and returns its files, each with its path in the site.
///
/// # Panics
/// A document of the menu is missing, or has no heading.
pub fn make(repository: &Path, out: &Path) -> Vec<(String, PathBuf)> {
    let documents = documents(repository);
    let mut targets: HashMap<&str, String> = documents
        .iter()
        .map(|document| (document.source.as_str(), document.address.clone()))
        .collect();
    for (source, folder, _) in FOLDERS {
        targets.insert(source, format!("{folder}/"));
    }
    let mut pages: Vec<(&str, String, Rendered)> = documents
        .iter()
        .map(|document| {
            let rendered = render::rendered(document, &targets);
            (document.title.as_str(), document.address.clone(), rendered)
        })
        .collect();
    for folder in FOLDERS {
        let (_, address, title) = folder;
        pages.push((title, format!("{address}/"), list(folder, &documents)));
    }
    let mut files = BTreeMap::new();
    for (title, address, page) in &pages {
        let page = frame::framed(address, title, page, &documents);
        files.insert(file_of(address), page);
    }
    let index = search::index(pages.iter().map(|(title, address, page)| search::Page {
        address,
        title,
        group: group_of(address),
        sections: &page.sections,
    }));
    files.insert("search.json".to_owned(), index);
    for (name, text) in FILES {
        files.insert(name.to_owned(), text.to_owned());
    }
    let write = |(path, text): (String, String)| {
        let file = out.join(&path);
        let folder = file.parent().expect("a page is in a folder");
        fs::create_dir_all(folder).expect("the target folder can be written to");
        fs::write(&file, text).expect("the target folder can be written to");
        (path, file)
    };
    files.into_iter().map(write).collect()
}

/// The file of the page with this address.
fn file_of(address: &str) -> String {
    match address.is_empty() || address.ends_with('/') {
        true => format!("{address}index.html"),
        false => format!("{address}.html"),
    }
}

/// The name of the part of the menu that has the page, or its folder.
fn group_of(address: &str) -> &'static str {
    let has = |(_, group): &&Group| group.iter().any(|(_, page)| *page == address);
    MENU.iter().find(has).map_or("Internals", |(name, _)| *name)
}

/// A page with the list of a folder's documents.
fn list((source, folder, title): (&str, &str, &str), documents: &[Document]) -> Rendered {
    let mut html = format!("<h1>{title}</h1>\n<ul>\n");
    let prefix = format!("{source}/");
    for document in documents
        .iter()
        .filter(|document| document.source.starts_with(&prefix))
    {
        let name = &document.address[folder.len() + 1..];
        let title = escaped(&document.title);
        let _ = writeln!(html, "<li><a href=\"{name}\">{title}</a></li>");
    }
    html += "</ul>\n";
    Rendered {
        html,
        ..Rendered::default()
    }
}

fn documents(repository: &Path) -> Vec<Document> {
    let mut documents = Vec::new();
    let mut add = |source: &str, address: String| {
        let path = repository.join(source);
        println!("cargo:rerun-if-changed={}", path.display());
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{source}: {error}"));
        let title = text.lines().find_map(|line| line.strip_prefix("# "));
        let title = title.unwrap_or_else(|| panic!("{source} has no heading"));
        documents.push(Document {
            source: source.to_owned(),
            address,
            title: title.replace('`', ""),
            text,
        });
    };
    for (source, address) in MENU.iter().flat_map(|(_, group)| group.iter()) {
        add(source, (*address).to_owned());
    }
    for (source, folder, _) in FOLDERS {
        let path = repository.join(source);
        println!("cargo:rerun-if-changed={}", path.display());
        let entries = fs::read_dir(path).expect("a folder of documents");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
        names.sort();
        for name in names.iter().filter_map(|name| name.strip_suffix(".md")) {
            add(&format!("{source}/{name}.md"), format!("{folder}/{name}"));
        }
    }
    documents
}

/// The relative path from a page to the root of the site; empty from a page at the root.
fn to_root(address: &str) -> String {
    "../".repeat(address.matches('/').count())
}

/// The link from a page to another one.
fn link(from: &str, to: &str) -> String {
    match format!("{}{to}", to_root(from)) {
        empty if empty.is_empty() => "./".to_owned(),
        path => path,
    }
}

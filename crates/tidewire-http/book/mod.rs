//! Builds the documentation site from the documents in this repository, so that each version of the server serves its own
//! documentation.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::path::{Component, Path, PathBuf};

use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};

/// Documents and their pages.
type Group = &'static [(&'static str, &'static str)];

/// Documents and the pages built from them, in the order of the menu.
const MENU: [(&str, Group); 5] = [
    (
        "Begin",
        &[
            ("README.md", "index.html"),
            ("docs/five-minutes.md", "five-minutes.html"),
            ("packages/client/README.md", "client.html"),
            ("packages/react/README.md", "react.html"),
            ("examples/demo/README.md", "demo.html"),
            ("docs/from-deepstream.md", "from-deepstream.html"),
        ],
    ),
    (
        "Use",
        &[
            ("docs/records.md", "records.html"),
            ("docs/events.md", "events.html"),
            ("docs/rpc.md", "rpc.html"),
            ("docs/presence.md", "presence.html"),
            ("docs/listening.md", "listening.html"),
            ("docs/guarantees.md", "guarantees.html"),
            ("docs/authentication.md", "authentication.html"),
            ("docs/permissions.md", "permissions.html"),
            ("docs/client.md", "client-reference.html"),
            ("docs/react.md", "react-reference.html"),
            ("docs/offline.md", "offline.html"),
            ("docs/client-api.md", "client-api.html"),
            ("docs/http-api.md", "http-api.html"),
            ("docs/http-reference.md", "http-reference.html"),
            ("docs/errors.md", "errors.html"),
        ],
    ),
    (
        "Operate",
        &[
            ("docs/deployment.md", "deployment.html"),
            ("docs/operations.md", "operations.html"),
            ("docs/configuration.md", "configuration.html"),
            ("docs/cli.md", "cli.html"),
            ("docs/stores.md", "stores.html"),
            ("docs/admin-page.md", "admin-page.html"),
            ("docs/admin-api.md", "admin-api.html"),
            ("docs/torture.md", "torture.html"),
            ("SECURITY.md", "security.html"),
        ],
    ),
    (
        "Measure",
        &[
            ("docs/internals/performance.md", "performance.html"),
            ("docs/bench.md", "bench.html"),
            ("docs/proof.md", "proof.html"),
        ],
    ),
    (
        "Work on it",
        &[
            ("ARCHITECTURE.md", "architecture.html"),
            ("CONTRIBUTING.md", "contributing.html"),
            ("docs/testing.md", "testing.html"),
            ("CHANGELOG.md", "changelog.html"),
            ("e2e/README.md", "e2e.html"),
        ],
    ),
];
/// Folders whose documents become pages with the same names. Each folder also gets a page with a list of them.
const FOLDERS: [(&str, &str, &str); 2] = [
    ("spec", "spec", "Specifications"),
    ("docs/decisions", "decisions", "Decisions"),
];
/// Other files of the site.
const FILES: [(&str, &str); 2] = [
    ("style.css", include_str!("style.css")),
    ("icon.svg", include_str!("../pages/demo/icon.svg")),
];
/// A page with at least this many headings begins with a list of them.
const CONTENTS_MIN: usize = 4;

/// A document.
struct Document {
    /// The path relative to the root of the repository.
    source: String,
    /// The path relative to the root of the site.
    target: String,
    title: String,
    text: String,
}

/// Writes the site into `out`, and returns its files, each with its path in the site.
///
/// # Panics
/// A document of the menu is missing, or has no heading.
pub fn make(repository: &Path, out: &Path) -> Vec<(String, PathBuf)> {
    let documents = documents(repository);
    let targets = documents.iter();
    let mut targets: HashMap<&str, String> = targets
        .map(|document| (document.source.as_str(), document.target.clone()))
        .collect();
    for (source, target, _) in FOLDERS {
        targets.insert(source, format!("{target}/index.html"));
    }
    let mut pages = BTreeMap::new();
    for document in &documents {
        let page = rendered(document, &targets);
        let page = framed(&document.target, &document.title, &page, &documents);
        pages.insert(document.target.clone(), page);
    }
    for (source, target, title) in FOLDERS {
        let mut list = format!("<h1>{title}</h1>\n<ul>\n");
        let prefix = format!("{source}/");
        for document in documents
            .iter()
            .filter(|document| document.source.starts_with(&prefix))
        {
            let name = &document.target[target.len() + 1..];
            let _ = writeln!(
                list,
                "<li><a href=\"{name}\">{}</a></li>",
                escaped(&document.title)
            );
        }
        list += "</ul>\n";
        let target = format!("{target}/index.html");
        let page = framed(&target, title, &list, &documents);
        pages.insert(target, page);
    }
    for (name, text) in FILES {
        pages.insert(name.to_owned(), text.to_owned());
    }
    let write = |(target, page): (String, String)| {
        let path = out.join(&target);
        let folder = path.parent().expect("a page is in a folder");
        fs::create_dir_all(folder).expect("the target folder can be written to");
        fs::write(&path, page).expect("the target folder can be written to");
        (target, path)
    };
    pages.into_iter().map(write).collect()
}

fn documents(repository: &Path) -> Vec<Document> {
    let mut documents = Vec::new();
    let mut add = |source: &str, target: String| {
        let path = repository.join(source);
        println!("cargo:rerun-if-changed={}", path.display());
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{source}: {error}"));
        let title = text.lines().find_map(|line| line.strip_prefix("# "));
        let title = title.unwrap_or_else(|| panic!("{source} has no heading"));
        documents.push(Document {
            source: source.to_owned(),
            target,
            title: title.replace('`', ""),
            text,
        });
    };
    for (source, target) in MENU.iter().flat_map(|(_, group)| group.iter()) {
        add(source, (*target).to_owned());
    }
    for (source, target, _) in FOLDERS {
        let folder = repository.join(source);
        println!("cargo:rerun-if-changed={}", folder.display());
        let entries = fs::read_dir(folder).expect("a folder of documents");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
        names.sort();
        for name in names.iter().filter_map(|name| name.strip_suffix(".md")) {
            add(
                &format!("{source}/{name}.md"),
                format!("{target}/{name}.html"),
            );
        }
    }
    documents
}

/// Renders the document as HTML. HTML in the document is shown as text, not interpreted as markup.
fn rendered(document: &Document, targets: &HashMap<&str, String>) -> String {
    let mut events = Vec::new();
    let mut contents = Vec::new();
    let mut heading: Option<(usize, HeadingLevel, String)> = None;
    let mut taken: HashMap<String, u32> = HashMap::new();
    // If a link's start was dropped because it leads out of the site, its end must be dropped too.
    let mut is_dropped = Vec::new();
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
    for event in Parser::new_ext(&document.text, options) {
        match event {
            Event::Start(Tag::Heading { level, .. }) => {
                heading = Some((events.len(), level, String::new()));
                events.push(event);
            }
            Event::End(TagEnd::Heading(_)) => {
                if let Some((at, level, text)) = heading.take() {
                    let anchor = anchor(&text, &mut taken);
                    if level == HeadingLevel::H2 {
                        contents.push((anchor.clone(), text));
                    }
                    events[at] = Event::Start(Tag::Heading {
                        level,
                        id: Some(CowStr::from(anchor)),
                        classes: Vec::new(),
                        attrs: Vec::new(),
                    });
                }
                events.push(event);
            }
            Event::Start(Tag::Link {
                link_type,
                dest_url,
                title,
                id,
            }) => {
                let url = linked(document, &dest_url, targets);
                is_dropped.push(url.is_none());
                if let Some(url) = url {
                    let dest_url = CowStr::from(url);
                    events.push(Event::Start(Tag::Link {
                        link_type,
                        dest_url,
                        title,
                        id,
                    }));
                }
            }
            Event::End(TagEnd::Link) => {
                if is_dropped.pop() == Some(false) {
                    events.push(event);
                }
            }
            Event::Html(text) | Event::InlineHtml(text) => events.push(Event::Text(text)),
            Event::Start(Tag::Table(_)) => {
                events.push(Event::Html(
                    "<div class=\"wide\" tabindex=\"0\" role=\"group\" aria-label=\"table\">"
                        .into(),
                ));
                events.push(event);
            }
            Event::End(TagEnd::Table) => {
                events.push(event);
                events.push(Event::Html("</div>\n".into()));
            }
            other => {
                if let (Some((_, _, text)), Event::Text(part) | Event::Code(part)) =
                    (&mut heading, &other)
                {
                    text.push_str(part);
                }
                events.push(other);
            }
        }
    }
    let mut page = String::new();
    html::push_html(&mut page, events.into_iter());
    // Makes areas that scroll reachable by keyboard, and turns empty column headings into ordinary cells.
    let page = page.replace("<pre>", "<pre tabindex=\"0\">");
    let page = page.replace("<th></th>", "<td></td>");
    match page.split_once("</h1>\n") {
        Some((head, rest)) if contents.len() >= CONTENTS_MIN => {
            let mut list =
                "<nav class=\"contents\" aria-label=\"On this page\">\n<ul>\n".to_owned();
            for (anchor, text) in contents {
                let _ = writeln!(
                    list,
                    "<li><a href=\"#{anchor}\">{}</a></li>",
                    escaped(&text)
                );
            }
            format!("{head}</h1>\n{list}</ul>\n</nav>\n{rest}")
        }
        _ => page,
    }
}

/// The anchor of a heading in GitHub's form: letters and digits in lower case, dashes for spaces, and a number if the anchor
/// repeats.
fn anchor(text: &str, taken: &mut HashMap<String, u32>) -> String {
    let kept = text.to_lowercase();
    let kept = kept.chars().filter_map(|character| match character {
        ' ' => Some('-'),
        '-' | '_' => Some(character),
        _ => character.is_alphanumeric().then_some(character),
    });
    let anchor: String = kept.collect();
    let count = taken.entry(anchor.clone()).or_insert(0);
    *count += 1;
    match *count {
        1 => anchor,
        count => format!("{anchor}-{}", count - 1),
    }
}

/// The target of a document's link on the site; `None` if the site does not contain it.
fn linked(document: &Document, link: &str, targets: &HashMap<&str, String>) -> Option<String> {
    if link.contains("://") || link.starts_with('#') {
        return Some(link.to_owned());
    }
    let (path, anchor) = match link.split_once('#') {
        Some((path, anchor)) => (path, format!("#{anchor}")),
        None => (link, String::new()),
    };
    let mut resolved = PathBuf::new();
    let folder = Path::new(&document.source).parent()?;
    for part in folder.join(path).components() {
        match part {
            Component::ParentDir => {
                resolved.pop();
            }
            Component::Normal(name) => resolved.push(name),
            _ => {}
        }
    }
    let target = targets.get(resolved.to_str()?)?;
    Some(format!("{}{target}{anchor}", to_root(&document.target)))
}

/// The relative path from a page to the root of the site.
fn to_root(target: &str) -> String {
    "../".repeat(target.matches('/').count())
}

/// A page with its frame and the menu.
fn framed(target: &str, title: &str, content: &str, documents: &[Document]) -> String {
    let root = to_root(target);
    let title_of = |source: &str| {
        let found = documents.iter().find(|document| document.source == source);
        found.map_or("", |document| document.title.as_str())
    };
    let entry = |url: &str, title: &str| {
        let current = match url == target {
            true => " aria-current=\"page\"",
            false => "",
        };
        format!(
            "<li><a href=\"{root}{url}\"{current}>{}</a></li>\n",
            escaped(title)
        )
    };
    let mut menu = String::new();
    for (name, group) in MENU {
        let _ = writeln!(menu, "<h2>{name}</h2>\n<ul>");
        for (source, url) in group {
            menu += &entry(url, title_of(source));
        }
        menu += "</ul>\n";
    }
    menu += "<h2>Look up</h2>\n<ul>\n";
    for (_, folder, title) in FOLDERS {
        menu += &entry(&format!("{folder}/index.html"), title);
    }
    menu += "</ul>\n";
    let title = escaped(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title} - Tidewire</title>\n<link rel=\"icon\" href=\"{root}icon.svg\">\n<link rel=\"stylesheet\" href=\"{root}style.css\">\n</head>\n<body>\n\
         <a class=\"skip\" href=\"#menu\">All documents</a>\n<main>\n{content}</main>\n\
         <nav id=\"menu\" aria-label=\"Documents\">\n{menu}</nav>\n</body>\n</html>\n"
    )
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

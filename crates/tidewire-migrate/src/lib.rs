//! `tidewire import deepstream`: converts a deepstream configuration, with its files of rules and users, into one of Tidewire,
//! and imports records from the database of a deepstream server. Reports every setting that has no counterpart.
//!
//! `table` maps each setting; `draft` is the configuration under construction; [`records`] imports the records.

mod draft;
pub mod records;
mod table;

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tidewire_config::document::{self, Located, Node, SourcePosition};

use draft::Draft;
use table::{Becomes, setting};

/// Paths where deepstream looks for its configuration, relative to its folder.
const CONFIG_PATHS: [&str; 2] = ["config.yml", "conf/config.yml"];
const TARGET: &str = "tidewire.yml";
const REMATCH: &str = "listen.rematch_interval";

/// Writes the configuration of deepstream in `folder` as Tidewire's into `into`, or nothing with `is_dry`. Returns the report: the files,
/// and a line for each setting that has no counterpart.
///
/// # Errors
/// `folder` has no configuration, the configuration is not YAML, or a file to be written exists; the text is one line.
pub fn migrate(folder: &Path, into: &Path, is_dry: bool) -> Result<String, String> {
    let Some(source) = CONFIG_PATHS
        .iter()
        .map(|candidate| folder.join(candidate))
        .find(|path| path.is_file())
    else {
        let line = format!(
            "{}: has no {}",
            folder.display(),
            CONFIG_PATHS.join(" and no ")
        );
        return Err(line);
    };
    let shown = source.display().to_string();
    let text = fs::read_to_string(&source).map_err(|error| format!("{shown}: {error}"))?;
    // Variables keep their names, because Tidewire's configuration supports them too.
    let root = document::parse(&text, &|name| Some(format!("${{{name}}}"))).map_err(|error| {
        let position = error
            .position
            .map_or_else(String::new, |position| format!(":{}", position.line));
        format!("{shown}{position}: {}", error.reason)
    })?;
    let base = source.parent().unwrap_or(folder).to_owned();
    let mut draft = Draft::default();
    translate(&mut draft, &root);
    draft.complete();

    let mut files = vec![(into.join(TARGET), draft.yaml())];
    for (name, from) in draft.files() {
        let from = base.join(from);
        let content =
            fs::read_to_string(&from).map_err(|error| format!("{}: {error}", from.display()))?;
        files.push((into.join(name), content));
    }
    if !is_dry {
        write_new(&files)?;
    }
    let verb = if is_dry { "would write" } else { "written" };
    let names: Vec<_> = files
        .iter()
        .map(|(path, _)| path.display().to_string())
        .collect();
    let mut report = format!(
        "{} settings taken over; {verb}: {}\n",
        draft.count(),
        names.join(", ")
    );
    if draft.notes.is_empty() {
        report += "every setting has a counterpart\n";
    }
    for (position, key, note) in &draft.notes {
        let _ = writeln!(report, "{shown}:{}: {key}: {note}", position.line);
    }
    Ok(report)
}

/// Writes files, unless one of them exists.
fn write_new(files: &[(PathBuf, String)]) -> Result<(), String> {
    if let Some((path, _)) = files.iter().find(|(path, _)| path.exists()) {
        return Err(format!(
            "{}: already exists, so nothing was written; choose another folder with --into",
            path.display()
        ));
    }
    for (path, content) in files {
        let written = path
            .parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| create(path, content));
        written.map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

fn create(path: &Path, content: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(content.as_bytes())
}

/// Translates a whole document.
fn translate(draft: &mut Draft, root: &Located<Node>) {
    let Node::Map(sections) = &root.value else {
        return;
    };
    for (key, value) in sections {
        match (key.value.as_str(), &value.value) {
            ("connectionEndpoints", Node::List(entries)) => {
                draft.has_endpoints = true;
                for entry in entries {
                    service(draft, "connectionEndpoints", entry);
                }
            }
            ("auth", Node::List(entries)) => {
                for entry in entries {
                    service(draft, "auth", entry);
                }
            }
            ("auth" | "permission" | "httpServer", Node::Map(_)) => {
                service(draft, &key.value, value)
            }
            _ => leaf(draft, &key.value, value, key.position),
        }
    }
}

/// Translates a service: its kind and its options.
fn service(draft: &mut Draft, section: &str, entry: &Located<Node>) {
    let Node::Map(members) = &entry.value else {
        return;
    };
    let kind = members
        .iter()
        .find(|(key, _)| key.value == "type" || key.value == "name");
    let kind = match kind.map(|(_, value)| &value.value) {
        Some(Node::Scalar(kind)) => kind.clone(),
        _ => "default".to_owned(),
    };
    let name = format!("{section}.{kind}");
    let position = entry.position;
    if !draft.choose(section, &kind) {
        let note = table::missing_service(section, &kind);
        return draft.note(position, &name, note);
    }
    for (key, value) in members {
        match key.value.as_str() {
            "type" | "name" => (),
            "options" => leaf(draft, &name, value, key.position),
            other => draft.note(key.position, &format!("{name}.{other}"), table::UNKNOWN),
        }
    }
}

/// Translates a setting, or all settings below it.
fn leaf(draft: &mut Draft, path: &str, value: &Located<Node>, position: SourcePosition) {
    let rule = setting(path);
    match (rule, &value.value) {
        (None, Node::Map(members)) => {
            for (key, value) in members {
                leaf(draft, &format!("{path}.{}", key.value), value, key.position);
            }
        }
        (_, Node::Empty) => (),
        (None, _) => draft.note(position, path, table::UNKNOWN),
        (Some(rule), node) => become_option(draft, path, &rule, node, position),
    }
}

fn become_option(
    draft: &mut Draft,
    path: &str,
    rule: &Becomes,
    node: &Node,
    position: SourcePosition,
) {
    let texts: Vec<&str> = match node {
        Node::Scalar(text) => vec![text],
        Node::List(entries) => entries
            .iter()
            .filter_map(|entry| match &entry.value {
                Node::Scalar(text) => Some(text.as_str()),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    };
    let text = texts.first().copied().unwrap_or_default();
    draft.says_origins |= path.ends_with(".allowAllOrigins");
    let is_same = match rule {
        Becomes::Nothing => true,
        Becomes::NothingIf(usual, note) => {
            if text != *usual {
                draft.note(position, path, note);
            }
            true
        }
        Becomes::Missing(note) => {
            draft.note(position, path, note);
            true
        }
        Becomes::Value(option) => draft.set(option, text.to_owned()),
        Becomes::Milliseconds(option) => match text.parse::<u64>() {
            // An interval this short disables rematching in deepstream.
            Ok(..=1_000) if *option == REMATCH => draft.set(option, "never".to_owned()),
            Ok(count) => draft.set(option, format!("{count}ms")),
            Err(_) => {
                draft.note(
                    position,
                    path,
                    "is not a number of milliseconds; the default applies",
                );
                true
            }
        },
        Becomes::LoginTimeout => {
            draft.note(position, path, table::LOGIN_TIMEOUT);
            let time = match text.parse::<u64>() {
                Ok(count) => format!("{count}ms"),
                Err(_) => "never".to_owned(),
            };
            draft.set("auth.login_timeout", time)
        }
        Becomes::List(option) => draft.set_list(option, &texts),
        Becomes::Words(option, words) => match words.iter().find(|(word, _)| *word == text) {
            Some((_, value)) => draft.set(option, (*value).to_owned()),
            None => {
                draft.note(position, path, table::UNKNOWN);
                true
            }
        },
        Becomes::File(option, name) => match draft::loaded(text) {
            Some(from) => draft.take_file(option, name, from),
            None => {
                draft.note(
                    position,
                    path,
                    "is embedded in the configuration; move it to a file and load that file",
                );
                true
            }
        },
        Becomes::Path(option) => draft.set(option, draft::loaded(text).unwrap_or(text).to_owned()),
    };
    if !is_same {
        draft.note(
            position,
            path,
            "another endpoint sets a different value, which takes precedence",
        );
    }
}

//! The Tidewire configuration that a migration builds from one of deepstream's.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tidewire_config::document::SourcePosition;

use super::table::ALL_ORIGINS;

/// The settings that are taken over so far, and notes on the other ones.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// Values by option, as YAML.
    options: BTreeMap<String, String>,
    /// Files to write: the new name, and the path of the file to copy.
    files: Vec<(&'static str, String)>,
    chain: Vec<&'static str>,
    permission: Option<bool>,
    endpoints: Vec<String>,
    /// Whether the source restricts the origins of pages.
    pub(super) says_origins: bool,
    /// Whether the source lists its endpoints; if not, all are enabled.
    pub(super) has_endpoints: bool,
    /// Settings without a counterpart: place, name, and advice.
    pub(super) notes: Vec<(SourcePosition, String, String)>,
}

impl Draft {
    pub(super) fn note(&mut self, position: SourcePosition, key: &str, note: &str) {
        self.notes.push((position, key.to_owned(), note.to_owned()));
    }

    /// Sets an option to one value. Returns false if the option already has another value.
    pub(super) fn set(&mut self, option: &str, text: String) -> bool {
        self.put(option, scalar(&text))
    }

    pub(super) fn set_list(&mut self, option: &str, texts: &[&str]) -> bool {
        self.put(option, list(texts))
    }

    fn put(&mut self, option: &str, yaml: String) -> bool {
        let before = self
            .options
            .entry(option.to_owned())
            .or_insert_with(|| yaml.clone());
        *before == yaml
    }

    /// Copies a file to this name and sets the option to the name.
    pub(super) fn take_file(&mut self, option: &str, name: &'static str, from: &str) -> bool {
        self.files.push((name, from.to_owned()));
        self.set(option, name.to_owned())
    }

    pub(super) fn files(&self) -> &[(&'static str, String)] {
        &self.files
    }

    /// The number of options that are set.
    pub(super) fn count(&self) -> usize {
        self.options.len()
    }

    /// Selects the counterpart of a service. Returns false if Tidewire has none.
    pub(super) fn choose(&mut self, section: &str, kind: &str) -> bool {
        match (section, kind) {
            ("auth", "none") => self.chain.push("open"),
            ("auth", "file") => self.chain.push("file"),
            ("auth", "http") => self.chain.push("webhook"),
            ("permission", "none") => self.permission = Some(false),
            ("permission", "config") => self.permission = Some(true),
            ("httpServer", "default" | "uws") => (),
            ("connectionEndpoints", "ws-binary" | "ws-json" | "http") => {
                self.endpoints.push(kind.to_owned());
            }
            _ => return false,
        }
        true
    }

    /// Sets the options that depend on the services that are selected or missing.
    pub(super) fn complete(&mut self) {
        let chain = if self.chain.is_empty() {
            vec!["open"]
        } else {
            self.chain.clone()
        };
        self.set_list("auth.chain", &chain);
        if self.permission != Some(true) {
            self.set("permissions", "allow_all".to_owned());
        }
        let start = SourcePosition { line: 1, column: 1 };
        if chain == ["open"] {
            self.options.remove("network.host");
            let note = "every client may log in, so the server listens only on loopback addresses; set auth.chain, or auth.open_on_public_address and network.host";
            self.note(start, "auth", note);
        } else {
            // Without `host`, deepstream accepts connections from all machines.
            let everywhere = list(&["0.0.0.0"]);
            self.options
                .entry("network.host".to_owned())
                .or_insert(everywhere);
        }
        if !self.says_origins {
            self.note(start, "httpServer", ALL_ORIGINS);
        }
        if self.has_endpoints {
            for (kind, option) in [
                ("ws-binary", "network.paths"),
                ("ws-json", "network.json_paths"),
            ] {
                if !self.endpoints.iter().any(|endpoint| endpoint == kind) {
                    self.set_list(option, &[]);
                }
            }
            if !self.endpoints.iter().any(|endpoint| endpoint == "http") {
                self.set("http.api", "false".to_owned());
            }
        }
    }

    /// The text of `tidewire.yml`.
    pub(super) fn yaml(&self) -> String {
        let mut text =
            "# Made from a deepstream configuration by `tidewire import deepstream`.\n".to_owned();
        let mut before: Vec<&str> = Vec::new();
        for (option, value) in &self.options {
            let parts: Vec<&str> = option.split('.').collect();
            let Some((key, sections)) = parts.split_last() else {
                continue;
            };
            let shared = before
                .iter()
                .zip(sections)
                .take_while(|(one, other)| one == other)
                .count();
            for (depth, section) in sections.iter().enumerate().skip(shared) {
                let _ = writeln!(text, "{}{section}:", "  ".repeat(depth));
            }
            let _ = writeln!(text, "{}{key}: {value}", "  ".repeat(sections.len()));
            before = sections.to_vec();
        }
        text
    }
}

/// The path in `file(PATH)` or `fileLoad(PATH)`.
pub(super) fn loaded(text: &str) -> Option<&str> {
    let inner = text
        .strip_prefix("fileLoad(")
        .or_else(|| text.strip_prefix("file("))?;
    inner.strip_suffix(')').map(str::trim)
}

fn list(texts: &[&str]) -> String {
    let entries: Vec<String> = texts.iter().map(|text| scalar(text)).collect();
    format!("[{}]", entries.join(", "))
}

/// A text as YAML, in quotes if YAML could read it as another type.
fn scalar(text: &str) -> String {
    let is_plain = !text.is_empty()
        && text
            .chars()
            .all(|char| char.is_ascii_alphanumeric() || "_-/.".contains(char))
        && text.starts_with(|char: char| char.is_ascii_alphanumeric() || char == '/');
    if is_plain {
        text.to_owned()
    } else {
        serde_json::Value::from(text).to_string()
    }
}

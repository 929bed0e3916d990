//! Combines defaults, file, environment and flags into one configuration, and reports every mistake with its place.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::collections;
use super::document::{self, Located, Node, SourcePosition};
use super::nearest::nearest;
use super::option::{Field, Input, OptionRow, Traits, VARIABLE_PREFIX, Value, Visitor, join};
use super::section::Config;
use super::stores;

/// The configuration file in the working folder, if no other file is named.
pub const DEFAULT_FILE: &str = "tidewire.yml";
/// The environment variable with the path of the configuration file.
pub const FILE_VARIABLE: &str = "TIDEWIRE_CONFIG";

/// Origin of the value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The built-in default.
    Default,
    /// The file.
    File(PathBuf, SourcePosition),
    /// A variable of the environment.
    Variable(String),
    /// A flag of the command line.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path, position) => {
                write!(
                    f,
                    "{}:{}:{}",
                    path.display(),
                    position.line,
                    position.column
                )
            }
            Self::Variable(name) => f.write_str(name),
            Self::Flag(flag) => write!(f, "--{flag}"),
        }
    }
}

/// Problem with the configuration, and its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {reason}")]
pub struct Problem {
    /// SourcePosition of the problem: `tidewire.yml:3:5`, a variable or a flag.
    pub origin: String,
    /// Description of the problem.
    pub reason: String,
}

impl Problem {
    /// A problem at `origin`.
    #[must_use]
    pub fn new(origin: impl fmt::Display, reason: impl Into<String>) -> Self {
        Self {
            origin: origin.to_string(),
            reason: without_error_numbers(reason.into()),
        }
    }
}

/// Removes the numbers that the standard library adds to errors of the operating system, as in `Permission denied (os error 13)`.
#[must_use]
pub fn without_error_numbers(mut text: String) -> String {
    const START: &str = " (os error ";
    while let Some(start) = text.find(START) {
        let digits = start + START.len();
        let Some(length) = text[digits..].find(')') else {
            break;
        };
        text.replace_range(start..=digits + length, "");
    }
    text
}

/// Sources of the options' values.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The file named by `--config` or `TIDEWIRE_CONFIG`; it must exist.
    pub file: Option<PathBuf>,
    /// The environment.
    pub environment: BTreeMap<String, String>,
    /// Flags of the command line: the name of the option and the text of its value.
    pub flags: Vec<(String, String)>,
}

/// A configuration and the origins of its values.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// The values.
    pub config: Config,
    /// Origins by name of the option. An option without an origin has its default.
    pub origins: BTreeMap<String, Origin>,
    /// Places of the entries of lists in the file, by name of the option.
    pub entries: BTreeMap<String, Vec<SourcePosition>>,
    /// The file that was read.
    pub file: Option<PathBuf>,
    /// Possible mistakes, which the server logs.
    pub warnings: Vec<String>,
}

impl Loaded {
    /// The origin of the value of an option.
    #[must_use]
    pub fn origin(&self, name: &str) -> &Origin {
        self.origins.get(name).unwrap_or(&Origin::Default)
    }

    /// The origin of an entry of a list.
    #[must_use]
    pub fn entry_origin(&self, name: &str, index: usize) -> Origin {
        let position = self
            .entries
            .get(name)
            .and_then(|positions| positions.get(index));
        match (self.origin(name), position) {
            (Origin::File(path, _), Some(position)) => Origin::File(path.clone(), *position),
            (origin, _) => origin.clone(),
        }
    }
}

/// Reads the configuration. Flags override the environment, the environment overrides the file, and the file overrides the defaults.
///
/// # Errors
/// All mistakes, in the order of the sources. Never empty.
pub fn load(sources: &Sources) -> Result<Loaded, Vec<Problem>> {
    let mut loader = Loader::new();
    loader.read_file(sources);
    loader.read_environment(&sources.environment);
    for (name, text) in &sources.flags {
        let flag = loader.names.flag(name);
        loader.set(name, &Input::Scalar(text.clone()), &Origin::Flag(flag));
    }
    loader.finish()
}

/// Reads the text of a file, without flags and without options of the environment. `environment` has the variables that the text names.
///
/// # Errors
/// As [`load`].
pub fn load_text(
    text: &str,
    path: &Path,
    environment: &BTreeMap<String, String>,
) -> Result<Loaded, Vec<Problem>> {
    let mut loader = Loader::new();
    loader.read_text(text, path, environment);
    loader.finish()
}

/// All options in the order of the file.
#[must_use]
pub fn rows() -> Vec<OptionRow> {
    Names::of(&mut Config::default()).options
}

/// The names of all sections and options.
#[derive(Default)]
struct Names {
    sections: Vec<String>,
    options: Vec<OptionRow>,
}

impl Names {
    fn of(config: &mut Config) -> Self {
        let mut names = Self::default();
        walk(config, &mut names);
        names
    }

    fn option(&self, name: &str) -> Option<&OptionRow> {
        self.options.iter().find(|row| row.name == name)
    }

    fn flag(&self, name: &str) -> String {
        self.option(name)
            .map_or_else(|| name.to_owned(), OptionRow::flag)
    }

    fn is_section(&self, name: &str) -> bool {
        self.sections.iter().any(|section| section == name)
    }

    /// The keys directly in a section.
    fn keys_of<'a>(&'a self, section: &'a str) -> impl Iterator<Item = &'a str> {
        let all = self
            .sections
            .iter()
            .chain(self.options.iter().map(|row| &row.name));
        all.filter_map(move |name| {
            let (parent, key) = name.rsplit_once('.').unwrap_or(("", name));
            (parent == section && !key.is_empty()).then_some(key)
        })
    }

    /// Probable meaning of an unknown key: a key of the same section, or the same key elsewhere.
    fn hint(&self, section: &str, key: &str) -> String {
        if let Some(near) = nearest(key, self.keys_of(section)) {
            return format!(", did you mean {near:?}?");
        }
        let elsewhere = self.options.iter().find(|row| row.key() == key);
        elsewhere.map_or_else(String::new, |row| format!(", did you mean {:?}?", row.name))
    }
}

impl Visitor for Names {
    fn section(&mut self, name: &str, _doc: &'static [&'static str]) {
        self.sections.push(name.to_owned());
    }

    fn option(&mut self, row: OptionRow, _value: &mut dyn Value) {
        self.options.push(row);
    }
}

/// Shows all sections and options of `config` to `visitor`.
pub fn walk(config: &mut Config, visitor: &mut dyn Visitor) {
    let root = OptionRow {
        name: String::new(),
        doc: &[],
        traits: Traits::NONE,
    };
    config.visit(root, visitor);
}

struct Loader {
    names: Names,
    loaded: Loaded,
    problems: Vec<Problem>,
}

impl Loader {
    fn new() -> Self {
        Self {
            names: Names::of(&mut Config::default()),
            loaded: Loaded::default(),
            problems: Vec::new(),
        }
    }

    fn finish(mut self) -> Result<Loaded, Vec<Problem>> {
        let Loaded {
            config, origins, ..
        } = &mut self.loaded;
        let folder = &config.store.path;
        config
            .stores
            .place_in_folder(folder, |option| origins.contains_key(option));
        if self.problems.is_empty() {
            Ok(self.loaded)
        } else {
            Err(self.problems)
        }
    }

    fn read_file(&mut self, sources: &Sources) {
        let named = sources
            .file
            .clone()
            .or_else(|| sources.environment.get(FILE_VARIABLE).map(PathBuf::from));
        let path = match named {
            Some(path) => path,
            None if Path::new(DEFAULT_FILE).exists() => PathBuf::from(DEFAULT_FILE),
            None => return,
        };
        match std::fs::read_to_string(&path) {
            Ok(text) => self.read_text(&text, &path, &sources.environment),
            Err(error) => {
                let reason = format!("can't be read: {error}; name another file with --config");
                self.problems.push(Problem::new(path.display(), reason));
            }
        }
    }

    fn read_text(&mut self, text: &str, path: &Path, environment: &BTreeMap<String, String>) {
        let variable = |name: &str| environment.get(name).cloned();
        match document::parse(text, &variable) {
            Ok(root) => self.read_section("", &root, path),
            Err(error) => {
                let origin = match error.position {
                    Some(position) => Origin::File(path.to_owned(), position).to_string(),
                    None => path.display().to_string(),
                };
                self.problems.push(Problem::new(origin, error.reason));
            }
        }
        self.loaded.file = Some(path.to_owned());
    }

    fn read_section(&mut self, section: &str, node: &Located<Node>, path: &Path) {
        let entries = match &node.value {
            Node::Map(entries) => entries,
            Node::Empty => return,
            Node::Scalar(_) | Node::List(_) => {
                let name = if section.is_empty() {
                    "the file"
                } else {
                    section
                };
                let reason = format!("{name:?} is a section; write its options below it, indented");
                self.refuse(path, node.position, reason);
                return;
            }
        };
        for (key, value) in entries {
            let name = join(section, &key.value);
            let config = &mut self.loaded.config;
            let added = match section {
                stores::SECTION => Some(config.stores.add(&key.value)),
                collections::SECTION => Some(config.collections.add(&key.value)),
                _ => None,
            };
            match added {
                Some(Ok(())) => self.names = Names::of(&mut self.loaded.config),
                Some(Err(reason)) => {
                    self.refuse(path, key.position, reason);
                    continue;
                }
                None => {}
            }
            if self.names.is_section(&name) {
                self.read_section(&name, value, path);
            } else if self.names.option(&name).is_some() {
                self.read_option(&name, value, path);
            } else {
                let hint = self.names.hint(section, &key.value);
                self.refuse(
                    path,
                    key.position,
                    format!("unknown key {:?}{hint}", key.value),
                );
            }
        }
    }

    fn read_option(&mut self, name: &str, node: &Located<Node>, path: &Path) {
        let input = match &node.value {
            Node::Scalar(text) => Input::Scalar(text.clone()),
            Node::List(entries) => {
                let scalar = |entry: &Located<Node>| match &entry.value {
                    Node::Scalar(text) => Some(Located {
                        value: text.clone(),
                        position: entry.position,
                    }),
                    Node::List(inner) if collections::has_nested_lists(name) => {
                        let inner = inner.iter().map(|part| match &part.value {
                            Node::Scalar(text) => Some(text.as_str()),
                            _ => None,
                        });
                        let inner: Vec<&str> = inner.collect::<Option<_>>()?;
                        Some(Located {
                            value: collections::nested_text(&inner),
                            position: entry.position,
                        })
                    }
                    _ => None,
                };
                match entries.iter().map(scalar).collect() {
                    Some(entries) => Input::List(entries),
                    None => {
                        let reason = format!(
                            "{name}: an entry of the list is not a single value; write [a, b]"
                        );
                        return self.refuse(path, node.position, reason);
                    }
                }
            }
            Node::Empty => {
                return self.refuse(
                    path,
                    node.position,
                    format!("{name} has no value; write one, or remove the line"),
                );
            }
            Node::Map(_) => {
                return self.refuse(
                    path,
                    node.position,
                    format!("{name} is an option, not a section"),
                );
            }
        };
        self.set(name, &input, &Origin::File(path.to_owned(), node.position));
    }

    fn refuse(&mut self, path: &Path, position: SourcePosition, reason: String) {
        let origin = Origin::File(path.to_owned(), position);
        self.problems.push(Problem::new(origin, reason));
    }

    fn read_environment(&mut self, environment: &BTreeMap<String, String>) {
        let known: Vec<(String, String)> = self
            .names
            .options
            .iter()
            .map(|row| (row.variable(), row.name.clone()))
            .collect();
        for (variable, text) in environment {
            if !variable.starts_with(VARIABLE_PREFIX) || variable == FILE_VARIABLE {
                continue;
            }
            match known.iter().find(|(name, _)| name == variable) {
                Some((_, option)) => {
                    let input = Input::Scalar(text.clone());
                    self.set(option, &input, &Origin::Variable(variable.clone()));
                }
                None => self.unknown_variable(variable, &known),
            }
        }
    }

    /// Refuses an unknown variable with two underscores, because only options have such names. Others may belong to another program,
    /// and cause a warning: orchestrators set `TIDEWIRE_PORT` or `TIDEWIRE_SERVICE_HOST` for a service with the name tidewire.
    fn unknown_variable(&mut self, variable: &str, known: &[(String, String)]) {
        let own = |name: &str| name[VARIABLE_PREFIX.len()..].to_owned();
        let names: Vec<String> = known.iter().map(|(name, _)| own(name)).collect();
        let hint = nearest(&own(variable), names.iter().map(String::as_str))
            .map_or_else(String::new, |name| {
                format!(", did you mean {VARIABLE_PREFIX}{name}?")
            });
        if own(variable).contains("__") {
            let reason = format!("no option has this variable{hint}");
            self.problems.push(Problem::new(variable, reason));
        } else {
            let warning =
                format!("environment variable {variable} is not an option and is ignored{hint}");
            self.loaded.warnings.push(warning);
        }
    }

    fn set(&mut self, name: &str, input: &Input, origin: &Origin) {
        let mut setter = Setter {
            name,
            input,
            result: None,
        };
        walk(&mut self.loaded.config, &mut setter);
        match setter.result {
            Some(Ok(())) => {
                self.loaded.origins.insert(name.to_owned(), origin.clone());
                let positions = match input {
                    Input::List(entries) => entries.iter().map(|entry| entry.position).collect(),
                    Input::Scalar(_) => Vec::new(),
                };
                self.loaded.entries.insert(name.to_owned(), positions);
            }
            Some(Err(wrong)) => {
                let origin = match (origin, input, wrong.index) {
                    (Origin::File(path, _), Input::List(entries), Some(index)) => {
                        Origin::File(path.clone(), entries[index].position)
                    }
                    _ => origin.clone(),
                };
                self.problems
                    .push(Problem::new(origin, format!("{name}: {}", wrong.reason)));
            }
            None => self
                .problems
                .push(Problem::new(origin, format!("unknown option {name:?}"))),
        }
    }
}

/// Sets one option by its name.
struct Setter<'a> {
    name: &'a str,
    input: &'a Input,
    result: Option<Result<(), super::option::WrongValue>>,
}

impl Visitor for Setter<'_> {
    fn section(&mut self, _name: &str, _doc: &'static [&'static str]) {}

    fn option(&mut self, row: OptionRow, value: &mut dyn Value) {
        if row.name == self.name {
            self.result = Some(value.set(self.input));
        }
    }
}

//! The file of schemas: `spec/schema.md`, version 1.

use jsonschema::PatternOptions;
use serde_json::{Map, Value};

use crate::name::{self, ByName};
use crate::reference::{self, escaped};
use crate::value::ValueSchema;

/// The version of the format.
pub const VERSION: u64 = 1;
/// Bytes of a file.
pub const BYTES_MAX: usize = 1 << 20;
/// Schemas of collections and events in a file.
pub const SCHEMAS_MAX: usize = 256;

/// Bytes of a compiled regular expression. The default of the crate `regex` is ten times this, and a file may have thousands.
const PATTERN_BYTES_MAX: usize = 1 << 20;
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
const MEMBERS: [&str; 5] = ["$schema", "version", "collections", "events", "$defs"];

/// Why a file is refused: where, as a JSON pointer, and the reason with the next step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{reason}", shown(pointer))]
pub struct SchemaError {
    /// JSON pointer of the part; empty for the whole file.
    pub pointer: String,
    /// The reason, and the next step.
    pub reason: String,
}

fn shown(pointer: &str) -> String {
    match pointer {
        "" => String::new(),
        pointer => format!("{pointer}: "),
    }
}

fn refused<T>(pointer: impl Into<String>, reason: impl Into<String>) -> Result<T, SchemaError> {
    Err(SchemaError {
        pointer: pointer.into(),
        reason: reason.into(),
    })
}

/// The schemas of a file.
#[derive(Debug)]
pub struct SchemaFile {
    pub(crate) definitions: Map<String, Value>,
    pub(crate) collections: ByName<ValueSchema>,
    pub(crate) events: ByName<ValueSchema>,
}

impl SchemaFile {
    /// Parses a file and compiles its schemas.
    ///
    /// # Errors
    /// The first problem of the file.
    pub fn parse(text: &str) -> Result<Self, SchemaError> {
        if text.len() > BYTES_MAX {
            return refused("", format!("has more than {BYTES_MAX} bytes; shorten it"));
        }
        // The parser refuses a nesting of more than 128.
        let mut file: Map<String, Value> = match serde_json::from_str(text) {
            Ok(file) => file,
            Err(error) => return refused("", format!("is not a JSON object: {error}")),
        };
        if let Some(unknown) = file.keys().find(|key| !MEMBERS.contains(&key.as_str())) {
            let reason = format!("unknown member; use {}", MEMBERS[1..].join(", "));
            return refused(format!("/{}", escaped(unknown)), reason);
        }
        if file.get("version").and_then(Value::as_u64) != Some(VERSION) {
            let reason =
                format!("the version of the format is {VERSION}; write \"version\": {VERSION}");
            return refused("/version", reason);
        }
        let definitions = object(&mut file, "$defs")?;
        let collections = object(&mut file, "collections")?;
        let events = object(&mut file, "events")?;
        if collections.len() + events.len() > SCHEMAS_MAX {
            let reason =
                format!("more than {SCHEMAS_MAX} collections and events; use `*` for segments");
            return refused("", reason);
        }
        check_definitions(&definitions)?;
        // Also those that no schema uses.
        compile(Value::Object(Map::new()), "", &definitions)?;
        Ok(Self {
            collections: schemas(collections, "/collections", &definitions)?,
            events: schemas(events, "/events", &definitions)?,
            definitions,
        })
    }

    /// The schema of the record with this name: the one of its collection, which is the name without its last segment.
    #[must_use]
    pub fn of_record(&self, name: &str) -> Option<&ValueSchema> {
        let (collection, _) = name.rsplit_once('/')?;
        self.collections.find(collection)
    }

    /// The schema of the event with this name.
    #[must_use]
    pub fn of_event(&self, name: &str) -> Option<&ValueSchema> {
        self.events.find(name)
    }
}

fn object(file: &mut Map<String, Value>, member: &str) -> Result<Map<String, Value>, SchemaError> {
    match file.remove(member) {
        None => Ok(Map::new()),
        Some(Value::Object(object)) => Ok(object),
        Some(_) => refused(
            format!("/{member}"),
            "is not an object; write schemas by name",
        ),
    }
}

/// The names of definitions are parts of `$ref`, where other characters would have to be escaped.
fn check_definitions(definitions: &Map<String, Value>) -> Result<(), SchemaError> {
    let is_plain = |name: &str| {
        let is_plain = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == '-';
        !name.is_empty() && name.chars().all(is_plain)
    };
    match definitions.keys().find(|name| !is_plain(name)) {
        None => Ok(()),
        Some(name) => {
            let reason =
                "the name of a definition has only letters, digits, `_` and `-`; rename it";
            refused(format!("/$defs/{}", escaped(name)), reason)
        }
    }
}

fn schemas(
    sources: Map<String, Value>,
    pointer: &str,
    definitions: &Map<String, Value>,
) -> Result<ByName<ValueSchema>, SchemaError> {
    let mut list = Vec::with_capacity(sources.len());
    for (name, source) in sources {
        let at = format!("{pointer}/{}", escaped(&name));
        if let Some(reason) = name::problem(&name) {
            return refused(at, reason);
        }
        let schema = compile(source, &at, definitions)?;
        list.push((name.into_boxed_str(), schema));
    }
    Ok(ByName::new(list))
}

fn compile(
    source: Value,
    at: &str,
    definitions: &Map<String, Value>,
) -> Result<ValueSchema, SchemaError> {
    let mut whole = source.clone();
    if let Value::Object(object) = &mut whole {
        if object
            .get("$schema")
            .is_some_and(|dialect| dialect != DIALECT)
        {
            return refused(
                format!("{at}/$schema"),
                format!("write {DIALECT:?}, or omit it"),
            );
        }
        if object.contains_key("$defs") {
            let reason = "move the definitions to the `$defs` of the file";
            return refused(format!("{at}/$defs"), reason);
        }
        if !definitions.is_empty() {
            object.insert("$defs".to_owned(), Value::Object(definitions.clone()));
        }
    }
    // A definition has its pointer in the file.
    let place = |inner: &str| match inner.starts_with("/$defs/") {
        true => inner.to_owned(),
        false => format!("{at}{inner}"),
    };
    if let Some((inner, reason)) = reference::problem(&whole) {
        return refused(place(&inner), reason);
    }
    let patterns = PatternOptions::regex().size_limit(PATTERN_BYTES_MAX);
    let options = jsonschema::draft202012::options().with_pattern_options(patterns);
    match options.build(&whole) {
        Ok(validator) => Ok(ValueSchema::new(source, validator)),
        Err(error) => refused(place(&error.instance_path().to_string()), error.to_string()),
    }
}

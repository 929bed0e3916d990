//! Schemas of collections and events: the file `tidewire.schema.json`, the check of a value, and TypeScript types of the file.
//!
//! The format is in `spec/schema.md`. This crate reads no file and fetches nothing: a schema can only refer to itself and to the `$defs` of
//! its file. The keywords of JSON Schema are evaluated by the crate `jsonschema`, with regular expressions that need linear time.

mod file;
mod name;
mod reference;
mod typescript;
mod value;

pub use file::{BYTES_MAX, SCHEMAS_MAX, SchemaError, SchemaFile, VERSION};
pub use value::{Misfit, ValueSchema};

//! The check of one value against its schema.

use std::fmt;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{ValidationError, Validator};
use serde_json::Value;

/// Bytes of a reason; names of properties in it may be long.
const REASON_BYTES_MAX: usize = 200;
/// Bytes of a path in the value.
const POINTER_BYTES_MAX: usize = 500;

/// A compiled schema, and its source.
#[derive(Debug)]
pub struct ValueSchema {
    pub(crate) source: Value,
    validator: Validator,
}

/// A part of a value that does not fit its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// JSON pointer (RFC 6901) of the part; empty for the whole value.
    pub pointer: String,
    /// The keyword of the schema that it violates.
    pub keyword: String,
    /// How it violates the keyword. Contains names of properties, and no other part of the value.
    pub reason: String,
}

impl ValueSchema {
    pub(crate) fn new(source: Value, validator: Validator) -> Self {
        Self { source, validator }
    }

    /// The parts of a value that do not fit; none if it fits.
    pub fn misfits<'a>(&'a self, value: &'a Value) -> impl Iterator<Item = Misfit> + 'a {
        let errors = self.validator.iter_errors(value);
        errors.map(|error| Misfit::of(&error))
    }
}

impl Misfit {
    fn of(error: &ValidationError<'_>) -> Self {
        // The other kinds would repeat the value, which may be long or secret.
        let reason = match error.kind() {
            ValidationErrorKind::AdditionalProperties { .. }
            | ValidationErrorKind::UnevaluatedProperties { .. }
            | ValidationErrorKind::Required { .. } => error.to_string(),
            _ => error.masked().to_string(),
        };
        Self {
            pointer: cut(error.instance_path().to_string(), POINTER_BYTES_MAX),
            keyword: error.kind().keyword().to_owned(),
            reason: cut(reason, REASON_BYTES_MAX),
        }
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.pointer.is_empty() {
            write!(f, "{}: ", printable(&self.pointer))?;
        }
        write!(f, "{} ({})", printable(&self.reason), self.keyword)
    }
}

fn cut(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max));
        text.push('…');
    }
    text
}

/// Names of properties may have characters that control a terminal.
fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char.is_control() {
            true => out.extend(char.escape_default()),
            false => out.push(char),
        }
    }
    out
}

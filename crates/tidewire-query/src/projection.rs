//! Which fields of a record a query returns. The id is sent with the value, so no projection removes it.

use std::collections::BTreeMap;

use tidewire_json::entries;

use crate::error::{QueryError, QueryErrorCode, member};
use crate::limits::QueryLimits;
use crate::number::Number;
use crate::path::{Path, Segment};
use crate::tape::{Kind, Value};

/// A parsed projection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Projection {
    fields: Fields,
    is_inclusion: bool,
    /// Whether the projection was `{}` or absent.
    is_whole: bool,
}

/// The named fields of one object. A field without inner fields is named as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Fields(BTreeMap<Box<[u8]>, Fields>);

impl Projection {
    /// Parses the value of `select`.
    pub(crate) fn parse(
        value: Option<&Value<'_>>,
        limits: &QueryLimits,
    ) -> Result<Self, QueryError> {
        let at = "/select";
        let refuse =
            |at: &str, what: &str| Err(QueryError::new(QueryErrorCode::BadProjection, at, what));
        let mut entries: Vec<(String, String, bool)> = Vec::new();
        match value.map(Value::kind) {
            None | Some(Kind::Null) => {}
            Some(Kind::Array) => {
                for (index, path) in value.into_iter().flat_map(Value::elements).enumerate() {
                    let at = member(at, &index.to_string());
                    match path.kind() {
                        Kind::String(path) => {
                            entries.push((String::from_utf8_lossy(path).into_owned(), at, true))
                        }
                        _ => return refuse(&at, "entry is not a path; write a string"),
                    }
                }
                // A list of nothing selects the id only.
                if entries.is_empty() {
                    entries.push(("_id".into(), at.into(), true));
                }
            }
            Some(Kind::Object) => {
                for (path, choice) in value.into_iter().flat_map(Value::members) {
                    let path = String::from_utf8_lossy(path).into_owned();
                    let at = member(at, &path);
                    let is_included = match choice.kind() {
                        Kind::Number(number) if number.0 == Number::Int(1) => true,
                        Kind::Number(number) if number.0 == Number::Int(0) => false,
                        Kind::Bool(it) => it,
                        _ => {
                            return refuse(
                                &at,
                                "choice is not 0 or 1; operators are not supported",
                            );
                        }
                    };
                    match entries.iter_mut().find(|(known, ..)| *known == path) {
                        Some(known) => known.2 = is_included,
                        None => entries.push((path, at, is_included)),
                    }
                }
            }
            Some(_) => {
                return refuse(
                    at,
                    "projection is neither an object nor an array; write {\"path\": 1} or [\"path\"]",
                );
            }
        }
        if entries.len() > limits.projection_paths_max {
            let what = format!(
                "projection has {} paths; use at most {}",
                entries.len(),
                limits.projection_paths_max
            );
            return Err(QueryError::new(QueryErrorCode::TooLarge, at, what));
        }
        let id_names: &[&str] = if limits.id_alias {
            &["_id", "id"]
        } else {
            &["_id"]
        };
        let mut fields = Fields::default();
        let (mut kind, mut id) = (None, None);
        for (path, at, is_included) in &entries {
            match Path::parse(path, at, id_names, limits)? {
                Path::Id => id = Some((*is_included, at)),
                Path::Field(segments) => {
                    if *kind.get_or_insert(*is_included) != *is_included {
                        return refuse(at, "projection includes and excludes; use one of both");
                    }
                    if !fields.insert(&segments) {
                        return refuse(
                            at,
                            "projection has the path and a prefix of it; remove one",
                        );
                    }
                }
                Path::Version | Path::Element => {
                    return refuse(at, "the version is not a field of the value; remove it");
                }
            }
        }
        // `_id: 0` may accompany an inclusion, but `_id: 1` no exclusion.
        if let (Some(false), Some((true, at))) = (kind, id) {
            return refuse(at, "projection includes and excludes; use one of both");
        }
        let is_inclusion = kind.unwrap_or(id.is_some_and(|(is_included, _)| is_included));
        Ok(Self {
            is_whole: !is_inclusion && fields.0.is_empty(),
            fields,
            is_inclusion,
        })
    }

    /// Whether it returns every record as it is.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Appends the projected value. `text` must be valid JSON. Kept parts keep their bytes.
    pub fn apply(&self, text: &str, out: &mut String) {
        let text = text.trim_matches([' ', '\n', '\r', '\t']);
        if self.is_whole {
            out.push_str(text);
        } else if text.starts_with('{') {
            self.object(text, &self.fields, out);
        } else {
            // A record that is not an object is returned as `{value: it}`, as it is queried.
            let object = format!("{{\"value\":{text}}}");
            self.object(&object, &self.fields, out);
        }
    }

    fn object(&self, text: &str, fields: &Fields, out: &mut String) {
        out.push('{');
        let mut is_first = true;
        for (key, value) in entries(text) {
            let Some(key) = key else { continue };
            let name = key.text();
            let inner = name
                .as_deref()
                .and_then(|name| fields.0.get(name.as_bytes()));
            let keeps = match inner {
                None => !self.is_inclusion,
                Some(inner) if inner.0.is_empty() => self.is_inclusion,
                // A scalar has no fields to include.
                Some(_) => !self.is_inclusion || value.starts_with(['{', '[']),
            };
            if !keeps {
                continue;
            }
            if !std::mem::take(&mut is_first) {
                out.push(',');
            }
            out.push('"');
            out.push_str(key.inner);
            out.push_str("\":");
            match inner {
                Some(inner) if !inner.0.is_empty() => self.value(value, inner, out),
                _ => out.push_str(value),
            }
        }
        out.push('}');
    }

    fn value(&self, text: &str, fields: &Fields, out: &mut String) {
        if text.starts_with('{') {
            return self.object(text, fields, out);
        }
        if !text.starts_with('[') {
            return out.push_str(text);
        }
        out.push('[');
        let mut is_first = true;
        for (_, element) in entries(text) {
            let is_object = element.starts_with('{');
            if !is_object && self.is_inclusion {
                continue;
            }
            if !std::mem::take(&mut is_first) {
                out.push(',');
            }
            if is_object {
                self.object(element, fields, out);
            } else {
                out.push_str(element);
            }
        }
        out.push(']');
    }

    pub(crate) fn write(&self, out: &mut String) {
        if self.is_whole {
            return out.push_str("all");
        }
        out.push_str(if self.is_inclusion { "only" } else { "without" });
        self.fields.write(out);
    }
}

impl Fields {
    /// Whether neither the path nor a prefix of it is there already.
    fn insert(&mut self, segments: &[Segment]) -> bool {
        let Some((first, rest)) = segments.split_first() else {
            return false;
        };
        match self.0.get_mut(first.key()) {
            Some(inner) if inner.0.is_empty() || rest.is_empty() => false,
            Some(inner) => inner.insert(rest),
            None => {
                let mut inner = Self::default();
                let is_new = rest.is_empty() || inner.insert(rest);
                self.0.insert(first.key().into(), inner);
                is_new
            }
        }
    }

    fn write(&self, out: &mut String) {
        out.push('(');
        for (index, (key, inner)) in self.0.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            tidewire_json::string(&String::from_utf8_lossy(key), out);
            if !inner.0.is_empty() {
                inner.write(out);
            }
        }
        out.push(')');
    }
}

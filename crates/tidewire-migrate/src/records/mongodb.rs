//! Reads the records of deepstream's connector for MongoDB. It has a collection for each first part of a name. A document has the
//! fields of the record, the rest of the name in `ds_key`, the version in `ds_version`, and a list in `ds_list`.

use mongodb::bson::{Bson, Document, doc};
use mongodb::options::FindOptions;
use tidewire_store::mongodb::location::{Failed, Location};

use super::{Found, Layout, MigrationError, Source, Visit};

/// Documents of a page.
const PAGE_COUNT: u32 = 100;

const KEY: &str = "ds_key";
const VERSION: &str = "ds_version";
const LIST: &str = "ds_list";

/// Doubles represent integers below this exactly, and JavaScript writes them without a decimal point.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

pub(super) fn read(source: &Source, visit: Visit<'_>) -> Result<(), MigrationError> {
    let location = Location::new(source.options.clone())?;
    let names = location.wait(location.database().list_collection_names().into_future());
    let mut names = names.map_err(failed)?;
    names.retain(|name| !name.starts_with("system."));
    names.sort();
    for part in names {
        let collection = location.database().collection::<Document>(&part);
        let options = FindOptions::builder().batch_size(PAGE_COUNT).build();
        let find = collection
            .find(doc! { KEY: { "$exists": true } })
            .with_options(options);
        let mut cursor = location.wait(find.into_future()).map_err(failed)?;
        while location.wait(cursor.advance()).map_err(failed)? {
            let document = cursor.deserialize_current();
            let document = document.map_err(|error| MigrationError::source(error.to_string()))?;
            visit(found(&source.layout, &part, document))?;
        }
    }
    Ok(())
}

fn failed(failed: Failed) -> MigrationError {
    MigrationError::source(failed.message)
}

/// The record of a document.
fn found(layout: &Layout, part: &str, mut document: Document) -> Found {
    let id = match document.remove(KEY) {
        Some(Bson::String(id)) => id,
        other => format!("{other:?}"),
    };
    let version = match document.remove(VERSION) {
        Some(Bson::Int32(version)) => Some(i64::from(version)),
        Some(Bson::Int64(version)) => Some(version),
        #[expect(clippy::cast_possible_truncation, reason = "it is whole and small")]
        Some(Bson::Double(version)) if is_whole(version) => Some(version as i64),
        _ => None,
    };
    document.remove("_id");
    let value = match document.remove(LIST) {
        Some(list @ Bson::Array(_)) => list,
        Some(other) => {
            document.insert(LIST, other);
            Bson::Document(document)
        }
        None => Bson::Document(document),
    };
    let mut text = String::new();
    Found {
        name: Layout::name(part, &layout.default_collection, &layout.split_char, &id),
        version,
        data: write(&value, &mut text).map(|()| text),
    }
}

fn is_whole(number: f64) -> bool {
    number.fract() == 0.0 && number.abs() < WHOLE_MAX
}

/// Writes a value as JSON. If JSON can't represent it, returns the reason.
fn write(value: &Bson, out: &mut String) -> Result<(), String> {
    match value {
        Bson::Null => out.push_str("null"),
        Bson::Boolean(value) => out.push_str(if *value { "true" } else { "false" }),
        Bson::Int32(value) => out.push_str(&value.to_string()),
        Bson::Int64(value) => out.push_str(&value.to_string()),
        #[expect(clippy::cast_possible_truncation, reason = "it is whole and small")]
        Bson::Double(value) if is_whole(*value) => out.push_str(&(*value as i64).to_string()),
        Bson::Double(value) if value.is_finite() => {
            out.push_str(&serde_json::json!(value).to_string())
        }
        Bson::String(value) => out.push_str(&serde_json::json!(value).to_string()),
        Bson::Array(values) => {
            out.push('[');
            for (index, value) in values.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write(value, out)?;
            }
            out.push(']');
        }
        Bson::Document(fields) => {
            out.push('{');
            for (index, (name, value)) in fields.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                out.push_str(&serde_json::json!(name).to_string());
                out.push(':');
                write(value, out)?;
            }
            out.push('}');
        }
        other => {
            let kind = other.element_type();
            return Err(format!(
                "it contains a value of MongoDB's type {kind:?} or a number that JSON can't represent"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        Layout {
            schema: String::new(),
            default_table: String::new(),
            split_char: "/".to_owned(),
            default_collection: "deepstream_docs".to_owned(),
        }
    }

    #[test]
    fn documents_become_the_original_records() {
        let object = doc! {
            "_id": 1, "b": [1.0, -0.5, 1e300, true, Bson::Null], "a": { "x\"": "é\n" }, KEY: "k", VERSION: 3.0,
        };
        let list = doc! { "_id": 1, LIST: ["a/b"], KEY: "a/l", VERSION: 4 };
        let date =
            doc! { KEY: "d", VERSION: "5", "at": Bson::DateTime(mongodb::bson::DateTime::MIN) };
        for (part, document, name, version, data) in [
            (
                "deepstream_docs",
                object,
                "k",
                Some(3),
                Ok("{\"b\":[1,-0.5,1e+300,true,null],\"a\":{\"x\\\"\":\"é\\n\"}}"),
            ),
            ("user", list, "user/a/l", Some(4), Ok("[\"a/b\"]")),
            ("user", date, "user/d", None, Err("DateTime")),
        ] {
            let found = found(&layout(), part, document);
            assert_eq!((found.name.as_str(), found.version), (name, version));
            match (found.data, data) {
                (Ok(found), Ok(data)) => assert_eq!(found, data),
                (Err(found), Err(reason)) => assert!(found.contains(reason), "{found}"),
                other => panic!("{other:?}"),
            }
        }
    }
}

//! `tidewire schema` in the real program: the check of stored records, and its refusals.

mod client;
mod process;

use std::fs;
use std::path::Path;

use process::{Server, run};

const SCHEMA: &str = r#"{
  "version": 1,
  "collections": {
    "cards": {
      "type": "object",
      "required": ["title"],
      "properties": { "title": { "type": "string", "maxLength": 5 } }
    }
  }
}"#;

/// A stopped server's folder with these records, and with a file of schemas.
fn folder_with(records: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let header = r#"{"tidewire_export":1,"software":"test"}"#;
    let lines = records
        .iter()
        .map(|(name, data)| format!(r#"{{"name":"{name}","data":{data}}}"#));
    let footer = format!(r#"{{"end":{}}}"#, records.len());
    let all: Vec<String> = [header.to_owned()]
        .into_iter()
        .chain(lines)
        .chain([footer])
        .collect();
    fs::write(folder.path().join("records.jsonl"), all.join("\n") + "\n").expect("written");
    fs::write(folder.path().join("tidewire.schema.json"), SCHEMA).expect("written");
    let (code, _, error) = run(folder.path(), &["store", "import", "records.jsonl"]);
    assert_eq!(code, 0, "{error}");
    folder
}

fn check(folder: &Path) -> (i32, Vec<String>, String) {
    let (code, out, error) = run(folder, &["schema", "check"]);
    (code, out.lines().map(str::to_owned).collect(), error)
}

#[test]
fn check_names_the_records_that_do_not_fit() {
    let many: Vec<(String, String)> = (0..1000)
        .map(|number| {
            (
                format!("cards/{number:04}"),
                r#"{"title":"short"}"#.to_owned(),
            )
        })
        .collect();
    let mut records: Vec<(&str, &str)> = many
        .iter()
        .map(|(name, data)| (name.as_str(), data.as_str()))
        .collect();
    records.extend([
        ("cards/x", r#"{"title":"too long"}"#),
        ("cards/y", "{}"),
        ("other/1", "{}"),
        ("alone", "{}"),
    ]);
    let folder = folder_with(&records);
    let (code, out, error) = check(folder.path());
    assert_eq!(
        out,
        [
            "\"cards/x\": /title: value is longer than 5 characters (maxLength)",
            "\"cards/y\": \"title\" is a required property (required)",
            "1002 records checked, 2 do not fit, 2 without a schema, 0 corrupt",
        ]
    );
    assert_eq!(code, 1);
    assert!(error.contains("some records do not fit"), "{error}");
}

#[test]
fn check_works_while_the_server_runs() {
    let folder = folder_with(&[("cards/1", r#"{"title":"fits"}"#)]);
    let server = Server::start_in(folder, &[]);
    let (code, out, error) = check(server.folder.path());
    assert_eq!((code, error.as_str()), (0, ""));
    assert_eq!(
        out,
        ["1 records checked, 0 do not fit, 0 without a schema, 0 corrupt"]
    );
}

#[test]
fn a_wrong_file_is_refused_with_its_name_and_the_place() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let refuses = |arguments: &[&str], expected: &str| {
        let (code, out, error) = run(folder.path(), arguments);
        assert_eq!((code, out.as_str()), (2, ""), "{error}");
        assert!(error.contains(expected), "{error}");
    };
    refuses(&["schema", "check"], "tidewire.schema.json: No such file");
    let wrong = r#"{ "version": 1, "events": { "news": { "type": "txt" } } }"#;
    fs::write(folder.path().join("wrong.json"), wrong).expect("written");
    refuses(
        &["schema", "types", "wrong.json"],
        "wrong.json: /events/news/type: ",
    );
    refuses(
        &["schema", "check", "wrong.json"],
        "wrong.json: /events/news/type: ",
    );
}

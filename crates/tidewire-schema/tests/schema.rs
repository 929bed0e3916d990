//! Files of schemas: accepted and refused parts, the schema of a name, and types.

use serde_json::{Value, json};
use tidewire_schema::{BYTES_MAX, SCHEMAS_MAX, SchemaFile};

fn file(members: &Value) -> Result<SchemaFile, String> {
    let mut whole = json!({ "version": 1 });
    let object = whole.as_object_mut().expect("an object");
    object.extend(members.as_object().expect("an object").clone());
    SchemaFile::parse(&whole.to_string()).map_err(|error| error.to_string())
}

#[track_caller]
fn refuses(members: &Value, expected: &str) {
    let error = file(members).expect_err("refused");
    assert!(error.contains(expected), "{error}");
}

/// The misfits of a record `cards/1` with this value.
#[track_caller]
fn misfits(schema: &Value, value: &Value) -> Vec<String> {
    let file = file(&json!({ "collections": { "cards": schema } })).expect("valid");
    let schema = file.of_record("cards/1").expect("has a schema");
    schema.misfits(value).map(|it| it.to_string()).collect()
}

#[test]
fn misfits_name_the_pointer_and_the_keyword() {
    let schema = json!({
        "type": "object",
        "required": ["title"],
        "additionalProperties": false,
        "properties": {
            "title": { "type": "string", "maxLength": 3 },
            "tags": { "type": "array", "items": { "enum": ["a", "b"] } }
        }
    });
    assert_eq!(
        misfits(&schema, &json!({ "title": "abc", "tags": ["a"] })),
        [""; 0]
    );
    assert_eq!(
        misfits(
            &schema,
            &json!({ "title": "secret", "tags": ["a", "c"], "titel": 1 })
        ),
        [
            "/tags/1: value is not one of \"a\" or \"b\" (enum)",
            "/title: value is longer than 3 characters (maxLength)",
            "Additional properties are not allowed ('titel' was unexpected) (additionalProperties)",
        ]
    );
    assert_eq!(
        misfits(&schema, &json!({})),
        ["\"title\" is a required property (required)"]
    );
    assert_eq!(
        misfits(&json!(false), &json!(1)),
        ["False schema does not allow value (falseSchema)"]
    );
}

#[test]
fn reasons_and_pointers_are_bounded_and_on_one_line() {
    let schema =
        json!({ "additionalProperties": { "type": "object", "additionalProperties": false } });
    let long = format!("\n{}", "é".repeat(5000));
    let found = misfits(&schema, &json!({ &long: { &long: 1 } }));
    assert_eq!(found.len(), 1);
    assert!(
        found[0].len() < 1000 && !found[0].contains('\n'),
        "{}",
        found[0]
    );
}

#[test]
fn the_narrowest_name_decides() {
    let kinds = json!({
        "*": { "const": 1 },
        "board": { "const": 2 },
        "board/*/card": { "const": 3 },
        "board/7/card": { "const": 4 },
        "*/7/card": { "const": 5 }
    });
    let file = file(&json!({ "collections": kinds, "events": { "news": { "const": 6 } } }))
        .expect("valid");
    let decides = |name: &str, expected: Option<i64>| {
        let found = file.of_record(name).map(|schema| {
            let fits = |kind: &i64| schema.misfits(&json!(kind)).next().is_none();
            (1..=5).find(fits).expect("one of them")
        });
        assert_eq!(found, expected, "{name}");
    };
    decides("cards/1", Some(1));
    decides("board/1", Some(2));
    decides("board/1/card/1", Some(3));
    decides("board/7/card/1", Some(4));
    decides("x/7/card/1", Some(5));
    decides("x/8/card/1", None);
    decides("alone", None);
    assert!(file.of_event("news").is_some() && file.of_event("news/1").is_none());
}

#[test]
fn definitions_are_common_to_all_schemas_and_may_be_recursive() {
    let node = json!({
        "type": "object",
        "properties": { "children": { "type": "array", "items": { "$ref": "#/$defs/node" } }, "n": { "type": "integer" } }
    });
    let reference = json!({ "$ref": "#/$defs/node" });
    let file = file(&json!({
        "collections": { "trees": reference, "self": { "properties": { "next": { "$ref": "#" } }, "type": "object" } },
        "events": { "node": reference },
        "$defs": { "node": node }
    }))
    .expect("valid");
    let misfits = |name: &str, value: Value| -> Vec<String> {
        let schema = file.of_record(name).expect("has a schema");
        schema.misfits(&value).map(|it| it.pointer).collect()
    };
    assert_eq!(
        misfits(
            "trees/1",
            json!({ "children": [{ "children": [{ "n": 1.5 }] }] })
        ),
        ["/children/0/children/0/n"]
    );
    assert_eq!(
        misfits("self/1", json!({ "next": { "next": 1 } })),
        ["/next/next"]
    );
}

#[test]
fn a_wrong_file_is_refused_with_the_place_and_the_next_step() {
    let collection = |schema: Value| json!({ "collections": { "a/b": schema } });
    refuses(
        &json!({ "version": 2 }),
        "/version: the version of the format is 1",
    );
    refuses(
        &json!({ "collection": {} }),
        "/collection: unknown member; use version, collections",
    );
    refuses(
        &json!({ "collections": [] }),
        "/collections: is not an object",
    );
    refuses(
        &json!({ "collections": { "": {} } }),
        "/collections/: is empty",
    );
    refuses(
        &json!({ "collections": { "a*": {} } }),
        "/collections/a*: has `*` inside a segment",
    );
    refuses(
        &collection(json!({ "type": "strin" })),
        "/collections/a~1b/type: ",
    );
    refuses(
        &collection(json!({ "properties": { "a": { "pattern": "(?=x)" } } })),
        "/collections/a~1b/properties/a/pattern: ",
    );
    refuses(
        &collection(json!({ "pattern": "(\\w{1000}){1000}" })),
        "/collections/a~1b",
    );
    refuses(
        &collection(json!({ "items": { "$ref": "https://example.com/x.json" } })),
        "/collections/a~1b/items/$ref: $ref \"https://example.com/x.json\" has no target",
    );
    refuses(
        &collection(json!({ "$ref": "#/$defs/none" })),
        "/collections/a~1b/$ref: ",
    );
    refuses(
        &collection(json!({ "$id": "https://example.com/" })),
        "/collections/a~1b/$id: $id is not supported",
    );
    refuses(
        &collection(json!({ "$schema": "http://json-schema.org/draft-07/schema#" })),
        "/collections/a~1b/$schema: write",
    );
    refuses(
        &collection(json!({ "$defs": {} })),
        "/collections/a~1b/$defs: move the definitions",
    );
    refuses(
        &json!({ "$defs": { "a b": {} } }),
        "/$defs/a b: the name of a definition",
    );
    let used =
        json!({ "collections": { "a": { "$ref": "#/$defs/x" } }, "$defs": { "x": { "type": 1 } } });
    refuses(&used, "/$defs/x/type: ");
    let deep = format!(
        "{{\"version\":1,\"$defs\":{{\"a\":{}1{}}}}}",
        "[".repeat(200),
        "]".repeat(200)
    );
    assert!(
        SchemaFile::parse(&deep).is_err_and(|error| error.to_string().contains("recursion limit"))
    );
    let long = " ".repeat(BYTES_MAX + 1);
    assert!(
        SchemaFile::parse(&long).is_err_and(|error| error.to_string().contains("bytes; shorten"))
    );
    let many: serde_json::Map<String, Value> = (0..=SCHEMAS_MAX)
        .map(|number| (format!("c{number}"), json!({})))
        .collect();
    refuses(
        &json!({ "collections": many }),
        "more than 256 collections and events",
    );
}

#[test]
fn a_check_that_would_not_end_is_refused() {
    let definitions = |x: Value, y: Value| json!({ "collections": { "a": { "$ref": "#/$defs/x" } }, "$defs": { "x": x, "y": y } });
    let to = |name: &str| json!({ "$ref": format!("#/$defs/{name}") });
    let endless = "refers to itself for the same value";
    refuses(&json!({ "collections": { "a": { "$ref": "#" } } }), endless);
    refuses(
        &json!({ "collections": { "a": { "anyOf": [{ "not": { "$ref": "#" } }] } } }),
        endless,
    );
    refuses(
        &definitions(to("y"), json!({ "allOf": [to("x")] })),
        endless,
    );
    refuses(
        &definitions(
            json!({ "dependentSchemas": { "k": to("y") } }),
            json!({ "if": to("x") }),
        ),
        endless,
    );
    let ends = definitions(
        json!({ "properties": { "y": to("y") } }),
        json!({ "items": to("x") }),
    );
    assert!(file(&ends).is_ok());
}

#[test]
fn definitions_that_no_schema_uses_are_checked() {
    refuses(
        &json!({ "$defs": { "x": { "type": 1 } } }),
        "/$defs/x/type: ",
    );
}

#[test]
fn patterns_need_linear_time() {
    let schema = json!({ "pattern": "^(a+)+$" });
    let value = json!(format!("{}!", "a".repeat(100_000)));
    assert_eq!(misfits(&schema, &value).len(), 1);
}

#[test]
fn types_allow_what_the_schema_allows() {
    let types = file(&json!({
        "collections": {
            "board/*": {
                "type": "object",
                "description": "All */ of\nit.",
                "required": ["a-b", "c", "more"],
                "properties": {
                    "a-b": { "type": ["integer", "null"] },
                    "c": { "type": "array", "items": { "anyOf": [{ "const": "x" }, { "enum": [1, true, null] }] } },
                    "d": { "type": "array", "prefixItems": [{ "type": "string" }, {}], "minItems": 1, "items": false },
                    "e": { "allOf": [{ "$ref": "#" }, { "type": "object", "additionalProperties": { "$ref": "#/$defs/array" } }] },
                    "f": false
                }
            },
            "board/*/card": true
        },
        "events": { "array": { "type": "object", "additionalProperties": false } },
        "$defs": { "array": { "minLength": 1 } }
    }))
    .expect("valid")
    .typescript();
    let expected = r#"
export type Array2 = unknown;

/** All *\/ of it. */
export type Board = {
  "a-b": number | null;
  c: Array<"x" | (1 | true | null)>;
  d?: [string, unknown?];
  e?: Board & { [key: string]: Array2 };
  f?: never;
  more: unknown;
};

export type BoardCard = unknown;

export type ArrayEvent = { [key: string]: never };

/** The documents by the names of their records. */
export type Collections = { [name: `board/${string}/${string}`]: Board }
  & { [name: `board/${string}/card/${string}`]: BoardCard };

/** The payloads by the names of their events. */
export type Events = { array: ArrayEvent };
"#;
    assert!(types.contains(expected), "{types}");
}

//! References between schemas. `$ref` is `#`, the schema itself, or `#/$defs/NAME`. So a schema is complete without any other document, and
//! a walk over a few keywords shows whether its check always ends.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// How a reference to a definition begins.
const DEFINITION: &str = "#/$defs/";

/// Where the definitions are. In one, `#` would mean another schema for each schema that refers to it.
const DEFINITIONS: &str = "/$defs/";

/// Keywords that give schemas names for references, which this format has in `$defs` only.
const REFUSED: [&str; 6] = [
    "$id",
    "$anchor",
    "$dynamicRef",
    "$dynamicAnchor",
    "$recursiveRef",
    "$vocabulary",
];
/// Keywords with a schema, or a list of schemas, for parts of the value.
const OF_PARTS: [&str; 8] = [
    "additionalProperties",
    "propertyNames",
    "unevaluatedProperties",
    "items",
    "prefixItems",
    "contains",
    "unevaluatedItems",
    "contentSchema",
];
/// Keywords with schemas by name, for parts of the value.
const OF_NAMED_PARTS: [&str; 3] = ["properties", "patternProperties", "$defs"];
/// Keywords with a schema, or a list of schemas, for the same value.
const OF_THE_VALUE: [&str; 7] = ["allOf", "anyOf", "oneOf", "not", "if", "then", "else"];
/// A keyword with schemas by name, for the same value.
const DEPENDENT: &str = "dependentSchemas";

/// The definition that a `$ref` names; `None` for the schema itself.
pub fn target(reference: &str) -> Option<&str> {
    reference.strip_prefix(DEFINITION)
}

/// The first problem of the references and names in a schema, with the JSON pointer of its place.
pub fn problem(schema: &Value) -> Option<(String, String)> {
    find(schema, "", &mut |object, pointer| {
        if let Some(name) = REFUSED.iter().find(|name| object.contains_key(**name)) {
            let reason = format!("{name} is not supported; use `$defs` and `$ref`");
            return Some((format!("{pointer}/{name}"), reason));
        }
        let reference = object.get("$ref")?;
        let is_known = reference.as_str().is_some_and(|text| {
            text == "#" && !pointer.starts_with(DEFINITIONS) || target(text).is_some_and(|name| is_defined(schema, name))
        });
        let reason = || {
            format!(
                "$ref {reference} has no target; use `#/$defs/NAME` with a name of `$defs`, or `#` outside of `$defs`"
            )
        };
        (!is_known).then(|| (format!("{pointer}/$ref"), reason()))
    })
    .or_else(|| endless(schema))
}

fn definition<'s>(schema: &'s Value, name: &str) -> Option<&'s Value> {
    schema.get("$defs")?.get(name)
}

fn is_defined(schema: &Value, name: &str) -> bool {
    !name.contains(['/', '~', '%']) && definition(schema, name).is_some()
}

/// A JSON pointer and a reason.
type Problem = (String, String);
/// Looks at a schema, with its JSON pointer, for a problem.
type Visit<'v> = dyn FnMut(&Map<String, Value>, &str) -> Option<Problem> + 'v;

/// Calls `visit` with each object that is a schema, until it finds a problem.
fn find(schema: &Value, pointer: &str, visit: &mut Visit<'_>) -> Option<Problem> {
    let object = schema.as_object()?;
    if let Some(found) = visit(object, pointer) {
        return Some(found);
    }
    for keyword in OF_PARTS.iter().chain(&OF_THE_VALUE) {
        let inner = object.get(*keyword);
        let at = format!("{pointer}/{keyword}");
        let found = match inner {
            Some(Value::Array(list)) => list
                .iter()
                .enumerate()
                .find_map(|(index, one)| find(one, &format!("{at}/{index}"), visit)),
            Some(one) => find(one, &at, visit),
            None => None,
        };
        if found.is_some() {
            return found;
        }
    }
    for keyword in OF_NAMED_PARTS.iter().chain(&[DEPENDENT]) {
        let named = object.get(*keyword).and_then(Value::as_object);
        for (name, one) in named.into_iter().flatten() {
            let at = format!("{pointer}/{keyword}/{}", escaped(name));
            if let Some(found) = find(one, &at, visit) {
                return Some(found);
            }
        }
    }
    None
}

/// A name as a step of a JSON pointer.
pub fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// A reference that leads back to itself for the same value, so that the check would not end.
fn endless(schema: &Value) -> Option<Problem> {
    let names = schema.get("$defs").and_then(Value::as_object);
    let names = names.into_iter().flatten().map(|(name, _)| name.as_str());
    let starts = std::iter::once("").chain(names);
    starts
        .filter(|start| leads_back(schema, start))
        .map(|start| match start {
            "" => "/$ref".to_owned(),
            name => format!("/$defs/{}", escaped(name)),
        })
        .map(|at| (at, "refers to itself for the same value, so its check would not end; refer to it from a property or an item".to_owned()))
        .next()
}

/// Whether the schema `start` (a definition, or the whole schema for an empty name) is among those that the same value must fit.
fn leads_back(schema: &Value, start: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut waiting = vec![start];
    while let Some(name) = waiting.pop() {
        let found = match name {
            "" => Some(schema),
            name => definition(schema, name),
        };
        let Some(found) = found else { continue };
        let mut next = Vec::new();
        of_the_value(found, &mut next);
        for name in next {
            if name == start {
                return true;
            }
            if seen.insert(name) {
                waiting.push(name);
            }
        }
    }
    false
}

/// The definitions to which a schema refers for the same value.
fn of_the_value<'s>(schema: &'s Value, names: &mut Vec<&'s str>) {
    let Some(object) = schema.as_object() else {
        return;
    };
    if let Some(reference) = object.get("$ref").and_then(Value::as_str) {
        names.push(target(reference).unwrap_or_default());
    }
    for keyword in OF_THE_VALUE {
        match object.get(keyword) {
            Some(Value::Array(list)) => list.iter().for_each(|one| of_the_value(one, names)),
            Some(one) => of_the_value(one, names),
            None => {}
        }
    }
    let dependent = object.get(DEPENDENT).and_then(Value::as_object);
    for (_, one) in dependent.into_iter().flatten() {
        of_the_value(one, names);
    }
}

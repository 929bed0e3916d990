//! `/openapi.json`: the description of the API for tools. It is maintained by hand. Tests compare it with the routes, here by
//! operation, and in `e2e/schemathesis` by accepted requests and answers. Values that depend on options are filled in at the
//! start.

use hyper::StatusCode;
use serde_json::Value;

use super::answer::{HttpResponse, typed};
use super::{ApiLimits, sign_up, stream};

/// The path of the description.
pub(super) const PATH: &str = "/openapi.json";
/// The methods of the path.
pub(super) const METHODS: &str = "GET, HEAD, OPTIONS";

const DESCRIPTION: &str = include_str!("openapi.json");
/// The places of the limits of names, batches and streams in the document.
const NAME_LENGTHS: [&str; 2] = [
    "/components/schemas/Name/maxLength",
    "/components/schemas/RecordName/maxLength",
];
const COLLECTION_LENGTH: &str = "/components/schemas/CollectionName/maxLength";
const COMMAND_COUNT: &str =
    "/paths/~1api/post/requestBody/content/application~1json/schema/properties/body/maxItems";
const TRANSACTION_COUNT: &str =
    "/paths/~1transactions/post/requestBody/content/application~1json/schema/maxItems";
const STREAM_NAME_COUNTS: [&str; 2] = [
    "/components/schemas/Names/maxItems",
    "/components/schemas/RecordNames/maxItems",
];
const AUTH_DATA: &str =
    "/paths/~1api/post/requestBody/content/application~1json/schema/properties/authData";

/// The description of an API with these limits.
pub(super) fn description(limits: &ApiLimits) -> String {
    // A test parses the document, so this cannot fail.
    let mut description: Value = serde_json::from_str(DESCRIPTION).unwrap_or_default();
    let mut fill = |pointer: &str, value: Value| {
        if let Some(found) = description.pointer_mut(pointer) {
            *found = value;
        }
    };
    for pointer in NAME_LENGTHS {
        fill(pointer, limits.name_bytes_max.into());
    }
    // A slash and an id follow the collection.
    fill(
        COLLECTION_LENGTH,
        limits.name_bytes_max.saturating_sub(2).into(),
    );
    fill(COMMAND_COUNT, limits.commands_max.into());
    fill(TRANSACTION_COUNT, limits.transaction_names_max.into());
    for pointer in STREAM_NAME_COUNTS {
        fill(pointer, stream::NAMES_MAX.into());
    }
    if !limits.allow_auth_data {
        fill(AUTH_DATA, false.into());
    }
    let endpoints = [
        ("/api/auth", limits.auth_endpoint),
        (sign_up::PATH, limits.sign_up),
    ];
    if let Some(paths) = description["paths"].as_object_mut() {
        for (path, _) in endpoints.iter().filter(|(_, is_there)| !is_there) {
            paths.remove(*path);
        }
    }
    description.to_string()
}

/// Answers with the description.
pub(super) fn describe(description: &str) -> HttpResponse {
    typed(StatusCode::OK, "application/json", description.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::super::{event, query, record, route_methods, transaction};
    use super::*;

    const LIMITS: ApiLimits = ApiLimits {
        body_bytes_max: 1,
        login_bytes_max: 1,
        body_timeout: Duration::ZERO,
        request_timeout: Duration::ZERO,
        answer_bytes_max: 1,
        record_bytes_max: 1,
        query_result_bytes_max: 1,
        commands_max: 123,
        transaction_names_max: 67,
        name_bytes_max: 45,
        patch: super::super::PatchLimits {
            copied_bytes_max: 1,
            nesting_max: 1,
        },
        heartbeat_interval: Duration::ZERO,
        allow_auth_data: true,
        auth_endpoint: true,
        sign_up: true,
    };

    fn described(limits: &ApiLimits) -> Value {
        serde_json::from_str(&description(limits)).expect("it is JSON")
    }

    #[test]
    fn every_operation_of_every_route_is_described_and_no_other() {
        let description = described(&LIMITS);
        let paths = description["paths"].as_object().expect("it has paths");
        let routes = [
            ("/api", "/api"),
            ("/api/auth", "/api/auth"),
            (sign_up::PATH, sign_up::PATH),
            ("/records/{name}", "/records/x"),
            (query::PATH, query::PATH),
            (transaction::PATH, transaction::PATH),
            ("/events/{name}", "/events/x"),
            (stream::PATH, stream::PATH),
            (PATH, PATH),
        ];
        let described: BTreeSet<&str> = paths.keys().map(String::as_str).collect();
        assert_eq!(described, routes.map(|(template, _)| template).into());
        assert!("/records/x".starts_with(record::PREFIX));
        assert!("/events/x".starts_with(event::PREFIX));
        for (template, path) in routes {
            let methods = route_methods(path)
                .expect("there is such a route")
                .to_lowercase();
            let taken: BTreeSet<&str> = methods
                .split(", ")
                .filter(|method| *method != "options")
                .collect();
            let operations = paths[template].as_object().expect("it has operations");
            let operations = operations.keys().map(String::as_str);
            let described: BTreeSet<&str> = operations.filter(|key| *key != "parameters").collect();
            assert_eq!(described, taken, "{template}");
        }
    }

    #[test]
    fn options_are_in_it() {
        let description = described(&LIMITS);
        for (pointer, value) in [
            (NAME_LENGTHS[0], 45),
            (NAME_LENGTHS[1], 45),
            (COMMAND_COUNT, 123),
            (TRANSACTION_COUNT, 67),
            (STREAM_NAME_COUNTS[0], stream::NAMES_MAX),
            (STREAM_NAME_COUNTS[1], stream::NAMES_MAX),
        ] {
            assert_eq!(
                description.pointer(pointer),
                Some(&value.into()),
                "{pointer}"
            );
        }
        assert!(description.pointer(AUTH_DATA).is_some_and(Value::is_object));
        let closed = described(&ApiLimits {
            allow_auth_data: false,
            auth_endpoint: false,
            sign_up: false,
            ..LIMITS
        });
        assert_eq!(closed.pointer(AUTH_DATA), Some(&false.into()));
        assert!(closed["paths"].get("/api/auth").is_none());
        assert!(closed["paths"].get(sign_up::PATH).is_none());
        assert!(closed["paths"].get("/api").is_some());
    }

    #[test]
    fn every_reference_leads_somewhere() {
        fn references<'v>(value: &'v Value, found: &mut Vec<&'v str>) {
            if let Some(object) = value.as_object() {
                found.extend(object.get("$ref").and_then(Value::as_str));
                object.values().for_each(|value| references(value, found));
            }
            for value in value.as_array().into_iter().flatten() {
                references(value, found);
            }
        }
        let description = described(&LIMITS);
        let mut found = Vec::new();
        references(&description, &mut found);
        assert!(found.len() > 50, "{}", found.len());
        for reference in found {
            let pointer = reference.trim_start_matches('#');
            assert!(description.pointer(pointer).is_some(), "{reference}");
        }
    }
}

//! `/openapi.json`: the description of the API for tools. It is kept by hand; a test holds it against the routes.

use hyper::StatusCode;

use super::answer::{Answer, typed};

/// The path of the description.
pub(super) const PATH: &str = "/openapi.json";
/// The methods of the path.
pub(super) const METHODS: &str = "GET, HEAD, OPTIONS";

const DESCRIPTION: &str = include_str!("openapi.json");

/// The description.
pub(super) fn describe() -> Answer {
    typed(StatusCode::OK, "application/json", DESCRIPTION.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::super::{record, route_methods, stream};

    #[test]
    fn every_operation_of_every_route_is_described_and_no_other() {
        let description: Value = serde_json::from_str(super::DESCRIPTION).expect("it is JSON");
        let paths = description["paths"].as_object().expect("it has paths");
        let routes = [
            ("/api", "/api"),
            ("/api/auth", "/api/auth"),
            ("/records/{name}", "/records/x"),
            (stream::PATH, stream::PATH),
            (super::PATH, super::PATH),
        ];
        let described: BTreeSet<&str> = paths.keys().map(String::as_str).collect();
        assert_eq!(described, routes.map(|(template, _)| template).into());
        assert!("/records/x".starts_with(record::PREFIX));
        for (template, path) in routes {
            let methods = route_methods(path)
                .expect("there is such a route")
                .to_lowercase();
            let taken: BTreeSet<&str> = methods
                .split(", ")
                // Deepstream's API names GET and refuses it.
                .filter(|method| *method != "options" && (path, *method) != ("/api", "get"))
                .collect();
            let operations = paths[template].as_object().expect("it has operations");
            let operations = operations.keys().map(String::as_str);
            let described: BTreeSet<&str> = operations.filter(|key| *key != "parameters").collect();
            assert_eq!(described, taken, "{template}");
        }
    }
}

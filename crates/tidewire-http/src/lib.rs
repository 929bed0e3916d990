//! The HTTP side of a node: the front that accepts connections and hands WebSockets over to shards, the HTTP API, the admin API
//! and page, the web pages in the binary, and the metrics of `/metrics`.

pub mod admin;
pub mod api;
pub mod audit;
pub mod denials;
pub mod front;
pub mod metrics;
pub mod origin;
pub mod peer;
pub mod permission;
pub mod permission_demo;
pub mod permission_report;
pub mod refusal;
pub(crate) mod request_body;
pub mod rights;
pub mod rights_log;
pub mod rule_case;
pub mod rules_text;
pub mod security_headers;
pub mod site;
pub mod status;

//! The cluster of the node, for an operator: its members, orders to leave it or to evict a member, and new rules for all nodes.

use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use super::api::{Admin, AdminResponse, Refusal, invalid, percent_decoded, refusal, stopping};
use super::users::not_found;
use crate::rights::RulesChange;
use crate::rules_text::RulesText;

/// The path prefix.
pub(super) const PATH: &str = "/admin/v1/cluster";
/// The path behind it that takes a whole file of rules.
const RULES: &str = "/rules";
/// The name of the rules if the request names no file.
const UNNAMED: &str = "rules";

/// Whether a request has a file of rules as its body, which may be longer than other bodies.
pub(super) fn has_rules(path: &str) -> bool {
    path.strip_prefix(PATH) == Some(RULES)
}

/// The cluster of the node.
pub trait ClusterAdmin: Send + Sync {
    /// The view and its members, as this node sees them.
    fn status(&self) -> Value;

    /// Begins to stop the node, which leaves the cluster. False if the process can't receive the order.
    fn leave(&self) -> bool;

    /// Evicts the member with this number. False if the view has no such other member.
    fn evict(&self, node: u16) -> bool;
}

impl Admin {
    /// Executes a request below [`PATH`]. `rest` is the path behind it.
    pub(super) async fn cluster(
        &self,
        method: &Method,
        rest: &str,
        query: Option<&str>,
        body: &[u8],
    ) -> AdminResponse {
        let Some(cluster) = &self.cluster else {
            return Err(not_found(
                "the node is not a member of a cluster; set cluster.enabled",
            ));
        };
        match (method, rest, rest.strip_prefix("/members/")) {
            (&Method::GET, "", _) => Ok((StatusCode::OK, cluster.status())),
            (&Method::POST, "/leave", _) if cluster.leave() => {
                Ok((StatusCode::ACCEPTED, json!({ "leaving": true })))
            }
            (&Method::POST, "/leave", _) => Err(stopping()),
            (&Method::DELETE, _, Some(node)) => {
                let node = node
                    .parse()
                    .map_err(|_| invalid("the number of a node is missing"))?;
                match cluster.evict(node) {
                    true => Ok((StatusCode::ACCEPTED, json!({ "evicting": node }))),
                    false => Err(not_found("the view has no other member with this number")),
                }
            }
            (&Method::PUT, RULES, _) => self.replace_rules(query, body).await,
            (_, "" | "/leave" | RULES, _) => Err(Refusal::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "METHOD_NOT_ALLOWED",
                format!("{PATH}{rest} does not support {method}"),
            )),
            _ => Err(not_found("this path does not exist; see docs/admin-api.md")),
        }
    }

    /// Gives the cluster new rules. When the answer arrives at the caller, they are in force on all nodes.
    async fn replace_rules(&self, query: Option<&str>, body: &[u8]) -> AdminResponse {
        let text = std::str::from_utf8(body).map_err(|_| invalid("the body is not UTF-8"))?;
        let file = match query {
            None => UNNAMED.to_owned(),
            Some(query) => query
                .strip_prefix("file=")
                .and_then(percent_decoded)
                .ok_or_else(|| invalid("the query may only have file=NAME"))?,
        };
        let rules = RulesText::new(&file, text);
        tracing::info!(
            file,
            sha256 = rules.short_hash(),
            "an operator replaces the rules"
        );
        let replaced = self.rights.replace_rules(rules, RulesChange::Replace).await;
        replaced.map_err(refusal)?;
        let now = self.rights.rules().ok_or_else(stopping)?;
        let rules = json!({
            "change": now.number,
            "file": now.rules.file(),
            "sha256": now.rules.sha256(),
        });
        Ok((StatusCode::OK, rules))
    }
}

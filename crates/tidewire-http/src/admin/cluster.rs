//! The cluster of the node, for an operator: its members, and orders to leave it or to evict a member.

use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use super::api::{Admin, AdminResponse, Refusal, invalid, stopping};
use super::users::not_found;

/// The path prefix.
pub(super) const PATH: &str = "/admin/v1/cluster";

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
    pub(super) fn cluster(&self, method: &Method, rest: &str) -> AdminResponse {
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
            (_, "" | "/leave", _) => Err(Refusal::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "METHOD_NOT_ALLOWED",
                format!("{PATH}{rest} does not support {method}"),
            )),
            _ => Err(not_found("this path does not exist; see docs/admin-api.md")),
        }
    }
}

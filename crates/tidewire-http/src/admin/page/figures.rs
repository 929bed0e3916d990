//! The numbers that the page plots: the numbers of `/metrics`, and the state of the node.

use hyper::StatusCode;
use serde_json::{Value, json};
use tidewire_auth::jwt;

use super::{Page, shown};
use crate::api::HttpResponse;
use crate::metrics::process::resident_bytes;

impl Page {
    /// Reads counters that the shards maintain anyway, so no shard has to answer a request.
    pub(super) fn figures(&self) -> HttpResponse {
        let mut figures = self.parts.numbers.figures();
        let status = &self.parts.admin.status;
        let reasons = status.reasons();
        figures["at"] = jwt::now().0.into();
        figures["shards"] = self.parts.shards.len().into();
        figures["residentBytes"] = resident_bytes().map_or(Value::Null, Value::from);
        figures["ready"] = reasons.is_empty().into();
        figures["reasons"] = json!(reasons);
        figures["warnings"] = json!(status.warnings());
        if let Value::Array(stores) = &mut figures["stores"] {
            for (store, promise) in stores.iter_mut().zip(&self.parts.promises) {
                store["promise"] = promise.as_str().into();
            }
        }
        shown(StatusCode::OK, &figures)
    }
}

//! Lists stored records by the prefix of their names, one page at a time. The page reads their values one by one through the
//! engine.

use hyper::StatusCode;
use serde_json::{Value, json};
use tidewire_core::store::{Loaded, ScanPage, StoreError};
use tidewire_core::text::{Name, RESERVED};
use tidewire_store::thread::{Scan, StoreClient};
use tokio::sync::oneshot;

use super::{Outcome, Page, PageRequest, parameter, shown};
use crate::admin::api::unavailable;

/// Records on a page. A scan of the store also reads the values, so a page of large records is expensive.
const PAGE_RECORDS: usize = 50;

impl Page {
    /// The list lacks records whose writes are not committed yet. That takes milliseconds.
    pub(super) async fn records(&self, asked: &PageRequest) -> Outcome {
        let parameters = asked.parameters()?;
        let prefix = parameter(&parameters, "prefix").unwrap_or_default();
        let after = parameter(&parameters, "after");
        self.log_view(asked, &format!("records {prefix}"));
        let after = first_after(after);
        let mut found: Vec<(Name, Loaded)> = Vec::new();
        let mut has_more = false;
        for store in &self.parts.stores {
            let page = scan(store, prefix, &after).await;
            let page = page.map_err(|error| unavailable(&error.to_string()))?;
            has_more |= page.more;
            found.extend(page.records);
        }
        // Records with reserved names belong to the server; clients can't name them.
        found.retain(|(name, _)| !name.starts_with(RESERVED));
        found.sort_unstable_by(|(left, _), (right, _)| left.cmp(right));
        has_more |= found.len() > PAGE_RECORDS;
        found.truncate(PAGE_RECORDS);
        let last = found.last().map(|(name, _)| name.as_str().to_owned());
        let records: Vec<Value> = found
            .iter()
            .map(|(name, loaded)| show(name, loaded))
            .collect();
        let next = last.filter(|_| has_more);
        Ok(shown(
            StatusCode::OK,
            &json!({ "records": records, "next": next }),
        ))
    }
}

/// The name after which a scan begins: at least the last of the server's reserved names. They begin with a character that sorts
/// before every character that people type.
fn first_after(after: Option<&str>) -> Name {
    let own_end = format!("{RESERVED}{}", char::MAX);
    match after {
        Some(after) if *after > *own_end => Name::from(after),
        _ => Name::from(own_end.as_str()),
    }
}

async fn scan(store: &StoreClient, prefix: &str, after: &Name) -> Result<ScanPage, StoreError> {
    let (answer, page) = oneshot::channel();
    let scan = Scan {
        prefix: prefix.to_owned(),
        after: Some(after.clone()),
        count_max: PAGE_RECORDS,
    };
    store.scan(
        scan,
        Box::new(move |page| {
            // The request may have been cancelled.
            let _ = answer.send(page);
        }),
    );
    let stopped = || StoreError::unavailable("the server is stopping");
    page.await.unwrap_or_else(|_| Err(stopped()))
}

fn show(name: &Name, loaded: &Loaded) -> Value {
    let name = name.as_str();
    match loaded {
        Loaded::Found(record) => json!({
            "name": name,
            "version": record.version.0,
            "bytes": record.data.len(),
        }),
        Loaded::Missing | Loaded::Corrupt => json!({ "name": name, "damaged": true }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_begins_behind_the_servers_own_names() {
        let own_end = format!("{RESERVED}{}", char::MAX);
        for after in [None, Some(""), Some("\u{1}user/alice")] {
            assert_eq!(first_after(after).as_str(), own_end, "{after:?}");
        }
        assert_eq!(first_after(Some("a")).as_str(), "a");
        assert!(*own_end < *"\u{2}");
    }
}

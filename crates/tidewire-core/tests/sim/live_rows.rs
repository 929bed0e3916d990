//! The rows of a live query as its client sees them, and their changes.

use serde_json::Value;

/// Ids and values, in the order of the result.
pub type Rows = Vec<(String, Value)>;

/// The rows of a whole result.
pub fn rows_of(result: &Value) -> Rows {
    let rows = result["rows"].as_array().expect("rows").iter();
    rows.map(row_of).collect()
}

fn row_of(row: &Value) -> (String, Value) {
    (
        row["id"].as_str().expect("an id").to_owned(),
        row["data"].clone(),
    )
}

/// Applies changes in their order, each of which must fit the rows before it.
pub fn apply(rows: &mut Rows, changes: &Value) -> Result<(), String> {
    let list = changes.as_array().filter(|list| !list.is_empty());
    for change in list.ok_or_else(|| format!("no changes: {changes}"))? {
        let place = |rows: &Rows, id: &str| rows.iter().position(|(known, _)| known == id);
        if change["type"] == "removed" {
            let id = change["id"].as_str().expect("an id");
            let at = place(rows, id).ok_or_else(|| format!("{id} is removed and was not shown"))?;
            rows.remove(at);
            continue;
        }
        let row = row_of(&change["row"]);
        let index = change["index"].as_u64().expect("an index") as usize;
        match (change["type"].as_str(), place(rows, &row.0)) {
            (Some("added"), None) => {}
            (Some("changed"), Some(at)) => {
                let old = rows.remove(at);
                if old == row && at == index {
                    return Err(format!("{change} changes nothing"));
                }
            }
            (_, shown) => return Err(format!("{change} of a row at {shown:?}")),
        }
        if index > rows.len() {
            return Err(format!("{change} is behind {} rows", rows.len()));
        }
        rows.insert(index, row);
    }
    Ok(())
}

//! Reads the records of deepstream's connector for PostgreSQL. Its schema has a table for each first part of a name, with the
//! columns `id`, `version` and `val`, which is text or `jsonb`.

use tidewire_store::postgres::connect_to_any;
use tokio_postgres::Error;

use super::{Found, Layout, MigrationError, Source, Visit, too_large};

/// Rows of a page.
const PAGE_COUNT: u32 = 100;

/// Finds the tables that have the columns of a connector's table.
const TABLES: &str = "SELECT table_name::TEXT FROM information_schema.columns
    WHERE table_schema = $1 AND column_name IN ('id', 'version', 'val')
    GROUP BY table_name HAVING count(*) = 3 ORDER BY table_name";

pub(super) fn read(
    source: &Source,
    bytes_max: usize,
    visit: Visit<'_>,
) -> Result<(), MigrationError> {
    let client = connect_to_any(&source.options)?;
    let schema = &source.layout.schema;
    // Reads all tables as of one instant; a cursor returns them page by page.
    let begin = "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY";
    wait(source, client.batch_execute(begin))?;
    let tables = wait(source, client.query(TABLES, &[schema]))?;
    if tables.is_empty() {
        return Err(MigrationError::source(format!(
            "it has no deepstream table in the schema {schema:?}; name another schema with --schema"
        )));
    }
    for table in tables {
        let table: String = value(table.try_get(0))?;
        let declare = format!(
            "DECLARE records NO SCROLL CURSOR FOR SELECT id::TEXT, version::BIGINT, octet_length(val::TEXT)::BIGINT,
                CASE WHEN octet_length(val::TEXT) <= {bytes_max} THEN val::TEXT END
            FROM {}.{}",
            quoted(schema),
            quoted(&table),
        );
        wait(source, client.batch_execute(&declare))?;
        loop {
            let fetch = format!("FETCH FORWARD {PAGE_COUNT} FROM records");
            let rows = wait(source, client.query(&fetch, &[]))?;
            if rows.is_empty() {
                break;
            }
            for row in rows {
                let id: Option<String> = value(row.try_get(0))?;
                let bytes: Option<i64> = value(row.try_get(2))?;
                let data: Option<String> = value(row.try_get(3))?;
                let default_table = &source.layout.default_table;
                let missing = || match bytes {
                    Some(bytes) => too_large(bytes.unsigned_abs(), bytes_max),
                    None => "there are no data".to_owned(),
                };
                visit(Found {
                    name: Layout::name(&table, default_table, "/", &id.unwrap_or_default()),
                    version: value(row.try_get(1))?,
                    data: data.ok_or_else(missing),
                })?;
            }
        }
        wait(source, client.batch_execute("CLOSE records"))?;
    }
    Ok(())
}

fn wait<T>(
    source: &Source,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, MigrationError> {
    let answer = source.options.wait(work);
    value(answer.map_err(|error| MigrationError::source(error.message))?)
}

fn value<T>(answer: Result<T, Error>) -> Result<T, MigrationError> {
    answer.map_err(|error| {
        let message = error.as_db_error().map(|error| error.message().to_owned());
        MigrationError::source(message.unwrap_or_else(|| error.to_string()))
    })
}

/// A quoted identifier for a statement.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

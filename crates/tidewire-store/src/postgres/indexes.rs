//! Indexes of collections: their entries change in the statement that changes the records, and one member at a time builds a new index in
//! steps (`index_list.rs`). Contract: `spec/store-postgres.md`, "Indexes".
//!
//! Several members commit, and each of them must know all indexes. The list of indexes has a number. It changes only while no commit runs
//! (`fence.rs`), and a commit with another number than the current one does nothing: its member reads the list and repeats it. So every
//! commit since the declaration of an index has changed the entries of the index.
//!
//! A build computes the keys of some records first. Then it adds, while no commit runs, the entries of those records that exist and have no
//! entry. If a commit has changed a record in between, that commit has left the entry.

use std::sync::Arc;

use tidewire_core::indexes::Tape;
use tidewire_core::store::{IndexBuild, IndexEnd, IndexRead, StoreWrite};
use tokio_postgres::{Client, Error, GenericClient, IsolationLevel, Row, Statement, Transaction};

use super::fence::Fence;
use crate::index_list::{
    BUILDING, COMPLETE, Entry, IndexList, KeptIndex, REMOVED, STEP_BYTES, STEP_ROWS,
};
use crate::range::prefix_end;

/// The tables and the row of `tidewire_meta` since format 5. A process without a row in `tidewire_index_members` is of an earlier version
/// and keeps no indexes.
pub(super) const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS tidewire_indexes (
        number BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
        definition TEXT NOT NULL,
        state BIGINT NOT NULL,
        position BYTEA NOT NULL
    );
    CREATE TABLE IF NOT EXISTS tidewire_index_entries (
        number BIGINT NOT NULL,
        name BYTEA NOT NULL,
        key BYTEA NOT NULL,
        PRIMARY KEY (number, name)
    );
    CREATE INDEX IF NOT EXISTS tidewire_index_entries_by_key
        ON tidewire_index_entries (number, key, name);
    CREATE TABLE IF NOT EXISTS tidewire_index_members (
        birth BIGINT PRIMARY KEY,
        definitions TEXT NOT NULL
    );
    INSERT INTO tidewire_meta VALUES ('indexes', 0) ON CONFLICT DO NOTHING;";

/// Notes the definitions that a process declares, and forgets the definitions of processes that have left.
const SET_DECLARED: &str = "INSERT INTO tidewire_index_members VALUES ($1, $2) ON CONFLICT (birth) DO UPDATE SET definitions = $2";
const FORGET_LEFT: &str = "DELETE FROM tidewire_index_members AS gone WHERE NOT EXISTS
    (SELECT FROM tidewire_members AS member WHERE member.birth = gone.birth)";
const KEEPS_NONE: &str = "NOT EXISTS
    (SELECT FROM tidewire_index_members AS keeper WHERE keeper.birth = member.birth)";

/// The list and its number, of one moment.
const LIST: &str = "SELECT meta.value, kept.number, kept.definition, kept.state, kept.position
    FROM tidewire_meta AS meta LEFT JOIN tidewire_indexes AS kept ON TRUE
    WHERE meta.key = 'indexes' ORDER BY kept.number";

/// The next records of a build, without those behind too many bytes.
const RECORDS: &str = "SELECT name, data FROM (
        SELECT name, data, sum(octet_length(data)) OVER (ORDER BY name) - octet_length(data) AS before
        FROM (
            SELECT name, data FROM tidewire_records
            WHERE name > $1 AND name >= $2 AND name < $3 ORDER BY name LIMIT $4
        ) AS next
    ) AS sized WHERE before < $5 ORDER BY name";
const ADD: &str = "INSERT INTO tidewire_index_entries (number, name, key)
    SELECT $1, built.name, built.key FROM UNNEST($2::BYTEA[], $3::BYTEA[]) AS built (name, key)
    WHERE EXISTS (SELECT FROM tidewire_records AS stored WHERE stored.name = built.name)
    ON CONFLICT DO NOTHING";
const CLEAR: &str = "DELETE FROM tidewire_index_entries WHERE number = $1 AND name IN
    (SELECT name FROM tidewire_index_entries WHERE number = $1 LIMIT $2)";

const USABLE: &str = "SELECT number FROM tidewire_indexes WHERE definition = $1 AND state = 1";
const IN_RANGE: &str = "SELECT key, name FROM tidewire_index_entries
    WHERE number = $1 AND key >= $2 AND key < $3";

/// Between the definitions of a process; they have single line feeds.
const SEPARATOR: &str = "\n\n";
/// How long a step waits for the commits that run.
const LOCK_MS_MAX: u32 = 1_000;
/// A name with more bytes does not fit into an entry of PostgreSQL's index together with a long key, so its record has the short key of
/// records that each query reads.
const NAME_BYTES_MAX: usize = 2_000;
/// Entries that a reader receives at once.
const PAGE_ENTRIES: i32 = 4_096;

/// The indexes of the database, as its last reader knows them.
#[derive(Debug, Default)]
pub(super) struct Indexes {
    list: IndexList,
    /// The number of the list.
    pub(super) number: i64,
    tape: Tape,
}

/// A declaration of indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Declared {
    /// The list has them.
    Done,
    /// A member keeps no indexes, so the list stays as it is until that member has left.
    Waiting,
}

impl Indexes {
    /// Reads which indexes the database has.
    pub(super) async fn read(client: &impl GenericClient) -> Result<Self, Error> {
        let mut indexes = Self::default();
        for row in client.query(LIST, &[]).await? {
            indexes.number = row.try_get(0)?;
            let Some(number) = row.try_get(1)? else {
                continue;
            };
            let position: &[u8] = row.try_get(4)?;
            let position = String::from_utf8_lossy(position).into_owned();
            indexes
                .list
                .add(number, row.try_get(2)?, row.try_get(3)?, position);
        }
        Ok(indexes)
    }

    /// Whether an index is to be built or removed.
    pub(super) fn is_pending(&self) -> bool {
        self.list.is_pending()
    }

    /// The entries that a batch leaves.
    pub(super) fn entries(&mut self, writes: &[StoreWrite]) -> Vec<Entry> {
        let mut entries = self.list.entries(&mut self.tape, writes);
        for entry in &mut entries {
            let is_long = writes[entry.write_index].name.len() > NAME_BYTES_MAX;
            if let (true, Some(key), Some(kept)) = (is_long, &mut entry.key, self.list.kept.first())
            {
                *key = kept.unknown_key();
            }
        }
        entries
    }
}

/// Notes that a process which opens the store keeps indexes, and that it declares none yet.
pub(super) async fn begin(client: &impl GenericClient, birth: i64) -> Result<(), Error> {
    client.execute(SET_DECLARED, &[&birth, &""]).await?;
    Ok(())
}

/// Declares the indexes of a process: adds those that are new to the list, and removes those that no process declares.
pub(super) async fn declare(
    client: &mut Client,
    birth: i64,
    definitions: &[Arc<str>],
    format: i64,
) -> Result<Declared, Error> {
    let own = definitions.join(SEPARATOR);
    client.execute(SET_DECLARED, &[&birth, &own]).await?;
    // Without this look, each attempt would stop the commits.
    if has_older(&*client).await? {
        return Ok(Declared::Waiting);
    }
    let transaction = begin_transaction(client).await?;
    let fence = Fence::find(&transaction).await?;
    fence.exclude_commits(&transaction, &[]).await?;
    transaction.execute(FORGET_LEFT, &[]).await?;
    let declared = "SELECT definitions FROM tidewire_index_members ORDER BY birth";
    let declared = transaction.query(declared, &[]).await?;
    // In the order of the configuration, in which they are built.
    let mut all: Vec<&str> = Vec::new();
    for row in &declared {
        let definitions: &str = row.try_get(0)?;
        for text in definitions.split(SEPARATOR) {
            if !text.is_empty() && !all.contains(&text) {
                all.push(text);
            }
        }
    }
    let declared = change_list(&transaction, &all, format).await?;
    transaction.commit().await?;
    Ok(declared)
}

/// Whether a member of the view keeps no indexes.
async fn has_older(client: &impl GenericClient) -> Result<bool, Error> {
    let older = format!(
        "SELECT EXISTS (SELECT FROM tidewire_members AS member WHERE is_active AND {KEEPS_NONE})"
    );
    client.query_one(&older, &[]).await?.try_get(0)
}

async fn change_list(
    transaction: &Transaction<'_>,
    definitions: &[&str],
    format: i64,
) -> Result<Declared, Error> {
    let kept = Indexes::read(transaction).await?.list;
    let is_known = |text: &&str| kept.kept.iter().any(|kept| kept.definition == **text);
    if kept.kept.len() == definitions.len() && definitions.iter().all(is_known) {
        return Ok(Declared::Done);
    }
    if has_older(transaction).await? {
        return Ok(Declared::Waiting);
    }
    // A process that has not joined yet opens the store again, which the format refuses.
    let refuse =
        format!("DELETE FROM tidewire_members AS member WHERE NOT is_active AND {KEEPS_NONE}");
    transaction.execute(&refuse, &[]).await?;
    for number in kept.undeclared(definitions) {
        let change = "UPDATE tidewire_indexes SET state = $2 WHERE number = $1";
        transaction.execute(change, &[&number, &REMOVED]).await?;
    }
    for text in kept.missing(definitions) {
        let add = "INSERT INTO tidewire_indexes (definition, state, position) VALUES ($1, $2, '')";
        transaction.execute(add, &[&text, &BUILDING]).await?;
        let raise = "UPDATE tidewire_meta SET value = $1 WHERE key = 'format' AND value < $1";
        transaction.execute(raise, &[&format]).await?;
    }
    let number = "UPDATE tidewire_meta SET value = value + 1 WHERE key = 'indexes'";
    transaction.execute(number, &[]).await?;
    Ok(Declared::Done)
}

/// Does a step of a build or of a removal. Returns the list after it.
pub(super) async fn step(client: &mut Client) -> Result<(Indexes, IndexBuild), Error> {
    let transaction = begin_transaction(client).await?;
    let fence = Fence::find(&transaction).await?;
    let is_builder: bool = fence.try_build(&transaction).await?;
    let mut before = Indexes::read(&transaction).await?;
    if !is_builder || !before.is_pending() {
        let state = match before.is_pending() {
            true => IndexBuild::Waiting,
            false => IndexBuild::Complete,
        };
        return Ok((before, state));
    }
    // A lost step is repeated. The commits that follow it reach the disk behind it.
    let unsynced =
        format!("SET LOCAL synchronous_commit = off; SET LOCAL lock_timeout = {LOCK_MS_MAX}");
    transaction.batch_execute(&unsynced).await?;
    if let Some(number) = before.list.removed.first() {
        let rows = transaction
            .execute(CLEAR, &[number, &(STEP_ROWS as i64)])
            .await?;
        if rows < STEP_ROWS as u64 {
            let remove = "DELETE FROM tidewire_indexes WHERE number = $1";
            transaction.execute(remove, &[number]).await?;
        }
    } else if let Some(index) = before.list.building() {
        build(&transaction, fence, index, &mut before.tape).await?;
    }
    let after = Indexes::read(&transaction).await?;
    transaction.commit().await?;
    after.list.log_completed(&before.list);
    let state = match after.is_pending() {
        true => IndexBuild::Pending,
        false => IndexBuild::Complete,
    };
    Ok((after, state))
}

/// Adds the entries of the next records to an index.
async fn build(
    transaction: &Transaction<'_>,
    fence: Fence,
    index: &KeptIndex,
    tape: &mut Tape,
) -> Result<(), Error> {
    let (prefix, end) = (&index.prefix, prefix_end(&index.prefix).unwrap_or_default());
    let [position, first, end] = [&*index.position, &**prefix, &*end].map(str::as_bytes);
    let (rows_max, bytes_max) = (STEP_ROWS as i64, STEP_BYTES as i64);
    let rows = transaction
        .query(RECORDS, &[&position, &first, &end, &rows_max, &bytes_max])
        .await?;
    let (mut names, mut keys, mut bytes) = (Vec::new(), Vec::new(), 0);
    let mut last = position;
    for row in &rows {
        let (name, data): (&[u8], &str) = (row.try_get(0)?, row.try_get(1)?);
        last = name;
        bytes += data.len();
        let Some(text) = std::str::from_utf8(name)
            .ok()
            .filter(|name| index.has(name))
        else {
            continue;
        };
        names.push(name);
        keys.push(match name.len() > NAME_BYTES_MAX {
            true => index.unknown_key(),
            false => index.key(tape, text, data),
        });
    }
    let is_last = rows.len() < STEP_ROWS && bytes < STEP_BYTES;
    let state = if is_last { COMPLETE } else { BUILDING };
    fence.wait_for_commits(transaction).await?;
    transaction
        .execute(ADD, &[&index.number, &names, &keys])
        .await?;
    let change =
        "UPDATE tidewire_indexes SET state = $2, position = $3 WHERE number = $1 AND state = 0";
    transaction
        .execute(change, &[&index.number, &state, &last])
        .await?;
    Ok(())
}

async fn begin_transaction(client: &mut Client) -> Result<Transaction<'_>, Error> {
    let transaction = client.build_transaction();
    transaction
        .isolation_level(IsolationLevel::ReadCommitted)
        .start()
        .await
}

/// The statements that read indexes.
#[derive(Clone)]
pub(super) struct ReadStatements {
    usable: Statement,
    ascending: Statement,
    descending: Statement,
}

impl ReadStatements {
    pub(super) async fn prepare(client: &Client) -> Result<Self, Error> {
        let ascending = format!("{IN_RANGE} ORDER BY key, name");
        let descending = format!("{IN_RANGE} ORDER BY key DESC, name DESC");
        Ok(Self {
            usable: client.prepare(USABLE).await?,
            ascending: client.prepare(&ascending).await?,
            descending: client.prepare(&descending).await?,
        })
    }
}

/// Reads entries of an index, all of one moment.
pub(super) async fn read(
    client: &mut Client,
    statements: &ReadStatements,
    read: &IndexRead,
    visit: &mut dyn FnMut(&[u8], &str),
) -> Result<IndexEnd, Error> {
    let transaction = client.build_transaction();
    let transaction = transaction
        .isolation_level(IsolationLevel::RepeatableRead)
        .read_only(true)
        .start()
        .await?;
    let usable = transaction
        .query_opt(&statements.usable, &[&&*read.definition])
        .await?;
    let Some(usable) = usable else {
        return Ok(IndexEnd::Unusable);
    };
    let number: i64 = usable.try_get(0)?;
    let statement = match read.descending {
        true => &statements.descending,
        false => &statements.ascending,
    };
    let mut left = read.count_max;
    for (low, high) in &read.ranges {
        let range = transaction.bind(statement, &[&number, low, high]).await?;
        loop {
            // One more than is left shows whether there are more.
            let page = i32::try_from(left).map_or(PAGE_ENTRIES, |left| {
                left.saturating_add(1).min(PAGE_ENTRIES)
            });
            let rows: Vec<Row> = transaction.query_portal(&range, page).await?;
            for row in &rows {
                if left == 0 {
                    return Ok(IndexEnd::More);
                }
                left -= 1;
                let (key, name): (&[u8], &[u8]) = (row.try_get(0)?, row.try_get(1)?);
                visit(key, std::str::from_utf8(name).unwrap_or_default());
            }
            if rows.len() < page as usize {
                break;
            }
        }
    }
    Ok(IndexEnd::Complete)
}

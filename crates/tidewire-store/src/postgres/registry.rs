//! The registry of members in PostgreSQL, and the rows that an opening writes for them.

use std::collections::HashMap;

use tidewire_core::address::Epoch;
use tidewire_core::store::{
    Heartbeat, MemberId, Opened, Proposal, Registry, StoreError, StoredView, View,
};
use tidewire_core::view::Generation;
use tokio_postgres::{Error, GenericClient, IsolationLevel, Transaction};

use super::fence::Fence;
use super::{Connection, FORMAT, FORMAT_WITHOUT_INDEXES, Location, indexes, refusal};
use crate::remote::{Membership, RemoteError, unknown_member};
use crate::{epoch_after, view_document};

/// The tables and columns since format 3, and the new rows of `tidewire_meta`.
pub(super) const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS tidewire_members (
        birth BIGINT PRIMARY KEY,
        node BIGINT NOT NULL,
        connection BIGINT NOT NULL,
        is_active BOOLEAN NOT NULL,
        backend BIGINT,
        backend_start TIMESTAMPTZ
    );
    CREATE TABLE IF NOT EXISTS tidewire_view (number BIGINT PRIMARY KEY, body TEXT NOT NULL);
    INSERT INTO tidewire_meta VALUES ('view', 0) ON CONFLICT DO NOTHING;";

/// The meta rows. All that change them lock them in this order. The lock also waits for a commit of version 3, which has a share lock on the
/// row `view`.
const LOCK_META: &str = "SELECT key, value FROM tidewire_meta ORDER BY key FOR UPDATE";
const SET_META: &str = "UPDATE tidewire_meta SET value = $2 WHERE key = $1";

/// The upgrade of the tables from an earlier format. PostgreSQL adds the columns without a change of the rows.
const ADD_COLUMNS: &str = "
    ALTER TABLE tidewire_records ADD COLUMN IF NOT EXISTS write_keys TEXT;
    ALTER TABLE tidewire_members ADD COLUMN IF NOT EXISTS backend BIGINT,
        ADD COLUMN IF NOT EXISTS backend_start TIMESTAMPTZ;
    DROP TABLE IF EXISTS tidewire_epochs";

/// The identity of the database cluster, and its timeline, which grows when a standby is promoted.
const GENERATION: &str = "SELECT (SELECT system_identifier::TEXT FROM pg_control_system())
    || '/' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)";

/// The registry, with its own connection.
pub(super) struct PostgresRegistry {
    pub(super) location: Location,
    pub(super) client: Option<Connection>,
}

impl PostgresRegistry {
    fn client(&mut self) -> Result<Connection, StoreError> {
        self.location.runtime.catch_up();
        match self.client.take() {
            Some(client) if !client.is_closed() => Ok(client),
            _ => Ok(self.location.wait(self.location.open_connection())?),
        }
    }
}

impl Registry for PostgresRegistry {
    fn view(&mut self) -> Result<StoredView, StoreError> {
        let client = self.client()?;
        let view = self.location.attempt(read(&*client))?;
        self.client = Some(client);
        decode(view)
    }

    fn propose(&mut self, expected: View, proposal: &Proposal) -> Result<StoredView, StoreError> {
        let mut client = self.client()?;
        let births: Vec<i64> = proposal
            .members
            .iter()
            .map(|member| member.id.birth.cast_signed())
            .collect();
        let proposed = self.location.attempt(async {
            let transaction = client
                .build_transaction()
                .isolation_level(IsolationLevel::ReadCommitted)
                .start()
                .await?;
            let leaving = active_but(&transaction, &births).await?;
            let fence = Fence::find(&transaction).await?;
            fence.exclude_commits(&transaction, &leaving).await?;
            let meta = lock(&transaction).await?;
            let before = read(&transaction).await?;
            if meta.get("view") != Some(&expected.0.cast_signed()) {
                return Ok(Ok(before));
            }
            let mut before = match decode(before) {
                Ok(before) => before,
                Err(error) => return Ok(Err(error)),
            };
            if before.number == View(0) {
                let epoch = meta.get("epoch").copied().unwrap_or(0);
                before.epochs.epoch = Epoch(epoch.cast_unsigned());
            }
            let keep = "DELETE FROM tidewire_members WHERE is_active AND birth <> ALL($1)";
            transaction.execute(keep, &[&births]).await?;
            let add = "UPDATE tidewire_members SET is_active = TRUE WHERE birth = ANY($1)";
            if transaction.execute(add, &[&births]).await? != births.len() as u64 {
                // The end of the transaction takes the deletions back.
                return Ok(Err(unknown_member()));
            }
            let number = meta.get("opening").copied().unwrap_or(0) + 1;
            let generation = generation(&transaction).await?;
            let view =
                view_document::next(&before, View(number.cast_unsigned()), proposal, generation);
            let epoch = view.epochs.epoch.0.cast_signed();
            for (key, value) in [
                ("opening", number),
                ("view", number),
                ("clean", 0),
                ("epoch", epoch),
            ] {
                transaction.execute(SET_META, &[&key, &value]).await?;
            }
            write(&transaction, &view).await?;
            transaction.commit().await?;
            Ok(Ok(Some((number, view_document::encode(&view)))))
        })?;
        self.client = Some(client);
        decode(proposed?)
    }

    fn heartbeat(&mut self) -> Result<Heartbeat, StoreError> {
        let client = self.client()?;
        let heartbeat = self.location.attempt(async {
            let number = "SELECT value FROM tidewire_meta WHERE key = 'view'";
            let number: i64 = client.query_one(number, &[]).await?.try_get(0)?;
            Ok(Heartbeat {
                view: View(number.cast_unsigned()),
                generation: generation(&*client).await?,
            })
        })?;
        self.client = Some(client);
        Ok(heartbeat)
    }
}

/// The generation of the database now.
pub(super) async fn generation(client: &impl GenericClient) -> Result<Generation, Error> {
    let row = client.query_one(GENERATION, &[]).await?;
    Ok(Generation(row.try_get(0)?))
}

/// Whether the database has another generation than the current view. Its last commits may be missing, and the members must agree on a view
/// with later epochs before they commit again.
pub(super) async fn has_new_generation(client: &impl GenericClient) -> Result<bool, Error> {
    let Some((_, body)) = read(client).await? else {
        return Ok(false);
    };
    let generation = generation(client).await?;
    Ok(view_document::decode(&body).is_ok_and(|view| view.generation != generation))
}

/// The number of the stored view and its document.
type StoredText = Option<(i64, String)>;

async fn read(client: &impl GenericClient) -> Result<StoredText, Error> {
    let row = client
        .query_opt("SELECT number, body FROM tidewire_view", &[])
        .await?;
    row.map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
        .transpose()
}

fn decode(stored: StoredText) -> Result<StoredView, StoreError> {
    match stored {
        Some((_, body)) => view_document::decode(&body),
        None => Ok(StoredView::empty()),
    }
}

async fn write(transaction: &Transaction<'_>, view: &StoredView) -> Result<(), Error> {
    transaction
        .execute("DELETE FROM tidewire_view", &[])
        .await?;
    let insert = "INSERT INTO tidewire_view VALUES ($1, $2)";
    let (number, body) = (view.number.0.cast_signed(), view_document::encode(view));
    transaction.execute(insert, &[&number, &body]).await?;
    Ok(())
}

/// The births of the members, without the ones of `kept`.
async fn active_but(transaction: &Transaction<'_>, kept: &[i64]) -> Result<Vec<i64>, Error> {
    let leaving = "SELECT birth FROM tidewire_members WHERE is_active AND birth <> ALL($1)";
    let rows = transaction.query(leaving, &[&kept]).await?;
    rows.iter().map(|row| row.try_get(0)).collect()
}

async fn lock(transaction: &Transaction<'_>) -> Result<HashMap<String, i64>, Error> {
    let rows = transaction.query(LOCK_META, &[]).await?;
    let pairs = rows
        .iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
    pairs.collect()
}

/// Stores the opening. Refuses a store of a newer version, and upgrades one of an older version.
pub(super) async fn begin(
    transaction: &Transaction<'_>,
    membership: Membership,
    generation: Option<Generation>,
) -> Result<Opened, RemoteError> {
    let found = transaction
        .query_opt("SELECT value FROM tidewire_meta WHERE key = 'format'", &[])
        .await
        .map_err(refusal)?;
    let found = found.map_or(Ok(0), |row| row.try_get(0)).map_err(refusal)?;
    if found > FORMAT {
        return Err(RemoteError::NewerFormat {
            found,
            known: FORMAT,
        });
    }
    if found < FORMAT_WITHOUT_INDEXES {
        let added = transaction.batch_execute(ADD_COLUMNS).await;
        added.map_err(refusal)?;
    }
    if membership == Membership::Alone {
        let leaving = active_but(transaction, &[]).await.map_err(refusal)?;
        let fence = Fence::find(transaction).await.map_err(refusal)?;
        let excluded = fence.exclude_commits(transaction, &leaving).await;
        excluded.map_err(refusal)?;
    }
    let meta = lock(transaction).await.map_err(refusal)?;
    let value = |key: &str| {
        let missing = || RemoteError::Refused(format!("tidewire_meta has no row {key:?}"));
        meta.get(key).copied().ok_or_else(missing)
    };
    let opening = value("opening")? + 1;
    let mut epoch = value("epoch")?;
    let format = found.max(FORMAT_WITHOUT_INDEXES);
    let mut news = vec![("format", format), ("opening", opening)];
    if membership == Membership::Alone {
        // All slots get one epoch again. It must be later than that of each slot if one has a later one.
        let before = decode(read(transaction).await.map_err(refusal)?);
        let before = before.map_err(|error| RemoteError::Refused(error.message))?;
        if value("clean")? == 0 || !before.epochs.raised.is_empty() {
            let last = before.epochs.latest().max(Epoch(epoch.cast_unsigned()));
            epoch = epoch_after(last).0.cast_signed();
        }
        news.extend([("epoch", epoch), ("clean", 0), ("view", opening)]);
        let remove = "DELETE FROM tidewire_members";
        transaction.execute(remove, &[]).await.map_err(refusal)?;
        let own = MemberId {
            node: membership.node(),
            birth: opening.cast_unsigned(),
        };
        let mut view = StoredView::of_one_node(Epoch(epoch.cast_unsigned()), own);
        view.generation = generation.unwrap_or_default();
        write(transaction, &view).await.map_err(refusal)?;
    }
    for (key, value) in news {
        transaction
            .execute(SET_META, &[&key, &value])
            .await
            .map_err(refusal)?;
    }
    let join = "INSERT INTO tidewire_members (birth, node, connection, is_active)
        VALUES ($1, $2, 0, $3)";
    let (node, is_active) = (
        i64::from(membership.node()),
        membership == Membership::Alone,
    );
    transaction
        .execute(join, &[&opening, &node, &is_active])
        .await
        .map_err(refusal)?;
    let begun = indexes::begin(transaction, opening).await;
    begun.map_err(refusal)?;
    Ok(Opened {
        epoch: Epoch(epoch.cast_unsigned()),
        opening: opening.cast_unsigned(),
    })
}

//! The registry of members in PostgreSQL, and the rows that an opening writes for them.

use std::collections::HashMap;

use tidewire_core::address::Epoch;
use tidewire_core::store::{MemberId, Opened, Registry, StoreError, StoredView, View};
use tokio_postgres::{Error, IsolationLevel, Transaction};

use super::{Connection, FORMAT, Location, refusal};
use crate::epoch_after;
use crate::remote::{Membership, RemoteError, unknown_member};

/// The tables since format 3, and the new rows of `tidewire_meta`.
pub(super) const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS tidewire_members (
        birth BIGINT PRIMARY KEY,
        node BIGINT NOT NULL,
        connection BIGINT NOT NULL,
        is_active BOOLEAN NOT NULL
    );
    CREATE TABLE IF NOT EXISTS tidewire_epochs (slot BIGINT PRIMARY KEY, epoch BIGINT NOT NULL);
    INSERT INTO tidewire_meta VALUES ('view', 0) ON CONFLICT DO NOTHING;";

/// The meta rows. The lock waits for commits that run, because each holds a share lock on the row `view`. All that change the meta rows lock
/// them in this order.
const LOCK_META: &str = "SELECT key, value FROM tidewire_meta ORDER BY key FOR UPDATE";
const SET_META: &str = "UPDATE tidewire_meta SET value = $2 WHERE key = $1";

/// The upgrade of the tables from format 1. PostgreSQL adds the column without a change of the rows.
const ADD_WRITE_KEYS: &str =
    "ALTER TABLE tidewire_records ADD COLUMN IF NOT EXISTS write_keys TEXT";

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
        let mut client = self.client()?;
        let view = self.location.attempt(async {
            let transaction = client
                .build_transaction()
                .isolation_level(IsolationLevel::RepeatableRead)
                .read_only(true)
                .start()
                .await?;
            read(&transaction).await
        })?;
        self.client = Some(client);
        Ok(view)
    }

    fn propose(
        &mut self,
        expected: View,
        members: &[MemberId],
        raised: &[u16],
    ) -> Result<StoredView, StoreError> {
        let mut client = self.client()?;
        let births: Vec<i64> = members
            .iter()
            .map(|member| member.birth.cast_signed())
            .collect();
        let slots: Vec<i64> = raised.iter().map(|slot| i64::from(*slot)).collect();
        let proposed = self.location.attempt(async {
            let transaction = client.transaction().await?;
            let meta = lock(&transaction).await?;
            if meta.get("view") != Some(&expected.0.cast_signed()) {
                return Ok(Some(read(&transaction).await?));
            }
            let keep = "DELETE FROM tidewire_members WHERE is_active AND birth <> ALL($1)";
            transaction.execute(keep, &[&births]).await?;
            let add = "UPDATE tidewire_members SET is_active = TRUE WHERE birth = ANY($1)";
            if transaction.execute(add, &[&births]).await? != births.len() as u64 {
                // The end of the transaction takes the deletions back.
                return Ok(None);
            }
            let latest = "SELECT max(epoch) FROM tidewire_epochs";
            let latest: Option<i64> = transaction.query_one(latest, &[]).await?.try_get(0)?;
            let epoch = meta.get("epoch").copied().unwrap_or(0);
            let latest = epoch.cast_unsigned().max(latest.unwrap_or(0).cast_unsigned());
            let raise = "INSERT INTO tidewire_epochs SELECT slot, $2 FROM UNNEST($1::BIGINT[]) AS raised (slot)
                ON CONFLICT (slot) DO UPDATE SET epoch = excluded.epoch";
            let next = epoch_after(Epoch(latest)).0.cast_signed();
            transaction.execute(raise, &[&slots, &next]).await?;
            let number = meta.get("opening").copied().unwrap_or(0) + 1;
            for (key, value) in [("opening", number), ("view", number), ("clean", 0)] {
                transaction.execute(SET_META, &[&key, &value]).await?;
            }
            let view = read(&transaction).await?;
            transaction.commit().await?;
            Ok(Some(view))
        })?;
        self.client = Some(client);
        proposed.ok_or_else(unknown_member)
    }
}

async fn lock(transaction: &Transaction<'_>) -> Result<HashMap<String, i64>, Error> {
    let rows = transaction.query(LOCK_META, &[]).await?;
    let pairs = rows
        .iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
    pairs.collect()
}

/// The current view, as the transaction sees it.
async fn read(transaction: &Transaction<'_>) -> Result<StoredView, Error> {
    let meta = "SELECT (SELECT value FROM tidewire_meta WHERE key = 'view'),
        (SELECT value FROM tidewire_meta WHERE key = 'epoch')";
    let meta = transaction.query_one(meta, &[]).await?;
    let number: Option<i64> = meta.try_get(0)?;
    let epoch: Option<i64> = meta.try_get(1)?;
    let members = "SELECT node, birth FROM tidewire_members WHERE is_active ORDER BY birth";
    let members = transaction.query(members, &[]).await?;
    let members = members.iter().map(|row| {
        let node: i64 = row.try_get(0)?;
        let birth: i64 = row.try_get(1)?;
        Ok(MemberId {
            node: u16::try_from(node).unwrap_or(u16::MAX),
            birth: birth.cast_unsigned(),
        })
    });
    let raised = "SELECT slot, epoch FROM tidewire_epochs ORDER BY slot";
    let raised = transaction.query(raised, &[]).await?;
    let raised = raised.iter().map(|row| {
        let slot: i64 = row.try_get(0)?;
        let epoch: i64 = row.try_get(1)?;
        Ok((
            u16::try_from(slot).unwrap_or(u16::MAX),
            Epoch(epoch.cast_unsigned()),
        ))
    });
    Ok(StoredView {
        number: View(number.unwrap_or(0).cast_unsigned()),
        members: members.collect::<Result<_, Error>>()?,
        epoch: Epoch(epoch.unwrap_or(0).cast_unsigned()),
        raised: raised.collect::<Result<_, Error>>()?,
    })
}

/// Stores the opening. Refuses a store of a newer version, and upgrades one of an older version.
pub(super) async fn begin(
    transaction: &Transaction<'_>,
    membership: Membership,
) -> Result<Opened, RemoteError> {
    let meta = lock(transaction).await.map_err(refusal)?;
    let value = |key: &str| {
        let missing = || RemoteError::Refused(format!("tidewire_meta has no row {key:?}"));
        meta.get(key).copied().ok_or_else(missing)
    };
    let found = value("format")?;
    if found > FORMAT {
        return Err(RemoteError::NewerFormat {
            found,
            known: FORMAT,
        });
    }
    if found < FORMAT {
        transaction
            .batch_execute(ADD_WRITE_KEYS)
            .await
            .map_err(refusal)?;
    }
    let opening = value("opening")? + 1;
    let mut epoch = value("epoch")?;
    let mut news = vec![("format", FORMAT), ("opening", opening)];
    if membership == Membership::Alone {
        // All slots get one epoch again. It must be later than that of each slot if one has a later one.
        let ended = "WITH gone AS (DELETE FROM tidewire_epochs RETURNING epoch)
            SELECT max(epoch) FROM gone";
        let ended = transaction.query_one(ended, &[]).await.map_err(refusal)?;
        let latest: Option<i64> = ended.try_get(0).map_err(refusal)?;
        if value("clean")? == 0 || latest.is_some() {
            let last = epoch
                .cast_unsigned()
                .max(latest.unwrap_or(0).cast_unsigned());
            epoch = epoch_after(Epoch(last)).0.cast_signed();
        }
        news.extend([("epoch", epoch), ("clean", 0), ("view", opening)]);
        let remove = "DELETE FROM tidewire_members";
        transaction.execute(remove, &[]).await.map_err(refusal)?;
    }
    for (key, value) in news {
        transaction
            .execute(SET_META, &[&key, &value])
            .await
            .map_err(refusal)?;
    }
    let join = "INSERT INTO tidewire_members VALUES ($1, $2, 0, $3)";
    let (node, is_active) = (
        i64::from(membership.node()),
        membership == Membership::Alone,
    );
    transaction
        .execute(join, &[&opening, &node, &is_active])
        .await
        .map_err(refusal)?;
    Ok(Opened {
        epoch: Epoch(epoch.cast_unsigned()),
        opening: opening.cast_unsigned(),
    })
}

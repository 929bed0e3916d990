//! The fence of the view: commits hold an advisory lock together, and whatever changes who may write holds it alone.
//!
//! A row lock would write the row's page with each commit, and several holders at once need a MultiXact. An advisory lock is only in memory.
//! A commit takes it in a statement before the one that reads the view, so that statement has a snapshot from after the lock.

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, GenericClient};

/// How long a change waits for running commits before it ends connections, in milliseconds: first the connections of processes that leave
/// the view, then all whose commit has been running for [`COMMIT_MS_MAX`].
const WAITS_MS: [u32; 4] = [100, 700, 700, 700];

/// A commit that runs for longer while a change waits loses its connection. Its member repeats it.
const COMMIT_MS_MAX: i64 = 500;

/// The upper half of the lock's key.
const KEY_CLASS: i64 = 0x7469_6465;
/// The same of the lock of the member that builds indexes.
const BUILD_KEY_CLASS: i64 = KEY_CLASS + 1;

/// The schema of the store. Its name is part of the key, because advisory locks belong to a database, which may have stores in several
/// schemas.
const SCHEMA: &str = "SELECT relnamespace::REGNAMESPACE::TEXT FROM pg_class
    WHERE oid = 'tidewire_meta'::REGCLASS";

/// Ends connections: those that members with the births `$1` have registered, and those that have held the lock with the parts `$2` and `$3`
/// for more than `$4` milliseconds. A process number may belong to a later connection, so the start of the connection is compared as well.
const END: &str = "SELECT pg_terminate_backend(activity.pid) FROM pg_stat_activity AS activity
    WHERE activity.pid <> pg_backend_pid() AND (
        EXISTS (
            SELECT FROM tidewire_members AS member
            WHERE member.birth = ANY($1) AND member.backend = activity.pid
                AND member.backend_start = activity.backend_start
        )
        OR activity.xact_start < clock_timestamp() - $4::BIGINT * INTERVAL '1 millisecond' AND EXISTS (
            SELECT FROM pg_locks AS held
            WHERE held.pid = activity.pid AND held.locktype = 'advisory' AND held.granted
                AND held.mode = 'ShareLock' AND held.objsubid = 1
                AND held.classid::BIGINT = $2 AND held.objid::BIGINT = $3
                AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        )
    )";

/// The fence of a store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fence {
    /// The key of the advisory lock.
    key: i64,
}

impl Fence {
    /// The fence of the store that the connection finds.
    pub(super) async fn find(client: &impl GenericClient) -> Result<Self, Error> {
        let schema: String = client.query_one(SCHEMA, &[]).await?.try_get(0)?;
        let key = (KEY_CLASS << u32::BITS) | i64::from(crc32c::crc32c(schema.as_bytes()));
        Ok(Self { key })
    }

    /// The request that begins a commit. The database may have another default for the isolation, with which all statements of a
    /// transaction have one snapshot.
    pub(super) fn begin_commit(self) -> String {
        format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock_shared({})",
            self.key
        )
    }

    /// Waits until no commit runs. None begins until the transaction ends, which must have the isolation READ COMMITTED. Commits that take too
    /// long lose their connections, first the connections of the processes with the births `leaving`. So a host that was cut off within a
    /// commit delays a change by at most 3 s.
    pub(super) async fn exclude_commits(
        self,
        client: &impl GenericClient,
        leaving: &[i64],
    ) -> Result<(), Error> {
        let mut waits = WAITS_MS.into_iter();
        let mut wait = waits.next();
        while let Some(wait_ms) = wait {
            let limited = format!("SAVEPOINT fence; SET LOCAL lock_timeout = {wait_ms}");
            client.batch_execute(&limited).await?;
            let lock = "SELECT pg_advisory_xact_lock($1)";
            let locked = client.execute(lock, &[&self.key]).await;
            wait = waits.next();
            match locked {
                Err(error)
                    if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) && wait.is_some() =>
                {
                    client.batch_execute("ROLLBACK TO SAVEPOINT fence").await?;
                    self.end_connections(client, leaving).await?;
                }
                locked => return locked.map(|_| ()),
            }
        }
        Ok(())
    }

    /// Waits until no commit runs, at most for the `lock_timeout` of the transaction. None begins until it ends.
    pub(super) async fn wait_for_commits(self, client: &impl GenericClient) -> Result<(), Error> {
        let lock = "SELECT pg_advisory_xact_lock($1)";
        client.execute(lock, &[&self.key]).await.map(|_| ())
    }

    /// Makes this the only transaction that builds indexes, unless another one does.
    pub(super) async fn try_build(self, client: &impl GenericClient) -> Result<bool, Error> {
        let key = (BUILD_KEY_CLASS << u32::BITS) | (self.key & i64::from(u32::MAX));
        let lock = "SELECT pg_try_advisory_xact_lock($1)";
        client.query_one(lock, &[&key]).await?.try_get(0)
    }

    async fn end_connections(
        self,
        client: &impl GenericClient,
        leaving: &[i64],
    ) -> Result<(), Error> {
        // A transaction sees the connections of its first look otherwise.
        client
            .execute("SELECT pg_stat_clear_snapshot()", &[])
            .await?;
        let low = self.key & i64::from(u32::MAX);
        let ended = client
            .execute(END, &[&leaving, &KEY_CLASS, &low, &COMMIT_MS_MAX])
            .await?;
        tracing::warn!(
            connections = ended,
            "ended connections to PostgreSQL whose commits held up a change of the view"
        );
        Ok(())
    }

    /// Registers the connection as the one for writing of a process and returns its number, or 0 if the store no longer knows the process.
    /// Batches of earlier connections have ended, and those that PostgreSQL has not started yet have no effect.
    pub(super) async fn register(self, client: &Client, birth: i64) -> Result<i64, Error> {
        client
            .batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            .await?;
        self.exclude_commits(client, &[birth]).await?;
        let register = "UPDATE tidewire_members SET connection = connection + 1,
                (backend, backend_start) = (SELECT pid, backend_start FROM pg_stat_activity
                    WHERE pid = pg_backend_pid())
            WHERE birth = $1 RETURNING connection";
        let row = client.query_opt(register, &[&birth]).await?;
        client.batch_execute("COMMIT").await?;
        row.map_or(Ok(0), |row| row.try_get(0))
    }
}

//! Quotas of a SQLite store: the bytes that the database uses, and the bytes of the records that each user has written.
//!
//! The column `writer` names the user whose quota a record counts for, so a start can compute the sums again. They are counted only if
//! users have quotas, because that costs one more lookup for each write.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use rusqlite::{CachedStatement, Connection, OptionalExtension, Transaction};
use tidewire_core::quota::QuotaChange;
use tidewire_core::store::{StoreChange, StoreWrite};
use tidewire_core::text::Name;

/// The limits of a store. No limits by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Bytes of the database that are in use, deleted rows not included.
    pub store_bytes_max: Option<u64>,
    /// Bytes of names and values of the records that one user has written.
    pub user_bytes_max: Option<u64>,
}

/// Shards learn of the free bytes when these have changed by `1 / STEPS` of the quota, or become zero or no longer are.
const STEPS: u64 = 64;

const USAGE: &str = "SELECT writer, sum(octet_length(name) + octet_length(data)) FROM records
    WHERE writer IS NOT NULL GROUP BY writer";
const CHARGED: &str =
    "SELECT writer, octet_length(name) + octet_length(data) FROM records WHERE name = ?1";

/// The use of the quotas.
#[derive(Debug, Default)]
pub(super) struct Usage {
    quota: Quota,
    used_bytes: u64,
    /// The free bytes that the shards learned last.
    reported_room: Option<u64>,
    users: HashMap<Name, u64>,
    /// The changes that the shards do not know yet.
    changes: Vec<QuotaChange>,
    full_users: usize,
}

/// The change of a user's bytes by one write, which counts once the write is committed.
#[derive(Debug)]
pub(super) struct Charge {
    user: Name,
    bytes: i64,
}

impl Usage {
    /// Computes the use of a database.
    pub(super) fn of(connection: &Connection, quota: Quota) -> rusqlite::Result<Self> {
        let mut usage = Self {
            quota,
            ..Self::default()
        };
        if quota.user_bytes_max.is_some() {
            let mut statement = connection.prepare(USAGE)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let user = Name::from(row.get::<_, String>(0)?.as_str());
                let bytes = row.get::<_, i64>(1)?;
                usage.charge(Charge { user, bytes });
            }
        }
        usage.measure(connection)?;
        Ok(usage)
    }

    /// Whether each write requires a lookup of the row before it.
    pub(super) fn counts_users(&self) -> bool {
        self.quota.user_bytes_max.is_some()
    }

    /// Adds the charges of a commit.
    pub(super) fn charge_all(&mut self, charges: Vec<Charge>) {
        // Only the sum of a user's charges decides whether the user is full.
        let mut sums: BTreeMap<Name, i64> = BTreeMap::new();
        for Charge { user, bytes } in charges {
            *sums.entry(user).or_default() += bytes;
        }
        for (user, bytes) in sums {
            self.charge(Charge { user, bytes });
        }
    }

    fn charge(&mut self, Charge { user, bytes }: Charge) {
        let Some(bytes_max) = self.quota.user_bytes_max else {
            return;
        };
        let before = self.users.get(&user).copied().unwrap_or(0);
        let after = before.saturating_add_signed(bytes);
        if after == 0 {
            self.users.remove(&user);
        } else {
            self.users.insert(user.clone(), after);
        }
        let (was_full, is_full) = (before >= bytes_max, after >= bytes_max);
        if was_full != is_full {
            self.full_users = self.full_users + usize::from(is_full) - usize::from(was_full);
            self.changes.push(QuotaChange::User { user, is_full });
        }
    }

    /// Measures the bytes that the database uses.
    pub(super) fn measure(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let number = |name: &str| -> rusqlite::Result<u64> {
            let number: i64 = connection
                .prepare_cached(&format!("PRAGMA {name}"))?
                .query_row([], |row| row.get(0))?;
            Ok(number.max(0).cast_unsigned())
        };
        let pages = number("page_count")?.saturating_sub(number("freelist_count")?);
        self.used_bytes = pages * number("page_size")?;
        let Some(bytes_max) = self.quota.store_bytes_max else {
            return Ok(());
        };
        let room = bytes_max.saturating_sub(self.used_bytes);
        let is_reported = self.reported_room.is_some_and(|reported| {
            (reported == 0) == (room == 0) && reported.abs_diff(room) < (bytes_max / STEPS).max(1)
        });
        if !is_reported {
            self.reported_room = Some(room);
            self.changes.push(QuotaChange::Room(room));
        }
        Ok(())
    }

    /// Takes the changes since the last call.
    pub(super) fn take_changes(&mut self) -> Vec<QuotaChange> {
        std::mem::take(&mut self.changes)
    }

    /// Bytes of the database that are in use.
    pub(super) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Users whose quotas are used up.
    pub(super) fn full_users(&self) -> usize {
        self.full_users
    }
}

/// Collects the charges of a transaction's writes.
pub(super) struct Charges<'transaction> {
    find: CachedStatement<'transaction>,
    charges: Vec<Charge>,
}

impl<'transaction> Charges<'transaction> {
    pub(super) fn prepare(transaction: &'transaction Transaction<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            find: transaction.prepare_cached(CHARGED)?,
            charges: Vec::new(),
        })
    }

    /// The charge for a name before it is written.
    pub(super) fn find(&mut self, name: &str) -> rusqlite::Result<Option<Charge>> {
        let read = |row: &rusqlite::Row<'_>| {
            let user: Option<String> = row.get(0)?;
            let bytes = row.get(1)?;
            Ok(user.map(|user| Charge {
                user: Name::from(user.as_str()),
                bytes,
            }))
        };
        Ok(self.find.query_row([name], read).optional()?.flatten())
    }

    /// Adds the charges of a write that replaced the charge `before`.
    pub(super) fn add(&mut self, write: &StoreWrite, before: Option<Charge>) {
        self.charges.extend(before.map(|before| Charge {
            bytes: -before.bytes,
            ..before
        }));
        if let (StoreChange::Put(record), Some(user)) = (&write.change, &write.writer) {
            let bytes = write.name.len() + record.data.len();
            self.charges.push(Charge {
                user: user.clone(),
                bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
            });
        }
    }

    pub(super) fn into_charges(self) -> Vec<Charge> {
        self.charges
    }
}

#[cfg(test)]
mod tests {
    use tidewire_core::store::{
        Expected, Incarnation, Opened, Store, StoredRecord, Version, Written,
    };
    use tidewire_core::text::Payload;

    use super::super::{SqliteOptions, SqliteStore};
    use super::*;
    use crate::folder::DataFolder;

    fn open(folder: &DataFolder, quota: Quota) -> (SqliteStore, Opened) {
        let options = SqliteOptions {
            quota,
            ..SqliteOptions::default()
        };
        SqliteStore::open(folder, options).unwrap()
    }

    fn users(bytes_max: u64) -> Quota {
        Quota {
            user_bytes_max: Some(bytes_max),
            ..Quota::default()
        }
    }

    fn put(writer: Option<&str>, name: &str, bytes: usize) -> StoreWrite {
        let text = format!("[\"{}\"]", "x".repeat(bytes - 4 - name.len()));
        StoreWrite {
            writer: writer.map(Name::from),
            name: Name::from(name),
            expected: Expected::Anything,
            change: StoreChange::Put(StoredRecord {
                incarnation: Incarnation(1),
                version: Version(1),
                data: Payload::from_checked(&text),
                write_keys: None,
            }),
        }
    }

    fn delete(name: &str) -> StoreWrite {
        StoreWrite {
            writer: None,
            name: Name::from(name),
            expected: Expected::Anything,
            change: StoreChange::Delete,
        }
    }

    #[track_caller]
    fn commit(store: &mut SqliteStore, opened: Opened, writes: &[StoreWrite]) {
        let written = store
            .commit(opened.view(), opened.member(), writes)
            .unwrap();
        assert!(written.iter().all(|written| *written == Written::Done));
    }

    /// The changes of users that a store reports.
    fn over_limit_changes(store: &mut SqliteStore) -> Vec<(String, bool)> {
        let changes = store.quota().expect("it has quotas").changes;
        let changes = changes.into_iter().filter_map(|change| match change {
            QuotaChange::User { user, is_full } => Some((user.to_string(), is_full)),
            QuotaChange::Room(_) => None,
        });
        changes.collect()
    }

    fn say(user: &str, is_full: bool) -> (String, bool) {
        (user.to_owned(), is_full)
    }

    #[test]
    fn a_record_counts_for_the_user_that_has_written_it_last() {
        let directory = tempfile::tempdir().unwrap();
        let folder = DataFolder::open(directory.path()).unwrap();
        let (mut store, opened) = open(&folder, users(1_000));
        let (ann, bob) = (Some("ann"), Some("bob"));
        commit(
            &mut store,
            opened,
            &[put(ann, "a", 600), put(None, "n", 5_000)],
        );
        assert_eq!(over_limit_changes(&mut store), []);
        commit(&mut store, opened, &[put(ann, "b", 500)]);
        assert_eq!(over_limit_changes(&mut store), [say("ann", true)]);
        // Another user overwrites a record.
        commit(&mut store, opened, &[put(bob, "a", 990)]);
        assert_eq!(over_limit_changes(&mut store), [say("ann", false)]);
        commit(&mut store, opened, &[put(bob, "c", 10)]);
        assert_eq!(over_limit_changes(&mut store), [say("bob", true)]);
        // A batch that is repeated, as after a failure with an unknown outcome, counts once.
        commit(&mut store, opened, &[put(bob, "c", 10)]);
        commit(&mut store, opened, &[delete("c")]);
        assert_eq!(over_limit_changes(&mut store), [say("bob", false)]);
        commit(&mut store, opened, &[delete("c"), delete("missing")]);
        assert_eq!(over_limit_changes(&mut store), []);
    }

    #[test]
    fn a_start_counts_earlier_writes_again() {
        let directory = tempfile::tempdir().unwrap();
        let folder = DataFolder::open(directory.path()).unwrap();
        // Writers are stored even without quotas.
        let (mut store, opened) = open(&folder, Quota::default());
        commit(
            &mut store,
            opened,
            &[put(Some("ann"), "a", 700), put(Some("bob"), "b", 10)],
        );
        store.close().unwrap();
        drop(store);
        let (mut store, opened) = open(&folder, users(700));
        assert_eq!(over_limit_changes(&mut store), [say("ann", true)]);
        commit(&mut store, opened, &[delete("a")]);
        assert_eq!(over_limit_changes(&mut store), [say("ann", false)]);
    }

    #[test]
    fn the_room_follows_what_is_written_and_deleted() {
        let directory = tempfile::tempdir().unwrap();
        let folder = DataFolder::open(directory.path()).unwrap();
        let quota = Quota {
            store_bytes_max: Some(1 << 20),
            ..Quota::default()
        };
        let (mut store, opened) = open(&folder, quota);
        let room = |store: &mut SqliteStore| {
            let changes = store.quota().expect("it has quotas").changes;
            changes.into_iter().find_map(|change| match change {
                QuotaChange::Room(bytes) => Some(bytes),
                QuotaChange::User { .. } => None,
            })
        };
        let empty = room(&mut store).expect("told at the start");
        assert!((900_000..1 << 20).contains(&empty), "{empty}");
        commit(&mut store, opened, &[put(None, "a", 1_000)]);
        assert_eq!(room(&mut store), None, "too little to be told");
        let names: Vec<String> = (0..12).map(|number| format!("r{number}")).collect();
        for name in &names {
            commit(&mut store, opened, &[put(None, name, 100_000)]);
        }
        assert_eq!(room(&mut store), Some(0));
        let deletes: Vec<StoreWrite> = names.iter().map(|name| delete(name)).collect();
        commit(&mut store, opened, &deletes);
        let freed = room(&mut store).expect("told");
        assert!(freed >= empty - 20_000, "{freed} of {empty}");
    }
}

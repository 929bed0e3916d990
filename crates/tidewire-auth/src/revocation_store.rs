//! The revocations on disk. Each one stays until the credential would have expired.
//!
//! They have a separate database in the data folder, so that no record name can ever reach it. The server checks logins against
//! the copy in memory (`rights.rs`); it reads this database at the start and writes it on each revocation. Every function here
//! waits for the disk, so threads that serve clients must not call it.

use std::path::Path;

use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension as _, Result, params};
use tidewire_core::principal::Credential;
use tidewire_core::rights::{Revocation, Revoked};
use tidewire_core::text::Name;
use tidewire_core::time::WallTime;
use tidewire_store::folder::{REVOCATIONS_FILE, make_private};

use super::tls;

/// The end of a revocation that lasts until an operator lifts it.
pub const FOR_EVER: WallTime = WallTime(i64::MAX.cast_unsigned());

const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS revocation (
    kind TEXT NOT NULL, name TEXT NOT NULL, since INTEGER NOT NULL, until INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT";

/// The kind of a revoked user or credential, as a fixed word, and its id.
#[must_use]
pub fn parts(what: &Revoked) -> (&'static str, &str) {
    match what {
        Revoked::User(user) => ("user", user),
        Revoked::Credential(Credential::Token(id)) => ("token", id),
        Revoked::Credential(Credential::Key(id)) => ("key", id),
        Revoked::Credential(Credential::Certificate(serial)) => ("certificate", serial),
        Revoked::Credential(Credential::Password(id)) => ("password", id),
        Revoked::Credential(Credential::Operator(id)) => ("operator", id),
        Revoked::Credential(Credential::Backend(id)) => ("backend", id),
    }
}

/// The user or credential with this kind and id; `None` if the kind or the serial number is invalid.
#[must_use]
pub fn from_parts(kind: &str, name: &str) -> Option<Revoked> {
    let credential = match kind {
        "user" => return Some(Revoked::User(Name::from(name))),
        "token" => Credential::Token(Name::from(name)),
        "key" => Credential::Key(Name::from(name)),
        "certificate" => Credential::Certificate(tls::serial(name)?),
        _ => return None,
    };
    Some(Revoked::Credential(credential))
}

/// A revocation as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The user or credential, and the end of the revocation.
    pub revocation: Revocation,
    /// The time of the revocation.
    pub since: WallTime,
}

/// The revocations of a node. See the file comment.
#[derive(Debug)]
pub struct RevocationStore(Mutex<Connection>);

impl RevocationStore {
    /// Opens the ledger of a data folder and deletes expired revocations. Without a folder, the ledger is in memory.
    ///
    /// # Errors
    /// The file can't be opened or is not a ledger.
    pub fn open(folder: Option<&Path>, now: WallTime) -> Result<Self> {
        let disk = match folder {
            Some(folder) => {
                let file = folder.join(REVOCATIONS_FILE);
                // If this fails, the database reports the error in its own words.
                let _ = make_private(&file);
                Connection::open(file)?
            }
            None => Connection::open_in_memory()?,
        };
        // A revocation must be on disk before the server confirms it.
        disk.pragma_update(None, "synchronous", "FULL")?;
        disk.execute(SCHEMA, [])?;
        disk.execute(
            "DELETE FROM revocation WHERE until <= ?1",
            [milliseconds(now)],
        )?;
        Ok(Self(Mutex::new(disk)))
    }

    /// The resulting revocation if `what` is revoked until `until`. An existing end may move later, never earlier.
    ///
    /// # Errors
    /// The disk fails.
    pub fn revocation(&self, what: Revoked, until: WallTime) -> Result<Revocation> {
        let disk = self.0.lock();
        let (kind, name) = parts(&what);
        let sql = "SELECT until FROM revocation WHERE kind = ?1 AND name = ?2";
        let before: Option<i64> = disk
            .query_row(sql, [kind, name], |row| row.get(0))
            .optional()?;
        let before = before.map_or(WallTime(0), |before| WallTime(before.cast_unsigned()));
        Ok(Revocation {
            what,
            until: until.max(before),
        })
    }

    /// Stores a revocation.
    ///
    /// # Errors
    /// The disk fails.
    pub fn store(&self, revocation: &Revocation, now: WallTime) -> Result<()> {
        let (kind, name) = parts(&revocation.what);
        let row = params![
            kind,
            name,
            milliseconds(now),
            milliseconds(revocation.until)
        ];
        let sql = "INSERT INTO revocation VALUES (?1, ?2, ?3, ?4)
            ON CONFLICT DO UPDATE SET until = max(until, excluded.until)";
        let disk = self.0.lock();
        disk.execute(sql, row)?;
        Ok(())
    }

    /// Deletes a revocation and returns whether it existed.
    ///
    /// # Errors
    /// The disk fails; the revocation then stays in effect.
    pub fn lift(&self, what: &Revoked) -> Result<bool> {
        let (kind, name) = parts(what);
        let sql = "DELETE FROM revocation WHERE kind = ?1 AND name = ?2";
        Ok(self.0.lock().execute(sql, [kind, name])? > 0)
    }

    /// All current revocations, sorted by kind and id.
    ///
    /// # Errors
    /// The disk fails.
    pub fn list(&self, now: WallTime) -> Result<Vec<Stored>> {
        let disk = self.0.lock();
        let sql =
            "SELECT kind, name, since, until FROM revocation WHERE until > ?1 ORDER BY kind, name";
        let mut rows = disk.prepare_cached(sql)?;
        let found = rows.query_map([milliseconds(now)], |row| {
            let (kind, name): (String, String) = (row.get(0)?, row.get(1)?);
            let (since, until): (i64, i64) = (row.get(2)?, row.get(3)?);
            Ok(from_parts(&kind, &name).map(|what| Stored {
                revocation: Revocation {
                    what,
                    until: WallTime(until.cast_unsigned()),
                },
                since: WallTime(since.cast_unsigned()),
            }))
        })?;
        // Skips kinds that a later version has stored.
        found.filter_map(Result::transpose).collect()
    }
}

/// Milliseconds as the database stores them; times beyond its range become the latest time in range.
fn milliseconds(time: WallTime) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: WallTime = WallTime(1_000_000);

    fn later(milliseconds: u64) -> WallTime {
        WallTime(NOW.0 + milliseconds)
    }

    fn user(id: &str) -> Revoked {
        Revoked::User(Name::from(id))
    }

    fn revoke(store: &RevocationStore, what: Revoked, until: WallTime) -> WallTime {
        let revocation = store.revocation(what, until).expect("read");
        store.store(&revocation, NOW).expect("stored");
        revocation.until
    }

    fn names(store: &RevocationStore, now: WallTime) -> Vec<String> {
        let all = store.list(now).expect("read").into_iter();
        all.map(|stored| parts(&stored.revocation.what).1.to_owned())
            .collect()
    }

    #[test]
    fn revocations_outlast_a_restart_until_they_expire() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = |now| RevocationStore::open(Some(folder.path()), now).expect("a ledger");
        let token = Revoked::Credential(Credential::Token(Name::from("t1")));
        let key = Revoked::Credential(Credential::Key(Name::from("k1")));
        {
            let store = open(NOW);
            revoke(&store, token.clone(), later(10));
            revoke(&store, user("bob"), FOR_EVER);
            revoke(&store, key.clone(), later(20));
        }
        let store = open(later(5));
        let found: Vec<Revoked> = store
            .list(later(9))
            .expect("read")
            .into_iter()
            .map(|stored| stored.revocation.what)
            .collect();
        assert_eq!(found, [key, token, user("bob")]);
        assert_eq!(names(&store, later(10)), ["k1", "bob"]);
        drop(store);
        assert_eq!(
            names(&open(later(20)), NOW),
            ["bob"],
            "expired revocations are deleted"
        );
    }

    #[test]
    fn an_expiry_is_only_postponed() {
        let store = RevocationStore::open(None, NOW).expect("a ledger");
        assert_eq!(revoke(&store, user("a"), later(10)), later(10));
        assert_eq!(revoke(&store, user("a"), later(5)), later(10));
        assert_eq!(revoke(&store, user("a"), later(20)), later(20));
        assert_eq!(revoke(&store, user("a"), FOR_EVER), FOR_EVER);
        assert_eq!(revoke(&store, user("a"), later(5)), FOR_EVER);
    }

    #[test]
    fn a_lifted_revocation_is_gone() {
        let store = RevocationStore::open(None, NOW).expect("a ledger");
        revoke(&store, user("a"), FOR_EVER);
        assert!(store.lift(&user("a")).expect("lifted"));
        assert!(!store.lift(&user("a")).expect("nothing to lift"));
        assert_eq!(names(&store, NOW), [""; 0]);
    }
}

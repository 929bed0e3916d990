//! Users in the record store. Their records have names that no client can send. Format: `spec/users.md`.
//!
//! User records bypass the engine, which never sees their names, so nothing caches them. The server makes one change at a time,
//! each in a separate task: the requester may disconnect in the middle, and the next change must still wait for the store's answer
//! to this one.

use std::sync::{Arc, OnceLock};

use prometheus_client::metrics::counter::Counter;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use tidewire_config::section::AuthStore;
use tidewire_core::identity;
use tidewire_core::store::{
    Expected, Incarnation, Loaded, StoreChange, StoreError, StoreWrite, StoredRecord, Version,
    Written,
};
use tidewire_core::text::{Name, Payload, RESERVED};
use tidewire_store::awaited::AwaitedStore;
use tidewire_store::thread::{Scan, StoreClient};
use tokio::sync::Mutex;

use super::hashing::Hashing;
use super::login_attempt::LoginAttempt;
use super::password::{self, StoredPassword};
use super::turns::WaiterGroup;
use super::{jwt, random_id};

/// The part of a user record's name that follows [`RESERVED`].
const KIND: &str = "user/";
/// Maximum length of a user name in bytes.
pub const NAME_BYTES_MAX: usize = 256;
/// Maximum length of a password in bytes. Hashing a longer one would cost more than it protects.
pub const PASSWORD_BYTES_MAX: usize = 1024;
/// Minimum length of a password in characters (NIST SP 800-63B, section 3.1.1.2, allows 8 together with another factor).
pub const PASSWORD_CHARACTERS_MIN: usize = 8;
/// Maximum number of users that one request lists.
pub const LIST_MAX: usize = 1_000;
/// Attempts of one change. An attempt fails if another node of a cluster changes the same user between the read and the write.
const ATTEMPTS_MAX: u32 = 16;
/// The hash of a password that no user has. Verified for unknown users, so that they cost the same work.
const DECOY: &str = "$argon2id$v=19$m=19456,t=2,p=1$Bi6qmjXBcJXtCjVtMYXZvQ$nKjXEnGLCW61wmUPJpiwfHmVGcJfQ+jNg1i1Plk6yTk";

/// A user as the store has it, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredUser {
    /// The argon2id hash of the password.
    pub password: String,
    /// Changes with each new password. When the password changes, the server closes the sessions of the old id.
    pub password_id: String,
    /// The data that rules see as `user.data`.
    #[serde(default)]
    pub server_data: Value,
    /// The data that the client receives at login.
    #[serde(default)]
    pub client_data: Value,
    /// Creation time in seconds since 1970.
    pub created_at: u64,
    /// Time of the last change in seconds since 1970.
    pub changed_at: u64,
}

/// A change of a user. Absent fields keep their values.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Change {
    /// A new password.
    pub password: Option<String>,
    /// The data that rules see as `user.data`. `null` is a value.
    #[serde(default, deserialize_with = "given")]
    pub server_data: Option<Value>,
    /// The data that the client receives at login. `null` is a value.
    #[serde(default, deserialize_with = "given")]
    pub client_data: Option<Value>,
}

fn given<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

/// The result of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Whether the change created the user.
    pub is_new: bool,
    /// The id of the replaced password, if the change replaced one.
    pub old_password_id: Option<Name>,
}

/// Why a request about a user failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserError {
    /// A user with this name exists.
    Taken,
    /// No user with this name exists.
    Missing,
    /// The name is empty, too long, or has control characters or white space at an end.
    InvalidName,
    /// The password is too short or too long.
    InvalidPassword,
    /// The stored record fails its checksum or is not a valid user.
    Broken,
    /// Too many logins of the user, or from the address, were refused while this one waited for its turn.
    HeldOff,
    /// The store is unavailable. The change may or may not be stored.
    Unavailable(String),
}

impl std::fmt::Display for UserError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Taken => f.write_str("a user with this name exists"),
            Self::Missing => f.write_str("no user with this name exists"),
            Self::InvalidName => write!(
                f,
                "a user name must have 1 to {NAME_BYTES_MAX} bytes, no control characters, no white space at its ends, and must not be OPEN"
            ),
            Self::InvalidPassword => write!(
                f,
                "a password must have at least {PASSWORD_CHARACTERS_MIN} characters and at most {PASSWORD_BYTES_MAX} bytes"
            ),
            Self::HeldOff => f.write_str("too many logins were refused; try again later"),
            Self::Broken => f.write_str("the stored record of the user is broken"),
            Self::Unavailable(reason) => write!(f, "the store of users is unavailable: {reason}"),
        }
    }
}

impl std::error::Error for UserError {}

impl From<StoreError> for UserError {
    fn from(error: StoreError) -> Self {
        Self::Unavailable(error.message)
    }
}

/// The users of one store. See the file comment.
pub struct Users {
    /// Set once the store is open.
    store: OnceLock<AwaitedStore>,
    /// Held during each change of a user.
    changing: Mutex<()>,
    /// Limits how many passwords are hashed at the same time.
    hashing: Hashing,
    user_prefix: String,
    /// The counters of sign-ups.
    pub counts: Counts,
}

/// The counters of sign-ups.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Users that signed up.
    pub sign_ups: Counter,
    /// Sign-up requests that exceeded the rate limit.
    pub too_fast: Counter,
}

impl std::fmt::Debug for Users {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Users")
    }
}

impl Users {
    /// Creates the users of a store that is opened later.
    #[must_use]
    pub fn new(options: &AuthStore, hashing: Hashing, counts: Counts) -> Arc<Self> {
        Arc::new(Self {
            counts,
            user_prefix: options.user_prefix.clone(),
            store: OnceLock::new(),
            changing: Mutex::new(()),
            hashing,
        })
    }

    /// Sets the store. Before this call, every request fails as unavailable.
    pub fn open(&self, store: StoreClient) {
        let _ = self.store.set(AwaitedStore::new(store));
    }

    /// The user id of the user with this name.
    #[must_use]
    pub fn user_id(&self, name: &str) -> String {
        format!("{}{name}", self.user_prefix)
    }

    /// Finds the user with this name and password.
    ///
    /// # Errors
    /// The name or the password is wrong, the attempt is turned away, or the store is unavailable.
    pub async fn verify(
        &self,
        name: &str,
        password: &str,
        attempt: &LoginAttempt,
    ) -> Result<StoredUser, UserError> {
        if password.len() > PASSWORD_BYTES_MAX {
            return Err(UserError::InvalidPassword);
        }
        let user = match check_name(name) {
            Ok(()) => self.find(name).await?.map(|(_, user)| user),
            Err(_) => None,
        };
        let stored = user.as_ref().map_or(DECOY, |user| &user.password);
        let stored = StoredPassword::Argon2id(stored.to_owned());
        let password = password.to_owned();
        let turn = self
            .hashing
            .turn(WaiterGroup::of(attempt.peer.address.ip()))
            .await;
        if attempt.is_held_off() {
            return Err(UserError::HeldOff);
        }
        let is_right = turn.run(move || stored.matches(&password)).await;
        let is_right = is_right.ok_or_else(stopped)?;
        match &user {
            None => attempt.explain(format!("the store has no user {name:?}")),
            Some(_) if !is_right => {
                attempt.explain(format!("the password of user {name:?} is wrong"));
            }
            Some(_) => {}
        }
        user.filter(|_| is_right).ok_or(UserError::Missing)
    }

    /// Reads a user from the store.
    ///
    /// # Errors
    /// The store is unavailable, or the stored record is broken.
    pub async fn read(&self, name: &str) -> Result<Option<StoredUser>, UserError> {
        check_name(name)?;
        Ok(self.find(name).await?.map(|(_, user)| user))
    }

    /// User names after `after`, sorted, and whether more follow.
    ///
    /// # Errors
    /// The store is unavailable.
    pub async fn list(&self, after: Option<&str>) -> Result<(Vec<String>, bool), UserError> {
        let prefix = format!("{RESERVED}{KIND}");
        let scan = Scan {
            after: after.map(record_name),
            prefix: prefix.clone(),
            count_max: LIST_MAX,
        };
        let page = self.store()?.page(scan).await?;
        let names = page.records.iter();
        let names = names.filter_map(|(name, _)| name.strip_prefix(&prefix));
        Ok((names.map(str::to_owned).collect(), page.more))
    }

    /// Adds a user. If several requests use the same name at once, exactly one succeeds.
    ///
    /// # Errors
    /// The name is taken, the name or password is invalid, or the store refuses the write.
    pub async fn create(self: &Arc<Self>, name: &str, password: &str) -> Result<(), UserError> {
        let change = Change {
            password: Some(password.to_owned()),
            ..Change::default()
        };
        self.add(name, change).await
    }

    /// Like [`Self::create`], with server data and client data.
    ///
    /// # Errors
    /// The name is taken, the password is missing, the name or password is invalid, or the store refuses the write.
    pub async fn add(self: &Arc<Self>, name: &str, change: Change) -> Result<(), UserError> {
        self.change(name, change, true).await.map(|_| ())
    }

    /// Changes a user, or adds the user if the name is new.
    ///
    /// # Errors
    /// The user is new and has no password, the name or password is invalid, or the store refuses the write.
    pub async fn put(self: &Arc<Self>, name: &str, change: Change) -> Result<Changed, UserError> {
        self.change(name, change, false).await
    }

    async fn change(
        self: &Arc<Self>,
        name: &str,
        change: Change,
        only_new: bool,
    ) -> Result<Changed, UserError> {
        check_name(name)?;
        let password = match change.password {
            None => None,
            Some(password) => {
                check_password(&password)?;
                let hash = self.hash(move || password::hash(&password)).await?;
                let hash = hash.map_err(UserError::Unavailable)?;
                Some((hash, random_id().map_err(UserError::Unavailable)?))
            }
        };
        let (users, name) = (Arc::clone(self), name.to_owned());
        let (server_data, client_data) = (change.server_data, change.client_data);
        undisturbed(async move {
            users
                .edit(&name, |found| {
                    if only_new && found.is_some() {
                        return Err(UserError::Taken);
                    }
                    let now = jwt::now().0 / 1_000;
                    let is_new = found.is_none();
                    let (replaced, mut user) = match (found, &password) {
                        (Some((record, user)), _) => (Some(record), user),
                        (None, None) => return Err(UserError::Missing),
                        (None, Some(_)) => (None, StoredUser::new(now)),
                    };
                    let mut old_password_id = None;
                    if let Some((hash, id)) = &password {
                        let old = std::mem::replace(&mut user.password_id, id.clone());
                        old_password_id =
                            Some(Name::from(old.as_str())).filter(|id| !id.is_empty());
                        user.password.clone_from(hash);
                    }
                    user.server_data = server_data.clone().unwrap_or(user.server_data);
                    user.client_data = client_data.clone().unwrap_or(user.client_data);
                    user.changed_at = now;
                    let record = stored(replaced, &user)?;
                    let changed = Changed {
                        is_new,
                        old_password_id,
                    };
                    Ok((StoreChange::Put(record), changed))
                })
                .await
        })
        .await
    }

    /// Deletes a user and returns the id of the password, which is now invalid.
    ///
    /// # Errors
    /// The user does not exist, or the store refuses the write.
    pub async fn delete(self: &Arc<Self>, name: &str) -> Result<Name, UserError> {
        check_name(name)?;
        let (users, name) = (Arc::clone(self), name.to_owned());
        undisturbed(async move {
            users
                .edit(&name, |found| {
                    let (_, user) = found.ok_or(UserError::Missing)?;
                    Ok((StoreChange::Delete, Name::from(user.password_id.as_str())))
                })
                .await
        })
        .await
    }

    /// Reads a user, and writes the change that `decide` returns for it. If another node has changed the user since the read, it decides
    /// again about the newer one.
    async fn edit<T>(
        &self,
        name: &str,
        decide: impl Fn(Option<(StoredRecord, StoredUser)>) -> Result<(StoreChange, T), UserError>,
    ) -> Result<T, UserError> {
        let _turn = self.changing.lock().await;
        for _ in 0..ATTEMPTS_MAX {
            let found = self.find(name).await?;
            let expected = found
                .as_ref()
                .map_or(Expected::Missing, |(record, _)| Expected::of(record));
            let (change, result) = decide(found)?;
            if self.commit(name, expected, change).await? {
                return Ok(result);
            }
        }
        Err(UserError::Unavailable(
            "other nodes change the user all the time; try again".to_owned(),
        ))
    }

    async fn find(&self, name: &str) -> Result<Option<(StoredRecord, StoredUser)>, UserError> {
        match self.store()?.load(record_name(name)).await? {
            Loaded::Found(record) => match serde_json::from_str(record.data.as_str()) {
                Ok(user) => Ok(Some((record, user))),
                Err(error) => {
                    tracing::error!(name, %error, "the stored record of a user can't be read");
                    Err(UserError::Broken)
                }
            },
            Loaded::Corrupt => {
                tracing::error!(name, "the stored record of a user fails its checksum");
                Err(UserError::Broken)
            }
            Loaded::Missing => Ok(None),
        }
    }

    /// Writes a change of a user. Returns false if the user is not the expected one any longer.
    async fn commit(
        &self,
        name: &str,
        expected: Expected,
        change: StoreChange,
    ) -> Result<bool, UserError> {
        let write = StoreWrite {
            writer: None,
            name: record_name(name),
            expected,
            change,
        };
        let written = self.store()?.commit([write].into()).await?;
        Ok(matches!(written.as_slice(), [Written::Done]))
    }

    fn store(&self) -> Result<&AwaitedStore, UserError> {
        self.store.get().ok_or_else(stopped)
    }

    async fn hash<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, UserError> {
        let turn = self.hashing.turn(WaiterGroup::Changes).await;
        turn.run(work).await.ok_or_else(stopped)
    }
}

impl StoredUser {
    fn new(now: u64) -> Self {
        Self {
            password: String::new(),
            password_id: String::new(),
            server_data: Value::Null,
            client_data: Value::Null,
            created_at: now,
            changed_at: now,
        }
    }
}

/// Runs the work to completion even if the requester stops waiting for it.
async fn undisturbed<T: Send + 'static>(
    work: impl Future<Output = Result<T, UserError>> + Send + 'static,
) -> Result<T, UserError> {
    tokio::spawn(work).await.map_err(|_| stopped())?
}

fn stopped() -> UserError {
    UserError::Unavailable("the server is stopping".to_owned())
}

fn record_name(user: &str) -> Name {
    Name::from(format!("{RESERVED}{KIND}{user}").as_str())
}

/// The record of a user: the next version of `before`, or a new record.
fn stored(before: Option<StoredRecord>, user: &StoredUser) -> Result<StoredRecord, UserError> {
    let unavailable = |error: &dyn std::fmt::Display| UserError::Unavailable(error.to_string());
    let data = serde_json::to_string(user).map_err(|error| unavailable(&error))?;
    let (incarnation, version) = match before {
        Some(record) => (record.incarnation, record.version.next()),
        None => {
            let random = getrandom::u64().map_err(|error| unavailable(&error))?;
            (Incarnation(random), Version::CREATED)
        }
    };
    Ok(StoredRecord {
        incarnation,
        version,
        data: Payload::from(data),
        write_keys: None,
    })
}

fn check_name(name: &str) -> Result<(), UserError> {
    let is_right = (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.trim() == name
        && !name.contains(char::is_control)
        && !identity::is_shared(name);
    is_right.then_some(()).ok_or(UserError::InvalidName)
}

fn check_password(password: &str) -> Result<(), UserError> {
    let is_right =
        password.len() <= PASSWORD_BYTES_MAX && password.chars().count() >= PASSWORD_CHARACTERS_MIN;
    is_right.then_some(()).ok_or(UserError::InvalidPassword)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tidewire_config::section::AuthFile;
    use tidewire_shard::peer::PeerDetails;
    use tidewire_store::memory::MemoryDisk;
    use tidewire_store::thread::StoreThreads;

    use super::*;

    fn users(disk: &MemoryDisk) -> (Arc<Users>, StoreThreads) {
        let (store, opened) = disk.open(None);
        let threads =
            StoreThreads::start(Box::new(store), opened, Arc::new(|_, _| {})).expect("threads");
        let users = Users::new(&AuthStore::default(), Hashing::new(2), Counts::default());
        users.open(threads.client());
        (users, threads)
    }

    /// A login attempt for `verify`.
    fn login() -> LoginAttempt {
        let peer = PeerDetails::at((Ipv4Addr::LOCALHOST, 0).into());
        LoginAttempt::new(&Payload::from_checked("{}"), Arc::new(peer))
    }

    fn data(data: Value) -> Change {
        Change {
            server_data: Some(data),
            ..Change::default()
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn one_of_many_sign_ups_with_the_same_name_succeeds() {
        let (users, _threads) = users(&MemoryDisk::default());
        for round in 0..5 {
            let name = format!("anna-{round}");
            let attempts: Vec<_> = (0..8)
                .map(|number| {
                    let (users, name) = (Arc::clone(&users), name.clone());
                    let password = format!("password {number}");
                    tokio::spawn(
                        async move { users.create(&name, &password).await.map(|()| number) },
                    )
                })
                .collect();
            let mut winners = Vec::new();
            for attempt in attempts {
                match attempt.await.expect("no panic") {
                    Ok(number) => winners.push(number),
                    Err(error) => assert_eq!(error, UserError::Taken),
                }
            }
            let [winner] = winners[..] else {
                panic!("{winners:?}")
            };
            for number in 0..8 {
                let found = users
                    .verify(&name, &format!("password {number}"), &login())
                    .await;
                assert_eq!(found.is_ok(), number == winner);
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_abandoned_sign_up_is_completed_and_keeps_its_name() {
        let (users, _threads) = users(&MemoryDisk::default());
        // Polls the first request until it waits for the store, then drops it.
        let first = Arc::clone(&users);
        let gone = tokio::spawn(async move { first.create("anna", "the first one").await });
        while users.changing.try_lock().is_ok() && !gone.is_finished() {
            tokio::task::yield_now().await;
        }
        gone.abort();
        assert_eq!(
            users.create("anna", "the second one").await,
            Err(UserError::Taken)
        );
        assert!(
            users
                .verify("anna", "the first one", &login())
                .await
                .is_ok()
        );
    }

    #[tokio::test]
    async fn a_user_is_changed_and_deleted() {
        let disk = MemoryDisk::default();
        let (users, threads) = users(&disk);
        assert_eq!(
            users.put("anna", data(1.into())).await,
            Err(UserError::Missing)
        );
        users
            .create("anna", "correct horse")
            .await
            .expect("created");
        let first = users
            .verify("anna", "correct horse", &login())
            .await
            .expect("right");
        assert_eq!(
            (&first.server_data, &first.client_data),
            (&Value::Null, &Value::Null)
        );
        let changed = users
            .put("anna", data(serde_json::json!({ "role": "admin" })))
            .await;
        let expected = Changed {
            is_new: false,
            old_password_id: None,
        };
        assert_eq!(changed, Ok(expected));
        let change = Change {
            password: Some("battery staple".into()),
            ..Change::default()
        };
        let changed = users.put("anna", change).await.expect("changed");
        assert_eq!(
            changed.old_password_id.as_deref(),
            Some(first.password_id.as_str())
        );
        assert_eq!(
            users.verify("anna", "correct horse", &login()).await,
            Err(UserError::Missing)
        );
        let second = users
            .verify("anna", "battery staple", &login())
            .await
            .expect("right");
        assert_eq!(second.server_data["role"], "admin");
        drop(users);
        threads
            .stop(tidewire_store::thread::Ending::Complete)
            .expect("closed");

        let (users, _threads) = self::users(&disk);
        let again = users
            .verify("anna", "battery staple", &login())
            .await
            .expect("still there");
        assert_eq!(again, second);
        let ended = users.delete("anna").await.expect("deleted");
        assert_eq!(ended.as_str(), second.password_id);
        assert_eq!(users.delete("anna").await, Err(UserError::Missing));
        assert_eq!(
            users.verify("anna", "battery staple", &login()).await,
            Err(UserError::Missing)
        );
        users
            .create("anna", "another one")
            .await
            .expect("the name is free");
    }

    #[tokio::test]
    async fn wrong_names_and_passwords_are_refused() {
        let (users, _threads) = users(&MemoryDisk::default());
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for name in [
            "",
            " anna",
            "anna ",
            "an\nna",
            "\u{1}user/anna",
            "OPEN",
            "open",
            &long,
        ] {
            assert_eq!(
                users.create(name, "correct horse").await,
                Err(UserError::InvalidName)
            );
        }
        let long = "x".repeat(PASSWORD_BYTES_MAX + 1);
        for password in ["", "seven77", &long] {
            assert_eq!(
                users.create("anna", password).await,
                Err(UserError::InvalidPassword)
            );
        }
        users
            .create(&"x".repeat(NAME_BYTES_MAX), "üüüüüüüü")
            .await
            .expect("the longest valid name");
    }

    #[tokio::test]
    async fn names_are_listed_page_by_page() {
        let (users, _threads) = users(&MemoryDisk::default());
        for name in ["bert", "anna", "zoe"] {
            users.create(name, "correct horse").await.expect("created");
        }
        let all =
            |names: &[&str]| Ok((names.iter().map(|name| (*name).to_owned()).collect(), false));
        assert_eq!(users.list(None).await, all(&["anna", "bert", "zoe"]));
        assert_eq!(users.list(Some("anna")).await, all(&["bert", "zoe"]));
        assert_eq!(users.list(Some("zoe")).await, all(&[]));
    }

    #[test]
    fn the_decoy_costs_what_a_new_password_costs() {
        let made = password::hash("correct horse").expect("randomness");
        let settings = |text: &str| text.split('$').take(4).collect::<Vec<_>>().join("$");
        assert_eq!(settings(DECOY), settings(&made));
        let decoy = StoredPassword::parse(DECOY, &AuthFile::default()).expect("a hash");
        assert!(!decoy.matches(""));
    }
}

//! The users that the server keeps itself: records under names that no client can say. Format: `spec/users.md`.
//!
//! They are read and written past the engine, which never sees these names, so nothing of them is cached. Changes are made one
//! after the other, each in a task of its own: whoever asked may go away in the middle, and must not let the next one in
//! before the store has answered.

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
use tidewire_store::thread::{Scan, StoreClient};
use tokio::sync::{Mutex, oneshot};

use super::attempt::Attempt;
use super::hashing::Hashing;
use super::password::{self, StoredPassword};
use super::turns::WaiterGroup;
use super::{jwt, random_id};

/// What stands in the names of users' records behind [`RESERVED`].
const KIND: &str = "user/";
/// Bytes of a user's name.
pub const NAME_BYTES_MAX: usize = 256;
/// Bytes of a password. Hashing a longer one would cost more than it protects.
pub const PASSWORD_BYTES_MAX: usize = 1024;
/// Characters that a password has at least (NIST SP 800-63B, section 3.1.1.2, has 8 beside another factor).
pub const PASSWORD_CHARACTERS_MIN: usize = 8;
/// Users that one request lists.
pub const LIST_MAX: usize = 1_000;
/// Nobody's password. Verified for unknown users, so that they cost the same work.
const DECOY: &str = "$argon2id$v=19$m=19456,t=2,p=1$Bi6qmjXBcJXtCjVtMYXZvQ$nKjXEnGLCW61wmUPJpiwfHmVGcJfQ+jNg1i1Plk6yTk";

/// A user as the store has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredUser {
    /// Hashed with argon2id.
    pub password: String,
    /// New with each password; what sessions are ended by when it is changed.
    pub password_id: String,
    /// `user.data` of rules.
    #[serde(default)]
    pub server_data: Value,
    /// What the client is told.
    #[serde(default)]
    pub client_data: Value,
    /// Seconds since 1970.
    pub created_at: u64,
    /// The same of the last change.
    pub changed_at: u64,
}

/// What is to become of a user; what is left out stays as it is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Change {
    /// A new password.
    pub password: Option<String>,
    /// `user.data` of rules. `null` is a value.
    #[serde(default, deserialize_with = "given")]
    pub server_data: Option<Value>,
    /// What the client is told. `null` is a value.
    #[serde(default, deserialize_with = "given")]
    pub client_data: Option<Value>,
}

fn given<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

/// What has become of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Whether there was none before.
    pub is_new: bool,
    /// The password that is none any more.
    pub old_password_id: Option<Name>,
}

/// Why a user is not found or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserError {
    /// There is one of this name.
    Taken,
    /// There is none of this name.
    Missing,
    /// The name is empty, too long, or has control characters or white space at an end.
    InvalidName,
    /// The password is too short or too long.
    InvalidPassword,
    /// What is stored does not pass its checksum, or is no user.
    Broken,
    /// Too many logins of the user, or from the address, were refused while this one waited for its turn.
    HeldOff,
    /// The store can't be asked now. A change may have been made or not.
    Unavailable(String),
}

impl std::fmt::Display for UserError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Taken => f.write_str("there is a user of this name"),
            Self::Missing => f.write_str("there is no user of this name"),
            Self::InvalidName => write!(
                f,
                "a user's name has 1 to {NAME_BYTES_MAX} bytes, no control characters, no white space at its ends, and is not OPEN"
            ),
            Self::InvalidPassword => write!(
                f,
                "a password has at least {PASSWORD_CHARACTERS_MIN} characters and at most {PASSWORD_BYTES_MAX} bytes"
            ),
            Self::HeldOff => f.write_str("too many logins were refused"),
            Self::Broken => f.write_str("what is stored of the user is broken"),
            Self::Unavailable(reason) => write!(f, "users can't be read or written now: {reason}"),
        }
    }
}

impl std::error::Error for UserError {}

impl From<StoreError> for UserError {
    fn from(error: StoreError) -> Self {
        Self::Unavailable(error.message)
    }
}

/// See the head of this file.
pub struct Users {
    /// There once the store is open.
    store: OnceLock<StoreClient>,
    /// Held while a user is changed.
    changing: Mutex<()>,
    /// Passwords that may be hashed at the same time.
    hashing: Hashing,
    user_prefix: String,
    /// What was counted.
    pub counts: Counts,
}

/// What was counted.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Users that signed up.
    pub sign_ups: Counter,
    /// Requests to sign up that came too fast.
    pub too_fast: Counter,
}

impl std::fmt::Debug for Users {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Users")
    }
}

impl Users {
    /// The users of a store that is opened later.
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

    /// Gives it its store. Before, nobody is found.
    pub fn open(&self, store: StoreClient) {
        let _ = self.store.set(store);
    }

    /// The user id of whoever has this name.
    #[must_use]
    pub fn user_id(&self, name: &str) -> String {
        format!("{}{name}", self.user_prefix)
    }

    /// Finds who has this name and password.
    ///
    /// # Errors
    /// The name or the password is wrong, the attempt is turned away, or the store can't be asked.
    pub async fn verify(
        &self,
        name: &str,
        password: &str,
        attempt: &Attempt,
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
        user.filter(|_| is_right).ok_or(UserError::Missing)
    }

    /// A user as it is stored.
    ///
    /// # Errors
    /// The store can't be asked, or what it has is broken.
    pub async fn read(&self, name: &str) -> Result<Option<StoredUser>, UserError> {
        check_name(name)?;
        Ok(self.find(name).await?.map(|(_, user)| user))
    }

    /// Names of users behind `after`, in their order, and whether there are more.
    ///
    /// # Errors
    /// The store can't be asked.
    pub async fn list(&self, after: Option<&str>) -> Result<(Vec<String>, bool), UserError> {
        let prefix = format!("{RESERVED}{KIND}");
        let scan = Scan {
            after: after.map(record_name),
            prefix: prefix.clone(),
            count_max: LIST_MAX,
        };
        let (answer, page) = oneshot::channel();
        self.store()?.scan(
            scan,
            Box::new(move |page| {
                let _ = answer.send(page);
            }),
        );
        let page = page.await.map_err(|_| stopped())??;
        let names = page.records.iter();
        let names = names.filter_map(|(name, _)| name.strip_prefix(&prefix));
        Ok((names.map(str::to_owned).collect(), page.more))
    }

    /// Adds a user. Of two that want the same name at once exactly one gets it.
    ///
    /// # Errors
    /// The name is taken, name or password are none, or the store can't take it.
    pub async fn create(self: &Arc<Self>, name: &str, password: &str) -> Result<(), UserError> {
        let change = Change {
            password: Some(password.to_owned()),
            ..Change::default()
        };
        self.add(name, change).await
    }

    /// The same with what is told of the user.
    ///
    /// # Errors
    /// The name is taken, there is no password, name or password are none, or the store can't take it.
    pub async fn add(self: &Arc<Self>, name: &str, change: Change) -> Result<(), UserError> {
        self.change(name, change, true).await.map(|_| ())
    }

    /// Adds a user, or changes the one that there is.
    ///
    /// # Errors
    /// There is none and no password to begin with, name or password are none, or the store can't take it.
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
        undisturbed(async move {
            let _turn = users.changing.lock().await;
            let found = users.find(&name).await?;
            if only_new && found.is_some() {
                return Err(UserError::Taken);
            }
            let now = jwt::now().0 / 1_000;
            let is_new = found.is_none();
            let expected = found
                .as_ref()
                .map_or(Expected::Missing, |(record, _)| Expected::of(record));
            let (place, mut user) = match (found, &password) {
                (Some((record, user)), _) => (Some(record), user),
                (None, None) => return Err(UserError::Missing),
                (None, Some(_)) => (None, StoredUser::new(now)),
            };
            let mut old_password_id = None;
            if let Some((hash, id)) = password {
                let old = std::mem::replace(&mut user.password_id, id);
                old_password_id = Some(Name::from(old.as_str())).filter(|id| !id.is_empty());
                user.password = hash;
            }
            user.server_data = change.server_data.unwrap_or(user.server_data);
            user.client_data = change.client_data.unwrap_or(user.client_data);
            user.changed_at = now;
            let record = stored(place, &user)?;
            users
                .commit(&name, expected, StoreChange::Put(record))
                .await?;
            Ok(Changed {
                is_new,
                old_password_id,
            })
        })
        .await
    }

    /// Deletes a user, and says which password is none any more.
    ///
    /// # Errors
    /// There is none, or the store can't take it.
    pub async fn delete(self: &Arc<Self>, name: &str) -> Result<Name, UserError> {
        check_name(name)?;
        let (users, name) = (Arc::clone(self), name.to_owned());
        undisturbed(async move {
            let _turn = users.changing.lock().await;
            let (record, user) = users.find(&name).await?.ok_or(UserError::Missing)?;
            users
                .commit(&name, Expected::of(&record), StoreChange::Delete)
                .await?;
            Ok(Name::from(user.password_id.as_str()))
        })
        .await
    }

    async fn find(&self, name: &str) -> Result<Option<(StoredRecord, StoredUser)>, UserError> {
        let (answer, found) = oneshot::channel();
        self.store()?.load(
            vec![record_name(name)],
            Box::new(move |found| {
                let _ = answer.send(found);
            }),
        );
        match found.await.map_err(|_| stopped())??.pop() {
            Some(Loaded::Found(record)) => match serde_json::from_str(record.data.as_str()) {
                Ok(user) => Ok(Some((record, user))),
                Err(error) => {
                    tracing::error!(name, %error, "what is stored of a user can't be read");
                    Err(UserError::Broken)
                }
            },
            Some(Loaded::Corrupt) => {
                tracing::error!(name, "what is stored of a user does not pass its checksum");
                Err(UserError::Broken)
            }
            Some(Loaded::Missing) | None => Ok(None),
        }
    }

    async fn commit(
        &self,
        name: &str,
        expected: Expected,
        change: StoreChange,
    ) -> Result<(), UserError> {
        let (answer, done) = oneshot::channel();
        let write = StoreWrite {
            writer: None,
            name: record_name(name),
            expected,
            change,
        };
        self.store()?.commit(
            [write].into(),
            Box::new(move |result| {
                let _ = answer.send(result);
            }),
        );
        match done.await.map_err(|_| stopped())??.as_slice() {
            [Written::Done] => Ok(()),
            _ => Err(UserError::Unavailable(
                "another server has changed the user meanwhile".to_owned(),
            )),
        }
    }

    fn store(&self) -> Result<&StoreClient, UserError> {
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

/// Goes on to the end even if nobody waits for it any more.
async fn undisturbed<T: Send + 'static>(
    work: impl Future<Output = Result<T, UserError>> + Send + 'static,
) -> Result<T, UserError> {
    tokio::spawn(work).await.map_err(|_| stopped())?
}

fn stopped() -> UserError {
    UserError::Unavailable("the server stops".to_owned())
}

fn record_name(user: &str) -> Name {
    Name::from(format!("{RESERVED}{KIND}{user}").as_str())
}

/// The record of a user, in the place of the one before.
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
    use tidewire_shard::handle::Peer;
    use tidewire_store::memory::MemoryDisk;
    use tidewire_store::thread::StoreThreads;

    use super::*;

    fn users(disk: &MemoryDisk) -> (Arc<Users>, StoreThreads) {
        let (store, opened) = disk.open(None);
        let threads = StoreThreads::start(Box::new(store), opened.term(), Arc::new(|_, _| {}))
            .expect("threads");
        let users = Users::new(&AuthStore::default(), Hashing::new(2), Counts::default());
        users.open(threads.client());
        (users, threads)
    }

    /// The attempt that a password is verified for.
    fn login() -> Attempt {
        let peer = Peer {
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            headers: Vec::new(),
            certificate: None,
        };
        Attempt::new(&Payload::from_checked("{}"), Arc::new(peer))
    }

    fn data(data: Value) -> Change {
        Change {
            server_data: Some(data),
            ..Change::default()
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn of_many_that_want_one_name_exactly_one_gets_it() {
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
    async fn whoever_goes_away_in_the_middle_lets_nobody_else_in() {
        let (users, _threads) = users(&MemoryDisk::default());
        // Polled until it waits for the store, and dropped there.
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
    async fn wrong_names_and_passwords_are_none() {
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
            .expect("as long as may be");
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

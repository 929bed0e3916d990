//! Authentication of the users in a file such as `users.yml`, a mapping of user names.
//!
//! Each user has a `password`, and may have `serverData` for rules and `clientData` for the client. Passwords are hashed on
//! blocking threads, a limited number at a time. Unknown users cost the same work as known ones.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use parking_lot::RwLock;
use serde::Deserialize;
use serde_json::{Value, json};
use tidewire_config::Problem;
use tidewire_config::document::SourcePosition;
use tidewire_config::section::AuthFile;
use tidewire_core::principal::Principal;
use tidewire_core::text::{Name, Payload};

use super::fingerprint::Fingerprint;
use super::hashing::Hashing;
use super::password::StoredPassword;
use super::turns::WaiterGroup;
use super::{AuthDecision, AuthFuture, Authenticator, LoginAttempt};

/// The error text for a login without a user name or password. Applications compare it.
pub(super) const MISSING_PARAMETER: &str =
    "missing authentication parameter: username or/and password";

/// A user as the file has it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UserEntry {
    password: Option<String>,
    #[serde(default)]
    server_data: Value,
    #[serde(default)]
    client_data: Value,
}

#[derive(Debug)]
struct User {
    password: StoredPassword,
    principal: Principal,
}

#[derive(Debug)]
struct Users {
    by_name: BTreeMap<String, Arc<User>>,
    /// One decoy for each kind of hash in the file: a password that no user has, as costly to verify as other hashes of its kind.
    decoys: Vec<StoredPassword>,
    /// Of the whole file.
    fingerprint: Fingerprint,
}

impl Users {
    /// Whether the password is this user's. A wrong password costs one hash of each kind in the file, for known and unknown users
    /// alike. Otherwise, with hashes of different cost, the time would reveal which users exist.
    fn verify(&self, user: Option<&User>, password: &str) -> bool {
        let stored = user.map(|user| &user.password);
        if stored.is_some_and(|stored| stored.matches(password)) {
            return true;
        }
        for decoy in &self.decoys {
            if stored.is_none_or(|stored| stored.kind() != decoy.kind()) {
                // The result is unused; only the cost matters.
                std::hint::black_box(decoy.matches(password));
            }
        }
        false
    }
}

/// The users of a file.
#[derive(Debug)]
pub struct File {
    options: AuthFile,
    users: RwLock<Arc<Users>>,
    /// Whether it refuses wrong logins instead of passing them to the next member.
    is_reporting: bool,
    hashing: Hashing,
}

impl File {
    /// Reads the users. `is_alone`: whether it is the only member of the chain.
    ///
    /// # Errors
    /// The file can't be read, has no users, or has one without a usable password.
    pub fn open(options: AuthFile, is_alone: bool, hashing: Hashing) -> Result<Self, Problem> {
        let users = read(&options)?;
        Ok(Self {
            users: RwLock::new(Arc::new(users)),
            is_reporting: options.report_invalid_parameters.or_else(|| is_alone),
            hashing,
            options,
        })
    }

    async fn verify(&self, attempt: &LoginAttempt) -> AuthDecision {
        let (Some(name), Some(password)) = (attempt.given("username"), attempt.given("password"))
        else {
            if self.is_reporting {
                attempt.explain("the login has no username or no password");
            }
            return self.refused(Some(json!({ "error": MISSING_PARAMETER })));
        };
        let users = Arc::clone(&*self.users.read());
        let user = users.by_name.get(&name).cloned();
        let turn = self
            .hashing
            .turn(WaiterGroup::of(attempt.peer.address.ip()))
            .await;
        if attempt.is_held_off() {
            return AuthDecision::HeldOff;
        }
        let hashed = user.clone();
        let verified = turn.run(move || users.verify(hashed.as_deref(), &password));
        match (user, verified.await) {
            (None, _) => {
                attempt.explain(format!("the file of users has no user {name:?}"));
                AuthDecision::Unknown
            }
            (Some(user), Some(true)) => AuthDecision::Accepted(user.principal.clone()),
            (Some(_), _) => {
                attempt.explain(format!("the password of user {name:?} is wrong"));
                self.refused(None)
            }
        }
    }

    fn refused(&self, client_data: Option<Value>) -> AuthDecision {
        if !self.is_reporting {
            return AuthDecision::Unknown;
        }
        AuthDecision::Refused {
            client_data: client_data.map(|data| Payload::from(data.to_string())),
        }
    }
}

impl Authenticator for File {
    fn authenticate<'a>(&'a self, attempt: &'a LoginAttempt) -> AuthFuture<'a> {
        Box::pin(self.verify(attempt))
    }

    fn reload(&self) -> Result<(), Problem> {
        let users = read(&self.options)?;
        *self.users.write() = Arc::new(users);
        Ok(())
    }

    fn fingerprint(&self) -> Option<Fingerprint> {
        Some(self.users.read().fingerprint)
    }
}

fn read(options: &AuthFile) -> Result<Users, Problem> {
    let Some(path) = &options.path.0 else {
        return Err(Problem::new(
            "auth.file.path",
            "auth.chain contains file, but no file of users is configured; set auth.file.path",
        ));
    };
    let text = std::fs::read_to_string(path).map_err(|error| {
        Problem::new(
            path.display(),
            format!("can't be read: {error}; see auth.file.path"),
        )
    })?;
    let entries: BTreeMap<String, UserEntry> =
        serde_saphyr::from_str(&text).map_err(|error| broken(path, &error))?;
    let mut by_name = BTreeMap::new();
    for (name, entry) in entries {
        let user =
            user(&name, entry, options).map_err(|reason| Problem::new(path.display(), reason))?;
        by_name.insert(name, Arc::new(user));
    }
    if by_name.is_empty() {
        return Err(Problem::new(
            path.display(),
            "has no users; add one, with a password from `tidewire hash`",
        ));
    }
    let mut decoys: Vec<StoredPassword> = Vec::new();
    for user in by_name.values() {
        let kind = user.password.kind();
        if decoys.iter().all(|decoy| decoy.kind() != kind) {
            decoys.push(user.password.decoy());
        }
    }
    Ok(Users {
        by_name,
        decoys,
        fingerprint: Fingerprint::of("auth.file", &[text.as_bytes()]),
    })
}

fn broken(path: &Path, error: &serde_saphyr::Error) -> Problem {
    let text = error.without_snippet().to_string();
    let reason = text.lines().next().unwrap_or_default().to_owned();
    match error.location().map(SourcePosition::from) {
        Some(position) => Problem::new(
            format!("{}:{}:{}", path.display(), position.line, position.column),
            reason,
        ),
        None => Problem::new(path.display(), reason),
    }
}

fn user(name: &str, entry: UserEntry, options: &AuthFile) -> Result<User, String> {
    if name.is_empty() {
        return Err("a user has an empty name".into());
    }
    let password = entry
        .password
        .filter(|password| !password.is_empty())
        .ok_or_else(|| format!("user {name:?} has no password"))?;
    let password = StoredPassword::parse(&password, options)
        .map_err(|reason| format!("the password of user {name:?} {reason}"))?;
    Ok(User {
        password,
        principal: Principal::new(Name::from(name)).with_data(
            Some(Payload::from(entry.server_data.to_string())),
            Some(Payload::from(entry.client_data.to_string())),
        ),
    })
}

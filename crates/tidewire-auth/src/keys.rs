//! Authentication with keys of backends: an id and a random secret. The file contains only the hash of the secret.
//!
//! `tidewire key` makes secrets of 256 bits, so one round of SHA-256 protects them as well as many rounds would.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::RwLock;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tidewire_config::Problem;
use tidewire_config::section::AuthKeys;
use tidewire_core::principal::{Credential, Principal};
use tidewire_core::text::{Name, Payload};
use tidewire_core::time::WallTime;

use super::fingerprint::Fingerprint;
use super::password::is_same;
use super::{AuthDecision, AuthFuture, Authenticator, LoginAttempt, reason};

/// Code for a key that is not accepted.
pub const INVALID_KEY: &str = "INVALID_KEY";
/// Code for an expired key.
pub const KEY_EXPIRED: &str = "KEY_EXPIRED";
/// The field of the login object.
const FIELD: &str = "key";
const HASH_PREFIX: &str = "sha256:";
const SECRET_BYTES: usize = 32;
/// Maximum length of an id in characters.
const ID_CHARACTERS_MAX: usize = 128;

/// A key as the file has it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct KeyEntry {
    hash: String,
    user: Option<String>,
    #[serde(default)]
    server_data: Value,
    #[serde(default)]
    client_data: Value,
    /// Seconds since 1970.
    expires_at: Option<u64>,
}

#[derive(Debug)]
struct Key {
    hash: [u8; 32],
    principal: Principal,
}

type Table = BTreeMap<String, Key>;

/// The keys of a file.
#[derive(Debug)]
pub struct Keys {
    options: AuthKeys,
    is_alone: bool,
    table: RwLock<Arc<Table>>,
    fingerprint: RwLock<Fingerprint>,
}

impl Keys {
    /// Reads the keys.
    ///
    /// # Errors
    /// The file can't be read, or a key in it is invalid.
    pub fn open(options: AuthKeys, is_alone: bool) -> Result<Self, Problem> {
        let (table, fingerprint) = read(&options)?;
        Ok(Self {
            options,
            is_alone,
            table: RwLock::new(Arc::new(table)),
            fingerprint: RwLock::new(fingerprint),
        })
    }

    fn check(&self, attempt: &LoginAttempt) -> AuthDecision {
        let given = attempt.text(FIELD);
        let Some(text) = given.or_else(|| attempt.peer.bearer().map(str::to_owned)) else {
            return match self.is_alone {
                true => declined(INVALID_KEY),
                false => AuthDecision::Unknown,
            };
        };
        let (id, secret) = text.split_once('.').unwrap_or((&text, ""));
        let table = Arc::clone(&*self.table.read());
        let key = table.get(id);
        let digest: [u8; 32] = Sha256::digest(secret.as_bytes()).into();
        // Unknown ids cost the same work as known ones.
        let is_right = is_same(&digest, &key.map_or([0; 32], |key| key.hash));
        match key {
            Some(key) if is_right => match key.principal.expires_at() {
                Some(end) if end <= super::jwt::now() => {
                    attempt.explain(format!("the key {id:?} has expired"));
                    declined(KEY_EXPIRED)
                }
                _ => AuthDecision::Accepted(key.principal.clone()),
            },
            found => {
                attempt.explain(match found {
                    Some(_) => format!("the secret of the key {id:?} is wrong"),
                    None => format!("there is no key {id:?}"),
                });
                declined(INVALID_KEY)
            }
        }
    }
}

impl Authenticator for Keys {
    fn authenticate<'a>(&'a self, attempt: &'a LoginAttempt) -> AuthFuture<'a> {
        Box::pin(std::future::ready(self.check(attempt)))
    }

    fn reload(&self) -> Result<(), Problem> {
        let (table, fingerprint) = read(&self.options)?;
        *self.table.write() = Arc::new(table);
        *self.fingerprint.write() = fingerprint;
        Ok(())
    }

    fn fingerprint(&self) -> Option<Fingerprint> {
        Some(*self.fingerprint.read())
    }
}

fn declined(code: &'static str) -> AuthDecision {
    AuthDecision::Declined {
        client_data: reason(code),
    }
}

fn read(options: &AuthKeys) -> Result<(Table, Fingerprint), Problem> {
    let Some(path) = &options.path.0 else {
        return Err(Problem::new(
            "auth.keys.path",
            "auth.chain contains keys, but no file of keys is configured; set auth.keys.path",
        ));
    };
    let wrong = |reason: String| Problem::new(path.display(), reason);
    let text = std::fs::read_to_string(path)
        .map_err(|error| wrong(format!("can't be read: {error}; see auth.keys.path")))?;
    let table = parse(&text).map_err(wrong)?;
    Ok((table, Fingerprint::of("auth.keys", &[text.as_bytes()])))
}

/// Parses the content of a key file.
fn parse(text: &str) -> Result<Table, String> {
    let entries: Option<BTreeMap<String, KeyEntry>> =
        serde_saphyr::from_str(text).map_err(|error| {
            let text = error.without_snippet().to_string();
            text.lines().next().unwrap_or_default().to_owned()
        })?;
    let keys = entries.unwrap_or_default().into_iter();
    keys.map(|(id, entry)| {
        let key = key(&id, entry).map_err(|reason| format!("key {id:?} {reason}"))?;
        Ok((id, key))
    })
    .collect()
}

fn key(id: &str, entry: KeyEntry) -> Result<Key, &'static str> {
    check_id(id)?;
    let hash = entry
        .hash
        .strip_prefix(HASH_PREFIX)
        .and_then(|text| URL_SAFE_NO_PAD.decode(text).ok())
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or("has no valid hash; make one with `tidewire key`")?;
    let user = entry.user.as_deref().unwrap_or(id);
    if user.is_empty() {
        return Err("has an empty user");
    }
    let mut principal = Principal::new(Name::from(user))
        .with_data(
            Some(Payload::from(entry.server_data.to_string())),
            Some(Payload::from(entry.client_data.to_string())),
        )
        .with_credential(Credential::Key(Name::from(id)));
    if let Some(seconds) = entry.expires_at {
        let end = seconds
            .checked_mul(1_000)
            .ok_or("has an expiresAt that is too large; use seconds since 1970")?;
        principal = principal.with_expiry(WallTime(end));
    }
    Ok(Key { hash, principal })
}

fn check_id(id: &str) -> Result<(), &'static str> {
    let is_right = |character: char| character.is_ascii_alphanumeric() || "-_".contains(character);
    if id.is_empty() || id.len() > ID_CHARACTERS_MAX || !id.chars().all(is_right) {
        return Err("has an invalid id; use letters, digits, - and _");
    }
    Ok(())
}

/// Makes a key. Returns the entry of the file as YAML, and the text for the backend.
///
/// # Errors
/// The id is invalid, or the system has no random numbers.
pub fn make(
    id: &str,
    user: Option<&str>,
    lifetime: Option<Duration>,
) -> Result<(String, String), String> {
    check_id(id).map_err(|reason| format!("key {id:?} {reason}"))?;
    let mut secret = [0; SECRET_BYTES];
    getrandom::fill(&mut secret)
        .map_err(|error| format!("the system has no random numbers: {error}"))?;
    let secret = URL_SAFE_NO_PAD.encode(secret);
    let hash = URL_SAFE_NO_PAD.encode(Sha256::digest(secret.as_bytes()));
    let user = Value::from(user.unwrap_or(id));
    let mut entry = format!("{id}:\n  hash: {HASH_PREFIX}{hash}\n  user: {user}\n");
    if let Some(lifetime) = lifetime {
        let end = super::jwt::now().0 / 1_000 + lifetime.as_secs();
        entry.push_str(&format!("  expiresAt: {end}\n"));
    }
    Ok((entry, format!("{id}.{secret}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_created_key_is_read_back_unchanged() {
        let (entry, text) = make("billing-1", Some("billing"), None).expect("made");
        let table = parse(&entry).expect("read");
        let key = &table["billing-1"];
        let (id, secret) = text.split_once('.').expect("two parts");
        assert_eq!(id, "billing-1");
        assert_eq!(
            key.hash,
            <[u8; 32]>::from(Sha256::digest(secret.as_bytes()))
        );
        assert!(!entry.contains(secret), "the file must not have the secret");
        assert_eq!(key.principal.user_id.as_str(), "billing");
        let credential = Credential::Key(Name::from("billing-1"));
        assert_eq!(key.principal.credential(), Some(&credential));
        assert_eq!(key.principal.expires_at(), None);
    }

    #[test]
    fn wrong_files_are_refused() {
        let (entry, _) = make("a", None, None).expect("made");
        let check = |text: &str, part: &str| {
            let reason = parse(text).expect_err(part);
            assert!(reason.contains(part), "{reason}");
        };
        assert!(parse("").expect("an empty file").is_empty());
        check("a: 7", "");
        check("a:\n  hash: sha256:short\n", "no valid hash");
        check("a:\n  hash: plain\n", "no valid hash");
        check(&entry.replacen("a:", "a.b:", 1), "invalid id");
        check(&format!("{entry}  role: admin\n"), "role");
        check(
            &format!("{entry}  expiresAt: 18446744073709551615\n"),
            "too large",
        );
        check(&format!("{entry}{entry}"), "");
        make("a.b", None, None).expect_err("a dot ends the id");
    }
}

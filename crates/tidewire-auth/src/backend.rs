//! Logins of backends with the key of `backend.key`. The server keeps only hashes.

use std::sync::Arc;

use parking_lot::RwLock;
use sha2::{Digest as _, Sha256};
use tidewire_config::Problem;
use tidewire_config::section::Backend as Options;
use tidewire_core::effect::AuthOutcome;
use tidewire_core::principal::{Credential, Principal};
use tidewire_core::text::Name;
use zeroize::Zeroizing;

use super::LoginAttempt;
use super::fingerprint::Fingerprint;
use super::login_attempt::Field;
use super::password::is_same;

/// The user id of backends. Their rights to serve namespaces follow from the credential, never from this name.
const USER: &str = "backend";
/// The login field that contains the key.
const FIELD: &str = "backendKey";
/// Code for a key that is not accepted.
const INVALID_KEY: &str = "INVALID_KEY";
/// Minimum length of a key. 32 hexadecimal characters are 128 bits.
const KEY_CHARACTERS_MIN: usize = 32;

/// The keys of backends.
#[derive(Debug)]
pub(super) struct BackendKeys {
    options: Options,
    hashes: RwLock<Vec<[u8; 32]>>,
}

impl BackendKeys {
    /// Reads the keys; `None` if no key is set.
    ///
    /// # Errors
    /// The file can't be read, or a key is too short. The error text does not contain the key.
    pub(super) fn open(options: &Options) -> Result<Option<Self>, Problem> {
        if options.key.0.is_empty() && options.key_file.0.is_none() {
            return Ok(None);
        }
        Ok(Some(Self {
            options: options.clone(),
            hashes: RwLock::new(read(options)?),
        }))
    }

    /// Reads the keys again. On an error, the previous ones stay in effect.
    pub(super) fn reload(&self) -> Result<(), Problem> {
        *self.hashes.write() = read(&self.options)?;
        Ok(())
    }

    /// The fingerprint of the keys.
    pub(super) fn fingerprint(&self) -> Fingerprint {
        let hashes = self.hashes.read();
        let contents: Vec<&[u8]> = hashes.iter().map(|hash| &hash[..]).collect();
        Fingerprint::of("backend", &contents)
    }

    /// The outcome of a login with a key; `None` if the login has no key. A key has at least 128 bits, so guesses need no delay.
    pub(super) fn authenticate(&self, attempt: &LoginAttempt) -> Option<AuthOutcome> {
        let key = match attempt.field(FIELD)? {
            Field::Text(key) => Zeroizing::new(key),
            _ => Zeroizing::default(),
        };
        let given = hash(&key);
        // Each key is compared, so the time does not depend on the one that matches.
        let mut is_right = false;
        for known in self.hashes.read().iter() {
            is_right |= is_same(&given, known);
        }
        Some(match is_right {
            true => AuthOutcome::Accepted(Arc::new(
                Principal::new(Name::from(USER))
                    .with_credential(Credential::Backend(Name::from(USER))),
            )),
            false => AuthOutcome::Refused {
                client_data: super::reason(INVALID_KEY),
            },
        })
    }
}

fn hash(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

fn read(options: &Options) -> Result<Vec<[u8; 32]>, Problem> {
    let (option, text) = match &options.key_file.0 {
        Some(path) => {
            let wrong = |error| {
                let reason = format!("{} can't be read: {error}", path.display());
                Problem::new("backend.key_file", reason)
            };
            let text = std::fs::read_to_string(path).map_err(wrong)?;
            ("backend.key_file", Zeroizing::new(text))
        }
        None => ("backend.key", Zeroizing::new(options.key.0.clone())),
    };
    let lines = text.lines().map(str::trim);
    let keys: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    if keys.is_empty() || keys.iter().any(|key| key.len() < KEY_CHARACTERS_MIN) {
        let reason = format!(
            "a key has fewer than {KEY_CHARACTERS_MIN} characters, or is missing; generate one with `openssl rand -hex 32`"
        );
        return Err(Problem::new(option, reason));
    }
    Ok(keys.into_iter().map(hash).collect())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tidewire_config::value::{OptionalPath, Secret};
    use tidewire_core::text::Payload;
    use tidewire_shard::peer::PeerDetails;

    use super::*;

    const KEY: &str = "0123456789abcdef0123456789abcdef";

    fn attempt(data: &str) -> LoginAttempt {
        let peer = PeerDetails::at((Ipv4Addr::LOCALHOST, 0).into());
        LoginAttempt::new(&Payload::from_checked(data), Arc::new(peer))
    }

    fn is_accepted(keys: &BackendKeys, key: &str) -> bool {
        let data = format!(r#"{{"backendKey":"{key}"}}"#);
        match keys.authenticate(&attempt(&data)) {
            Some(AuthOutcome::Accepted(principal)) => principal.is_backend(),
            _ => false,
        }
    }

    #[test]
    fn only_the_key_gives_the_right() {
        let options = Options {
            key: Secret(KEY.into()),
            ..Options::default()
        };
        let keys = BackendKeys::open(&options).expect("a key").expect("a key");
        assert!(is_accepted(&keys, KEY));
        for wrong in ["", "x", &KEY[1..], &KEY.to_uppercase()] {
            assert!(!is_accepted(&keys, wrong), "{wrong}");
        }
        assert!(keys.authenticate(&attempt("{}")).is_none());
        let number = keys.authenticate(&attempt(r#"{"backendKey":1}"#));
        assert!(matches!(number, Some(AuthOutcome::Refused { .. })));
        assert!(!format!("{keys:?}").contains(KEY));
    }

    #[test]
    fn a_file_may_have_several_keys_and_is_read_again() {
        let folder = std::env::temp_dir().join(format!("backend-keys-{}", std::process::id()));
        let second = KEY.replace('0', "9");
        std::fs::write(&folder, format!("{KEY}\n\n {second} \n")).expect("writable");
        let options = Options {
            key_file: OptionalPath(Some(folder.clone())),
            ..Options::default()
        };
        let keys = BackendKeys::open(&options).expect("keys").expect("keys");
        assert!(is_accepted(&keys, KEY) && is_accepted(&keys, &second));
        std::fs::write(&folder, &second).expect("writable");
        keys.reload().expect("a key");
        assert!(!is_accepted(&keys, KEY) && is_accepted(&keys, &second));
        std::fs::write(&folder, "short").expect("writable");
        let error = keys.reload().expect_err("too short").to_string();
        assert!(
            error.contains("openssl rand") && !error.contains("short\n"),
            "{error}"
        );
        assert!(is_accepted(&keys, &second), "the earlier keys stay");
        std::fs::remove_file(&folder).expect("present");
    }

    #[test]
    fn without_a_key_there_are_none() {
        assert!(
            BackendKeys::open(&Options::default())
                .expect("no problem")
                .is_none()
        );
    }
}

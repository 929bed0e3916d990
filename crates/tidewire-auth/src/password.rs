//! Stored passwords: PBKDF2 with a salt, argon2id, and plain text.

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::Md5;
use pbkdf2::pbkdf2_hmac;
use sha1::Sha1;
use sha2::{Sha256, Sha512};
use tidewire_config::section::{AuthFile, HashKind};

const ARGON2ID: &str = "$argon2id$";

/// How the passwords of a file were hashed with PBKDF2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pbkdf2 {
    /// The digest; not [`HashKind::None`].
    pub digest: HashKind,
    /// Rounds.
    pub iterations: u32,
    /// Bytes of the key.
    pub key_length: usize,
}

/// The properties that determine the cost of a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashCost<'a> {
    /// The version and parameters.
    Argon2id(&'a str),
    /// The digest, rounds and key length.
    Pbkdf2(Pbkdf2),
    /// The password itself.
    Plain,
}

/// A stored password.
#[derive(Clone, Debug)]
pub enum StoredPassword {
    /// From `tidewire hash`.
    Argon2id(String),
    /// The key as base64 and the salt, which is text.
    Pbkdf2 {
        /// How it was made.
        hash: Pbkdf2,
        /// The key, as stored.
        key: String,
        /// The salt.
        salt: String,
    },
    /// The password itself.
    Plain(String),
}

impl StoredPassword {
    /// Parses a password of the users file.
    ///
    /// # Errors
    /// The text is not a valid hash. The error does not contain the text.
    pub fn parse(text: &str, options: &AuthFile) -> Result<Self, String> {
        if text.starts_with(ARGON2ID) {
            return match PasswordHash::new(text) {
                Ok(_) => Ok(Self::Argon2id(text.to_owned())),
                Err(error) => Err(format!("is not a valid argon2id hash: {error}")),
            };
        }
        if options.hash == HashKind::None {
            return Ok(Self::Plain(text.to_owned()));
        }
        let hash = Pbkdf2 {
            digest: options.hash,
            iterations: options.iterations,
            key_length: options.key_length,
        };
        let key_characters = 4 * options.key_length.div_ceil(3);
        match text.split_at_checked(key_characters) {
            Some((key, salt)) if STANDARD.decode(key).is_ok() => Ok(Self::Pbkdf2 {
                hash,
                key: key.to_owned(),
                salt: salt.to_owned(),
            }),
            _ => Err(format!(
                "does not begin with the {key_characters} base64 characters of a key of {} bytes; check \
                 auth.file.key_length",
                options.key_length
            )),
        }
    }

    /// The kind of hash. Passwords of one kind cost the same to verify.
    #[must_use]
    pub fn kind(&self) -> HashCost<'_> {
        match self {
            Self::Argon2id(text) => {
                // Name, version and parameters come before the salt.
                let parts = text.match_indices('$').nth(3);
                HashCost::Argon2id(parts.map_or(text, |(end, _)| &text[..end]))
            }
            Self::Pbkdf2 { hash, .. } => HashCost::Pbkdf2(*hash),
            Self::Plain(_) => HashCost::Plain,
        }
    }

    /// A password that no user has, as costly to verify as this one.
    #[must_use]
    pub fn decoy(&self) -> Self {
        match self {
            Self::Argon2id(text) => Self::Argon2id(text.clone()),
            Self::Pbkdf2 { hash, salt, .. } => Self::Pbkdf2 {
                hash: *hash,
                key: String::new(),
                salt: salt.clone(),
            },
            Self::Plain(_) => Self::Plain(String::new()),
        }
    }

    /// Whether `password` is the stored one. Slow on purpose: threads that serve clients must not call it.
    #[must_use]
    pub fn matches(&self, password: &str) -> bool {
        match self {
            Self::Argon2id(text) => PasswordHash::new(text).is_ok_and(|hash| {
                Argon2::default()
                    .verify_password(password.as_bytes(), &hash)
                    .is_ok()
            }),
            Self::Pbkdf2 { hash, key, salt } => {
                let derived = STANDARD.encode(derive(*hash, password, salt));
                is_same(derived.as_bytes(), key.as_bytes())
            }
            // Hashes both sides, so that the time reveals nothing about the stored text.
            Self::Plain(text) => is_same(&digest(password), &digest(text)),
        }
    }
}

fn derive(hash: Pbkdf2, password: &str, salt: &str) -> Vec<u8> {
    let mut key = vec![0; hash.key_length];
    let function = match hash.digest {
        HashKind::Md5 => pbkdf2_hmac::<Md5>,
        HashKind::Sha1 => pbkdf2_hmac::<Sha1>,
        HashKind::Sha256 => pbkdf2_hmac::<Sha256>,
        HashKind::Sha512 | HashKind::None => pbkdf2_hmac::<Sha512>,
    };
    function(
        password.as_bytes(),
        salt.as_bytes(),
        hash.iterations.max(1),
        &mut key,
    );
    key
}

fn digest(text: &str) -> [u8; 32] {
    use sha2::Digest as _;
    Sha256::digest(text.as_bytes()).into()
}

/// Compares in a time that depends only on the lengths.
pub fn is_same(left: &[u8], right: &[u8]) -> bool {
    let difference = left
        .iter()
        .zip(right)
        .fold(0, |sum, (left, right)| sum | (left ^ right));
    left.len() == right.len() && difference == 0
}

/// Hashes a password for `users.yml` with argon2id and a random salt.
///
/// # Errors
/// The system has no random numbers.
pub fn hash(password: &str) -> Result<String, String> {
    Argon2::default()
        .hash_password(password.as_bytes())
        .map(|hash| hash.to_string())
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MD5: &str = "mH0TQKrj7EggCNl+9PQyAEvteyZEePJyuu879aNSmBI=c2FsdA==";
    const SHA1: &str = "jqAZhBKW6tqCrmsKQzBudfFYxpIGCcGAcZfr9oAUKpQ=c2FsdA==";
    const SHA256: &str = "t9L4a7R0hKCfYGEEHwIu58m+VuF/lCUsfbGvR5r08dg=c2FsdA==";
    const SHA512: &str = "BDwkEUKO9IcNppA/FqIdMsA3N8TZtPFSrFuuYdoTwfk=c2FsdA==";

    fn options(hash: HashKind) -> AuthFile {
        AuthFile {
            hash,
            ..AuthFile::default()
        }
    }

    #[test]
    fn verifies_pbkdf2_with_the_salt_behind_the_hash() {
        let stored = "rCOSZxJrgze2AZdVQh12c6ErDMOG0M+Rx5Yu7S5d91c=GS4SbTQYmoaGwjm2shEobg==";
        let stored =
            StoredPassword::parse(stored, &options(HashKind::Md5)).expect("a stored password");
        assert!(stored.matches("password"));
        assert!(!stored.matches("Password"));
        assert!(!stored.matches(""));
    }

    #[test]
    fn every_digest_verifies_its_own_hash_only() {
        // Made with Node: crypto.pbkdf2Sync('secret', 'c2FsdA==', 100, 32, DIGEST).toString('base64') + 'c2FsdA=='
        let cases = [
            (HashKind::Md5, MD5),
            (HashKind::Sha1, SHA1),
            (HashKind::Sha256, SHA256),
            (HashKind::Sha512, SHA512),
        ];
        for (kind, _) in cases {
            for (made_with, text) in cases {
                let stored = StoredPassword::parse(text, &options(kind)).expect("a hash");
                assert_eq!(
                    stored.matches("secret"),
                    kind == made_with,
                    "{kind:?} {made_with:?}"
                );
            }
        }
    }

    #[test]
    fn verifies_its_own_hashes() {
        let text = hash("tide").expect("randomness");
        assert_ne!(
            text,
            hash("tide").expect("randomness"),
            "each has its own salt"
        );
        let stored = StoredPassword::parse(&text, &options(HashKind::Md5)).expect("argon2id");
        assert!(matches!(stored, StoredPassword::Argon2id(_)));
        assert!(stored.matches("tide"));
        assert!(!stored.matches("tidE"));
    }

    #[test]
    fn plain_text_is_compared_whole() {
        let stored =
            StoredPassword::parse("open sesame", &options(HashKind::None)).expect("any text");
        assert!(stored.matches("open sesame"));
        assert!(!stored.matches("open"));
        assert!(!stored.decoy().matches("open sesame"));
    }

    #[test]
    fn hashes_of_one_cost_are_of_one_kind() {
        let parse = |text: &str, kind| {
            StoredPassword::parse(text, &options(kind)).expect("a stored password")
        };
        let made = || hash("tide").expect("randomness");
        let (first, second) = (made(), made());
        let argon2id = parse(&first, HashKind::Md5);
        assert_eq!(argon2id.kind(), parse(&second, HashKind::None).kind());
        assert_eq!(
            argon2id.kind(),
            HashCost::Argon2id("$argon2id$v=19$m=19456,t=2,p=1")
        );
        let costlier = parse(&first.replace("t=2", "t=3"), HashKind::Md5);
        assert_ne!(argon2id.kind(), costlier.kind());
        let md5 = parse(MD5, HashKind::Md5);
        assert_eq!(md5.kind(), md5.decoy().kind());
        for other in [
            argon2id,
            parse(SHA1, HashKind::Sha1),
            parse("x", HashKind::None),
        ] {
            assert_ne!(md5.kind(), other.kind());
        }
    }

    #[test]
    fn broken_hashes_are_refused_without_showing_them() {
        let check = |text: &str, kind| {
            let error = StoredPassword::parse(text, &options(kind)).expect_err(text);
            assert!(!error.contains(text), "{error}");
        };
        check("$argon2id$v=19$broken", HashKind::None);
        check("short", HashKind::Sha512);
        check(
            "this is not base64 although it has more than enough characters",
            HashKind::Sha512,
        );
    }
}

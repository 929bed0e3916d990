//! The operator's admin key. The server keeps only its hash.

use std::fmt;

use sha2::{Digest as _, Sha256};
use tidewire_auth::password::is_same;
use tidewire_auth::random_id;
use tidewire_config::Problem;
use tidewire_config::section::Admin as Options;
use zeroize::Zeroizing;

/// Minimum length of a key; with a shorter one the server does not start. 32 hexadecimal characters are 128 bits.
const KEY_CHARACTERS_MIN: usize = 32;

/// The hash of a key.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; 32]);

impl Key {
    /// The key from the options; `None` if no key is set.
    ///
    /// # Errors
    /// The key can't be read or is too short. The error text does not contain the key.
    pub fn read(options: &Options) -> Result<Option<Self>, Problem> {
        let (option, key) = match &options.key_file.0 {
            Some(path) => {
                let wrong = |error| {
                    let reason = format!("{} can't be read: {error}", path.display());
                    Problem::new("admin.key_file", reason)
                };
                let text = Zeroizing::new(std::fs::read_to_string(path).map_err(wrong)?);
                ("admin.key_file", Zeroizing::new(text.trim().to_owned()))
            }
            None if options.key.0.is_empty() => return Ok(None),
            None => ("admin.key", Zeroizing::new(options.key.0.clone())),
        };
        if key.len() < KEY_CHARACTERS_MIN {
            let reason = format!(
                "the key has fewer than {KEY_CHARACTERS_MIN} characters; generate one with `openssl rand -hex 32`"
            );
            return Err(Problem::new(option, reason));
        }
        Ok(Some(Self::of(&key)))
    }

    /// A new key and its text. The server does not store the text.
    ///
    /// # Errors
    /// The operating system provides no random numbers.
    pub fn random() -> Result<(Self, String), String> {
        let text = random_id()? + &random_id()?;
        Ok((Self::of(&text), text))
    }

    fn of(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }

    /// Whether `text` is the key. The comparison takes the same time for every text.
    #[must_use]
    pub fn is(&self, text: &str) -> bool {
        is_same(&Self::of(text).0, &self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_compared_by_its_text_and_never_shown() {
        let (key, text) = Key::random().expect("random numbers");
        assert!(text.len() >= KEY_CHARACTERS_MIN);
        assert!(key.is(&text));
        for wrong in ["", &text[1..], &format!("{text}x")] {
            assert!(!key.is(wrong), "{wrong:?}");
        }
        assert_ne!(Key::random().expect("random numbers").0, key);
        assert_eq!(format!("{key:?}"), "Key(..)");
    }
}

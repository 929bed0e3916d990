//! The key of whoever runs the server. Only its hash is kept.

use std::fmt;

use sha2::{Digest as _, Sha256};
use tidewire_auth::password::is_same;
use tidewire_auth::random_id;
use tidewire_config::Problem;
use tidewire_config::section::Admin as Options;
use zeroize::Zeroizing;

/// Characters of a key below which the start is refused: 128 bits as hexadecimal.
const KEY_CHARACTERS_MIN: usize = 32;

/// A key, as its hash.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; 32]);

impl Key {
    /// The key of the options; `None` if there is none.
    ///
    /// # Errors
    /// It can't be read or is too short. The text has nothing of it.
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
                "the key has fewer than {KEY_CHARACTERS_MIN} characters; make one with `openssl rand -hex 32`"
            );
            return Err(Problem::new(option, reason));
        }
        Ok(Some(Self::of(&key)))
    }

    /// A new key with its text, which is kept nowhere.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn random() -> Result<(Self, String), String> {
        let text = random_id()? + &random_id()?;
        Ok((Self::of(&text), text))
    }

    fn of(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }

    /// Whether this is its text, in a time that does not depend on it.
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
    fn a_key_is_told_by_its_text_and_shows_nothing_of_it() {
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

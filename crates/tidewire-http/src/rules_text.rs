//! A text of rules, with the hash by which the nodes of a cluster and their operators compare it.

use std::path::Path;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use tidewire_core::hex::hex;

/// The characters of the hash that a log line or a status shows.
const SHORT_HASH: usize = 12;

/// See the comment at the top of this file. A clone shares the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulesText {
    file: Arc<str>,
    text: Arc<str>,
    sha256: Arc<str>,
}

impl RulesText {
    /// The rules with this text. `file` is the name of the file that the text was read from; errors and denials have it.
    #[must_use]
    pub fn new(file: &str, text: &str) -> Self {
        Self {
            file: file.into(),
            text: text.into(),
            sha256: hex(&Sha256::digest(text.as_bytes())).into(),
        }
    }

    /// The text of the file at `path`. Its name is the last part of the path, because nodes may have it in different folders.
    #[must_use]
    pub fn of_file(path: &Path, text: &str) -> Self {
        let name = path.file_name().unwrap_or_default();
        Self::new(&name.to_string_lossy(), text)
    }

    /// The name of the file.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The SHA-256 of the text, in hexadecimal.
    #[must_use]
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// The beginning of the hash, which is enough for people.
    #[must_use]
    pub fn short_hash(&self) -> &str {
        &self.sha256[..SHORT_HASH]
    }

    /// Whether both have the same text. The name of the file does not matter.
    #[must_use]
    pub fn is_equal(&self, other: &Self) -> bool {
        self.sha256 == other.sha256
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_equal_rules_whatever_their_file() {
        let one = RulesText::of_file(Path::new("conf/rules.yml"), "abc");
        let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!((one.file(), one.sha256()), ("rules.yml", hash));
        assert_eq!(one.short_hash(), "ba7816bf8f01");
        assert!(one.is_equal(&RulesText::new("other.yml", "abc")));
        assert!(!one.is_equal(&RulesText::new("rules.yml", "abd")));
    }
}

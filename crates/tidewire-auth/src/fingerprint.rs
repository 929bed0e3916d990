//! Fingerprints of keys, secrets and files of users: nodes of a cluster that show different ones decide logins differently.
//!
//! A plain hash would let its readers test guesses of a weak secret. So a fingerprint is shown only together with a secret key, which all
//! nodes of a cluster have.

use sha2::{Digest as _, Sha256};
use tidewire_core::hex::hex;

/// The characters of a shown fingerprint.
const SHOWN: usize = 12;

/// See the comment at the top of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// The section of the configuration with the options of the keys or files.
    pub section: &'static str,
    digest: [u8; 32],
}

impl Fingerprint {
    /// The fingerprint of several contents, in this order.
    #[must_use]
    pub fn of(section: &'static str, contents: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for content in contents {
            hash.update((content.len() as u64).to_le_bytes());
            hash.update(content);
        }
        let digest = hash.finalize().into();
        Self { section, digest }
    }

    /// The fingerprint as operators see it.
    #[must_use]
    pub fn shown(&self, key: &[u8]) -> String {
        let hash = Sha256::new_with_prefix(key).chain_update(self.digest);
        let mut shown = hex(&hash.finalize());
        shown.truncate(SHOWN);
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_differ_by_content_and_by_key() {
        let shown = |contents: &[&[u8]], key| Fingerprint::of("jwt", contents).shown(key);
        let one = shown(&[b"ab", b"c"], b"key");
        assert_eq!(one.len(), SHOWN);
        assert_eq!(one, shown(&[b"ab", b"c"], b"key"));
        for other in [
            shown(&[b"a", b"bc"], b"key"),
            shown(&[b"abc"], b"key"),
            shown(&[b"ab", b"c"], b"another key"),
        ] {
            assert_ne!(one, other);
        }
    }
}

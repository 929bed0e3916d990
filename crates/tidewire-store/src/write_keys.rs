//! The stored form of a record's write keys: a JSON text next to the value. Contract: `spec/store.md`, "Write keys".

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidewire_core::store::{Dropped, StoredKey, Version, WriteKeys};
use tidewire_core::text::Name;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    /// Version, user and key of each write, the oldest first.
    kept: Vec<(u32, String, String)>,
    /// The latest version whose key was dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dropped: Option<u32>,
    /// Whether versions do not tell which keys were dropped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unordered: bool,
}

/// The text to store.
pub(crate) fn to_text(keys: &WriteKeys) -> String {
    let kept = keys.kept().iter();
    let text = Text {
        kept: kept
            .map(|key| (key.version.0, key.user.to_string(), key.key.to_string()))
            .collect(),
        dropped: match keys.dropped() {
            Dropped::UpTo(version) => Some(version.0),
            Dropped::Nothing | Dropped::Unordered => None,
        },
        unordered: keys.dropped() == Dropped::Unordered,
    };
    serde_json::to_string(&text).expect("numbers and texts are JSON")
}

/// The keys of a row with this text, if it has one; an outer `None` if the text is damaged.
pub(crate) fn of_row(text: Option<&str>) -> Option<Option<Arc<WriteKeys>>> {
    match text {
        Some(text) => from_text(text).map(Some),
        None => Some(None),
    }
}

fn from_text(text: &str) -> Option<Arc<WriteKeys>> {
    let text: Text = serde_json::from_str(text).ok()?;
    let kept = text.kept.into_iter().map(|(version, user, key)| StoredKey {
        user: Name::from(user.as_str()),
        key: key.into(),
        version: Version(version),
    });
    let dropped = match (text.unordered, text.dropped) {
        (true, _) => Dropped::Unordered,
        (false, Some(version)) => Dropped::UpTo(Version(version)),
        (false, None) => Dropped::Nothing,
    };
    Some(Arc::new(WriteKeys::stored(kept.collect(), dropped)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kept: &[(&str, &str, u32)], dropped: Dropped, expected: &str) {
        let kept = kept.iter().map(|(user, key, version)| StoredKey {
            user: Name::from(*user),
            key: (*key).into(),
            version: Version(*version),
        });
        let keys = Arc::new(WriteKeys::stored(kept.collect(), dropped));
        assert_eq!(to_text(&keys), expected);
        assert_eq!(from_text(expected), Some(keys));
    }

    #[test]
    fn the_text_is_the_one_of_the_specification() {
        check(&[], Dropped::Unordered, r#"{"kept":[],"unordered":true}"#);
        check(
            &[("ann", "k1", 3), ("b\"\0", "é", 2_147_483_647)],
            Dropped::Nothing,
            r#"{"kept":[[3,"ann","k1"],[2147483647,"b\"\u0000","é"]]}"#,
        );
        let expected = r#"{"kept":[[4,"u","k"]],"dropped":3}"#;
        check(&[("u", "k", 4)], Dropped::UpTo(Version(3)), expected);
    }

    #[test]
    fn a_damaged_text_has_no_keys() {
        for text in [
            "",
            "{}",
            "[]",
            r#"{"kept":[[1,"u"]]}"#,
            r#"{"kept":[],"x":1}"#,
        ] {
            assert_eq!(from_text(text), None, "{text}");
        }
    }
}

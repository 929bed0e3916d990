//! Encodes names as `_id`, so that all servers order records by the bytes of their names.
//!
//! MongoDB compares text by its UTF-8 bytes. Other servers with its protocol may compare text by its UTF-16 units. The two
//! orders are the same if no character comes after the surrogates.

/// Starts an escaped character. This character and all after it are escaped: written as their code points in hexadecimal.
const ESCAPE: char = '\u{d7ff}';
/// Hexadecimal digits of a code point.
const DIGIT_COUNT: usize = 6;

/// The `_id` of a name. The `_id` of a prefix is a prefix of the `_id`.
pub(super) fn from_name(name: &str) -> String {
    let mut key = String::with_capacity(name.len());
    for character in name.chars() {
        if character < ESCAPE {
            key.push(character);
        } else {
            key.push(ESCAPE);
            key.push_str(&format!("{:0DIGIT_COUNT$x}", u32::from(character)));
        }
    }
    key
}

/// The name of an `_id`; `None` if the `_id` is not the encoding of a name.
pub(super) fn to_name(key: &str) -> Option<String> {
    let mut name = String::with_capacity(key.len());
    let mut rest = key;
    while let Some(index) = rest.find(ESCAPE) {
        name.push_str(&rest[..index]);
        rest = &rest[index + ESCAPE.len_utf8()..];
        let digits = rest.get(..DIGIT_COUNT)?;
        name.push(char::from_u32(u32::from_str_radix(digits, 16).ok()?)?);
        rest = &rest[DIGIT_COUNT..];
    }
    name.push_str(rest);
    (from_name(&name) == key).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_names_are_written_as_they_are() {
        for (name, key) in [
            ("", ""),
            ("user/é\0", "user/é\0"),
            ("힣\u{d7fe}", "힣\u{d7fe}"),
            ("a\u{d7ff}b", "a\u{d7ff}00d7ffb"),
            ("\u{e000}", "\u{d7ff}00e000"),
            ("\u{1f600}\u{10ffff}", "\u{d7ff}01f600\u{d7ff}10ffff"),
        ] {
            assert_eq!(from_name(name), key);
            assert_eq!(to_name(key).as_deref(), Some(name));
        }
        for wrong in [
            "\u{d7ff}",
            "\u{d7ff}00e00",
            "\u{d7ff}00E000",
            "\u{d7ff}+0e000",
            "\u{d7ff}00d800",
            "\u{d7ff}000041",
            "\u{d7ff}0000é",
            "\u{e000}",
        ] {
            assert_eq!(to_name(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn keys_have_the_order_of_names_in_both_encodings() {
        let letters = [
            "a",
            "\0",
            "\u{d7fe}",
            "\u{d7ff}",
            "\u{e000}",
            "\u{ffff}",
            "\u{10000}",
        ];
        let mut names = vec![String::new()];
        for first in letters {
            names.push(first.to_owned());
            names.extend(letters.map(|second| format!("{first}{second}")));
        }
        names.sort();
        let keys: Vec<_> = names.iter().map(|name| from_name(name)).collect();
        assert!(keys.is_sorted());
        assert!(keys.is_sorted_by_key(|key| key.encode_utf16().collect::<Vec<_>>()));
    }
}

//! Names in URLs. Percent-escapes are decoded once, and no other character has a meaning, neither `/` nor dots.

/// Decodes percent-escapes; returns `None` if an escape is malformed or the bytes are not UTF-8.
pub fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, behind) = rest.split_at_checked(2)?;
        let high = char::from(digits[0]).to_digit(16)?;
        let low = char::from(digits[1]).to_digit(16)?;
        bytes.push(u8::try_from(high * 16 + low).ok()?);
        rest = behind;
    }
    String::from_utf8(bytes).ok()
}

/// The name behind a prefix of a path, if it is not empty and has at most `bytes_max` bytes.
pub(super) fn name_behind(prefix: &str, path: &str, bytes_max: usize) -> Option<String> {
    let name = path.strip_prefix(prefix).and_then(unescape)?;
    (1..=bytes_max).contains(&name.len()).then_some(name)
}

/// The parameters of a query string, in order; `None` if one is malformed. A plus sign is a space, as in forms.
pub fn parameters(query: &str) -> Option<Vec<(String, String)>> {
    let parts = query.split('&').filter(|part| !part.is_empty());
    let decode = |text: &str| unescape(&text.replace('+', " "));
    parts
        .map(|part| {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            Some((decode(key)?, decode(value)?))
        })
        .collect()
}

/// Escapes `name` for a URL: every byte that could have a meaning becomes a percent-escape.
pub fn escape(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'~' | b'/' => {
                text.push(char::from(byte));
            }
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn escapes_are_undone_once() {
        let cases = [
            ("a/b", Some("a/b")),
            ("a%2Fb", Some("a/b")),
            ("a%2fb", Some("a/b")),
            ("a%252Fb", Some("a%2Fb")),
            ("../x", Some("../x")),
            ("%2e%2E/x", Some("../x")),
            ("%C3%A4", Some("ä")),
            ("a+b", Some("a+b")),
            ("%", None),
            ("%4", None),
            ("%4G", None),
            ("%FF", None),
            ("%+1", None),
        ];
        for (text, expected) in cases {
            assert_eq!(unescape(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn parameters_keep_their_order_and_repeat() {
        let found = parameters("event=a%26b&record=c+d&event=&x").expect("it is well formed");
        let expected = [
            ("event", "a&b"),
            ("record", "c d"),
            ("event", ""),
            ("x", ""),
        ];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(found, expected);
        assert_eq!(parameters("a=%"), None);
    }

    proptest! {
        #[test]
        fn escaped_names_are_restored(name in ".*") {
            prop_assert_eq!(unescape(&escape(&name)), Some(name));
        }
    }
}

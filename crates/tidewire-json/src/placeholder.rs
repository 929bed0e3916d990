//! Placeholders: the objects that represent binary values in JSON, `{"_placeholder":true,"num":0}`. The number selects one of the attachments
//! that travel with the text.

use super::literal;
use super::scan::{RawString, peek, skip_space};

/// The longest spelling of a known key, with each character escaped.
const KEY_BYTES_MAX: usize = "_placeholder".len() * r"\u0000".len();

/// The members of an open object that matter.
#[derive(Clone, Copy, Default)]
struct Open {
    is_placeholder: bool,
    number: Option<usize>,
}

/// Whether each placeholder of a text has the number of one of `count` attachments. Numbers may repeat, and need not all occur. `text` must
/// have passed [`super::check`].
///
/// A reader that replaces the placeholders finds the same ones: keys count with their escapes resolved, and of equal keys the last one counts.
/// Numbers are digits only, as each encoder writes them. A value that a later equal key hides is checked, too.
#[must_use]
pub fn has_placeholders(text: &str, count: usize) -> bool {
    let bytes = text.as_bytes();
    // One pass with a stack. A walk of each container's entries would scan a text once for each of its levels.
    let mut open: Vec<Open> = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'{' | b'[' => open.push(Open::default()),
            b'}' | b']' => {
                let Some(closed) = open.pop() else {
                    return false;
                };
                if closed.is_placeholder && closed.number.is_none_or(|number| number >= count) {
                    return false;
                }
            }
            b'"' => {
                let Ok(string) = RawString::scan(bytes, at) else {
                    return false;
                };
                at = string.end();
                let colon = skip_space(bytes, at);
                if peek(bytes, colon) == b':' {
                    at = skip_space(bytes, colon + 1);
                    if let Some(object) = open.last_mut() {
                        object.take(text, &string, &text[at..]);
                    }
                }
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    true
}

impl Open {
    /// Notes a member of the object, whose value begins `rest`.
    fn take(&mut self, text: &str, key: &RawString, rest: &str) {
        let inner = &text[key.inner.clone()];
        let unescaped = match key.escaped && inner.len() <= KEY_BYTES_MAX {
            true => literal::unescape(inner),
            false => None,
        };
        match unescaped.as_deref().unwrap_or(inner) {
            "_placeholder" => self.is_placeholder = rest.starts_with("true"),
            "num" => {
                let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+');
                let end = rest.bytes().take_while(is_part).count();
                self.number = rest[..end].parse().ok();
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// The result of a walk through each container.
    fn walked(text: &str, count: usize) -> bool {
        let (mut is_placeholder, mut number) = (false, None);
        for (key, value) in crate::entries(text) {
            match key.and_then(crate::Literal::text).as_deref() {
                Some("_placeholder") => is_placeholder = value == "true",
                Some("num") => number = value.parse::<usize>().ok(),
                _ => {}
            }
            if !walked(value, count) {
                return false;
            }
        }
        !is_placeholder || number.is_some_and(|number| number < count)
    }

    /// The result of a reader that builds a tree.
    fn expected(value: &Value, count: usize) -> bool {
        match value {
            Value::Array(items) => items.iter().all(|item| expected(item, count)),
            Value::Object(members) => {
                let is_placeholder = members.get("_placeholder") == Some(&Value::Bool(true));
                let number = members.get("num").and_then(Value::as_u64);
                let is_valid = number.is_some_and(|number| number < count as u64);
                (!is_placeholder || is_valid) && members.values().all(|item| expected(item, count))
            }
            _ => true,
        }
    }

    fn check(text: &str, count: usize, is_valid: bool) {
        assert_eq!(has_placeholders(text, count), is_valid, "{text}");
        let value = serde_json::from_str(text).expect("JSON");
        assert_eq!(expected(&value, count), is_valid, "{text}");
    }

    #[test]
    fn each_placeholder_selects_an_attachment() {
        let zero = r#"{"_placeholder":true,"num":0}"#;
        check(zero, 1, true);
        check(zero, 0, false);
        check(&format!(r#"["a",{zero},{{"b":[{zero}]}},{zero}]"#), 1, true);
        check(r#"{ "num" : 1 , "_placeholder" : true }"#, 2, true);
        check(r#"{"num":1,"_placeholder":true}"#, 1, false);
        check("[1,{},[],null,\"}\"]", 1, true);
        for (number, is_valid) in [("1", true), ("2", false), ("18446744073709551616", false)] {
            let text = format!(r#"[{{"_placeholder":true,"num":{number}}}]"#);
            check(&text, 2, is_valid);
        }
        for number in ["-1", "\"0\"", "null", "0.5", "[0]", "{}"] {
            check(
                &format!(r#"{{"_placeholder":true,"num":{number}}}"#),
                2,
                false,
            );
        }
        check(r#"{"_placeholder":true}"#, 2, false);
        for value in ["false", "1", "\"true\"", "null", "{}"] {
            check(&format!(r#"{{"_placeholder":{value},"num":9}}"#), 2, true);
        }
    }

    #[test]
    fn keys_count_as_a_reader_sees_them() {
        check(r#"{"_pl\u0061ceholder":true,"num":9}"#, 1, false);
        check(r#"{"_placeholder":true,"n\u0075m":0}"#, 1, true);
        check(r#"{"_placeholder":true,"num":0,"num":9}"#, 1, false);
        check(r#"{"_placeholder":true,"num":9,"num":0}"#, 1, true);
        check(
            r#"{"_placeholder":false,"num":9,"_placeholder":true}"#,
            1,
            false,
        );
        check(r#"{"a":{"_placeholder":true},"num":0}"#, 1, false);
        check(r#"{"a":"{\"_placeholder\":true}"}"#, 1, true);
    }

    fn json() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("true".to_owned()),
            (0u8..4).prop_map(|number| number.to_string()),
            "[a-z\"\\\\{}]{0,3}".prop_map(|text| Value::from(text).to_string()),
        ];
        let key = prop_oneof![
            Just(r#""_placeholder""#),
            Just(r#""num""#),
            Just(r#""n\u0075m""#),
            Just(r#""a""#),
        ];
        leaf.prop_recursive(4, 32, 4, move |inner| {
            let member = (key.clone(), inner.clone());
            let member = member.prop_map(|(key, value)| format!("{key} :{value}"));
            prop_oneof![
                proptest::collection::vec(inner, 0..4)
                    .prop_map(|items| format!("[{}]", items.join(" ,"))),
                proptest::collection::vec(member, 0..4)
                    .prop_map(|items| format!("{{{}}}", items.join(","))),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_scan_finds_all_placeholders(text in json(), count in 0usize..4) {
            let found = has_placeholders(&text, count);
            prop_assert_eq!(found, walked(&text, count), "{}", text);
            let value: Value = serde_json::from_str(&text).expect("JSON");
            prop_assert!(!found || expected(&value, count), "{}", text);
        }

        #[test]
        fn any_text_is_scanned_without_a_panic(text in "\\PC{0,40}|[\\[\\]{}\":,a0\\\\_]{0,40}") {
            let _ = has_placeholders(&text, 1);
        }
    }
}

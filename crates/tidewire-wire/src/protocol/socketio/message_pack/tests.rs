use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn read(bytes: &[u8]) -> Result<(String, Vec<Attachment>), Unreadable> {
    let mut reader = Reader::new(bytes);
    let mut text = String::new();
    if reader.json(&mut text)? == Written::Undefined {
        text.push_str("undefined");
    }
    assert!(reader.is_at_end(), "{bytes:?}");
    Ok((text, reader.into_attachments()?))
}

fn written(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_json(text, &[], &mut bytes);
    bytes
}

#[test]
fn each_format_is_read() {
    for (bytes, expected) in [
        (&[0xc0][..], "null"),
        (&[0xc2], "false"),
        (&[0xc3], "true"),
        (&[0x7f], "127"),
        (&[0xe0], "-32"),
        (&[0xcc, 200], "200"),
        (&[0xcd, 1, 0], "256"),
        (&[0xce, 1, 0, 0, 0], "16777216"),
        (
            &[0xcf, 255, 255, 255, 255, 255, 255, 255, 255],
            "18446744073709551615",
        ),
        (&[0xd0, 0x80], "-128"),
        (&[0xd1, 0x80, 0], "-32768"),
        (&[0xd2, 0x80, 0, 0, 0], "-2147483648"),
        (&[0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0], "-9223372036854775808"),
        (&[0xca, 0x3f, 0xc0, 0, 0], "1.5"),
        (&[0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0], "1.5"),
        (&[0xa2, b'a', b'"'], r#""a\"""#),
        (&[0xd9, 1, b'a'], r#""a""#),
        (&[0xda, 0, 1, b'a'], r#""a""#),
        (&[0xdb, 0, 0, 0, 1, b'a'], r#""a""#),
        (&[0x92, 1, 0x90], "[1,[]]"),
        (&[0xdc, 0, 1, 1], "[1]"),
        (&[0xdd, 0, 0, 0, 1, 1], "[1]"),
        (&[0x81, 0xa1, b'a', 0x80], r#"{"a":{}}"#),
        (&[0xde, 0, 1, 0xa1, b'a', 1], r#"{"a":1}"#),
        (&[0xdf, 0, 0, 0, 1, 0xa1, b'a', 1], r#"{"a":1}"#),
        (&[0xd4, 0, 0], "undefined"),
        (&[0x93, 1, 0xd4, 0, 0, 2], "[1,null,2]"),
        (
            &[
                0x83, 0xa1, b'a', 0xd4, 0, 0, 0xa1, b'b', 1, 0xa1, b'c', 0xd4, 0, 0,
            ],
            r#"{"b":1}"#,
        ),
    ] {
        assert_eq!(read(bytes), Ok((expected.into(), Vec::new())), "{bytes:?}");
    }
}

#[test]
fn binary_values_are_attachments() {
    let placeholder = r#"{"_placeholder":true,"num":0}"#;
    for bytes in [
        &[0xc4, 2, 7, 8][..],
        &[0xc5, 0, 2, 7, 8],
        &[0xc6, 0, 0, 0, 2, 7, 8],
        // An `ArrayBuffer`.
        &[0xc7, 2, 0, 7, 8],
        &[0xc8, 0, 2, 0, 7, 8],
        &[0xc9, 0, 0, 0, 2, 0, 7, 8],
    ] {
        let (text, attachments) = read(bytes).expect("a value");
        assert_eq!(
            (text.as_str(), &*attachments[0]),
            (placeholder, &[7, 8][..])
        );
    }
}

#[test]
fn dates_are_texts() {
    let of = |milliseconds: i64| {
        let mut text = String::new();
        date(Some(milliseconds), &mut text);
        text
    };
    // As `new Date(…).toJSON()` in Node.
    for (milliseconds, expected) in [
        (0, r#""1970-01-01T00:00:00.000Z""#),
        (-1, r#""1969-12-31T23:59:59.999Z""#),
        (951_782_400_000, r#""2000-02-29T00:00:00.000Z""#),
        (1_709_251_199_999, r#""2024-02-29T23:59:59.999Z""#),
        (4_107_542_400_000, r#""2100-03-01T00:00:00.000Z""#),
        (-62_198_755_200_000, r#""-000001-01-01T00:00:00.000Z""#),
        (253_402_300_800_000, r#""+010000-01-01T00:00:00.000Z""#),
        (DATE_MS_MAX, r#""+275760-09-13T00:00:00.000Z""#),
        (-DATE_MS_MAX, r#""-271821-04-20T00:00:00.000Z""#),
        (DATE_MS_MAX + 1, "null"),
        (i64::MIN, "null"),
    ] {
        assert_eq!(of(milliseconds), expected);
    }
    let second = r#""1970-01-01T00:00:01.000Z""#;
    for (bytes, expected) in [
        (&[0xd7, 0, 0, 0, 0, 0, 0, 0, 3, 232][..], second),
        (&[0xd6, 255, 0, 0, 0, 1], second),
        (&[0xd7, 255, 0, 0, 0, 0, 0, 0, 0, 1], second),
        (&[0xc7, 12, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], second),
        (
            &[
                0xc7, 12, 255, 0, 0, 0, 0, 127, 255, 255, 255, 255, 255, 255, 255,
            ],
            "null",
        ),
    ] {
        assert_eq!(read(bytes), Ok((expected.into(), Vec::new())), "{bytes:?}");
    }
}

#[test]
fn numbers_have_the_form_of_json() {
    for (number, expected) in [
        (1.0, "1"),
        (-0.0, "0"),
        (0.1, "0.1"),
        (1e21, "1e21"),
        (-1.5e300, "-1.5e300"),
        (5e-324, "5e-324"),
        (123_456_789_012_345_680_000.0, "123456789012345680000"),
        (0.000_001, "0.000001"),
        (f64::NAN, "null"),
        (f64::NEG_INFINITY, "null"),
    ] {
        let mut bytes = vec![0xcb];
        bytes.extend(number.to_be_bytes());
        assert_eq!(read(&bytes), Ok((expected.into(), Vec::new())));
    }
}

#[test]
fn values_without_a_form_in_json_are_refused() {
    for (bytes, offset) in [
        (&[0xc1][..], 0),
        (&[], 0),
        (&[0xa2, b'a'], 2),
        (&[0xa2, b'a', 0xff], 2),
        (&[0x91], 1),
        (&[0x81, 1, 1], 1),
        (&[0x81, 0xc0, 1], 1),
        // A long list, of which nothing follows.
        (&[0xdd, 255, 255, 255, 255], 5),
        (&[0xdf, 255, 255, 255, 255], 5),
        (&[0xdb, 255, 255, 255, 255], 5),
        (&[0xc6, 255, 255, 255, 255, 1], 6),
        (&[0xd4, 1, 0], 0),
        (&[0xd5, 0, 0, 0], 0),
        (&[0xc7, 1, 1, 0], 0),
        (
            &[0xd8, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            0,
        ),
    ] {
        assert_eq!(read(bytes), Err(Unreadable::At(offset)), "{bytes:?}");
    }
}

#[test]
fn nesting_has_a_limit() {
    let nested = |levels: usize, inner: u8| {
        let mut bytes = vec![0x91; levels];
        bytes.push(inner);
        read(&bytes)
    };
    assert!(nested(NESTING_MAX - 1, 0x90).is_ok());
    assert_eq!(nested(NESTING_MAX, 0x90), Err(Unreadable::At(NESTING_MAX)));
    // Values that are passed over are not limited, and need no stack.
    let mut deep = vec![0x91; 1_000_000];
    deep.push(0xc0);
    let mut reader = Reader::new(&deep);
    assert_eq!(reader.skip(), Ok(()));
    assert!(reader.is_at_end());
    let mut reader = Reader::new(&[0xdd, 255, 255, 255, 255, 0xdf, 255, 255, 255, 255]);
    assert_eq!(reader.skip(), Err(Unreadable::At(10)));
}

#[test]
fn texts_of_json_are_written() {
    for (text, expected) in [
        (
            r#" [ 1 , -1, -33 , 128, -129 ] "#,
            &[0x95, 1, 0xff, 0xd0, 0xdf, 0xcc, 128, 0xd1, 0xff, 0x7f][..],
        ),
        ("[ ]", &[0x90]),
        ("{ }", &[0x80]),
        ("[[],{}]", &[0x92, 0x90, 0x80]),
        (
            r#"{"a":[true,false,null],"b":""}"#,
            &[0x82, 0xa1, b'a', 0x93, 0xc3, 0xc2, 0xc0, 0xa1, b'b', 0xa0],
        ),
        (r#""a,]}\"""#, &[0xa5, b'a', b',', b']', b'}', b'"']),
        (r#""\u00e9""#, &[0xa2, 0xc3, 0xa9]),
        // Half of a character.
        (r#""\ud800a\n""#, &[0xa5, 0xef, 0xbf, 0xbd, b'a', b'\n']),
        (r#""\ud83d\ude00""#, &[0xa4, 0xf0, 0x9f, 0x98, 0x80]),
        ("1.5", &[0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0]),
        ("-0", &[0xcb, 0x80, 0, 0, 0, 0, 0, 0, 0]),
        (
            "18446744073709551615",
            &[0xcf, 255, 255, 255, 255, 255, 255, 255, 255],
        ),
        ("1e400", &[0xcb, 0x7f, 0xf0, 0, 0, 0, 0, 0, 0]),
    ] {
        assert_eq!(written(text), expected, "{text}");
    }
}

#[test]
fn placeholders_become_their_attachments() {
    let attachments = [&b"zero"[..], b"one"];
    let check = |text: &str, expected: &[u8]| {
        let mut bytes = Vec::new();
        write_json(text, &attachments, &mut bytes);
        assert_eq!(bytes, expected, "{text}");
    };
    let one = [0xc4, 3, b'o', b'n', b'e'];
    check(r#"{"_placeholder":true,"num":1}"#, &one);
    check(
        r#"[{ "num" : 1 , "\u005fplaceholder" : true },2]"#,
        &[&[0x92], &one[..], &[2]].concat(),
    );
    // As the reader of a client with the default parser replaces them.
    check(
        r#"[{"x":{"y":[]},"_placeholder":true,"num":1},[3]]"#,
        &[&[0x92], &one[..], &[0x91, 3]].concat(),
    );
    check(
        r#"[{"_placeholder":true,"num":1},{"a":[]}]"#,
        &[&[0x92], &one[..], &[0x81, 0xa1, b'a', 0x90]].concat(),
    );
    // Objects that only look like a placeholder.
    for text in [
        r#"{"_placeholder":true,"num":2}"#,
        r#"{"_placeholder":false,"num":1}"#,
        r#"{"_placeholder":true,"_placeholder":1,"num":1}"#,
        r#"{"_placeholder":true}"#,
        r#"{"num":1}"#,
    ] {
        check(text, &written(text));
    }
}

#[test]
fn large_counts_have_their_formats() {
    for (count, begin) in [
        (15, &[0x9f][..]),
        (16, &[0xdc, 0, 16]),
        (70_000, &[0xdd, 0, 1, 0x11, 0x70]),
    ] {
        let text = format!("[{}]", vec!["0"; count].join(","));
        let bytes = written(&text);
        assert!(bytes.starts_with(begin) && bytes.len() == begin.len() + count);
        assert_eq!(read(&bytes), Ok((text, Vec::new())));
    }
    for (bytes, begin) in [(31, 0xbf), (32, 0xd9), (300, 0xda), (70_000, 0xdb)] {
        let text = format!("\"{}\"", "a".repeat(bytes));
        assert_eq!(written(&text)[0], begin);
        assert_eq!(read(&written(&text)), Ok((text, Vec::new())));
    }
}

/// JSON that both formats keep: without floats, whose digits may differ.
fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        ".{0,40}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 20, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..20).prop_map(Value::from),
            proptest::collection::btree_map("[a-c]{0,3}", inner, 0..4)
                .prop_map(|members| members.into_iter().collect()),
        ]
    })
}

proptest! {
    #[test]
    fn a_text_is_the_same_after_both_ways(value in json(), is_pretty: bool) {
        let text = match is_pretty {
            true => serde_json::to_string_pretty(&value).expect("JSON"),
            false => value.to_string(),
        };
        let (again, attachments) = read(&written(&text)).expect("our own value");
        prop_assert!(attachments.is_empty());
        prop_assert_eq!(serde_json::from_str::<Value>(&again).expect("JSON"), value);
    }

    #[test]
    fn a_float_is_the_same_after_both_ways(number: f64) {
        let mut bytes = vec![0xcb];
        bytes.extend(number.to_be_bytes());
        let (text, _) = read(&bytes).expect("a number");
        match number.is_finite() {
            true => {
                let found: f64 = text.parse().expect("a number");
                prop_assert_eq!(found, number);
                prop_assert!(text.len() <= 25, "{}", text);
            }
            false => prop_assert_eq!(text, "null"),
        }
    }

    #[test]
    fn a_value_that_is_read_is_json_of_bounded_length(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let mut reader = Reader::new(&bytes);
        let mut text = String::new();
        if reader.json(&mut text) == Ok(Written::Value) {
            prop_assert!(serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok(), "{}", text);
            prop_assert!(text.len() <= 6 * bytes.len() + 40 * reader.binaries(), "{}", text);
        }
    }
}

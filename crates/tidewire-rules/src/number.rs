//! JavaScript's number formats (ECMA-262, Number::toString and StringToNumber).

/// JavaScript's white space at the ends of a text: Unicode's without U+0085, with U+FEFF.
pub(crate) fn is_space(character: char) -> bool {
    character == '\u{feff}' || (character.is_whitespace() && character != '\u{85}')
}

/// The text of `String(number)`: the shortest digits that read back as the same number; of these the nearest; of two
/// equally near ones the even one. Rust's own formatting takes the upper one.
pub(crate) fn format(number: f64) -> String {
    ryu_js::Buffer::new().format(number).to_owned()
}

/// The number of a checked JSON text.
pub(crate) fn of_json(text: &str) -> f64 {
    text.trim_end_matches([' ', '\n', '\r', '\t'])
        .parse()
        .unwrap_or(f64::NAN)
}

/// The value of `Number(text)`.
pub(crate) fn parse(text: &str) -> f64 {
    let text = text.trim_matches(is_space);
    if text.is_empty() {
        return 0.0;
    }
    match text.get(..2) {
        Some("0x" | "0X") => return parse_radix(&text[2..], 4),
        Some("0o" | "0O") => return parse_radix(&text[2..], 3),
        Some("0b" | "0B") => return parse_radix(&text[2..], 1),
        _ => {}
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if unsigned == "Infinity" {
        return if text.starts_with('-') {
            f64::NEG_INFINITY
        } else {
            f64::INFINITY
        };
    }
    // Rust also reads `inf`, `nan` and similar words, which JavaScript does not.
    if !unsigned.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        || !unsigned
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'))
    {
        return f64::NAN;
    }
    text.parse().unwrap_or(f64::NAN)
}

/// Digits of `bits` bits each, rounded to the nearest double, ties to even.
pub(crate) fn parse_radix(digits: &str, bits: u32) -> f64 {
    if digits.is_empty() {
        return f64::NAN;
    }
    // The first 64 significant bits. Later bits only decide a tie, so one bit remembers whether any of them was set.
    let (mut kept, mut dropped, mut sticky) = (0_u64, 0_i32, false);
    for letter in digits.chars() {
        let Some(digit) = letter.to_digit(1 << bits) else {
            return f64::NAN;
        };
        for shift in (0..bits).rev() {
            let bit = u64::from(digit >> shift & 1);
            if kept >> 63 == 0 {
                kept = kept << 1 | bit;
            } else {
                sticky |= bit == 1;
                dropped = dropped.saturating_add(1);
            }
        }
    }
    (kept | u64::from(sticky)) as f64 * 2_f64.powi(dropped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_javascript_writes_them() {
        for (number, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (1e21, "1e+21"),
            (1e20, "100000000000000000000"),
            (123_456_789_012_345_680_000.0, "123456789012345680000"),
            (1e-6, "0.000001"),
            (1.5e-7, "1.5e-7"),
            (5e-324, "5e-324"),
            (1.7976931348623157e308, "1.7976931348623157e+308"),
            (9_007_199_254_740_993.0, "9007199254740992"),
            (0.1 + 0.2, "0.30000000000000004"),
            // Exactly between two shortest ones: the even digit, whether it is the lower or the upper one.
            (3_602_879_701_896_397.0 / 4.0, "900719925474099.2"),
            (3_602_879_701_896_399.0 / 4.0, "900719925474099.8"),
            (-3_602_879_701_896_397.0 / 4.0, "-900719925474099.2"),
            (9_007_199_254_740_993.0 / 10.0, "900719925474099.2"),
            (5e-7, "5e-7"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(format(number), text);
        }
    }

    #[test]
    fn texts_are_read_as_javascript_reads_them() {
        for (text, number) in [
            ("", 0.0),
            (" \n\u{feff}12 ", 12.0),
            ("1e3", 1000.0),
            (".5", 0.5),
            ("5.", 5.0),
            ("+1", 1.0),
            ("-Infinity", f64::NEG_INFINITY),
            ("0x1F", 31.0),
            ("0b101", 5.0),
            ("0o17", 15.0),
            ("0x20000000000001", 9_007_199_254_740_992.0),
            ("0x20000000000003", 9_007_199_254_740_996.0),
            ("1e400", f64::INFINITY),
        ] {
            assert_eq!(parse(text), number, "{text:?}");
        }
        for text in [
            "inf", "nan", "1_0", "1,5", "0x", "-0x1", ".", "1 2", "e5", "+", "infinity", "\u{85}1",
        ] {
            assert!(parse(text).is_nan(), "{text:?}");
        }
        assert!(parse("-0").is_sign_negative());
    }
}

//! Bytes as hexadecimal text.

/// Two digits for each byte, in lower case.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes of a text with two digits for each.
#[must_use]
pub fn from_hex<const COUNT: usize>(text: &str) -> Option<[u8; COUNT]> {
    if text.len() != 2 * COUNT {
        return None;
    }
    let mut bytes = [0; COUNT];
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_two_digits() {
        assert_eq!(hex(&[0x00, 0x0a, 0xff]), "000aff");
        assert_eq!(hex(&[]), "");
        assert_eq!(from_hex("000aff"), Some([0x00, 0x0a, 0xff]));
        assert_eq!(from_hex(""), Some([]));
        for wrong in ["000af", "000aff0", "000afg", "000aé"] {
            assert_eq!(from_hex::<3>(wrong), None, "{wrong}");
        }
    }
}

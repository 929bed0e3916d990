//! The bytes of vectors, which are texts of hexadecimal digits.

/// The bytes of a vector.
pub fn from_hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|index| u8::from_str_radix(&text[index..index + 2], 16).expect("hex"))
        .collect()
}

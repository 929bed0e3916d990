//! Encodes frames: headers, masks, and the payload of a close frame.

use super::header::{DEFLATED, HEADER_BYTES_MAX, append_header};
use super::{CONTROL_BYTES_MAX, CloseCode, Opcode};

/// Masks or unmasks `payload` in place (RFC 6455, section 5.3). Works on eight bytes at a time.
pub fn apply_mask(payload: &mut [u8], key: [u8; 4]) {
    let [a, b, c, d] = key;
    let word = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (words, tail) = payload.as_chunks_mut::<8>();
    for bytes in words {
        *bytes = (u64::from_ne_bytes(*bytes) ^ word).to_ne_bytes();
    }
    for (byte, key) in tail.iter_mut().zip(key.into_iter().cycle()) {
        *byte ^= key;
    }
}

/// Appends the header of an unfragmented, unmasked frame; the caller appends exactly `payload_bytes` after it.
pub fn encode_header(opcode: Opcode, payload_bytes: usize, out: &mut Vec<u8>) {
    append_header(opcode.to_wire(), payload_bytes, None, out);
}

/// The same for a compressed message.
pub(crate) fn encode_deflated_header(opcode: Opcode, payload_bytes: usize, out: &mut Vec<u8>) {
    append_header(DEFLATED | opcode.to_wire(), payload_bytes, None, out);
}

/// Appends a masked frame of a compressed message, as a client sends it.
pub(crate) fn encode_deflated_masked(
    opcode: Opcode,
    payload: &[u8],
    key: [u8; 4],
    out: &mut Vec<u8>,
) {
    append_header(DEFLATED | opcode.to_wire(), payload.len(), Some(key), out);
    let start = out.len();
    out.extend_from_slice(payload);
    apply_mask(&mut out[start..], key);
}

/// Appends an unfragmented, unmasked frame, as a server sends it.
pub fn encode(opcode: Opcode, payload: &[u8], out: &mut Vec<u8>) {
    out.reserve(HEADER_BYTES_MAX + payload.len());
    encode_header(opcode, payload.len(), out);
    out.extend_from_slice(payload);
}

/// Appends an unfragmented, masked frame, as a client sends it.
pub fn encode_masked(opcode: Opcode, payload: &[u8], key: [u8; 4], out: &mut Vec<u8>) {
    encode_masked_with(opcode, payload.len(), key, out, |out| {
        out.extend_from_slice(payload)
    });
}

/// Appends a masked frame; `write` appends its payload of exactly `payload_bytes`.
pub fn encode_masked_with(
    opcode: Opcode,
    payload_bytes: usize,
    key: [u8; 4],
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>),
) {
    out.reserve(HEADER_BYTES_MAX + payload_bytes);
    append_header(opcode.to_wire(), payload_bytes, Some(key), out);
    let start = out.len();
    write(out);
    debug_assert_eq!(
        out.len() - start,
        payload_bytes,
        "the payload has the announced length"
    );
    apply_mask(&mut out[start..], key);
}

/// The payload of a close frame. A long reason is cut at a character's edge.
#[must_use]
pub fn close_payload(code: CloseCode, reason: &str) -> Vec<u8> {
    let end = reason.floor_char_boundary(CONTROL_BYTES_MAX - 2);
    let mut payload = code.number().to_be_bytes().to_vec();
    payload.extend_from_slice(&reason.as_bytes()[..end]);
    payload
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_use_the_shortest_length() {
        let cases = [
            (0, vec![0x82, 0]),
            (125, vec![0x82, 125]),
            (126, vec![0x82, 126, 0, 126]),
            (65_535, vec![0x82, 126, 0xFF, 0xFF]),
            (65_536, vec![0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
        ];
        for (length, expected) in cases {
            let mut out = Vec::new();
            encode_header(Opcode::Binary, length, &mut out);
            assert_eq!(out, expected, "{length} bytes");
        }
    }

    #[test]
    fn masking_twice_is_nothing() {
        let payload: Vec<u8> = (0..40).collect();
        for length in 0..payload.len() {
            let mut bytes = payload[..length].to_vec();
            apply_mask(&mut bytes, [0xDE, 0xAD, 0xBE, 0xEF]);
            for (index, byte) in bytes.iter().enumerate() {
                assert_eq!(*byte, payload[index] ^ [0xDE, 0xAD, 0xBE, 0xEF][index % 4]);
            }
            apply_mask(&mut bytes, [0xDE, 0xAD, 0xBE, 0xEF]);
            assert_eq!(bytes, &payload[..length]);
        }
    }
}

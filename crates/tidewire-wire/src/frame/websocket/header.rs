//! The first bytes of a frame: its type, its length, its mask (RFC 6455, section 5.2).

use super::{CONTROL_BYTES_MAX, FrameError, Opcode, Role};

/// Longest header: two bytes, a 64-bit length, a mask key.
pub(super) const HEADER_BYTES_MAX: usize = 14;

/// The first reserved bit: a compressed message begins (RFC 7692, section 7.2.2).
pub(super) const DEFLATED: u8 = 0x40;

/// A decoded frame header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) fin: bool,
    /// The first reserved bit: the frame starts a compressed message.
    pub(super) is_deflated: bool,
    pub(super) opcode: Opcode,
    pub(super) mask: Option<[u8; 4]>,
    pub(super) payload_bytes: usize,
    /// Length of the header itself.
    pub(super) bytes: usize,
}

impl Header {
    /// The header at the start of `input`, `None` if it is incomplete. Errors in its first two bytes are reported
    /// before the rest arrives.
    pub(super) fn decode(
        input: &[u8],
        role: Role,
        takes_deflated: bool,
    ) -> Result<Option<Self>, FrameError> {
        let &[first, second, ..] = input else {
            return Ok(None);
        };
        let is_deflated = first & DEFLATED != 0;
        if first & 0x30 != 0 || is_deflated && !takes_deflated {
            return Err(FrameError::ReservedBits);
        }
        let opcode = Opcode::from_wire(first & 0x0F)?;
        // The bit belongs to a message, so only its first frame has it (RFC 7692, section 6.1).
        if is_deflated && !matches!(opcode, Opcode::Text | Opcode::Binary) {
            return Err(FrameError::ReservedBits);
        }
        let fin = first & 0x80 != 0;
        let short_length = usize::from(second & 0x7F);
        let masked = second & 0x80 != 0;
        match (role, masked) {
            (Role::Server, false) => return Err(FrameError::Unmasked),
            (Role::Client, true) => return Err(FrameError::Masked),
            _ => {}
        }
        if opcode.is_control() && !fin {
            return Err(FrameError::ControlFragmented);
        }
        if opcode.is_control() && short_length > CONTROL_BYTES_MAX {
            return Err(FrameError::ControlTooLong);
        }
        let bytes = Self::bytes_needed(input);
        let Some(header) = input.get(..bytes) else {
            return Ok(None);
        };
        let (header, mask) = match header.split_last_chunk::<4>() {
            Some((header, key)) if masked => (header, Some(*key)),
            _ => (header, None),
        };
        let payload_bytes = match header {
            [_, _, high, low] => usize::from(u16::from_be_bytes([*high, *low])),
            [_, _, length @ ..] if length.len() == 8 => decode_long_length(length)?,
            _ => short_length,
        };
        Ok(Some(Self {
            fin,
            is_deflated,
            opcode,
            mask,
            payload_bytes,
            bytes,
        }))
    }

    /// Length of the header that begins `input`, as far as its first bytes show; 2 for an empty input.
    pub(super) fn bytes_needed(input: &[u8]) -> usize {
        let Some(second) = input.get(1) else {
            return 2;
        };
        let length = match second & 0x7F {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let mask = if second & 0x80 == 0 { 0 } else { 4 };
        2 + length + mask
    }
}

fn decode_long_length(bytes: &[u8]) -> Result<usize, FrameError> {
    let length = bytes
        .iter()
        .fold(0u64, |length, byte| length << 8 | u64::from(*byte));
    if length > i64::MAX.unsigned_abs() {
        return Err(FrameError::Length);
    }
    usize::try_from(length).map_err(|_| FrameError::TooBig)
}

/// `first` is the opcode with its reserved bits.
pub(super) fn append_header(
    first: u8,
    payload_bytes: usize,
    mask: Option<[u8; 4]>,
    out: &mut Vec<u8>,
) {
    let mask_bit = if mask.is_some() { 0x80 } else { 0 };
    out.push(0x80 | first);
    if payload_bytes < 126 {
        out.push(mask_bit | payload_bytes as u8);
    } else if let Ok(length) = u16::try_from(payload_bytes) {
        out.push(mask_bit | 126);
        out.extend_from_slice(&length.to_be_bytes());
    } else {
        out.push(mask_bit | 127);
        out.extend_from_slice(&(payload_bytes as u64).to_be_bytes());
    }
    out.extend_from_slice(mask.as_ref().map_or(&[], |key| &key[..]));
}

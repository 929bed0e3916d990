//! Encodings: a protocol, a variant of its messages, compression, and batches together. Recipients with the same encoding share their bytes.

use tidewire_core::message::Message;

use super::{Protocol, Variant};
use crate::frame::websocket::Opcode;

/// How messages for a recipient become bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoding {
    /// The protocol.
    pub protocol: Protocol,
    /// The form of its messages.
    pub variant: Variant,
    /// Messages may be compressed.
    pub is_deflated: bool,
    /// All messages of a turn are put into one frame; they are encoded without separate frames. Never true for a protocol without batches.
    pub is_batched: bool,
}

/// The number of encodings.
pub const COUNT: usize = count();

/// The number of pairs of a protocol and a variant.
pub const PLAIN_COUNT: usize = plain_count();

/// All encodings. The place of an encoding is its id.
static ENCODINGS: [Encoding; COUNT] = all();

const fn count() -> usize {
    let mut count = 0;
    let mut index = 0;
    while index < Protocol::ALL.len() {
        let protocol = Protocol::ALL[index];
        count += protocol.variants() as usize * 2 * (1 + protocol.has_batches() as usize);
        index += 1;
    }
    count
}

const fn plain_count() -> usize {
    let (mut count, mut index) = (0, 0);
    while index < Protocol::ALL.len() {
        count += Protocol::ALL[index].variants() as usize;
        index += 1;
    }
    count
}

const fn all() -> [Encoding; COUNT] {
    let mut all = [Encoding {
        protocol: Protocol::ALL[0],
        variant: Variant(0),
        is_deflated: false,
        is_batched: false,
    }; COUNT];
    let (mut next, mut index) = (0, 0);
    while index < Protocol::ALL.len() {
        let protocol = Protocol::ALL[index];
        let bits = match protocol.has_batches() {
            true => 4,
            false => 2,
        };
        let mut number = 0;
        while number < protocol.variants() * bits {
            all[next] = Encoding {
                protocol,
                variant: Variant(number / bits),
                is_deflated: number & 1 != 0,
                is_batched: number % bits >= 2,
            };
            number += 1;
            next += 1;
        }
        index += 1;
    }
    all
}

impl Encoding {
    /// The encoding with this id, which is below [`COUNT`].
    #[must_use]
    pub fn of(id: u8) -> Self {
        ENCODINGS[usize::from(id)]
    }

    /// Its id, below [`COUNT`].
    ///
    /// # Panics
    /// The protocol has no such variant, or no batches.
    #[must_use]
    pub fn id(self) -> u8 {
        let id = ENCODINGS.iter().position(|known| *known == self);
        // Fewer than 256, because each id has a turn log.
        id.expect("an encoding of the table") as u8
    }

    /// The number of its protocol and variant among all of them, below [`PLAIN_COUNT`]. It is the same with and without compression and
    /// batches.
    #[must_use]
    pub fn plain_index(self) -> u8 {
        let plain = ENCODINGS.iter().filter(|known| known.is_plain());
        let mut plain = plain.map(|known| (known.protocol, known.variant));
        let index = plain.position(|known| known == (self.protocol, self.variant));
        // Fewer than 256, because each has a turn log.
        index.expect("an encoding of the table") as u8
    }

    /// The encoding without compression and batches whose [`Encoding::plain_index`] is `index`.
    ///
    /// # Panics
    /// The index is not below [`PLAIN_COUNT`].
    #[must_use]
    pub fn plain(index: u8) -> Self {
        let mut plain = ENCODINGS.iter().filter(|known| known.is_plain());
        *plain
            .nth(usize::from(index))
            .expect("an index of the table")
    }

    fn is_plain(&self) -> bool {
        !self.is_deflated && !self.is_batched
    }

    /// The encoding for a peer before it introduces itself.
    #[must_use]
    pub fn first(protocol: Protocol, is_deflated: bool) -> Self {
        Self {
            protocol,
            variant: Variant::default(),
            is_deflated,
            is_batched: false,
        }
    }

    /// Appends `message` without a frame.
    #[inline(always)]
    pub fn encode(self, message: &Message<'_>, out: &mut Vec<u8>) {
        self.protocol.encode(self.variant, message, out);
    }

    /// Appends `message` as a frame.
    #[inline(always)]
    pub fn encode_frame(self, message: &Message<'_>, out: &mut Vec<u8>) {
        self.protocol.encode_frame(self.variant, message, out);
    }

    /// Bytes of the first message of a batch; `None` if it is incomplete.
    #[must_use]
    pub fn first_bytes(self, batch: &[u8]) -> Option<usize> {
        self.protocol.first_bytes(batch)
    }

    /// The opcode of its frames.
    #[must_use]
    pub fn opcode(self) -> Opcode {
        self.protocol.opcode()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_id_has_an_encoding_of_its_own() {
        for id in 0..COUNT as u8 {
            let encoding = Encoding::of(id);
            assert_eq!(encoding.id(), id, "{encoding:?}");
            assert!(encoding.variant.0 < encoding.protocol.variants());
            assert!(!encoding.is_batched || encoding.protocol.has_batches());
        }
    }

    #[test]
    fn each_variant_has_a_plain_encoding() {
        for id in 0..COUNT as u8 {
            let encoding = Encoding::of(id);
            let plain = Encoding::plain(encoding.plain_index());
            assert_eq!(
                (plain.protocol, plain.variant),
                (encoding.protocol, encoding.variant)
            );
            assert!(plain.is_plain() && usize::from(encoding.plain_index()) < PLAIN_COUNT);
        }
    }

    #[test]
    fn each_protocol_has_an_encoding_for_unknown_peers() {
        for protocol in Protocol::ALL {
            for is_deflated in [false, true] {
                let encoding = Encoding::first(*protocol, is_deflated);
                assert_eq!(Encoding::of(encoding.id()), encoding);
            }
        }
    }
}

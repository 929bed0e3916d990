//! The bytes in front of a frame in a message: sender and receiver, each as node (two bytes) and birth (eight bytes), little-endian.

use tidewire_link::frame::Process;

/// Bytes in front of a frame.
pub(super) const BYTES: usize = 20;

fn encode_process(process: Process, out: &mut Vec<u8>) {
    out.extend_from_slice(&process.node.to_le_bytes());
    out.extend_from_slice(&process.birth.to_le_bytes());
}

/// The message with a frame.
pub(super) fn encode(from: Process, to: Process, frame: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(BYTES + frame.len());
    encode_process(from, &mut out);
    encode_process(to, &mut out);
    out.extend_from_slice(frame);
    out
}

fn decode_process(bytes: &[u8]) -> Option<(Process, &[u8])> {
    let (node, rest) = bytes.split_first_chunk()?;
    let (birth, rest) = rest.split_first_chunk()?;
    let process = Process {
        node: u16::from_le_bytes(*node),
        birth: u64::from_le_bytes(*birth),
    };
    Some((process, rest))
}

/// Sender, receiver and frame of a message. `None` if it is too short.
pub(super) fn decode(message: &[u8]) -> Option<(Process, Process, &[u8])> {
    let (from, rest) = decode_process(message)?;
    let (to, frame) = decode_process(rest)?;
    Some((from, to, frame))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_its_sender_its_receiver_and_its_frame() {
        let (from, to) = (
            Process { node: 1, birth: 2 },
            Process {
                node: u16::MAX,
                birth: u64::MAX,
            },
        );
        for frame in [&b""[..], b"frame"] {
            let message = encode(from, to, frame);
            assert_eq!(message.len(), BYTES + frame.len());
            assert_eq!(decode(&message), Some((from, to, frame)));
        }
        for length in 0..BYTES {
            assert_eq!(decode(&encode(from, to, b"")[..length]), None);
        }
    }
}

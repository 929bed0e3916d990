//! Long polling: the bodies of requests and answers, which have the packets of Engine.IO, separated by a byte.
//!
//! Both directions translate between bodies and WebSocket frames. So the transport handles the messages of an exchange as it handles the
//! messages of a WebSocket, and messages that wait for a poll can leave over a WebSocket instead.

use base64::DecodeError;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, Engine as _, GeneralPurpose, GeneralPurposeConfig};

use crate::frame::websocket::{self, Opcode};
use crate::protocol::ForeignPayload;

/// The byte between two packets.
const SEPARATOR: u8 = 0x1e;
/// The first byte of a binary packet, whose rest is base64.
const BINARY: u8 = b'b';
/// The packet that ends a poll without a message.
const NOOP: u8 = b'6';
/// The packet that ends the session.
const CLOSE: u8 = b'1';
/// The frames stay inside the server, where a mask has no purpose, but the decoder of a server expects one. This one changes no byte.
const NO_MASK: [u8; 4] = [0; 4];
/// Servers write padding, and existing ones accept packets without it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Appends the first packets of a body as frames of a client. See [`crate::protocol::Codec::exchange_input`].
pub fn input(body: &[u8], bytes_max: usize, out: &mut Vec<u8>) -> Result<usize, ForeignPayload> {
    let mut taken = 0;
    loop {
        let rest = &body[taken..];
        let separator = rest.iter().position(|byte| *byte == SEPARATOR);
        let end = separator.unwrap_or(rest.len());
        match &rest[..end] {
            [BINARY, text @ ..] => {
                let bytes = decode(text).map_err(|_| ForeignPayload::Malformed {
                    format: "base64",
                    offset: taken,
                })?;
                websocket::encode_masked(Opcode::Binary, &bytes, NO_MASK, out);
            }
            packet => websocket::encode_masked(Opcode::Text, packet, NO_MASK, out),
        }
        taken = (taken + end + 1).min(body.len());
        if taken == body.len() || out.len() >= bytes_max {
            return Ok(taken);
        }
    }
}

/// Decodes base64. The Java client of Socket.IO breaks it into lines, as MIME does.
fn decode(text: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let is_break = |byte: &u8| matches!(byte, b'\r' | b'\n');
    if !text.iter().any(is_break) {
        return BASE64.decode(text);
    }
    let whole: Vec<u8> = text
        .iter()
        .copied()
        .filter(|byte| !is_break(byte))
        .collect();
    BASE64.decode(whole)
}

/// Appends frames of the server as a body. See [`crate::protocol::Codec::exchange_output`].
pub fn output(mut frames: &[u8], is_late: bool, out: &mut Vec<u8>) {
    let start = out.len();
    let begin_packet = |out: &mut Vec<u8>| {
        if out.len() > start {
            out.push(SEPARATOR);
        }
    };
    // The server encoded these frames itself, so they are complete.
    while let Some(bytes) = websocket::server_frame_bytes(frames) {
        let (frame, rest) = frames.split_at(bytes);
        frames = rest;
        match websocket::server_payload(frame) {
            Some((Opcode::Text, packet)) => {
                begin_packet(out);
                out.extend_from_slice(packet);
            }
            Some((Opcode::Binary, bytes)) => {
                begin_packet(out);
                out.push(BINARY);
                let text_start = out.len();
                let text_bytes = base64::encoded_len(bytes.len(), true).unwrap_or_default();
                out.resize(text_start + text_bytes, 0);
                // The room is what the encoder needs.
                let _ = BASE64.encode_slice(bytes, &mut out[text_start..]);
            }
            Some((Opcode::Close, _)) => {
                if is_late {
                    begin_packet(out);
                    out.push(NOOP);
                }
                begin_packet(out);
                out.push(CLOSE);
            }
            _ => {}
        }
    }
    if out.len() == start {
        out.push(NOOP);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::frame::websocket::{Decoded, Decoder, Event, PayloadKind, Role};
    use crate::protocol::socketio::vectors;

    /// The messages of a body: text as it is, bytes behind a `!`.
    fn messages(body: &[u8], bytes_max: usize) -> Result<Vec<Vec<u8>>, ForeignPayload> {
        let mut messages = Vec::new();
        let mut rest = body;
        loop {
            let mut frames = Vec::new();
            let taken = input(rest, bytes_max, &mut frames)?;
            let mut decoder = Decoder::new(Role::Server);
            let mut unread = &mut frames[..];
            while !unread.is_empty() {
                let Decoded { consumed, event } =
                    decoder.decode(unread, usize::MAX).expect("a frame");
                let Event::Message { kind, payload } = event else {
                    panic!("{event:?}");
                };
                let mark = (kind == PayloadKind::Binary).then_some(b'!');
                messages.push(mark.into_iter().chain(payload.iter().copied()).collect());
                unread = &mut unread[consumed..];
            }
            rest = &rest[taken..];
            if rest.is_empty() {
                return Ok(messages);
            }
        }
    }

    fn texts(body: &str) -> Vec<String> {
        let messages = messages(body.as_bytes(), 1).expect("messages");
        let texts = messages
            .into_iter()
            .map(|it| String::from_utf8(it).expect("text"));
        texts.collect()
    }

    fn body(frames: &[(Opcode, &[u8])], is_late: bool) -> String {
        let mut encoded = Vec::new();
        for (opcode, payload) in frames {
            websocket::encode(*opcode, payload, &mut encoded);
        }
        let mut out = Vec::new();
        output(&encoded, is_late, &mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn the_packets_of_the_reference_have_their_payloads() {
        let vectors = vectors();
        let packets = vectors["packets"].as_array().expect("packets");
        assert!(packets.len() >= 30);
        for vector in packets {
            let expected = vector["polling_payload"].as_str().expect("a payload");
            let mut frames = Vec::new();
            for frame in vector["ws_frames"].as_array().expect("frames") {
                match frame.as_str() {
                    Some(text) => websocket::encode(Opcode::Text, text.as_bytes(), &mut frames),
                    None => {
                        let hex = frame["hex"].as_str().expect("bytes");
                        let digits = (0..hex.len()).step_by(2);
                        let bytes = digits.map(|at| u8::from_str_radix(&hex[at..at + 2], 16));
                        let bytes: Vec<u8> = bytes.collect::<Result<_, _>>().expect("digits");
                        websocket::encode(Opcode::Binary, &bytes, &mut frames);
                    }
                }
            }
            let mut out = Vec::new();
            output(&frames, false, &mut out);
            assert_eq!(String::from_utf8(out).expect("text"), expected);
            let read = messages(expected.as_bytes(), usize::MAX).expect("messages");
            assert_eq!(
                read.len(),
                vector["ws_frames"].as_array().expect("frames").len()
            );
        }
    }

    #[test]
    fn a_body_is_split_at_its_separators() {
        assert_eq!(
            texts("4hello\u{1e}2\u{1e}4world"),
            ["4hello", "2", "4world"]
        );
        assert_eq!(
            texts("4hello\u{1e}bAQIDBA=="),
            ["4hello", "!\u{1}\u{2}\u{3}\u{4}"]
        );
        assert_eq!(texts("bAQIDBA"), ["!\u{1}\u{2}\u{3}\u{4}"]);
        assert_eq!(
            texts("bAQID\r\nBA==\n\u{1e}4a"),
            ["!\u{1}\u{2}\u{3}\u{4}", "4a"]
        );
        assert_eq!(texts("b"), ["!"]);
        assert_eq!(texts(""), [""]);
        assert_eq!(texts("\u{1e}3"), ["", "3"]);
        // The first character alone decides.
        assert_eq!(texts("bNDRi\u{1e}4b"), ["!44b", "4b"]);
        assert!(messages(b"3\x1eb!", 1).is_err());
    }

    #[test]
    fn an_answer_ends_with_the_end_of_the_session() {
        let close: (Opcode, &[u8]) = (Opcode::Close, b"");
        assert_eq!(body(&[], false), "6");
        assert_eq!(body(&[close], false), "1");
        assert_eq!(body(&[close], true), "6\u{1e}1");
        assert_eq!(body(&[(Opcode::Text, b"41"), close], false), "41\u{1e}1");
        assert_eq!(
            body(&[(Opcode::Text, b"41"), close], true),
            "41\u{1e}6\u{1e}1"
        );
        assert_eq!(body(&[(Opcode::Binary, b"")], false), "b");
    }

    proptest! {
        #[test]
        fn any_messages_pass_in_both_directions(
            sent in proptest::collection::vec((any::<bool>(), "4[^\u{1e}]{0,9}", proptest::collection::vec(any::<u8>(), 0..9)), 1..9),
            bytes_max in 1usize..64,
        ) {
            let frames: Vec<(Opcode, &[u8])> = sent.iter().map(|(is_text, text, bytes)| match is_text {
                true => (Opcode::Text, text.as_bytes()),
                false => (Opcode::Binary, &bytes[..]),
            }).collect();
            let expected: Vec<Vec<u8>> = frames.iter().map(|(opcode, payload)| {
                let mark = (*opcode == Opcode::Binary).then_some(b'!');
                mark.into_iter().chain(payload.iter().copied()).collect()
            }).collect();
            prop_assert_eq!(messages(body(&frames, false).as_bytes(), bytes_max).expect("messages"), expected);
        }

        #[test]
        fn any_body_is_read_without_a_panic(body in proptest::collection::vec(prop_oneof![Just(SEPARATOR), Just(BINARY), any::<u8>()], 0..64)) {
            let mut frames = Vec::new();
            let mut rest = &body[..];
            while let Ok(taken) = input(rest, 8, &mut frames) {
                prop_assert!(taken > 0 || rest.is_empty());
                rest = &rest[taken..];
                if rest.is_empty() {
                    break;
                }
            }
        }
    }
}

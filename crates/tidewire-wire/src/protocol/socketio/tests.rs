//! Tests of the codec with the vectors of the reference.

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::protocol::ConnectionCodec;

/// Reads messages, and returns the state after them, or the first error.
fn read_all(mut state: State, frames: &[Value]) -> Result<State, ForeignPayload> {
    for frame in frames {
        let read = match frame {
            Value::String(text) => SocketIo::read(&state, PayloadKind::Text, text.as_bytes())?.next,
            _ => SocketIo::read(&state, PayloadKind::Binary, b"x")?.next,
        };
        state = read;
    }
    Ok(state)
}

#[test]
fn the_state_has_one_byte() {
    assert_eq!(size_of::<State>(), 1);
}

#[test]
fn packets_that_the_reference_refuses_close_the_connection() {
    let vectors = vectors();
    let cases = vectors["invalid"].as_array().expect("cases");
    assert_eq!(cases.len(), 35);
    for vector in cases {
        let frames: Vec<Value> = vector["frames_after_message_prefix"]
            .as_array()
            .expect("frames")
            .iter()
            .map(|frame| match frame {
                Value::String(text) => format!("4{text}").into(),
                bytes => bytes.clone(),
            })
            .collect();
        // These depend on the sessions of the connection, which the shard knows.
        let is_packet = matches!(
            vector["id"].as_str(),
            Some("event-before-connect" | "connect-twice" | "disconnect-unknown-ns")
        );
        let read = read_all(State::Packet, &frames);
        assert_eq!(read.is_ok(), is_packet, "{}", vector["id"]);
    }
}

#[test]
fn a_connection_for_a_session_takes_a_probe_and_the_upgrade() {
    let state = SocketIo::switching_state();
    let read = |text: &'static str| SocketIo::read(&state, PayloadKind::Text, text.as_bytes());
    let probe = read("2probe").expect("a probe");
    let request = SocketIo::session_request(&probe);
    assert!(matches!(request, Some(SessionRequest::Probe { frames }) if frames == frame("3probe")));
    assert_eq!(probe.next, state);
    let switch = read("5").expect("the upgrade");
    assert_eq!(
        SocketIo::session_request(&switch),
        Some(SessionRequest::Switch)
    );
    for text in ["2", "3", "40", "6", "1", "", "5 ", "2probe "] {
        assert!(read(text).is_err(), "{text}");
    }
    assert!(SocketIo::read(&state, PayloadKind::Binary, b"5").is_err());
}

#[test]
fn engine_packets_have_their_effect() {
    let vectors = vectors();
    assert_eq!(vectors["engine"].as_array().expect("packets").len(), 17);
    let effect = |text: &str| {
        let state = State::Packet;
        match SocketIo::read(&state, PayloadKind::Text, text.as_bytes()) {
            Ok(payload) => match payload.content {
                Content::Pong => "pong",
                Content::Close => "close",
                Content::Answer { frames, .. } if frames.is_empty() => "ignored",
                _ => "message",
            },
            Err(_) => "refused",
        }
    };
    for vector in vectors["engine"].as_array().expect("packets") {
        let wire = vector["wire"].as_str().expect("text");
        let expected = match vector["id"].as_str().expect("an id") {
            "open-polling" | "open-ws" | "upgrade" | "noop" => "ignored",
            "pong" | "probe-reply" => "pong",
            "close" => "close",
            // The texts are no packets of Socket.IO, or belong to long polling.
            "ping" | "probe" | "message-text" | "message-empty" => "refused",
            "payload-three" | "payload-mixed" | "payload-binary" => "refused",
            "payload-binary-empty" | "b64-ws" => "refused",
            "payload-close-after-noop" => "ignored",
            other => panic!("{other}"),
        };
        assert_eq!(effect(wire), expected, "{}", vector["id"]);
    }
    for vector in vectors["engine_invalid"].as_array().expect("packets") {
        assert_eq!(effect(vector["wire"].as_str().expect("text")), "refused");
    }
}

/// Passes frames to the codec of a connection. The messages for the engine, and the texts of the answers.
fn pass(codec: &mut ConnectionCodec, parts: &mut Parts, frames: &[Frame<'_>]) -> Vec<String> {
    let mut seen = Vec::new();
    for frame in frames {
        let (kind, bytes) = match frame {
            Frame::Text(text) => (PayloadKind::Text, text.as_bytes()),
            Frame::Bytes(bytes) => (PayloadKind::Binary, *bytes),
        };
        let read = codec.read(parts, kind, bytes).expect("a packet");
        if let Some(message) = read.message() {
            seen.push(format!("{message:?}"));
        }
        if let Some(SessionRequest::Answer { frames, .. }) = read.session_request() {
            seen.extend((!frames.is_empty()).then(|| String::from_utf8_lossy(frames).into()));
        }
        assert_eq!(
            read.is_unfinished(),
            read.message().is_none() && read.session_request().is_none()
        );
        codec.advance(parts, &read);
    }
    seen
}

#[derive(Clone, Copy)]
enum Frame<'a> {
    Text(&'a str),
    Bytes(&'a [u8]),
}

const HEADER: &str =
    r#"452-3["$to","a","up",{"_placeholder":true,"num":1},{"_placeholder":true,"num":0}]"#;

fn connected() -> (ConnectionCodec, Parts) {
    (ConnectionCodec::SocketIo(State::Packet), Parts::default())
}

#[test]
fn an_event_is_complete_with_its_last_attachment() {
    let (mut codec, mut parts) = connected();
    let begun = [Frame::Text(HEADER), Frame::Bytes(b"ab"), Frame::Text("3")];
    let seen = pass(&mut codec, &mut parts, &begun);
    assert_eq!(seen, ["Connection(Pong)"], "heartbeats may interleave");
    assert_eq!(parts.bytes(), HEADER.len() - 1 + 2);
    let last = codec
        .read(&parts, PayloadKind::Binary, b"")
        .expect("an attachment");
    let again = codec
        .read(&parts, PayloadKind::Binary, b"")
        .expect("an attachment");
    let texts = [&last, &again].map(|read| format!("{:?}", read.message().expect("a message")));
    assert_eq!(
        texts[0], texts[1],
        "a message that has to wait is read again"
    );
    for part in [
        r#"Publish { publication: Publication { name: "a""#,
        r#"data: Some("[\"up\",{\"_placeholder\":true,\"num\":1},{\"_placeholder\":true,\"num\":0}]")"#,
        "attachments: Some(attachments of [2, 0] bytes)",
        r#"correlation: "3""#,
    ] {
        assert!(texts[0].contains(part), "{part}: {}", texts[0]);
    }
    codec.advance(&mut parts, &last);
    assert_eq!((parts.size(), parts.text()), (0, None));
    let join = pass(&mut codec, &mut parts, &[Frame::Text(r#"42["$join","a"]"#)]);
    assert!(join[0].contains("Subscribe"), "{join:?}");
}

#[test]
fn a_refused_event_is_answered_behind_its_attachments() {
    let placeholder = r#"{"_placeholder":true,"num":0}"#;
    for (header, answer) in [
        (format!(r#"452-3["up",{placeholder}]"#), Some("NO_HANDLER")),
        (
            format!(r#"452-3["$join",{placeholder}]"#),
            Some("INVALID_MESSAGE_DATA"),
        ),
        (
            format!(r#"452-3["$call","add",{placeholder}]"#),
            Some("INVALID_MESSAGE_DATA"),
        ),
        (format!(r#"452-["up",{placeholder}]"#), None),
        (format!("462-3[{placeholder}]"), None),
    ] {
        let (mut codec, mut parts) = connected();
        let bytes = Frame::Bytes(b"abc");
        let seen = pass(
            &mut codec,
            &mut parts,
            &[Frame::Text(&header), bytes, Frame::Text("3")],
        );
        assert_eq!(seen, ["Connection(Pong)"]);
        assert!(parts.size() > 0, "a backend would get them");
        let seen = pass(&mut codec, &mut parts, &[bytes]);
        assert_eq!(seen.len(), usize::from(answer.is_some()), "{seen:?}");
        assert!(
            seen.iter()
                .all(|it| it.contains(answer.unwrap_or_default()))
        );
        assert_eq!(parts.size(), 0, "{header}");
        assert!(
            codec.read(&parts, PayloadKind::Binary, b"").is_err(),
            "{header}"
        );
    }
}

#[test]
fn a_packet_among_attachments_closes_the_connection() {
    let (mut codec, mut parts) = connected();
    pass(
        &mut codec,
        &mut parts,
        &[Frame::Text(HEADER), Frame::Bytes(b"ab")],
    );
    for text in [r#"42["$join","a"]"#, "41", HEADER] {
        let read = codec.read(&parts, PayloadKind::Text, text.as_bytes());
        assert_eq!(
            read.err(),
            Some(violation("attachments must follow their packet"))
        );
    }
}

#[test]
fn packets_of_a_namespace_are_for_its_session() {
    let request = |text: &str| {
        let read = SocketIo::read(&State::Packet, PayloadKind::Text, text.as_bytes());
        let read = read.expect("a packet");
        let has_message = SocketIo::message(&read).is_some();
        (
            format!("{:?}", SocketIo::session_request(&read)),
            has_message,
        )
    };
    for (text, expected, has_message) in [
        ("40", r#"Join { namespace: Main, credentials: "{}" }"#, true),
        (
            r#"40/n,{"a":1}"#,
            r#"Join { namespace: Named("/n"), credentials: "{\"a\":1}" }"#,
            true,
        ),
        ("40/n", r#"namespace: Named("/n")"#, true),
        ("41", "Leave { namespace: Main }", false),
        ("41/n", r#"Leave { namespace: Named("/n") }"#, false),
        (r#"42["$join","a"]"#, "None", true),
        (
            r#"42/n,["$join","a"]"#,
            r#"Within { namespace: "/n" }"#,
            true,
        ),
        (
            r#"42/n,["x"]"#,
            r#"Answer { namespace: Some(Named("/n"))"#,
            false,
        ),
        ("431[]", "Answer { namespace: Some(Main)", false),
        ("3", "None", true),
    ] {
        let (found, message) = request(text);
        assert!(found.contains(expected), "{text}: {found}");
        assert_eq!(message, has_message, "{text}");
    }
}

#[test]
fn a_namespace_is_inserted_into_each_packet_and_into_no_attachment() {
    let encoded = |texts: &[&str]| {
        let mut frames = Vec::new();
        for text in texts {
            match text.strip_prefix('!') {
                Some(bytes) => {
                    websocket::encode(Opcode::Binary, bytes.as_bytes(), &mut frames);
                }
                None => websocket::encode(Opcode::Text, text.as_bytes(), &mut frames),
            }
        }
        frames
    };
    let long = format!(r#"42["x","{}"]"#, "y".repeat(120));
    let longer = format!(r#"42["x","{}"]"#, "y".repeat(70_000));
    let (prefix, expected) = ("42", "42/name,");
    let with_name = |text: &str| text.replacen(prefix, expected, 1);
    let mut out = Vec::new();
    let frames = [
        r#"40{"sid":"x"}"#,
        r#"4312[{"ok":true}]"#,
        r#"451-["message",{"_placeholder":true,"num":0}]"#,
        "!42",
        "41",
        &long,
        &longer,
    ];
    SocketIo::put_in_namespace("/name", &encoded(&frames), &mut out);
    let written = [
        r#"40/name,{"sid":"x"}"#,
        r#"43/name,12[{"ok":true}]"#,
        r#"451-/name,["message",{"_placeholder":true,"num":0}]"#,
        "!42",
        "41/name,",
        &with_name(&long),
        &with_name(&longer),
    ];
    assert_eq!(out, encoded(&written));
}

#[test]
fn an_event_of_bytes_is_a_header_and_an_attachment() {
    use tidewire_core::binary::Binary;
    use tidewire_core::message::Publication;
    let publication = Publication::new("room", None, None, None);
    let publication = publication.with_binary(Some(Binary::new(None, [1, 2])));
    let mut out = Vec::new();
    SocketIo::encode_frame(
        Variant(0),
        &Message::Event(Event::Publication(publication)),
        &mut out,
    );
    let header = out[1] as usize + 2;
    assert_eq!((out[0], &out[header..]), (0x81, &[0x82, 2, 1, 2][..]));
}

#[test]
fn an_event_with_attachments_is_a_header_and_a_frame_for_each() {
    use tidewire_core::message::Publication;
    let data = r#"["up",{"_placeholder":true,"num":1}]"#;
    let publication = Publication::new("room", Some(data), None, None);
    let publication = publication.with_attachments(Attachments::new([&b"ab"[..], b""]));
    let mut out = Vec::new();
    SocketIo::encode_frame(
        Variant(0),
        &Message::Event(Event::Publication(publication)),
        &mut out,
    );
    let header = frame(&format!("452-{data}"));
    assert_eq!(out, [&header[..], &[0x82, 2, b'a', b'b', 0x82, 0]].concat());
}

/// An event as a client sends it: its header and its attachments.
fn sent(count: usize) -> impl Strategy<Value = (String, Vec<Vec<u8>>)> {
    let numbers = proptest::collection::vec(0..count, 0..4);
    let attachments =
        proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..9), count);
    (numbers, attachments).prop_map(move |(numbers, attachments)| {
        let placeholders = numbers
            .iter()
            .map(|number| format!(r#",[{{"_placeholder":true,"num":{number}}}]"#));
        let placeholders: String = placeholders.collect();
        (
            format!(r#"45{count}-["$to","room","up"{placeholders}]"#),
            attachments,
        )
    })
}

proptest! {
    #[test]
    fn an_event_of_a_client_reaches_the_others_as_it_was((header, attachments) in (1..=ATTACHMENTS_MAX).prop_flat_map(sent), pongs in 0usize..3) {
        let (mut codec, mut parts) = connected();
        let mut frames = vec![Frame::Text(&header)];
        for bytes in &attachments {
            frames.extend(vec![Frame::Text("3"); pongs]);
            frames.push(Frame::Bytes(bytes));
        }
        let (last, first) = frames.split_last().expect("frames");
        pass(&mut codec, &mut parts, first);
        let Frame::Bytes(last) = last else { unreachable!() };
        let read = codec.read(&parts, PayloadKind::Binary, last).expect("an attachment");
        let message = read.message().expect("a publication");
        let mut out = Vec::new();
        SocketIo::encode_frame(Variant(0), &message, &mut out);
        let mut expected = frame(&header.replace(r#""$to","room","#, ""));
        for bytes in &attachments {
            websocket::encode(Opcode::Binary, bytes, &mut expected);
        }
        prop_assert_eq!(out, expected);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(
        state in prop_oneof![Just(State::Packet), Just(State::awaiting(10))],
        payload in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..64),
            r#"4[0-7][0-9]{0,2}-?(/[a-z]{0,3},?)?[0-9]{0,2}[\[\]{}",$a-z0-9]{0,40}"#.prop_map(String::into_bytes),
        ],
        is_text in any::<bool>(),
    ) {
        let kind = if is_text { PayloadKind::Text } else { PayloadKind::Binary };
        let mut parts = Parts::default();
        if is_text {
            parts.apply(Part::Text(&HEADER[1..]));
        }
        if let Ok(read) = SocketIo::read_behind(&parts, &state, kind, &payload) {
            let _ = (SocketIo::message(&read), SocketIo::session_request(&read));
        }
    }
}

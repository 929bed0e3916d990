//! Tests of the codec with the vectors of the reference.

use proptest::prelude::*;
use serde_json::Value;
use tidewire_core::attachments::Attachments;
use tidewire_core::message::Event;

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
            // The texts are not packets of Socket.IO, or belong to long polling.
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
    SocketIo::put_in_namespace(Variant(1), "/name", &encoded(&frames), &mut out);
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

/// A packet in MessagePack as a client sends it.
fn packed(packet: Packet<'_>, attachments: &[&[u8]]) -> Vec<u8> {
    let mut payload = Vec::new();
    Form::MessagePack.write_payload(&packet, attachments, &mut payload);
    payload
}

#[test]
fn the_first_packet_shows_the_parser_of_the_client() {
    let join = packed(Packet::new(PacketType::Connect, None, None), &[]);
    let data = Some(r#"["$join","a"]"#);
    let event = packed(Packet::new(PacketType::Event, Some("7"), data), &[]);
    let (mut codec, mut parts) = (
        ConnectionCodec::new(crate::protocol::Protocol::SocketIo),
        Parts::default(),
    );
    let seen = pass(
        &mut codec,
        &mut parts,
        &[Frame::Text("3"), Frame::Bytes(&join)],
    );
    assert!(seen[1].contains("Auth(Request"), "{seen:?}");
    assert_eq!(codec.variant(), Form::MessagePack.variant());
    let seen = pass(
        &mut codec,
        &mut parts,
        &[Frame::Bytes(&event), Frame::Text("3")],
    );
    assert!(
        seen[0].contains(r#"names: ["a"], correlation: Some("7")"#),
        "{seen:?}"
    );
    let text = codec.read(&parts, PayloadKind::Text, b"40");
    assert_eq!(
        text.err(),
        Some(violation("the client has begun with MessagePack"))
    );

    let mut codec = ConnectionCodec::new(crate::protocol::Protocol::SocketIo);
    pass(&mut codec, &mut parts, &[Frame::Text("40")]);
    assert_eq!(codec.variant(), Form::Text.variant());
    assert!(codec.read(&parts, PayloadKind::Binary, &join).is_err());
}

#[test]
fn a_packet_in_message_pack_is_for_its_session() {
    let request = |packet_type, namespace: &str, data| {
        let payload = packed(
            Packet {
                namespace,
                ..Packet::new(packet_type, None, data)
            },
            &[],
        );
        let read = SocketIo::read(&State::First, PayloadKind::Binary, &payload);
        let read = read.expect("a packet");
        let has_message = SocketIo::message(&read).is_some();
        (
            format!("{:?}", SocketIo::session_request(&read)),
            has_message,
        )
    };
    let (event, ack) = (PacketType::Event, PacketType::Ack);
    for (packet_type, namespace, data, expected, has_message) in [
        (
            PacketType::Connect,
            "/",
            None,
            r#"Join { namespace: Main, credentials: "{}" }"#,
            true,
        ),
        (
            PacketType::Connect,
            "/n",
            Some("{\"a\":1}"),
            r#"Named("/n"), credentials: "{\"a\":1}""#,
            true,
        ),
        (
            PacketType::Connect,
            "/a#b",
            None,
            "Answer { namespace: None",
            false,
        ),
        (
            PacketType::Connect,
            "/engine.io",
            None,
            "Answer { namespace: None",
            false,
        ),
        (
            PacketType::Disconnect,
            "/n",
            None,
            r#"Leave { namespace: Named("/n") }"#,
            false,
        ),
        (event, "/", Some(r#"["$join","a"]"#), "None", true),
        (
            event,
            "/n",
            Some(r#"["$join","a"]"#),
            r#"Within { namespace: "/n" }"#,
            true,
        ),
        (
            event,
            "/n",
            Some(r#"["x"]"#),
            r#"Answer { namespace: Some(Named("/n"))"#,
            false,
        ),
        (
            ack,
            "/",
            Some("[]"),
            "Answer { namespace: Some(Main)",
            false,
        ),
    ] {
        let (found, message) = request(packet_type, namespace, data);
        assert!(found.contains(expected), "{expected}: {found}");
        assert_eq!(message, has_message, "{expected}");
    }
}

#[test]
fn binary_values_of_message_pack_are_those_of_attachments() {
    let data = r#"["$to","room","up",{"_placeholder":true,"num":1},{"_placeholder":true,"num":0}]"#;
    let payload = packed(
        Packet {
            attachments: 2,
            ..Packet::new(PacketType::Event, None, Some(data))
        },
        &[b"ab", b""],
    );
    let read = SocketIo::read(&State::Packed, PayloadKind::Binary, &payload).expect("a packet");
    let message = SocketIo::message(&read).expect("a publication");
    let mut text = Vec::new();
    SocketIo::encode_frame(Form::Text.variant(), &message, &mut text);
    // The attachments are numbered in the order of their values.
    let header = frame(r#"452-["up",{"_placeholder":true,"num":0},{"_placeholder":true,"num":1}]"#);
    assert_eq!(
        text,
        [&header[..], &[0x82, 0, 0x82, 2, b'a', b'b']].concat()
    );
    let mut again = Vec::new();
    SocketIo::encode_frame(Form::MessagePack.variant(), &message, &mut again);
    let (opcode, payload) = websocket::server_payload(&again).expect("a frame");
    assert_eq!(opcode, Opcode::Binary);
    let unpacked = packed::Unpacked::read(payload).expect("a packet");
    assert_eq!(unpacked.packet().attachments, 2);
}

#[test]
fn a_namespace_completes_a_packet_in_message_pack() {
    let form = Form::NamedMessagePack;
    let data = Some(r#"["up",1]"#);
    let mut frames = Vec::new();
    for bytes in [1, 40_000] {
        let data = format!(r#"["up","{}"]"#, "x".repeat(bytes));
        let packet = Packet::new(PacketType::Event, None, Some(&data));
        form.write(&packet, &[], &mut frames);
    }
    form.write(
        &Packet::new(PacketType::Ack, Some("3"), data),
        &[],
        &mut frames,
    );
    let mut out = Vec::new();
    SocketIo::put_in_namespace(form.variant(), "/name", &frames, &mut out);
    let mut rest = &out[..];
    let mut count = 0;
    while let Some(bytes) = websocket::server_frame_bytes(rest) {
        let (_, payload) = websocket::server_payload(&rest[..bytes]).expect("a frame");
        let unpacked = packed::Unpacked::read(payload).expect("a packet");
        assert_eq!(unpacked.packet().namespace, "/name");
        rest = &rest[bytes..];
        count += 1;
    }
    assert_eq!((count, rest.len()), (3, 0));
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
        state in prop_oneof![Just(State::First), Just(State::Packet), Just(State::Packed), Just(State::awaiting(10))],
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

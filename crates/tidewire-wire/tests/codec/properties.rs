//! Properties of the codecs over random messages, streams and bytes.

use crate::harness::messages::Pool;
use crate::harness::{Input, Kept, check, check_message, events};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use tidewire_wire::frame::deflate::Deflater;
use tidewire_wire::frame::websocket::{
    Decoder, Opcode, PayloadKind, Role, apply_mask, encode, encode_masked,
};
use tidewire_wire::protocol::deepstream::json::{DeepstreamJson, JsonFields};
use tidewire_wire::protocol::deepstream::{Deepstream, Dialect};

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "\\PC{0,12}",
        "[a-z/.\\[\\]{}\":0-9]{0,150}"
    ]
}

/// What payloads are filled with: JSON, or anything.
fn data() -> impl Strategy<Value = String> {
    let json = prop_oneof![
        Just("null".to_owned()),
        "-?[1-9][0-9]{0,12}",
        "\\PC{0,12}".prop_map(|text| serde_json::to_string(&text).expect("a text")),
        "\\PC{0,12}".prop_map(|text| serde_json::json!({ text.clone(): [text] }).to_string()),
        Just(r#" [ "\ud800", {"a" : 1e400} ] "#.to_owned()),
    ];
    prop_oneof![json, text()]
}

prop_compose! {
    fn pool()(
        name in text(),
        subscription in text(),
        data in option::of(data()),
        json in data(),
        correlation in option::of(text()),
        names in vec(text(), 0..5),
        versions in vec((text(), any::<i32>()), 0..5),
        version in prop_oneof![Just(0), Just(-1), Just(i32::MAX), any::<i32>()],
        write_ack in any::<bool>(),
    ) -> Pool {
        Pool { name, subscription, data, json, correlation, names, versions, version, write_ack }
    }
}

/// A message of a stream: its kind, its bytes, where it is cut into fragments, a ping to put between them, and whether it
/// is to be compressed.
#[derive(Clone, Debug)]
struct Sent {
    kind: PayloadKind,
    payload: Vec<u8>,
    cuts: Vec<prop::sample::Index>,
    ping: Option<Vec<u8>>,
    is_deflated: bool,
}

fn sent() -> impl Strategy<Value = Sent> {
    let payload = prop_oneof![
        vec(any::<u8>(), 0..200).prop_map(|bytes| (PayloadKind::Binary, bytes)),
        (65_500usize..65_600).prop_map(|length| (PayloadKind::Binary, vec![9; length])),
        "\\PC{0,60}".prop_map(|text| (PayloadKind::Text, text.into_bytes())),
        "[ab ö]{0,200}".prop_map(|text| (PayloadKind::Text, text.into_bytes())),
    ];
    (
        payload,
        vec(any::<prop::sample::Index>(), 0..4),
        option::of(vec(any::<u8>(), 0..125)),
        any::<bool>(),
    )
        .prop_map(|((kind, payload), cuts, ping, is_deflated)| Sent {
            kind,
            payload,
            cuts,
            ping,
            is_deflated,
        })
}

/// Appends one frame and the decoder's expected event, except for fragments.
fn push_frame(
    role: Role,
    opcode: Opcode,
    fin: bool,
    payload: &[u8],
    key: [u8; 4],
    stream: &mut Vec<u8>,
) {
    let start = stream.len();
    match role {
        Role::Server => encode_masked(opcode, payload, key, stream),
        Role::Client => encode(opcode, payload, stream),
    }
    if !fin {
        stream[start] &= 0x7F;
    }
}

/// The compressed form of a payload; `None` if it is not shorter.
fn deflate(payload: &[u8]) -> Option<Vec<u8>> {
    let mut frame = Vec::new();
    let is_smaller = Deflater::default().encode_frame(Opcode::Binary, payload, &mut frame);
    let header = match frame.get(1)? {
        126 => 4,
        127 => 10,
        _ => 2,
    };
    is_smaller.then(|| frame.split_off(header))
}

/// The stream of all messages in fragments, with pings between them, and the events that it must decode to.
fn build(role: Role, key: [u8; 4], messages: &[Sent]) -> (Vec<u8>, Vec<Kept>) {
    let (mut stream, mut expected) = (Vec::new(), Vec::new());
    for message in messages {
        let deflated = deflate(&message.payload).filter(|_| message.is_deflated);
        let payload = deflated.as_ref().unwrap_or(&message.payload);
        let mut cuts: Vec<usize> = message
            .cuts
            .iter()
            .map(|cut| cut.index(payload.len() + 1))
            .collect();
        cuts.extend([0, payload.len()]);
        cuts.sort_unstable();
        let last = cuts.len() - 2;
        for (index, cut) in cuts.windows(2).enumerate() {
            let opcode = match (index, message.kind) {
                (0, PayloadKind::Text) => Opcode::Text,
                (0, PayloadKind::Binary) => Opcode::Binary,
                _ => Opcode::Continuation,
            };
            let start = stream.len();
            push_frame(
                role,
                opcode,
                index == last,
                &payload[cut[0]..cut[1]],
                key,
                &mut stream,
            );
            if index == 0 && deflated.is_some() {
                stream[start] |= 0x40;
            }
            if let Some(ping) = message.ping.as_ref().filter(|_| index < last) {
                push_frame(role, Opcode::Ping, true, ping, key, &mut stream);
                expected.push(Kept::Ping(ping.clone()));
            }
        }
        expected.push(Kept::Message(message.kind, message.payload.clone()));
    }
    (stream, expected)
}

/// `stream` as reads that end at `cuts`.
fn cut<'a>(stream: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
    ends.extend([0, stream.len()]);
    ends.sort_unstable();
    ends.windows(2)
        .map(|range| &stream[range[0]..range[1]])
        .collect()
}

proptest! {
    // A failure becomes an input of the fuzz corpus, not a seed in a separate file.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_message_comes_back(pool in pool()) {
        for message in pool.messages() {
            check_message(&message);
        }
    }

    #[test]
    fn a_batch_is_cut_into_its_messages(pool in pool()) {
        let (mut batch, mut payloads) = (Vec::new(), Vec::new());
        for message in pool.messages() {
            let start = batch.len();
            Deepstream::encode(Dialect::ClientWithPatchMulti, &message, &mut batch);
            payloads.push(batch[start..].to_vec());
        }
        let mut rest = &batch[..];
        for payload in payloads {
            let bytes = Deepstream::message_bytes(rest);
            prop_assert_eq!(bytes, Some(payload.len()));
            prop_assert_eq!(Deepstream::message_bytes(&payload[..payload.len() - 1]), None);
            rest = &rest[payload.len()..];
        }
    }

    #[test]
    fn a_text_cut_at_any_byte_means_the_same(pool in pool(), which in any::<prop::sample::Index>()) {
        let messages = pool.messages();
        let message = which.get(&messages);
        let mut stream = Vec::new();
        DeepstreamJson::encode_masked_frame(message, [1, 2, 3, 4], &mut stream);
        for end in 0..=stream.len() {
            let pieces = [&stream[..end], &stream[end..]];
            let events = events(Decoder::new(Role::Server), pieces);
            let [Kept::Message(PayloadKind::Text, text)] = &events[..] else {
                panic!("{events:?}");
            };
            let read = JsonFields::read(text).expect("our own text");
            prop_assert_eq!(&read.message().expect("our own text"), message);
        }
    }

    #[test]
    fn any_cuts_of_a_stream_give_its_messages(
        messages in vec(sent(), 0..5),
        cuts in vec(any::<prop::sample::Index>(), 0..12),
        role in prop_oneof![Just(Role::Server), Just(Role::Client)],
        key in any::<[u8; 4]>(),
    ) {
        let (stream, expected) = build(role, key, &messages);
        prop_assert_eq!(events(Decoder::with_deflate(role), cut(&stream, &cuts)), expected);
    }

    #[test]
    fn any_bytes_are_answered(bytes in vec(any::<u8>(), 0..300)) {
        check(&bytes);
        drop(Deepstream::decode(&bytes));
        for role in [Role::Server, Role::Client] {
            check(&Input::seed(role, &bytes));
            check(&Input::deflated_seed(role, &bytes));
            check(&Input::text_seed(role, &String::from_utf8_lossy(&bytes)));
        }
    }

    #[test]
    fn changed_messages_are_answered(
        pool in pool(),
        which in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let messages = pool.messages();
        let mut payload = Vec::new();
        Deepstream::encode(Dialect::Server, which.get(&messages), &mut payload);
        let at = at.index(payload.len());
        payload[at] = byte;
        check(&Input::seed(Role::Server, &payload));
    }

    #[test]
    fn changed_texts_are_answered(
        pool in pool(),
        which in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        byte in prop::sample::select(br#"{}[]",:\u0123456789abeE+-.tfn "#.to_vec()),
    ) {
        let messages = pool.messages();
        let mut text = Vec::new();
        DeepstreamJson::encode(Dialect::Server, which.get(&messages), &mut text);
        let at = at.index(text.len());
        text[at] = byte;
        check(&Input::text_seed(Role::Server, &String::from_utf8_lossy(&text)));
    }

    #[test]
    fn masks_are_bytewise(payload in vec(any::<u8>(), 0..64), key in any::<[u8; 4]>()) {
        let mut masked = payload.clone();
        apply_mask(&mut masked, key);
        let expected: Vec<u8> = payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key).collect();
        prop_assert_eq!(masked, expected);
    }
}

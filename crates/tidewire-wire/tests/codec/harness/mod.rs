//! Checks that must hold for any bytes, shared by the properties, the replay of the corpus, the mutation loop and the
//! fuzzer. An input is one byte of settings, one seed for the cuts, and the stream of one connection.

pub mod json_reference;
pub mod messages;
pub mod mutate;
pub mod reference;
pub mod socketio;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::panic::catch_unwind;

use serde_json::value::RawValue;
use tidewire_core::message::Message;
use tidewire_wire::frame::deflate::{Deflater, Inflater};
use tidewire_wire::frame::websocket::{
    Decoded, Decoder, Event, FrameError, Opcode, PayloadKind, Role,
};
use tidewire_wire::frame::websocket::{encode, encode_masked};
use tidewire_wire::protocol::deepstream::fields::{Envelope, Fields, WireTopic};
use tidewire_wire::protocol::deepstream::json::{DeepstreamJson, JsonFields};
use tidewire_wire::protocol::deepstream::{Deepstream, Dialect};

/// Messages of an input above this are refused; large enough for every length class of a frame.
const MESSAGE_BYTES_MAX: usize = 70_000;

/// What decoding may allocate for one byte of input. The costliest input is a bulk message of empty names: two
/// bytes each, for which a growing list holds sixteen, twice while it grows.
const ALLOCATED_BYTES_PER_INPUT_BYTE: u64 = 64;

/// The same where compression was agreed on: deflate makes at most 1,032 bytes of one, which are copied twice.
const ALLOCATED_BYTES_PER_DEFLATED_BYTE: u64 = 4 * 1032;

/// What decoding may allocate for no reason of length.
const ALLOCATED_BYTES_BASE: u64 = 4096;

/// The same where compression was agreed on, with the state of an inflater.
const ALLOCATED_BYTES_INFLATER: u64 = 128 << 10;

/// An action that an input reached: reader, topic, action.
pub type Reached = BTreeSet<(&'static str, u32, u32)>;

/// An event of a stream with its bytes kept.
#[derive(Clone, Debug, PartialEq)]
pub enum Kept {
    Message(PayloadKind, Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<u16>, String),
    Error(FrameError),
}

/// The parts of an input.
pub struct Input<'a> {
    pub role: Role,
    /// Whether compression was agreed on.
    pub is_deflated: bool,
    pub cut_seed: u8,
    pub stream: &'a [u8],
}

impl<'a> Input<'a> {
    /// `None` if there are no settings.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (&[settings, cut_seed], stream) = bytes.split_first_chunk()?;
        let role = if settings & 1 == 0 {
            Role::Server
        } else {
            Role::Client
        };
        Some(Self {
            role,
            is_deflated: settings & 2 != 0,
            cut_seed,
            stream,
        })
    }

    /// The input in which `payload` comes as one binary message. The mask key is zero, so that a mutation of the
    /// input is one of the message.
    pub fn seed(role: Role, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![u8::from(role == Role::Client), 0];
        match role {
            Role::Server => encode_masked(Opcode::Binary, payload, [0; 4], &mut bytes),
            Role::Client => encode(Opcode::Binary, payload, &mut bytes),
        }
        bytes
    }

    /// The input in which `text` comes as one text message.
    pub fn text_seed(role: Role, text: &str) -> Vec<u8> {
        let mut bytes = vec![u8::from(role == Role::Client), 0];
        match role {
            Role::Server => encode_masked(Opcode::Text, text.as_bytes(), [0; 4], &mut bytes),
            Role::Client => encode(Opcode::Text, text.as_bytes(), &mut bytes),
        }
        bytes
    }

    /// The same compressed, or plain if it does not get smaller, on a connection that has agreed on it.
    pub fn deflated_seed(role: Role, payload: &[u8]) -> Vec<u8> {
        let mut seed = Self::seed(role, payload);
        seed[0] |= 2;
        let mut frame = Vec::new();
        let mut deflater = Deflater::default();
        let is_smaller = match role {
            Role::Server => {
                deflater.encode_masked_frame(Opcode::Binary, payload, [0; 4], &mut frame)
            }
            Role::Client => deflater.encode_frame(Opcode::Binary, payload, &mut frame),
        };
        if is_smaller {
            seed.truncate(2);
            seed.append(&mut frame);
        }
        seed
    }

    /// A decoder for the stream.
    fn decoder(&self) -> Decoder {
        match self.is_deflated {
            true => Decoder::with_deflate(self.role),
            false => Decoder::new(self.role),
        }
    }

    /// The whole stream as its decoder sees it in one read.
    pub fn events(&self) -> Vec<Kept> {
        events(self.decoder(), [self.stream])
    }

    /// Lengths of reads: pseudo-random from the seed, mostly short.
    fn pieces(&self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = self.stream;
        let mut state = u32::from(self.cut_seed) + 1;
        std::iter::from_fn(move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let length = (state >> 24) as usize % 32 * usize::from(self.cut_seed) / 64 + 1;
            let (piece, behind) = rest.split_at(length.min(rest.len()));
            rest = behind;
            (!piece.is_empty()).then_some(piece)
        })
    }
}

/// Decodes a stream that arrives in `pieces`, up to its close or first error.
pub fn events<'a>(mut decoder: Decoder, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Kept> {
    let mut inflater = Inflater::default();
    let mut buffer = Vec::new();
    let mut events = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            let decoded = decoder.decode_inflated(&mut buffer, MESSAGE_BYTES_MAX, &mut inflater);
            let (consumed, kept) = match decoded {
                Ok(Decoded { consumed, event }) => (consumed, keep(event)),
                Err(error) => (0, Some(Kept::Error(error))),
            };
            buffer.drain(..consumed);
            let Some(kept) = kept else {
                break;
            };
            let last = matches!(kept, Kept::Close(..) | Kept::Error(_));
            events.push(kept);
            if last {
                return events;
            }
        }
    }
    events
}

fn keep(event: Event<'_>) -> Option<Kept> {
    Some(match event {
        Event::Message { kind, payload } => Kept::Message(kind, payload.into_owned()),
        Event::Ping(payload) => Kept::Ping(payload.to_vec()),
        Event::Pong(payload) => Kept::Pong(payload.to_vec()),
        Event::Close { code, reason } => {
            Kept::Close(code.map(|code| code.number()), reason.to_owned())
        }
        Event::NeedMore { .. } => return None,
    })
}

/// A fault of the codecs, as shown by one input.
pub fn finding(input: &[u8]) -> Option<&'static str> {
    let allocated = catch_unwind(|| {
        allocation_counter::measure(|| {
            std::hint::black_box(decode_only(input));
        })
    });
    match allocated {
        Err(_) => Some("decoding panics"),
        Ok(info) if info.bytes_total > allocation_limit(input) => {
            Some("decoding allocates too much")
        }
        Ok(_) if catch_unwind(|| drop(check(input))).is_err() => Some("a check fails"),
        Ok(_) => None,
    }
}

fn allocation_limit(input: &[u8]) -> u64 {
    let bytes = input.len() as u64;
    if Input::parse(input).is_some_and(|input| input.is_deflated) {
        return ALLOCATED_BYTES_INFLATER + ALLOCATED_BYTES_PER_DEFLATED_BYTE * bytes;
    }
    ALLOCATED_BYTES_BASE + ALLOCATED_BYTES_PER_INPUT_BYTE * bytes
}

/// Only decodes, so that its allocations can be counted. Returns the number of events.
fn decode_only(bytes: &[u8]) -> usize {
    let Some(input) = Input::parse(bytes) else {
        return 0;
    };
    let events = input.events();
    for event in &events {
        match event {
            Kept::Message(PayloadKind::Binary, payload) => {
                std::hint::black_box(Deepstream::decode(payload).is_ok());
            }
            Kept::Message(PayloadKind::Text, payload) => {
                let read = JsonFields::read(payload);
                std::hint::black_box(read.is_ok_and(|fields| fields.message().is_ok()));
            }
            _ => {}
        }
    }
    std::hint::black_box(socketio::read_all(&events, |_| {}));
    events.len()
}

/// Checks everything that must hold for an input, and returns the actions that it reached.
///
/// # Panics
///
/// Something does not hold.
pub fn check(bytes: &[u8]) -> Reached {
    let mut reached = Reached::new();
    let Some(input) = Input::parse(bytes) else {
        return reached;
    };
    let whole = input.events();
    assert_eq!(
        events(input.decoder(), input.pieces()),
        whole,
        "cuts change the events"
    );
    for event in &whole {
        if let Kept::Message(_, payload) = event {
            assert!(payload.len() <= MESSAGE_BYTES_MAX, "a message is too long");
        }
        let known = match event {
            Kept::Message(PayloadKind::Binary, payload) => check_payload(payload),
            Kept::Message(PayloadKind::Text, payload) => check_text(payload),
            _ => None,
        };
        if let (Kept::Message(kind, _), Some((topic, action))) = (event, known) {
            let reader = match (input.role, kind) {
                (Role::Server, PayloadKind::Binary) => "server",
                (Role::Server, PayloadKind::Text) => "json server",
                (Role::Client, PayloadKind::Binary) => "client",
                (Role::Client, PayloadKind::Text) => "json client",
            };
            reached.insert((reader, topic, action));
        }
    }
    socketio::check(&whole);
    reached
}

/// The same for the payload of one message. Returns topic and action if they are known ones.
fn check_payload(payload: &[u8]) -> Option<(u32, u32)> {
    let envelope = Envelope::decode(payload).ok()?;
    let topic = WireTopic::from_wire(envelope.topic)?;
    let fields = Fields::decode(topic, envelope.body).ok()?;
    reference::assert_same(payload, topic, envelope.body, &fields);
    check_fields(topic, &fields);
    let message = Deepstream::decode(payload).ok()?;
    check_message(&message);
    (!matches!(message, Message::UnknownAction { .. })).then_some((envelope.topic, fields.action))
}

/// The same for a text, with the same meaning as in protobuf.
fn check_text(payload: &[u8]) -> Option<(u32, u32)> {
    let read = JsonFields::read(payload);
    json_reference::assert_same(payload, &read);
    let read = read.ok()?;
    let topic = WireTopic::from_wire(read.topic())?;
    let fields = read.fields();
    check_fields(topic, &fields);
    let mut bytes = Vec::new();
    fields.encode_payload(topic, fields.measure(topic), &mut bytes);
    assert_eq!(read.message(), Deepstream::decode(&bytes), "in protobuf");
    let message = read.message().ok()?;
    check_message(&message);
    (!matches!(message, Message::UnknownAction { .. })).then_some((read.topic(), fields.action))
}

/// Written again, fields are the same to prost, and as long as was announced.
fn check_fields(topic: WireTopic, fields: &Fields<'_>) {
    let mut written = Vec::new();
    let measure = fields.measure(topic);
    fields.encode_payload(topic, measure, &mut written);
    assert_eq!(written.len(), measure.payload, "measured length");
    let envelope = Envelope::decode(&written).expect("our own envelope");
    reference::assert_same(&written, topic, envelope.body, fields);
}

/// Encoded again, a message is the same. Decoding and encoding change nothing in a server's encoding. And frames
/// carry exactly the payload.
pub fn check_message(message: &Message<'_>) {
    let mut payload = Vec::new();
    Deepstream::encode(Dialect::Server, message, &mut payload);
    assert_eq!(
        &Deepstream::decode(&payload).expect("our own message"),
        message
    );
    let mut frame = Vec::new();
    Deepstream::encode_masked_frame(message, [7, 77, 177, 0], &mut frame);
    assert_one_message(Role::Server, PayloadKind::Binary, &mut frame, &payload);
    payload.clear();
    frame.clear();
    DeepstreamJson::encode(Dialect::Server, message, &mut payload);
    assert_json(&payload, message);
    DeepstreamJson::encode_masked_frame(message, [7, 77, 177, 0], &mut frame);
    assert_one_message(Role::Server, PayloadKind::Text, &mut frame, &payload);

    for dialect in [Dialect::Client, Dialect::ClientWithPatchMulti] {
        payload.clear();
        frame.clear();
        Deepstream::encode(dialect, message, &mut payload);
        Deepstream::encode_frame(dialect, message, &mut frame);
        assert_one_message(Role::Client, PayloadKind::Binary, &mut frame, &payload);
        let mut again = Vec::new();
        let read = Deepstream::decode(&payload).expect("our own message");
        Deepstream::encode(dialect, &read, &mut again);
        assert_eq!(again, payload, "{dialect:?} is not stable");
        // A server sends only validated payloads.
        if has_json_data(&payload) {
            let mut text = Vec::new();
            frame.clear();
            DeepstreamJson::encode(dialect, message, &mut text);
            assert_json_of_server(&text, &payload);
            DeepstreamJson::encode_frame(dialect, message, &mut frame);
            assert_one_message(Role::Client, PayloadKind::Text, &mut frame, &text);
        }
    }
}

/// Asserts that a text is JSON and means `message`.
fn assert_json(text: &[u8], message: &Message<'_>) {
    let read = JsonFields::read(text).expect("our own text");
    assert_eq!(&read.message().expect("our own text"), message);
}

/// The same for the text of a server, in which a payload is a value without space around it.
fn assert_json_of_server(text: &[u8], payload: &[u8]) {
    let envelope = Envelope::decode(payload).expect("our own envelope");
    let Some(topic) = WireTopic::from_wire(envelope.topic) else {
        return assert_json(text, &Message::UnknownTopic);
    };
    let mut fields = Fields::decode(topic, envelope.body).expect("our own fields");
    if fields.is_error != Some(true) {
        fields.data = fields
            .data
            .map(|data| data.trim_matches([' ', '\t', '\n', '\r']));
    }
    let mut trimmed = Vec::new();
    fields.encode_payload(topic, fields.measure(topic), &mut trimmed);
    assert_json(
        text,
        &Deepstream::decode(&trimmed).expect("our own message"),
    );
}

/// Whether what a message carries as JSON is JSON.
fn has_json_data(payload: &[u8]) -> bool {
    let envelope = Envelope::decode(payload).expect("our own envelope");
    let Some(topic) = WireTopic::from_wire(envelope.topic) else {
        return true;
    };
    let fields = Fields::decode(topic, envelope.body).expect("our own fields");
    fields
        .data
        .is_none_or(|data| serde_json::from_str::<&RawValue>(data).is_ok())
}

fn assert_one_message(role: Role, kind: PayloadKind, frame: &mut [u8], payload: &[u8]) {
    let length = frame.len();
    let decoded = Decoder::new(role)
        .decode(frame, payload.len())
        .expect("our own frame");
    assert_eq!(
        decoded,
        Decoded {
            consumed: length,
            event: Event::Message {
                kind,
                payload: Cow::Borrowed(payload)
            },
        }
    );
}

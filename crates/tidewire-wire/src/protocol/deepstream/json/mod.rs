//! The same messages as JSON: one object in each text message of a WebSocket, for peers without protobuf. Contract:
//! `spec/deepstream-json.md`.
//!
//! Only the outer form differs. Fields have the names of the protocol instead of numbers ([`key`]); [`read`] and
//! [`write`] convert them. The files of the primitives define their meaning once.

mod key;
mod read;
mod write;

use thiserror::Error;
use tidewire_core::message::Message;
use tidewire_core::settings::Liveness;

use super::{DecodeError, Dialect, VARIANTS, introduction, to_wire};
use crate::frame::websocket::{self, Opcode, PayloadKind};
use crate::protobuf::Counter;
use crate::protocol::{
    CloseCause, CloseWords, Codec, ForeignPayload, Introduction, Paths, Variant,
};

pub use read::JsonFields;

/// Why a text is not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum TextError {
    /// It is not JSON. Its sender does not speak the protocol at all, so the connection closes.
    #[error("malformed JSON at byte {offset}")]
    Malformed {
        /// The first byte that can't continue the text; the text's length if the text is incomplete.
        offset: usize,
    },
    /// It is JSON, but not a message. It gets the answer of an unknown topic, and the session stays open.
    #[error(transparent)]
    Unreadable(#[from] DecodeError),
}

/// The codec. Decoding is [`JsonFields::read`], which stores the texts that had escapes, then
/// [`JsonFields::message`].
#[derive(Clone, Copy, Debug)]
pub struct DeepstreamJson;

impl DeepstreamJson {
    /// Appends `message` as the payload of one text message. For a client payloads are written unchanged as
    /// `parsedData`, so they must be JSON; the engine accepts nothing else. Called once per fan-out, not once per
    /// recipient.
    pub fn encode(dialect: Dialect, message: &Message<'_>, out: &mut Vec<u8>) {
        let (topic, fields) = to_wire(dialect, message);
        write::write(topic, &fields, dialect, out);
    }

    /// Appends `message` as a server's WebSocket frame, as it goes to the turn log.
    pub fn encode_frame(dialect: Dialect, message: &Message<'_>, out: &mut Vec<u8>) {
        let (topic, fields) = to_wire(dialect, message);
        let mut length = Counter::default();
        write::write(topic, &fields, dialect, &mut length);
        websocket::encode_header(Opcode::Text, length.0, out);
        out.reserve(length.0);
        write::write(topic, &fields, dialect, out);
    }

    /// Appends `message` as a client's WebSocket frame, masked with `key`, for [`Dialect::Server`].
    pub fn encode_masked_frame(message: &Message<'_>, key: [u8; 4], out: &mut Vec<u8>) {
        let mut payload = Vec::new();
        Self::encode(Dialect::Server, message, &mut payload);
        websocket::encode_masked(Opcode::Text, &payload, key, out);
    }
}

impl Codec for DeepstreamJson {
    const NAME: &'static str = "deepstream-json";
    const CLIENTS: &'static str = "clients that speak JSON";
    const KIND: PayloadKind = PayloadKind::Text;
    const VARIANTS: u8 = VARIANTS;
    const HAS_BATCHES: bool = false;
    const PATHS: Paths = Paths::Option("network.json_paths");
    const SUBPROTOCOLS: &'static [&'static str] = &[];
    const LIVENESS: Liveness = Liveness::PeerPings;
    const INTRODUCES: bool = true;

    type State = ();

    /// `None` for JSON that is not a message.
    // The fields are large, and the payloads of other protocols would have their size.
    type Payload<'a> = Option<Box<JsonFields<'a>>>;

    fn read<'a>(
        (): &(),
        kind: PayloadKind,
        payload: &'a [u8],
    ) -> Result<Self::Payload<'a>, ForeignPayload> {
        if kind == PayloadKind::Binary {
            return Err(ForeignPayload::NotText);
        }
        match JsonFields::read(payload) {
            Ok(fields) => Ok(Some(Box::new(fields))),
            Err(TextError::Malformed { offset }) => {
                let format = "JSON";
                Err(ForeignPayload::Malformed { format, offset })
            }
            Err(TextError::Unreadable(_)) => Ok(None),
        }
    }

    fn message<'p>(payload: &'p Self::Payload<'_>) -> Option<Message<'p>> {
        payload.as_ref()?.message().ok()
    }

    fn introduction(message: &Message<'_>) -> Option<Introduction> {
        introduction(message)
    }

    #[inline(always)]
    fn encode(variant: Variant, message: &Message<'_>, out: &mut Vec<u8>) {
        Self::encode(Dialect::of(variant), message, out);
    }

    #[inline(always)]
    fn encode_frame(variant: Variant, message: &Message<'_>, out: &mut Vec<u8>) {
        Self::encode_frame(Dialect::of(variant), message, out);
    }

    /// Each message has a separate frame.
    fn first_bytes(batch: &[u8]) -> Option<usize> {
        Some(batch.len())
    }

    fn close_words(cause: CloseCause) -> CloseWords {
        CloseWords::standard(cause)
    }
}

#[cfg(test)]
mod tests {
    use tidewire_core::attachments::Attachments;
    use tidewire_core::binary::Binary;
    use tidewire_core::message::{
        Change, Event, EventBulk, Position, Presence, Publication, Reason, Record, RecordAction,
        RecordBulk, Refusal, Topic, Write,
    };

    use super::*;
    use crate::protobuf::FieldError;

    /// The decoded message of a text in its debug form; `None` if it is unreadable.
    fn meaning(text: &str) -> Result<String, TextError> {
        let fields = JsonFields::read(text.as_bytes())?;
        Ok(format!("{:?}", fields.message()?))
    }

    fn check(text: &str, expected: &Message<'_>) {
        assert_eq!(meaning(text), Ok(format!("{expected:?}")), "{text}");
    }

    fn check_error(text: &str, expected: TextError) {
        assert_eq!(meaning(text), Err(expected), "{text}");
    }

    fn emit<'a>(name: &'a str, data: Option<&'a str>) -> Message<'a> {
        Message::Event(Event::publication(name, data))
    }

    #[test]
    fn parsed_data_counts_before_data() {
        let cases = [
            (r#""data":"{\"a\": 1}""#, Some(r#"{"a": 1}"#)),
            (r#""parsedData":{"a": 1}"#, Some(r#"{"a": 1}"#)),
            (r#""parsedData":[2],"data":"[1]""#, Some("[2]")),
            (r#""data":"[1]","parsedData":[2]"#, Some("[2]")),
            // An ignored member may have any content.
            (r#""data":"\ud800","parsedData":0"#, Some("0")),
            (r#""data":5,"parsedData":false"#, Some("false")),
            (r#""parsedData":null"#, Some("null")),
            (r#""data":null"#, None),
            (r#""data":"null""#, Some("null")),
            (r#""data":"""#, Some("")),
            (r#""data":"{""#, Some("{")),
            (r#""isAck":false"#, None),
        ];
        for (members, data) in cases {
            let text = format!(r#"{{"topic":4,"action":2,"name":"e",{members}}}"#);
            check(&text, &emit("e", data));
        }
    }

    #[test]
    fn members_come_in_any_order_and_the_last_of_equal_ones_counts() {
        let cases = [
            r#"{"name":"e","action":2,"topic":4}"#,
            " \t\r\n{ \"topic\" : 4 , \"action\" : 2 , \"name\" : \"e\" } \n",
            r#"{"topic":5,"topic":4,"action":"x","action":2,"name":"f","name":"e"}"#,
            // Keys and texts are equal by what they mean.
            r#"{"topic":5,"t\u006fpic":4,"action":2,"name":"\u0065"}"#,
            r#"{"topic":4,"action":2,"name":"f","\u006eame":"e"}"#,
            // Unknown members, and members of another topic, are ignored.
            r#"{"topic":4,"action":2,"name":"e","colour":{"name":"x"},"version":"x","\ud800":1,"Name":"x"}"#,
            // Absence can be said by null.
            r#"{"topic":4,"action":2,"name":"e","correlationId":null,"names":null,"isAck":null}"#,
            // A number is what it means, too.
            r#"{"topic":4.0,"action":2e0,"name":"e"}"#,
        ];
        for text in cases {
            check(text, &emit("e", None));
        }
    }

    #[test]
    fn positions_are_a_list_of_objects() {
        let text = r#"{"topic":4,"action":3,"names":["a","b","c"],"positions":[{"name":"\u0061","epoch":9,"offset":1e1},
            {"epoch":null,"name":"b","other":[]},{"name":"c","offset":5},{}]}"#;
        let position = Position {
            epoch: 9,
            offset: 10,
        };
        let resume = Event::Subscribe {
            names: vec!["a", "b", "c"],
            correlation: None,
            positions: vec![("a", Some(position)), ("b", None), ("c", None), ("", None)],
        };
        check(text, &Message::Event(resume));
    }

    #[test]
    fn bytes_are_base64() {
        let of_bytes = |content_type, bytes: &[u8]| {
            let publication = Publication::new("e", None, None, None);
            let binary = Binary::new(content_type, bytes);
            Message::Event(Event::Publication(publication.with_binary(Some(binary))))
        };
        let text = r#"{"topic":4,"action":2,"name":"e","contentType":"a\/b","base64":"AP8="}"#;
        check(text, &of_bytes(Some("a/b"), &[0, 255]));
        let text = r#"{"topic":4,"action":2,"name":"e","base64":""}"#;
        check(text, &of_bytes(None, &[]));
        let ignored = r#"{"topic":4,"action":2,"name":"e","contentType":"a/b","base64":null}"#;
        check(ignored, &emit("e", None));
        for base64 in ["AP8", "AP9=", "A", "ä", r"AP8=\n"] {
            let text = format!(r#"{{"topic":4,"action":2,"name":"e","base64":"{base64}"}}"#);
            check_error(&text, DecodeError::Base64.into());
        }
        let number = r#"{"topic":4,"action":2,"name":"e","base64":7}"#;
        check_error(number, DecodeError::Field(FieldError::WireType).into());
    }

    #[test]
    fn attachments_are_a_list_of_base64() {
        let attached = |attachments: &[&[u8]]| {
            let publication = Publication::new("e", Some("1"), None, None);
            let attachments = Attachments::new(attachments.iter().copied());
            Message::Event(Event::Publication(
                publication.with_attachments(attachments),
            ))
        };
        let text = |list: &str| {
            format!(r#"{{"topic":4,"action":2,"name":"e","parsedData":1,"attachments":{list}}}"#)
        };
        check(&text(r#"["AP8=", ""]"#), &attached(&[&[0, 255], b""]));
        check(&text("[]"), &emit("e", Some("1")));
        check(&text("null"), &emit("e", Some("1")));
        // The engine refuses an event with eleven. A decoder needs no memory for more.
        let many = |count| text(&format!("[{}]", vec![r#""YQ==""#; count].join(",")));
        check(&many(10_000), &attached(&[&b"a"[..]; 11]));
        for list in ["{}", "7", r#""AP8=""#, "[7]", r#"["AP8=",null]"#, "[[]]"] {
            check_error(&text(list), DecodeError::Field(FieldError::WireType).into());
        }
        check_error(&text(r#"["AP8"]"#), DecodeError::Base64.into());
    }

    #[test]
    fn unknown_topics_and_actions_are_messages() {
        for text in [
            "{}",
            r#"{"action":2}"#,
            r#"{"topic":0}"#,
            r#"{"topic":1,"action":1}"#,
            r#"{"topic":11,"action":"x"}"#,
            r#"{"topic":null}"#,
        ] {
            check(text, &Message::UnknownTopic);
        }
        for (text, topic, action) in [
            (r#"{"topic":4}"#, Topic::Event, 0),
            (r#"{"topic":5,"action":7}"#, Topic::Record, 7),
            (
                r#"{"topic":6,"action":2147483647}"#,
                Topic::Rpc,
                2_147_483_647,
            ),
        ] {
            check(text, &Message::UnknownAction { topic, action });
        }
    }

    #[test]
    fn an_invalid_message_is_unreadable() {
        let wire_type = [
            "[]",
            "null",
            "4",
            r#""text""#,
            r#"{"topic":"4"}"#,
            r#"{"topic":"EVENT"}"#,
            r#"{"topic":true}"#,
            r#"{"topic":4,"action":"EMIT"}"#,
            r#"{"topic":4,"action":{}}"#,
            r#"{"topic":4,"action":2,"name":5}"#,
            r#"{"topic":4,"action":2,"name":["e"]}"#,
            r#"{"topic":4,"action":2,"data":{}}"#,
            r#"{"topic":4,"action":2,"isAck":0}"#,
            r#"{"topic":4,"action":2,"isAck":"true"}"#,
            r#"{"topic":4,"action":3,"names":"e"}"#,
            r#"{"topic":4,"action":3,"names":{"a":"e"}}"#,
            r#"{"topic":4,"action":3,"names":["e",1]}"#,
            r#"{"topic":4,"action":3,"names":[null]}"#,
            r#"{"topic":5,"action":8,"versions":[1]}"#,
            r#"{"topic":5,"action":8,"versions":{"a":"1"}}"#,
            r#"{"topic":5,"action":62,"incarnation":7}"#,
            r#"{"topic":4,"action":2,"name":"e","offset":"7"}"#,
            r#"{"topic":4,"action":3,"names":[],"positions":{}}"#,
            r#"{"topic":4,"action":3,"names":[],"positions":["e"]}"#,
            r#"{"topic":4,"action":3,"names":[],"positions":[{"name":"e","epoch":"1"}]}"#,
        ];
        for text in wire_type {
            check_error(text, DecodeError::Field(FieldError::WireType).into());
        }
        for text in [
            r#"{"topic":-1}"#,
            r#"{"topic":2147483648}"#,
            r#"{"topic":4,"action":1.5}"#,
            r#"{"topic":4,"action":1e400}"#,
            r#"{"topic":5,"action":18,"version":2147483648}"#,
            r#"{"topic":5,"action":18,"version":-2147483649}"#,
            r#"{"topic":4,"action":2,"name":"e","offset":-1}"#,
            r#"{"topic":4,"action":2,"name":"e","offset":18446744073709551616}"#,
            r#"{"topic":5,"action":62,"incarnation":"18446744073709551616"}"#,
            r#"{"topic":5,"action":62,"incarnation":"+7"}"#,
            r#"{"topic":5,"action":62,"incarnation":""}"#,
        ] {
            check_error(text, DecodeError::Field(FieldError::Range).into());
        }
        for text in [
            r#"{"topic":4,"action":2,"name":"\ud800"}"#,
            r#"{"topic":4,"action":2,"name":"e","data":"\ude00"}"#,
            r#"{"topic":4,"action":3,"names":["a","\ud800x"]}"#,
        ] {
            check_error(text, DecodeError::Field(FieldError::Utf8).into());
        }
        assert_eq!(
            JsonFields::read(b"{\"topic\":\xff}").err(),
            Some(DecodeError::Field(FieldError::Utf8).into())
        );
        check_error(
            r#"{"topic":4,"action":104,"name":"e"}"#,
            DecodeError::OriginalAction.into(),
        );
    }

    #[test]
    fn invalid_json_is_malformed() {
        for (text, offset) in [
            ("", 0),
            ("{", 1),
            (r#"{"topic":4,"action":2"#, 21),
            (r#"{"topic":4,}"#, 11),
            (r#"{"topic":4}{}"#, 11),
            (r#"{"topic":04}"#, 10),
            (r#"{topic:4}"#, 1),
            (r#"{"topic":4,"parsedData":undefined}"#, 24),
            (r#"{"topic":4,"parsedData":NaN}"#, 24),
            ("\u{feff}{}", 0),
        ] {
            check_error(text, TextError::Malformed { offset });
        }
    }

    #[test]
    fn nesting_of_payloads_is_not_checked_while_decoding() {
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        let text = format!(r#"{{"topic":4,"action":2,"name":"e","parsedData":{deep}}}"#);
        check(&text, &emit("e", Some(&deep)));
    }

    #[test]
    fn payloads_leave_as_they_stand_and_texts_are_escaped() {
        let check = |dialect, message: &Message<'_>, expected: &str| {
            let (mut payload, mut frame) = (Vec::new(), Vec::new());
            DeepstreamJson::encode(dialect, message, &mut payload);
            assert_eq!(String::from_utf8_lossy(&payload), expected);
            DeepstreamJson::encode_frame(dialect, message, &mut frame);
            assert_eq!(frame[0], 0x81);
            assert!(frame.ends_with(&payload));
        };
        let message = emit("a\"\n", Some(r#"{"b": "\ud800"}"#));
        let parsed = r#"{"topic":4,"action":2,"parsedData":{"b": "\ud800"},"name":"a\"\n"}"#;
        check(Dialect::Client, &message, parsed);
        let text = r#"{"topic":4,"action":2,"data":"{\"b\": \"\\ud800\"}","name":"a\"\n"}"#;
        check(Dialect::Server, &message, text);
        // deepstream's client passes the text of this message on unchanged.
        let action = RecordAction::Bulk(RecordBulk::Notify);
        let notify = Refusal {
            data: Some("\"no\""),
            correlation: Some("1"),
            ..Refusal::new(Reason::NotifyFailed, action)
        };
        let expected =
            r#"{"topic":5,"action":113,"data":"\"no\"","correlationId":"1","isError":true}"#;
        check(
            Dialect::Client,
            &Message::Record(Record::Error(notify)),
            expected,
        );
        let write = Write {
            name: "r",
            version: -1,
            correlation: None,
            write_ack: true,
            key: None,
        };
        let change = Change::PatchMulti {
            data: Some("[]"),
            full: Some("{}"),
        };
        let expected =
            r#"{"topic":5,"action":18,"parsedData":{},"name":"r","isWriteAck":true,"version":-1}"#;
        check(
            Dialect::Client,
            &Message::Record(Record::Write(write, change)),
            expected,
        );
        let versions = vec![("a\\", 0), ("b", -7)];
        let expected = r#"{"topic":5,"action":8,"versions":{"a\\":0,"b":-7}}"#;
        let message = Message::Record(Record::HeadResponseBulk { versions });
        check(Dialect::Client, &message, expected);
        // Lists that an answer is about are there when they are empty; others are not.
        let versions = Vec::new();
        let message = Message::Record(Record::HeadResponseBulk { versions });
        let expected = r#"{"topic":5,"action":8,"versions":{}}"#;
        check(Dialect::Client, &message, expected);
        let names = Vec::new();
        let message = Message::Presence(Presence::QueryAllResponse { names });
        let expected = r#"{"topic":7,"action":3,"names":[]}"#;
        check(Dialect::Client, &message, expected);
        let message = Message::Event(Event::Ack {
            action: EventBulk::Subscribe,
            correlation: Some("0"),
        });
        let expected = r#"{"topic":4,"action":3,"correlationId":"0","isAck":true}"#;
        check(Dialect::Client, &message, expected);
    }
}

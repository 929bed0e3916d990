//! A line protocol: each text message is a command and its words. It shows that a protocol is one folder and one line.
//!
//! A client sends `HELLO`, `LOGIN JSON`, `SUBSCRIBE EVENT`, `PUBLISH EVENT JSON`, `AGAIN JSON` for the event that it published last, and
//! `PONG`. The server sends `READY`, `WELCOME`, `SUBSCRIBED`, `EVENT NAME JSON` and `PING`, and `REFUSED` in place of all other messages.

use std::borrow::Cow;

use tidewire_core::message::{Auth, Connection, Event, Message};
use tidewire_core::settings::{Liveness, PEER_PINGS};

use super::{CloseCause, CloseWords, Codec, ForeignPayload, Introduction, Paths, Variant};
use crate::frame::websocket::{self, Opcode, PayloadKind};

/// The codec.
#[derive(Clone, Copy, Debug)]
pub struct Lines;

/// A line, cut into words.
#[derive(Debug)]
pub struct Line<'a> {
    command: &'a str,
    event: Cow<'a, str>,
    json: Option<&'a str>,
}

fn cut(text: &str) -> (&str, &str) {
    text.split_once(' ').unwrap_or((text, ""))
}

fn line(message: &Message<'_>) -> String {
    match message {
        Message::Connection(Connection::Ping) => "PING".into(),
        Message::Connection(Connection::Accept) => "READY".into(),
        Message::Auth(Auth::Successful { .. }) => "WELCOME".into(),
        Message::Event(Event::Ack { .. }) => "SUBSCRIBED".into(),
        Message::Event(Event::Publication(published)) => {
            format!("EVENT {} {}", published.name, published.data.unwrap_or(""))
        }
        _ => "REFUSED".into(),
    }
}

impl Codec for Lines {
    const NAME: &'static str = "lines";
    const CLIENTS: &'static str = "clients that speak lines";
    const KIND: PayloadKind = PayloadKind::Text;
    const VARIANTS: u8 = 1;
    const HAS_BATCHES: bool = false;
    const PATHS: Paths = Paths::Fixed(&["/lines"]);
    const SUBPROTOCOLS: &'static [&'static str] = &["lines"];
    const LIVENESS: Liveness = Liveness {
        server_pings: true,
        ..PEER_PINGS
    };

    /// The event that the client published last.
    type State = Option<Box<str>>;
    type Payload<'a> = Line<'a>;

    fn read<'a>(
        last: &Self::State,
        kind: PayloadKind,
        payload: &'a [u8],
    ) -> Result<Line<'a>, ForeignPayload> {
        if kind == PayloadKind::Binary {
            return Err(ForeignPayload::NotText);
        }
        let malformed = |error: std::str::Utf8Error| ForeignPayload::Malformed {
            format: "line",
            offset: error.valid_up_to(),
        };
        let (command, rest) = cut(std::str::from_utf8(payload).map_err(malformed)?);
        let (event, json): (Cow<'a, str>, Option<&'a str>) = match command {
            "LOGIN" => (Cow::default(), Some(rest)),
            "SUBSCRIBE" => (rest.into(), None),
            "PUBLISH" => (cut(rest).0.into(), Some(cut(rest).1)),
            "AGAIN" => (
                last.clone().unwrap_or_default().into_string().into(),
                Some(rest),
            ),
            _ => (Cow::default(), None),
        };
        Ok(Line {
            command,
            event,
            json,
        })
    }

    fn advance(last: &mut Self::State, line: &Line<'_>) {
        if line.command == "PUBLISH" {
            *last = Some(line.event.as_ref().into());
        }
    }

    fn message<'p>(line: &'p Line<'_>) -> Option<Message<'p>> {
        Some(match line.command {
            "HELLO" => Message::Connection(Connection::challenge(false)),
            "LOGIN" => Message::Auth(Auth::Request { data: line.json }),
            "PONG" => Message::Connection(Connection::Pong),
            "SUBSCRIBE" => Message::Event(Event::Subscribe {
                names: vec![&*line.event],
                correlation: None,
                positions: Vec::new(),
            }),
            "PUBLISH" | "AGAIN" => Message::Event(Event::publication(&line.event, line.json)),
            _ => return None,
        })
    }

    fn introduction(message: &Message<'_>) -> Option<Introduction> {
        let is_hello = matches!(message, Message::Connection(Connection::Challenge { .. }));
        is_hello.then(Introduction::default)
    }

    fn encode(_: Variant, message: &Message<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(line(message).as_bytes());
    }

    fn encode_frame(_: Variant, message: &Message<'_>, out: &mut Vec<u8>) {
        websocket::encode(Opcode::Text, line(message).as_bytes(), out);
    }

    fn first_bytes(batch: &[u8]) -> Option<usize> {
        Some(batch.len())
    }

    fn close_words(cause: CloseCause) -> CloseWords {
        let CloseWords { code, text } = CloseWords::standard(cause);
        CloseWords {
            code,
            text: format!("BYE, {text}").into(),
        }
    }
}

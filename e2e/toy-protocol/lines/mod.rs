//! A line protocol: each text message is a command and its words. It shows that a protocol is one folder and one line.
//!
//! A client sends `LOGIN JSON`, also for another user, `LOGOUT`, `SUBSCRIBE EVENT`, `PUBLISH EVENT JSON`, `AGAIN JSON` for the event that it
//! published last, and `PONG`. The server sends `WELCOME`, `SUBSCRIBED`, `EVENT NAME JSON` and `PING`, and `REFUSED` for all other messages.
//! `KEEP` gets `KEPT TOKEN`, and `RESUME TOKEN COUNT` on a later connection `RESUMED COUNT`, then the lines behind the first `COUNT`.

use std::borrow::Cow;

use tidewire_core::message::{Auth, Connection, Event, Message};
use tidewire_core::settings::Liveness;

use super::{CloseCause, CloseWords, Codec, ForeignPayload, Paths, Variant};
use super::{SessionReply, SessionRequest};
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
    const LIVENESS: Liveness = Liveness::PingsSilent;

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
        let text = std::str::from_utf8(payload).map_err(|_| ForeignPayload::NotText)?;
        let (command, rest) = cut(text);
        let again = || last.clone().unwrap_or_default().into_string().into();
        let (event, json): (Cow<'a, str>, Option<&'a str>) = match command {
            "LOGIN" | "KEEP" | "RESUME" => (Cow::default(), Some(rest)),
            "SUBSCRIBE" => (rest.into(), None),
            "PUBLISH" => (cut(rest).0.into(), Some(cut(rest).1)),
            "AGAIN" => (again(), Some(rest)),
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
            "LOGIN" | "LOGOUT" => Message::Auth(Auth::Change { data: line.json }),
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

    fn session_request<'p>(line: &'p Line<'_>) -> Option<SessionRequest<'p>> {
        let (token, count) = cut(line.json.unwrap_or_default());
        let received = count.parse().unwrap_or(0);
        match line.command {
            "KEEP" => Some(SessionRequest::Keep),
            "RESUME" => Some(SessionRequest::Resume { token, received }),
            _ => None,
        }
    }

    fn encode_session_reply(_: Variant, reply: SessionReply<'_>, out: &mut Vec<u8>) {
        let line = match reply {
            SessionReply::Kept { token } => format!("KEPT {token}"),
            SessionReply::Resumed { received } => format!("RESUMED {received}"),
            SessionReply::Refused(reason) => format!("REFUSED {reason}"),
        };
        websocket::encode(Opcode::Text, line.as_bytes(), out);
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
        let mut words = CloseWords::standard(cause);
        words.text = format!("BYE, {}", words.text).into();
        words
    }
}

//! The NATS client protocol over WebSocket: lines of text in binary frames that may end anywhere, so the input is a
//! stream.
//!
//! The server excludes publishers (`echo: false`). Names are used as subjects unchanged, without dots and spaces.

use tidewire_wire::frame::websocket::{self, Opcode};

use super::{Abilities, Incoming, MASK, Unintelligible};

/// Ends each line, and each payload.
const LINE_END: &[u8] = b"\r\n";
/// The subscribed names.
const NAMES: &str = "1";
/// Answers to calls.
const ANSWERS: &str = "2";
/// Calls to answer.
const CALLS: &str = "3";

/// The client's end.
#[derive(Debug)]
pub struct Nats {
    /// The connection's number, which makes the subject of its answers unique.
    connection: usize,
    /// The first PONG ends the login, later ones confirm the requests before them.
    is_logged_in: bool,
    /// Whether it has subscribed to answers of calls.
    has_answers: bool,
    /// The start of an incomplete line or payload.
    rest: Vec<u8>,
}

impl Nats {
    /// Its name on the command line and in results.
    pub const NAME: &str = "nats";
    /// The path of a NATS server's WebSocket.
    pub const PATH: &str = "/";
    /// Besides publish and subscribe it has requests and replies; its documents use another protocol.
    pub(super) const ABILITIES: Abilities = Abilities {
        records: false,
        rpc: true,
        queries: false,
        scopes: false,
    };

    pub(super) fn new(connection: usize) -> Self {
        Self {
            connection,
            is_logged_in: false,
            has_answers: false,
            rest: Vec::new(),
        }
    }

    pub(super) fn take<E: From<Unintelligible>>(
        &mut self,
        payload: &[u8],
        out: &mut Vec<u8>,
        mut handle: impl FnMut(Incoming<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.rest.is_empty() {
            let taken = self.take_all(payload, out, &mut handle)?;
            self.rest.extend_from_slice(&payload[taken..]);
            return Ok(());
        }
        let mut stream = std::mem::take(&mut self.rest);
        stream.extend_from_slice(payload);
        let taken = self.take_all(&stream, out, &mut handle)?;
        stream.drain(..taken);
        self.rest = stream;
        Ok(())
    }

    /// Handles the complete messages of `stream` and returns their length.
    fn take_all<E: From<Unintelligible>>(
        &mut self,
        stream: &[u8],
        out: &mut Vec<u8>,
        handle: &mut impl FnMut(Incoming<'_>) -> Result<(), E>,
    ) -> Result<usize, E> {
        let mut taken = 0;
        while let Some((line, rest)) = split_line(&stream[taken..]) {
            let line = super::text(line)?;
            let mut used = line.len() + LINE_END.len();
            match line.strip_prefix("MSG ") {
                Some(message) => {
                    let head = Head::parse(message).ok_or_else(|| unexpected(line))?;
                    let Some(payload) = rest.get(..head.payload_bytes + LINE_END.len()) else {
                        return Ok(taken);
                    };
                    used += payload.len();
                    let payload = super::text(&payload[..head.payload_bytes])?;
                    take_message(&head, payload, line, out, handle)?;
                }
                None => self.take_line(line, out, handle)?,
            }
            taken += used;
        }
        Ok(taken)
    }

    fn take_line<E: From<Unintelligible>>(
        &mut self,
        line: &str,
        out: &mut Vec<u8>,
        handle: &mut impl FnMut(Incoming<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        match line {
            "PING" => {
                push("PONG\r\n", out);
                Ok(())
            }
            "PONG" if self.is_logged_in => handle(Incoming::Subscribed),
            "PONG" => {
                self.is_logged_in = true;
                handle(Incoming::Ready)
            }
            // Sent again during the connection when the cluster changes.
            _ if line.starts_with("INFO ") => {
                if !self.is_logged_in {
                    let options = r#"{"verbose":false,"pedantic":false,"echo":false,"lang":"rust","version":"0"}"#;
                    push(&format!("CONNECT {options}\r\nPING\r\n"), out);
                }
                Ok(())
            }
            _ => Err(unexpected(line).into()),
        }
    }

    pub(super) fn subscribe(&mut self, names: &[&str], out: &mut Vec<u8>) {
        let mut lines = String::new();
        for name in names {
            lines.push_str(&format!("SUB {name} {NAMES}\r\n"));
        }
        lines.push_str("PING\r\n");
        push(&lines, out);
    }

    pub(super) fn publish(&mut self, name: &str, payload: &str, out: &mut Vec<u8>) {
        push(
            &format!("PUB {name} {}\r\n{payload}\r\n", payload.len()),
            out,
        );
    }

    pub(super) fn provide(&mut self, name: &str, out: &mut Vec<u8>) {
        // In a queue group, so that a call goes to one provider.
        push(&format!("SUB {name} providers {CALLS}\r\nPING\r\n"), out);
    }

    pub(super) fn call(&mut self, name: &str, number: u64, out: &mut Vec<u8>) {
        let inbox = self.connection;
        if !std::mem::replace(&mut self.has_answers, true) {
            push(&format!("SUB _INBOX.{inbox}.* {ANSWERS}\r\n"), out);
        }
        let payload = number.to_string();
        let bytes = payload.len();
        let line = format!("PUB {name} _INBOX.{inbox}.{number} {bytes}\r\n{payload}\r\n");
        push(&line, out);
    }
}

/// The rest of a line after `MSG`: `SUBJECT SID [REPLY-TO] BYTES`.
struct Head<'a> {
    subject: &'a str,
    subscription: &'a str,
    reply_to: Option<&'a str>,
    payload_bytes: usize,
}

impl<'a> Head<'a> {
    fn parse(head: &'a str) -> Option<Self> {
        let (subject, rest) = head.split_once(' ')?;
        let (subscription, rest) = rest.split_once(' ')?;
        let (reply_to, bytes) = match rest.split_once(' ') {
            Some((reply_to, bytes)) => (Some(reply_to), bytes),
            None => (None, rest),
        };
        Some(Self {
            subject,
            subscription,
            reply_to,
            payload_bytes: bytes.parse().ok()?,
        })
    }
}

fn take_message<E: From<Unintelligible>>(
    head: &Head<'_>,
    payload: &str,
    line: &str,
    out: &mut Vec<u8>,
    handle: &mut impl FnMut(Incoming<'_>) -> Result<(), E>,
) -> Result<(), E> {
    match (head.subscription, head.reply_to) {
        (NAMES, _) => handle(Incoming::Delivery {
            name: Some(head.subject),
            payload,
        }),
        (CALLS, Some(reply_to)) => {
            push(
                &format!("PUB {reply_to} {}\r\n{payload}\r\n", payload.len()),
                out,
            );
            handle(Incoming::Served)
        }
        (ANSWERS, _) => {
            let number = head.subject.rsplit('.').next();
            let number = number.and_then(|number| number.parse().ok());
            let number = number.ok_or_else(|| unexpected(line))?;
            handle(Incoming::Response { number })
        }
        _ => Err(unexpected(line).into()),
    }
}

/// The first line without its end, and the rest.
fn split_line(stream: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = stream.iter().position(|&byte| byte == b'\n')?;
    let line = stream[..end].strip_suffix(b"\r")?;
    Some((line, &stream[end + 1..]))
}

fn push(lines: &str, out: &mut Vec<u8>) {
    websocket::encode_masked(Opcode::Binary, lines.as_bytes(), MASK, out);
}

fn unexpected(line: &str) -> Unintelligible {
    Unintelligible(format!("received {line:?}"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{sent, take};
    use super::super::{Driver, Protocol};

    const STREAM: &str = "INFO {\"version\":\"2.9.10\"}\r\nPONG\r\nPONG\r\nMSG bench/grid 1 2\r\n17\r\nPING\r\n\
                          MSG add 3 _INBOX.4.9 1\r\n5\r\nMSG _INBOX.7.12 2 1\r\n5\r\nMSG odd 1 6\r\na\r\n\r\nb\r\n";

    #[test]
    fn a_stream_gives_the_same_wherever_frames_end() {
        let expected = [
            "Ready",
            "Subscribed",
            "Delivery { name: Some(\"bench/grid\"), payload: \"17\" }",
            "Served",
            "Response { number: 12 }",
            "Delivery { name: Some(\"odd\"), payload: \"a\\r\\n\\r\\nb\" }",
        ];
        for cut in 0..STREAM.len() {
            let mut driver = Driver::new(Protocol::Nats, 7, false);
            let (first, mut answers) = take(&mut driver, &STREAM.as_bytes()[..cut]);
            let (second, more) = take(&mut driver, &STREAM.as_bytes()[cut..]);
            let seen = [first.unwrap(), second.unwrap()].concat();
            answers.extend(more);
            assert_eq!(seen, expected, "cut at {cut}");
            assert_eq!(answers.len(), 3, "cut at {cut}");
            assert!(answers[0].starts_with("CONNECT {") && answers[0].ends_with("PING\r\n"));
            assert_eq!(answers[1..], ["PONG\r\n", "PUB _INBOX.4.9 1\r\n5\r\n"]);
        }
    }

    #[test]
    fn foreign_input_is_refused() {
        let refused = |stream: &str| {
            let mut driver = Driver::new(Protocol::Nats, 7, false);
            take(&mut driver, stream.as_bytes()).0.is_err()
        };
        assert!(refused("-ERR 'Authorization Violation'\r\n"));
        assert!(refused("MSG a 1 many\r\n"));
        assert!(refused("MSG a 9 1\r\n5\r\n"));
        assert!(refused("MSG _INBOX.7.x 2 1\r\n5\r\n"));
    }

    #[test]
    fn requests_are_lines() {
        let mut driver = Driver::new(Protocol::Nats, 7, false);
        assert!(sent(|out| driver.hello(out)).is_empty());
        let subscribed = sent(|out| driver.subscribe(&["a", "b"], out));
        assert_eq!(subscribed, ["SUB a 1\r\nSUB b 1\r\nPING\r\n"]);
        let published = sent(|out| driver.publish("a", "17", out));
        assert_eq!(published, ["PUB a 2\r\n17\r\n"]);
        let called = sent(|out| driver.call("add", 12, out));
        assert_eq!(
            called,
            ["SUB _INBOX.7.* 2\r\n", "PUB add _INBOX.7.12 2\r\n12\r\n"]
        );
        let again = sent(|out| driver.call("add", 13, out));
        assert_eq!(again, ["PUB add _INBOX.7.13 2\r\n13\r\n"]);
        let provided = sent(|out| driver.provide("add", out));
        assert_eq!(provided, ["SUB add providers 3\r\nPING\r\n"]);
    }
}

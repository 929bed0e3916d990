//! Socket.IO 5 over Engine.IO 4, over WebSocket alone, in the few packets that the rival servers in `rivals/` exchange.
//!
//! `join`, `publish`, `provide` and `request` are their events; a publication arrives as an event with its name. Not
//! supported: other namespaces, binary packets, long polling.

use tidewire_wire::frame::websocket::{self, Opcode};

use super::{Abilities, Incoming, MASK, Unintelligible};

/// The acknowledgement of `join` and `provide`; calls count from the one after it.
const CONTROL_ACK: u64 = 0;

/// The client's end. The packets carry all state.
#[derive(Debug, Default)]
pub struct SocketIo;

impl SocketIo {
    /// Its name on the command line and in results.
    pub const NAME: &str = "socketio";
    /// The path of Socket.IO servers, with the version and the transport of this driver.
    pub const PATH: &str = "/socket.io/?EIO=4&transport=websocket";
    /// Besides publish and subscribe it has acknowledgements, which carry an rpc; it keeps no data.
    pub(super) const ABILITIES: Abilities = Abilities {
        records: false,
        rpc: true,
        queries: false,
        scopes: false,
    };

    pub(super) fn take<E: From<Unintelligible>>(
        &mut self,
        payload: &[u8],
        out: &mut Vec<u8>,
        mut handle: impl FnMut(Incoming<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let text = super::text(payload)?;
        let Some((packet, rest)) = text.split_at_checked(2) else {
            // A packet of Engine.IO alone; the only one that a server sends after the first is its heartbeat.
            if text != "2" {
                return Err(unexpected(text).into());
            }
            push("3", out);
            return Ok(());
        };
        match packet {
            "0{" => {
                push("40", out);
                Ok(())
            }
            "40" => handle(Incoming::Ready),
            "42" => take_event(rest, text, out, handle),
            "43" => match split_number(rest) {
                (Some(CONTROL_ACK), _) => handle(Incoming::Subscribed),
                (Some(ack), _) => handle(Incoming::Response {
                    number: ack - CONTROL_ACK - 1,
                }),
                (None, _) => Err(unexpected(text).into()),
            },
            _ => Err(unexpected(text).into()),
        }
    }

    pub(super) fn subscribe(&mut self, names: &[&str], out: &mut Vec<u8>) {
        let names = names.join("\",\"");
        push(&format!("42{CONTROL_ACK}[\"join\",[\"{names}\"]]"), out);
    }

    pub(super) fn publish(&mut self, name: &str, payload: &str, out: &mut Vec<u8>) {
        push_parts(&["42[\"publish\",\"", name, "\",", payload, "]"], out);
    }

    pub(super) fn provide(&mut self, name: &str, out: &mut Vec<u8>) {
        push(&format!("42{CONTROL_ACK}[\"provide\",\"{name}\"]"), out);
    }

    pub(super) fn call(&mut self, name: &str, number: u64, out: &mut Vec<u8>) {
        let ack = CONTROL_ACK + 1 + number;
        push(&format!("42{ack}[\"request\",\"{name}\",{number}]"), out);
    }
}

/// `["NAME",PAYLOAD]`, after the number of an acknowledgement if it is a call, which is answered with its payload.
fn take_event<E: From<Unintelligible>>(
    event: &str,
    text: &str,
    out: &mut Vec<u8>,
    mut handle: impl FnMut(Incoming<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let (ack, event) = split_number(event);
    // Names of scenarios need no escapes, so the first quote ends them.
    let (name, payload) = event
        .strip_prefix("[\"")
        .and_then(|event| event.strip_suffix(']'))
        .and_then(|event| event.split_once("\","))
        .ok_or_else(|| unexpected(text))?;
    let Some(ack) = ack else {
        return handle(Incoming::Delivery {
            name: Some(name),
            payload,
        });
    };
    push(&format!("43{ack}[{payload}]"), out);
    handle(Incoming::Served)
}

/// The number at the start of `text`, if there is one, and the rest.
fn split_number(text: &str) -> (Option<u64>, &str) {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(end);
    (number.parse().ok(), rest)
}

fn push(packet: &str, out: &mut Vec<u8>) {
    websocket::encode_masked(Opcode::Text, packet.as_bytes(), MASK, out);
}

/// As [`push`], without a copy of the whole.
fn push_parts(parts: &[&str], out: &mut Vec<u8>) {
    let bytes = parts.iter().map(|part| part.len()).sum();
    websocket::encode_masked_with(Opcode::Text, bytes, MASK, out, |out| {
        for part in parts {
            out.extend_from_slice(part.as_bytes());
        }
    });
}

fn unexpected(packet: &str) -> Unintelligible {
    Unintelligible(format!("received {packet:?}"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{sent, take};
    use super::super::{Driver, Protocol};

    #[test]
    fn a_session_as_socket_io_4_8_speaks_it() {
        let mut driver = Driver::new(Protocol::SocketIo, 0, false);
        let mut check = |packet: &str, expected: &[&str], answers: &[&str]| {
            let (seen, answer) = take(&mut driver, packet.as_bytes());
            assert_eq!(seen.unwrap(), expected, "{packet:?}");
            assert_eq!(answer, answers, "{packet:?}");
        };
        let open = r#"0{"sid":"YFqnvtZdpwsI_5_AAAAA","upgrades":[],"pingInterval":25000,"pingTimeout":20000}"#;
        check(open, &[], &["40"]);
        check("2", &[], &["3"]);
        check(r#"40{"sid":"7yB5ljU0T1ZGheg2AAAA"}"#, &["Ready"], &[]);
        check("430[]", &["Subscribed"], &[]);
        check(
            r#"42["bench/grid",17]"#,
            &[r#"Delivery { name: Some("bench/grid"), payload: "17" }"#],
            &[],
        );
        check(r#"4211["add",[1,2]]"#, &["Served"], &["4311[[1,2]]"]);
        check("437[34]", &["Response { number: 6 }"], &[]);
    }

    #[test]
    fn foreign_input_is_refused() {
        let mut driver = Driver::new(Protocol::SocketIo, 0, false);
        for packet in [
            "",
            "1",
            "44{\"message\":\"no\"}",
            "43[]",
            "42[17]",
            "\u{e9}\u{e9}",
        ] {
            assert!(
                take(&mut driver, packet.as_bytes()).0.is_err(),
                "{packet:?}"
            );
        }
    }

    #[test]
    fn requests_are_events_of_the_rival_programs() {
        let mut driver = Driver::new(Protocol::SocketIo, 0, false);
        assert!(sent(|out| driver.hello(out)).is_empty());
        let joined = sent(|out| driver.subscribe(&["a", "b"], out));
        assert_eq!(joined, [r#"420["join",["a","b"]]"#]);
        let published = sent(|out| driver.publish("a", "17", out));
        assert_eq!(published, [r#"42["publish","a",17]"#]);
        let called = sent(|out| driver.call("add", 6, out));
        assert_eq!(called, [r#"427["request","add",6]"#]);
        let provided = sent(|out| driver.provide("add", out));
        assert_eq!(provided, [r#"420["provide","add"]"#]);
    }
}

//! The bench's own contract for servers that have no protocol above WebSocket, which `docs/bench.md` documents: text frames
//! of two kinds. `+NAME NAME ...` subscribes and is answered by `+`; `NAME PAYLOAD` publishes and arrives the same.

use tidewire_wire::frame::websocket::{self, Opcode};

use super::{Incoming, MASK, Unintelligible};

/// Starts a subscription and its answer. No name starts with it.
const SUBSCRIBE: u8 = b'+';

/// The client's end.
#[derive(Debug, Default)]
pub struct Plain {
    /// The first answer shows that the server is ready, later ones that names are subscribed.
    is_answered: bool,
}

impl Plain {
    /// Its name on the command line and in results.
    pub const NAME: &str = "plain";
    /// The path of servers of this contract.
    pub const PATH: &str = "/";

    pub(super) fn hello(&mut self, out: &mut Vec<u8>) {
        self.subscribe(&[], out);
    }

    pub(super) fn take<E: From<Unintelligible>>(
        &mut self,
        payload: &[u8],
        mut handle: impl FnMut(Incoming<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if payload == [SUBSCRIBE] {
            let incoming = match std::mem::replace(&mut self.is_answered, true) {
                false => Incoming::Ready,
                true => Incoming::Subscribed,
            };
            return handle(incoming);
        }
        let text = super::text(payload)?;
        let (name, payload) = text
            .split_once(' ')
            .ok_or_else(|| Unintelligible(format!("received {text:?}")))?;
        handle(Incoming::Delivery {
            name: Some(name),
            payload,
        })
    }

    pub(super) fn subscribe(&mut self, names: &[&str], out: &mut Vec<u8>) {
        let text = format!("{}{}", char::from(SUBSCRIBE), names.join(" "));
        websocket::encode_masked(Opcode::Text, text.as_bytes(), MASK, out);
    }

    pub(super) fn publish(&mut self, name: &str, payload: &str, out: &mut Vec<u8>) {
        let bytes = name.len() + 1 + payload.len();
        websocket::encode_masked_with(Opcode::Text, bytes, MASK, out, |out| {
            out.extend_from_slice(name.as_bytes());
            out.push(b' ');
            out.extend_from_slice(payload.as_bytes());
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{sent, take};
    use super::super::{Driver, Protocol};

    #[test]
    fn answers_and_publications_are_distinguished() {
        let mut driver = Driver::new(Protocol::Plain, 0, false);
        let mut check = |payload: &str, expected: &[&str]| {
            let (seen, answer) = take(&mut driver, payload.as_bytes());
            assert_eq!(seen.unwrap(), expected, "{payload:?}");
            assert!(answer.is_empty());
        };
        check("+", &["Ready"]);
        check("+", &["Subscribed"]);
        check(
            "bench/grid {\"a\": 1}",
            &["Delivery { name: Some(\"bench/grid\"), payload: \"{\\\"a\\\": 1}\" }"],
        );
        assert!(take(&mut driver, b"nonsense").0.is_err());
        assert!(take(&mut driver, b"\xff 1").0.is_err());
    }

    #[test]
    fn requests_are_text_frames() {
        let mut driver = Driver::new(Protocol::Plain, 0, false);
        assert_eq!(sent(|out| driver.hello(out)), ["+"]);
        assert_eq!(sent(|out| driver.subscribe(&["a", "b"], out)), ["+a b"]);
        assert_eq!(sent(|out| driver.publish("a", "1", out)), ["a 1"]);
    }
}

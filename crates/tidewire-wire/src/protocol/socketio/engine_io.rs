//! Engine.IO 4, which carries the packets: the query of a handshake, and the first message of the server.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::frame::websocket::{self, Opcode};
use crate::protocol::{ExchangeRefusal, Handshake, HandshakeRefusal, HandshakeRequest, Terms};

/// A client must not ping.
pub const CLIENT_PING: &str = "the server pings, the client must not";

/// A random id of 20 characters, as long as the ids of other servers.
pub fn random_id() -> String {
    let mut bytes = [0; 15];
    getrandom::fill(&mut bytes).expect("the kernel has random numbers");
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A fault of a request, with the code and text of the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Transport,
    Session,
    Method,
    Request,
    Forbidden,
    Version,
}

impl Fault {
    const fn code(self) -> u8 {
        match self {
            Self::Transport => 0,
            Self::Session => 1,
            Self::Method => 2,
            Self::Request => 3,
            Self::Forbidden => 4,
            Self::Version => 5,
        }
    }

    const fn message(self) -> &'static str {
        match self {
            Self::Transport => "Transport unknown",
            Self::Session => "Session ID unknown",
            Self::Method => "Bad handshake method",
            Self::Request => "Bad request",
            Self::Forbidden => "Forbidden",
            Self::Version => "Unsupported protocol version",
        }
    }

    fn answer(self, is_upgrade: bool) -> HandshakeRefusal {
        let message = self.message();
        if is_upgrade {
            return HandshakeRefusal {
                status: 400,
                content_type: "text/html",
                body: message.into(),
            };
        }
        HandshakeRefusal {
            status: match self {
                Self::Forbidden => 403,
                _ => 400,
            },
            content_type: "application/json",
            body: format!(r#"{{"code":{},"message":"{message}"}}"#, self.code()).into(),
        }
    }
}

/// The answer to a request that the server refuses.
pub fn exchange_refusal(refusal: ExchangeRefusal, is_upgrade: bool) -> HandshakeRefusal {
    let fault = match refusal {
        ExchangeRefusal::Unknown => Fault::Session,
        ExchangeRefusal::OutOfTurn => Fault::Request,
        ExchangeRefusal::Forbidden => Fault::Forbidden,
    };
    fault.answer(is_upgrade)
}

/// The purpose of a request, which is checked in the order of the reference.
pub fn handshake<'a>(request: &HandshakeRequest<'a>) -> Result<Handshake<'a>, HandshakeRefusal> {
    purpose(request).map_err(|fault| fault.answer(request.is_upgrade))
}

fn purpose<'a>(request: &HandshakeRequest<'a>) -> Result<Handshake<'a>, Fault> {
    let is_polling = match parameter(request.query, "transport") {
        Some("polling") => true,
        Some("websocket") => false,
        _ => return Err(Fault::Transport),
    };
    if let Some(token) = parameter(request.query, "sid") {
        return match (is_polling, request.is_upgrade) {
            (false, true) => Ok(Handshake::Switch { token }),
            (true, false) if request.is_get => Ok(Handshake::Poll { token }),
            (true, false) if request.is_post => Ok(Handshake::Post { token }),
            _ => Ok(Handshake::Misuse { token }),
        };
    }
    if !request.is_get {
        return Err(Fault::Method);
    }
    if is_polling == request.is_upgrade {
        return Err(Fault::Request);
    }
    if parameter(request.query, "EIO") != Some("4") {
        return Err(Fault::Version);
    }
    match is_polling {
        true => Ok(Handshake::Open),
        false => Ok(Handshake::WebSocket),
    }
}

/// The value of a parameter of a query; the last one if there are several.
fn parameter<'a>(query: Option<&'a str>, name: &str) -> Option<&'a str> {
    let mut pairs = query?.rsplit('&');
    pairs.find_map(|pair| match pair.split_once('=') {
        Some((key, value)) => (key == name).then_some(value),
        None => (pair == name).then_some(""),
    })
}

/// Appends the frame that a WebSocket begins with.
pub fn greet(terms: &Terms, out: &mut Vec<u8>) {
    let packet = open_packet(terms, &random_id(), &[]);
    websocket::encode(Opcode::Text, packet.as_bytes(), out);
}

/// Appends the frame that a session of exchanges begins with.
pub fn greet_exchange(terms: &Terms, token: &str, out: &mut Vec<u8>) {
    let packet = open_packet(terms, token, &["websocket"]);
    websocket::encode(Opcode::Text, packet.as_bytes(), out);
}

/// The open packet, which has exactly these five keys.
fn open_packet(terms: &Terms, id: &str, upgrades: &[&str]) -> String {
    let interval = terms.heartbeat_interval.as_millis();
    let timeout = terms.heartbeat_timeout.as_millis();
    let mut text = format!(r#"0{{"sid":"{id}","upgrades":{upgrades:?},"#);
    // The client waits for a ping for the sum of both.
    let _ = write!(
        text,
        r#""pingInterval":{interval},"pingTimeout":{timeout},"maxPayload":{}}}"#,
        terms.message_bytes_max
    );
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::protocol::socketio::vectors;

    fn request(query: &str, is_upgrade: bool) -> HandshakeRequest<'_> {
        HandshakeRequest {
            query: Some(query),
            is_get: true,
            is_post: false,
            is_upgrade,
        }
    }

    #[test]
    fn refused_upgrades_have_the_message_of_the_reference() {
        let vectors = vectors();
        let cases = vectors["websocket_upgrade_errors"]
            .as_array()
            .expect("cases");
        for vector in cases {
            let query = vector["query"].as_str().expect("a query");
            let refused = match vector["id"].as_str() {
                Some("unknown-sid") => exchange_refusal(ExchangeRefusal::Unknown, true),
                Some("denied") => exchange_refusal(ExchangeRefusal::Forbidden, true),
                _ => handshake(&request(query, true)).expect_err(query),
            };
            assert_eq!(refused.content_type, vector["content_type"]);
            assert_eq!(vector["status"], refused.status);
            assert_eq!(
                refused.body,
                vector["response_body"].as_str().expect("a body")
            );
        }
    }

    #[test]
    fn requests_have_the_answers_of_the_reference() {
        let vectors = vectors();
        for vector in vectors["http"].as_array().expect("cases") {
            let text = |name: &str| vector[name].as_str().expect(name);
            let (id, method, query) = (text("id"), text("method"), text("query"));
            let request = HandshakeRequest {
                is_get: method == "GET",
                is_post: method == "POST",
                ..request(query, false)
            };
            let found = handshake(&request);
            let refused = match id {
                "handshake-ok" => {
                    assert_eq!(found, Ok(Handshake::Open));
                    continue;
                }
                "post-ok" | "post-octet-stream" | "post-too-large" => {
                    assert!(matches!(found, Ok(Handshake::Post { token: "<sid>" })));
                    continue;
                }
                // The body is not empty here.
                "second-poll" | "poll-after-upgrade" => {
                    assert!(matches!(found, Ok(Handshake::Poll { token: "<sid>" })));
                    exchange_refusal(ExchangeRefusal::OutOfTurn, false)
                }
                "unknown-sid" => exchange_refusal(ExchangeRefusal::Unknown, false),
                "denied" => exchange_refusal(ExchangeRefusal::Forbidden, false),
                // The status of the reference is 500.
                "put-with-sid" => {
                    assert_eq!(found, Ok(Handshake::Misuse { token: "<sid>" }));
                    continue;
                }
                _ => found.expect_err(id),
            };
            assert_eq!(vector["status"], refused.status, "{id}");
            if id != "second-poll" {
                assert_eq!(refused.content_type, vector["content_type"], "{id}");
                assert_eq!(refused.body, text("response_body"), "{id}");
            }
        }
    }

    #[test]
    fn the_last_parameter_counts_and_faults_have_an_order() {
        let check = |query, is_get, is_upgrade, expected: Result<Handshake<'_>, u8>| {
            let request = HandshakeRequest {
                is_get,
                is_post: !is_get,
                ..request(query, is_upgrade)
            };
            assert_eq!(purpose(&request).map_err(Fault::code), expected, "{query}");
        };
        let (opens, token) = (Ok(Handshake::WebSocket), "1");
        check("EIO=4&transport=websocket", true, true, opens);
        check("EIO=3&t=x&EIO=4&transport=websocket&a", true, true, opens);
        check("EIO=4&transport=websocket&EIO=3", true, true, Err(5));
        check("transport=websocket", true, true, Err(5));
        check("EIO=4&transport=websocket", true, false, Err(3));
        check("EIO=4&transport=websocket", false, false, Err(2));
        check("EIO=4&transport=polling", true, true, Err(3));
        check("EIO=4&transport=polling", false, true, Err(2));
        check("EIO=4&transport=__proto__&sid=1", true, true, Err(0));
        check(
            "transport=websocket&sid=1",
            true,
            true,
            Ok(Handshake::Switch { token }),
        );
        check(
            "transport=websocket&sid=1",
            false,
            false,
            Ok(Handshake::Misuse { token }),
        );
        check(
            "transport=polling&sid=1",
            true,
            true,
            Ok(Handshake::Misuse { token }),
        );
        check(
            "transport=polling&sid=1",
            true,
            false,
            Ok(Handshake::Poll { token }),
        );
        check(
            "transport=polling&sid=1",
            false,
            false,
            Ok(Handshake::Post { token }),
        );
        let json = handshake(&request("EIO=4", false)).expect_err("a refusal");
        assert_eq!(json.body, r#"{"code":0,"message":"Transport unknown"}"#);
    }

    #[test]
    fn the_open_packet_has_five_keys() {
        let terms = Terms {
            heartbeat_interval: Duration::from_secs(25),
            heartbeat_timeout: Duration::from_secs(20),
            message_bytes_max: 1_000_000,
        };
        for upgrades in [&["websocket"][..], &[]] {
            let id = random_id();
            let packet = open_packet(&terms, &id, upgrades);
            let json = packet.strip_prefix('0').expect("an open packet");
            let open: serde_json::Value = serde_json::from_str(json).expect("JSON");
            let expected = serde_json::json!({
                "sid": id,
                "upgrades": upgrades,
                "pingInterval": 25_000,
                "pingTimeout": 20_000,
                "maxPayload": 1_000_000,
            });
            assert_eq!((open, id.len()), (expected, 20));
            assert_ne!(random_id(), id, "each connection has another id");
        }
    }
}

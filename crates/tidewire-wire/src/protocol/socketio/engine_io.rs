//! Engine.IO 4, which carries the packets: the query of a handshake, and the first message of the server.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::protocol::{HandshakeRefusal, HandshakeRequest, Terms};

/// A random id of 20 characters, as long as those of other servers.
pub fn random_id() -> String {
    let mut bytes = [0; 15];
    getrandom::fill(&mut bytes).expect("the kernel has random numbers");
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Checks a request in the order of the reference.
pub fn refusal(request: &HandshakeRequest<'_>) -> Option<HandshakeRefusal> {
    let (code, message) = fault(request)?;
    Some(match request.is_upgrade {
        true => HandshakeRefusal {
            content_type: "text/html",
            body: message.into(),
        },
        false => HandshakeRefusal {
            content_type: "application/json",
            body: format!(r#"{{"code":{code},"message":"{message}"}}"#).into(),
        },
    })
}

fn fault(request: &HandshakeRequest<'_>) -> Option<(u8, &'static str)> {
    if parameter(request.query, "transport") != Some("websocket") {
        return Some((0, "Transport unknown"));
    }
    // A session begins and ends with its WebSocket, so no request can name one.
    if parameter(request.query, "sid").is_some() {
        return Some((1, "Session ID unknown"));
    }
    if !request.is_get {
        return Some((2, "Bad handshake method"));
    }
    if !request.is_upgrade {
        return Some((3, "Bad request"));
    }
    if parameter(request.query, "EIO") != Some("4") {
        return Some((5, "Unsupported protocol version"));
    }
    None
}

/// The value of a parameter of a query; the last one if there are several.
fn parameter<'a>(query: Option<&'a str>, name: &str) -> Option<&'a str> {
    let mut pairs = query?.rsplit('&');
    pairs.find_map(|pair| match pair.split_once('=') {
        Some((key, value)) => (key == name).then_some(value),
        None => (pair == name).then_some(""),
    })
}

/// The open packet, which has exactly these five keys.
pub fn open_packet(terms: &Terms) -> String {
    let interval = terms.heartbeat_interval.as_millis();
    let mut text = format!(r#"0{{"sid":"{}","upgrades":[],"#, random_id());
    // The client waits for a ping for the sum of both.
    let _ = write!(
        text,
        r#""pingInterval":{interval},"pingTimeout":{interval},"maxPayload":{}}}"#,
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
            is_upgrade,
        }
    }

    #[test]
    fn refused_upgrades_have_the_message_of_the_reference() {
        let vectors = vectors();
        let cases = vectors["websocket_upgrade_errors"]
            .as_array()
            .expect("cases");
        // The fourth needs a hook of the application.
        for vector in cases.iter().filter(|vector| vector["id"] != "denied") {
            let query = vector["query"].as_str().expect("a query");
            let refused = refusal(&request(query, true)).expect(query);
            assert_eq!(refused.content_type, vector["content_type"]);
            assert_eq!(
                refused.body,
                vector["response_body"].as_str().expect("a body")
            );
        }
    }

    #[test]
    fn the_last_parameter_counts_and_faults_have_an_order() {
        let check = |query, is_get, is_upgrade, expected: Option<u8>| {
            let request = HandshakeRequest {
                is_get,
                ..request(query, is_upgrade)
            };
            assert_eq!(fault(&request).map(|(code, _)| code), expected, "{query}");
        };
        check("EIO=4&transport=websocket", true, true, None);
        check("EIO=3&t=x&EIO=4&transport=websocket&a", true, true, None);
        check("EIO=4&transport=websocket&EIO=3", true, true, Some(5));
        check("transport=websocket", true, true, Some(5));
        check("EIO=4&transport=websocket", true, false, Some(3));
        check("EIO=4&transport=websocket", false, false, Some(2));
        check("transport=websocket&sid=1", false, false, Some(1));
        check("EIO=4&transport=polling", false, true, Some(0));
        check("EIO=4&transport=__proto__&sid=1", true, true, Some(0));
        let json = refusal(&request("EIO=4", false)).expect("a refusal");
        assert_eq!(json.body, r#"{"code":0,"message":"Transport unknown"}"#);
    }

    #[test]
    fn the_open_packet_has_five_keys() {
        let terms = Terms {
            heartbeat_interval: Duration::from_secs(30),
            message_bytes_max: 1_000_000,
        };
        let packet = open_packet(&terms);
        let json = packet.strip_prefix('0').expect("an open packet");
        let open: serde_json::Value = serde_json::from_str(json).expect("JSON");
        let mut keys: Vec<_> = open.as_object().expect("an object").keys().collect();
        keys.sort_unstable();
        assert_eq!(
            keys,
            [
                "maxPayload",
                "pingInterval",
                "pingTimeout",
                "sid",
                "upgrades"
            ]
        );
        assert_eq!(open["sid"].as_str().map(str::len), Some(20));
        assert_ne!(
            open_packet(&terms),
            packet,
            "each connection has another id"
        );
    }
}

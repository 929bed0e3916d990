//! Events and acknowledgements as backends get and send them: with all their arguments, whatever the name of the event.

use std::borrow::Cow;

use tidewire_core::attachments::Attachments;
use tidewire_core::json;
use tidewire_core::message::{Backend, BackendKind};

use super::packet::{Packet, PacketType, is_event};
use super::write::Sent;
use crate::protocol::Namespace;

/// The message of an event or an acknowledgement for the backend of its session; `None` for other packets.
pub fn message<'p>(
    packet: &Packet<'p>,
    attachments: Option<Attachments>,
) -> Option<(Namespace<'p>, Box<Backend<'p>>)> {
    let kind = match packet.packet_type {
        PacketType::Event => BackendKind::Event,
        PacketType::Ack => BackendKind::Answered,
        _ => return None,
    };
    let message = Backend {
        data: Some(packet.data?),
        correlation: packet.ack,
        attachments,
        ..Backend::new(kind)
    };
    Some((super::namespace(packet.namespace), Box::new(message)))
}

/// The packet of a message of a backend; `None` if clients get no such message.
pub fn sent<'m>(message: &'m Backend<'_>) -> Option<Sent<'m>> {
    let data = message.data.unwrap_or("[]");
    let packet = |packet_type, ack, data| Sent {
        attachments: message.attachments.as_ref().map_or(0, Attachments::count),
        ..Sent::new(packet_type, ack, data)
    };
    Some(match message.kind {
        BackendKind::Accept => {
            let mut data = String::from(r#"{"sid":"#);
            json::string(message.name.unwrap_or_default(), &mut data);
            if let Some(secret) = message.correlation {
                data.push_str(r#","pid":"#);
                json::string(secret, &mut data);
            }
            data.push('}');
            packet(PacketType::Connect, None, Cow::Owned(data))
        }
        BackendKind::Refuse => packet(PacketType::ConnectError, None, data.into()),
        // A blank in front of the array would be read as the number of an acknowledgement.
        BackendKind::Send if is_event(data) => packet(
            PacketType::Event,
            message.correlation,
            data.trim_ascii_start().into(),
        ),
        BackendKind::Send => {
            let data = format!(r#"["message",{data}]"#);
            packet(PacketType::Event, message.correlation, Cow::Owned(data))
        }
        BackendKind::Answer => packet(
            PacketType::Ack,
            message.correlation,
            data.trim_ascii_start().into(),
        ),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: BackendKind, correlation: Option<&str>, data: &str, expected: &str) {
        let message = Backend {
            data: Some(data),
            correlation,
            name: Some("an\"id"),
            ..Backend::new(kind)
        };
        assert_eq!(text(&message), expected);
    }

    fn text(message: &Backend<'_>) -> String {
        sent(message).map_or_else(String::new, |sent| sent.text())
    }

    #[test]
    fn messages_of_backends_are_packets() {
        check(BackendKind::Accept, None, "", r#"40{"sid":"an\"id"}"#);
        let with_secret = r#"40{"sid":"an\"id","pid":"\"s"}"#;
        check(BackendKind::Accept, Some("\"s"), "", with_secret);
        let refusal = r#"{"message":"no"}"#;
        check(BackendKind::Refuse, None, refusal, r#"44{"message":"no"}"#);
        check(BackendKind::Send, None, r#" ["a",1]"#, r#"42["a",1]"#);
        check(BackendKind::Send, Some("7"), r#"["a"]"#, r#"427["a"]"#);
        // The client would reconnect because of a reserved name.
        let reserved = r#"["disconnect"]"#;
        let expected = r#"42["message",["disconnect"]]"#;
        check(BackendKind::Send, None, reserved, expected);
        check(BackendKind::Answer, Some("3"), "[1]", "433[1]");
        for kind in [BackendKind::Join, BackendKind::Closed, BackendKind::Event] {
            check(kind, Some("3"), "[1]", "");
        }
        let attached = Backend {
            data: Some(r#"["a",{"_placeholder":true,"num":0}]"#),
            correlation: Some("1"),
            attachments: Attachments::new([[1]]),
            ..Backend::new(BackendKind::Send)
        };
        let expected = r#"451-1["a",{"_placeholder":true,"num":0}]"#;
        assert_eq!(text(&attached), expected);
    }

    #[test]
    fn events_and_acknowledgements_have_a_message_for_backends() {
        let read = |text| {
            let packet = Packet::parse(text).expect("a packet");
            let (namespace, message) = message(&packet, None)?;
            Some((namespace, message.kind, message.correlation, message.data))
        };
        let main = Namespace::Main;
        let event = read(r#"27["$join","a"]"#);
        let expected = (
            main,
            BackendKind::Event,
            Some("7"),
            Some(r#"["$join","a"]"#),
        );
        assert_eq!(event, Some(expected));
        let answered = read(r#"3/chat,7[1]"#);
        let chat = Namespace::Named("/chat");
        let expected = (chat, BackendKind::Answered, Some("7"), Some("[1]"));
        assert_eq!(answered, Some(expected));
        assert_eq!(read("2"), None, "an event without a name");
        assert_eq!(read("1"), None);
    }
}

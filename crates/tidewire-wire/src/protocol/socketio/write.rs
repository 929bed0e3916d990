//! Writes messages of the engine as text messages of Engine.IO.

use std::fmt::Write as _;

use tidewire_core::attachments::Attachments;
use tidewire_core::effect::LOGIN_REVOKED;
use tidewire_core::json;
use tidewire_core::message::{Auth, Connection, Event, Message, Publication, Reason, Refusal, Rpc};

use super::SocketIo;
use super::application;
use super::engine_io::random_id;
use super::packet::{Packet, PacketType, is_event};
use crate::protocol::{Codec as _, NamespaceRefusal, Variant};

/// The text for a message. It is empty if the client gets none. Packets of a session with a name lack their namespace, which
/// [`SocketIo::put_in_namespace`] inserts.
pub fn text(variant: Variant, message: &Message<'_>) -> String {
    match message {
        Message::Connection(Connection::Ping) => "2".into(),
        Message::Auth(auth) => login(auth),
        Message::Event(Event::Publication(publication)) => event(publication),
        Message::Event(Event::Ack { correlation, .. }) => match correlation {
            Some(_) => ack(*correlation, r#"{"ok":true}"#),
            None => String::new(),
        },
        Message::Event(Event::Error(refused)) => {
            let mut refused = *refused;
            if SocketIo::NAMESPACED == Some(variant) {
                let name = refused.name;
                refused.name = name.map(|name| name.split_once('#').map_or(name, |(_, room)| room));
            }
            refusal(&refused)
        }
        Message::Rpc(Rpc::Response { call, data }) => {
            let mut value = String::from(r#"{"ok":true"#);
            if let Some(data) = data {
                let _ = write!(value, r#","value":{data}"#);
            }
            value.push('}');
            ack(Some(call.correlation), &value)
        }
        Message::Rpc(Rpc::RequestError { call, data }) => {
            let message = "the provider has answered with an error";
            failed(Some(call.correlation), "PROVIDER_ERROR", message, *data)
        }
        Message::Rpc(Rpc::Error(refused)) => refusal(refused),
        Message::Backend(message) => application::text(message),
        _ => String::new(),
    }
}

fn packet(packet: Packet<'_>) -> String {
    let mut text = String::from("4");
    packet.write(&mut text);
    text
}

fn login(auth: &Auth<'_>) -> String {
    match auth {
        Auth::Successful { .. } => {
            let data = format!(r#"{{"sid":"{}"}}"#, random_id());
            packet(Packet::new(PacketType::Connect, None, Some(&data)))
        }
        // The client leaves the namespace for good, because of the packet that follows. It is connected, so it must not get a refusal.
        Auth::Unsuccessful {
            data: Some(LOGIN_REVOKED),
        } => String::new(),
        Auth::Unsuccessful { data } => {
            let data = data.map_or_else(String::new, |data| format!(r#","data":{data}"#));
            let data = format!(r#"{{"message":"Not authorized"{data}}}"#);
            packet(Packet::new(PacketType::ConnectError, None, Some(&data)))
        }
        Auth::TooManyAttempts => packet(Packet::new(PacketType::Disconnect, None, None)),
        _ => String::new(),
    }
}

/// The refusal of a namespace.
pub fn namespace_refused(namespace: &str, refusal: NamespaceRefusal) -> String {
    let data = match refusal {
        // The words of other servers.
        NamespaceRefusal::Unknown => r#"{"message":"Invalid namespace"}"#,
        NamespaceRefusal::TooMany => {
            r#"{"message":"Too many namespaces","data":{"code":"TOO_MANY_NAMESPACES"}}"#
        }
    };
    packet(Packet {
        namespace,
        ..Packet::new(PacketType::ConnectError, None, Some(data))
    })
}

/// The end of a session.
pub fn namespace_ended(namespace: &str) -> String {
    packet(Packet {
        namespace,
        ..Packet::new(PacketType::Disconnect, None, None)
    })
}

/// An event. Its attachments follow; bytes are an attachment.
fn event(publication: &Publication<'_>) -> String {
    if publication.binary().is_some() {
        let data = r#"["message",{"_placeholder":true,"num":0}]"#;
        return packet(Packet {
            attachments: 1,
            ..Packet::new(PacketType::Event, None, Some(data))
        });
    }
    let event = |data| {
        packet(Packet {
            attachments: publication.attachments().map_or(0, Attachments::count),
            ..Packet::new(PacketType::Event, None, Some(data))
        })
    };
    match publication.data {
        None => r#"42["message"]"#.into(),
        // A blank in front of the array would be read as the number of an acknowledgement.
        Some(data) if is_event(data) => event(data.trim_ascii_start()),
        Some(data) => event(&format!(r#"["message",{data}]"#)),
    }
}

fn ack(number: Option<&str>, value: &str) -> String {
    let data = format!("[{value}]");
    packet(Packet::new(PacketType::Ack, number, Some(&data)))
}

/// A refused command: its acknowledgement, or an event for the client's log if the command has none.
pub fn failed(number: Option<&str>, code: &str, message: &str, data: Option<&str>) -> String {
    let mut value = format!(r#"{{"ok":false,"code":"{code}","message":"{message}""#);
    if let Some(data) = data {
        let _ = write!(value, r#","data":{data}"#);
    }
    value.push('}');
    match number {
        Some(_) => ack(number, &value),
        None => error(&value),
    }
}

fn error(value: &str) -> String {
    let data = format!(r#"["$error",{value}]"#);
    packet(Packet::new(PacketType::Event, None, Some(&data)))
}

fn refusal<A>(refused: &Refusal<'_, A>) -> String {
    let (code, message) = match refused.reason {
        // The room is joined, which is the purpose of the command.
        Reason::MultipleSubscriptions => return String::new(),
        Reason::Denied => ("MESSAGE_DENIED", "a rule or a limit denies it"),
        Reason::RuleFailed => ("MESSAGE_PERMISSION_ERROR", "a rule failed"),
        Reason::NoProvider => ("NO_RPC_PROVIDER", "no session provides this rpc"),
        Reason::AcceptTimeout => ("ACCEPT_TIMEOUT", "the provider did not accept in time"),
        Reason::ResponseTimeout => ("RESPONSE_TIMEOUT", "the provider did not respond in time"),
        Reason::InvalidCorrelation => (
            "INVALID_RPC_CORRELATION_ID",
            "a call with this number is running",
        ),
        Reason::LoadTimeout | Reason::LoadFailed => (
            "RECORD_LOAD_ERROR",
            "a record that a rule reads can't be read",
        ),
        _ => (
            "INVALID_MESSAGE_DATA",
            "a name or a value is invalid or exceeds a limit",
        ),
    };
    let mut value = format!(r#"{{"ok":false,"code":"{code}","message":"{message}""#);
    if let Some(name) = refused.name {
        value.push_str(r#","name":"#);
        json::string(name, &mut value);
    }
    value.push('}');
    match refused.correlation {
        Some(_) => ack(refused.correlation, &value),
        None => error(&value),
    }
}

#[cfg(test)]
mod tests {
    use tidewire_core::binary::Binary;
    use tidewire_core::effect::CloseReason;
    use tidewire_core::message::{Call, EventAction, EventBulk};

    use super::*;

    fn text(message: &Message<'_>) -> String {
        super::text(Variant(0), message)
    }

    fn published(data: Option<&str>) -> String {
        text(&Message::Event(Event::publication("room", data)))
    }

    #[test]
    fn publications_are_events() {
        assert_eq!(published(Some(r#"["hello",1,{}]"#)), r#"42["hello",1,{}]"#);
        assert_eq!(published(Some(" \n[ \"a\" ]")), r#"42[ "a" ]"#);
        assert_eq!(published(Some("[7]")), "42[7]");
        assert_eq!(published(None), r#"42["message"]"#);
        for data in ["1", "{}", "[]", "[null]", "\"text\"", r#"["disconnect"]"#] {
            assert_eq!(published(Some(data)), format!(r#"42["message",{data}]"#));
        }
        // A name means the same with escapes.
        let escaped = r#"["\u0063onnect"]"#;
        assert_eq!(
            published(Some(escaped)),
            format!(r#"42["message",{escaped}]"#)
        );
        let bytes =
            Publication::new("room", None, None, None).with_binary(Some(Binary::new(None, [1, 2])));
        let expected = r#"451-["message",{"_placeholder":true,"num":0}]"#;
        assert_eq!(text(&Message::Event(Event::Publication(bytes))), expected);
        let attached = |data| {
            let attachments = Attachments::new([[1], [2]]);
            let publication = Publication::new("room", Some(data), None, None);
            let publication = publication.with_attachments(attachments);
            text(&Message::Event(Event::Publication(publication)))
        };
        let said = r#"["said",{"_placeholder":true,"num":1}]"#;
        assert_eq!(attached(said), format!("452-{said}"));
        let data = r#"{"x":{"_placeholder":true,"num":0}}"#;
        assert_eq!(attached(data), format!(r#"452-["message",{data}]"#));
    }

    #[test]
    fn acknowledgements_have_the_number_of_their_command() {
        let ack = |correlation| {
            let action = EventBulk::Subscribe;
            text(&Message::Event(Event::Ack {
                action,
                correlation,
            }))
        };
        assert_eq!(ack(Some("7")), r#"437[{"ok":true}]"#);
        assert_eq!(ack(None), "");
        let call = Call {
            name: "add",
            correlation: "0",
        };
        let data = Some("3");
        let response = Message::Rpc(Rpc::Response { call, data });
        assert_eq!(text(&response), r#"430[{"ok":true,"value":3}]"#);
        let failed = text(&Message::Rpc(Rpc::RequestError { call, data }));
        assert!(failed.starts_with(r#"430[{"ok":false,"code":"PROVIDER_ERROR","#));
        assert!(failed.ends_with(r#","data":3}]"#));
    }

    #[test]
    fn a_refusal_without_a_number_is_an_event() {
        let refused = |reason, correlation| {
            text(&Message::Event(Event::Error(Refusal {
                name: Some("a\"b"),
                correlation,
                ..Refusal::new(reason, EventAction::Subscribe)
            })))
        };
        let value = r#"{"ok":false,"code":"MESSAGE_DENIED","message":"a rule or a limit denies it","name":"a\"b"}"#;
        assert_eq!(refused(Reason::Denied, Some("3")), format!("433[{value}]"));
        let expected = format!(r#"42["$error",{value}]"#);
        assert_eq!(refused(Reason::Denied, None), expected);
        assert_eq!(refused(Reason::MultipleSubscriptions, Some("3")), "");
    }

    #[test]
    fn a_session_with_a_name_learns_the_room_and_not_the_event() {
        let refused = Message::Event(Event::Error(Refusal {
            name: Some("n#a#b"),
            ..Refusal::new(Reason::Denied, EventAction::Subscribe)
        }));
        assert!(super::text(Variant(1), &refused).contains(r##""name":"a#b""##));
        assert!(text(&refused).contains(r##""name":"n#a#b""##));
    }

    #[test]
    fn namespaces_are_refused_and_ended() {
        let refusal = NamespaceRefusal::TooMany;
        assert_eq!(
            namespace_refused("/n", refusal),
            r#"44/n,{"message":"Too many namespaces","data":{"code":"TOO_MANY_NAMESPACES"}}"#
        );
        assert_eq!(namespace_ended("/n"), "41/n,");
        assert_eq!(namespace_ended("/"), "41");
    }

    #[test]
    fn logins_are_answered_by_the_namespace() {
        let accepted = || text(&Message::Auth(Auth::Successful { data: None }));
        assert!(accepted().starts_with(r#"40{"sid":""#));
        assert_ne!(accepted(), accepted());
        let data = Some(r#""why""#);
        assert_eq!(
            text(&Message::Auth(Auth::Unsuccessful { data })),
            r#"44{"message":"Not authorized","data":"why"}"#
        );
        let revoked = CloseReason::Revoked.close_messages();
        let texts: String = revoked.iter().map(text).collect();
        assert_eq!(texts, "41");
    }
}

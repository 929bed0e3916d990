//! The packets of the messages of the engine.

use std::borrow::Cow;
use std::fmt::Write as _;

use tidewire_core::attachments::Attachments;
use tidewire_core::effect::LOGIN_REVOKED;
use tidewire_core::json;
use tidewire_core::message::{Auth, Event, Message, Publication, Reason, Refusal, Rpc};

use super::engine_io::random_id;
use super::packet::{Packet, PacketType, is_event};
use super::{Form, application};
use crate::protocol::NamespaceRefusal;

/// A packet of the server, in the default namespace.
#[derive(Debug)]
pub struct Sent<'m> {
    pub packet_type: PacketType,
    /// The number of its attachments.
    pub attachments: usize,
    pub ack: Option<&'m str>,
    pub data: Option<Cow<'m, str>>,
}

impl<'m> Sent<'m> {
    /// A packet without attachments.
    pub fn new(packet_type: PacketType, ack: Option<&'m str>, data: Cow<'m, str>) -> Self {
        Self {
            packet_type,
            attachments: 0,
            ack,
            data: Some(data),
        }
    }

    /// The packet, borrowed.
    pub fn packet(&self) -> Packet<'_> {
        Packet {
            attachments: self.attachments,
            ..Packet::new(self.packet_type, self.ack, self.data.as_deref())
        }
    }

    /// Its text as a message of Engine.IO.
    #[cfg(test)]
    pub fn text(&self) -> String {
        let mut text = Vec::from("4");
        self.packet().write(&mut text);
        String::from_utf8(text).expect("text")
    }
}

/// The packet of a message; `None` if clients get no such message. The packets of a session with a name lack their namespace, which
/// [`crate::protocol::Codec::put_in_namespace`] inserts.
pub fn sent<'m>(form: Form, message: &'m Message<'_>) -> Option<Sent<'m>> {
    Some(match message {
        Message::Auth(auth) => return login(auth),
        Message::Event(Event::Publication(publication)) => event(publication),
        Message::Event(Event::Ack { correlation, .. }) => {
            ack((*correlation)?, r#"{"ok":true}"#.into())
        }
        Message::Event(Event::Error(refused)) => {
            let mut refused = *refused;
            if form.is_named() {
                let name = refused.name;
                refused.name = name.map(|name| name.split_once('#').map_or(name, |(_, room)| room));
            }
            return refusal(&refused);
        }
        Message::Rpc(Rpc::Response { call, data }) => {
            let mut value = String::from(r#"{"ok":true"#);
            if let Some(data) = data {
                let _ = write!(value, r#","value":{data}"#);
            }
            value.push('}');
            ack(call.correlation, value)
        }
        Message::Rpc(Rpc::RequestError { call, data }) => {
            let message = "the provider has answered with an error";
            failed(Some(call.correlation), "PROVIDER_ERROR", message, *data)
        }
        Message::Rpc(Rpc::Error(refused)) => return refusal(refused),
        Message::Backend(message) => return application::sent(message),
        _ => return None,
    })
}

fn login<'m>(auth: &Auth<'_>) -> Option<Sent<'m>> {
    let packet = |packet_type, data| Sent::new(packet_type, None, Cow::Owned(data));
    match auth {
        Auth::Successful { .. } => {
            let data = format!(r#"{{"sid":"{}"}}"#, random_id());
            Some(packet(PacketType::Connect, data))
        }
        // The client leaves the namespace for good, because of the packet that follows. It is connected, so it must not get a refusal.
        Auth::Unsuccessful {
            data: Some(LOGIN_REVOKED),
        } => None,
        Auth::Unsuccessful { data } => {
            let data = data.map_or_else(String::new, |data| format!(r#","data":{data}"#));
            let data = format!(r#"{{"message":"Not authorized"{data}}}"#);
            Some(packet(PacketType::ConnectError, data))
        }
        Auth::TooManyAttempts => Some(Sent {
            data: None,
            ..packet(PacketType::Disconnect, String::new())
        }),
        _ => None,
    }
}

/// The refusal of a namespace.
pub fn namespace_refused(namespace: &str, refusal: NamespaceRefusal) -> Packet<'_> {
    let data = match refusal {
        // The words of other servers.
        NamespaceRefusal::Unknown => r#"{"message":"Invalid namespace"}"#,
        NamespaceRefusal::TooMany => {
            r#"{"message":"Too many namespaces","data":{"code":"TOO_MANY_NAMESPACES"}}"#
        }
    };
    Packet {
        namespace,
        ..Packet::new(PacketType::ConnectError, None, Some(data))
    }
}

/// The end of a session.
pub fn namespace_ended(namespace: &str) -> Packet<'_> {
    Packet {
        namespace,
        ..Packet::new(PacketType::Disconnect, None, None)
    }
}

/// An event. Its attachments follow; bytes are an attachment.
fn event<'m>(publication: &'m Publication<'_>) -> Sent<'m> {
    let event = |attachments, data| Sent {
        attachments,
        ..Sent::new(PacketType::Event, None, data)
    };
    if publication.binary().is_some() {
        let data = r#"["message",{"_placeholder":true,"num":0}]"#;
        return event(1, data.into());
    }
    let attachments = publication.attachments().map_or(0, Attachments::count);
    match publication.data {
        None => event(0, r#"["message"]"#.into()),
        // A blank in front of the array would be read as the number of an acknowledgement.
        Some(data) if is_event(data) => event(attachments, data.trim_ascii_start().into()),
        Some(data) => event(attachments, format!(r#"["message",{data}]"#).into()),
    }
}

fn ack(number: &str, value: String) -> Sent<'_> {
    let data = format!("[{value}]");
    Sent::new(PacketType::Ack, Some(number), data.into())
}

/// A refused command: its acknowledgement, or an event for the client's log if the command has none.
pub fn failed<'m>(
    number: Option<&'m str>,
    code: &str,
    message: &str,
    data: Option<&str>,
) -> Sent<'m> {
    let mut value = format!(r#"{{"ok":false,"code":"{code}","message":"{message}""#);
    if let Some(data) = data {
        let _ = write!(value, r#","data":{data}"#);
    }
    value.push('}');
    answer(number, value)
}

fn answer(number: Option<&str>, value: String) -> Sent<'_> {
    match number {
        Some(number) => ack(number, value),
        None => {
            let data = format!(r#"["$error",{value}]"#);
            Sent::new(PacketType::Event, None, data.into())
        }
    }
}

fn refusal<'m, A>(refused: &Refusal<'m, A>) -> Option<Sent<'m>> {
    let (code, message) = match refused.reason {
        // The room is joined, which is the purpose of the command.
        Reason::MultipleSubscriptions => return None,
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
    Some(answer(refused.correlation, value))
}

#[cfg(test)]
mod tests {
    use tidewire_core::binary::Binary;
    use tidewire_core::effect::CloseReason;
    use tidewire_core::message::{Call, EventAction, EventBulk};

    use super::*;

    fn text_in(form: Form, message: &Message<'_>) -> String {
        sent(form, message).map_or_else(String::new, |sent| sent.text())
    }

    fn text(message: &Message<'_>) -> String {
        text_in(Form::Text, message)
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
        assert!(text_in(Form::NamedText, &refused).contains(r##""name":"a#b""##));
        assert!(text(&refused).contains(r##""name":"n#a#b""##));
    }

    #[test]
    fn namespaces_are_refused_and_ended() {
        let refusal = NamespaceRefusal::TooMany;
        let check = |packet: Packet<'_>, expected| {
            let mut text = Vec::new();
            packet.write(&mut text);
            assert_eq!(String::from_utf8(text).as_deref(), Ok(expected));
        };
        check(
            namespace_refused("/n", refusal),
            r#"4/n,{"message":"Too many namespaces","data":{"code":"TOO_MANY_NAMESPACES"}}"#,
        );
        check(namespace_ended("/n"), "1/n,");
        check(namespace_ended("/"), "1");
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

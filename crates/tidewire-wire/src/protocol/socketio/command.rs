//! Events of a client. There is no application that handles them, so events with reserved names are commands of this server.

use std::borrow::Cow;

use smallvec::SmallVec;
use tidewire_core::attachments::Attachments;
use tidewire_core::binary::Binary;
use tidewire_core::json::{self, Literal};
use tidewire_core::message::{Call, Event, Message, Publication, Rpc};
use tidewire_core::namespace::event_of;

use super::packet::{Packet, is_event, is_placeholder};

/// A command.
#[derive(Debug)]
pub enum Command<'a> {
    /// `$join`.
    Join(Vec<Cow<'a, str>>),
    /// `$leave`.
    Leave(Vec<Cow<'a, str>>),
    /// `$to`.
    To {
        /// The room.
        room: Cow<'a, str>,
        /// The data of the publication. With attachments, it has their placeholders.
        data: Cow<'a, str>,
    },
    /// `$call`.
    Call {
        /// The rpc.
        name: Cow<'a, str>,
        /// Its data.
        data: Option<Cow<'a, str>>,
    },
}

/// Why an event is not a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// A name of `spec/errors.toml`.
    pub code: &'static str,
    /// For the developer.
    pub message: &'static str,
}

const fn invalid(message: &'static str) -> Refused {
    let code = "INVALID_MESSAGE_DATA";
    Refused { code, message }
}

/// The answer to an event that this server does not handle.
pub const NO_HANDLER: Refused = Refused {
    code: "NO_HANDLER",
    message: "this server has no handler for the event; its own events are $join, $leave, $to and $call",
};

type Arguments<'a> = SmallVec<[&'a str; 4]>;

impl<'a> Command<'a> {
    /// The command of an event. Its attachments follow later.
    pub fn of(packet: &Packet<'a>) -> Result<Self, Refused> {
        let command = Self::parse(packet)?;
        Ok(match packet.namespace {
            "/" => command,
            namespace => command.within(namespace),
        })
    }

    /// The command with the names that the rooms of a namespace have in the engine. They do not begin with `/`, which rules can't name.
    fn within(self, namespace: &str) -> Self {
        let name = |room: Cow<'_, str>| Cow::Owned(event_of(namespace, &room));
        match self {
            Self::Join(rooms) => Self::Join(rooms.into_iter().map(name).collect()),
            Self::Leave(rooms) => Self::Leave(rooms.into_iter().map(name).collect()),
            Self::To { room, data } => Self::To {
                room: name(room),
                data,
            },
            call @ Self::Call { .. } => call,
        }
    }

    fn parse(packet: &Packet<'a>) -> Result<Self, Refused> {
        let data = packet.data.ok_or(NO_HANDLER)?;
        let mut items = json::entries(data).map(|(_, value)| value);
        let name = items.next().and_then(text).ok_or(NO_HANDLER)?;
        let items: Arguments<'a> = items.collect();
        let command = match name.as_ref() {
            "$join" => Self::Join(rooms(&items)?),
            "$leave" => Self::Leave(rooms(&items)?),
            "$to" => to(&items)?,
            "$call" => call(&items, packet.ack)?,
            _ => return Err(NO_HANDLER),
        };
        match packet.attachments > 0 && !matches!(command, Self::To { .. }) {
            true => Err(invalid("only $to takes binary attachments")),
            false => Ok(command),
        }
    }

    /// A copy that does not borrow.
    pub fn into_owned(self) -> Command<'static> {
        fn own(text: Cow<'_, str>) -> Cow<'static, str> {
            Cow::Owned(text.into_owned())
        }
        match self {
            Self::Join(rooms) => Command::Join(rooms.into_iter().map(own).collect()),
            Self::Leave(rooms) => Command::Leave(rooms.into_iter().map(own).collect()),
            Self::To { room, data } => Command::To {
                room: own(room),
                data: own(data),
            },
            Self::Call { name, data } => Command::Call {
                name: own(name),
                data: data.map(own),
            },
        }
    }

    /// Its message for the engine. Only a publication has attachments.
    pub fn message<'p>(
        &'p self,
        ack: Option<&'p str>,
        attachments: Option<&Attachments>,
    ) -> Message<'p> {
        fn names<'n>(rooms: &'n [Cow<'_, str>]) -> Vec<&'n str> {
            rooms.iter().map(AsRef::as_ref).collect()
        }
        match self {
            Self::Join(rooms) => Message::Event(Event::Subscribe {
                names: names(rooms),
                correlation: ack,
                positions: Vec::new(),
            }),
            Self::Leave(rooms) => Message::Event(Event::Unsubscribe {
                names: names(rooms),
                correlation: ack,
            }),
            Self::To { room, data } => publish(publication(room, data, attachments), ack),
            Self::Call { name, data } => Message::Rpc(Rpc::Request {
                call: Call {
                    name,
                    correlation: ack.unwrap_or_default(),
                },
                data: data.as_deref(),
                requestor_name: None,
                requestor_data: None,
            }),
        }
    }
}

/// A message of one binary argument is an event of bytes, as clients of other protocols publish it.
fn publication<'p>(
    room: &'p str,
    data: &'p str,
    attachments: Option<&Attachments>,
) -> Publication<'p> {
    let mut all = attachments.into_iter().flat_map(Attachments::iter);
    match (all.next(), all.next()) {
        (Some(bytes), None) if is_placeholder(data) => {
            let binary = Binary::new(None, bytes);
            Publication::new(room, None, None, None).with_binary(Some(binary))
        }
        _ => Publication::new(room, Some(data), None, None).with_attachments(attachments.cloned()),
    }
}

fn publish<'p>(publication: Publication<'p>, ack: Option<&'p str>) -> Message<'p> {
    Message::Event(match ack {
        Some(correlation) => Event::Publish {
            publication,
            correlation,
        },
        None => Event::Publication(publication),
    })
}

fn text(value: &str) -> Option<Cow<'_, str>> {
    Literal::scan(value)?.text()
}

/// The rooms of `$join` and `$leave`: one name, or an array of names.
fn rooms<'a>(items: &[&'a str]) -> Result<Vec<Cow<'a, str>>, Refused> {
    let [rooms] = items else {
        return Err(invalid(
            "it takes one argument, a room or an array of rooms",
        ));
    };
    let found: Option<Vec<_>> = match rooms.starts_with('[') {
        true => json::entries(rooms).map(|(_, room)| text(room)).collect(),
        false => text(rooms).map(|room| vec![room]),
    };
    found
        .filter(|rooms| !rooms.is_empty())
        .ok_or(invalid("a room is a string"))
}

fn to<'a>(items: &[&'a str]) -> Result<Command<'a>, Refused> {
    let [room, event @ ..] = items else {
        return Err(invalid(
            "it takes a room, the name of an event, and arguments",
        ));
    };
    let room = text(room).ok_or(invalid("the room is a string"))?;
    let data = match event {
        // Clients of other protocols publish and receive the argument alone.
        [r#""message""#, argument] if !is_event(argument) => Cow::Borrowed(*argument),
        _ => Cow::Owned(format!("[{}]", event.join(","))),
    };
    let has_name = event.first().is_some_and(|name| name.starts_with('"'));
    if !has_name || matches!(data, Cow::Owned(_)) && !is_event(&data) {
        return Err(invalid(
            "the name of the event is a string that is not reserved",
        ));
    }
    Ok(Command::To { room, data })
}

fn call<'a>(items: &[&'a str], ack: Option<&str>) -> Result<Command<'a>, Refused> {
    if ack.is_none() {
        return Err(invalid("a call needs an acknowledgement for its result"));
    }
    let [name, arguments @ ..] = items else {
        return Err(invalid("it takes the name of an rpc, and arguments"));
    };
    let name = text(name).ok_or(invalid("the name of an rpc is a string"))?;
    let data = match arguments {
        [] => None,
        [argument] => Some(Cow::Borrowed(*argument)),
        several => Some(Cow::Owned(format!("[{}]", several.join(",")))),
    };
    Ok(Command::Call { name, data })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(event: &str, expected: &str) {
        let text = format!("213{event}");
        let packet = Packet::parse(&text).expect("a packet");
        let command = Command::of(&packet);
        let found = command.map(|command| format!("{:?}", command.message(packet.ack, None)));
        let found = found.unwrap_or_else(|refused| refused.code.into());
        assert!(found.contains(expected), "{event}: {found}");
    }

    #[test]
    fn commands_are_messages() {
        check(
            r#"["$join","a"]"#,
            r#"Subscribe { names: ["a"], correlation: Some("13")"#,
        );
        check(r#"["$join",["a","\u0062"]]"#, r#"names: ["a", "b"]"#);
        check(
            r#"["$leave","a"]"#,
            r#"Unsubscribe { names: ["a"], correlation: Some("13")"#,
        );
        check(
            r#"["$to","a","message",{"x":1}]"#,
            r#"name: "a", data: Some("{\"x\":1}")"#,
        );
        check(
            r#"["$to","a","message",["x"]]"#,
            r#"data: Some("[\"message\",[\"x\"]]")"#,
        );
        check(r#"["$to","a","message"]"#, r#"data: Some("[\"message\"]")"#);
        check(r#"["$to","a","ev",1, 2]"#, r#"data: Some("[\"ev\",1,2]")"#);
        check(r#"["$to","a","ev"]"#, r#"correlation: "13""#);
        check(
            r#"["$call","add",1]"#,
            r#"call: Call { name: "add", correlation: "13" }, data: Some("1")"#,
        );
        check(r#"["$call","add",1,2]"#, r#"data: Some("[1,2]")"#);
        check(r#"["$call","add"]"#, "data: None");
    }

    fn publication_of(event: &str, attachments: &[&[u8]]) -> String {
        let text = format!("2{event}");
        let packet = Packet::parse(&text).expect("a packet");
        let command = Command::of(&packet).expect("a command");
        let attachments = Attachments::new(attachments.iter().copied());
        let Message::Event(Event::Publication(publication)) =
            command.message(None, attachments.as_ref())
        else {
            panic!("{command:?}");
        };
        assert!(publication.has_consistent_payload(), "{publication:?}");
        let (binary, attachments) = (publication.binary(), publication.attachments());
        format!(
            "{:?} {binary:?} {attachments:?}",
            publication.data.unwrap_or_default()
        )
    }

    #[test]
    fn attachments_belong_to_the_data() {
        let found = publication_of(
            r#"["$to","a","ev",{"x":{"_placeholder":true,"num":1}},{"_placeholder":true,"num":0}]"#,
            &[b"ab", b""],
        );
        let data = r#"["ev",{"x":{"_placeholder":true,"num":1}},{"_placeholder":true,"num":0}]"#;
        assert_eq!(
            found,
            format!("{data:?} None Some(attachments of [2, 0] bytes)")
        );
        let bytes = r#"["$to","a","message",{"_placeholder":true,"num":0}]"#;
        let expected = r#""" Some(3 bytes of application/octet-stream) None"#;
        assert_eq!(publication_of(bytes, &[b"abc"]), expected);
        // An attachment without a placeholder is passed on, too.
        let found = publication_of(bytes, &[b"abc", b""]);
        assert!(
            found.ends_with("None Some(attachments of [3, 0] bytes)"),
            "{found}"
        );
    }

    #[test]
    fn only_publications_take_attachments() {
        let placeholder = r#"{"_placeholder":true,"num":0}"#;
        for (event, code) in [
            (
                format!(r#"["$join",{placeholder}]"#),
                "INVALID_MESSAGE_DATA",
            ),
            (r#"["$leave","a"]"#.into(), "INVALID_MESSAGE_DATA"),
            (
                format!(r#"["$call","add",{placeholder}]"#),
                "INVALID_MESSAGE_DATA",
            ),
            (
                format!(r#"["$to",{placeholder},"a"]"#),
                "INVALID_MESSAGE_DATA",
            ),
            (
                format!(r#"["$to","a",{placeholder}]"#),
                "INVALID_MESSAGE_DATA",
            ),
            (format!(r#"["chat",{placeholder}]"#), "NO_HANDLER"),
        ] {
            let text = format!("51-7{event}");
            let packet = Packet::parse(&text).expect("a packet");
            let refused = Command::of(&packet).map_err(|refused| refused.code);
            assert_eq!(refused.err(), Some(code), "{event}");
        }
    }

    #[test]
    fn the_rooms_of_a_namespace_have_names_of_their_own() {
        for (event, expected) in [
            (r#"["$join",["a","b"]]"#, r#"names: ["n#a", "n#b"]"#),
            (r#"["$leave","a"]"#, r#"names: ["n#a"]"#),
            (
                r#"["$to","a","message",1]"#,
                r#"name: "n#a", data: Some("1")"#,
            ),
            (r#"["$call","add",1]"#, r#"name: "add""#),
        ] {
            let text = format!("2/n,13{event}");
            let packet = Packet::parse(&text).expect("a packet");
            let command = Command::of(&packet).expect("a command");
            let found = format!("{:?}", command.message(packet.ack, None));
            assert!(found.contains(expected), "{event}: {found}");
        }
    }

    #[test]
    fn other_events_are_refused_with_a_code() {
        for event in [r#"["chat"]"#, r#"["$in","a","b"]"#, "[7]", r#"["\ud800"]"#] {
            check(event, "NO_HANDLER");
        }
        for event in [
            r#"["$join"]"#,
            r#"["$join",[]]"#,
            r#"["$join",[1]]"#,
            r#"["$join","a",{"since":1}]"#,
            r#"["$leave",null]"#,
            r#"["$to","a"]"#,
            r#"["$to",["a"],"b"]"#,
            r#"["$to","a",7]"#,
            r#"["$to","a","disconnect"]"#,
            r#"["$call",1]"#,
            r#"["$call"]"#,
        ] {
            check(event, "INVALID_MESSAGE_DATA");
        }
        let packet = Packet::parse(r#"2["$call","add"]"#).expect("a packet");
        assert!(Command::of(&packet).is_err(), "its result has no way back");
    }
}

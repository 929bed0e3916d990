//! Messages that no well-behaved client sends, about names that nobody else uses: they are answered with an error and change
//! nothing that a model looks at.

use tidewire_core::message::{
    Call, Change, Event, Message, Presence, Record, RecordBulk, Rpc, Write,
};

/// How the names begin. Records under it are kept in memory only.
pub const PREFIX: &str = "rude/";
/// Records under this are whole values.
pub const HOT_PREFIX: &str = "rude/hot/";

const TWICE: &str = "rude/twice";
const HOT: &str = "rude/hot/one";
/// Whose rule can't be evaluated.
pub const FAILING: &str = "rude/fails";
const NO_JSON: &str = r#"{"a":"#;
const ID: &str = "rude";

/// Whether a name is for these messages only.
pub fn is_rude(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// One such message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rude {
    EventNoJson,
    EventTwice,
    RecordNoObject,
    /// The second time it is a subscription that exists.
    RecordTwice,
    RecordPatchOnHotPath,
    RpcNoJson,
    RpcTwice,
    RpcFails,
    PresenceNoName,
    PresenceTwice,
    PresenceFails,
}

impl Rude {
    pub const ALL: [Self; 11] = [
        Self::EventNoJson,
        Self::EventTwice,
        Self::RecordNoObject,
        Self::RecordTwice,
        Self::RecordPatchOnHotPath,
        Self::RpcNoJson,
        Self::RpcTwice,
        Self::RpcFails,
        Self::PresenceNoName,
        Self::PresenceTwice,
        Self::PresenceFails,
    ];

    /// As a protocol would have decoded it.
    pub fn message(self) -> Message<'static> {
        let correlation = Some(ID);
        let write = |name| Write {
            name,
            version: -1,
            correlation,
            write_ack: true,
        };
        let call = |name, data| Rpc::Request {
            call: Call {
                name,
                correlation: ID,
            },
            data: Some(data),
            requestor_name: None,
            requestor_data: None,
        };
        let watch = |name| Presence::Subscribe {
            names: vec![name],
            correlation,
        };
        match self {
            Self::EventNoJson => Message::Event(Event::Emit {
                name: TWICE,
                data: Some(NO_JSON),
            }),
            Self::EventTwice => Message::Event(Event::Subscribe {
                names: vec![TWICE, TWICE],
                correlation,
            }),
            Self::RecordNoObject => {
                let change = Change::Update { data: Some("7") };
                Message::Record(Record::Write(write(TWICE), change))
            }
            Self::RecordTwice => Message::Record(Record::Bulk {
                action: RecordBulk::SubscribeCreateAndRead,
                names: vec![TWICE],
                correlation,
            }),
            Self::RecordPatchOnHotPath => {
                let change = Change::CreateAndPatch {
                    path: Some("a"),
                    data: Some("1"),
                };
                Message::Record(Record::Write(write(HOT), change))
            }
            Self::RpcNoJson => Message::Rpc(call(TWICE, NO_JSON)),
            Self::RpcTwice => Message::Rpc(Rpc::Provide {
                names: vec![TWICE],
                correlation,
            }),
            Self::RpcFails => Message::Rpc(call(FAILING, "1")),
            Self::PresenceNoName => Message::Presence(watch("")),
            Self::PresenceTwice => Message::Presence(watch(TWICE)),
            Self::PresenceFails => Message::Presence(watch(FAILING)),
        }
    }
}

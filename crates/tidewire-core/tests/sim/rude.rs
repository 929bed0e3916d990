//! Messages that no well-behaved client sends, about names that only these messages use. The server answers with an error, and
//! the models see no change.

use tidewire_core::message::{
    Call, Change, Event, Message, Presence, Record, RecordBulk, Rpc, Write,
};

/// The prefix of all these names. Its records exist only in memory.
pub const PREFIX: &str = "rude/";
/// Records with this prefix accept only whole values.
pub const HOT_PREFIX: &str = "rude/hot/";

const TWICE: &str = "rude/twice";
const HOT: &str = "rude/hot/one";
/// A name whose rule fails to evaluate.
pub const FAILING: &str = "rude/fails";
const NO_JSON: &str = r#"{"a":"#;
const ID: &str = "rude";

/// Whether only these messages use the name.
pub fn is_rude(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// One such message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rude {
    EventNoJson,
    EventTwice,
    RecordNoObject,
    /// The second such message asks for a subscription that already exists.
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

    /// The message in the form in which a protocol decodes it.
    pub fn message(self) -> Message<'static> {
        let correlation = Some(ID);
        let write = |name| Write {
            name,
            version: -1,
            correlation,
            write_ack: true,
            key: None,
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
            Self::EventNoJson => Message::Event(Event::publication(TWICE, Some(NO_JSON))),
            Self::EventTwice => Message::Event(Event::Subscribe {
                names: vec![TWICE, TWICE],
                correlation,
                positions: Vec::new(),
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

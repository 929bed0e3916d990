//! The names of fields, as in deepstream's JavaScript messages.

use crate::protocol::deepstream::fields::Field;

/// A known member of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// The topic, which is outside of the fields in protobuf.
    Topic,
    /// The payload as a value. It overrides the field `data`, which has the payload as text.
    ParsedData,
    /// A field.
    Field(Field),
}

macro_rules! keys {
    ($($field:ident = $name:literal,)*) => {
        impl Key {
            /// The member of this name, `None` if it is unknown.
            pub(super) fn of(name: &str) -> Option<Self> {
                Some(match name {
                    "topic" => Self::Topic,
                    "parsedData" => Self::ParsedData,
                    $($name => Self::Field(Field::$field),)*
                    _ => return None,
                })
            }
        }

        /// The name of a field.
        pub(super) fn name(field: Field) -> &'static str {
            match field {
                $(Field::$field => $name,)*
            }
        }
    };
}

keys! {
    Action = "action",
    Data = "data",
    Correlation = "correlationId",
    IsError = "isError",
    IsAck = "isAck",
    Name = "name",
    Names = "names",
    Subscription = "subscription",
    OriginalTopic = "originalTopic",
    OriginalAction = "originalAction",
    IsWriteAck = "isWriteAck",
    Path = "path",
    Version = "version",
    Versions = "versions",
    Incarnation = "incarnation",
    Only = "only",
    Existed = "existed",
    Key = "key",
    SeenVersion = "seenVersion",
    Url = "url",
    ProtocolVersion = "protocolVersion",
    SdkVersion = "sdkVersion",
    SdkType = "sdkType",
    Batches = "batches",
    Jumps = "jumps",
    Missed = "missed",
    Epoch = "epoch",
    Offset = "offset",
    Positions = "positions",
    Trace = "traceparent",
    ContentType = "contentType",
    Bytes = "base64",
    Attachments = "attachments",
    RequestorName = "requestorName",
    RequestorData = "requestorData",
    Session = "session",
    Except = "except",
    Count = "count",
    IsLocal = "isLocal",
    Timeout = "timeout",
}

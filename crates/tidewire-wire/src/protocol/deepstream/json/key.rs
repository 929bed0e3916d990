//! The names of fields. They are those of deepstream's messages in JavaScript.

use crate::protocol::deepstream::fields::Field;

/// A member of a message that means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// Which topic; in protobuf it stands outside of the fields.
    Topic,
    /// The payload as a value. It counts before the field `data`, which is the same as text.
    ParsedData,
    /// A field.
    Field(Field),
}

macro_rules! keys {
    ($($field:ident = $name:literal,)*) => {
        impl Key {
            /// The member of this name, `None` if it means nothing.
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
    RequestorName = "requestorName",
    RequestorData = "requestorData",
}

//! The commands of a batch: parses and checks deepstream's JSON objects, and turns them into requests.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use tidewire_core::attachments::{ATTACHMENTS_MAX, Attachments};
use tidewire_core::binary::{Binary, CONTENT_TYPE_BYTES_MAX, from_base64};
use tidewire_core::message::WireVersion;
use tidewire_core::text::RESERVED;
use tidewire_core::trace::Trace;
use tidewire_shard::request::{OwnedRequest, Text};

/// The version of a write that replaces whatever version exists.
const ANY_VERSION: WireVersion = -1;

/// The properties of an object. If a key repeats, the last value counts, as in `JSON.parse`.
pub(super) type Properties<'a> = BTreeMap<String, &'a RawValue>;

/// An upper bound of the size of a command's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerSize {
    /// A few words.
    Small,
    /// As large as a record.
    Record,
    /// Unknown, because another client provides the answer or it lists users.
    Unknown,
}

/// A checked command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// Publishes an event.
    Emit {
        /// The event.
        name: String,
        /// JSON.
        data: Option<&'a str>,
        /// The payload, if it is bytes.
        binary: Option<Binary>,
        /// The attachments of the JSON.
        attachments: Option<Attachments>,
    },
    /// Calls an rpc.
    Make {
        /// The rpc.
        name: String,
        /// JSON.
        data: Option<&'a str>,
    },
    /// Reads a record or list.
    Read {
        /// The record.
        name: String,
    },
    /// Reads the version of a record.
    Head {
        /// The record.
        name: String,
    },
    /// Writes a record or list, or one path of it.
    Write {
        /// The record.
        name: String,
        /// The path within the record; `None` for the whole value.
        path: Option<String>,
        /// JSON.
        data: &'a str,
        /// The version that the record must get by this write, or -1 for any.
        version: WireVersion,
    },
    /// Deletes a record or list.
    Delete {
        /// The record.
        name: String,
    },
    /// Makes the server load records again from the store.
    Notify {
        /// The records.
        names: Vec<String>,
    },
    /// Asks which users are online: all of them, or those in a list.
    Query {
        /// User ids.
        names: Option<Vec<String>>,
    },
}

impl<'a> Command<'a> {
    /// Parses a command whose names may have `name_bytes_max` bytes.
    ///
    /// # Errors
    /// The command is invalid; the text describes the fault.
    pub fn parse(text: &'a RawValue, name_bytes_max: usize) -> Result<Self, String> {
        let properties: Properties<'a> = serde_json::from_str(text.get())
            .map_err(|_| "a command must be an object".to_owned())?;
        let mut fields = Fields {
            properties,
            name_bytes_max,
        };
        let topic = fields.text("topic")?;
        let action = fields.text("action")?;
        let command = match (topic.as_str(), action.as_str()) {
            ("event", "emit") => fields.emit()?,
            ("rpc", "make") => Self::Make {
                name: fields.name("rpcName")?,
                data: fields.take("data").map(RawValue::get),
            },
            ("record", "read") => Self::Read {
                name: fields.name("recordName")?,
            },
            ("list", "read") => Self::Read {
                name: fields.name("listName")?,
            },
            ("record", "head") => Self::Head {
                name: fields.name("recordName")?,
            },
            ("record", "delete") => Self::Delete {
                name: fields.name("recordName")?,
            },
            ("list", "delete") => Self::Delete {
                name: fields.name("listName")?,
            },
            ("record", "write") => fields.record_write()?,
            ("list", "write") => fields.list_write()?,
            ("record", "notify") => Self::Notify {
                names: fields
                    .names("recordNames")?
                    .ok_or("recordNames is missing")?,
            },
            ("presence", "query") => Self::Query {
                names: fields.names("names")?,
            },
            _ => return Err(format!("unknown action {action:?} of topic {topic:?}")),
        };
        match fields.properties.into_keys().next() {
            None => Ok(command),
            Some(unknown) => Err(format!("unknown property {unknown:?}")),
        }
    }

    /// How large its answer may be.
    pub(super) fn answer_size(&self) -> AnswerSize {
        match self {
            Self::Read { .. } => AnswerSize::Record,
            // After a version conflict, the answer contains the current value.
            Self::Write { version, .. } if *version != ANY_VERSION => AnswerSize::Record,
            Self::Make { .. } | Self::Query { .. } => AnswerSize::Unknown,
            Self::Emit { .. }
            | Self::Head { .. }
            | Self::Write { .. }
            | Self::Delete { .. }
            | Self::Notify { .. } => AnswerSize::Small,
        }
    }

    /// The command as a request. `correlation` identifies its answers; an event becomes part of `trace`.
    pub fn request(&self, correlation: &str, trace: Option<Trace>) -> OwnedRequest {
        let text = |text: &String| Text::from(text.as_str());
        let correlation = Text::from(correlation);
        match self {
            Self::Emit {
                name,
                data,
                binary,
                attachments,
            } => OwnedRequest::Publish {
                name: text(name),
                data: data.map(Text::from),
                binary: binary.clone(),
                attachments: attachments.clone(),
                trace,
            },
            Self::Make { name, data } => OwnedRequest::Call {
                name: text(name),
                data: data.map(Text::from),
                correlation,
            },
            Self::Read { name } => OwnedRequest::Read { name: text(name) },
            Self::Head { name } => OwnedRequest::Head { name: text(name) },
            Self::Delete { name } => OwnedRequest::Delete { name: text(name) },
            Self::Write {
                name,
                path,
                data,
                version,
            } => OwnedRequest::Write {
                name: text(name),
                path: path.as_ref().map(text),
                data: Text::from(*data),
                version: *version,
                correlation,
            },
            Self::Notify { names } => OwnedRequest::Notify {
                names: names.iter().map(text).collect(),
                correlation,
            },
            Self::Query { names: None } => OwnedRequest::QueryAllUsers,
            Self::Query { names: Some(names) } => OwnedRequest::QueryUsers {
                names: names.iter().map(text).collect(),
                correlation,
            },
        }
    }
}

/// Whether a property contains names of records. Lists are records, too.
fn is_of_record(key: &str) -> bool {
    key.starts_with("record") || key.starts_with("list")
}

/// The properties of a command that are not parsed yet.
struct Fields<'a> {
    properties: Properties<'a>,
    name_bytes_max: usize,
}

impl<'a> Fields<'a> {
    fn take(&mut self, key: &str) -> Option<&'a RawValue> {
        self.properties.remove(key)
    }

    fn text(&mut self, key: &str) -> Result<String, String> {
        let value = self.take(key).and_then(text_of);
        value.ok_or_else(|| format!("{key:?} must be a string"))
    }

    fn name(&mut self, key: &str) -> Result<String, String> {
        let name = self.text(key)?;
        self.check_name(key, &name)?;
        Ok(name)
    }

    fn check_name(&self, key: &str, name: &str) -> Result<(), String> {
        match name.len() {
            0 => Err(format!("{key:?} must not be empty")),
            bytes if bytes > self.name_bytes_max => Err(format!(
                "{key:?} has more than {} bytes (limits.name_bytes_max)",
                self.name_bytes_max
            )),
            _ if name.starts_with(RESERVED) && is_of_record(key) => Err(format!(
                "{key:?} begins with U+0001, which is reserved for the server"
            )),
            _ => Ok(()),
        }
    }

    fn names(&mut self, key: &str) -> Result<Option<Vec<String>>, String> {
        let Some(value) = self.take(key) else {
            return Ok(None);
        };
        let names: Vec<String> = serde_json::from_str(value.get())
            .map_err(|_| format!("{key:?} must be an array of strings"))?;
        if names.is_empty() {
            return Err(format!("{key:?} must not be empty"));
        }
        for name in &names {
            self.check_name(key, name)?;
        }
        Ok(Some(names))
    }

    /// The version of a write. An absent version and 0 mean any version.
    fn version(&mut self) -> Result<WireVersion, String> {
        let Some(value) = self.take("version") else {
            return Ok(ANY_VERSION);
        };
        match version_of(value) {
            Some(0) => Ok(ANY_VERSION),
            Some(version) if version >= ANY_VERSION => Ok(version),
            _ => Err("\"version\" must be an integer of at least -1".into()),
        }
    }

    fn emit(&mut self) -> Result<Command<'a>, String> {
        let name = self.name("eventName")?;
        let data = self.take("data").map(RawValue::get);
        let binary = match self.properties.contains_key("base64") {
            true => Some(self.binary()?),
            false => None,
        };
        if binary.is_some() && data.is_some() {
            return Err("an event has \"data\" or \"base64\", not both".into());
        }
        let attachments = self.take("attachments").map(attachments).transpose()?;
        if attachments.is_some() && data.is_none() {
            return Err("\"attachments\" need \"data\", which has their placeholders".into());
        }
        Ok(Command::Emit {
            name,
            data,
            binary,
            attachments,
        })
    }

    fn binary(&mut self) -> Result<Binary, String> {
        let content_type = match self.properties.contains_key("contentType") {
            true => Some(self.text("contentType")?),
            false => None,
        };
        let bytes = from_base64(&self.text("base64")?);
        let bytes = bytes.ok_or("\"base64\" must be base64 with padding")?;
        let binary = Binary::new(content_type.as_deref(), bytes);
        match binary.has_valid_type() {
            true => Ok(binary),
            false => Err(format!(
                "\"contentType\" must have a slash and at most {CONTENT_TYPE_BYTES_MAX} printable ASCII characters"
            )),
        }
    }

    fn record_write(&mut self) -> Result<Command<'a>, String> {
        let name = self.name("recordName")?;
        let path = self
            .take("path")
            .map(|path| text_of(path).ok_or_else(|| "\"path\" must be a string".to_owned()));
        // An empty path means the whole record.
        let path = path.transpose()?.filter(|path| !path.is_empty());
        let data = self.take("data").ok_or("\"data\" is missing")?;
        if path.is_none() && !is_container(data) {
            return Err("\"data\" must be an object or array".into());
        }
        let version = self.version()?;
        Ok(Command::Write {
            name,
            path,
            data: data.get(),
            version,
        })
    }

    fn list_write(&mut self) -> Result<Command<'a>, String> {
        let name = self.name("listName")?;
        let data = self.take("data").ok_or("\"data\" is missing")?;
        if serde_json::from_str::<Vec<String>>(data.get()).is_err() {
            return Err("\"data\" must be an array of strings".into());
        }
        let version = self.version()?;
        Ok(Command::Write {
            name,
            path: None,
            data: data.get(),
            version,
        })
    }
}

/// The version that a number represents. JSON has one kind of number, so 2.0 and 2e0 are the integer 2.
fn version_of(value: &RawValue) -> Option<WireVersion> {
    let number: f64 = serde_json::from_str(value.get()).ok()?;
    let version = number as WireVersion;
    (f64::from(version) == number).then_some(version)
}

/// The attachments in a list. The engine checks the placeholders.
fn attachments(list: &RawValue) -> Result<Attachments, String> {
    Attachments::of_json(list.get()).ok_or_else(|| {
        format!("\"attachments\" must be an array of 1 to {ATTACHMENTS_MAX} strings, each base64 with padding")
    })
}

/// The text of a JSON string.
pub(super) fn text_of(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

/// Whether a value is an object.
pub(super) fn is_object(value: &RawValue) -> bool {
    value.get().starts_with('{')
}

/// Whether a value is an object or array.
pub(super) fn is_container(value: &RawValue) -> bool {
    value.get().starts_with(['{', '['])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<Command<'_>, &str>) {
        let raw = RawValue::from_string(text.to_owned()).expect("the case is JSON");
        let found = Command::parse(&raw, 10);
        assert_eq!(found, expected.map_err(str::to_owned), "{text}");
    }

    #[test]
    fn every_command_of_the_table_is_read() {
        check(
            r#"{"topic":"event","action":"emit","eventName":"e"}"#,
            Ok(Command::Emit {
                name: "e".into(),
                data: None,
                binary: None,
                attachments: None,
            }),
        );
        let of_bytes = |content_type, bytes: &[u8]| {
            Ok(Command::Emit {
                name: "e".into(),
                data: None,
                binary: Some(Binary::new(content_type, bytes)),
                attachments: None,
            })
        };
        check(
            r#"{"topic":"event","action":"emit","eventName":"e","base64":"AP8=","contentType":"a/b"}"#,
            of_bytes(Some("a/b"), &[0, 255]),
        );
        check(
            r#"{"topic":"event","action":"emit","eventName":"e","base64":""}"#,
            of_bytes(Some("application/octet-stream"), &[]),
        );
        check(
            r#"{"topic":"event","action":"emit","eventName":"e","data":{"_placeholder":true,"num":0},"attachments":["AP8="]}"#,
            Ok(Command::Emit {
                name: "e".into(),
                data: Some(r#"{"_placeholder":true,"num":0}"#),
                binary: None,
                attachments: Attachments::new([[0, 255]]),
            }),
        );
        check(
            r#"{"data": {"a":1.0},"topic":"rpc","action":"make","rpcName":"r"}"#,
            Ok(Command::Make {
                name: "r".into(),
                data: Some(r#"{"a":1.0}"#),
            }),
        );
        let write = |path: Option<&str>, data, version| {
            Ok(Command::Write {
                name: "r".into(),
                path: path.map(str::to_owned),
                data,
                version,
            })
        };
        let head = r#""topic":"record","action":"write","recordName":"r""#;
        check(&format!(r#"{{{head},"data":[]}}"#), write(None, "[]", -1));
        check(
            &format!(r#"{{{head},"data":{{}},"version":7}}"#),
            write(None, "{}", 7),
        );
        check(
            &format!(r#"{{{head},"data":{{}},"version":2.0}}"#),
            write(None, "{}", 2),
        );
        check(
            &format!(r#"{{{head},"path":"a.b","data":null,"version":0}}"#),
            write(Some("a.b"), "null", -1),
        );
        check(
            &format!(r#"{{{head},"path":"","data":{{}}}}"#),
            write(None, "{}", -1),
        );
        check(
            r#"{"topic":"list","action":"write","listName":"r","data":["a"]}"#,
            write(None, r#"["a"]"#, -1),
        );
        check(
            r#"{"topic":"presence","action":"query"}"#,
            Ok(Command::Query { names: None }),
        );
    }

    #[test]
    fn of_equal_keys_the_last_one_counts() {
        check(
            r#"{"topic":"x","action":"read","topic":"record","recordName":"a","recordName":"b"}"#,
            Ok(Command::Read { name: "b".into() }),
        );
    }

    #[test]
    fn every_mistake_is_named() {
        let cases = [
            ("7", "a command must be an object"),
            (r#"{"action":"emit"}"#, r#""topic" must be a string"#),
            (
                r#"{"topic":"event","action":"listen"}"#,
                r#"unknown action "listen" of topic "event""#,
            ),
            (
                r#"{"topic":"event","action":"emit","eventName":""}"#,
                r#""eventName" must not be empty"#,
            ),
            (
                r#"{"topic":"event","action":"emit","eventName":"12345678901"}"#,
                r#""eventName" has more than 10 bytes (limits.name_bytes_max)"#,
            ),
            (
                r#"{"topic":"record","action":"read","recordName":"\u0001user/a"}"#,
                r#""recordName" begins with U+0001, which is reserved for the server"#,
            ),
            (
                r#"{"topic":"list","action":"delete","listName":"\u0001"}"#,
                r#""listName" begins with U+0001, which is reserved for the server"#,
            ),
            (
                r#"{"topic":"event","action":"emit","eventName":"e","x":1}"#,
                r#"unknown property "x""#,
            ),
            (
                r#"{"topic":"event","action":"emit","eventName":"e","base64":"AP8"}"#,
                r#""base64" must be base64 with padding"#,
            ),
            (
                r#"{"topic":"event","action":"emit","eventName":"e","base64":"","data":1}"#,
                r#"an event has "data" or "base64", not both"#,
            ),
            (
                r#"{"topic":"event","action":"emit","eventName":"e","attachments":["AP8="]}"#,
                r#""attachments" need "data", which has their placeholders"#,
            ),
            (
                r#"{"topic":"event","action":"emit","eventName":"e","data":1,"attachments":["AP8"]}"#,
                r#""attachments" must be an array of 1 to 10 strings, each base64 with padding"#,
            ),
            (
                r#"{"topic":"event","action":"emit","eventName":"e","data":1,"attachments":[]}"#,
                r#""attachments" must be an array of 1 to 10 strings, each base64 with padding"#,
            ),
            (
                r#"{"topic":"rpc","action":"make","rpcName":"r","attachments":["AP8="]}"#,
                r#"unknown property "attachments""#,
            ),
            (
                r#"{"topic":"event","action":"emit","eventName":"e","base64":"","contentType":"text"}"#,
                r#""contentType" must have a slash and at most 255 printable ASCII characters"#,
            ),
            (
                r#"{"topic":"event","action":"emit","eventName":"e","contentType":"a/b"}"#,
                r#"unknown property "contentType""#,
            ),
            (
                r#"{"topic":"rpc","action":"make","rpcName":"r","base64":""}"#,
                r#"unknown property "base64""#,
            ),
            (
                r#"{"topic":"record","action":"write","recordName":"r"}"#,
                r#""data" is missing"#,
            ),
            (
                r#"{"topic":"record","action":"write","recordName":"r","data":1}"#,
                r#""data" must be an object or array"#,
            ),
            (
                r#"{"topic":"record","action":"write","recordName":"r","data":{},"version":-2}"#,
                r#""version" must be an integer of at least -1"#,
            ),
            (
                r#"{"topic":"record","action":"write","recordName":"r","data":{},"version":1.5}"#,
                r#""version" must be an integer of at least -1"#,
            ),
            (
                r#"{"topic":"record","action":"write","recordName":"r","data":{},"version":2147483648}"#,
                r#""version" must be an integer of at least -1"#,
            ),
            (
                r#"{"topic":"list","action":"write","listName":"r","data":[1]}"#,
                r#""data" must be an array of strings"#,
            ),
            (
                r#"{"topic":"record","action":"notify","recordNames":[]}"#,
                r#""recordNames" must not be empty"#,
            ),
        ];
        for (text, expected) in cases {
            check(text, Err(expected));
        }
    }
}

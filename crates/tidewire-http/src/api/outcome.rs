//! The outcome of a command in deepstream's form: the object of one result.

use serde_json::{Map, Value, json};
use tidewire_core::json;
use tidewire_core::message::{
    EventAction, PresenceAction, Reason, RecordAction, RecordBulk, Refusal, RpcAction,
};
use tidewire_shard::request::Text;

use super::answer_room::Reserved;

/// The result of a command as a JSON object.
pub(super) struct Outcome {
    pub(super) text: String,
    pub(super) is_success: bool,
    /// The memory reserved for the text, if it may be large.
    pub(super) memory: Option<Reserved>,
}

impl Outcome {
    /// The command was executed and has no other result.
    pub(super) fn done() -> Self {
        Self::success(String::from("{\"success\":true}"))
    }

    /// A record's version and value.
    pub(super) fn read(version: i32, data: &str) -> Self {
        Self::success(format!(
            "{{\"version\":{version},\"data\":{data},\"success\":true}}"
        ))
    }

    /// A record's version.
    pub(super) fn head(version: i32) -> Self {
        Self::success(format!("{{\"version\":{version},\"success\":true}}"))
    }

    /// The response of an rpc; absent data stays absent.
    pub(super) fn response(data: Option<&str>) -> Self {
        match data {
            Some(data) => Self::success(format!("{{\"data\":{data},\"success\":true}}")),
            None => Self::done(),
        }
    }

    /// The users that are online, as JSON.
    pub(super) fn users(users: &str) -> Self {
        Self::success(format!("{{\"users\":{users},\"success\":true}}"))
    }

    fn success(text: String) -> Self {
        Self {
            text,
            is_success: true,
            memory: None,
        }
    }

    fn failure(fields: Value) -> Self {
        let mut object = Map::new();
        object.insert("success".into(), false.into());
        if let Value::Object(fields) = fields {
            object.extend(fields);
        }
        Self {
            text: Value::Object(object).to_string(),
            is_success: false,
            memory: None,
        }
    }

    /// The error of an rpc's provider: any JSON value.
    pub(super) fn provider_error(data: Option<&str>) -> Self {
        let error = data.unwrap_or("null");
        Self {
            text: format!("{{\"success\":false,\"errorTopic\":\"rpc\",\"error\":{error}}}"),
            is_success: false,
            memory: None,
        }
    }

    /// The deadline of the request has passed.
    pub(super) fn timeout() -> Self {
        Self::failure(json!({
            "errorTopic": "connection",
            "errorEvent": "HTTP_REQUEST_TIMEOUT",
            "error": "Request exceeded timeout before a response was received.",
        }))
    }

    /// The command was not run, because the answer to its request has no room for its result.
    pub(super) fn no_room() -> Self {
        Self::failure(json!({
            "errorTopic": "connection",
            "errorEvent": "ANSWER_TOO_LARGE",
            "error": "The command was not run: the answer to this request is full (http.answer_bytes_max). Send it in another request.",
            "retryable": true,
        }))
    }

    /// The command was run, but the answer to its request has no room for its result.
    pub(super) fn dropped() -> Self {
        Self::failure(json!({
            "errorTopic": "connection",
            "errorEvent": "ANSWER_TOO_LARGE",
            "error": "The command was run, but the answer to this request has no room for its result (http.answer_bytes_max).",
            "retryable": false,
        }))
    }

    /// The command was not run, because the node has no memory for its result.
    pub(super) fn no_memory() -> Self {
        Self::failure(json!({
            "errorTopic": "connection",
            "errorEvent": "SERVER_BUSY",
            "error": "The command was not run: the server has no memory for its result (limits.memory_bytes_max). Send it again later.",
            "retryable": true,
        }))
    }

    /// The session was ended before the answer arrived.
    pub(super) fn ended(reason: &str) -> Self {
        Self::failure(json!({
            "errorTopic": "connection",
            "errorEvent": "SESSION_ENDED",
            "error": reason,
        }))
    }

    /// The event was not published.
    pub(super) fn emit(refusal: &Refusal<'_, EventAction>) -> Self {
        match refusal.reason {
            Reason::Denied => Self::failure(json!({
                "errorTopic": "event",
                "errorEvent": "MESSAGE_DENIED",
                "errorAction": "emit",
                "error": "Message denied. Action 'emit' is not permitted.",
            })),
            Reason::RuleFailed => other("event", 103, "MESSAGE_PERMISSION_ERROR"),
            Reason::InvalidData => other("event", 105, "INVALID_MESSAGE_DATA"),
            _ => other("event", 106, "MULTIPLE_SUBSCRIPTIONS"),
        }
    }

    /// No provider has answered the rpc.
    pub(super) fn rpc(refusal: &Refusal<'_, RpcAction>) -> Self {
        match refusal.reason {
            Reason::Denied => denied("rpc", 107, "REQUEST", 2),
            Reason::RuleFailed => other("rpc", 106, "MESSAGE_PERMISSION_ERROR"),
            Reason::InvalidData => other("rpc", 108, "INVALID_MESSAGE_DATA"),
            Reason::NoProvider => Self::failure(json!({
                "errorTopic": "rpc",
                "errorEvent": 100,
                "error": format!("No provider was available to handle the RPC \"{}\".", refusal.name.unwrap_or_default()),
            })),
            Reason::ResponseTimeout => Self::failure(json!({
                "errorTopic": "rpc",
                "errorEvent": 104,
                "error": "The RPC response timeout was exceeded by the provider.",
            })),
            Reason::AcceptTimeout => other("rpc", 101, "ACCEPT_TIMEOUT"),
            Reason::MultipleAccept => other("rpc", 102, "MULTIPLE_ACCEPT"),
            Reason::InvalidCorrelation => other("rpc", 103, "INVALID_RPC_CORRELATION_ID"),
            _ => other("rpc", 109, "MULTIPLE_PROVIDERS"),
        }
    }

    /// A presence query was refused.
    pub(super) fn presence(refusal: &Refusal<'_, PresenceAction>) -> Self {
        match refusal.reason {
            Reason::Denied => {
                let (name, number) = match refusal.action {
                    PresenceAction::QueryAll => ("QUERY_ALL", 2),
                    _ => ("QUERY", 4),
                };
                denied("presence", 102, name, number)
            }
            Reason::RuleFailed => other("presence", 101, "MESSAGE_PERMISSION_ERROR"),
            Reason::InvalidData => other("presence", 100, "INVALID_PRESENCE_USERS"),
            _ => other("presence", 103, "MULTIPLE_SUBSCRIPTIONS"),
        }
    }

    /// A command for a record failed.
    pub(super) fn record(refusal: &Refusal<'_, RecordAction>) -> Self {
        let record = refusal.name.unwrap_or_default();
        let version = refusal.version.unwrap_or_default();
        let (event, name) = match refusal.reason {
            Reason::Denied => {
                let (name, number) = action(refusal.action);
                return denied("record", 115, name, number);
            }
            Reason::VersionExists => {
                let mut outcome = Self::failure(json!({
                    "errorTopic": "record",
                    "errorEvent": 102,
                    "error": format!("Record update failed. Version {version} exists for record \"{record}\"."),
                    "currentVersion": version,
                }));
                // If the caller may not read the record, it gets the version only. The value was checked when the server
                // received it, so its text is copied unchanged: as a tree it would take many times as much memory.
                if let Some(data) = refusal.data {
                    outcome.text.pop();
                    outcome.text.push_str(",\"currentData\":");
                    outcome.text.push_str(data);
                    outcome.text.push('}');
                }
                return outcome;
            }
            Reason::InvalidVersion => {
                return Self::failure(json!({
                    "errorTopic": "record",
                    "errorEvent": 108,
                    "error": format!("Record update failed. Version {version} is not valid for record \"{record}\"."),
                    "currentVersion": version,
                }));
            }
            Reason::NotFound => {
                return Self::failure(json!({
                    "errorTopic": "record",
                    "errorEvent": 107,
                    "error": format!("Record read failed. Record \"{record}\" could not be found."),
                }));
            }
            Reason::LoadTimeout => (101, "STORAGE_RETRIEVAL_TIMEOUT"),
            Reason::LoadFailed => (103, "RECORD_LOAD_ERROR"),
            Reason::CreateFailed => (104, "RECORD_CREATE_ERROR"),
            Reason::UpdateFailed => (105, "RECORD_UPDATE_ERROR"),
            Reason::DeleteFailed => (106, "RECORD_DELETE_ERROR"),
            Reason::PatchOnHotPath => (109, "INVALID_PATCH_ON_HOTPATH"),
            Reason::WriteUnknown => (120, "WRITE_UNKNOWN"),
            Reason::TransactionRefused => (121, "TRANSACTION_REFUSED"),
            Reason::NotifyFailed => (113, "RECORD_NOTIFY_ERROR"),
            Reason::RuleFailed => (114, "MESSAGE_PERMISSION_ERROR"),
            Reason::InvalidData => (116, "INVALID_MESSAGE_DATA"),
            _ => (117, "MULTIPLE_SUBSCRIPTIONS"),
        };
        other("record", event, name)
    }
}

/// A list of users as JSON.
pub(super) fn user_list(names: &[Text]) -> String {
    let mut text = String::from("[");
    for (index, name) in names.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        json::string(name, &mut text);
    }
    text.push(']');
    text
}

fn denied(topic: &str, event: u32, action: &str, number: u32) -> Outcome {
    Outcome::failure(json!({
        "errorTopic": topic,
        "errorEvent": event,
        "error": format!("Message denied. Action \"{action}\" is not permitted."),
        "action": number,
    }))
}

fn other(topic: &str, event: u32, name: &str) -> Outcome {
    Outcome::failure(json!({
        "errorTopic": topic,
        "errorEvent": event,
        "error": format!("An error occurred: {name}."),
        "errorParams": name,
    }))
}

/// Deepstream's name and number of an action.
fn action(action: RecordAction) -> (&'static str, u32) {
    match action {
        RecordAction::Bulk(RecordBulk::Notify) => ("NOTIFY", 2),
        RecordAction::Read => ("READ", 3),
        RecordAction::Head => ("HEAD", 5),
        RecordAction::Delete => ("DELETE", 9),
        RecordAction::CreateAndUpdate => ("CREATEANDUPDATE", 16),
        RecordAction::CreateAndPatch => ("CREATEANDPATCH", 17),
        RecordAction::Update => ("UPDATE", 18),
        RecordAction::Patch => ("PATCH", 19),
        RecordAction::Erase => ("ERASE", 20),
        RecordAction::Bulk(RecordBulk::SubscribeAndHead) => ("SUBSCRIBEANDHEAD", 21),
        RecordAction::Bulk(RecordBulk::SubscribeAndRead) => ("SUBSCRIBEANDREAD", 22),
        RecordAction::Bulk(RecordBulk::SubscribeCreateAndRead) => ("SUBSCRIBECREATEANDREAD", 23),
        RecordAction::Bulk(RecordBulk::Subscribe) => ("SUBSCRIBE", 25),
        RecordAction::Bulk(RecordBulk::Unsubscribe) => ("UNSUBSCRIBE", 26),
        RecordAction::Listen => ("LISTEN", 27),
        RecordAction::PatchMulti => ("PATCH_MULTI", 35),
    }
}

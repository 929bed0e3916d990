//! The permission seam: the only authorizer of principals.
//!
//! A permission is pure and shared by all shards. If it answers that it first needs another record, the engine reads the current value
//! from that record's owner and calls the permission again.

use std::fmt;

use crate::message::{PresenceAction, RecordAction};
use crate::principal::Principal;
use crate::text::{Name, Payload};
use crate::time::WallTime;

/// Kind of access that a principal requests. The names follow the types of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Publish an event.
    EventPublish,
    /// Subscribe to an event.
    EventSubscribe,
    /// Register a pattern for events.
    EventListen,
    /// Create a record.
    RecordCreate,
    /// Read a record or subscribe to it.
    RecordRead,
    /// Write a record.
    RecordWrite,
    /// Delete a record or a part of it.
    RecordDelete,
    /// Register a pattern for records.
    RecordListen,
    /// Load records again.
    RecordNotify,
    /// Register as provider.
    RpcProvide,
    /// Call an rpc.
    RpcRequest,
    /// Query or subscribe to presence.
    Presence,
    /// Be a member of a scope with a state.
    PresenceJoin,
    /// Subscribe to the members of a scope.
    PresenceSubscribe,
}

/// The requesting message, if the kind of access does not identify it. Rules can distinguish these messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RequestedAction {
    /// The access identifies the message.
    #[default]
    Plainly,
    /// By this action of records.
    Record(RecordAction),
    /// By this action of presence.
    Presence(PresenceAction),
    /// By a query, which authorizes each record that it selects. The principal has not requested that record.
    Query,
}

/// A request for a decision.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The principal that requests access.
    pub principal: &'a Principal,
    /// The kind of access.
    pub access: Access,
    /// The requesting message.
    pub by: RequestedAction,
    /// The requested name. Absent for requests about all users.
    pub name: Option<&'a str>,
    /// The new data: an event's or call's payload, or the record as it would be after the write.
    pub data: Option<&'a str>,
    /// The record as it is; absent if it does not exist.
    pub old_data: Option<&'a str>,
    /// The time of the turn, for rules that compare times.
    pub now: WallTime,
    /// The other records read so far: `None` inside means that the record does not exist.
    pub values: &'a [(Name, Option<Payload>)],
}

impl Question<'_> {
    /// The value of another record, or the decision that it is needed.
    ///
    /// # Errors
    /// `Decision::Need`, to be returned to the engine.
    pub fn record(&self, name: &str) -> Result<Option<&Payload>, Decision> {
        match self.values.iter().find(|(known, _)| known.as_str() == name) {
            Some((_, value)) => Ok(value.as_ref()),
            None => Err(Decision::Need(Name::from(name))),
        }
    }
}

/// The answer of a permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The access is allowed.
    Allow,
    /// The access is denied.
    Deny,
    /// The rule could not be evaluated. The access is denied, but with another error.
    Failed,
    /// The rule first needs the value of this record.
    Need(Name),
}

/// The documents of a question that are not known yet. They are `None` in the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// The record as it would be after a write: the change was not applied yet.
    pub data: bool,
    /// The record as it is: it was not loaded yet.
    pub old_data: bool,
}

impl Unknown {
    /// Neither document is known.
    pub const BOTH: Self = Self {
        data: true,
        old_data: true,
    };
}

/// The inputs that decide whether a principal may read a record, in addition to the rules and the principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadRight {
    /// No further input: a session that may read the record may read each later value.
    Fixed,
    /// Other records or the time.
    ByOthers,
    /// The record itself, and maybe other records.
    ByRecord,
}

/// The inputs that decide who may read the records of a collection, in addition to the rules, the names and the records themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryRight {
    /// No further input: all principals may read the same records.
    Common,
    /// The principal.
    ByPrincipal,
    /// Other records or the time, and maybe the principal.
    ByOthers,
}

/// The inputs that decide who may get an event, in addition to the rules and the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventRight {
    /// No further input: all principals may get the event, or none may.
    Constant(bool),
    /// The principal.
    ByPrincipal,
    /// Other records or the time, and maybe the principal.
    ByOthers,
}

/// Decides what principals may do. Implementations are pure: the same question has the same answer.
pub trait Permission: Send + Sync + fmt::Debug {
    /// Decides about a question. `Need` may only name a record that is not among the question's values.
    fn decide(&self, question: &Question<'_>) -> Decision;

    /// Decides before some documents are known. The result is the one that [`Permission::decide`] would have for all possible documents,
    /// or `None` if it depends on them. An early denial costs neither a load of the record nor a change of its value, and tells nothing
    /// about it. A permission that always returns `None` is correct, too.
    fn decide_without(&self, question: &Question<'_>, unknown: Unknown) -> Option<Decision> {
        let _ = (question, unknown);
        None
    }

    /// Whether a principal that may query all users may be denied single users. If so, each user is authorized separately.
    fn tells_users_apart(&self, principal: &Principal) -> bool {
        let _ = principal;
        true
    }

    /// The inputs of a principal's right to read this record. Unless the right is fixed, a subscriber is authorized again before it gets
    /// a change.
    fn read_right(&self, principal: &Principal, name: &str) -> ReadRight {
        let _ = (principal, name);
        ReadRight::ByRecord
    }

    /// The inputs that decide who may subscribe to this event. Subscribers of a pattern are authorized for each name that is published, and
    /// the engine keeps a decision for as long as its inputs allow.
    fn event_right(&self, name: &str) -> EventRight {
        let _ = name;
        EventRight::ByOthers
    }

    /// A principal begins a query of the records whose names begin with `prefix`.
    fn begin_query(&self, principal: &Principal, prefix: &str) {
        let _ = (principal, prefix);
    }

    /// The fields of the record that decide whether the principal may read it, if nothing else of its value does: the decision is the same for
    /// a document with these fields only. Each is a member of the record's value, and the document has a string, a number or a boolean there.
    fn read_fields(&self, principal: &Principal, name: &str) -> Option<&[Box<str>]> {
        let _ = (principal, name);
        None
    }

    /// The inputs that decide who may read the records whose names begin with `prefix`.
    fn query_right(&self, prefix: &str) -> QueryRight {
        let _ = prefix;
        QueryRight::ByOthers
    }

    /// Decides about a pattern to listen with or to subscribe to, which is the question's name. Returns whether any name that begins with
    /// `prefix` may be allowed. Each name is authorized once more when it is offered or published, so this only denies early a pattern
    /// that can't match an allowed name.
    fn decide_pattern(&self, question: &Question<'_>, prefix: &str) -> Decision {
        let _ = prefix;
        self.decide(question)
    }
}

/// Allows everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllowAll;

impl Permission for AllowAll {
    fn decide(&self, _question: &Question<'_>) -> Decision {
        Decision::Allow
    }

    fn decide_without(&self, _question: &Question<'_>, _unknown: Unknown) -> Option<Decision> {
        Some(Decision::Allow)
    }

    fn tells_users_apart(&self, _principal: &Principal) -> bool {
        false
    }

    fn read_right(&self, _principal: &Principal, _name: &str) -> ReadRight {
        ReadRight::Fixed
    }

    fn event_right(&self, _name: &str) -> EventRight {
        EventRight::Constant(true)
    }

    fn query_right(&self, _prefix: &str) -> QueryRight {
        QueryRight::Common
    }
}

/// The permission's answer to a message, at its session's shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authorization {
    /// It is allowed.
    Allow,
    /// It is denied.
    Deny,
    /// A rule needs a record first.
    Wait,
    /// The rule failed.
    Failed,
}

//! The permission seam: the only authorizer of what a principal may do.
//!
//! A permission is pure and shared by all shards. It may answer that it first needs another record; the engine reads
//! that record's current value from its owner and asks again.

use std::fmt;

use crate::effect::Principal;
use crate::message::{PresenceAction, RecordAction};
use crate::text::{Name, Payload};
use crate::time::WallTime;

/// What somebody wants to do. The names follow deepstream's rule types.
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
    /// Have records loaded again.
    RecordNotify,
    /// Register as provider.
    RpcProvide,
    /// Call.
    RpcRequest,
    /// Ask for or subscribe to presence.
    Presence,
}

/// The message that asks, where its kind of access does not say it. Rules can tell them apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Asked {
    /// The access says it.
    #[default]
    Plainly,
    /// By this action of records.
    Record(RecordAction),
    /// By this action of presence.
    Presence(PresenceAction),
}

/// A request for a decision.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// Who asks.
    pub principal: &'a Principal,
    /// For what.
    pub access: Access,
    /// By which message.
    pub by: Asked,
    /// On which name; absent for requests about all users.
    pub name: Option<&'a str>,
    /// The new data: an event's or call's payload, or the record as it would be after the write.
    pub data: Option<&'a str>,
    /// The record as it is; absent if it does not exist.
    pub old_data: Option<&'a str>,
    /// The time of the turn.
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
    /// Go on.
    Allow,
    /// No.
    Deny,
    /// The rule could not be evaluated, which counts as no but is told apart.
    Failed,
    /// The value of this record is needed first.
    Need(Name),
}

/// The documents of a question that are not known yet. The question has `None` for them.
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

/// What the right to read a record depends on, beside the rules and the principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadRight {
    /// On nothing: a session that may read the record may read each later value.
    Fixed,
    /// On other records or on the time.
    ByOthers,
    /// On the record itself, and maybe on others.
    ByRecord,
}

/// Decides what principals may do. Implementations are pure: the same question has the same answer.
pub trait Permission: Send + Sync + fmt::Debug {
    /// Decides. `Need` may only name a record that is not among the question's values.
    fn decide(&self, question: &Question<'_>) -> Decision;

    /// Decides before some documents are known, as [`Permission::decide`] would decide whatever they are. `None` if that depends on
    /// them. What is denied here costs neither a load of the record nor a change of its value, and tells nothing about it; a permission
    /// that always gives `None` is right, too.
    fn decide_without(&self, question: &Question<'_>, unknown: Unknown) -> Option<Decision> {
        let _ = (question, unknown);
        None
    }

    /// Whether a principal that may ask for everyone's presence may be denied that of single users, who are authorized one by one then.
    fn tells_users_apart(&self, principal: &Principal) -> bool {
        let _ = principal;
        true
    }

    /// What the right of a principal to read this record depends on. Unless it is fixed, the right of a subscriber is checked again
    /// before it gets a change.
    fn read_right(&self, principal: &Principal, name: &str) -> ReadRight {
        let _ = (principal, name);
        ReadRight::ByRecord
    }

    /// Decides about a pattern to listen with, which is the question's name: whether any name that begins with `prefix` may be
    /// allowed. Each name is decided once more when it is offered, so this only refuses early what can't lead to anything.
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
}

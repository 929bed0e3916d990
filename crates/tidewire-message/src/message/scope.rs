//! Messages of presence in a scope: sessions that are members of a named scope, each with a state.

/// Messages of presence in a scope. A state is JSON text.
#[derive(Clone, Debug, PartialEq)]
pub enum Scope<'a> {
    /// The session becomes a member with this state. If it is a member, the state replaces the one before.
    Join {
        /// The scope.
        name: &'a str,
        /// The state.
        state: &'a str,
    },
    /// Acknowledges `Join`.
    Joined {
        /// The scope.
        name: &'a str,
        /// The id of the member, as JSON text.
        data: &'a str,
    },
    /// The member has a new state.
    Update {
        /// The scope.
        name: &'a str,
        /// The state.
        state: &'a str,
    },
    /// The session is no longer a member.
    Leave {
        /// The scope.
        name: &'a str,
    },
    /// Requests the members with their states, and their changes until `Unsubscribe`.
    Subscribe {
        /// The scope.
        name: &'a str,
    },
    /// Ends the subscription.
    Unsubscribe {
        /// The scope.
        name: &'a str,
    },
    /// All members: the answer to `Subscribe`, or a later list that replaces it.
    Snapshot {
        /// The scope.
        name: &'a str,
        /// A JSON object with the members in `members`.
        data: &'a str,
    },
    /// Changes of the members since the snapshot or the changes before.
    Changed {
        /// The scope.
        name: &'a str,
        /// A JSON array.
        data: &'a str,
    },
    /// The request is refused. A refusal of `Join` or `Subscribe` also ends what an earlier one has begun.
    Error {
        /// Why.
        reason: ScopeReason,
        /// The refused action.
        action: ScopeAction,
        /// The scope.
        name: &'a str,
    },
}

/// The actions of scopes that can be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScopeAction {
    /// Join.
    Join,
    /// Update.
    Update,
    /// Subscribe.
    Subscribe,
}

/// Why the server refuses an action of a scope. `spec/errors.toml` has the code of each reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScopeReason {
    /// Denied by a rule.
    Denied,
    /// The rule could not be evaluated.
    RuleFailed,
    /// The scope is not a name, or the state is not JSON.
    Invalid,
    /// The state is too large.
    TooLarge,
    /// The session uses too many scopes.
    TooMany,
    /// The scope has too many members.
    Full,
    /// The session is not a member.
    NotMember,
    /// The server has no memory for it now. The same request may succeed later.
    Unavailable,
}

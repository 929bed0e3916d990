//! A set of rules: for each kind of access the paths with a rule for it, in the order of evaluation.

use std::sync::Arc;

use tidewire_core::permission::Access;

use crate::limits::RuleLimits;
use crate::pattern::{Pattern, Variables};
use crate::rule::Rule;

/// The kinds of rules: section and name in the file, the guarded access, and whether they may use `data` and
/// `oldData`.
pub const RULE_KINDS: [RuleKind; 14] = [
    RuleKind::new("record", "create", Access::RecordCreate, false, false),
    RuleKind::new("record", "read", Access::RecordRead, false, true),
    RuleKind::new("record", "write", Access::RecordWrite, true, true),
    RuleKind::new("record", "delete", Access::RecordDelete, false, true),
    RuleKind::new("record", "listen", Access::RecordListen, false, false),
    RuleKind::new("record", "notify", Access::RecordNotify, false, false),
    RuleKind::new("event", "publish", Access::EventPublish, true, false),
    RuleKind::new("event", "subscribe", Access::EventSubscribe, true, false),
    RuleKind::new("event", "listen", Access::EventListen, false, false),
    RuleKind::new("rpc", "provide", Access::RpcProvide, false, false),
    RuleKind::new("rpc", "request", Access::RpcRequest, true, false),
    RuleKind::new("presence", "allow", Access::Presence, false, false),
    RuleKind::new("presence", "join", Access::PresenceJoin, true, false),
    RuleKind::new(
        "presence",
        "subscribe",
        Access::PresenceSubscribe,
        false,
        false,
    ),
];

/// The path that matches every name; each section has it.
pub const EVERY_NAME: &str = "*";

/// The sections of a file, all of which it must have.
pub const SECTIONS: [&str; 4] = ["record", "event", "rpc", "presence"];

/// One kind of rules.
#[derive(Clone, Copy, Debug)]
pub struct RuleKind {
    /// The section.
    pub section: &'static str,
    /// The name within a path.
    pub name: &'static str,
    /// The guarded access.
    pub access: Access,
    /// Whether the rule may use `data`.
    pub has_data: bool,
    /// Whether the rule may use `oldData`.
    pub has_old_data: bool,
}

impl RuleKind {
    const fn new(
        section: &'static str,
        name: &'static str,
        access: Access,
        has_data: bool,
        has_old_data: bool,
    ) -> Self {
        Self {
            section,
            name,
            access,
            has_data,
            has_old_data,
        }
    }
}

/// A position in a file, both counted from 1, columns in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourcePosition {
    /// The line.
    pub line: u64,
    /// The column.
    pub column: u64,
}

/// The content of a rule.
#[derive(Clone, Debug)]
pub enum Body {
    /// `true` or `false`.
    Constant(bool),
    /// An expression.
    Rule(Box<Rule>),
}

/// A rule at its path.
#[derive(Clone, Debug)]
pub struct LocatedRule {
    /// The path.
    pub path: Arc<Pattern>,
    /// The kind.
    pub kind: &'static RuleKind,
    /// The rule.
    pub body: Body,
    /// Its position in the file.
    pub position: SourcePosition,
}

impl LocatedRule {
    /// Whether it may decide differently for two names, or differently from the path `*`.
    fn tells_names_apart(&self) -> bool {
        match &self.body {
            Body::Constant(true) => false,
            Body::Constant(false) => self.path.as_str() != EVERY_NAME,
            Body::Rule(rule) => self.path.as_str() != EVERY_NAME || rule.uses().question,
        }
    }

    /// The rule as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        match &self.body {
            Body::Constant(true) => "true",
            Body::Constant(false) => "false",
            Body::Rule(rule) => rule.text(),
        }
    }
}

/// All rules of a file.
#[derive(Clone, Debug)]
pub struct RuleSet {
    /// The name of the file, for messages.
    file: Arc<str>,
    /// By kind; within one the longest path first, of equally long ones the last one in the file.
    rules: [Vec<LocatedRule>; RULE_KINDS.len()],
    /// Whether the presence of single users may be decided differently from the presence of all users.
    tells_users_apart: bool,
    limits: RuleLimits,
}

impl RuleSet {
    /// Orders the rules of a file.
    pub(crate) fn new(file: &str, rules: Vec<LocatedRule>, limits: RuleLimits) -> Self {
        let mut set = Self {
            file: file.into(),
            rules: Default::default(),
            tells_users_apart: false,
            limits,
        };
        for rule in rules.into_iter().rev() {
            set.rules[index_of(rule.kind.access)].push(rule);
        }
        for rules in &mut set.rules {
            // Stable, and filled from the end of the file.
            rules.sort_by_key(|rule| std::cmp::Reverse(utf16_length(rule.path.as_str())));
        }
        let mut presence = set.rules(Access::Presence).iter();
        set.tells_users_apart = presence.any(LocatedRule::tells_names_apart);
        set
    }

    /// The name of the file.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The limits it was loaded with.
    #[must_use]
    pub fn limits(&self) -> &RuleLimits {
        &self.limits
    }

    /// All rules of one kind, in the order of evaluation.
    #[must_use]
    pub fn rules(&self, access: Access) -> &[LocatedRule] {
        &self.rules[index_of(access)]
    }

    /// Whether a principal that may query the presence of all users may be denied single users.
    #[must_use]
    pub fn tells_users_apart(&self) -> bool {
        self.tells_users_apart
    }

    /// The rule for the presence of all users: that of the path `*`. This request has no name that a longer path or a
    /// variable could match.
    #[must_use]
    pub fn find_for_everyone(&self) -> Option<&LocatedRule> {
        // The shortest paths come last.
        let mut rules = self.rules(Access::Presence).iter().rev();
        rules.find(|rule| rule.path.as_str() == EVERY_NAME)
    }

    /// The rule that decides a name, with the values of its path's variables.
    #[must_use]
    pub fn find<'n>(&self, access: Access, name: &'n str) -> Option<(&LocatedRule, Variables<'n>)> {
        self.rules(access)
            .iter()
            .find_map(|rule| Some((rule, rule.path.matches(name)?)))
    }
}

/// The length of a path in JavaScript's units. The longest path that matches decides, and rules have JavaScript's semantics.
fn utf16_length(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

const fn index_of(access: Access) -> usize {
    match access {
        Access::RecordCreate => 0,
        Access::RecordRead => 1,
        Access::RecordWrite => 2,
        Access::RecordDelete => 3,
        Access::RecordListen => 4,
        Access::RecordNotify => 5,
        Access::EventPublish => 6,
        Access::EventSubscribe => 7,
        Access::EventListen => 8,
        Access::RpcProvide => 9,
        Access::RpcRequest => 10,
        Access::Presence => 11,
        Access::PresenceJoin => 12,
        Access::PresenceSubscribe => 13,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_kind_has_its_index() {
        for (index, kind) in RULE_KINDS.iter().enumerate() {
            assert_eq!(
                index_of(kind.access),
                index,
                "{} {}",
                kind.section,
                kind.name
            );
            assert!(SECTIONS.contains(&kind.section));
        }
    }
}

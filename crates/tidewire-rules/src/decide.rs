//! A rule set as the engine's permission.

use tidewire_core::permission::{
    Access, Decision, EventRight, Permission, QueryRight, Question, ReadRight, RequestedAction,
    Unknown,
};
use tidewire_core::principal::Principal;
use tidewire_core::text::Name;
use tidewire_core::time::WallTime;

use crate::action;
use crate::pattern::Variables;
use crate::rule::{Document, Outcome, Records, Scope, User};
use crate::set::{Body, EVERY_NAME, LocatedRule, RuleSet};

/// A decision and its rule. Without a rule the action is denied.
#[derive(Clone, Debug)]
pub struct Explanation<'s> {
    /// The decision.
    pub decision: Decision,
    /// The rule.
    pub rule: Option<&'s LocatedRule>,
}

impl RuleSet {
    /// Decides, and returns the deciding rule.
    #[must_use]
    pub fn explain(&self, question: &Question<'_>) -> Explanation<'_> {
        let Some((rule, variables)) = self.deciding(question) else {
            return Explanation {
                decision: Decision::Deny,
                rule: None,
            };
        };
        Explanation {
            decision: self.evaluate(rule, &variables, question),
            rule: Some(rule),
        }
    }

    /// Decides before some documents are known, and returns the deciding rule; `None` if that rule uses one of them.
    #[must_use]
    pub fn explain_without(
        &self,
        question: &Question<'_>,
        unknown: Unknown,
    ) -> Option<Explanation<'_>> {
        let Some((rule, variables)) = self.deciding(question) else {
            return Some(Explanation {
                decision: Decision::Deny,
                rule: None,
            });
        };
        let data = match unknown.data {
            true => Document::Unknown,
            false => Document::or_undefined(question.data),
        };
        let old_data = match unknown.old_data {
            true => Document::Unknown,
            false => Document::or_null(question.old_data),
        };
        Some(Explanation {
            decision: self.evaluate_with(rule, &variables, question, data, old_data)?,
            rule: Some(rule),
        })
    }

    /// The result of each rule whose path matches the name. The first one decides.
    pub fn candidates<'s>(
        &'s self,
        question: &Question<'_>,
    ) -> impl Iterator<Item = Explanation<'s>> {
        let name = question.name;
        self.rules(question.access).iter().filter_map(move |rule| {
            let variables = match name {
                Some(name) => rule.path.matches(name)?,
                None if rule.path.as_str() == EVERY_NAME => Variables::new(),
                None => return None,
            };
            Some(Explanation {
                decision: self.evaluate(rule, &variables, question),
                rule: Some(rule),
            })
        })
    }

    /// The deciding rule and the values of its path's variables.
    fn deciding<'q>(&self, question: &Question<'q>) -> Option<(&LocatedRule, Variables<'q>)> {
        match question.name {
            Some(name) => self.find(question.access, name),
            None => Some((self.find_for_everyone()?, Variables::new())),
        }
    }

    /// Whether a rule may allow some of the names that its path matches: it may if it depends on the name or on
    /// records.
    fn decide_pattern_of(&self, rule: &LocatedRule, question: &Question<'_>) -> Decision {
        if let Body::Rule(rule) = &rule.body
            && (rule.uses().name || rule.uses().records)
        {
            return Decision::Allow;
        }
        self.evaluate(rule, &[], question)
    }

    fn evaluate(
        &self,
        rule: &LocatedRule,
        variables: &[&str],
        question: &Question<'_>,
    ) -> Decision {
        let data = Document::or_undefined(question.data);
        let old_data = Document::or_null(question.old_data);
        let decision = self.evaluate_with(rule, variables, question, data, old_data);
        // With both documents known there is always a decision.
        decision.unwrap_or(Decision::Failed)
    }

    /// Decides with these documents; `None` if the rule uses an unknown one.
    fn evaluate_with(
        &self,
        rule: &LocatedRule,
        variables: &[&str],
        question: &Question<'_>,
        data: Document<'_>,
        old_data: Document<'_>,
    ) -> Option<Decision> {
        let rule = match &rule.body {
            Body::Constant(true) => return Some(Decision::Allow),
            Body::Constant(false) => return Some(Decision::Deny),
            Body::Rule(rule) => rule,
        };
        let scope = Scope {
            user: User {
                id: &question.principal.user_id,
                data: Document::or_null(question.principal.server_data().map(|data| data.as_str())),
            },
            data,
            old_data,
            now: question.now.0,
            action: action::number(question.access, question.by),
            name: question.name,
            variables,
        };
        match rule.decide(&scope, &Read(question), self.limits()) {
            Outcome::True => Some(Decision::Allow),
            Outcome::False => Some(Decision::Deny),
            Outcome::Error => Some(Decision::Failed),
            Outcome::Need(name) => Some(Decision::Need(name)),
            Outcome::Unknown => None,
        }
    }
}

impl Permission for RuleSet {
    fn decide(&self, question: &Question<'_>) -> Decision {
        self.explain(question).decision
    }

    fn decide_without(&self, question: &Question<'_>, unknown: Unknown) -> Option<Decision> {
        let explanation = self.explain_without(question, unknown)?;
        Some(explanation.decision)
    }

    fn tells_users_apart(&self, _principal: &Principal) -> bool {
        self.tells_users_apart()
    }

    fn read_right(&self, _principal: &Principal, name: &str) -> ReadRight {
        let rule = self.find(Access::RecordRead, name);
        let Some(Body::Rule(rule)) = rule.map(|(rule, _)| &rule.body) else {
            return ReadRight::Fixed;
        };
        let uses = rule.uses();
        if uses.old_data.is_some() {
            ReadRight::ByRecord
        } else if uses.records || uses.now {
            ReadRight::ByOthers
        } else {
            ReadRight::Fixed
        }
    }

    fn read_fields(&self, _principal: &Principal, name: &str) -> Option<&[Box<str>]> {
        let (rule, _) = self.find(Access::RecordRead, name)?;
        match &rule.body {
            Body::Rule(rule) => rule.old_data_fields(),
            Body::Constant(_) => Some(&[]),
        }
    }

    fn event_right(&self, name: &str) -> EventRight {
        let Some((rule, variables)) = self.find(Access::EventSubscribe, name) else {
            return EventRight::Constant(false);
        };
        if let Body::Rule(rule) = &rule.body {
            let uses = rule.uses();
            if uses.records || uses.now {
                return EventRight::ByOthers;
            }
            if uses.user {
                return EventRight::ByPrincipal;
            }
        }
        // The rule uses neither of these, so any principal and any time will do.
        let question = Question {
            principal: &Principal::new(Name::from("")),
            access: Access::EventSubscribe,
            by: RequestedAction::Plainly,
            name: Some(name),
            data: None,
            old_data: None,
            now: WallTime(0),
            values: &[],
        };
        EventRight::Constant(self.evaluate(rule, &variables, &question) == Decision::Allow)
    }

    fn query_right(&self, prefix: &str) -> QueryRight {
        let mut right = QueryRight::Common;
        let rules = self.rules(Access::RecordRead).iter();
        for rule in rules.filter(|rule| rule.path.may_begin_with(prefix)) {
            if let Body::Rule(body) = &rule.body {
                let uses = body.uses();
                if uses.records || uses.now {
                    return QueryRight::ByOthers;
                }
                if uses.user {
                    right = QueryRight::ByPrincipal;
                }
            }
            // The shorter paths after it decide no name with this prefix.
            if rule.path.takes_all_with(prefix) {
                break;
            }
        }
        right
    }

    fn decide_pattern(&self, question: &Question<'_>, prefix: &str) -> Decision {
        let mut decision = Decision::Deny;
        let rules = self.rules(question.access).iter();
        for rule in rules.filter(|rule| rule.path.may_begin_with(prefix)) {
            match self.decide_pattern_of(rule, question) {
                Decision::Allow => return Decision::Allow,
                Decision::Failed => decision = Decision::Failed,
                Decision::Deny | Decision::Need(_) => {}
            }
            // The shorter paths after it decide no name with this prefix.
            if rule.path.takes_all_with(prefix) {
                break;
            }
        }
        decision
    }
}

/// The records that the engine has read for a question.
struct Read<'q>(&'q Question<'q>);

impl<'q> Records<'q> for Read<'q> {
    fn find(&self, name: &str) -> Option<Document<'q>> {
        let (_, value) = self
            .0
            .values
            .iter()
            .find(|(known, _)| known.as_str() == name)?;
        Some(Document::or_null(
            value.as_ref().map(|value| value.as_str()),
        ))
    }

    fn count(&self) -> usize {
        self.0.values.len()
    }
}

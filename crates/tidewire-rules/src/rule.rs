//! One accepted expression and its decision.

use std::cell::{Cell, RefCell};

use tidewire_core::text::Name;

use crate::coerce;
use crate::evaluate::{Records as Find, Run};
use crate::expression::Expression;
use crate::fields;
use crate::limits::RuleLimits;
use crate::parser;
use crate::steps::{Steps, Stop};
use crate::value::Value;

pub use crate::evaluate::Scope;
pub use crate::lexer::RuleError;
pub use crate::parser::Uses;
pub use crate::value::{Document, User};

/// A rule.
#[derive(Clone, Debug)]
pub struct Rule {
    text: String,
    expression: Expression,
    uses: Uses,
    old_data_fields: Option<Box<[Box<str>]>>,
}

/// The result of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its value is truthy.
    True,
    /// Its value is falsy.
    False,
    /// JavaScript would throw, or a limit was reached.
    Error,
    /// The rule must run again with this record.
    Need(Name),
    /// The rule uses a document that is not known yet.
    Unknown,
}

/// The other records that were read, by name; an inner `None` is a record that does not exist.
pub trait Records<'v> {
    /// The record's value, or `None` if it has not been read.
    fn find(&self, name: &str) -> Option<Document<'v>>;
    /// The number of records that were read.
    fn count(&self) -> usize;
}

impl Rule {
    /// Parses a rule of a path with these variables, named with their `$`.
    ///
    /// # Errors
    /// The first error, with its position.
    pub fn parse(text: &str, variables: &[String], limits: &RuleLimits) -> Result<Self, RuleError> {
        let (expression, uses) = parser::parse(text, variables, limits)?;
        Ok(Self {
            text: text.to_owned(),
            old_data_fields: fields::of_old_data(&expression),
            expression,
            uses,
        })
    }

    /// The rule as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The inputs that the rule uses.
    #[must_use]
    pub fn uses(&self) -> Uses {
        self.uses
    }

    /// The fields of `oldData` that the rule uses, if it uses nothing else of it.
    #[must_use]
    pub fn old_data_fields(&self) -> Option<&[Box<str>]> {
        self.old_data_fields.as_deref()
    }

    /// Runs the rule with the records that were read, again after each one that it requests, and
    /// at most `iterations_max` times.
    pub fn decide<'v, R: Records<'v>>(
        &'v self,
        scope: &'v Scope<'v>,
        records: &R,
        limits: &RuleLimits,
    ) -> Outcome {
        // Each run except the last one has requested a record. With fewer records than runs the limit can't be
        // reached. The last run finds all its records and is the only one that counts.
        if !self.uses.records || records.count() < limits.iterations_max {
            return self.run_to_need(scope, records, limits);
        }
        self.run_by_rounds(scope, records, limits)
    }

    /// The value of one run as text with its type, for tests and proofs; `None` if JavaScript would throw. A missing
    /// record makes it throw, too. Characters outside of ASCII are escaped by unit.
    pub fn show<'v, R: Records<'v>>(
        &'v self,
        scope: &'v Scope<'v>,
        records: &R,
        limits: &RuleLimits,
    ) -> Option<String> {
        let find = |name: &str| records.find(name).ok_or(Stop::Need);
        let run = Run {
            scope,
            records: &find,
            steps: Steps::new(limits.steps_max),
        };
        let value = run.evaluate(&self.expression).ok()?;
        Some(match &value {
            Value::Null => "null".to_owned(),
            Value::Number(number) if *number == 0.0 && number.is_sign_negative() => {
                "number -0".to_owned()
            }
            Value::Object(_) => match coerce::text(value, &run.steps) {
                Ok(text) => format!("object {}", text.escaped()),
                Err(_) => "object".to_owned(),
            },
            simple => {
                let name = simple.type_name();
                format!("{name} {}", coerce::text(value, &run.steps).ok()?.escaped())
            }
        })
    }

    /// Whether the value of one run is truthy.
    fn run<'v>(
        &'v self,
        scope: &'v Scope<'v>,
        find: &Find<'v, '_>,
        limits: &RuleLimits,
    ) -> Result<bool, Stop> {
        let run = Run {
            scope,
            records: find,
            steps: Steps::new(limits.steps_max),
        };
        let value = run.evaluate(&self.expression)?;
        Ok(value.is_truthy())
    }

    /// One run that stops at the first record that was not read.
    fn run_to_need<'v, R: Records<'v>>(
        &'v self,
        scope: &'v Scope<'v>,
        records: &R,
        limits: &RuleLimits,
    ) -> Outcome {
        let needed = Cell::new(None);
        let find = |name: &str| {
            records.find(name).ok_or_else(|| {
                needed.set(Some(Name::from(name)));
                Stop::Need
            })
        };
        let outcome = self.run(scope, &find, limits);
        match (outcome, needed.take()) {
            (Err(Stop::Need), Some(name)) => Outcome::Need(name),
            (outcome, _) => finished(outcome),
        }
    }

    /// All runs in sequence: each sees the records that earlier ones have requested, and continues with undefined for
    /// further ones.
    fn run_by_rounds<'v, R: Records<'v>>(
        &'v self,
        scope: &'v Scope<'v>,
        records: &R,
        limits: &RuleLimits,
    ) -> Outcome {
        let visible = RefCell::new(Vec::<Box<str>>::new());
        for _ in 0..limits.iterations_max {
            let asked = RefCell::new(Vec::<Box<str>>::new());
            let needed = Cell::new(None);
            let find = |name: &str| {
                let value = records.find(name);
                if value.is_none() {
                    needed.set(Some(Name::from(name)));
                    return Err(Stop::Need);
                }
                if visible.borrow().iter().any(|known| **known == *name) {
                    return Ok(value.unwrap_or_default());
                }
                asked.borrow_mut().push(name.into());
                Ok(Document::Undefined)
            };
            let outcome = self.run(scope, &find, limits);
            if let (Err(Stop::Need), Some(name)) = (outcome, needed.take()) {
                return Outcome::Need(name);
            }
            if asked.borrow().is_empty() || outcome == Err(Stop::Unknown) {
                return finished(outcome);
            }
            visible.borrow_mut().append(&mut asked.borrow_mut());
        }
        Outcome::Error
    }
}

fn finished(outcome: Result<bool, Stop>) -> Outcome {
    match outcome {
        Ok(true) => Outcome::True,
        Ok(false) => Outcome::False,
        Err(Stop::Unknown) => Outcome::Unknown,
        Err(_) => Outcome::Error,
    }
}

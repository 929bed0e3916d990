//! Evaluating an expression over borrowed values. The depth of the calls is that of the expression, which the parser
//! bounds; everything that takes time is paid for in steps.

use std::cell::Cell;
use std::cmp::Ordering;

use crate::coerce;
use crate::expression::{Expression, Operator};
use crate::method;
use crate::text::Text;
use crate::value::{Document, Object, User, Value, index_text};

/// What a rule can see.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'v> {
    /// `user`
    pub user: User<'v>,
    /// `data`
    pub data: Document<'v>,
    /// `oldData`
    pub old_data: Document<'v>,
    /// `now`, in milliseconds since the epoch.
    pub now: u64,
    /// `action`, deepstream's number of the message's action.
    pub action: u8,
    /// `name`
    pub name: Option<&'v str>,
    /// What the variables of the path stand for, in their order there.
    pub variables: &'v [&'v str],
}

/// Why an evaluation ends without a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// JavaScript would throw.
    Error,
    /// `steps_max` is reached.
    Exhausted,
    /// A record that is not loaded is needed.
    Need,
    /// A guard (`?.`) met null or undefined.
    Guard,
}

/// Steps that are left.
#[derive(Debug)]
pub(crate) struct Steps(Cell<u64>);

impl Steps {
    pub(crate) fn new(count: u64) -> Self {
        Self(Cell::new(count))
    }

    #[inline]
    pub(crate) fn spend(&self, count: u64) -> Result<(), Stop> {
        match self.0.get().checked_sub(count) {
            Some(left) => {
                self.0.set(left);
                Ok(())
            }
            None => Err(Stop::Exhausted),
        }
    }
}

/// Gives the value of another record, or stops with `Need`.
pub(crate) type Records<'v, 'r> = dyn Fn(&str) -> Result<Document<'v>, Stop> + 'r;

/// One evaluation.
pub(crate) struct Run<'v, 'r> {
    pub(crate) scope: &'v Scope<'v>,
    pub(crate) records: &'r Records<'v, 'r>,
    pub(crate) steps: Steps,
}

impl<'v> Run<'v, '_> {
    pub(crate) fn evaluate(&self, expression: &'v Expression) -> Result<Value<'v>, Stop> {
        self.steps.spend(1)?;
        Ok(match expression {
            Expression::Undefined => Value::Undefined,
            Expression::Null => Value::Null,
            Expression::Bool(bool) => Value::Bool(*bool),
            Expression::Number(number) => Value::Number(*number),
            Expression::Text(text) => Value::Text(text.borrowed()),
            Expression::Regular(regular) => Value::Object(Object::Regular(regular)),
            Expression::User => Value::Object(Object::User(&self.scope.user)),
            Expression::UserId => Value::Text(self.scope.user.id.into()),
            Expression::UserIsAuthenticated => Value::Bool(self.scope.user.is_authenticated()),
            Expression::UserData => self.scope.user.data.value(),
            Expression::Data => self.scope.data.value(),
            Expression::OldData => self.scope.old_data.value(),
            Expression::Now => Value::Number(self.scope.now as f64),
            Expression::Action => Value::Number(f64::from(self.scope.action)),
            Expression::Name => match self.scope.name {
                Some(name) => Value::Text(name.into()),
                None => Value::Undefined,
            },
            Expression::Variable(place) => match self.scope.variables.get(*place) {
                Some(text) => Value::Text((*text).into()),
                None => Value::Undefined,
            },
            Expression::Record(name) => self.record(name)?,
            Expression::Member(object, key) => self.member(object, key)?,
            Expression::Index(pair) => self.index(&pair.0, &pair.1)?,
            Expression::Call(call) => {
                let receiver = self.evaluate(&call.object)?;
                if receiver.is_nullish() {
                    return Err(Stop::Error);
                }
                let arguments = call
                    .arguments
                    .iter()
                    .map(|argument| self.evaluate(argument));
                let arguments = arguments.collect::<Result<Vec<_>, _>>()?;
                method::call(receiver, call.method, arguments, &self.steps)?
            }
            Expression::Guard(inner) => {
                let value = self.evaluate(inner)?;
                if value.is_nullish() {
                    return Err(Stop::Guard);
                }
                value
            }
            Expression::Chain(inner) => match self.evaluate(inner) {
                Err(Stop::Guard) => Value::Undefined,
                other => other?,
            },
            Expression::Not(inner) => Value::Bool(!self.evaluate(inner)?.is_truthy()),
            Expression::Minus(inner) => Value::Number(-self.number(inner)?),
            Expression::Plus(inner) => Value::Number(self.number(inner)?),
            Expression::TypeOf(inner) => Value::Text(self.evaluate(inner)?.type_name().into()),
            Expression::Binary(operator, sides) => {
                let (left, right) = (self.evaluate(&sides.0)?, self.evaluate(&sides.1)?);
                self.binary(*operator, left, right)?
            }
            Expression::All(parts) => self.row(parts, false)?,
            Expression::Any(parts) => self.row(parts, true)?,
            Expression::Coalesce(sides) => match self.evaluate(&sides.0)? {
                Value::Undefined | Value::Null => self.evaluate(&sides.1)?,
                other => other,
            },
            Expression::Choose(choice) => {
                let is_yes = self.evaluate(&choice.0)?.is_truthy();
                self.evaluate(if is_yes { &choice.1 } else { &choice.2 })?
            }
            Expression::List(entries) => {
                let entries = entries.iter().map(|entry| self.evaluate(entry));
                Value::Object(Object::List(entries.collect::<Result<_, _>>()?))
            }
            Expression::Fields(fields) => {
                let fields = fields
                    .iter()
                    .map(|(key, value)| Ok((key.borrowed(), self.evaluate(value)?)));
                Value::Object(Object::Fields(fields.collect::<Result<_, _>>()?))
            }
        })
    }

    /// The first part that decides the row, or the last.
    fn row(&self, parts: &'v [Expression], decides: bool) -> Result<Value<'v>, Stop> {
        let mut value = Value::Undefined;
        for part in parts {
            value = self.evaluate(part)?;
            if value.is_truthy() == decides {
                break;
            }
        }
        Ok(value)
    }

    fn number(&self, expression: &'v Expression) -> Result<f64, Stop> {
        coerce::number(self.evaluate(expression)?, &self.steps)
    }

    #[inline]
    fn member(&self, object: &'v Expression, key: &Text<'static>) -> Result<Value<'v>, Stop> {
        let object = self.evaluate(object)?;
        if object.is_nullish() {
            return Err(Stop::Error);
        }
        self.steps.spend(object.cost())?;
        Ok(object.own(key).unwrap_or(Value::Undefined))
    }

    fn index(&self, object: &'v Expression, key: &'v Expression) -> Result<Value<'v>, Stop> {
        let (object, key) = (self.evaluate(object)?, self.evaluate(key)?);
        if object.is_nullish() {
            return Err(Stop::Error);
        }
        self.steps.spend(object.cost())?;
        let key = match key {
            Value::Number(number) => index_text(number),
            other => coerce::key(other, &self.steps)?,
        };
        Ok(object.own(&key).unwrap_or(Value::Undefined))
    }

    fn record(&self, name: &'v Expression) -> Result<Value<'v>, Stop> {
        let name = match self.evaluate(name)? {
            Value::Undefined => return Ok(Value::Undefined),
            Value::Text(name) => name,
            _ => return Err(Stop::Error),
        };
        match name.plain() {
            // It stems from a reference that is not loaded yet.
            Some(name) if name.contains("undefined") => Ok(Value::Undefined),
            Some("") | None => Ok(Value::Null),
            Some(name) => Ok((self.records)(name)?.value()),
        }
    }

    fn binary(
        &self,
        operator: Operator,
        left: Value<'v>,
        right: Value<'v>,
    ) -> Result<Value<'v>, Stop> {
        let steps = &self.steps;
        let numbers = |left, right| -> Result<(f64, f64), Stop> {
            Ok((coerce::number(left, steps)?, coerce::number(right, steps)?))
        };
        let ordered = |left, right, fits: fn(Ordering) -> bool| -> Result<Value<'v>, Stop> {
            Ok(Value::Bool(
                coerce::order(left, right, steps)?.is_some_and(fits),
            ))
        };
        Ok(match operator {
            Operator::Add => coerce::add(left, right, steps)?,
            Operator::Subtract => {
                numbers(left, right).map(|(left, right)| Value::Number(left - right))?
            }
            Operator::Multiply => {
                numbers(left, right).map(|(left, right)| Value::Number(left * right))?
            }
            Operator::Divide => {
                numbers(left, right).map(|(left, right)| Value::Number(left / right))?
            }
            Operator::Remainder => {
                numbers(left, right).map(|(left, right)| Value::Number(left % right))?
            }
            Operator::Less => ordered(left, right, Ordering::is_lt)?,
            Operator::LessOrEqual => ordered(left, right, Ordering::is_le)?,
            Operator::Greater => ordered(left, right, Ordering::is_gt)?,
            Operator::GreaterOrEqual => ordered(left, right, Ordering::is_ge)?,
            Operator::Equal => Value::Bool(coerce::is_equal(left, right, steps)?),
            Operator::NotEqual => Value::Bool(!coerce::is_equal(left, right, steps)?),
            Operator::Same => Value::Bool(coerce::is_same(&left, &right)),
            Operator::NotSame => Value::Bool(!coerce::is_same(&left, &right)),
            Operator::In => {
                if !matches!(right, Value::Object(_)) {
                    return Err(Stop::Error);
                }
                steps.spend(right.cost())?;
                let key = coerce::key(left, steps)?;
                Value::Bool(right.own(&key).is_some())
            }
        })
    }
}

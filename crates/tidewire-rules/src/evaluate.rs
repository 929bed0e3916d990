//! Evaluates an expression over borrowed values. The parser bounds the depth of an expression, and so the depth of
//! the calls; all other work is charged in steps.

use std::cmp::Ordering;

use crate::coerce;
use crate::expression::{Expression, Operator};
use crate::method;
use crate::steps::{Steps, Stop};
use crate::text::Text;
use crate::value::{Document, Object, User, Value, index_text};

/// The inputs of a rule.
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
    /// `action`, the number of the message's action.
    pub action: u8,
    /// `name`
    pub name: Option<&'v str>,
    /// The values of the path's variables, in their order in the path.
    pub variables: &'v [&'v str],
}

/// The result of an operator other than `in` on two numbers.
fn of_numbers<'v>(operator: Operator, left: f64, right: f64) -> Value<'v> {
    match operator {
        Operator::Add => Value::Number(left + right),
        Operator::Subtract => Value::Number(left - right),
        Operator::Multiply => Value::Number(left * right),
        Operator::Divide => Value::Number(left / right),
        Operator::Remainder => Value::Number(left % right),
        Operator::Less => Value::Bool(left < right),
        Operator::LessOrEqual => Value::Bool(left <= right),
        Operator::Greater => Value::Bool(left > right),
        Operator::GreaterOrEqual => Value::Bool(left >= right),
        Operator::Equal | Operator::Same => Value::Bool(left == right),
        Operator::NotEqual | Operator::NotSame => Value::Bool(left != right),
        Operator::In => Value::Undefined,
    }
}

/// Whether a record's name comes from a reference that is not loaded yet.
fn is_unfinished(name: &str) -> bool {
    const UNDEFINED: &[u8] = b"undefined";
    let mut parts = name.as_bytes().windows(UNDEFINED.len());
    parts.any(|part| part == UNDEFINED)
}

/// Returns the value of another record, or stops with `Need`.
pub(crate) type Records<'v, 'r> = dyn Fn(&str) -> Result<Document<'v>, Stop> + 'r;

/// One evaluation.
pub(crate) struct Run<'v, 'r> {
    pub(crate) scope: &'v Scope<'v>,
    pub(crate) records: &'r Records<'v, 'r>,
    pub(crate) steps: Steps,
}

impl<'v> Run<'v, '_> {
    pub(crate) fn evaluate(&self, expression: &'v Expression) -> Result<Value<'v>, Stop> {
        let mut value = Value::Undefined;
        self.put(expression, &mut value)?;
        Ok(value)
    }

    /// Writes the value to `out`, for the expressions that nearly every rule contains. A returned value is moved,
    /// and a move waits for the stores before it: that took a third of a rule's time. The other expressions have a
    /// separate function, so that this stack frame stays small.
    fn put(&self, expression: &'v Expression, out: &mut Value<'v>) -> Result<(), Stop> {
        self.steps.spend(1)?;
        // One assignment for all of them would be such a move.
        match expression {
            Expression::Null => *out = Value::Null,
            Expression::Bool(bool) => *out = Value::Bool(*bool),
            Expression::Number(number) => *out = Value::Number(*number),
            Expression::Text(text) => *out = Value::Text(text.borrowed()),
            Expression::UserId => *out = Value::Text(self.scope.user.id.into()),
            Expression::UserData => return self.scope.user.data.put(out),
            Expression::Data => return self.scope.data.put(out),
            Expression::OldData => return self.scope.old_data.put(out),
            Expression::Variable(number) => match self.scope.variables.get(*number) {
                Some(text) => *out = Value::Text((*text).into()),
                None => *out = Value::Undefined,
            },
            Expression::Member(object, key) => return self.put_member(object, key, out),
            Expression::Binary(operator, sides) => {
                let (mut left, mut right) = (Value::Undefined, Value::Undefined);
                self.put(&sides.0, &mut left)?;
                self.put(&sides.1, &mut right)?;
                match (operator, &left, &right) {
                    (Operator::Same, left, right) => {
                        *out = Value::Bool(coerce::is_same(left, right))
                    }
                    (Operator::NotSame, left, right) => {
                        *out = Value::Bool(!coerce::is_same(left, right))
                    }
                    (operator, Value::Number(left), Value::Number(right))
                        if *operator != Operator::In =>
                    {
                        *out = of_numbers(*operator, *left, *right)
                    }
                    _ => *out = self.binary(*operator, left, right)?,
                }
            }
            Expression::Record(name) => return self.put_record(name, out),
            Expression::All(parts) => return self.put_row(parts, false, out),
            Expression::Any(parts) => return self.put_row(parts, true, out),
            rare => *out = self.evaluate_rare(rare)?,
        }
        Ok(())
    }

    #[inline(never)]
    fn evaluate_rare(&self, expression: &'v Expression) -> Result<Value<'v>, Stop> {
        Ok(match expression {
            Expression::Regular(regular) => Value::Object(Object::Regular(regular)),
            Expression::User => Value::Object(Object::User(&self.scope.user)),
            Expression::UserIsAuthenticated => Value::Bool(self.scope.user.is_authenticated()),
            Expression::Now => Value::Number(self.scope.now as f64),
            Expression::Action => Value::Number(f64::from(self.scope.action)),
            Expression::Name => match self.scope.name {
                Some(name) => Value::Text(name.into()),
                None => Value::Undefined,
            },
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
            Expression::Undefined => Value::Undefined,
            // `put` handles these itself.
            Expression::Null
            | Expression::Bool(_)
            | Expression::Number(_)
            | Expression::Text(_)
            | Expression::UserId
            | Expression::UserData
            | Expression::Data
            | Expression::OldData
            | Expression::Variable(_)
            | Expression::Record(_)
            | Expression::Member(..)
            | Expression::Binary(..)
            | Expression::All(_)
            | Expression::Any(_) => self.evaluate(expression)?,
        })
    }

    /// Evaluates the row up to the first part that decides it, or its last part.
    fn put_row(
        &self,
        parts: &'v [Expression],
        decides: bool,
        out: &mut Value<'v>,
    ) -> Result<(), Stop> {
        for part in parts {
            self.put(part, out)?;
            if out.is_truthy() == decides {
                break;
            }
        }
        Ok(())
    }

    fn number(&self, expression: &'v Expression) -> Result<f64, Stop> {
        coerce::number(self.evaluate(expression)?, &self.steps)
    }

    fn put_member(
        &self,
        object: &'v Expression,
        key: &Text<'static>,
        out: &mut Value<'v>,
    ) -> Result<(), Stop> {
        let mut holder = Value::Undefined;
        self.put(object, &mut holder)?;
        if holder.is_nullish() {
            return Err(Stop::Error);
        }
        self.steps.spend(holder.cost())?;
        match &holder {
            Value::Object(Object::Held(node)) if !node.is_list() => match node.field(key) {
                Some(field) => Value::put_held(field, out),
                None => *out = Value::Undefined,
            },
            holder => *out = holder.own(key).unwrap_or(Value::Undefined),
        }
        Ok(())
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

    fn put_record(&self, name: &'v Expression, out: &mut Value<'v>) -> Result<(), Stop> {
        let mut wanted = Value::Undefined;
        self.put(name, &mut wanted)?;
        let name = match &wanted {
            Value::Undefined => {
                *out = Value::Undefined;
                return Ok(());
            }
            Value::Text(name) => name.plain(),
            _ => return Err(Stop::Error),
        };
        match name {
            Some(name) if is_unfinished(name) => *out = Value::Undefined,
            Some("") | None => *out = Value::Null,
            Some(name) => return (self.records)(name)?.put(out),
        }
        Ok(())
    }

    fn binary(
        &self,
        operator: Operator,
        left: Value<'v>,
        right: Value<'v>,
    ) -> Result<Value<'v>, Stop> {
        let steps = &self.steps;
        let ordered = |left, right, fits: fn(Ordering) -> bool| -> Result<Value<'v>, Stop> {
            Ok(Value::Bool(
                coerce::order(left, right, steps)?.is_some_and(fits),
            ))
        };
        Ok(match operator {
            Operator::Add => coerce::add(left, right, steps)?,
            Operator::Subtract | Operator::Multiply | Operator::Divide | Operator::Remainder => {
                let left = coerce::number(left, steps)?;
                of_numbers(operator, left, coerce::number(right, steps)?)
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

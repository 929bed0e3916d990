//! The methods that a rule may call: eight for texts, of which arrays have two.

use crate::coerce;
use crate::expression::Method;
use crate::steps::{Steps, Stop};
use crate::text::Text;
use crate::value::{Object, Value};

/// Calls a method of `receiver`. As in JavaScript, it fails if the receiver has no such method.
pub(crate) fn call<'v>(
    receiver: Value<'v>,
    method: Method,
    arguments: Vec<Value<'v>>,
    steps: &Steps,
) -> Result<Value<'v>, Stop> {
    match receiver {
        Value::Text(text) => {
            steps.spend(text.cost())?;
            of_text(&text, method, arguments, steps)
        }
        Value::Object(object) if object.is_array() => of_array(&object, method, arguments, steps),
        _ => Err(Stop::Error),
    }
}

fn of_text<'v>(
    text: &Text<'v>,
    method: Method,
    arguments: Vec<Value<'v>>,
    steps: &Steps,
) -> Result<Value<'v>, Stop> {
    let mut arguments = arguments.into_iter();
    match method {
        Method::ToUpperCase => return Ok(Value::Text(text.upper())),
        Method::ToLowerCase => return Ok(Value::Text(text.lower())),
        Method::Trim => return Ok(Value::Text(text.trim())),
        Method::Match => return find(text, arguments.next(), steps),
        _ => {}
    }
    let first = arguments.next().unwrap_or(Value::Undefined);
    let second = arguments.next().unwrap_or(Value::Undefined);
    let is_regular = matches!(first, Value::Object(Object::Regular(_)));
    if is_regular && method != Method::IndexOf {
        return Err(Stop::Error);
    }
    let part = coerce::text(first, steps)?;
    steps.spend(part.cost())?;
    if method == Method::EndsWith {
        let end = match second {
            Value::Undefined => None,
            other => Some(coerce::integer(other, steps)?),
        };
        return Ok(Value::Bool(text.ends_with(&part, end)));
    }
    let from = coerce::integer(second, steps)?;
    Ok(match method {
        Method::StartsWith => Value::Bool(text.starts_with(&part, from)),
        Method::Includes => Value::Bool(text.index_of(&part, from).is_some()),
        _ => Value::Number(
            text.index_of(&part, from)
                .map_or(-1.0, |index| index as f64),
        ),
    })
}

fn find<'v>(text: &Text<'v>, pattern: Option<Value<'v>>, steps: &Steps) -> Result<Value<'v>, Stop> {
    let Some(Value::Object(Object::Regular(regular))) = pattern else {
        return Err(Stop::Error);
    };
    let found: Vec<Value<'v>> = if regular.global {
        let all = regular.all(text, |cost| steps.spend(cost))?;
        all.into_iter().map(Value::Text).collect()
    } else {
        let groups = regular.first(text).unwrap_or_default();
        groups
            .into_iter()
            .map(|group| group.map_or(Value::Undefined, Value::Text))
            .collect()
    };
    if found.is_empty() {
        return Ok(Value::Null);
    }
    Ok(Value::Object(Object::List(found.into())))
}

fn of_array<'v>(
    array: &Object<'v>,
    method: Method,
    arguments: Vec<Value<'v>>,
    steps: &Steps,
) -> Result<Value<'v>, Stop> {
    let is_includes = match method {
        Method::Includes => true,
        Method::IndexOf => false,
        _ => return Err(Stop::Error),
    };
    steps.spend(Value::Object(array.clone()).cost())?;
    let elements = array.elements();
    let mut arguments = arguments.into_iter();
    let wanted = arguments.next().unwrap_or(Value::Undefined);
    let mut index = None;
    // For an empty array JavaScript does not evaluate the second argument, which may fail.
    if !elements.is_empty() {
        let from = coerce::integer(arguments.next().unwrap_or(Value::Undefined), steps)?;
        let count = elements.len() as f64;
        let start = if from < 0.0 {
            (count + from).max(0.0)
        } else {
            from
        };
        steps.spend(wanted.cost().saturating_mul(elements.len() as u64))?;
        let is_nan = |value: &Value<'_>| matches!(value, Value::Number(number) if number.is_nan());
        index = elements
            .iter()
            .enumerate()
            .skip(start.min(count) as usize)
            .find(|(_, element)| {
                coerce::is_same(element, &wanted)
                    || (is_includes && is_nan(element) && is_nan(&wanted))
            })
            .map(|(index, _)| index);
    }
    Ok(if is_includes {
        Value::Bool(index.is_some())
    } else {
        Value::Number(index.map_or(-1.0, |index| index as f64))
    })
}

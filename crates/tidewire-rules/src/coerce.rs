//! JavaScript's type conversions (ECMA-262, type conversion) for values without functions.
//!
//! Documents and rules contain nothing callable, so the only object without a text is one with an own key `toString`:
//! JavaScript finds that key, can't call it, and throws.

use std::cmp::Ordering;

use crate::limits::JOIN_NESTING_MAX;
use crate::number;
use crate::steps::{Steps, Stop};
use crate::text::Text;
use crate::value::{Object, Value};

/// Converts objects to text and leaves other values unchanged.
pub(crate) fn primitive<'v>(value: Value<'v>, steps: &Steps) -> Result<Value<'v>, Stop> {
    match value {
        Value::Object(object) => Ok(Value::Text(object_text(&object, steps, 0)?)),
        other => Ok(other),
    }
}

fn object_text<'v>(object: &Object<'v>, steps: &Steps, depth: usize) -> Result<Text<'v>, Stop> {
    if object.is_array() {
        return join(object, steps, depth);
    }
    if let Object::Regular(regular) = object {
        return Ok(regular.shown.clone().into());
    }
    let value = Value::Object(object.clone());
    steps.spend(value.cost())?;
    match value.own(&"toString".into()) {
        Some(_) => Err(Stop::Error),
        None => Ok("[object Object]".into()),
    }
}

/// `array.join()`, the text of an array.
fn join<'v>(array: &Object<'v>, steps: &Steps, depth: usize) -> Result<Text<'v>, Stop> {
    if depth > JOIN_NESTING_MAX {
        return Err(Stop::Exhausted);
    }
    steps.spend(Value::Object(array.clone()).cost())?;
    let mut joined = Text::from("");
    for (index, element) in array.elements().into_iter().enumerate() {
        if index > 0 {
            joined = joined.concat(&",".into());
        }
        let part = match element {
            Value::Undefined | Value::Null => continue,
            Value::Object(inner) => object_text(&inner, steps, depth + 1)?,
            simple => text(simple, steps)?,
        };
        steps.spend(part.cost() + 1)?;
        joined = joined.concat(&part);
    }
    Ok(joined)
}

/// `String(value)`
pub(crate) fn text<'v>(value: Value<'v>, steps: &Steps) -> Result<Text<'v>, Stop> {
    Ok(match value {
        Value::Undefined => "undefined".into(),
        Value::Null => "null".into(),
        Value::Bool(true) => "true".into(),
        Value::Bool(false) => "false".into(),
        Value::Number(number) => number::format(number).into(),
        Value::Text(text) => text,
        Value::Object(object) => object_text(&object, steps, 0)?,
    })
}

/// `Number(value)`
pub(crate) fn number(value: Value<'_>, steps: &Steps) -> Result<f64, Stop> {
    Ok(match value {
        Value::Undefined => f64::NAN,
        Value::Null => 0.0,
        Value::Bool(bool) => f64::from(u8::from(bool)),
        Value::Number(number) => number,
        // A text that UTF-8 can't represent is not a number.
        Value::Text(text) => {
            steps.spend(text.cost())?;
            text.plain().map_or(f64::NAN, number::parse)
        }
        object @ Value::Object(_) => return number(primitive(object, steps)?, steps),
    })
}

/// A number as an integer; not-a-number becomes 0.
pub(crate) fn integer(value: Value<'_>, steps: &Steps) -> Result<f64, Stop> {
    let number = number(value, steps)?;
    Ok(if number.is_nan() { 0.0 } else { number.trunc() })
}

/// `left === right`
pub(crate) fn is_same(left: &Value<'_>, right: &Value<'_>) -> bool {
    match (left, right) {
        (Value::Undefined, Value::Undefined) | (Value::Null, Value::Null) => true,
        (Value::Bool(left), Value::Bool(right)) => left == right,
        (Value::Number(left), Value::Number(right)) => left == right,
        (Value::Text(left), Value::Text(right)) => left == right,
        (Value::Object(left), Value::Object(right)) => left.is_same(right),
        _ => false,
    }
}

/// `left == right`
pub(crate) fn is_equal(left: Value<'_>, right: Value<'_>, steps: &Steps) -> Result<bool, Stop> {
    if left.is_nullish() || right.is_nullish() {
        return Ok(left.is_nullish() && right.is_nullish());
    }
    Ok(match (left, right) {
        (left @ Value::Object(_), right @ Value::Object(_)) => is_same(&left, &right),
        (Value::Text(left), Value::Text(right)) => left == right,
        (object @ Value::Object(_), other) => {
            let text = primitive(object, steps)?;
            return is_equal(text, other, steps);
        }
        (other, object @ Value::Object(_)) => {
            let text = primitive(object, steps)?;
            return is_equal(other, text, steps);
        }
        (left, right) => number(left, steps)? == number(right, steps)?,
    })
}

/// The order of `left` and `right` for `<` and the similar operators; `None` if a side is not a number.
pub(crate) fn order(
    left: Value<'_>,
    right: Value<'_>,
    steps: &Steps,
) -> Result<Option<Ordering>, Stop> {
    let (left, right) = (primitive(left, steps)?, primitive(right, steps)?);
    if let (Value::Text(left), Value::Text(right)) = (&left, &right) {
        steps.spend(left.cost().min(right.cost()))?;
        return Ok(Some(left.order(right)));
    }
    Ok(number(left, steps)?.partial_cmp(&number(right, steps)?))
}

/// `left + right`
pub(crate) fn add<'v>(left: Value<'v>, right: Value<'v>, steps: &Steps) -> Result<Value<'v>, Stop> {
    let (left, right) = (primitive(left, steps)?, primitive(right, steps)?);
    if matches!(left, Value::Text(_)) || matches!(right, Value::Text(_)) {
        let (left, right) = (text(left, steps)?, text(right, steps)?);
        steps.spend(left.cost() + right.cost())?;
        return Ok(Value::Text(left.concat(&right)));
    }
    Ok(Value::Number(number(left, steps)? + number(right, steps)?))
}

/// The property name of `object[value]`.
pub(crate) fn key<'v>(value: Value<'v>, steps: &Steps) -> Result<Text<'v>, Stop> {
    text(value, steps)
}

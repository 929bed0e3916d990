//! The possible members of an expression's value, as far as they are known when a rule is loaded. A member that can't
//! exist is a typing mistake: it would be `undefined` at each decision, and `user.ID !== 'guest'` would allow the
//! guest.

use crate::expression::{Call, Expression, Method, Operator};
use crate::text::Text;

/// The members of `user`.
const USER: [&str; 3] = ["id", "isAuthenticated", "data"];
/// The members of texts and arrays, besides their elements.
const LENGTH: [&str; 1] = ["length"];

/// What loading knows about a value.
#[derive(Clone, Copy, Debug)]
enum Shape<'e> {
    /// Nothing: it comes from a document, or is one of several.
    Unknown,
    User,
    Text,
    Array,
    /// An object that the rule creates.
    Fields(&'e [(Text<'static>, Expression)]),
    /// A value without members.
    Bare(&'static str),
}

impl<'e> Shape<'e> {
    fn of(expression: &'e Expression) -> Self {
        match expression {
            Expression::User => Self::User,
            Expression::Text(_)
            | Expression::UserId
            | Expression::Name
            | Expression::Variable(_)
            | Expression::TypeOf(_) => Self::Text,
            Expression::List(_) => Self::Array,
            Expression::Fields(fields) => Self::Fields(fields),
            Expression::Guard(inner) => Self::of(inner),
            Expression::Call(call) => Self::of_call(call),
            Expression::Binary(Operator::Add, sides) => {
                match (Self::of(&sides.0), Self::of(&sides.1)) {
                    (Self::Text, _) | (_, Self::Text) => Self::Text,
                    _ => Self::Unknown,
                }
            }
            Expression::Bool(_) | Expression::UserIsAuthenticated | Expression::Not(_) => {
                Self::Bare("true or false")
            }
            Expression::Number(_)
            | Expression::Now
            | Expression::Action
            | Expression::Minus(_)
            | Expression::Plus(_) => Self::Bare("a number"),
            Expression::Binary(operator, _) => Self::Bare(match operator {
                Operator::Add
                | Operator::Subtract
                | Operator::Multiply
                | Operator::Divide
                | Operator::Remainder => "a number",
                _ => "true or false",
            }),
            Expression::Regular(_) => Self::Bare("a regular expression"),
            // Documents, values that depend on a choice, and values that fail in any case.
            Expression::Undefined
            | Expression::Null
            | Expression::UserData
            | Expression::Data
            | Expression::OldData
            | Expression::Record(_)
            | Expression::Member(..)
            | Expression::Index(_)
            | Expression::Chain(_)
            | Expression::All(_)
            | Expression::Any(_)
            | Expression::Coalesce(_)
            | Expression::Choose(_) => Self::Unknown,
        }
    }

    fn of_call(call: &Call) -> Self {
        match call.method {
            Method::ToUpperCase | Method::ToLowerCase | Method::Trim => Self::Text,
            Method::StartsWith | Method::EndsWith | Method::Includes => Self::Bare("true or false"),
            Method::IndexOf => Self::Bare("a number"),
            // An array, or null.
            Method::Match => Self::Unknown,
        }
    }

    fn what(self) -> &'static str {
        match self {
            Self::Unknown => "the value",
            Self::User => "`user`",
            Self::Text => "a text",
            Self::Array => "an array",
            Self::Fields(_) => "the object",
            Self::Bare(what) => what,
        }
    }

    /// The names of all members except elements.
    fn members(self) -> Vec<&'e str> {
        match self {
            Self::Unknown | Self::Bare(_) => Vec::new(),
            Self::User => USER.to_vec(),
            Self::Text | Self::Array => LENGTH.to_vec(),
            Self::Fields(fields) => fields.iter().filter_map(|(key, _)| key.plain()).collect(),
        }
    }
}

/// Why `key` can't be a member of the object, with the nearest existing name; `None` if it can.
pub(crate) fn misspelled(object: &Expression, key: &Text<'_>) -> Option<String> {
    let shape = Shape::of(object);
    let has_elements = matches!(shape, Shape::Text | Shape::Array);
    let key = match (shape, key.plain()) {
        (Shape::Unknown, _) | (_, None) => return None,
        (_, Some(key)) => key,
    };
    let members = shape.members();
    let is_index = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_digit());
    if members.contains(&key) || (has_elements && is_index) {
        return None;
    }
    let what = shape.what();
    if Method::of(key).is_some() && !matches!(shape, Shape::User | Shape::Fields(_)) {
        return Some(format!("`{key}` is a method, it must be called: `{key}()`"));
    }
    let nearest = members.iter().min_by_key(|known| distance(known, key));
    Some(match nearest {
        Some(nearest) => {
            let all: Vec<String> = members.iter().map(|known| format!("`{known}`")).collect();
            let all = all.join(", ");
            format!("{what} has no member `{key}`, did you mean `{nearest}`? It has {all}")
        }
        None => format!("{what} has no members, so not `{key}`"),
    })
}

/// The number of replaced, missing or added letters, ignoring case.
fn distance(left: &str, right: &str) -> usize {
    let [left, right] = [left, right].map(str::to_lowercase);
    let mut row: Vec<usize> = (0..=right.chars().count()).collect();
    for (line, letter) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, other) in right.chars().enumerate() {
            let replaced = diagonal + usize::from(letter != other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row.pop().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_has_the_fewest_other_letters() {
        for (left, right, count) in [
            ("id", "ID", 0),
            ("data", "dat", 1),
            ("isAuthenticated", "isAuthenticatd", 1),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(left, right), count, "{left} {right}");
        }
    }
}

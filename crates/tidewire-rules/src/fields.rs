//! The fields of `oldData` that a rule uses. A rule that compares `oldData.owner` decides the same about each record with this owner.

use crate::expression::Expression;
use crate::text::Text;

/// The fields of `oldData`, each once, if the rule uses nothing else of it: no other document, no longer path, and not the document itself.
pub(crate) fn of_old_data(rule: &Expression) -> Option<Box<[Box<str>]>> {
    let mut fields = Vec::new();
    collect(rule, &mut fields).then(|| fields.into())
}

/// Adds the fields. Returns whether the expression uses nothing else of `oldData`.
fn collect(expression: &Expression, fields: &mut Vec<Box<str>>) -> bool {
    let mut all = |parts: &[Expression]| parts.iter().all(|part| collect(part, fields));
    match expression {
        Expression::OldData => false,
        Expression::Member(object, key) => match (&**object, key) {
            (Expression::OldData, Text::Plain(key)) => {
                if !fields.iter().any(|known| **known == **key) {
                    fields.push((&**key).into());
                }
                true
            }
            (object, _) => collect(object, fields),
        },
        Expression::Undefined
        | Expression::Null
        | Expression::Bool(_)
        | Expression::Number(_)
        | Expression::Text(_)
        | Expression::Regular(_)
        | Expression::User
        | Expression::UserId
        | Expression::UserIsAuthenticated
        | Expression::UserData
        | Expression::Data
        | Expression::Now
        | Expression::Action
        | Expression::Name
        | Expression::Variable(_) => true,
        Expression::Record(part)
        | Expression::Guard(part)
        | Expression::Chain(part)
        | Expression::Not(part)
        | Expression::Minus(part)
        | Expression::Plus(part)
        | Expression::TypeOf(part) => collect(part, fields),
        Expression::Index(pair) | Expression::Binary(_, pair) | Expression::Coalesce(pair) => {
            collect(&pair.0, fields) && collect(&pair.1, fields)
        }
        Expression::Call(call) => {
            collect(&call.object, fields) && call.arguments.iter().all(|part| collect(part, fields))
        }
        Expression::All(parts) | Expression::Any(parts) | Expression::List(parts) => all(parts),
        Expression::Choose(parts) => [&parts.0, &parts.1, &parts.2]
            .into_iter()
            .all(|part| collect(part, fields)),
        Expression::Fields(parts) => parts.iter().all(|(_, part)| collect(part, fields)),
    }
}

#[cfg(test)]
mod tests {
    use crate::limits::RuleLimits;
    use crate::rule::Rule;

    #[test]
    fn only_rules_over_single_fields_have_fields() {
        let check = |text: &str, expected: Option<&[&str]>| {
            let rule = Rule::parse(text, &["$id".to_owned()], &RuleLimits::default());
            let rule = rule.unwrap_or_else(|error| panic!("{text}: {error:?}"));
            let found: Option<Vec<&str>> = rule
                .old_data_fields()
                .map(|fields| fields.iter().map(|field| &**field).collect());
            assert_eq!(found.as_deref(), expected, "{text}");
        };
        check("oldData.owner === user.id", Some(&["owner"]));
        check(
            "user.data.admin || oldData.owner === user.id && oldData.open",
            Some(&["owner", "open"]),
        );
        check(
            "oldData.owner === user.id || oldData.owner === $id",
            Some(&["owner"]),
        );
        check(
            "[oldData.a, 1].includes(user.id) ? oldData.b > 1 : !oldData.a",
            Some(&["a", "b"]),
        );
        check("user.id === $id", Some(&[]));
        check("oldData !== null && oldData.owner === user.id", None);
        check("oldData[user.id] === true", None);
        check("user.id in oldData", None);
        check("oldData?.owner === user.id", None);
    }

    /// A longer path uses its first field as an object, of which an index has no value.
    #[test]
    fn a_longer_path_counts_as_its_first_field() {
        let rule = Rule::parse("oldData.author.id === user.id", &[], &RuleLimits::default());
        let rule = rule.expect("a rule");
        assert_eq!(rule.old_data_fields().map(<[_]>::len), Some(1));
    }
}

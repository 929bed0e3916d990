//! A parsed document, for callers with many rules about it. Deciding never needs one, because rules find their
//! members in the document's text.

use tidewire_core::json::{self, Literal};

use crate::number;
use crate::text::Text;

/// A parsed JSON document.
#[derive(Clone, Debug)]
pub struct Tree(pub(crate) Node);

#[derive(Clone, Debug)]
pub(crate) enum Node {
    Null,
    Bool(bool),
    Number(f64),
    Text(Text<'static>),
    List(Vec<Node>),
    /// Sorted by key, each key once.
    Fields(Vec<(Text<'static>, Node)>),
}

impl Tree {
    /// Reads checked JSON; of equal keys the last one counts. Values deeper than `nesting_max` read as null, so the
    /// stack is bounded.
    #[must_use]
    pub fn parse(document: &str, nesting_max: usize) -> Self {
        Self(Node::parse(document, nesting_max))
    }
}

impl Node {
    fn parse(document: &str, nesting_max: usize) -> Self {
        let text = document.trim_matches([' ', '\n', '\r', '\t']);
        match text.as_bytes().first() {
            Some(b'{') if nesting_max > 0 => {
                let mut fields: Vec<(Text<'static>, Self)> = json::entries(text)
                    .filter_map(|(key, value)| {
                        let key = key?;
                        let key = Text::from_literal(key.inner, key.escaped).into_owned();
                        Some((key, Self::parse(value, nesting_max - 1)))
                    })
                    .collect();
                // Stable, so of equal keys the last is the last of its run.
                fields.sort_by(|(left, _), (right, _)| order(left, right));
                let mut kept: Vec<(Text<'static>, Self)> = Vec::with_capacity(fields.len());
                for field in fields {
                    match kept.last_mut() {
                        Some(last) if last.0 == field.0 => *last = field,
                        _ => kept.push(field),
                    }
                }
                Self::Fields(kept)
            }
            Some(b'[') if nesting_max > 0 => Self::List(
                json::entries(text)
                    .map(|(_, value)| Self::parse(value, nesting_max - 1))
                    .collect(),
            ),
            Some(b'"') => match Literal::scan(text) {
                Some(literal) => {
                    Self::Text(Text::from_literal(literal.inner, literal.escaped).into_owned())
                }
                None => Self::Null,
            },
            Some(b't') => Self::Bool(true),
            Some(b'f') => Self::Bool(false),
            Some(b'-' | b'0'..=b'9') => Self::Number(number::of_json(text)),
            _ => Self::Null,
        }
    }

    pub(crate) fn is_list(&self) -> bool {
        matches!(self, Self::List(_))
    }

    pub(crate) fn field(&self, key: &Text<'_>) -> Option<&Self> {
        let Self::Fields(fields) = self else {
            return None;
        };
        let index = fields
            .binary_search_by(|(known, _)| order(known, key))
            .ok()?;
        fields.get(index).map(|(_, value)| value)
    }
}

/// By length first, which decides most comparisons.
fn order(left: &Text<'_>, right: &Text<'_>) -> std::cmp::Ordering {
    match (left, right) {
        (Text::Plain(left), Text::Plain(right)) => left
            .len()
            .cmp(&right.len())
            .then_with(|| left.as_bytes().cmp(right.as_bytes())),
        (Text::Plain(_), Text::Units(_)) => std::cmp::Ordering::Less,
        (Text::Units(_), Text::Plain(_)) => std::cmp::Ordering::Greater,
        (Text::Units(left), Text::Units(right)) => left.cmp(right),
    }
}

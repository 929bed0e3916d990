//! The values of an evaluation and their properties, borrowed from documents and rules if possible.
//!
//! Only own properties exist: `data.constructor` is undefined unless the document has that key.

use std::rc::Rc;

use tidewire_core::json::{self, Literal};

use crate::number;
use crate::regular::Regular;
use crate::steps::Stop;
use crate::text::Text;
use crate::tree::{Node, Tree};

/// A document of a question.
#[derive(Clone, Copy, Debug, Default)]
pub enum Document<'v> {
    /// A missing document: `undefined`.
    #[default]
    Undefined,
    /// A missing record: `null`.
    Null,
    /// Checked JSON.
    Text(&'v str),
    /// Parsed JSON.
    Held(&'v Tree),
    /// Not known yet. A run that uses it has no value.
    Unknown,
}

impl<'v> Document<'v> {
    /// The JSON text, or `undefined` without one.
    #[must_use]
    pub fn or_undefined(text: Option<&'v str>) -> Self {
        text.map_or(Self::Undefined, Self::Text)
    }

    /// The JSON text, or `null` without one.
    #[must_use]
    pub fn or_null(text: Option<&'v str>) -> Self {
        text.map_or(Self::Null, Self::Text)
    }

    /// The value of `user.data`, which is always known.
    pub(crate) fn value(self) -> Value<'v> {
        let mut value = Value::Undefined;
        let _ = self.put(&mut value);
        value
    }

    /// Writes its value to `out`, if it is known.
    pub(crate) fn put(self, out: &mut Value<'v>) -> Result<(), Stop> {
        match self {
            Self::Unknown => return Err(Stop::Unknown),
            Self::Undefined => *out = Value::Undefined,
            Self::Null => *out = Value::Null,
            Self::Text(text) => *out = Value::parse(text),
            Self::Held(tree) => Value::put_held(&tree.0, out),
        }
        Ok(())
    }
}

/// The requesting user, as `user`.
#[derive(Clone, Copy, Debug)]
pub struct User<'v> {
    /// `user.id`
    pub id: &'v str,
    /// `user.data`
    pub data: Document<'v>,
}

impl User<'_> {
    /// `user.isAuthenticated`: whether the id differs from that of open authentication.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        self.id != tidewire_core::identity::OPEN
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Value<'v> {
    Undefined,
    Null,
    Bool(bool),
    Number(f64),
    Text(Text<'v>),
    Object(Object<'v>),
}

#[derive(Clone, Debug)]
pub(crate) enum Object<'v> {
    /// A container of a document; the text begins with its bracket.
    Json(&'v str),
    /// A container of a held document.
    Held(&'v Node),
    /// An array that the rule created.
    List(Rc<[Value<'v>]>),
    /// An object that the rule created; of equal keys the last one counts.
    Fields(Rc<[(Text<'v>, Value<'v>)]>),
    Regular(&'v Regular),
    User(&'v User<'v>),
}

impl<'v> Value<'v> {
    /// The value of checked JSON.
    pub(crate) fn parse(text: &'v str) -> Self {
        let text = text.trim_start_matches([' ', '\n', '\r', '\t']);
        match text.as_bytes().first() {
            Some(b'{' | b'[') => Self::Object(Object::Json(text)),
            Some(b'"') => match Literal::scan(text) {
                Some(literal) => Self::Text(Text::from_literal(literal.inner, literal.escaped)),
                None => Self::Undefined,
            },
            Some(b't') => Self::Bool(true),
            Some(b'f') => Self::Bool(false),
            Some(b'n') => Self::Null,
            Some(_) => Self::Number(number::of_json(text)),
            None => Self::Undefined,
        }
    }

    pub(crate) fn held(node: &'v Node) -> Self {
        let mut value = Self::Undefined;
        Self::put_held(node, &mut value);
        value
    }

    /// Writes the value of a node to `out`.
    pub(crate) fn put_held(node: &'v Node, out: &mut Self) {
        match node {
            Node::Null => *out = Self::Null,
            Node::Bool(bool) => *out = Self::Bool(*bool),
            Node::Number(number) => *out = Self::Number(*number),
            Node::Text(text) => *out = Self::Text(text.borrowed()),
            Node::List(_) | Node::Fields(_) => *out = Self::Object(Object::Held(node)),
        }
    }

    pub(crate) fn is_nullish(&self) -> bool {
        matches!(self, Self::Undefined | Self::Null)
    }

    pub(crate) fn is_truthy(&self) -> bool {
        match self {
            Self::Undefined | Self::Null => false,
            Self::Bool(bool) => *bool,
            Self::Number(number) => *number != 0.0 && !number.is_nan(),
            Self::Text(text) => !text.is_empty(),
            Self::Object(_) => true,
        }
    }

    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Undefined => "undefined",
            Self::Bool(_) => "boolean",
            Self::Number(_) => "number",
            Self::Text(_) => "string",
            Self::Null | Self::Object(_) => "object",
        }
    }

    /// The cost of a scan of the value, in bytes.
    pub(crate) fn cost(&self) -> u64 {
        match self {
            Self::Object(Object::Json(text)) => text.len() as u64,
            Self::Text(text) => text.cost(),
            _ => 1,
        }
    }

    /// The own property `key`, if there is one.
    pub(crate) fn own(&self, key: &Text<'_>) -> Option<Self> {
        match self {
            Self::Text(text) if is_length(key) => Some(Self::Number(text.len() as f64)),
            Self::Text(text) => text.at(index(key)?).map(Self::Text),
            Self::Object(object) => object.own(key),
            _ => None,
        }
    }
}

impl<'v> Object<'v> {
    pub(crate) fn is_array(&self) -> bool {
        match self {
            Self::Json(text) => text.starts_with('['),
            Self::Held(node) => node.is_list(),
            Self::List(_) => true,
            Self::Fields(_) | Self::Regular(_) | Self::User(_) => false,
        }
    }

    fn own(&self, key: &Text<'_>) -> Option<Value<'v>> {
        if self.is_array() {
            if is_length(key) {
                return Some(Value::Number(self.count() as f64));
            }
            return self.element(index(key)?);
        }
        match self {
            Self::Json(text) => {
                let mut found = None;
                for (known, value) in json::entries(text) {
                    if known.is_some_and(|known| is_key(known, key)) {
                        found = Some(value);
                    }
                }
                found.map(Value::parse)
            }
            Self::Held(node) => node.field(key).map(Value::held),
            Self::Fields(fields) => {
                let found = fields.iter().rev().find(|(known, _)| known == key);
                found.map(|(_, value)| value.clone())
            }
            Self::User(user) => match key.plain()? {
                "id" => Some(Value::Text(user.id.into())),
                "isAuthenticated" => Some(Value::Bool(user.is_authenticated())),
                "data" => Some(user.data.value()),
                _ => None,
            },
            Self::List(_) | Self::Regular(_) => None,
        }
    }

    /// The number of elements of an array; 0 for other values.
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::Json(text) => json::entries(text).count(),
            Self::Held(Node::List(list)) => list.len(),
            Self::List(list) => list.len(),
            _ => 0,
        }
    }

    fn element(&self, index: usize) -> Option<Value<'v>> {
        match self {
            Self::Json(text) => json::entries(text)
                .nth(index)
                .map(|(_, value)| Value::parse(value)),
            Self::Held(Node::List(list)) => list.get(index).map(Value::held),
            Self::List(list) => list.get(index).cloned(),
            _ => None,
        }
    }

    /// All elements of an array.
    pub(crate) fn elements(&self) -> Vec<Value<'v>> {
        match self {
            Self::Json(text) => json::entries(text)
                .map(|(_, value)| Value::parse(value))
                .collect(),
            Self::Held(Node::List(list)) => list.iter().map(Value::held).collect(),
            Self::List(list) => list.to_vec(),
            _ => Vec::new(),
        }
    }

    /// Whether both are the same object; for parts of documents, whether they have the same position.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Json(left), Self::Json(right)) => std::ptr::eq(left.as_ptr(), right.as_ptr()),
            (Self::Held(left), Self::Held(right)) => std::ptr::eq(*left, *right),
            (Self::User(_), Self::User(_)) => true,
            // Objects that a rule creates are new each time.
            _ => false,
        }
    }
}

fn is_key(known: Literal<'_>, key: &Text<'_>) -> bool {
    match key {
        Text::Plain(key) if !known.escaped => known.inner == key.as_ref(),
        _ => Text::from_literal(known.inner, known.escaped) == *key,
    }
}

fn is_length(key: &Text<'_>) -> bool {
    key.plain() == Some("length")
}

/// The array index of a property name, if the name is spelled as one.
fn index(key: &Text<'_>) -> Option<usize> {
    let text = key.plain()?;
    let is_canonical = text == "0" || !text.starts_with(['0', '+']);
    if !is_canonical || text.len() > 10 {
        return None;
    }
    text.parse().ok()
}

/// The property name of a number.
pub(crate) fn index_text(number: f64) -> Text<'static> {
    number::format(number).into()
}

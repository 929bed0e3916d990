//! Conditions on a document: the parsed selector, and how it matches.

use std::cmp::Ordering;

use crate::constant::Constant;
use crate::order::{compare, equal, rank};
use crate::path::{Path, Purpose, Scope};
use crate::pattern::Pattern;
use crate::tape::{Kind, Value};

/// The place of a constant in the list of its selector.
pub(crate) type Slot = u32;

/// A selector. `Any` without parts never holds, and `All` without parts always does.
#[derive(Clone, Debug)]
pub(crate) enum Condition {
    All(Box<[Condition]>),
    Any(Box<[Condition]>),
    Not(Box<Condition>),
    /// Some branch of the path satisfies the test.
    Field(Path, Test),
}

/// A test of one branch.
#[derive(Clone, Debug)]
pub(crate) enum Test {
    Equal(Slot),
    /// Equal to one of a list.
    In(Slot),
    /// In this relation to a constant of the same type.
    Order(Relation, Slot),
    Exists,
    /// One of these types, a bit each by `rank`.
    Type(u8),
    /// An array of this length.
    Size(u32),
    /// An array with an element for which the condition holds. For a selector it must be an object.
    Element {
        is_selector: bool,
        condition: Box<Condition>,
    },
    Remainder {
        divisor: i64,
        remainder: i64,
    },
    Regex(Box<Pattern>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    Less,
    AtMost,
    Greater,
    AtLeast,
}

impl Relation {
    pub fn word(self) -> &'static str {
        match self {
            Self::Less => "<",
            Self::AtMost => "<=",
            Self::Greater => ">",
            Self::AtLeast => ">=",
        }
    }

    fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Less => order.is_lt(),
            Self::AtMost => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::AtLeast => order.is_ge(),
        }
    }
}

impl Condition {
    pub fn always() -> Self {
        Self::All(Box::default())
    }

    pub fn never() -> Self {
        Self::Any(Box::default())
    }

    pub fn is_always(&self) -> bool {
        matches!(self, Self::All(parts) if parts.is_empty())
    }

    pub fn is_never(&self) -> bool {
        matches!(self, Self::Any(parts) if parts.is_empty())
    }

    /// Whether it holds for the document or the element.
    pub fn holds(&self, scope: &Scope<'_>, constants: &[Constant]) -> bool {
        match self {
            Self::All(parts) => parts.iter().all(|part| part.holds(scope, constants)),
            Self::Any(parts) => parts.iter().any(|part| part.holds(scope, constants)),
            Self::Not(part) => !part.holds(scope, constants),
            Self::Field(path, test) => test.some_branch_holds(path, scope, constants),
        }
    }

    /// Calls `change` with each slot, in the order of the text.
    pub fn for_each_slot(&mut self, change: &mut impl FnMut(&mut Slot)) {
        match self {
            Self::All(parts) | Self::Any(parts) => {
                parts.iter_mut().for_each(|part| part.for_each_slot(change))
            }
            Self::Not(part) => part.for_each_slot(change),
            Self::Field(_, Test::Equal(slot) | Test::In(slot) | Test::Order(_, slot)) => {
                change(slot)
            }
            Self::Field(_, Test::Element { condition, .. }) => condition.for_each_slot(change),
            Self::Field(..) => {}
        }
    }

    /// Appends the normal form: with the constants, or without them for the shape.
    pub fn write(&self, constants: Option<&[Constant]>, out: &mut String) {
        let mut list = |name: &str, parts: &[Self]| {
            out.push_str(name);
            out.push('(');
            for (index, part) in parts.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                part.write(constants, out);
            }
            out.push(')');
        };
        match self {
            Self::All(parts) => list("all", parts),
            Self::Any(parts) => list("any", parts),
            Self::Not(part) => list("not", std::slice::from_ref(part)),
            Self::Field(path, test) => {
                tidewire_json::string(&path.text(), out);
                test.write(constants, out);
            }
        }
    }
}

impl Test {
    #[inline]
    fn some_branch_holds(&self, path: &Path, scope: &Scope<'_>, constants: &[Constant]) -> bool {
        let constant = |slot: Slot| constants.get(slot as usize);
        // The constant is read once, outside the loop over the branches.
        match self {
            Self::Equal(slot) => {
                let Some(constant) = constant(*slot).map(Constant::value) else {
                    return false;
                };
                let is_null = matches!(constant.kind(), Kind::Null);
                path.visit(scope, Purpose::Match, &mut |branch| {
                    branch.any(|value| value.map_or(is_null, |value| equal(&value, &constant)))
                })
            }
            Self::In(slot) => {
                let Some(list) = constant(*slot) else {
                    return false;
                };
                path.visit(scope, Purpose::Match, &mut |branch| branch.any(|value| is_in(list, value)))
            }
            Self::Order(relation, slot) => {
                let Some(constant) = constant(*slot).map(Constant::value) else {
                    return false;
                };
                let wanted = rank(&constant.kind());
                path.visit(scope, Purpose::Match, &mut |branch| {
                    branch.any(|value| {
                        value.is_some_and(|value| rank(&value.kind()) == wanted && relation.holds(compare(&value, &constant)))
                    })
                })
            }
            Self::Exists => path.visit(scope, Purpose::Match, &mut |branch| branch.value.is_some()),
            Self::Type(types) => path.visit(scope, Purpose::Match, &mut |branch| {
                branch.any(|value| value.is_some_and(|value| types >> rank(&value.kind()) & 1 == 1))
            }),
            Self::Size(size) => path.visit(scope, Purpose::Match, &mut |branch| {
                branch
                    .value
                    .is_some_and(|value| value.is_array() && value.elements().count() == *size as usize)
            }),
            Self::Element { is_selector, condition } => path.visit(scope, Purpose::Match, &mut |branch| {
                branch.value.is_some_and(|value| {
                    value.elements().any(|element| {
                        (!is_selector || element.is_object()) && condition.holds(&Scope::Element(element), constants)
                    })
                })
            }),
            Self::Remainder { divisor, remainder } => path.visit(scope, Purpose::Match, &mut |branch| {
                branch.any(|value| {
                    matches!(value.map(|it| it.kind()), Some(Kind::Number(number)) if number.0.has_remainder(*divisor, *remainder))
                })
            }),
            Self::Regex(pattern) => path.visit(scope, Purpose::Match, &mut |branch| {
                branch.any(|value| matches!(value.map(|it| it.kind()), Some(Kind::String(text)) if pattern.is_match(text)))
            }),
        }
    }

    fn write(&self, constants: Option<&[Constant]>, out: &mut String) {
        let (word, slot) = match self {
            Self::Equal(slot) => ("=", slot),
            Self::In(slot) => (" in ", slot),
            Self::Order(relation, slot) => (relation.word(), slot),
            Self::Exists => return out.push_str(" exists"),
            Self::Type(types) => return out.push_str(&format!(" type {types}")),
            Self::Size(size) => return out.push_str(&format!(" size {size}")),
            Self::Remainder { divisor, remainder } => {
                return out.push_str(&format!(" mod {divisor} {remainder}"));
            }
            Self::Regex(pattern) => {
                out.push_str(" regex ");
                return tidewire_json::string(pattern.text(), out);
            }
            Self::Element {
                is_selector,
                condition,
            } => {
                out.push_str(if *is_selector {
                    " object("
                } else {
                    " element("
                });
                condition.write(constants, out);
                return out.push(')');
            }
        };
        out.push_str(word);
        match constants {
            Some(constants) => {
                out.push_str(constants.get(*slot as usize).map_or("", Constant::text))
            }
            None => out.push('?'),
        }
    }
}

/// Whether the sorted list has the value. A missing value is like null.
fn is_in(list: &Constant, value: Option<Value<'_>>) -> bool {
    let matches = |element: &Value<'_>| match &value {
        Some(value) => equal(value, element),
        None => matches!(element.kind(), Kind::Null),
    };
    let Some(count) = list.scalars() else {
        return list.value().elements().any(|element| matches(&element));
    };
    let Some(value) = &value else {
        // Null is the lowest of all values.
        return count > 0 && matches(&list.scalar(0));
    };
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low.midpoint(high);
        match compare(&list.scalar(middle), value) {
            Ordering::Equal => return true,
            Ordering::Less => low = middle + 1,
            Ordering::Greater => high = middle,
        }
    }
    false
}

//! A parsed expression. Names are resolved, methods known and regular expressions compiled when the rule is loaded,
//! so that an evaluation repeats none of it.

use crate::regular::Regular;
use crate::text::Text;

#[derive(Clone, Debug)]
pub(crate) enum Expression {
    Undefined,
    Null,
    Bool(bool),
    Number(f64),
    Text(Text<'static>),
    Regular(Box<Regular>),
    User,
    UserId,
    UserIsAuthenticated,
    UserData,
    Data,
    OldData,
    Now,
    Action,
    Name,
    /// A variable of the path, by its index there.
    Variable(usize),
    /// `_(name)`
    Record(Box<Expression>),
    /// `object.key`
    Member(Box<Expression>, Text<'static>),
    /// `object[key]`
    Index(Box<(Expression, Expression)>),
    Call(Box<Call>),
    /// The part that must not be null or undefined for the chain to continue: the `object` of `object?.key`.
    Guard(Box<Expression>),
    /// A whole chain with guards, undefined if one of them stops it.
    Chain(Box<Expression>),
    Not(Box<Expression>),
    Minus(Box<Expression>),
    Plus(Box<Expression>),
    TypeOf(Box<Expression>),
    Binary(Operator, Box<(Expression, Expression)>),
    /// `a && b && ...`
    All(Vec<Expression>),
    /// `a || b || ...`
    Any(Vec<Expression>),
    /// `a ?? b`
    Coalesce(Box<(Expression, Expression)>),
    /// `test ? yes : no`
    Choose(Box<(Expression, Expression, Expression)>),
    List(Vec<Expression>),
    Fields(Vec<(Text<'static>, Expression)>),
}

/// A call of a method. `Match` has a regular expression as its only argument.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) object: Expression,
    pub(crate) method: Method,
    pub(crate) arguments: Vec<Expression>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `===`
    Same,
    /// `!==`
    NotSame,
    In,
}

impl Operator {
    /// The operator and its precedence; a higher one is evaluated first.
    pub(crate) fn of(token: &str) -> Option<(Self, u8)> {
        Some(match token {
            "==" => (Self::Equal, 3),
            "!=" => (Self::NotEqual, 3),
            "===" => (Self::Same, 3),
            "!==" => (Self::NotSame, 3),
            "<" => (Self::Less, 4),
            "<=" => (Self::LessOrEqual, 4),
            ">" => (Self::Greater, 4),
            ">=" => (Self::GreaterOrEqual, 4),
            "in" => (Self::In, 4),
            "+" => (Self::Add, 5),
            "-" => (Self::Subtract, 5),
            "*" => (Self::Multiply, 6),
            "/" => (Self::Divide, 6),
            "%" => (Self::Remainder, 6),
            _ => return None,
        })
    }
}

/// The methods that a rule may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    StartsWith,
    EndsWith,
    Includes,
    IndexOf,
    Match,
    ToUpperCase,
    ToLowerCase,
    Trim,
}

impl Method {
    pub(crate) fn of(name: &str) -> Option<Self> {
        Some(match name {
            "startsWith" => Self::StartsWith,
            "endsWith" => Self::EndsWith,
            "includes" => Self::Includes,
            "indexOf" => Self::IndexOf,
            "match" => Self::Match,
            "toUpperCase" => Self::ToUpperCase,
            "toLowerCase" => Self::ToLowerCase,
            "trim" => Self::Trim,
            _ => return None,
        })
    }
}

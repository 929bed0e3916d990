//! Parses tokens into an expression, and refuses everything else with its position.

use crate::expression::{Call, Expression, Method, Operator};
use crate::lexer::{Lexer, RuleError, Token};
use crate::limits::RuleLimits;
use crate::number;
use crate::regular::Regular;
use crate::shape::misspelled;
use crate::text::Text;

/// The inputs that a rule uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// The first byte of a use of `data`.
    pub data: Option<usize>,
    /// The first byte of a use of `oldData`.
    pub old_data: Option<usize>,
    /// Whether it refers to other records.
    pub records: bool,
    /// Whether it uses the requested name or action.
    pub question: bool,
    /// Whether it uses `name` or a variable of the path.
    pub name: bool,
    /// Whether it uses `now`.
    pub now: bool,
    /// Whether it uses `user`.
    pub user: bool,
}

/// Parses a rule. `variables` are the variables of its path, with their `$`.
pub(crate) fn parse(
    source: &str,
    variables: &[String],
    limits: &RuleLimits,
) -> Result<(Expression, Uses), RuleError> {
    if source.len() > limits.expression_bytes_max {
        let reason = format!(
            "the expression has more than {} bytes",
            limits.expression_bytes_max
        );
        return Err(RuleError::new(reason, 0));
    }
    let mut parser = Parser {
        lexer: Lexer::new(source),
        token: Token::End,
        start: 0,
        variables,
        limits,
        depth: 0,
        uses: Uses::default(),
    };
    parser.advance()?;
    if parser.token == Token::End {
        return Err(RuleError::new("the rule is empty", 0));
    }
    let built = parser.expression()?;
    // A rule is the expression of a `return` statement, so a `;` at the end is harmless.
    parser.eat(";")?;
    match parser.token {
        Token::End => Ok((built.expression, parser.uses)),
        _ => Err(parser.unexpected()),
    }
}

/// An expression and its height.
struct Built {
    expression: Expression,
    height: usize,
    /// The operator of a row of `&&`, `||` or `??` without brackets, which must not be mixed.
    logic: Option<Logic>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Logic {
    AndOr,
    Coalesce,
}

struct Parser<'s> {
    lexer: Lexer<'s>,
    token: Token,
    start: usize,
    variables: &'s [String],
    limits: &'s RuleLimits,
    depth: usize,
    uses: Uses,
}

impl Parser<'_> {
    fn advance(&mut self) -> Result<(), RuleError> {
        (self.token, self.start) = self.lexer.next()?;
        Ok(())
    }

    fn is(&self, sign: &str) -> bool {
        matches!(&self.token, Token::Sign(found) if *found == sign)
    }

    fn eat(&mut self, sign: &str) -> Result<bool, RuleError> {
        let eats = self.is(sign);
        if eats {
            self.advance()?;
        }
        Ok(eats)
    }

    fn expect(&mut self, sign: &str) -> Result<(), RuleError> {
        if self.eat(sign)? {
            Ok(())
        } else {
            let found = self.unexpected().reason;
            Err(self.refused(format!("`{sign}` expected, {found}")))
        }
    }

    fn refused(&self, reason: impl Into<String>) -> RuleError {
        RuleError::new(reason, self.start)
    }

    /// Names the token at this position.
    fn unexpected(&self) -> RuleError {
        let reason = match &self.token {
            Token::End => "unexpected end of the rule".to_owned(),
            Token::Number(_) => "unexpected number".to_owned(),
            Token::Text(_) => "unexpected text".to_owned(),
            Token::Word(word) => match word.as_str() {
                "new" | "function" | "class" | "async" | "await" | "yield" | "this" | "super"
                | "import" | "let" | "var" | "const" | "return" | "delete" | "void"
                | "instanceof" | "throw" | "if" | "for" | "while" => {
                    format!("`{word}` is not allowed in a rule")
                }
                _ => format!("unexpected `{word}`"),
            },
            Token::Sign(sign) => match *sign {
                "=" | "+=" | "-=" | "*=" | "/=" | "%=" | "&=" | "|=" | "^=" | "**=" | "<<="
                | ">>=" | ">>>=" | "&&=" | "||=" | "??=" | "++" | "--" => {
                    format!("`{sign}` is not allowed: a rule can't change a value")
                }
                "=>" => "functions are not allowed in a rule".to_owned(),
                "&" | "|" | "^" | "~" | "<<" | ">>" | ">>>" | "**" | "`" | "#" | "..." => {
                    format!("`{sign}` is not supported in a rule")
                }
                _ => format!("unexpected `{sign}`"),
            },
        };
        self.refused(reason)
    }

    /// Counts recursive calls.
    fn nested<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<T, RuleError>,
    ) -> Result<T, RuleError> {
        self.depth += 1;
        if self.depth > self.limits.nesting_max {
            return Err(self.refused(format!(
                "the rule nests deeper than {}",
                self.limits.nesting_max
            )));
        }
        let parsed = parse(self)?;
        self.depth -= 1;
        Ok(parsed)
    }

    fn build(&self, expression: Expression, height: usize) -> Result<Built, RuleError> {
        if height > self.limits.height_max {
            return Err(self.refused(format!(
                "more than {} chained operators",
                self.limits.height_max
            )));
        }
        Ok(Built {
            expression,
            height,
            logic: None,
        })
    }

    fn expression(&mut self) -> Result<Built, RuleError> {
        self.nested(|parser| {
            let test = parser.binary(0)?;
            if !parser.eat("?")? {
                return Ok(test);
            }
            let yes = parser.expression()?;
            parser.expect(":")?;
            let no = parser.expression()?;
            let height = test.height.max(yes.height).max(no.height) + 1;
            let choice = (test.expression, yes.expression, no.expression);
            parser.build(Expression::Choose(Box::new(choice)), height)
        })
    }

    fn binary(&mut self, least: u8) -> Result<Built, RuleError> {
        let mut left = self.unary()?;
        loop {
            let sign = match &self.token {
                Token::Sign(sign) => *sign,
                Token::Word(word) if word == "in" => "in",
                _ => return Ok(left),
            };
            left = match sign {
                "&&" if least <= 2 => {
                    self.advance()?;
                    let right = self.binary(3)?;
                    self.logic(left, right, Logic::AndOr, all)?
                }
                "||" if least <= 1 => {
                    self.advance()?;
                    let right = self.binary(2)?;
                    self.logic(left, right, Logic::AndOr, any)?
                }
                "??" if least <= 1 => {
                    self.advance()?;
                    let right = self.binary(2)?;
                    self.logic(left, right, Logic::Coalesce, |left, right| {
                        Expression::Coalesce(Box::new((left, right)))
                    })?
                }
                _ => match Operator::of(sign) {
                    Some((operator, power)) if power >= least => {
                        self.advance()?;
                        let right = self.binary(power + 1)?;
                        if operator == Operator::In
                            && let Expression::Text(key) = &left.expression
                        {
                            self.check_member(&right.expression, key, self.start)?;
                        }
                        let height = left.height.max(right.height) + 1;
                        let sides = Box::new((left.expression, right.expression));
                        self.build(Expression::Binary(operator, sides), height)?
                    }
                    _ => return Ok(left),
                },
            };
        }
    }

    fn logic(
        &self,
        left: Built,
        right: Built,
        logic: Logic,
        join: impl FnOnce(Expression, Expression) -> Expression,
    ) -> Result<Built, RuleError> {
        if [left.logic, right.logic]
            .iter()
            .flatten()
            .any(|other| *other != logic)
        {
            return Err(self.refused("`??` together with `&&` or `||` needs brackets"));
        }
        let is_flat = matches!(
            (&left.expression, logic),
            (Expression::All(_) | Expression::Any(_), Logic::AndOr)
        );
        // A row of the same operator is one node of any length; at worst this counts one more than there are.
        let height = left.height.max(right.height + 1) + usize::from(!is_flat);
        Ok(Built {
            logic: Some(logic),
            ..self.build(join(left.expression, right.expression), height)?
        })
    }

    fn unary(&mut self) -> Result<Built, RuleError> {
        let wrap: fn(Box<Expression>) -> Expression = match &self.token {
            Token::Sign("!") => Expression::Not,
            Token::Sign("-") => Expression::Minus,
            Token::Sign("+") => Expression::Plus,
            Token::Word(word) if word == "typeof" => Expression::TypeOf,
            _ => return self.chain(),
        };
        self.nested(|parser| {
            parser.advance()?;
            let inner = parser.unary()?;
            parser.build(wrap(Box::new(inner.expression)), inner.height + 1)
        })
    }

    /// A value with the members and calls after it.
    fn chain(&mut self) -> Result<Built, RuleError> {
        let mut built = self.primary()?;
        let mut is_guarded = false;
        loop {
            let height = built.height + 1;
            if self.is("?.") {
                self.advance()?;
                is_guarded = true;
                built = self.build(Expression::Guard(Box::new(built.expression)), height)?;
                built = if self.is("[") {
                    self.index(built)?
                } else if self.is("(") {
                    return Err(self.refused("only a named method can be called"));
                } else {
                    self.member(built)?
                };
            } else if self.eat(".")? {
                built = self.member(built)?;
            } else if self.is("[") {
                built = self.index(built)?;
            } else if self.is("(") {
                return Err(self.refused("only a named method can be called"));
            } else if is_guarded {
                return self.build(Expression::Chain(Box::new(built.expression)), height);
            } else {
                return Ok(built);
            }
        }
    }

    fn index(&mut self, object: Built) -> Result<Built, RuleError> {
        self.advance()?;
        let offset = self.start;
        let key = self.expression()?;
        match &key.expression {
            Expression::Text(name) => self.check_member(&object.expression, name, offset)?,
            Expression::Number(index) => {
                let name = number::format(*index).into();
                self.check_member(&object.expression, &name, offset)?;
            }
            _ => {}
        }
        self.expect("]")?;
        let height = object.height.max(key.height) + 1;
        let pair = (object.expression, key.expression);
        self.build(Expression::Index(Box::new(pair)), height)
    }

    fn member(&mut self, object: Built) -> Result<Built, RuleError> {
        let offset = self.start;
        let Token::Word(name) = &self.token else {
            return Err(self.unexpected());
        };
        let name = name.clone();
        self.advance()?;
        if !self.is("(") {
            self.check_member(&object.expression, &name.as_str().into(), offset)?;
            let expression = member(object.expression, name);
            return self.build(expression, object.height + 1);
        }
        let Some(method) = Method::of(&name) else {
            return Err(RuleError::new(
                format!("function `{name}` is not supported"),
                offset,
            ));
        };
        self.advance()?;
        let (arguments, height) = if method == Method::Match {
            (vec![self.pattern()?], 0)
        } else {
            self.list(")")?
        };
        let height = height.max(object.height) + 1;
        let call = Call {
            object: object.expression,
            method,
            arguments,
        };
        self.build(Expression::Call(Box::new(call)), height)
    }

    /// Refuses a member that the object can't have.
    fn check_member(
        &self,
        object: &Expression,
        key: &Text<'_>,
        offset: usize,
    ) -> Result<(), RuleError> {
        match misspelled(object, key) {
            Some(reason) => Err(RuleError::new(reason, offset)),
            None => Ok(()),
        }
    }

    /// The only argument of `match`, and the bracket after it.
    fn pattern(&mut self) -> Result<Expression, RuleError> {
        let offset = self.start;
        let regular = match &self.token {
            Token::Sign("/" | "/=") => self.regular()?,
            Token::Text(text) => {
                let Some(source) = text.plain().map(str::to_owned) else {
                    return Err(self.refused("a regular expression with a lone surrogate"));
                };
                self.advance()?;
                self.compile(&source, "", offset)?
            }
            _ => {
                return Err(self.refused(
                    "`match` requires a regular expression or a text literal, so that the server can check it when it loads the rules",
                ));
            }
        };
        self.eat(",")?;
        self.expect(")")?;
        Ok(Expression::Regular(Box::new(regular)))
    }

    fn regular(&mut self) -> Result<Regular, RuleError> {
        let start = self.start;
        let (source, flags) = self.lexer.regular(start)?;
        let regular = self.compile(source, flags, start)?;
        self.advance()?;
        Ok(regular)
    }

    fn compile(&self, source: &str, flags: &str, start: usize) -> Result<Regular, RuleError> {
        let limits = self.limits;
        Regular::compile(source, flags, limits.nesting_max, limits.regular_bytes_max)
            .map_err(|refused| RuleError::new(refused.reason, start + 1 + refused.offset))
    }

    /// Expressions up to a closing sign, which it consumes.
    fn list(&mut self, close: &str) -> Result<(Vec<Expression>, usize), RuleError> {
        let mut entries = Vec::new();
        let mut height = 0;
        while !self.eat(close)? {
            let entry = self.expression()?;
            height = height.max(entry.height);
            entries.push(entry.expression);
            if !self.is(close) {
                self.expect(",")?;
            }
        }
        Ok((entries, height))
    }

    fn primary(&mut self) -> Result<Built, RuleError> {
        let expression = match &self.token {
            Token::Number(number) => Expression::Number(*number),
            Token::Text(text) => Expression::Text(text.clone()),
            Token::Word(word) if word == "_" => return self.record(),
            Token::Word(word) => {
                let word = word.clone();
                return self.word(&word);
            }
            Token::Sign("(") => {
                self.advance()?;
                let inner = self.expression()?;
                self.expect(")")?;
                return Ok(Built {
                    logic: None,
                    ..inner
                });
            }
            Token::Sign("[") => {
                self.advance()?;
                let (entries, height) = self.list("]")?;
                return self.build(Expression::List(entries), height + 1);
            }
            Token::Sign("{") => return self.fields(),
            Token::Sign("/" | "/=") => {
                let regular = self.regular()?;
                return self.build(Expression::Regular(Box::new(regular)), 1);
            }
            _ => return Err(self.unexpected()),
        };
        self.advance()?;
        self.build(expression, 1)
    }

    fn record(&mut self) -> Result<Built, RuleError> {
        self.advance()?;
        if !self.is("(") {
            return Err(self.refused("`_` must be called: `_('name of a record')`"));
        }
        self.advance()?;
        let (mut arguments, height) = self.list(")")?;
        self.uses.records = true;
        if arguments.len() != 1 {
            return Err(self.refused("`_` requires the name of one record"));
        }
        let name = Box::new(arguments.remove(0));
        self.build(Expression::Record(name), height + 1)
    }

    /// A name: a value, a variable of the path, or an unknown name.
    fn word(&mut self, word: &str) -> Result<Built, RuleError> {
        let start = self.start;
        let unexpected = self.unexpected();
        self.advance()?;
        if unexpected.reason.ends_with("is not allowed in a rule") {
            return Err(unexpected);
        }
        if self.is("(") {
            return Err(RuleError::new(
                format!("function `{word}` is not supported"),
                start,
            ));
        }
        let expression = match word {
            "undefined" => Expression::Undefined,
            "null" => Expression::Null,
            "true" => Expression::Bool(true),
            "false" => Expression::Bool(false),
            "NaN" => Expression::Number(f64::NAN),
            "Infinity" => Expression::Number(f64::INFINITY),
            "user" => {
                self.uses.user = true;
                Expression::User
            }
            "now" => {
                self.uses.now = true;
                Expression::Now
            }
            "action" => {
                self.uses.question = true;
                Expression::Action
            }
            "name" => {
                self.uses.question = true;
                self.uses.name = true;
                Expression::Name
            }
            "data" => {
                self.uses.data.get_or_insert(start);
                Expression::Data
            }
            "oldData" => {
                self.uses.old_data.get_or_insert(start);
                Expression::OldData
            }
            variable if variable.starts_with('$') => {
                self.uses.name = true;
                let index = self.variables.iter().position(|known| known == variable);
                Expression::Variable(index.ok_or_else(|| {
                    RuleError::new(format!("the path has no variable `{variable}`"), start)
                })?)
            }
            other => {
                return Err(RuleError::new(format!("unknown name `{other}`"), start));
            }
        };
        self.build(expression, 1)
    }

    fn fields(&mut self) -> Result<Built, RuleError> {
        self.advance()?;
        let mut fields = Vec::new();
        let mut height = 0;
        while !self.eat("}")? {
            let key: Text<'static> = match &self.token {
                Token::Word(word) => word.clone().into(),
                Token::Text(text) => text.clone(),
                Token::Number(number) => number::format(*number).into(),
                _ => return Err(self.unexpected()),
            };
            if key.plain() == Some("__proto__") {
                return Err(self.refused("`__proto__` is not allowed in a rule"));
            }
            self.advance()?;
            self.expect(":")?;
            let value = self.expression()?;
            height = height.max(value.height);
            fields.push((key, value.expression));
            if !self.is("}") {
                self.expect(",")?;
            }
        }
        self.build(Expression::Fields(fields), height + 1)
    }
}

fn all(left: Expression, right: Expression) -> Expression {
    match left {
        Expression::All(mut parts) => {
            parts.push(right);
            Expression::All(parts)
        }
        other => Expression::All(vec![other, right]),
    }
}

fn any(left: Expression, right: Expression) -> Expression {
    match left {
        Expression::Any(mut parts) => {
            parts.push(right);
            Expression::Any(parts)
        }
        other => Expression::Any(vec![other, right]),
    }
}

/// Resolves the most common members of `user` here, so that an evaluation does not build the user as an object.
fn member(object: Expression, name: String) -> Expression {
    match (object, name.as_str()) {
        (Expression::User, "id") => Expression::UserId,
        (Expression::User, "isAuthenticated") => Expression::UserIsAuthenticated,
        (Expression::User, "data") => Expression::UserData,
        (object, _) => Expression::Member(Box::new(object), name.into()),
    }
}

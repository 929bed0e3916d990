//! Parses selectors. `spec/query.md` has the operators.

use crate::condition::{Condition, Relation, Slot, Test};
use crate::constant::Constant;
use crate::error::{QueryError, QueryErrorCode, member};
use crate::limits::QueryLimits;
use crate::number::Number;
use crate::order::{Members, rank, sorted_members};
use crate::path::Path;
use crate::pattern::Pattern;
use crate::shape::Selector;
use crate::tape::{Kind, Value};

type Parsed<T> = Result<T, QueryError>;

/// The largest integer that a double holds exactly together with its neighbours, so that JavaScript agrees.
const SAFE_INTEGER_MAX: i64 = (1 << 53) - 1;

/// Parses the value of `where`.
pub(crate) fn parse(value: &Value<'_>, at: &str, limits: &QueryLimits) -> Parsed<Selector> {
    let mut parser = Parser {
        limits,
        constants: Vec::new(),
        nodes: 0,
    };
    let condition = match value.kind() {
        // A guard for programs whose selector is unexpectedly null.
        Kind::Null => Condition::never(),
        Kind::String(_) => Condition::Field(Path::Id, Test::Equal(parser.constant(value))),
        _ => parser.selector(value, at, false)?,
    };
    Ok(Selector::new(condition, &parser.constants))
}

struct Parser<'l> {
    limits: &'l QueryLimits,
    constants: Vec<Constant>,
    nodes: usize,
}

impl Parser<'_> {
    fn constant(&mut self, value: &Value<'_>) -> Slot {
        self.constants.push(Constant::of(value));
        self.constants.len() as Slot - 1
    }

    fn count(&mut self, at: &str) -> Parsed<()> {
        self.nodes += 1;
        if self.nodes > self.limits.nodes_max {
            let what = format!(
                "selector has more than {} paths and operators; split the query",
                self.limits.nodes_max
            );
            return Err(QueryError::new(QueryErrorCode::TooLarge, at, what));
        }
        Ok(())
    }

    /// An object all of whose entries must match. In an element, `_id` and `_v` are ordinary fields.
    fn selector(&mut self, value: &Value<'_>, at: &str, in_element: bool) -> Parsed<Condition> {
        if !value.is_object() {
            return operand(at, "selector is not an object; write {\"field\": value}");
        }
        let id_names: &[&str] = match (in_element, self.limits.id_alias) {
            (true, _) => &[],
            (false, true) => &["_id", "id"],
            (false, false) => &["_id"],
        };
        let mut parts = Vec::new();
        for (key, operand) in sorted_members(value) {
            let key = name(key, at)?;
            let at = member(at, key);
            match key {
                "$comment" => {}
                "$and" | "$or" | "$nor" => {
                    self.count(&at)?;
                    parts.push(self.logical(key, &operand, &at, in_element)?);
                }
                _ if key.starts_with('$') => {
                    return unknown(&at, key, "$and, $or, $nor or a field");
                }
                _ => {
                    self.count(&at)?;
                    let path = Path::parse(key, &at, id_names, self.limits)?;
                    self.field(&path, &operand, &at, &mut parts)?;
                }
            }
        }
        Ok(Condition::All(parts.into()))
    }

    fn logical(
        &mut self,
        key: &str,
        operand: &Value<'_>,
        at: &str,
        in_element: bool,
    ) -> Parsed<Condition> {
        let mut parts = Vec::new();
        for (index, element) in operand.elements().enumerate() {
            parts.push(self.selector(&element, &member(at, &index.to_string()), in_element)?);
        }
        if parts.is_empty() {
            return self::operand(
                at,
                &format!("operand of \"{key}\" is not an array with selectors; give at least one"),
            );
        }
        Ok(match key {
            "$and" => Condition::All(parts.into()),
            "$or" => Condition::Any(parts.into()),
            _ => Condition::Not(Box::new(Condition::Any(parts.into()))),
        })
    }

    fn field(
        &mut self,
        path: &Path,
        operand: &Value<'_>,
        at: &str,
        parts: &mut Vec<Condition>,
    ) -> Parsed<()> {
        let members = sorted_members(operand);
        let operators = members
            .iter()
            .filter(|(key, _)| key.starts_with(b"$"))
            .count();
        if operators == 0 {
            check_constant(operand, at)?;
            let slot = self.constant(operand);
            parts.push(Condition::Field(path.clone(), Test::Equal(slot)));
            return Ok(());
        }
        if operators < members.len() {
            let what = "object has operators and plain keys; put the plain keys into $eq or use a path with dots";
            return Err(QueryError::new(QueryErrorCode::MixedOperators, at, what));
        }
        self.operators(path, &members, at, parts)
    }

    /// Appends a condition for each operator of an operator object.
    fn operators(
        &mut self,
        path: &Path,
        members: &Members<'_>,
        at: &str,
        parts: &mut Vec<Condition>,
    ) -> Parsed<()> {
        let options = members
            .iter()
            .find(|(key, _)| *key == b"$options")
            .map(|(_, value)| value);
        for (key, operand) in members {
            let key = name(key, at)?;
            let at = member(at, key);
            self.count(&at)?;
            match key {
                "$comment" => continue,
                "$options" if members.iter().any(|(key, _)| *key == b"$regex") => continue,
                "$options" => {
                    return self::operand(
                        &at,
                        "$options is without $regex; add $regex or remove it",
                    );
                }
                _ => {}
            }
            let condition = self.operator(path, key, operand, options, &at)?;
            parts.push(condition);
        }
        Ok(())
    }

    fn operator(
        &mut self,
        path: &Path,
        key: &str,
        operand: &Value<'_>,
        options: Option<&Value<'_>>,
        at: &str,
    ) -> Parsed<Condition> {
        let field = |test| Condition::Field(path.clone(), test);
        let not = |condition| Condition::Not(Box::new(condition));
        Ok(match key {
            "$eq" | "$ne" => {
                check_constant(operand, at)?;
                let equal = field(Test::Equal(self.constant(operand)));
                if key == "$eq" { equal } else { not(equal) }
            }
            "$in" | "$nin" => {
                let in_list = self.in_list(path, operand, at)?;
                if key == "$in" { in_list } else { not(in_list) }
            }
            "$all" => {
                let elements = self.list(operand, at)?;
                if elements.is_empty() {
                    return Ok(Condition::never());
                }
                let equal = elements
                    .iter()
                    .map(|element| field(Test::Equal(self.constant(element))));
                Condition::All(equal.collect())
            }
            "$lt" => self.order(path, Relation::Less, operand, at)?,
            "$lte" => self.order(path, Relation::AtMost, operand, at)?,
            "$gt" => self.order(path, Relation::Greater, operand, at)?,
            "$gte" => self.order(path, Relation::AtLeast, operand, at)?,
            "$exists" => match operand.kind() {
                Kind::Bool(true) => field(Test::Exists),
                Kind::Bool(false) => not(field(Test::Exists)),
                _ => return self::operand(at, "operand is not a boolean; use true or false"),
            },
            "$type" => field(Test::Type(types(operand, at)?)),
            "$size" => match integer(operand).and_then(|size| u32::try_from(size).ok()) {
                Some(size) => field(Test::Size(size)),
                None => {
                    return self::operand(
                        at,
                        "operand is not a length; use an integer of at least 0",
                    );
                }
            },
            "$elemMatch" => self.element(path, operand, at)?,
            "$mod" => {
                let numbers: Vec<Option<i64>> = operand
                    .elements()
                    .map(|element| integer(&element))
                    .collect();
                match numbers[..] {
                    [Some(divisor), Some(remainder)] if divisor != 0 => {
                        field(Test::Remainder { divisor, remainder })
                    }
                    _ => {
                        return self::operand(
                            at,
                            "operand is not [divisor, remainder]; use two integers, the first not 0",
                        );
                    }
                }
            }
            "$regex" => {
                let refuse = |what: String| QueryError::new(QueryErrorCode::BadRegex, at, what);
                if !self.limits.regex_allowed {
                    return Err(refuse(
                        "$regex is not allowed in this collection; use a range or another field"
                            .into(),
                    ));
                }
                let text = |value: &Value<'_>| match value.kind() {
                    Kind::String(text) => std::str::from_utf8(text).ok().map(str::to_owned),
                    _ => None,
                };
                let (Some(pattern), Some(options)) =
                    (text(operand), options.map_or(Some(String::new()), text))
                else {
                    return self::operand(
                        at,
                        "$regex and $options are not both strings; use strings",
                    );
                };
                match Pattern::parse(&pattern, &options, self.limits) {
                    Ok(pattern) => field(Test::Regex(Box::new(pattern))),
                    Err(what) => return Err(refuse(format!("regular expression {what}"))),
                }
            }
            "$not" => {
                let members = sorted_members(operand);
                if members.is_empty() || members.iter().any(|(key, _)| !key.starts_with(b"$")) {
                    return self::operand(
                        at,
                        "operand is not an object of operators; use $ne for a value",
                    );
                }
                let mut parts = Vec::new();
                self.operators(path, &members, at, &mut parts)?;
                not(Condition::All(parts.into()))
            }
            _ => return unknown(at, key, "an operator of spec/query.md"),
        })
    }

    fn list<'v>(&self, operand: &Value<'v>, at: &str) -> Parsed<Vec<Value<'v>>> {
        if !operand.is_array() {
            return self::operand(at, "operand is not an array; put the value into brackets");
        }
        let elements: Vec<Value<'v>> = operand.elements().collect();
        if elements.len() > self.limits.values_max {
            let what = format!(
                "array has {} values; use at most {}",
                elements.len(),
                self.limits.values_max
            );
            return Err(QueryError::new(QueryErrorCode::TooLarge, at, what));
        }
        for (index, element) in elements.iter().enumerate() {
            check_constant(element, &member(at, &index.to_string()))?;
        }
        Ok(elements)
    }

    fn in_list(&mut self, path: &Path, operand: &Value<'_>, at: &str) -> Parsed<Condition> {
        let elements = self.list(operand, at)?;
        let constant = Constant::list(&elements);
        let list: Vec<Value<'_>> = constant.value().elements().collect();
        let test = match &list[..] {
            [] => return Ok(Condition::never()),
            [only] => Test::Equal(self.constant(only)),
            _ => {
                self.constants.push(constant);
                Test::In(self.constants.len() as Slot - 1)
            }
        };
        Ok(Condition::Field(path.clone(), test))
    }

    fn order(
        &mut self,
        path: &Path,
        relation: Relation,
        operand: &Value<'_>,
        at: &str,
    ) -> Parsed<Condition> {
        let test = match (operand.kind(), relation) {
            (Kind::Null, Relation::Less | Relation::Greater) => return Ok(Condition::never()),
            (Kind::Null, _) => Test::Equal(self.constant(operand)),
            (Kind::Array | Kind::Object, _) => {
                return self::operand(
                    at,
                    "operand is an array or object, which has no order here; use a number, text or boolean",
                );
            }
            _ => Test::Order(relation, self.constant(operand)),
        };
        Ok(Condition::Field(path.clone(), test))
    }

    fn element(&mut self, path: &Path, operand: &Value<'_>, at: &str) -> Parsed<Condition> {
        if !operand.is_object() {
            return self::operand(at, "operand is not an object; use operators or a selector");
        }
        let members = sorted_members(operand);
        let is_operator =
            |key: &[u8]| key.starts_with(b"$") && !matches!(key, b"$and" | b"$or" | b"$nor");
        let operators = members.iter().filter(|(key, _)| is_operator(key)).count();
        let is_selector = members.is_empty() || operators < members.len();
        let condition = if is_selector {
            self.selector(operand, at, true)?
        } else {
            let mut parts = Vec::new();
            self.operators(&Path::Element, &members, at, &mut parts)?;
            Condition::All(parts.into())
        };
        let condition = Box::new(condition);
        Ok(Condition::Field(
            path.clone(),
            Test::Element {
                is_selector,
                condition,
            },
        ))
    }
}

fn operand<T>(at: &str, what: &str) -> Parsed<T> {
    Err(QueryError::new(QueryErrorCode::BadOperand, at, what))
}

fn unknown<T>(at: &str, key: &str, instead: &str) -> Parsed<T> {
    let what = format!("operator \"{key}\" is unknown; use {instead}");
    Err(QueryError::new(QueryErrorCode::UnknownOperator, at, what))
}

fn name<'k>(key: &'k [u8], at: &str) -> Parsed<&'k str> {
    std::str::from_utf8(key).map_err(|_| {
        QueryError::new(
            QueryErrorCode::BadPath,
            at,
            "a key is not Unicode text; no stored field is like it",
        )
    })
}

/// Refuses keys that no stored document has, so a misplaced operator is never read as a value.
fn check_constant(value: &Value<'_>, at: &str) -> Parsed<()> {
    for (key, inner) in value.members() {
        let key = name(key, at)?;
        let at = member(at, key);
        if key.starts_with('$') {
            return operand(
                &at,
                "a value has a key that starts with a dollar sign; operators belong directly behind a path",
            );
        }
        check_constant(&inner, &at)?;
    }
    for (index, inner) in value.elements().enumerate() {
        check_constant(&inner, &member(at, &index.to_string()))?;
    }
    Ok(())
}

fn integer(value: &Value<'_>) -> Option<i64> {
    match value.kind() {
        Kind::Number(number) => match number.0 {
            Number::Int(int) if (-SAFE_INTEGER_MAX..=SAFE_INTEGER_MAX).contains(&int) => Some(int),
            _ => None,
        },
        _ => None,
    }
}

fn types(operand: &Value<'_>, at: &str) -> Parsed<u8> {
    let one = |value: &Value<'_>| {
        let sample = match value.kind() {
            Kind::String(b"number") => "0",
            Kind::String(b"string") => "\"\"",
            Kind::String(b"object") => "{}",
            Kind::String(b"array") => "[]",
            Kind::String(b"bool") => "true",
            Kind::String(b"null") => "null",
            // Types of extended JSON, which version 1 does not store.
            Kind::String(b"date" | b"binData" | b"objectId") => return Some(0),
            _ => return None,
        };
        let mut tape = crate::tape::Tape::new();
        tape.read_value(sample).map(|it| 1 << rank(&it.kind()))
    };
    let names: Vec<Value<'_>> = if operand.is_array() {
        operand.elements().collect()
    } else {
        vec![*operand]
    };
    if names.is_empty() {
        return self::operand(at, "operand has no type; name at least one");
    }
    let mut types = 0_u8;
    for name in &names {
        let Some(mask) = one(name) else {
            return self::operand(
                at,
                "operand is not a type; use number, string, object, array, bool, null, date, binData or objectId",
            );
        };
        types |= mask;
    }
    Ok(types)
}

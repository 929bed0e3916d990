//! Random rules and documents for them. Each document has one member of every type, so a rule can take an operand of
//! any type from a literal or from any document, and the types at an operator are known.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Value, json};
use tidewire_rules::limits::RuleLimits;
use tidewire_rules::rule::Rule;

/// The kind of count of each operator between each pair of types.
pub const OPERATOR_PAIRS: &str = "operators with pairs of types";

/// Small, seeded, good enough (xorshift64*).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}

/// The types of operands, each with the key under which every document has one.
const TYPES: [(&str, &str); 11] = [
    ("number", "n"),
    ("string", "s"),
    ("boolean", "b"),
    ("null", "z"),
    ("undefined", "u"),
    ("array", "a"),
    ("object", "o"),
    ("-0", "m"),
    ("NaN", "q"),
    ("lone surrogate", "h"),
    ("2^53+1", "g"),
];

const OPERATORS: [&str; 14] = [
    "===", "!==", "==", "!=", "<", ">", "<=", ">=", "+", "-", "*", "/", "%", "in",
];
const LOGICAL: [&str; 3] = ["&&", "||", "??"];
const OTHER: [&str; 12] = [
    "!",
    "unary -",
    "unary +",
    "typeof",
    "?:",
    "member",
    "index",
    "?.",
    "array literal",
    "object literal",
    "regular expression",
    "brackets",
];
const METHODS: [&str; 8] = [
    "startsWith",
    "endsWith",
    "includes",
    "indexOf",
    "match",
    "toUpperCase",
    "toLowerCase",
    "trim",
];
const VARIABLES: [&str; 11] = [
    "user",
    "user.id",
    "user.isAuthenticated",
    "user.data",
    "data",
    "oldData",
    "now",
    "action",
    "name",
    "$id",
    "_()",
];

const NUMBERS: [&str; 16] = [
    "0",
    "1",
    "-1",
    "2",
    "3.5",
    "10",
    "1e21",
    "1e-7",
    "0.1",
    "123456789",
    "-2.5e3",
    "1e400",
    "5e-324",
    "9007199254740992",
    "4294967296",
    "100",
];
/// As the insides of JSON literals, which are also literals of JavaScript in double quotes.
const TEXTS: [&str; 24] = [
    "",
    "a",
    "b",
    "ab",
    "open-7",
    "ann",
    "10",
    "9",
    "1e3",
    " 12 ",
    "0x1F",
    "-0",
    "NaN",
    "Infinity",
    "null",
    "true",
    "é",
    "ß\\u0130",
    "😀",
    "a😀b",
    "\\n\\t",
    "\\\"\\\\",
    "\\u0061bc",
    "n",
];
const LONE: [&str; 6] = [
    "\\ud83d",
    "\\ude00",
    "a\\ud83d",
    "\\ude00b",
    "\\ud83dx\\ude00",
    "\\udbff",
];
const ARRAYS: [&str; 12] = [
    "[]",
    "[1]",
    "[\"a\"]",
    "[1, \"two\", null]",
    "[[]]",
    "[[1, 2], [3]]",
    "[null]",
    "[{}]",
    "[-0]",
    "[true, \"n\"]",
    "[ \"\\ud83d\" , 10 ]",
    "[0,1,2,3,4,5,6,7,8,9,10]",
];
const OBJECTS: [&str; 10] = [
    "{}",
    "{\"a\":1}",
    "{\"n\": \"x\", \"length\": 3}",
    "{\"a\":{\"b\":[1]}}",
    "{\"a\":1,\"a\":2}",
    "{\"\\u0061\": null}",
    "{\"toString\": 1}",
    "{\"valueOf\": 1}",
    "{\"1\": true, \"-0\": false}",
    "{ \"\\ud83d\" : [ ] , \"undefined\": 0 }",
];
/// Also of keys: what rules look for in members.
const PATTERNS: [&str; 23] = [
    "/a/",
    "/^a/",
    "/b$/i",
    "/./g",
    "/^.$/",
    "/\\d+/",
    "/\\w/g",
    "/[a-z]+/i",
    "/[^a]/g",
    "/(a)|(b)/",
    "/\\s*/",
    "/a{1,2}/",
    "/(?:ab)+?/",
    "/\\bo/",
    "/é|ß/i",
    "/[\\ud83d]/",
    "/😀/",
    "/^(open)-(\\d)$/",
    "/[]/",
    "/[^]/g",
    "/a*/g",
    "/k/i",
    "/[\\w.-]+/s",
];

/// The inputs of a rule.
pub struct Scene {
    pub user_id: String,
    pub user_data: Option<String>,
    pub data: Option<String>,
    pub old_data: Option<String>,
    pub now: u64,
    pub action: u8,
    pub name: String,
    pub variables: Vec<String>,
    pub records: Vec<(String, String)>,
    pub is_held: bool,
    /// Whether all documents are objects with all members, so that types are known.
    is_full: bool,
}

/// JSON of a type, without values that JSON can't represent.
fn json_of(random: &mut Random, type_name: &str) -> Option<String> {
    Some(match type_name {
        "number" => (*random.of(&NUMBERS)).to_owned(),
        "string" => format!("\"{}\"", random.of(&TEXTS)),
        "boolean" => (*random.of(&["true", "false"])).to_owned(),
        "null" => "null".to_owned(),
        "array" => (*random.of(&ARRAYS)).to_owned(),
        "object" => (*random.of(&OBJECTS)).to_owned(),
        "-0" => (*random.of(&["-0", "-0.0", "-0e5"])).to_owned(),
        "lone surrogate" => format!("\"{}\"", random.of(&LONE)),
        "2^53+1" => "9007199254740993".to_owned(),
        _ => return None,
    })
}

/// An object with a member of every type, in random order, some keys twice, some escaped, with space here and there.
fn document(random: &mut Random) -> String {
    let mut members: Vec<String> = Vec::new();
    for (type_name, key) in TYPES {
        if let Some(value) = json_of(random, type_name) {
            let key = if random.one_in(10) {
                format!("\\u{:04x}", u32::from(key.as_bytes()[0]))
            } else {
                key.to_owned()
            };
            let space = random
                .of(&["", " ", "\\n\\t"])
                .replace("\\n", "\n")
                .replace("\\t", "\t");
            let index = random.below(members.len() + 1);
            // An earlier member of the same key does not count.
            if random.one_in(15) {
                members.insert(0, format!("\"{key}\":{}", random.of(&ARRAYS)));
                members.push(format!("\"{key}\"{space}:{space}{value}"));
            } else if members
                .iter()
                .all(|member| !member.starts_with(&format!("\"{key}\"")))
            {
                members.insert(index, format!("\"{key}\"{space}:{space}{value}"));
            }
        }
    }
    let between: &str = [",", " , ", ",\n"][random.below(3)];
    format!("{{{}}}", members.join(between))
}

impl Scene {
    pub fn new(random: &mut Random) -> Self {
        let is_full = !random.one_in(20);
        let any = |random: &mut Random| {
            if is_full {
                return Some(document(random));
            }
            match random.below(4) {
                0 => None,
                1 => Some(document(random)),
                _ => {
                    let index = random.below(TYPES.len());
                    json_of(random, TYPES[index].0)
                }
            }
        };
        let data = any(random);
        let old_data = any(random);
        let user_data = any(random);
        let plain = |random: &mut Random| loop {
            let text = *random.of(&TEXTS);
            if !text.contains('\\') {
                return text.to_owned();
            }
        };
        Self {
            user_id: if random.one_in(4) {
                "open".into()
            } else {
                plain(random)
            },
            user_data,
            data,
            old_data,
            now: 1_700_000_000_000 + random.next() % 1000,
            action: random.below(36) as u8,
            name: plain(random),
            variables: vec![plain(random), "open-7".into()],
            records: vec![
                ("r1".into(), document(random)),
                ("open-7".into(), document(random)),
            ],
            is_held: random.one_in(2),
            is_full,
        }
    }

    /// The scene and rules with their outcomes, for Node.
    pub fn line(&self, rules: &[Value]) -> Value {
        json!({
            "user": {"id": self.user_id, "data": self.user_data}, "data": self.data, "oldData": self.old_data,
            "now": self.now, "action": self.action, "name": self.name, "variables": self.variables,
            "records": self.records, "rules": rules,
        })
    }
}

/// A rule and its parts.
pub struct Made {
    pub text: String,
    used: Vec<(&'static str, String)>,
    depth: usize,
}

/// A random rule that nests four to six deep and that is accepted: one in several asks for a member that the object can't have, and
/// is refused when it is loaded.
pub fn rule(random: &mut Random, scene: &Scene) -> Made {
    let variables = ["$id".to_owned(), "$room".to_owned()];
    loop {
        let made = any_rule(random, scene);
        match Rule::parse(&made.text, &variables, &RuleLimits::default()) {
            Err(error) if is_about_members(&error.reason) => {}
            _ => return made,
        }
    }
}

/// Whether a rule was refused for a member that an object can't have.
fn is_about_members(reason: &str) -> bool {
    reason.contains(" has no member") || reason.contains(" is a method, ")
}

fn any_rule(random: &mut Random, scene: &Scene) -> Made {
    let depth = 4 + random.below(3);
    let mut made = Made {
        text: String::new(),
        used: Vec::new(),
        depth,
    };
    let text = made.expression(random, scene, depth);
    made.text = text;
    made
}

impl Made {
    fn uses(&mut self, kind: &'static str, what: &str) {
        self.used.push((kind, what.to_owned()));
    }

    /// An expression that nests `depth` deep, in brackets where it needs them.
    fn expression(&mut self, random: &mut Random, scene: &Scene, depth: usize) -> String {
        if depth <= 1 {
            return self.bottom(random, scene);
        }
        // One side is as deep as it is to be, the other is anything below.
        let deep = self.expression(random, scene, depth - 1);
        let other = |random: &mut Random, made: &mut Self| {
            let depth = if random.one_in(5) {
                0
            } else {
                1 + random.below(depth - 1)
            };
            if depth == 0 {
                made.operand(random, scene).0
            } else {
                made.expression(random, scene, depth)
            }
        };
        match random.below(20) {
            0..=6 => {
                let operator = *random.of(&LOGICAL);
                self.uses("operators", operator);
                let second = other(random, self);
                let (left, right) = either(random, deep, second);
                format!("({left} {operator} {right})")
            }
            7..=9 => {
                self.uses("operators", "?:");
                let (yes, no) = (other(random, self), other(random, self));
                format!("({deep} ? {yes} : {no})")
            }
            10..=12 => {
                let operator = *random.of(&OPERATORS[..13]);
                self.uses("operators", operator);
                let second = other(random, self);
                let (left, right) = either(random, deep, second);
                format!("({left} {operator} {right})")
            }
            13..=15 => {
                let (name, prefix) = *random.of(&[
                    ("!", "!"),
                    ("!", "!"),
                    ("unary -", "-"),
                    ("unary +", "+"),
                    ("typeof", "typeof "),
                ]);
                self.uses("operators", name);
                format!("({prefix}{deep})")
            }
            16 => {
                self.uses("operators", "array literal");
                let second = other(random, self);
                self.uses("operators", "index");
                format!(
                    "[{deep}, {second}][{}]",
                    random.of(&["0", "1", "'length'", "2"])
                )
            }
            17 => {
                self.uses("operators", "object literal");
                self.uses("operators", "member");
                format!("({{a: {deep}, 'b c': 1}}.{})", random.of(&["a", "a", "b"]))
            }
            18 => {
                self.uses("operators", "?.");
                let key = random.of(&TYPES).1;
                format!("({deep}?.{key})")
            }
            _ => {
                self.uses("operators", "brackets");
                format!("(({deep}))")
            }
        }
    }

    /// The lowest level: an operator between two operands whose types are known, a call, a member.
    fn bottom(&mut self, random: &mut Random, scene: &Scene) -> String {
        match random.below(12) {
            0..=7 => {
                let operator = *random.of(&OPERATORS);
                self.uses("operators", operator);
                let (left, left_type) = self.operand(random, scene);
                let (right, right_type) = self.operand(random, scene);
                if scene.is_full {
                    let pair = format!("{left_type} and {right_type}");
                    self.uses(OPERATOR_PAIRS, &format!("{operator} between {pair}"));
                    self.uses("pairs of types", &pair);
                }
                format!("({left} {operator} {right})")
            }
            8..=9 => self.call(random, scene),
            10 => {
                self.uses("operators", "index");
                let (object, _) = self.operand(random, scene);
                let (key, _) = self.operand(random, scene);
                format!("{object}[{key}]")
            }
            _ => {
                self.uses("operators", "member");
                let (object, _) = self.operand(random, scene);
                format!(
                    "{object}.{}",
                    random.of(&["length", "n", "a", "o", "length"])
                )
            }
        }
    }

    fn call(&mut self, random: &mut Random, scene: &Scene) -> String {
        let method = *random.of(&METHODS);
        self.uses("functions", method);
        let receiver = if random.one_in(4) {
            self.operand(random, scene).0
        } else {
            self.text(random, scene)
        };
        if method == "match" {
            self.uses("operators", "regular expression");
            return format!("{receiver}.match({})", random.of(&PATTERNS));
        }
        let mut arguments = Vec::new();
        for _ in 0..random.below(3) {
            let is_text = random.one_in(2);
            arguments.push(if is_text {
                self.text(random, scene)
            } else {
                self.operand(random, scene).0
            });
        }
        format!("{receiver}.{method}({})", arguments.join(", "))
    }

    /// A text, most of the time.
    fn text(&mut self, random: &mut Random, scene: &Scene) -> String {
        match random.below(8) {
            0 => {
                self.uses("variables", "name");
                "name".into()
            }
            1 => {
                self.uses("variables", "$id");
                "$id".into()
            }
            2 => {
                self.uses("variables", "user.id");
                "user.id".into()
            }
            3 => self.member(random, scene, "h"),
            4..=5 => self.member(random, scene, "s"),
            6 => format!("\"{}\"", random.of(&LONE)),
            _ => format!("\"{}\"", random.of(&TEXTS)),
        }
    }

    /// A member of one of the documents.
    fn member(&mut self, random: &mut Random, _scene: &Scene, key: &str) -> String {
        let document = match random.below(5) {
            0 | 1 => "data",
            2 => "oldData",
            3 => "user.data",
            _ => {
                self.uses("functions", "_");
                "_()"
            }
        };
        self.uses("variables", document);
        let document = if document == "_()" {
            random.of(&["_('r1')", "_($room)", "_('r' + 1)"])
        } else {
            document
        };
        match random.below(6) {
            0 => format!("{document}['{key}']"),
            1 => {
                self.uses("operators", "?.");
                format!("{document}?.{key}")
            }
            _ => format!("{document}.{key}"),
        }
    }

    /// Something of a random type, and the type.
    fn operand(&mut self, random: &mut Random, scene: &Scene) -> (String, &'static str) {
        let (type_name, key) = *random.of(&TYPES);
        if type_name != "NaN" && random.one_in(2) {
            return (self.member(random, scene, key), type_name);
        }
        // Brackets, because a number can't have a member without and a sign binds less than one.
        let text = match type_name {
            "number" => match random.below(8) {
                0 => {
                    self.uses("variables", "now");
                    "now".into()
                }
                1 => {
                    self.uses("variables", "action");
                    "action".into()
                }
                _ => format!("({})", random.of(&NUMBERS)),
            },
            "string" => self.text_literal(random),
            "boolean" => {
                if random.one_in(3) {
                    self.uses("variables", "user.isAuthenticated");
                    "user.isAuthenticated".into()
                } else {
                    (*random.of(&["true", "false"])).into()
                }
            }
            "null" if random.one_in(3) => {
                self.uses("functions", "_");
                self.uses("variables", "_()");
                "_('missing')".into()
            }
            "null" => "null".into(),
            "undefined" => "undefined".into(),
            "array" => {
                self.uses("operators", "array literal");
                (*random.of(&ARRAYS)).to_owned()
            }
            "object" => match random.below(4) {
                0 => {
                    self.uses("variables", "user");
                    "user".into()
                }
                1 => {
                    self.uses("operators", "regular expression");
                    (*random.of(&PATTERNS)).to_owned()
                }
                _ => {
                    self.uses("operators", "object literal");
                    format!("({})", random.of(&OBJECTS))
                }
            },
            "-0" => "(-0)".into(),
            "NaN" => (*random.of(&["NaN", "(0 / 0)", "(+'x')"])).into(),
            "lone surrogate" => format!("\"{}\"", random.of(&LONE)),
            _ => "9007199254740993".into(),
        };
        let text = if type_name == "2^53+1" {
            format!("({text})")
        } else {
            text
        };
        (text, type_name)
    }

    fn text_literal(&mut self, random: &mut Random) -> String {
        format!("\"{}\"", random.of(&TEXTS))
    }
}

fn either(random: &mut Random, one: String, other: String) -> (String, String) {
    if random.one_in(2) {
        (one, other)
    } else {
        (other, one)
    }
}

/// How often everything was used.
#[derive(Default)]
pub struct Counts {
    used: BTreeMap<&'static str, BTreeMap<String, usize>>,
    depths: BTreeMap<usize, usize>,
}

/// The rarest of one kind.
pub struct Minimum {
    pub kinds: usize,
    pub expected: usize,
    pub rarest: String,
    pub count: usize,
}

impl Counts {
    pub fn add(&mut self, made: &Made) {
        for (kind, what) in &made.used {
            *self
                .used
                .entry(kind)
                .or_default()
                .entry(what.clone())
                .or_default() += 1;
        }
        *self.depths.entry(made.depth).or_default() += 1;
    }

    pub fn depths(&self) -> BTreeMap<usize, usize> {
        self.depths.clone()
    }

    pub fn minimums(&self) -> BTreeMap<&'static str, Minimum> {
        let pairs = TYPES.len() * TYPES.len();
        let expected = BTreeMap::from([
            ("operators", OPERATORS.len() + LOGICAL.len() + OTHER.len()),
            ("functions", METHODS.len() + 1),
            ("variables", VARIABLES.len()),
            ("pairs of types", pairs),
            (OPERATOR_PAIRS, pairs * OPERATORS.len()),
        ]);
        let minimum = |(kind, expected): (&'static str, usize)| {
            let empty = BTreeMap::new();
            let counts = self.used.get(kind).unwrap_or(&empty);
            let rarest = counts.iter().min_by_key(|(_, count)| **count);
            let (rarest, count) =
                rarest.map_or((String::new(), 0), |(what, count)| (what.clone(), *count));
            (
                kind,
                Minimum {
                    kinds: counts.len(),
                    expected,
                    rarest,
                    count,
                },
            )
        };
        expected.into_iter().map(minimum).collect()
    }

    /// All counts, for people.
    #[allow(dead_code, reason = "printed when the counts are asked for")]
    pub fn table(&self) -> String {
        let mut table = String::new();
        for (kind, counts) in &self.used {
            let _ = writeln!(table, "{kind}: {counts:?}");
        }
        table
    }
}

//! The rules file in Valve's format: sections of paths of rules. Loading reports all errors at once, each with
//! line and column; a file with an error gives no rules.

use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{
    DefaultMessageFormatter, DuplicateKeyPolicy, Location, MergeKeyPolicy, MessageFormatter,
    Spanned,
};

use crate::limits::RuleLimits;
use crate::pattern::Pattern;
use crate::rule::Rule;
use crate::set::{
    Body, EVERY_NAME, LocatedRule, RULE_KINDS, RuleKind, RuleSet, SECTIONS, SourcePosition,
};

/// An error in a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{}:{}: {reason}", .position.line, .position.column)]
pub struct LoadError {
    /// The name of the file.
    pub file: String,
    /// The position.
    pub position: SourcePosition,
    /// The reason.
    pub reason: String,
}

/// Reads the rules in `text`, YAML or JSON; `file` names the file in errors.
///
/// # Errors
/// All errors, in the order of the file. Never empty.
pub fn parse(text: &str, file: &str, limits: &RuleLimits) -> Result<RuleSet, Vec<LoadError>> {
    let mut loader = Loader {
        text,
        file,
        limits,
        rules: Vec::new(),
        errors: Vec::new(),
        paths: 0,
    };
    loader.read();
    if loader.errors.is_empty() {
        Ok(RuleSet::new(file, loader.rules, *limits))
    } else {
        Err(loader.errors)
    }
}

struct Loader<'t> {
    text: &'t str,
    file: &'t str,
    limits: &'t RuleLimits,
    rules: Vec<LocatedRule>,
    errors: Vec<LoadError>,
    paths: usize,
}

type Fields = Vec<(Spanned<String>, Spanned<Tree>)>;

impl Loader<'_> {
    fn wrong(&mut self, position: SourcePosition, reason: impl Into<String>) {
        self.errors.push(LoadError {
            file: self.file.to_owned(),
            position,
            reason: reason.into(),
        });
    }

    fn read(&mut self) {
        let start = SourcePosition { line: 1, column: 1 };
        if self.text.len() > self.limits.file_bytes_max {
            let reason = format!(
                "the file has more than {} bytes",
                self.limits.file_bytes_max
            );
            return self.wrong(start, reason);
        }
        let options = serde_saphyr::options! {
            duplicate_keys: DuplicateKeyPolicy::Error,
            merge_keys: MergeKeyPolicy::Error,
            strict_booleans: true,
        };
        let root = match serde_saphyr::from_str_with_options::<Option<Spanned<Tree>>>(
            self.text, options,
        ) {
            Ok(root) => root,
            Err(error) => {
                let position = error
                    .location()
                    .filter(|location| *location != Location::UNKNOWN);
                // Without the position, which is reported in front of the reason.
                let message = DefaultMessageFormatter.format_message(&error);
                let reason = message.lines().next().unwrap_or_default();
                let reason = format!("not valid YAML: {reason}");
                return self.wrong(position.map_or(start, position_of), reason);
            }
        };
        let Some(Spanned {
            value: Tree::Map(sections),
            ..
        }) = root
        else {
            return self.wrong(
                start,
                "expected the sections `record`, `event`, `rpc` and `presence`",
            );
        };
        for section in SECTIONS {
            if !sections.iter().any(|(key, _)| key.value == section) {
                self.wrong(start, format!("the section `{section}` is missing"));
            }
        }
        for (key, value) in sections {
            self.section(&key, value);
        }
    }

    fn section(&mut self, key: &Spanned<String>, value: Spanned<Tree>) {
        let position = position_of(key.referenced);
        if !SECTIONS.contains(&key.value.as_str()) {
            return self.wrong(position, format!("unknown section {:?}", key.value));
        }
        let Tree::Map(paths) = value.value else {
            return self.wrong(
                position_of(value.referenced),
                format!("`{}` must contain paths", key.value),
            );
        };
        if !paths.iter().any(|(path, _)| path.value == EVERY_NAME) {
            self.wrong(
                position,
                format!("`{}` has no rules for the path \"*\"", key.value),
            );
        }
        for (path, rules) in paths {
            self.paths += 1;
            if self.paths > self.limits.paths_max {
                return self.wrong(
                    position_of(path.referenced),
                    format!("the file has more than {} paths", self.limits.paths_max),
                );
            }
            self.path(&key.value, &path, rules);
        }
    }

    fn path(&mut self, section: &str, path: &Spanned<String>, rules: Spanned<Tree>) {
        let pattern = match Pattern::parse(&path.value, self.limits) {
            Ok(pattern) => Arc::new(pattern),
            Err((reason, offset)) => {
                let position = self.inside(path.referenced, &path.value, offset);
                return self.wrong(position, reason);
            }
        };
        let Tree::Map(rules) = rules.value else {
            let position = position_of(rules.referenced);
            return self.wrong(
                position,
                format!("path {:?} must contain rules", path.value),
            );
        };
        self.rules_of(section, &pattern, rules);
    }

    fn rules_of(&mut self, section: &str, pattern: &Arc<Pattern>, rules: Fields) {
        for (name, value) in rules {
            let kind = RULE_KINDS
                .iter()
                .find(|kind| kind.section == section && kind.name == name.value);
            let Some(kind) = kind else {
                let reason = format!("`{section}` has no rule {:?}", name.value);
                self.wrong(position_of(name.referenced), reason);
                continue;
            };
            let position = position_of(value.referenced);
            let body = match value.value {
                Tree::Bool(constant) => Some(Body::Constant(constant)),
                Tree::Text(text) => self.rule(kind, pattern, value.referenced, &text),
                Tree::Map(_) | Tree::Other => {
                    self.wrong(position, "a rule must be true, false or an expression");
                    None
                }
            };
            if let Some(body) = body {
                self.rules.push(LocatedRule {
                    path: pattern.clone(),
                    kind,
                    body,
                    position,
                });
            }
        }
    }

    fn rule(
        &mut self,
        kind: &RuleKind,
        pattern: &Pattern,
        location: Location,
        text: &str,
    ) -> Option<Body> {
        let rule = match Rule::parse(text, pattern.variables(), self.limits) {
            Ok(rule) => rule,
            Err(error) => {
                let position = self.inside(location, text, error.offset);
                self.wrong(position, error.reason);
                return None;
            }
        };
        let uses = rule.uses();
        for (name, offset, is_there) in [
            ("data", uses.data, kind.has_data),
            ("oldData", uses.old_data, kind.has_old_data),
        ] {
            if let Some(offset) = offset.filter(|_| !is_there) {
                let position = self.inside(location, text, offset);
                let reason = format!(
                    "rule `{}` of `{}` does not support `{name}`",
                    kind.name, kind.section
                );
                self.wrong(position, reason);
                return None;
            }
        }
        Some(Body::Rule(Box::new(rule)))
    }

    /// The position of a byte of a scalar in the file. It accounts for quotes, the indicator of a block and folded
    /// lines. If an escape makes text and file differ, it is the position of the scalar.
    fn inside(&self, location: Location, scalar: &str, offset: usize) -> SourcePosition {
        let begin = position_of(location);
        let mut file = Cursor::at(self.text, begin);
        if file
            .peek()
            .is_some_and(|letter| matches!(letter, '"' | '\''))
        {
            file.advance();
        } else if file
            .peek()
            .is_some_and(|letter| matches!(letter, '|' | '>'))
        {
            while file.peek().is_some_and(|letter| letter != '\n') {
                file.advance();
            }
        }
        for (index, letter) in scalar.char_indices() {
            let is_blank = |letter: char| matches!(letter, ' ' | '\n' | '\r' | '\t');
            if !is_blank(letter) {
                while file.peek().is_some_and(is_blank) {
                    file.advance();
                }
            }
            if index >= offset {
                return file.position;
            }
            if is_blank(letter) {
                continue;
            }
            if file.peek() != Some(letter) {
                return begin;
            }
            file.advance();
        }
        file.position
    }
}

/// Walks the characters of a file.
struct Cursor<'t> {
    rest: std::str::Chars<'t>,
    position: SourcePosition,
}

impl<'t> Cursor<'t> {
    fn at(text: &'t str, position: SourcePosition) -> Self {
        let mut cursor = Self {
            rest: text.chars(),
            position: SourcePosition { line: 1, column: 1 },
        };
        while (cursor.position.line, cursor.position.column) < (position.line, position.column)
            && cursor.peek().is_some()
        {
            cursor.advance();
        }
        cursor
    }

    fn peek(&self) -> Option<char> {
        self.rest.clone().next()
    }

    fn advance(&mut self) {
        match self.rest.next() {
            Some('\n') => {
                self.position.line += 1;
                self.position.column = 1;
            }
            Some(_) => self.position.column += 1,
            None => {}
        }
    }
}

fn position_of(location: Location) -> SourcePosition {
    SourcePosition {
        line: location.line(),
        column: location.column(),
    }
}

/// The parts of a rules file.
enum Tree {
    Bool(bool),
    Text(String),
    Map(Fields),
    Other,
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a rule or a mapping")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Other)
    }

    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Other)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Bool(value))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Tree, E> {
        Ok(Tree::Other)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Tree, E> {
        Ok(Tree::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Tree, E> {
        Ok(Tree::Other)
    }

    fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Tree, A::Error> {
        while access.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Tree::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Tree, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_entry()? {
            entries.push(entry);
        }
        Ok(Tree::Map(entries))
    }
}

//! A YAML file as a tree in which each key and value has its place.
//!
//! `${NAME}` is expanded here, after parsing, so a variable's content can never become YAML.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{
    DefaultMessageFormatter, DuplicateKeyPolicy, Location, MergeKeyPolicy, MessageFormatter,
    Spanned,
};

/// A place in a file. Lines and columns count from 1, and columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourcePosition {
    /// The line.
    pub line: u64,
    /// The column.
    pub column: u64,
}

impl From<Location> for SourcePosition {
    fn from(location: Location) -> Self {
        Self {
            line: location.line(),
            column: location.column(),
        }
    }
}

/// A value and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located<T> {
    /// The value at this place.
    pub value: T,
    /// SourcePosition of the value.
    pub position: SourcePosition,
}

/// A value of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// No value, or `null`.
    Empty,
    /// A word, number or quoted text.
    Scalar(String),
    /// A list.
    List(Vec<Located<Node>>),
    /// A mapping, in the order of the file.
    Map(Vec<(Located<String>, Located<Node>)>),
}

/// Error of a file that is not YAML, or has a `${NAME}` that can't be expanded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentError {
    /// SourcePosition of the error, if the parser knows it.
    pub position: Option<SourcePosition>,
    /// Description of the problem.
    pub reason: String,
}

/// Reads a document. `variable` returns the content of each `${NAME}`.
///
/// # Errors
/// Broken YAML, a key given twice, or a variable that is not set.
pub fn parse(
    text: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Located<Node>, DocumentError> {
    let options = serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::Error,
        strict_booleans: true,
    };
    let mut root = serde_saphyr::from_str_with_options::<Option<Spanned<Tree>>>(text, options)
        .map_err(|error| document_error(&error))?
        .map_or(
            Located {
                value: Node::Empty,
                position: SourcePosition { line: 1, column: 1 },
            },
            located,
        );
    expand(&mut root, variable)?;
    Ok(root)
}

fn document_error(error: &serde_saphyr::Error) -> DocumentError {
    let position = error
        .location()
        .filter(|location| *location != Location::UNKNOWN);
    // Without the position, which is reported in front of the reason.
    let message = DefaultMessageFormatter.format_message(error);
    let reason = message.lines().next().unwrap_or_default();
    DocumentError {
        position: position.map(SourcePosition::from),
        reason: format!("not valid YAML: {reason}"),
    }
}

/// A node while it is being read.
struct Tree(Shape);

enum Shape {
    Empty,
    Scalar(String),
    List(Vec<Spanned<Tree>>),
    Map(Vec<(Spanned<String>, Spanned<Tree>)>),
}

fn located(tree: Spanned<Tree>) -> Located<Node> {
    let value = match tree.value.0 {
        Shape::Empty => Node::Empty,
        Shape::Scalar(text) => Node::Scalar(text),
        Shape::List(entries) => Node::List(entries.into_iter().map(located).collect()),
        Shape::Map(entries) => Node::Map(
            entries
                .into_iter()
                .map(|(key, value)| {
                    let key = Located {
                        value: key.value,
                        position: key.referenced.into(),
                    };
                    (key, located(value))
                })
                .collect(),
        ),
    };
    Located {
        value,
        position: tree.referenced.into(),
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor).map(Self)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Shape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, a list or a mapping")
    }

    fn visit_unit<E>(self) -> Result<Shape, E> {
        Ok(Shape::Empty)
    }

    fn visit_none<E>(self) -> Result<Shape, E> {
        Ok(Shape::Empty)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Shape, E> {
        Ok(Shape::Scalar(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Shape, E> {
        Ok(Shape::Scalar(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Shape, E> {
        Ok(Shape::Scalar(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Shape, E> {
        Ok(Shape::Scalar(value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Shape, E> {
        Ok(Shape::Scalar(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Shape, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_element()? {
            entries.push(entry);
        }
        Ok(Shape::List(entries))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Shape, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_entry()? {
            entries.push(entry);
        }
        Ok(Shape::Map(entries))
    }
}

fn expand(
    node: &mut Located<Node>,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<(), DocumentError> {
    let position = node.position;
    match &mut node.value {
        Node::Empty => Ok(()),
        Node::Scalar(text) => {
            *text = expand_text(text, variable).map_err(|reason| DocumentError {
                position: Some(position),
                reason,
            })?;
            Ok(())
        }
        Node::List(entries) => entries
            .iter_mut()
            .try_for_each(|entry| expand(entry, variable)),
        Node::Map(entries) => entries
            .iter_mut()
            .try_for_each(|(_, value)| expand(value, variable)),
    }
}

/// Replaces each `${NAME}`; `$${` represents `${` itself.
fn expand_text(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        if rest[..start].ends_with('$') {
            expanded.push_str(&rest[..start - 1]);
            expanded.push_str("${");
            rest = &rest[start + 2..];
            continue;
        }
        expanded.push_str(&rest[..start]);
        let (name, behind) = rest[start + 2..].split_once('}').ok_or_else(|| {
            format!("`${{` without `}}` in {text:?}; write `$${{` for the text itself")
        })?;
        let value =
            variable(name).ok_or_else(|| format!("environment variable {name:?} is not set"))?;
        expanded.push_str(&value);
        rest = behind;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable(name: &str) -> Option<String> {
        match name {
            "HOME" => Some("/home/tide".into()),
            "TRICK" => Some("a: [b, ${HOME}]".into()),
            _ => None,
        }
    }

    #[test]
    fn expands_variables_after_parsing() {
        let check = |text: &str, expected: Result<&str, &str>| {
            let expected = expected.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(expand_text(text, &variable), expected, "{text}");
        };
        check("plain", Ok("plain"));
        check("${HOME}/data", Ok("/home/tide/data"));
        check("${HOME}${HOME}", Ok("/home/tide/home/tide"));
        check("$${HOME}", Ok("${HOME}"));
        check("a$b$", Ok("a$b$"));
        check("${TRICK}", Ok("a: [b, ${HOME}]"));
        check(
            "${NOT_SET}",
            Err("environment variable \"NOT_SET\" is not set"),
        );
        check(
            "${HOME",
            Err("`${` without `}` in \"${HOME\"; write `$${` for the text itself"),
        );
    }

    #[test]
    fn every_key_and_value_has_its_position() {
        let root = parse("one: 1\ntwo:\n  - a\n  - b\n", &variable).expect("this is YAML");
        let Node::Map(entries) = root.value else {
            panic!("a mapping is expected")
        };
        let (key, value) = &entries[1];
        assert_eq!(
            (key.value.as_str(), key.position),
            ("two", SourcePosition { line: 2, column: 1 })
        );
        let Node::List(list) = &value.value else {
            panic!("a list is expected")
        };
        assert_eq!(list[1].position, SourcePosition { line: 4, column: 5 });
    }

    #[test]
    fn broken_files_are_refused_with_their_position() {
        let check = |text: &str, expected: Option<(u64, u64)>, part: &str| {
            let error = parse(text, &variable).expect_err(text);
            assert_eq!(
                error
                    .position
                    .map(|position| (position.line, position.column)),
                expected,
                "{text}: {error:?}"
            );
            assert!(error.reason.contains(part), "{text}: {error:?}");
            assert!(!error.reason.contains('\n'), "{text}: {error:?}");
            assert!(!error.reason.contains(" line "), "{text}: {error:?}");
        };
        check("a: 1\na: 2\n", Some((2, 1)), "duplicate");
        check(
            "a: [1, 2\n",
            Some((1, 4)),
            "not valid YAML: unclosed bracket",
        );
        check("a:\n  b: ${NOT_SET}\n", Some((2, 6)), "NOT_SET");
        check("a: \"open\n", Some((2, 1)), "");
    }

    #[test]
    fn an_empty_file_is_empty() {
        let check = |text: &str| {
            assert_eq!(
                parse(text, &variable).map(|root| root.value),
                Ok(Node::Empty),
                "{text:?}"
            );
        };
        check("");
        check("# only a comment\n");
    }
}

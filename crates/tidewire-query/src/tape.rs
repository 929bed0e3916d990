//! A JSON text as a flat list of nodes: read in one pass, then matched by any number of queries without allocations.
//!
//! The nodes of a container follow it, so its end skips it. Strings are ranges of the text; those with escapes are unescaped into a
//! buffer of bytes, because a lone surrogate (`"\ud800"`) has no UTF-8 form. It gets the three bytes that UTF-8 would use.

use crate::number::Number;

/// Containers within one another that a tape reads. Records have 64 by default.
const NESTING_MAX: usize = 1024;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Node {
    Null,
    Bool(bool),
    Number(Number),
    /// A range of the text.
    Plain {
        start: u32,
        end: u32,
    },
    /// A range of the unescaped bytes.
    Unescaped {
        start: u32,
        end: u32,
    },
    /// The index behind its last node.
    Array {
        end: u32,
    },
    /// The same. Keys and values alternate.
    Object {
        end: u32,
    },
}

/// The buffers of one document after another.
#[derive(Debug, Default)]
pub struct Tape {
    nodes: Vec<Node>,
    unescaped: Vec<u8>,
    open: Vec<u32>,
}

/// Where the nodes of a value are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub text: &'a [u8],
    pub unescaped: &'a [u8],
    pub nodes: &'a [Node],
}

/// A record: its value with its id and version, which queries name `_id` and `_v`.
#[derive(Clone, Copy, Debug)]
pub struct Document<'a>(Source<'a>);

/// A value within a document.
#[derive(Clone, Copy, Debug)]
pub struct Value<'a> {
    source: Source<'a>,
    at: u32,
}

/// The type and the content of a value, in the order of types.
#[derive(Clone, Copy, Debug)]
pub enum Kind<'a> {
    /// `null`
    Null,
    /// A number.
    Number(NumberOf),
    /// The bytes of a string: UTF-8, except that a lone surrogate has three bytes.
    String(&'a [u8]),
    /// `{…}`
    Object,
    /// `[…]`
    Array,
    /// `true` or `false`
    Bool(bool),
}

/// A number of a document.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NumberOf(pub(crate) Number);

/// The nodes before the value of a record: its id and its version.
const ID: u32 = 0;
const VERSION: u32 = 1;
const ROOT: u32 = 2;

impl Tape {
    /// A tape without buffers; they grow with the documents and are kept.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            nodes: Vec::new(),
            unescaped: Vec::new(),
            open: Vec::new(),
        }
    }

    /// Reads a record. `None` if `text` is not JSON, nests deeper than 1,024 or has 4 GiB.
    pub fn read<'a>(&'a mut self, id: &str, version: u64, text: &'a str) -> Option<Document<'a>> {
        self.clear();
        self.unescaped.extend_from_slice(id.as_bytes());
        let end = u32::try_from(id.len()).ok()?;
        self.nodes.push(Node::Unescaped { start: 0, end });
        self.nodes.push(Node::Number(Number::Int(
            i64::try_from(version).unwrap_or(i64::MAX),
        )));
        self.fill(text)?;
        Some(Document(Source {
            text: text.as_bytes(),
            unescaped: &self.unescaped,
            nodes: &self.nodes,
        }))
    }

    /// Reads a text without an id.
    pub(crate) fn read_value<'a>(&'a mut self, text: &'a str) -> Option<Value<'a>> {
        self.clear();
        self.fill(text)?;
        let source = Source {
            text: text.as_bytes(),
            unescaped: &self.unescaped,
            nodes: &self.nodes,
        };
        Some(Value { source, at: 0 })
    }

    /// The nodes and the unescaped bytes of the last text.
    pub(crate) fn into_parts(self) -> (Box<[Node]>, Box<[u8]>) {
        (self.nodes.into(), self.unescaped.into())
    }

    fn clear(&mut self) {
        self.nodes.clear();
        self.unescaped.clear();
        self.open.clear();
    }

    fn fill(&mut self, text: &str) -> Option<()> {
        u32::try_from(text.len()).ok()?;
        let bytes = text.as_bytes();
        let mut at = skip_space(bytes, 0);
        loop {
            // Here a value starts, or in an object its key.
            let first = *bytes.get(at)?;
            let is_key = matches!(self.innermost(), Some(Node::Object { end: 0 }));
            if is_key {
                at = skip_space(bytes, self.string(text, at)?);
                if bytes.get(at) != Some(&b':') {
                    return None;
                }
                at = skip_space(bytes, at + 1);
                let open = *self.open.last()?;
                *self.nodes.get_mut(open as usize)? = Node::Object { end: 1 };
                continue;
            }
            match first {
                b'"' => at = self.string(text, at)?,
                b'{' | b'[' => {
                    if self.open.len() >= NESTING_MAX {
                        return None;
                    }
                    let index = self.nodes.len() as u32;
                    let inside = skip_space(bytes, at + 1);
                    let is_object = first == b'{';
                    self.nodes.push(if is_object {
                        Node::Object { end: 0 }
                    } else {
                        Node::Array { end: 0 }
                    });
                    if bytes.get(inside) != Some(&(first + 2)) {
                        self.open.push(index);
                        at = inside;
                        continue;
                    }
                    self.close(index)?;
                    at = inside + 1;
                }
                b't' => at = self.word(bytes, at, b"true", Node::Bool(true))?,
                b'f' => at = self.word(bytes, at, b"false", Node::Bool(false))?,
                b'n' => at = self.word(bytes, at, b"null", Node::Null)?,
                _ => at = self.number(text, at)?,
            }
            // Here a value has ended, and with it each container that it completes.
            loop {
                at = skip_space(bytes, at);
                let Some(&open) = self.open.last() else {
                    return (at == bytes.len()).then_some(());
                };
                let is_object = matches!(self.nodes.get(open as usize)?, Node::Object { .. });
                match *bytes.get(at)? {
                    b',' => {
                        at = skip_space(bytes, at + 1);
                        if is_object {
                            *self.nodes.get_mut(open as usize)? = Node::Object { end: 0 };
                        }
                        break;
                    }
                    byte if byte == if is_object { b'}' } else { b']' } => {
                        self.open.pop();
                        self.close(open)?;
                        at += 1;
                    }
                    _ => return None,
                }
            }
        }
    }

    /// The innermost open container. While an object is open, its end is 0 before a key and 1 before a value.
    #[inline]
    fn innermost(&self) -> Option<Node> {
        self.open
            .last()
            .and_then(|&open| self.nodes.get(open as usize).copied())
    }

    fn close(&mut self, index: u32) -> Option<()> {
        let end = self.nodes.len() as u32;
        let node = self.nodes.get_mut(index as usize)?;
        *node = match node {
            Node::Object { .. } => Node::Object { end },
            _ => Node::Array { end },
        };
        Some(())
    }

    fn word(&mut self, bytes: &[u8], at: usize, word: &[u8], node: Node) -> Option<usize> {
        self.nodes.push(node);
        bytes
            .get(at..at + word.len())?
            .eq(word)
            .then_some(at + word.len())
    }

    fn number(&mut self, text: &str, at: usize) -> Option<usize> {
        let rest = text.as_bytes().get(at..)?;
        if !matches!(rest.first()?, b'-' | b'0'..=b'9') {
            return None;
        }
        let length = rest
            .iter()
            .position(|byte| !matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'))
            .unwrap_or(rest.len());
        let number = Number::parse(text.get(at..at + length)?)?;
        self.nodes.push(Node::Number(number));
        Some(at + length)
    }

    /// Reads the string whose opening quote is at `at`; the place behind it.
    fn string(&mut self, text: &str, at: usize) -> Option<usize> {
        let bytes = text.as_bytes();
        if bytes.get(at) != Some(&b'"') {
            return None;
        }
        let start = at + 1;
        let mut end = start;
        loop {
            match *bytes.get(end)? {
                b'"' => break,
                b'\\' => return self.escaped_string(text, start, end),
                _ => end += 1,
            }
        }
        self.nodes.push(Node::Plain {
            start: start as u32,
            end: end as u32,
        });
        Some(end + 1)
    }

    #[cold]
    fn escaped_string(&mut self, text: &str, start: usize, first: usize) -> Option<usize> {
        let bytes = text.as_bytes();
        let begin = self.unescaped.len() as u32;
        self.unescaped.extend_from_slice(bytes.get(start..first)?);
        let mut at = first;
        loop {
            match *bytes.get(at)? {
                b'"' => break,
                b'\\' => at = self.escape(bytes, at + 1)?,
                byte => {
                    self.unescaped.push(byte);
                    at += 1;
                }
            }
        }
        self.nodes.push(Node::Unescaped {
            start: begin,
            end: self.unescaped.len() as u32,
        });
        Some(at + 1)
    }

    /// Appends the meaning of the escape whose letter is at `at`; the place behind it.
    fn escape(&mut self, bytes: &[u8], at: usize) -> Option<usize> {
        let plain = match *bytes.get(at)? {
            byte @ (b'"' | b'\\' | b'/') => byte,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let unit = unit(bytes, at + 1)?;
                if let 0xD800..0xDC00 = unit
                    && bytes.get(at + 5..at + 7) == Some(b"\\u")
                    && let Some(low @ 0xDC00..0xE000) = self::unit(bytes, at + 7)
                {
                    self.push_code_point(0x1_0000 + ((unit - 0xD800) << 10 | (low - 0xDC00)));
                    return Some(at + 11);
                }
                self.push_code_point(unit);
                return Some(at + 5);
            }
            _ => return None,
        };
        self.unescaped.push(plain);
        Some(at + 1)
    }

    /// UTF-8, also of surrogates.
    fn push_code_point(&mut self, code: u32) {
        if let Some(character) = char::from_u32(code) {
            self.unescaped
                .extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        } else {
            let bytes = [
                0xE0 | code >> 12,
                0x80 | code >> 6 & 0x3F,
                0x80 | code & 0x3F,
            ];
            self.unescaped.extend(bytes.map(|byte| byte as u8));
        }
    }
}

/// The number of four hexadecimal digits.
fn unit(bytes: &[u8], at: usize) -> Option<u32> {
    let digits = bytes.get(at..at + 4)?;
    digits.iter().try_fold(0, |unit, digit| {
        Some(unit << 4 | char::from(*digit).to_digit(16)?)
    })
}

#[inline]
fn skip_space(bytes: &[u8], mut at: usize) -> usize {
    while matches!(bytes.get(at), Some(b' ' | b'\n' | b'\r' | b'\t')) {
        at += 1;
    }
    at
}

impl<'a> Source<'a> {
    pub fn value(self, at: u32) -> Value<'a> {
        Value { source: self, at }
    }
}

impl<'a> Document<'a> {
    /// The record's id.
    #[must_use]
    pub fn id(&self) -> Value<'a> {
        self.0.value(ID)
    }

    /// The record's version.
    #[must_use]
    pub fn version(&self) -> Value<'a> {
        self.0.value(VERSION)
    }

    /// The record's value.
    #[must_use]
    pub fn root(&self) -> Value<'a> {
        self.0.value(ROOT)
    }
}

impl<'a> Value<'a> {
    fn node(&self) -> Node {
        // The index comes from the tape that has the nodes.
        self.source
            .nodes
            .get(self.at as usize)
            .copied()
            .unwrap_or(Node::Null)
    }

    /// Type and content.
    #[must_use]
    #[inline]
    pub fn kind(&self) -> Kind<'a> {
        match self.node() {
            Node::Null => Kind::Null,
            Node::Bool(it) => Kind::Bool(it),
            Node::Number(it) => Kind::Number(NumberOf(it)),
            Node::Plain { start, end } => Kind::String(range(self.source.text, start, end)),
            Node::Unescaped { start, end } => {
                Kind::String(range(self.source.unescaped, start, end))
            }
            Node::Array { .. } => Kind::Array,
            Node::Object { .. } => Kind::Object,
        }
    }

    /// Whether it is an array.
    #[must_use]
    pub fn is_array(&self) -> bool {
        matches!(self.node(), Node::Array { .. })
    }

    /// Whether it is an object.
    #[must_use]
    pub fn is_object(&self) -> bool {
        matches!(self.node(), Node::Object { .. })
    }

    /// The index behind the last node.
    #[inline]
    fn end(&self) -> u32 {
        match self.node() {
            Node::Array { end } | Node::Object { end } => end,
            _ => self.at + 1,
        }
    }

    /// The member of an object. If a key occurs twice, the last one counts, as in `JSON.parse`.
    #[must_use]
    #[inline]
    pub fn member(&self, key: &[u8]) -> Option<Value<'a>> {
        let Node::Object { end } = self.node() else {
            return None;
        };
        let mut found = None;
        let mut at = self.at + 1;
        while at < end {
            let name = self.source.value(at);
            let value = self.source.value(at + 1);
            if matches!(name.kind(), Kind::String(it) if it == key) {
                found = Some(value);
            }
            at = value.end();
        }
        found
    }

    /// The elements of an array; none of another value.
    pub fn elements(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let source = self.source;
        let end = if self.is_array() { self.end() } else { 0 };
        let mut at = self.at + 1;
        std::iter::from_fn(move || {
            let value = (at < end).then(|| source.value(at))?;
            at = value.end();
            Some(value)
        })
    }

    /// The members of an object in the order of the text, also those that a later one replaces; none of another value.
    pub fn members(&self) -> impl Iterator<Item = (&'a [u8], Value<'a>)> + use<'a> {
        let source = self.source;
        let end = if self.is_object() { self.end() } else { 0 };
        let mut at = self.at + 1;
        std::iter::from_fn(move || {
            let name = (at < end).then(|| source.value(at))?;
            let value = source.value(at + 1);
            at = value.end();
            match name.kind() {
                Kind::String(name) => Some((name, value)),
                _ => None,
            }
        })
    }
}

#[inline]
fn range(bytes: &[u8], start: u32, end: u32) -> &[u8] {
    bytes.get(start as usize..end as usize).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(value: Value<'_>) -> String {
        match value.kind() {
            Kind::Null => "null".into(),
            Kind::Bool(it) => it.to_string(),
            Kind::Number(NumberOf(it)) => format!("{it:?}"),
            Kind::String(it) => format!("{:?}", String::from_utf8_lossy(it)),
            Kind::Array => format!("{:?}", value.elements().map(show).collect::<Vec<_>>()),
            Kind::Object => {
                let show =
                    |(key, value)| format!("{}:{}", String::from_utf8_lossy(key), show(value));
                format!(
                    "{{{}}}",
                    value.members().map(show).collect::<Vec<_>>().join(",")
                )
            }
        }
    }

    #[test]
    fn reads_every_kind_of_value() {
        let mut tape = Tape::new();
        let text = r#" {"a" : [1, [], {}, {"b":null}] , "\u0063\n":"x\ud83d\ude00y", "d":[true,false,-1.5e1,1e400]} "#;
        let document = tape.read("7", 3, text).expect("JSON");
        assert_eq!(
            show(document.root()),
            r#"{a:["Int(1)", "[]", "{}", "{b:null}"],c
:"x😀y",d:["true", "false", "Int(-15)", "Float(inf)"]}"#
        );
        assert_eq!(
            (show(document.id()), show(document.version())),
            ("\"7\"".into(), "Int(3)".into())
        );
        assert_eq!(
            document.root().member(b"a").map(|it| it.elements().count()),
            Some(4)
        );
    }

    #[test]
    fn the_last_of_equal_keys_counts() {
        let mut tape = Tape::new();
        let value = tape
            .read_value(r#"{"a":1,"b":2,"\u0061":3}"#)
            .expect("JSON");
        assert_eq!(value.member(b"a").map(show).as_deref(), Some("Int(3)"));
        assert_eq!(value.member(b"c").map(show), None);
    }

    #[test]
    fn a_lone_surrogate_keeps_its_code_point() {
        let mut tape = Tape::new();
        let value = tape.read_value(r#""a\ud800\udbff\udc00""#).expect("JSON");
        assert!(matches!(
            value.kind(),
            Kind::String(b"a\xED\xA0\x80\xF4\x8F\xB0\x80")
        ));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            " ",
            "{",
            "[",
            "[1",
            "{\"a\"",
            "{\"a\":",
            "{\"a\":1",
            "[1,",
            "[1}",
            "{\"a\":1]",
            "1 2",
            "{1:2}",
            "\"a",
            "\"\\u12\"",
            "tru",
            "x",
            "[,]",
            "{,}",
            "1-1",
            "--1",
            "{\"a\" 1}",
        ] {
            assert!(Tape::new().read_value(text).is_none(), "{text}");
        }
        let deep = "[".repeat(2000) + &"]".repeat(2000);
        assert!(Tape::new().read_value(&deep).is_none());
    }
}

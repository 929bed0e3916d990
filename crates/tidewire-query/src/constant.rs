//! Constants of a query: operands in normal form, apart from the shape of their selector.

use crate::order::sorted_members;
use crate::tape::{Kind, Node, Source, Tape, Value};

/// An operand. The keys of its objects are sorted and its numbers have one form, so equal operands have equal texts.
#[derive(Clone, Debug)]
pub(crate) struct Constant {
    text: Box<str>,
    nodes: Box<[Node]>,
    unescaped: Box<[u8]>,
}

impl Constant {
    pub fn of(value: &Value<'_>) -> Self {
        let mut text = String::new();
        write(value, &mut text);
        Self::parse(text)
    }

    /// A list of operands, which are sorted and occur once each.
    pub fn list(values: &[Value<'_>]) -> Self {
        let mut sorted: Vec<&Value<'_>> = values.iter().collect();
        sorted.sort_by(|left, right| crate::order::compare(left, right));
        sorted.dedup_by(|left, right| crate::order::equal(left, right));
        let mut text = String::from("[");
        for (index, value) in sorted.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            write(value, &mut text);
        }
        text.push(']');
        Self::parse(text)
    }

    /// The constant of this text, which must be a normal form.
    pub fn parse(text: String) -> Self {
        let mut tape = Tape::new();
        let is_json = tape.read_value(&text).is_some();
        debug_assert!(is_json, "a normal form is JSON: {text}");
        let (nodes, unescaped) = tape.into_parts();
        Self {
            text: text.into(),
            nodes,
            unescaped,
        }
    }

    #[inline]
    pub fn value(&self) -> Value<'_> {
        let source = Source {
            text: self.text.as_bytes(),
            unescaped: &self.unescaped,
            nodes: &self.nodes,
        };
        source.value(0)
    }

    /// The element of a list that has scalars only. `None` if an element is a container, or behind the end.
    pub fn scalars(&self) -> Option<usize> {
        let count = self.nodes.len() - 1;
        let is_scalar = |node: &Node| !matches!(node, Node::Array { .. } | Node::Object { .. });
        self.nodes.iter().skip(1).all(is_scalar).then_some(count)
    }

    /// The value of the node `index` behind the first.
    #[inline]
    pub fn scalar(&self, index: usize) -> Value<'_> {
        let source = Source {
            text: self.text.as_bytes(),
            unescaped: &self.unescaped,
            nodes: &self.nodes,
        };
        source.value(index as u32 + 1)
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Bytes that it has on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.text.len() + self.unescaped.len() + std::mem::size_of_val(&*self.nodes)
    }
}

/// Appends the normal form of a value.
fn write(value: &Value<'_>, out: &mut String) {
    match value.kind() {
        Kind::Null => out.push_str("null"),
        Kind::Bool(it) => out.push_str(if it { "true" } else { "false" }),
        Kind::Number(it) => it.0.write(out),
        Kind::String(it) => write_string(it, out),
        Kind::Array => {
            out.push('[');
            for (index, element) in value.elements().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write(&element, out);
            }
            out.push(']');
        }
        Kind::Object => {
            out.push('{');
            for (index, (key, member)) in sorted_members(value).iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_string(key, out);
                out.push(':');
                write(member, out);
            }
            out.push('}');
        }
    }
}

/// A string literal. Each lone surrogate is an escape, because it has no UTF-8 form.
pub(crate) fn write_string(bytes: &[u8], out: &mut String) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        tidewire_json::string(text, out);
        return;
    }
    out.push('"');
    let mut rest = bytes;
    while !rest.is_empty() {
        let valid = match std::str::from_utf8(rest) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(&rest[..error.valid_up_to()]).unwrap_or_default(),
        };
        tidewire_json::escaped(valid).for_each(|piece| out.push_str(piece));
        rest = &rest[valid.len()..];
        if let [first, second, third, after @ ..] = rest {
            let code = u32::from(first & 0xF) << 12
                | u32::from(second & 0x3F) << 6
                | u32::from(third & 0x3F);
            out.push_str(&format!("\\u{code:04x}"));
            rest = after;
        } else {
            break;
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(text: &str) -> String {
        let mut tape = Tape::new();
        Constant::of(&tape.read_value(text).expect("JSON"))
            .text()
            .to_owned()
    }

    #[test]
    fn equal_values_have_one_text() {
        for (text, expected) in [
            (r#"{"b":1.0,"a":[1e2,-0.0]}"#, r#"{"a":[100,0],"b":1}"#),
            (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
            (r#""\u0061\n\ud800x""#, r#""a\n\ud800x""#),
            ("1e400", "1e999"),
            ("-1e400", "-1e999"),
            ("0.10", "0.1"),
            ("1e300", "1e300"),
        ] {
            assert_eq!(normal(text), expected);
            assert_eq!(normal(expected), expected);
        }
    }
}

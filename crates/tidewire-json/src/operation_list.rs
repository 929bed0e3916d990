//! The data of a COMMIT message: a JSON array of `{"if":…,"data":…}`, one for each record of a transaction.

use std::borrow::Cow;

use super::literal::is_text;
use super::patch_list::string_at;
use super::scan::{Entries, Malformed, peek, skip_space};

/// The text is not an array of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotOperations;

impl From<Malformed> for NotOperations {
    fn from(_: Malformed) -> Self {
        Self
    }
}

/// An operation on a record, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation<'a> {
    /// The text of `if`.
    pub condition: Option<Cow<'a, str>>,
    /// The value of `data`.
    pub data: Option<&'a str>,
}

/// The operations of `text`, in their order. Of equal keys the last one counts. An unknown key is refused: a misspelt condition must not be
/// ignored. The text must have passed [`super::check`].
///
/// # Errors
/// The text is not an array of objects whose keys are `if`, with a string, and `data`, at least one of the two.
pub fn parse_operations(text: &str) -> Result<Vec<Operation<'_>>, NotOperations> {
    let bytes = text.as_bytes();
    let start = skip_space(bytes, 0);
    if peek(bytes, start) != b'[' {
        return Err(NotOperations);
    }
    let mut operations = Vec::new();
    let mut entries = Entries::of(bytes, start)?;
    while let Some(entry) = entries.advance()? {
        operations.push(parse_operation(text, entry.value.start)?);
    }
    Ok(operations)
}

/// The operation whose object opens at `start`.
fn parse_operation(text: &str, start: usize) -> Result<Operation<'_>, NotOperations> {
    if peek(text.as_bytes(), start) != b'{' {
        return Err(NotOperations);
    }
    let mut operation = Operation {
        condition: None,
        data: None,
    };
    let mut members = Entries::of(text.as_bytes(), start)?;
    while let Some(member) = members.advance()? {
        let key = member.key.as_ref().ok_or(NotOperations)?;
        if is_text(text, key, "if") {
            let condition = string_at(text, member.value.start).map_err(|_| NotOperations)?;
            operation.condition = Some(condition);
        } else if is_text(text, key, "data") {
            operation.data = text.get(member.value).map(str::trim_end);
        } else {
            return Err(NotOperations);
        }
    }
    match operation {
        Operation {
            condition: None,
            data: None,
        } => Err(NotOperations),
        operation => Ok(operation),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_conditions_and_values() {
        let text = r#" [ {"if":"missing","data": {"x":[1]} }, {"data":null }, {"\u0069f":"1f-\u0033"},
            {"data":[],"data":{},"if":"a","if":"b"} ] "#;
        let operations = parse_operations(text).expect("a list of operations");
        let read: Vec<_> = operations
            .iter()
            .map(|operation| (operation.condition.as_deref(), operation.data))
            .collect();
        let expected = [
            (Some("missing"), Some(r#"{"x":[1]}"#)),
            (None, Some("null")),
            (Some("1f-3"), None),
            (Some("b"), Some("{}")),
        ];
        assert_eq!(read, expected);
        assert_eq!(parse_operations("[]"), Ok(Vec::new()));
    }

    #[test]
    fn refuses_other_texts() {
        for text in [
            "{}",
            "1",
            "",
            "[1]",
            "[{}]",
            "[[]]",
            r#"[{"if":1}]"#,
            r#"[{"If":"missing","data":{}}]"#,
            r#"[{"data":{},"path":"a"}]"#,
            r#"[{"if":"\ud83d"}]"#,
        ] {
            assert_eq!(parse_operations(text), Err(NotOperations), "{text}");
        }
    }
}

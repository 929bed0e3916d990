//! The data of a PATCH_MULTI message: a JSON array of `{"path":…,"data":…}`, as paths and values. A path is a text, or an array
//! of its steps.

use std::borrow::Cow;

use thiserror::Error;

use super::literal::{is_text, unescape};
use super::path::{Path, PathError, Token, whole};
use super::scan::{Entries, Malformed, RawString, peek, skip_space};

/// Reason why a text is not a list of patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PatchListError {
    /// It is not a non-empty array of objects that have a `path`, which is a string or an array of strings and numbers.
    #[error("not a list of patches")]
    NotList,
    /// One of the paths is not valid.
    #[error(transparent)]
    Path(#[from] PathError),
}

impl From<Malformed> for PatchListError {
    fn from(_: Malformed) -> Self {
        Self::NotList
    }
}

/// The patches of `text`, in their order, for [`super::patch_many`]. A patch without `data` deletes its path; of
/// equal keys the last one counts; other keys are ignored. The text must have passed [`super::check`].
///
/// # Errors
/// The first entry found wrong.
pub fn parse_patches(text: &str) -> Result<Vec<(Path<'_>, Option<&str>)>, PatchListError> {
    let bytes = text.as_bytes();
    let start = skip_space(bytes, 0);
    if peek(bytes, start) != b'[' {
        return Err(PatchListError::NotList);
    }
    let mut patches = Vec::new();
    let mut entries = Entries::of(bytes, start)?;
    while let Some(entry) = entries.advance()? {
        patches.push(parse_patch(text, entry.value.start)?);
    }
    if patches.is_empty() {
        Err(PatchListError::NotList)
    } else {
        Ok(patches)
    }
}

/// The patch whose object opens at `start`.
fn parse_patch(text: &str, start: usize) -> Result<(Path<'_>, Option<&str>), PatchListError> {
    if peek(text.as_bytes(), start) != b'{' {
        return Err(PatchListError::NotList);
    }
    let mut path = None;
    let mut data = None;
    let mut members = Entries::of(text.as_bytes(), start)?;
    while let Some(member) = members.advance()? {
        let Some(key) = member.key else { continue };
        if is_text(text, &key, "path") {
            path = Some(member.value.start);
        } else if is_text(text, &key, "data") {
            data = text.get(member.value);
        }
    }
    let path = path.ok_or(PatchListError::NotList)?;
    if peek(text.as_bytes(), path) == b'[' {
        return Ok((parse_steps(text, path)?, data));
    }
    let path = match string_at(text, path)? {
        Cow::Borrowed(path) => Path::parse(path)?,
        Cow::Owned(path) => Path::parse(&path)?.into_owned(),
    };
    Ok((path, data))
}

/// The path whose array of steps opens at `start`: strings are keys, numbers are indices.
fn parse_steps(text: &str, start: usize) -> Result<Path<'_>, PatchListError> {
    let mut steps = Vec::new();
    let mut entries = Entries::of(text.as_bytes(), start)?;
    while let Some(entry) = entries.advance()? {
        let value = text.get(entry.value.clone()).unwrap_or_default();
        steps.push(match value.as_bytes().first() {
            Some(b'"') => Ok(Token::Key(string_at(text, entry.value.start)?)),
            Some(b'-' | b'0'..=b'9') => index(value).map(Token::Index).ok_or(PathError::Index),
            _ => return Err(PatchListError::NotList),
        });
    }
    Ok(Path::from_steps(steps)?)
}

/// The index that a JSON number is, if it is one from 0 to 4294967294.
fn index(number: &str) -> Option<u32> {
    let index = whole(number.trim_end().parse().ok()?)?;
    u32::try_from(index).ok().filter(|&index| index < u32::MAX)
}

/// The string at `start`, without its escapes.
pub(crate) fn string_at(text: &str, start: usize) -> Result<Cow<'_, str>, PatchListError> {
    let raw = RawString::scan(text.as_bytes(), start)?;
    let inner = text.get(raw.inner.clone()).ok_or(PatchListError::NotList)?;
    if raw.escaped {
        let plain = unescape(inner).ok_or(PatchListError::NotList)?;
        Ok(Cow::Owned(plain))
    } else {
        Ok(Cow::Borrowed(inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_paths_and_values() {
        let text = r#" [ {"path":"a.b","data": {"x":[1]} }, {"path":"c"},
            {"data":null,"path":"\u0061[1]","other":1}, {"path":"x","path":"y","d\u0061ta":1,"data":2} ] "#;
        let patches = parse_patches(text).expect("a list of patches");
        let expected = [
            ("a.b", Some(r#"{"x":[1]}"#)),
            ("c", None),
            ("a[1]", Some("null")),
            ("y", Some("2")),
        ];
        assert_eq!(patches.len(), expected.len());
        for ((path, data), (expected_path, expected_data)) in patches.iter().zip(expected) {
            assert_eq!(
                (path, *data),
                (
                    &Path::parse(expected_path).expect(expected_path),
                    expected_data
                )
            );
        }
    }

    #[test]
    fn a_path_may_be_a_list_of_steps() {
        let text = r#"[{"path": [ "items" , "ann.lee\u0040x.org", 1, "a[0]", "" ] ,"data":1},{"path":["a"]},{"path":[0]}]"#;
        let patches = parse_patches(text).expect("a list of patches");
        let key = |text: &'static str| Token::Key(text.into());
        let expected = [
            vec![
                key("items"),
                key("ann.lee@x.org"),
                Token::Index(1),
                key("a[0]"),
                key(""),
            ],
            vec![key("a")],
            vec![Token::Index(0)],
        ];
        let found: Vec<_> = patches
            .iter()
            .map(|(path, _)| path.tokens().to_vec())
            .collect();
        assert_eq!(found, expected);
        assert!(patches.iter().all(|(path, _)| path.is_listed()));
        let spelled = parse_patches(r#"[{"path":"a"}]"#).expect("a list of patches");
        assert!(spelled.iter().all(|(path, _)| !path.is_listed()));
    }

    #[test]
    fn refuses_everything_else() {
        for (text, error) in [
            ("[]", PatchListError::NotList),
            ("{}", PatchListError::NotList),
            ("null", PatchListError::NotList),
            (r#""[""#, PatchListError::NotList),
            ("[1]", PatchListError::NotList),
            ("[[]]", PatchListError::NotList),
            ("[{}]", PatchListError::NotList),
            (r#"[{"data":1}]"#, PatchListError::NotList),
            (r#"[{"path":1}]"#, PatchListError::NotList),
            (r#"[{"path":null}]"#, PatchListError::NotList),
            (r#"[{"path":[null]}]"#, PatchListError::NotList),
            (r#"[{"path":[["a"]]}]"#, PatchListError::NotList),
            (r#"[{"path":[{}]}]"#, PatchListError::NotList),
            (r#"[{"path":[true]}]"#, PatchListError::NotList),
            (r#"[{"path":["\ud800"]}]"#, PatchListError::NotList),
            (r#"[{"path":[]}]"#, PatchListError::Path(PathError::Empty)),
            (
                r#"[{"path":["a","constructor"]}]"#,
                PatchListError::Path(PathError::Forbidden),
            ),
            (r#"[{"path":[-1]}]"#, PatchListError::Path(PathError::Index)),
            (
                r#"[{"path":["a",1.5]}]"#,
                PatchListError::Path(PathError::Index),
            ),
            (
                r#"[{"path":[4294967295]}]"#,
                PatchListError::Path(PathError::Index),
            ),
            (r#"[{"path":"a"},2]"#, PatchListError::NotList),
            (r#"[{"path":"\ud800"}]"#, PatchListError::NotList),
            (r#"[{"path":""}]"#, PatchListError::Path(PathError::Empty)),
            (
                r#"[{"path":"a"},{"path":"\u005f_proto__"}]"#,
                PatchListError::Path(PathError::Forbidden),
            ),
            (
                r#"[{"path":"a[-1]"}]"#,
                PatchListError::Path(PathError::Index),
            ),
        ] {
            assert_eq!(parse_patches(text), Err(error), "{text}");
        }
    }
}

//! The data of a PATCH_MULTI message: a JSON array of `{"path":…,"data":…}`, as paths and values.

use thiserror::Error;

use super::literal::{is_text, unescape};
use super::path::{Path, PathError};
use super::scan::{Entries, Malformed, RawString, peek, skip_space};

/// Why a text is no list of patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PatchListError {
    /// It is not a non-empty array of objects that have a string `path`.
    #[error("not a list of patches")]
    NotList,
    /// One of the paths is none.
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
    let raw = RawString::scan(text.as_bytes(), path.ok_or(PatchListError::NotList)?)?;
    let inner = text.get(raw.inner.clone()).ok_or(PatchListError::NotList)?;
    let path = if raw.escaped {
        Path::parse(&unescape(inner).ok_or(PatchListError::NotList)?)?.into_owned()
    } else {
        Path::parse(inner)?
    };
    Ok((path, data))
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

//! Entity tags and the conditions that requests set with them (RFC 9110, section 13). The server refuses a condition that it
//! cannot parse, because a change must not proceed on a condition that the caller did not intend.
//!
//! A tag consists of the epoch of the record's store (`epochs.rs`), the record's incarnation and its version. The epoch changes
//! after an unclean stop, because a version that was shown but never stored is then used again.

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use tidewire_core::message::{Only, Tag};

use super::problem::Problem;

/// The tag of a record's state, as the value of `ETag`.
pub(super) fn entity_tag(epoch: u64, tag: Tag) -> HeaderValue {
    let text = entity_tag_text(epoch, tag);
    // Digits, letters and dashes are valid in a header.
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("\"\""))
}

/// The same as text, with its quotes.
pub(super) fn entity_tag_text(epoch: u64, tag: Tag) -> String {
    format!("\"{}\"", opaque(epoch, tag))
}

fn opaque(epoch: u64, tag: Tag) -> String {
    format!("{epoch:x}-{tag}")
}

/// The state that one strong tag names. `None` if the text is no such tag, and `Some(None)` if this server has not issued it in this epoch.
pub(super) fn tag_of(text: &str, epoch: u64) -> Option<Option<Tag>> {
    let Tags::Of(list) = list(text, epoch)? else {
        return None;
    };
    match list[..] {
        [
            Listed {
                is_weak: false,
                tag,
            },
        ] => Some(tag),
        _ => None,
    }
}

/// The tags of one condition header.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Tags {
    /// `*`: any state of an existing record.
    Any,
    /// A list of tags.
    Of(Vec<Listed>),
}

/// A tag in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Listed {
    is_weak: bool,
    /// The state, if this server issued the tag in this epoch.
    tag: Option<Tag>,
}

/// The conditions of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Conditions {
    /// The epoch of the record when the request came. Its answer has a tag of this epoch: a later one would name a state that its owner may
    /// have shown before it was lost.
    pub(super) epoch: u64,
    is_match: Option<Tags>,
    is_none_match: Option<Tags>,
}

/// The result of a condition for a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConditionResult {
    /// The request may proceed.
    Yes,
    /// The server must not execute the request: the record is not in the required state.
    No,
    /// The client already has this state. A read answers 304, and a change must not proceed.
    Known,
}

impl Conditions {
    /// The conditions in the headers of a request.
    ///
    /// # Errors
    /// A header is neither `*` nor a list of entity tags.
    pub(super) fn of(headers: &HeaderMap, epoch: u64) -> Result<Self, Problem> {
        Ok(Self {
            epoch,
            is_match: tags(headers, &IF_MATCH, epoch)?,
            is_none_match: tags(headers, &IF_NONE_MATCH, epoch)?,
        })
    }

    /// Evaluates the conditions for the state of a record; `None` means that the record does not exist.
    pub(super) fn check(&self, state: Option<Tag>) -> ConditionResult {
        let is_in = |tags: &Tags, takes_weak: bool| match tags {
            Tags::Any => state.is_some(),
            Tags::Of(list) => list.iter().any(|listed| {
                state.is_some() && listed.tag == state && (takes_weak || !listed.is_weak)
            }),
        };
        if self
            .is_match
            .as_ref()
            .is_some_and(|tags| !is_in(tags, false))
        {
            return ConditionResult::No;
        }
        if self
            .is_none_match
            .as_ref()
            .is_some_and(|tags| is_in(tags, true))
        {
            return ConditionResult::Known;
        }
        ConditionResult::Yes
    }

    /// The same condition in a form that the record's owner evaluates in one step with the change; `None` if the state must be
    /// read first.
    pub(super) fn only(&self) -> Option<Only> {
        match (&self.is_match, &self.is_none_match) {
            (None, None) => Some(Only::Always),
            (Some(Tags::Any), None) => Some(Only::Present),
            (None, Some(Tags::Any)) => Some(Only::Missing),
            (Some(Tags::Of(list)), None) => match list[..] {
                [
                    Listed {
                        is_weak: false,
                        tag: Some(tag),
                    },
                ] => Some(Only::Is(tag)),
                _ => None,
            },
            _ => None,
        }
    }
}

fn tags(headers: &HeaderMap, name: &HeaderName, epoch: u64) -> Result<Option<Tags>, Problem> {
    if !headers.contains_key(name) {
        return Ok(None);
    }
    let values = headers.get_all(name).iter();
    let lines: Result<Vec<&str>, _> = values.map(|value| value.to_str()).collect();
    let list = lines.ok().and_then(|lines| list(&lines.join(","), epoch));
    list.map(Some).ok_or(Problem::INVALID_CONDITION)
}

/// Parses `*`, or a list of tags in which elements may be empty.
fn list(text: &str, epoch: u64) -> Option<Tags> {
    if text.trim() == "*" {
        return Some(Tags::Any);
    }
    let mut list = Vec::new();
    let mut rest = text.trim_matches([' ', '\t', ',']);
    while !rest.is_empty() {
        let strong = rest.strip_prefix("W/");
        let is_weak = strong.is_some();
        let (opaque, behind) = strong.unwrap_or(rest).strip_prefix('"')?.split_once('"')?;
        if !opaque.bytes().all(|byte| matches!(byte, b'!'..=b'~')) {
            return None;
        }
        let tag = parse(opaque, epoch);
        list.push(Listed { is_weak, tag });
        let behind = behind.trim_start_matches([' ', '\t']);
        if !behind.is_empty() && !behind.starts_with(',') {
            return None;
        }
        rest = behind.trim_start_matches([' ', '\t', ',']);
    }
    (!list.is_empty()).then_some(Tags::Of(list))
}

/// Parses a tag of this epoch.
fn parse(text: &str, epoch: u64) -> Option<Tag> {
    let mut parts = text.split('-');
    let own_epoch = u64::from_str_radix(parts.next()?, 16).ok()?;
    let incarnation = u64::from_str_radix(parts.next()?, 16).ok()?;
    let version = parts.next()?.parse().ok()?;
    let tag = Tag {
        incarnation,
        version,
    };
    // Tags are equal if their characters are, so only the canonical form of a tag is valid.
    let is_same = own_epoch == epoch && opaque(epoch, tag) == text;
    is_same.then_some(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: Tag = Tag {
        incarnation: 0x1a,
        version: 7,
    };

    fn conditions(pairs: &[(HeaderName, &str)]) -> Conditions {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, HeaderValue::from_str(value).expect("a header value"));
        }
        Conditions::of(&headers, 3).expect("the conditions can be read")
    }

    fn check(
        pairs: &[(HeaderName, &str)],
        there: ConditionResult,
        missing: ConditionResult,
        only: Option<Only>,
    ) {
        let conditions = conditions(pairs);
        assert_eq!(conditions.check(Some(TAG)), there, "{pairs:?} of a record");
        assert_eq!(conditions.check(None), missing, "{pairs:?} of no record");
        assert_eq!(conditions.only(), only, "{pairs:?}");
    }

    #[test]
    fn a_tag_comes_back() {
        assert_eq!(entity_tag(3, TAG), "\"3-1a-7\"");
        assert_eq!(parse("3-1a-7", 3), Some(TAG));
        for text in [
            "3-1a-7x", "4-1a-7", "3-1a-7-1", "", "3-1a", "3-1A-7", "03-1a-7", "3-1a-+7",
        ] {
            assert_eq!(parse(text, 3), None, "{text}");
        }
    }

    #[test]
    fn conditions_follow_the_http_specification() {
        use ConditionResult::{Known, No, Yes};
        check(&[], Yes, Yes, Some(Only::Always));
        check(&[(IF_MATCH, "*")], Yes, No, Some(Only::Present));
        check(&[(IF_NONE_MATCH, "*")], Known, Yes, Some(Only::Missing));
        check(&[(IF_MATCH, "\"3-1a-7\"")], Yes, No, Some(Only::Is(TAG)));
        check(&[(IF_MATCH, "W/\"3-1a-7\"")], No, No, None);
        check(&[(IF_MATCH, "\"x\", \"3-1a-7\"")], Yes, No, None);
        check(&[(IF_MATCH, "\"2-1a-7\"")], No, No, None);
        check(&[(IF_MATCH, "\"a,b\" ,, \"3-1a-7\",")], Yes, No, None);
        check(&[(IF_NONE_MATCH, "\"3-1a-7\"")], Known, Yes, None);
        check(&[(IF_NONE_MATCH, "W/\"3-1a-7\"")], Known, Yes, None);
        check(&[(IF_NONE_MATCH, "\"3-1a-8\"")], Yes, Yes, None);
        check(
            &[(IF_MATCH, "*"), (IF_NONE_MATCH, "\"3-1a-7\"")],
            Known,
            No,
            None,
        );
    }

    #[test]
    fn invalid_conditions_are_refused() {
        for text in [
            "",
            ",",
            "x",
            "3-1a-7",
            "\"a",
            "\"a\" \"b\"",
            "*, \"a\"",
            "\"a\", *",
            "w/\"a\"",
            "\"a b\"",
            "\"ä\"",
        ] {
            for name in [IF_MATCH, IF_NONE_MATCH] {
                let mut headers = HeaderMap::new();
                let value = HeaderValue::from_bytes(text.as_bytes()).expect("a header value");
                headers.append(name, value);
                let found = Conditions::of(&headers, 3);
                assert_eq!(found, Err(Problem::INVALID_CONDITION), "{text:?}");
            }
        }
    }
}

//! Paths, and the branches that a path resolves to in a document. `spec/query.md` has the four rules.

use smallvec::SmallVec;

use crate::error::{QueryError, QueryErrorCode};
use crate::limits::QueryLimits;
use crate::tape::{Document, Value};

/// A path of a query.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Path {
    /// `_id`, the record's id.
    Id,
    /// `_v`, the record's version.
    Version,
    /// A field of the value.
    Field(Box<[Segment]>),
    /// The element itself, in the operators of `$elemMatch`.
    Element,
}

/// One segment of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Segment {
    key: Box<str>,
    /// The index of an array, if it is digits without a leading zero.
    index: Option<u32>,
}

impl Segment {
    pub(crate) fn key(&self) -> &[u8] {
        self.key.as_bytes()
    }
}

/// One of the values that a path resolves to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Branch<'a> {
    /// `None` if the field is missing.
    pub value: Option<Value<'a>>,
    /// Whether it is an array that counts as each of its elements as well.
    pub expands: bool,
}

impl<'a> Branch<'a> {
    const MISSING: Self = Self {
        value: None,
        expands: false,
    };

    fn one(value: Value<'a>) -> Self {
        Self {
            value: Some(value),
            expands: false,
        }
    }

    /// Whether `holds` is true for the value or, if it counts as them, for one of its elements. Missing is `None`.
    #[inline]
    pub fn any(&self, mut holds: impl FnMut(Option<Value<'a>>) -> bool) -> bool {
        if holds(self.value) {
            return true;
        }
        match self.value {
            Some(value) if self.expands => value.elements().any(|element| holds(Some(element))),
            _ => false,
        }
    }
}

/// The value that paths begin at.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scope<'a> {
    Document(Document<'a>),
    /// An element of an array, in `$elemMatch`.
    Element(Value<'a>),
}

/// How the numeric segments of a path are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// As index and as key.
    Match,
    /// Only as index, so that `a.0.b` sorts by the first element.
    Sort,
}

impl Path {
    /// Parses the text of a path. `id_names` are the names of the id, at the top level of a document.
    pub(crate) fn parse(
        text: &str,
        at: &str,
        id_names: &[&str],
        limits: &QueryLimits,
    ) -> Result<Self, QueryError> {
        let refuse = |what: String| Err(QueryError::new(QueryErrorCode::BadPath, at, what));
        if id_names.contains(&text) {
            return Ok(Self::Id);
        }
        if text == "_v" && !id_names.is_empty() {
            return Ok(Self::Version);
        }
        if text.len() > limits.path_bytes_max {
            return refuse(format!(
                "path has {} bytes; use at most {}",
                text.len(),
                limits.path_bytes_max
            ));
        }
        let segments: Box<[Segment]> = text.split('.').map(Segment::parse).collect();
        if segments.len() > limits.segments_max {
            return refuse(format!(
                "path has {} segments; use at most {}",
                segments.len(),
                limits.segments_max
            ));
        }
        for segment in &segments {
            if segment.key.is_empty() {
                return refuse(format!(
                    "path \"{text}\" has an empty segment; write names between the dots"
                ));
            }
            if segment.key.starts_with('$') {
                return refuse(format!(
                    "segment \"{}\" starts with a dollar sign; no stored field does",
                    segment.key
                ));
            }
            if segment.key.contains('\0') {
                return refuse("path has a null character; no stored field does".into());
            }
        }
        Ok(Self::Field(segments))
    }

    /// The field of the document that it begins with.
    pub(crate) fn first_field(&self) -> Option<&[u8]> {
        match self {
            Self::Field(segments) => segments.first().map(Segment::key),
            _ => None,
        }
    }

    /// Whether a segment may be the index of an array.
    pub(crate) fn has_index(&self) -> bool {
        matches!(self, Self::Field(segments) if segments.iter().any(|segment| segment.index.is_some()))
    }

    /// Its text.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Id => "_id".into(),
            Self::Version => "_v".into(),
            Self::Element => String::new(),
            Self::Field(segments) => {
                let keys: Vec<&str> = segments.iter().map(|segment| &*segment.key).collect();
                keys.join(".")
            }
        }
    }

    /// Calls `visit` with each branch until it returns true; whether it did.
    #[inline]
    pub(crate) fn visit<'a>(
        &self,
        scope: &Scope<'a>,
        purpose: Purpose,
        visit: &mut impl FnMut(Branch<'a>) -> bool,
    ) -> bool {
        match (self, scope) {
            (Self::Field(segments), Scope::Document(document)) => {
                let root = document.root();
                if root.is_object() {
                    walk(root, segments, false, purpose, visit)
                } else {
                    // A record that is not an object is queried as `{value: it}`.
                    match segments.split_first() {
                        Some((first, rest)) if &*first.key == "value" => {
                            walk(root, rest, false, purpose, visit)
                        }
                        _ => visit(Branch::MISSING),
                    }
                }
            }
            (Self::Field(segments), Scope::Element(element)) => {
                walk(*element, segments, false, purpose, visit)
            }
            (Self::Element, Scope::Element(element)) => visit(Branch::one(*element)),
            (Self::Id, Scope::Document(document)) => visit(Branch::one(document.id())),
            (Self::Version, Scope::Document(document)) => visit(Branch::one(document.version())),
            // The parser makes none of these.
            (Self::Element, Scope::Document(_)) | (Self::Id | Self::Version, Scope::Element(_)) => {
                false
            }
        }
    }

    /// All branches of a path that begins with a field of an object, which has this value.
    pub(crate) fn branches_within<'a>(&self, field: Value<'a>) -> SmallVec<[Branch<'a>; 4]> {
        let mut branches = SmallVec::new();
        if let Self::Field(segments) = self {
            let rest = segments.get(1..).unwrap_or_default();
            walk(field, rest, false, Purpose::Match, &mut |branch| {
                branches.push(branch);
                false
            });
        }
        branches
    }

    /// All branches.
    pub(crate) fn branches<'a>(
        &self,
        scope: &Scope<'a>,
        purpose: Purpose,
    ) -> SmallVec<[Branch<'a>; 4]> {
        let mut branches = SmallVec::new();
        self.visit(scope, purpose, &mut |branch| {
            branches.push(branch);
            false
        });
        branches
    }
}

impl Segment {
    fn parse(key: &str) -> Self {
        let is_index =
            key.bytes().all(|byte| byte.is_ascii_digit()) && (key == "0" || !key.starts_with('0'));
        Self {
            key: key.into(),
            index: if is_index { key.parse().ok() } else { None },
        }
    }
}

/// `explicit` says that an index of the path led to `value`.
fn walk<'a>(
    value: Value<'a>,
    segments: &[Segment],
    explicit: bool,
    purpose: Purpose,
    visit: &mut impl FnMut(Branch<'a>) -> bool,
) -> bool {
    let Some((segment, rest)) = segments.split_first() else {
        return visit(Branch {
            value: Some(value),
            expands: !explicit && value.is_array(),
        });
    };
    if value.is_object() {
        return match value.member(segment.key()) {
            Some(member) => walk(member, rest, false, purpose, visit),
            None => visit(Branch::MISSING),
        };
    }
    if !value.is_array() {
        return !explicit && visit(Branch::MISSING);
    }
    if let Some(index) = segment.index {
        let element = value.elements().nth(index as usize);
        if element.is_some_and(|element| walk(element, rest, true, purpose, visit)) {
            return true;
        }
        if purpose == Purpose::Sort {
            return false;
        }
    }
    value
        .elements()
        .any(|element| element.is_object() && walk(element, segments, false, purpose, visit))
}

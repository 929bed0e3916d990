//! Several patches of one document in one pass over its text.
//!
//! The function knows the paths of all patches before it reads the document. So one scan opens every container that a
//! patch may change and notes the entries that a path names; it skips everything else. The patches change the noted
//! entries, and the function writes the new document once. The cost is that of the document and of the patches,
//! regardless of their number. A single patch is cheaper as a splice; see [`super::patch()`].

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use super::check::JsonLimits;
use super::literal::{string, unescape};
use super::patch::{PatchError, check_patch, length_of_array};
use super::path::{Path, Token, array_index};
use super::scan::{Entries, Malformed, RawString, is_container, peek, skip_space, value_end};

/// Value that fills an array up to an index behind its end.
const NULL: &str = "null";

/// Applies `patches` in their order, all or none; see [`super::patch()`]. The limit of bytes holds for the result, and
/// the elements that are filled with null are counted over the whole list.
///
/// # Errors
/// The first patch that fails, or a result beyond the limit.
pub fn patch_many(
    document: &str,
    patches: &[(Path<'_>, Option<&str>)],
    limits: JsonLimits,
) -> Result<String, PatchError> {
    match patches {
        [] => Ok(document.to_owned()),
        [(path, value)] => super::patch(document, path, *value, limits),
        _ => patch_in_one_pass(document, patches, limits),
    }
}

fn patch_in_one_pass(
    document: &str,
    patches: &[(Path<'_>, Option<&str>)],
    limits: JsonLimits,
) -> Result<String, PatchError> {
    let start = skip_space(document.as_bytes(), 0);
    if !is_container(document.as_bytes(), start) {
        return Err(PatchError::NotContainer);
    }
    let (paths, routes) = PathTree::of(patches);
    let (root, end) = paths.open(document, start, ROOT)?;
    let mut patched = Patched {
        paths: &paths,
        root,
        nulls: Nulls::within(limits),
    };
    for ((path, value), route) in patches.iter().zip(&routes) {
        let value = check_patch(path, *value, limits)?;
        patched.apply(path.tokens(), route, value)?;
    }
    let mut out = Output {
        text: String::with_capacity(document.len()),
        bytes_max: limits.bytes_max,
    };
    out.push(document, 0..start)?;
    patched.root.write(&paths, &mut out)?;
    out.push(document, end..document.len())?;
    Ok(out.text)
}

/// The place of a path's step in [`PathTree::nodes`].
type NodeId = usize;

/// The node of the document itself.
const ROOT: NodeId = 0;

/// The paths of a list, with equal beginnings in common.
struct PathTree<'p> {
    nodes: Vec<PathNode<'p>>,
}

/// Target of one or more paths.
#[derive(Default)]
struct PathNode<'p> {
    /// The step from its container as an object spells it. An array reads an index, or its length, from the same text.
    name: Cow<'p, str>,
    children: BTreeMap<Cow<'p, str>, NodeId>,
    /// The children that an array takes for elements, by their index.
    elements: Vec<(usize, NodeId)>,
    /// A bit for each length (modulo 64) of the children's names: most keys of an object are skipped without a search.
    lengths: u64,
}

impl<'p> PathTree<'p> {
    /// The tree of all paths, and for each path its nodes from the first step on.
    fn of<'a: 'p>(patches: &'p [(Path<'a>, Option<&str>)]) -> (Self, Vec<Vec<NodeId>>) {
        let mut tree = Self {
            nodes: vec![PathNode::default()],
        };
        let routes = patches.iter().map(|(path, _)| tree.insert(path)).collect();
        for node in &mut tree.nodes {
            let index = |(name, child): (&Cow<'_, str>, &NodeId)| {
                array_index(name).map(|index| (index as usize, *child))
            };
            node.elements = node.children.iter().filter_map(index).collect();
            node.elements.sort_unstable();
        }
        (tree, routes)
    }

    fn insert(&mut self, path: &'p Path<'_>) -> Vec<NodeId> {
        let mut parent = ROOT;
        let step = |token: &'p Token<'_>| {
            let name: Cow<'p, str> = match token {
                Token::Key(key) => Cow::Borrowed(key),
                Token::Index(index) => Cow::Owned(index.to_string()),
            };
            let next = self.nodes.len();
            let node = &mut self.nodes[parent];
            let child = *node.children.entry(name.clone()).or_insert(next);
            node.lengths |= length_bit(&name);
            if child == next {
                self.nodes.push(PathNode {
                    name,
                    ..PathNode::default()
                });
            }
            parent = child;
            child
        };
        path.tokens().iter().map(step).collect()
    }

    /// The child of `node` that the key at `raw` names.
    #[inline]
    fn member(&self, node: NodeId, text: &str, raw: &RawString) -> Option<NodeId> {
        let node = &self.nodes[node];
        if !raw.escaped && node.lengths & (1 << (raw.inner.len() % 64)) == 0 {
            return None;
        }
        let inner = text.get(raw.inner.clone())?;
        let child = if raw.escaped {
            node.children.get(unescape(inner)?.as_str())
        } else {
            node.children.get(inner)
        };
        child.copied()
    }

    /// Whether a path continues below `node`.
    fn goes_on(&self, node: NodeId) -> bool {
        !self.nodes[node].children.is_empty()
    }

    /// Opens the container at `at`, and those within that a path leads into; returns the place behind it too.
    fn open<'d>(
        &self,
        text: &'d str,
        at: usize,
        node: NodeId,
    ) -> Result<(Value<'d>, usize), Malformed> {
        if peek(text.as_bytes(), at) == b'{' {
            self.open_object(text, at, node)
        } else {
            self.open_array(text, at, node)
        }
    }

    /// Opens the value at `at` if it is a container with a path below it; returns the place behind it in any case.
    #[inline]
    fn open_inner<'d>(
        &self,
        text: &'d str,
        at: usize,
        node: Option<NodeId>,
    ) -> Result<(Option<Value<'d>>, usize), Malformed> {
        match node {
            Some(node) if self.goes_on(node) && is_container(text.as_bytes(), at) => {
                let (value, end) = self.open(text, at, node)?;
                Ok((Some(value), end))
            }
            _ => Ok((None, value_end(text.as_bytes(), at)?)),
        }
    }

    fn open_object<'d>(
        &self,
        text: &'d str,
        at: usize,
        node: NodeId,
    ) -> Result<(Value<'d>, usize), Malformed> {
        let mut entries = Entries::of(text.as_bytes(), at)?;
        let mut object = Object::default();
        loop {
            let (ordinal, before) = (entries.count, entries.end);
            let mut child = None;
            let mut opened = None;
            let entry = entries.advance_by(|key, start| {
                child = key.and_then(|key| self.member(node, text, key));
                let (value, end) = self.open_inner(text, start, child)?;
                opened = value;
                Ok(end)
            })?;
            let Some(entry) = entry else { break };
            if let Some(child) = child {
                object.note(child, |previous| Member {
                    ordinal,
                    before,
                    start: entry.start(),
                    value: entry.value,
                    new_value: opened,
                    is_removed: false,
                    previous,
                });
            }
        }
        object.source = Source::of(text, at, &entries);
        let end = object.source.range.end;
        Ok((Value::Object(Box::new(object)), end))
    }

    fn open_array<'d>(
        &self,
        text: &'d str,
        at: usize,
        node: NodeId,
    ) -> Result<(Value<'d>, usize), Malformed> {
        let mut wanted = self.nodes[node].elements.iter().peekable();
        let mut entries = Entries::of(text.as_bytes(), at)?;
        let mut array = Array::default();
        loop {
            let child = wanted.next_if(|(index, _)| *index == entries.count);
            let mut opened = None;
            let entry = entries.advance_by(|_, start| {
                let (value, end) = self.open_inner(text, start, child.map(|(_, node)| *node))?;
                opened = value;
                Ok(end)
            })?;
            let Some(entry) = entry else { break };
            if let Some((index, _)) = child {
                array.elements.push(Element {
                    index: *index,
                    value: entry.value,
                    new_value: opened,
                });
            }
        }
        array.source = Source::of(text, at, &entries);
        array.kept = array.source.count;
        let end = array.source.range.end;
        Ok((Value::Array(Box::new(array)), end))
    }
}

fn length_bit(name: &str) -> u64 {
    1 << (name.len() % 64)
}

/// A value of the new document.
enum Value<'d> {
    /// The text is copied unchanged from the document or from a patch.
    Text(&'d str),
    Object(Box<Object<'d>>),
    Array(Box<Array<'d>>),
}

impl<'d> Value<'d> {
    /// Opens the value in its place if it is the text of a container.
    fn open(&mut self, paths: &PathTree<'_>, node: NodeId) -> Result<(), Malformed> {
        if let Self::Text(text) = *self
            && is_container(text.as_bytes(), 0)
        {
            (*self, _) = paths.open(text, 0, node)?;
        }
        Ok(())
    }

    fn is_container(&self) -> bool {
        match self {
            Self::Text(text) => is_container(text.as_bytes(), 0),
            Self::Object(_) | Self::Array(_) => true,
        }
    }

    /// The container that `token` leads to, if there is one. The value must be open.
    fn container(&mut self, token: &Token<'_>, node: NodeId) -> Option<&mut Value<'d>> {
        let inner = match self {
            Self::Text(_) => None,
            Self::Object(object) => object.new_value(node),
            Self::Array(array) => match Step::of(token) {
                Step::Element(index) => array.new_value(index),
                Step::Length | Step::Dropped => None,
            },
        };
        inner.filter(|value| value.is_container())
    }

    fn write(&self, paths: &PathTree<'_>, out: &mut Output) -> Result<(), PatchError> {
        match self {
            Self::Text(text) => out.push(text, 0..text.len()),
            Self::Object(object) => object.write(paths, out),
            Self::Array(array) => array.write(paths, out),
        }
    }
}

/// A container of a source text.
#[derive(Default)]
struct Source<'d> {
    text: &'d str,
    /// From the opening bracket to the place behind the closing one.
    range: Range<usize>,
    /// Its entries.
    count: usize,
    /// The place behind the last entry, or behind the opening bracket.
    entries_end: usize,
}

impl<'d> Source<'d> {
    /// The container that opens at `at`, after all its entries.
    fn of(text: &'d str, at: usize, entries: &Entries<'_>) -> Self {
        Self {
            text,
            range: at..skip_space(text.as_bytes(), entries.end) + 1,
            count: entries.count,
            entries_end: entries.end,
        }
    }

    /// A container that no text has yet.
    fn empty(text: &'static str) -> Self {
        Self {
            text,
            range: 0..text.len(),
            count: 0,
            entries_end: 1,
        }
    }

    /// Where the entry behind the one that ends at `end` starts, or `end` if that is the last.
    fn next_start(&self, end: usize) -> usize {
        let bytes = self.text.as_bytes();
        let comma = skip_space(bytes, end);
        if peek(bytes, comma) == b',' {
            skip_space(bytes, comma + 1)
        } else {
            end
        }
    }
}

#[derive(Default)]
struct Object<'d> {
    source: Source<'d>,
    /// The members of the source that paths name, in the order of the text.
    members: Vec<Member<'d>>,
    /// New members in the order in which they were written; `None` if one was deleted again.
    added: Vec<Option<(NodeId, Value<'d>)>>,
    /// Where the member that counts is.
    indices: BTreeMap<NodeId, MemberIndex>,
}

/// A member of a source text.
struct Member<'d> {
    /// Its place among all members.
    ordinal: usize,
    /// Where the member before it ends.
    before: usize,
    start: usize,
    value: Range<usize>,
    /// Replacement of the value, if a patch or the scan opened or replaced it.
    new_value: Option<Value<'d>>,
    is_removed: bool,
    /// The member of the same name before it, which does not count.
    previous: Option<usize>,
}

#[derive(Clone, Copy)]
enum MemberIndex {
    Source(usize),
    Added(usize),
}

impl<'d> Object<'d> {
    /// Notes a member of the source. Of equal keys the last one counts.
    fn note(&mut self, node: NodeId, member: impl FnOnce(Option<usize>) -> Member<'d>) {
        let index = MemberIndex::Source(self.members.len());
        let previous = match self.indices.insert(node, index) {
            Some(MemberIndex::Source(previous)) => Some(previous),
            _ => None,
        };
        self.members.push(member(previous));
    }

    /// Value of the member after the patches or the scan; `None` for a scalar of the source as well.
    fn new_value(&mut self, node: NodeId) -> Option<&mut Value<'d>> {
        match *self.indices.get(&node)? {
            MemberIndex::Source(index) => self.members.get_mut(index)?.new_value.as_mut(),
            MemberIndex::Added(index) => {
                let (_, value) = self.added.get_mut(index)?.as_mut()?;
                Some(value)
            }
        }
    }

    fn set(&mut self, node: NodeId, value: Value<'d>) {
        match self.indices.get(&node) {
            Some(MemberIndex::Source(index)) => self.members[*index].new_value = Some(value),
            Some(MemberIndex::Added(index)) => self.added[*index] = Some((node, value)),
            None => {
                let index = MemberIndex::Added(self.added.len());
                self.indices.insert(node, index);
                self.added.push(Some((node, value)));
            }
        }
    }

    /// Deletes every member of the name.
    fn delete(&mut self, node: NodeId) {
        match self.indices.remove(&node) {
            None => {}
            Some(MemberIndex::Added(index)) => self.added[index] = None,
            Some(MemberIndex::Source(index)) => {
                let mut next = Some(index);
                while let Some(member) = next.and_then(|index| self.members.get_mut(index)) {
                    member.is_removed = true;
                    next = member.previous;
                }
            }
        }
    }

    fn write(&self, paths: &PathTree<'_>, out: &mut Output) -> Result<(), PatchError> {
        let source = &self.source;
        let mut done = source.range.start;
        // Removed members before the first kept one go together with the comma behind them, later ones with the comma
        // before them.
        let mut leading = 0;
        let mut kept = source.count;
        for member in &self.members {
            if member.is_removed {
                kept -= 1;
                if member.ordinal == leading {
                    leading += 1;
                    out.push(source.text, done..member.start)?;
                    done = source.next_start(member.value.end);
                } else {
                    out.push(source.text, done..member.before)?;
                    done = member.value.end;
                }
            } else if let Some(value) = &member.new_value {
                out.push(source.text, done..member.value.start)?;
                value.write(paths, out)?;
                done = member.value.end;
            }
        }
        out.push(source.text, done..source.entries_end)?;
        let mut is_first = kept == 0;
        for (node, value) in self.added.iter().flatten() {
            out.comma(&mut is_first);
            string(&paths.nodes[*node].name, &mut out.text);
            out.text.push(':');
            value.write(paths, out)?;
        }
        out.push(source.text, source.entries_end..source.range.end)
    }
}

#[derive(Default)]
struct Array<'d> {
    source: Source<'d>,
    /// The elements of the source that paths name, in their order.
    elements: Vec<Element<'d>>,
    /// Elements of the source that are left after the length was cut.
    kept: usize,
    /// The elements behind them; `None` is null.
    added: Vec<Option<Value<'d>>>,
}

/// An element of a source text.
struct Element<'d> {
    index: usize,
    value: Range<usize>,
    /// Replacement of the value, if a patch or the scan opened or replaced it.
    new_value: Option<Value<'d>>,
}

impl<'d> Array<'d> {
    fn len(&self) -> usize {
        self.kept + self.added.len()
    }

    /// The place of an element that paths name, if the array is that long.
    fn slot(&mut self, index: usize) -> Option<&mut Option<Value<'d>>> {
        if let Some(added) = index.checked_sub(self.kept) {
            return self.added.get_mut(added);
        }
        let found = self.elements.binary_search_by_key(&index, |it| it.index);
        Some(&mut self.elements.get_mut(found.ok()?)?.new_value)
    }

    /// Value of the element after the patches or the scan; `None` for a scalar of the source as well.
    fn new_value(&mut self, index: usize) -> Option<&mut Value<'d>> {
        self.slot(index)?.as_mut()
    }

    fn set(&mut self, index: usize, value: Value<'d>, nulls: &mut Nulls) -> Result<(), PatchError> {
        if let Some(slot) = self.slot(index) {
            *slot = Some(value);
            return Ok(());
        }
        self.fill(index, nulls)?;
        self.added.push(Some(value));
        Ok(())
    }

    /// Deletes an element, which leaves null.
    fn delete(&mut self, index: usize) {
        if let Some(slot) = self.slot(index) {
            *slot = Some(Value::Text(NULL));
        }
    }

    /// Appends null until there are `length` elements.
    fn fill(&mut self, length: usize, nulls: &mut Nulls) -> Result<(), PatchError> {
        nulls.take(length.saturating_sub(self.len()))?;
        self.added
            .resize_with(length.saturating_sub(self.kept), || None);
        Ok(())
    }

    /// Cuts the array to a length, or fills it with null.
    fn set_length(&mut self, length: usize, nulls: &mut Nulls) -> Result<(), PatchError> {
        if length > self.len() {
            return self.fill(length, nulls);
        }
        self.kept = self.kept.min(length);
        self.added.truncate(length - self.kept);
        Ok(())
    }

    fn write(&self, paths: &PathTree<'_>, out: &mut Output) -> Result<(), PatchError> {
        let source = &self.source;
        let mut done = source.range.start;
        let kept = self.elements.iter().filter(|it| it.index < self.kept);
        for element in kept {
            if let Some(value) = &element.new_value {
                out.push(source.text, done..element.value.start)?;
                value.write(paths, out)?;
                done = element.value.end;
            }
        }
        out.push(source.text, done..self.kept_end()?)?;
        let mut is_first = self.kept == 0;
        for value in &self.added {
            out.comma(&mut is_first);
            value
                .as_ref()
                .unwrap_or(&Value::Text(NULL))
                .write(paths, out)?;
        }
        out.push(source.text, source.entries_end..source.range.end)
    }

    /// Where the last element of the source ends that is left. Only a cut makes a second scan of the array, and only one.
    fn kept_end(&self) -> Result<usize, Malformed> {
        let source = &self.source;
        if self.kept == source.count {
            return Ok(source.entries_end);
        }
        let mut entries = Entries::of(source.text.as_bytes(), source.range.start)?;
        while entries.count < self.kept && entries.advance()?.is_some() {}
        Ok(entries.end)
    }
}

/// Meaning of a token for an array.
enum Step {
    Element(usize),
    Length,
    /// JavaScript keeps any other key of an array until `JSON.stringify` drops it.
    Dropped,
}

impl Step {
    fn of(token: &Token<'_>) -> Self {
        match token {
            Token::Index(index) => Self::Element(*index as usize),
            Token::Key(key) if key == "length" => Self::Length,
            Token::Key(key) => match array_index(key) {
                Some(index) => Self::Element(index as usize),
                None => Self::Dropped,
            },
        }
    }
}

/// The document while the patches are applied.
struct Patched<'t, 'd> {
    paths: &'t PathTree<'t>,
    root: Value<'d>,
    nulls: Nulls,
}

impl<'d> Patched<'_, 'd> {
    /// Applies one patch. `route` has the nodes of the path's tokens.
    fn apply(
        &mut self,
        tokens: &[Token<'_>],
        route: &[NodeId],
        value: Option<&'d str>,
    ) -> Result<(), PatchError> {
        let mut container = &mut self.root;
        let mut steps = tokens.iter().zip(route);
        // The last step is never gone down.
        for (depth, (token, node)) in steps.by_ref().enumerate() {
            let is_last = depth + 1 == tokens.len();
            if !is_last && container.container(token, *node).is_some() {
                // The second search replaces a borrow that the compiler can't end on the other branch.
                let Some(inner) = container.container(token, *node) else {
                    break;
                };
                inner.open(self.paths, *node)?;
                container = inner;
                continue;
            }
            if is_last && value.is_none() {
                return delete(container, token, *node);
            }
            let (rest, nodes) = (&tokens[depth + 1..], &route[depth + 1..]);
            let value = create(rest, nodes, value, &mut self.nulls)?;
            return set(container, token, *node, value, &mut self.nulls);
        }
        Ok(())
    }
}

/// Deletes the value at `token`.
fn delete(container: &mut Value<'_>, token: &Token<'_>, node: NodeId) -> Result<(), PatchError> {
    match container {
        Value::Text(_) => {}
        Value::Object(object) => object.delete(node),
        Value::Array(array) => match Step::of(token) {
            Step::Element(index) => array.delete(index),
            Step::Length => return Err(PatchError::ArrayLength),
            Step::Dropped => {}
        },
    }
    Ok(())
}

/// Makes `value` the value at `token`.
fn set<'d>(
    container: &mut Value<'d>,
    token: &Token<'_>,
    node: NodeId,
    value: Value<'d>,
    nulls: &mut Nulls,
) -> Result<(), PatchError> {
    match container {
        Value::Text(_) => Ok(()),
        Value::Object(object) => {
            object.set(node, value);
            Ok(())
        }
        Value::Array(array) => match (Step::of(token), value) {
            (Step::Element(index), value) => array.set(index, value, nulls),
            (Step::Length, Value::Text(length)) => {
                array.set_length(length_of_array(length)?, nulls)
            }
            (Step::Length, _) => Err(PatchError::ArrayLength),
            (Step::Dropped, _) => Ok(()),
        },
    }
}

/// New content of a missing or replaced value when `rest` of the path continues below it: containers down to `value`,
/// or down to the place of the deletion.
fn create<'d>(
    rest: &[Token<'_>],
    nodes: &[NodeId],
    value: Option<&'d str>,
    nulls: &mut Nulls,
) -> Result<Value<'d>, PatchError> {
    let mut made = value.map(Value::Text);
    for (token, node) in rest.iter().zip(nodes).rev() {
        made = Some(match token {
            Token::Index(index) => {
                let mut array = Array {
                    source: Source::empty("[]"),
                    ..Array::default()
                };
                array.fill(*index as usize, nulls)?;
                array.added.extend(made.map(Some));
                Value::Array(Box::new(array))
            }
            Token::Key(_) => {
                let mut object = Object {
                    source: Source::empty("{}"),
                    ..Object::default()
                };
                if let Some(value) = made {
                    object.set(*node, value);
                }
                Value::Object(Box::new(object))
            }
        });
    }
    // Only a path without a rest is deleted without a value, and that is never created.
    Ok(made.unwrap_or(Value::Text(NULL)))
}

/// How many elements the list may still fill with null.
struct Nulls {
    gap_left: usize,
    /// As many as a document can hold.
    held_left: usize,
}

impl Nulls {
    fn within(limits: JsonLimits) -> Self {
        Self {
            gap_left: limits.array_gap_max,
            held_left: limits.bytes_max / (NULL.len() + 1),
        }
    }

    fn take(&mut self, count: usize) -> Result<(), PatchError> {
        let gap_left = self.gap_left.checked_sub(count);
        self.gap_left = gap_left.ok_or(PatchError::ArrayGap)?;
        let held_left = self.held_left.checked_sub(count);
        self.held_left = held_left.ok_or(PatchError::TooLarge)?;
        Ok(())
    }
}

/// The new document as far as it is written.
struct Output {
    text: String,
    bytes_max: usize,
}

impl Output {
    fn push(&mut self, text: &str, range: Range<usize>) -> Result<(), PatchError> {
        let piece = text.get(range).ok_or(PatchError::Malformed)?;
        if self.text.len() + piece.len() > self.bytes_max {
            return Err(PatchError::TooLarge);
        }
        self.text.push_str(piece);
        Ok(())
    }

    fn comma(&mut self, is_first: &mut bool) {
        if !std::mem::take(is_first) {
            self.text.push(',');
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::patch;
    use super::*;

    const LIMITS: JsonLimits = JsonLimits {
        array_gap_max: 100,
        nesting_max: 16,
        bytes_max: 1 << 16,
    };

    type Patch<'a> = (&'a str, Option<&'a str>);

    fn parsed<'a>(patches: &[Patch<'a>]) -> Vec<(Path<'a>, Option<&'a str>)> {
        patches
            .iter()
            .map(|(path, value)| (Path::parse(path).expect(path), *value))
            .collect()
    }

    fn check(document: &str, patches: &[Patch<'_>], expected: Result<&str, PatchError>) {
        let patched = patch_many(document, &parsed(patches), LIMITS);
        let patched = patched.as_deref().map_err(|error| *error);
        assert_eq!(patched, expected, "{document} {patches:?}");
    }

    #[test]
    fn patches_apply_in_their_order_or_not_at_all() {
        check("{}", &[], Ok("{}"));
        check(
            r#"{"c":3}"#,
            &[
                ("a", Some("{}")),
                ("a.b", Some("1")),
                ("c", None),
                ("a.d[1]", Some("2")),
            ],
            Ok(r#"{"a":{"b":1,"d":[null,2]}}"#),
        );
        check(
            r#"{"b":[]}"#,
            &[("a", Some("1")), ("b.length", None)],
            Err(PatchError::ArrayLength),
        );
        check(
            " 1 ",
            &[("a", Some("1")), ("b", None)],
            Err(PatchError::NotContainer),
        );
    }

    #[test]
    fn members_without_a_patch_stay_byte_for_byte() {
        check(
            r#" { "a" : { "x" : 1e400 , "y":[ 1, 2 ]} , "\u0062" : -0 , "c":"é"} "#,
            &[("a.y[1]", Some(" 3 ")), ("b", Some("{}")), ("d", Some("4"))],
            Ok(r#" { "a" : { "x" : 1e400 , "y":[ 1, 3 ]} , "\u0062" : {} , "c":"é","d":4} "#),
        );
    }

    #[test]
    fn deleted_members_take_one_comma_each() {
        let document = r#"{ "a":1 , "b":2 , "c":3 , "d":4 }"#;
        for (deleted, expected) in [
            (&["a", "b"][..], r#"{ "c":3 , "d":4 }"#),
            (&["a", "c"], r#"{ "b":2 , "d":4 }"#),
            (&["b", "c"], r#"{ "a":1 , "d":4 }"#),
            (&["d", "c"], r#"{ "a":1 , "b":2 }"#),
            (&["d", "c", "b", "a"], "{  }"),
        ] {
            let patches: Vec<_> = deleted.iter().map(|path| (*path, None)).collect();
            check(document, &patches, Ok(expected));
        }
        check(
            document,
            &[
                ("a", None),
                ("a", Some("5")),
                ("b", None),
                ("c", None),
                ("d", None),
            ],
            Ok(r#"{ "a":5 }"#),
        );
    }

    #[test]
    fn of_equal_keys_the_last_counts_and_all_are_deleted() {
        let document = r#"{"a":{"b":1},"a":{"b":2},"c":3,"\u0061":{"b":4}}"#;
        check(
            document,
            &[("a.b", Some("9")), ("a.d", Some("8"))],
            Ok(r#"{"a":{"b":1},"a":{"b":2},"c":3,"\u0061":{"b":9,"d":8}}"#),
        );
        check(
            document,
            &[("a", None), ("a.b", Some("9"))],
            Ok(r#"{"c":3,"a":{"b":9}}"#),
        );
    }

    #[test]
    fn arrays_are_cut_and_filled_within_a_list() {
        let document = "[1, 2, 3, 4 ]";
        check(
            document,
            &[("length", Some("2")), ("3", Some("9")), ("1", Some("8"))],
            Ok("[1, 8,null,9 ]"),
        );
        check(
            document,
            &[
                ("5", Some("9")),
                ("length", Some("1")),
                ("length", Some("2")),
            ],
            Ok("[1,null ]"),
        );
        check(
            document,
            &[("length", Some("0")), ("0", Some("{}")), ("0.a", Some("7"))],
            Ok(r#"[{"a":7} ]"#),
        );
    }

    #[test]
    fn a_replaced_container_forgets_the_patches_before() {
        check(
            r#"{"a":{"b":1,"c":{"d":2}}}"#,
            &[
                ("a.c.d", Some("3")),
                ("a", Some(r#"{"c":[0]}"#)),
                ("a.c[0]", Some("4")),
                ("a.b", Some("5")),
            ],
            Ok(r#"{"a":{"c":[4],"b":5}}"#),
        );
    }

    #[test]
    fn gaps_and_bytes_are_bounded_over_the_list() {
        let limits = JsonLimits {
            array_gap_max: 3,
            ..LIMITS
        };
        let both = parsed(&[("a[2]", Some("1")), ("b[2]", Some("1"))]);
        assert_eq!(patch_many("{}", &both, limits), Err(PatchError::ArrayGap));
        let cut = parsed(&[("a[3]", Some("1")), ("a.length", Some("0")), ("a[1]", None)]);
        assert_eq!(patch_many("{}", &cut, limits).as_deref(), Ok(r#"{"a":[]}"#));

        let limits = JsonLimits {
            bytes_max: 20,
            ..LIMITS
        };
        let fits = parsed(&[("a", Some(r#""23456789012345""#)), ("a", Some("1"))]);
        assert_eq!(patch_many("{}", &fits, limits).as_deref(), Ok(r#"{"a":1}"#));
        let large = parsed(&[("a", Some("12345678")), ("b", Some("1234567"))]);
        assert_eq!(patch_many("{}", &large, limits), Err(PatchError::TooLarge));
        // The elements may go again, but they are never more than a document can hold.
        let nulls = parsed(&[("a[4]", Some("1")), ("b", Some("2")), ("c", Some("3"))]);
        assert_eq!(patch_many("{}", &nulls, limits), Err(PatchError::TooLarge));
    }

    /// A compact value of a few letters and lengths, so that paths meet it often; keys may repeat.
    fn any_value() -> impl Strategy<Value = String> {
        let scalar = prop_oneof![Just("1"), Just("null"), Just("\"a\""), Just("\"]}\\\"\"")];
        scalar
            .prop_map(str::to_owned)
            .prop_recursive(3, 24, 5, |inner| {
                let key = prop_oneof![
                    Just("a"),
                    Just("b"),
                    Just("\\u0061"),
                    Just("0"),
                    Just("length")
                ];
                let member =
                    (key, inner.clone()).prop_map(|(key, value)| format!("\"{key}\":{value}"));
                prop_oneof![
                    vec(member, 0..5).prop_map(|members| format!("{{{}}}", members.join(","))),
                    vec(inner, 0..5).prop_map(|elements| format!("[{}]", elements.join(","))),
                ]
            })
    }

    fn any_patch() -> impl Strategy<Value = (String, Option<String>)> {
        let step = prop_oneof![
            4 => Just(".a"), 2 => Just(".b"), 2 => Just(".0"), 1 => Just("[1]"), 1 => Just("[3]"), 1 => Just(".length"),
            1 => Just(".x")
        ];
        let value = prop_oneof![4 => any_value().prop_map(Some), 2 => Just(None), 1 => Just(Some("2".to_owned()))];
        (vec(step, 1..5).prop_map(|steps| steps.concat()), value)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn a_list_has_the_result_of_its_patches_one_by_one(
            document in any_value(),
            patches in vec(any_patch(), 2..9),
        ) {
            let patches: Vec<_> = patches.iter().map(|(path, value)| (path.as_str(), value.as_deref())).collect();
            let patches = parsed(&patches);
            let one_by_one = patches.iter().try_fold(document.clone(), |document, (path, value)| {
                patch(&document, path, *value, LIMITS)
            });
            prop_assert_eq!(patch_many(&document, &patches, LIMITS), one_by_one);
        }
    }
}

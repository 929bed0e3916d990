//! Several patches of one document in one pass over its text.
//!
//! The function knows the paths of all patches before it reads the document. So one scan opens every container that a
//! patch may change and notes the entries that a path names; it skips everything else. The patches change the noted
//! entries, and the function writes the new document once. The cost is that of the document and of the patches,
//! regardless of their number. A single patch is cheaper as a splice; see [`super::patch()`].
//!
//! - `path_tree.rs`: the paths of the list as a tree.
//! - `open.rs`: the scan, which opens containers.
//! - `value.rs`, `object.rs`, `array.rs`: the open values, which patches change and which are written at the end.
//! - `output.rs`: the text of the new document, and its limits.

mod array;
mod object;
mod open;
mod output;
mod path_tree;
mod value;

use super::check::JsonLimits;
use super::patch::{PatchError, check_patch, length_of_array};
use super::path::{Path, Token};
use super::scan::{is_container, skip_space};
use array::{Array, Step};
use object::Object;
use output::{NULL, Nulls, Output};
use path_tree::{NodeId, PathTree, ROOT};
use value::{Source, Value};

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

//! Checks the parser, the loader and the evaluator on any input: nothing panics, errors have positions within their
//! text, and a rule decides the same about a document whether it is read as text or held. The fuzz target runs it on
//! the fuzzer's inputs, a test on the committed corpus.
//!
//! The input is a rule and a document, separated by a zero byte; without one it is also taken for a file of rules.

use tidewire_core::json::{self, JsonLimits};
use tidewire_rules::limits::RuleLimits;
use tidewire_rules::load;
use tidewire_rules::pattern::Pattern;
use tidewire_rules::rule::{Document, Records, Rule, Scope, User};
use tidewire_rules::tree::Tree;

const JSON: JsonLimits = JsonLimits {
    array_gap_max: usize::MAX,
    nesting_max: 16,
    bytes_max: 4_096,
};
/// A document for rules that come without one.
const DOCUMENT: &str =
    r#"{"a":{"b":[1,"x",null,-0,1e400]},"t":"a\ud83dé😀","n":5,"n":6,"toString":1,"":[]}"#;

/// The parts that an input reached.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// The rule was accepted.
    pub accepted: bool,
    /// A value came out of it.
    pub evaluated: bool,
    /// The file was accepted.
    pub loaded: bool,
}

/// Panics if the input shows a fault.
pub fn check_input(input: &str) -> Reached {
    let limits = RuleLimits {
        // Small limits, because slow inputs are not findings here.
        steps_max: 1 << 16,
        regular_bytes_max: 1 << 16,
        ..RuleLimits::default()
    };
    let (rule, document) = match input.split_once('\0') {
        Some((rule, document)) if json::check(document, JSON).is_ok() => (rule, document),
        Some((rule, _)) => (rule, DOCUMENT),
        None => (input, DOCUMENT),
    };
    let (accepted, evaluated) = check_rule(rule, document, &limits);
    if let Ok(pattern) = Pattern::parse(rule, &limits) {
        // A path without wildcards matches itself, and matching never panics.
        let is_plain = !rule.contains(['*', '$', '.']);
        assert!(!is_plain || pattern.matches(rule).is_some(), "{rule:?}");
        let _ = pattern.matches(document);
    }
    let loaded = match load::parse(input, "f", &limits) {
        Ok(_) => true,
        Err(errors) => {
            assert!(!errors.is_empty());
            // A carriage return ends a line of YAML, too.
            let ends = input.chars().filter(|letter| matches!(letter, '\n' | '\r'));
            let lines = ends.count() as u64 + 2;
            for error in errors {
                assert!(
                    (1..=lines).contains(&error.position.line),
                    "{error} in {input:?}"
                );
            }
            false
        }
    };
    Reached {
        accepted,
        evaluated,
        loaded,
    }
}

fn check_rule(text: &str, document: &str, limits: &RuleLimits) -> (bool, bool) {
    match Rule::parse(text, &["$id".to_owned()], limits) {
        Ok(rule) => (
            true,
            agree(&rule, document, &Tree::parse(document, 100), limits),
        ),
        Err(error) => {
            assert!(
                error.offset <= text.len(),
                "{error} at {} of {text:?}",
                error.offset
            );
            (false, false)
        }
    }
}

/// Panics if the rule sees something else in the document's tree than in its text; whether it sees anything.
pub fn agree(rule: &Rule, document: &str, tree: &Tree, limits: &RuleLimits) -> bool {
    let [text, held] = [Document::Text(document), Document::Held(tree)].map(|data| {
        let scope = Scope {
            user: User { id: "ann", data },
            data,
            old_data: data,
            now: 1,
            action: 1,
            name: Some("a/b"),
            variables: &["x"],
        };
        rule.show(&scope, &Same(data), limits)
    });
    // Scanning text costs steps that a tree does not, so only one of them may have failed for want of them.
    if text.is_some() && held.is_some() {
        assert_eq!(text, held, "{:?} on {document:?}", rule.text());
    }
    text.is_some()
}

/// Every record is the same document.
struct Same<'v>(Document<'v>);

impl<'v> Records<'v> for Same<'v> {
    fn find(&self, _: &str) -> Option<Document<'v>> {
        Some(self.0)
    }

    fn count(&self) -> usize {
        1
    }
}

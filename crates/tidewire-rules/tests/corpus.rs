//! The fuzzer's committed corpus of rules, replayed, and the seeds that it grew from.

#[path = "../../../fuzz/src/corpus.rs"]
mod archive;
#[path = "../../tidewire-wire/tests/codec/harness/mutate.rs"]
mod mutate;
mod rule_check;

use tidewire_rules::limits::RuleLimits;
use tidewire_rules::rule::Rule;
use tidewire_rules::tree::Tree;

/// The patch `rules-first-key` is found after a few thousand.
const MUTATIONS: usize = 20_000;

/// The texts of the corpus; like the fuzz target, it skips inputs that are not UTF-8.
fn inputs() -> Vec<String> {
    let inputs = archive::read("rules").expect("the corpus is in the repository");
    inputs
        .into_iter()
        .filter_map(|(_, input)| String::from_utf8(input).ok())
        .collect()
}

#[test]
fn corpus_passes_and_reaches_everything() {
    let (mut replayed, mut accepted, mut evaluated, mut loaded) = (0, 0, 0, 0);
    for input in inputs() {
        let reached = rule_check::check_input(&input);
        replayed += 1;
        accepted += usize::from(reached.accepted);
        evaluated += usize::from(reached.evaluated);
        loaded += usize::from(reached.loaded);
    }
    println!("{replayed} inputs: {accepted} rules, {evaluated} with a value, {loaded} files");
    assert!(replayed > 100, "only {replayed} inputs");
    assert!(
        accepted > 60 && evaluated > 40 && loaded >= 3,
        "{accepted} {evaluated} {loaded}"
    );
}

#[test]
#[should_panic(expected = "on \"{")]
fn a_difference_between_text_and_tree_is_found() {
    let limits = RuleLimits::default();
    let rule = Rule::parse("data.a", &[], &limits).expect("valid");
    rule_check::agree(&rule, r#"{"a":1}"#, &Tree::parse(r#"{"a":2}"#, 10), &limits);
}

#[test]
fn mutations_of_the_corpus_find_nothing() {
    let inputs: Vec<Vec<u8>> = inputs().into_iter().map(String::into_bytes).collect();
    let mut mutator = mutate::Mutator::new(inputs, 1);
    for _ in 0..MUTATIONS {
        if let Ok(input) = String::from_utf8(mutator.next_input()) {
            rule_check::check_input(&input);
        }
    }
}

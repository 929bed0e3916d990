//! The fuzzer's committed corpus of rules, replayed, and the seeds that it grew from.

#[path = "../../../fuzz/src/corpus.rs"]
mod archive;
#[cfg(feature = "fuzzing")]
#[path = "../../tidewire-wire/tests/codec/harness/mutate.rs"]
mod mutate;
mod rule_judge;

use tidewire_rules::limits::RuleLimits;
use tidewire_rules::rule::Rule;
use tidewire_rules::tree::Tree;

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
        let reached = rule_judge::judge(&input);
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
fn judge_finds_a_difference_between_text_and_tree() {
    let limits = RuleLimits::default();
    let rule = Rule::parse("data.a", &[], &limits).expect("valid");
    rule_judge::agree(&rule, r#"{"a":1}"#, &Tree::parse(r#"{"a":2}"#, 10), &limits);
}

/// Only with the feature, since there is nothing to be found without it.
#[cfg(feature = "fuzzing")]
#[test]
fn mutations_of_the_corpus_find_a_planted_fault() {
    use tidewire_core::planted_fault::plant;
    let is_found = |input: &[u8]| {
        let is_wrong = |input| std::panic::catch_unwind(|| rule_judge::judge(input)).is_err();
        str::from_utf8(input).is_ok_and(is_wrong)
    };
    let inputs: Vec<Vec<u8>> = inputs().into_iter().map(String::into_bytes).collect();
    plant(Some("rules-first-key"));
    let found = mutate::hunt(inputs, 50_000, is_found);
    plant(None);
    println!(
        "found after {} mutations",
        found.expect("the fault is found")
    );
}

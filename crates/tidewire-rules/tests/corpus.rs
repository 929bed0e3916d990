//! The fuzzer's committed corpus of rules, replayed, and the seeds that it grew from.

mod rule_judge;

use std::fs;
use std::path::{Path, PathBuf};

use tidewire_rules::limits::RuleLimits;
use tidewire_rules::rule::Rule;
use tidewire_rules::tree::Tree;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/rules")
}

#[test]
fn corpus_passes_and_reaches_everything() {
    let (mut replayed, mut accepted, mut evaluated, mut loaded) = (0, 0, 0, 0);
    for entry in fs::read_dir(corpus()).expect("the corpus is in the repository") {
        let input = fs::read(entry.expect("an entry of the corpus").path()).expect("readable");
        // The fuzz target skips what is not UTF-8, too.
        if let Ok(input) = str::from_utf8(&input) {
            let reached = rule_judge::judge(input);
            replayed += 1;
            accepted += usize::from(reached.accepted);
            evaluated += usize::from(reached.evaluated);
            loaded += usize::from(reached.loaded);
        }
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

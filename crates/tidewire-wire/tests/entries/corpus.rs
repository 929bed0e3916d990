//! The fuzzer's committed corpus, replayed, and mutations of it. `e2e/faults` shows that they find the planted fault.

#[path = "../../../../fuzz/src/corpus.rs"]
mod archive;
#[path = "../codec/harness/mutate.rs"]
mod mutate;
#[path = "../shared/replay.rs"]
mod replay;

use crate::check::finding;

/// A few seconds in a debug build.
const MUTATIONS: usize = 30_000;

fn inputs() -> Vec<Vec<u8>> {
    let inputs = archive::read("entries").expect("the corpus is in the repository");
    inputs.into_iter().map(|(_, input)| input).collect()
}

#[test]
fn corpus_passes() {
    let inputs = inputs();
    assert!(inputs.len() > 100);
    for input in &inputs {
        assert_eq!(finding(input), None, "{input:02x?}");
    }
}

#[test]
fn mutations_of_the_corpus_find_nothing() {
    replay::check_mutations(inputs(), MUTATIONS, finding);
}

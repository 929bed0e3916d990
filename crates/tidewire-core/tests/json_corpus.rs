//! The fuzzer's committed corpus for JSON, replayed.

mod json_judge;

use std::fs;
use std::path::Path;

#[test]
fn corpus_passes() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/json");
    let mut replayed = 0;
    for entry in fs::read_dir(corpus).expect("the corpus is in the repository") {
        let input = fs::read(entry.expect("an entry of the corpus").path()).expect("readable");
        // The fuzz target skips what is not UTF-8, too.
        if let Ok(input) = str::from_utf8(&input) {
            json_judge::judge(input);
            replayed += 1;
        }
    }
    assert!(replayed > 100, "only {replayed} inputs");
}

#[test]
#[should_panic(expected = "the same patch again changes nothing")]
fn judge_finds_a_wrong_result() {
    let path = tidewire_core::json::Path::parse("a").expect("a path");
    json_judge::promise(r#"{"b":1}"#, &path, Some("1"), r#"{"b":1,"a":2}"#);
}

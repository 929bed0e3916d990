//! Runs the JSON checks on the fuzzer's committed corpus.

#[path = "../../../fuzz/src/corpus.rs"]
mod corpus;
mod json_judge;
#[cfg(feature = "fuzzing")]
#[path = "../../tidewire-wire/tests/codec/harness/mutate.rs"]
mod mutate;

/// The texts of the corpus. Like the fuzz target, this skips inputs that are not UTF-8.
fn inputs() -> Vec<String> {
    let inputs = corpus::read("json").expect("the corpus is in the repository");
    inputs
        .into_iter()
        .filter_map(|(_, input)| String::from_utf8(input).ok())
        .collect()
}

#[test]
fn corpus_passes() {
    let inputs = inputs();
    for input in &inputs {
        json_judge::judge(input);
    }
    assert!(inputs.len() > 100, "only {} inputs", inputs.len());
}

#[test]
#[should_panic(expected = "the same patch again changes nothing")]
fn judge_finds_a_wrong_result() {
    let path = tidewire_core::json::Path::parse("a").expect("a path");
    json_judge::promise(r#"{"b":1}"#, &path, Some("1"), r#"{"b":1,"a":2}"#);
}

/// Needs the feature, because only then does the engine contain the planted fault.
#[cfg(feature = "fuzzing")]
#[test]
fn mutations_of_the_corpus_find_a_planted_fault() {
    use tidewire_core::planted_fault::plant;
    let is_found = |input: &[u8]| {
        str::from_utf8(input)
            .is_ok_and(|input| std::panic::catch_unwind(|| json_judge::judge(input)).is_err())
    };
    let inputs: Vec<Vec<u8>> = inputs().into_iter().map(String::into_bytes).collect();
    plant(Some("json-zero"));
    let found = mutate::hunt(inputs, 50_000, is_found);
    plant(None);
    println!(
        "found after {} mutations",
        found.expect("the fault is found")
    );
}

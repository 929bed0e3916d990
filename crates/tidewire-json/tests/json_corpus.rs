//! Runs the JSON checks on the fuzzer's committed corpus.

#[path = "../../../fuzz/src/corpus.rs"]
mod corpus;
mod json_check;
#[path = "../../tidewire-wire/tests/codec/harness/mutate.rs"]
mod mutate;

/// Many times the number that finds the patch `json-zero`.
const MUTATIONS: usize = 20_000;

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
        json_check::check_input(input);
    }
    assert!(inputs.len() > 100, "only {} inputs", inputs.len());
}

#[test]
#[should_panic(expected = "the same patch again changes nothing")]
fn a_wrong_result_is_found() {
    let path = tidewire_json::Path::parse("a").expect("a path");
    json_check::promise(r#"{"b":1}"#, &path, Some("1"), r#"{"b":1,"a":2}"#);
}

#[test]
fn mutations_of_the_corpus_find_nothing() {
    let inputs: Vec<Vec<u8>> = inputs().into_iter().map(String::into_bytes).collect();
    let mut mutator = mutate::Mutator::new(inputs, 1);
    for _ in 0..MUTATIONS {
        if let Ok(input) = String::from_utf8(mutator.next_input()) {
            json_check::check_input(&input);
        }
    }
}

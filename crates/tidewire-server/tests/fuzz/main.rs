//! Runs the checks of the fuzz targets as ordinary tests. The committed corpora pass and reach every listed place, and mutations of
//! them find nothing. `e2e/faults` shows that the mutations find each planted fault.

#[path = "../../../../fuzz/src/corpus.rs"]
mod archive;
mod check;
#[path = "../../../tidewire-wire/tests/codec/harness/mutate.rs"]
mod mutate;

use std::panic::catch_unwind;

use check::{Reached, Target};
use mutate::Mutator;

/// Mutations of the corpus, and as many of the seeds. A planted fault takes a few thousand mutations of the seeds.
const MUTATIONS: usize = 20_000;
/// Small enough to clone the corpus and to replay it in seconds.
const CORPUS_BYTES_MAX: usize = 1 << 20;

/// The committed corpus in the order of its names, then the current seeds.
fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let committed = archive::read(target.name).expect("the corpus is in the repository");
    let inputs = committed.into_iter().map(|(_, input)| input);
    inputs.chain((target.seeds)()).collect()
}

fn replay(target: &Target) {
    let inputs = corpus(target);
    let bytes: usize = inputs.iter().map(Vec::len).sum();
    assert!(bytes <= CORPUS_BYTES_MAX, "{bytes} bytes");
    let mut reached = Reached::new();
    let mut wrong = 0;
    for input in &inputs {
        match catch_unwind(|| (target.check_input)(input)) {
            Ok(branches) => reached.extend(branches),
            Err(_) => {
                println!("above: {:?}", String::from_utf8_lossy(input));
                wrong += 1;
            }
        }
    }
    assert_eq!(wrong, 0, "inputs show a fault");
    let missing: Vec<_> = target
        .reachable
        .iter()
        .filter(|branch| !reached.contains(*branch))
        .collect();
    assert!(missing.is_empty(), "no input reaches {missing:?}");
    let unknown: Vec<_> = reached
        .iter()
        .filter(|branch| !target.reachable.contains(branch))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?} is in no list");
    println!("{} inputs reach all {}", inputs.len(), reached.len());
}

fn is_found(target: &Target, input: &[u8]) -> bool {
    catch_unwind(|| drop((target.check_input)(input))).is_err()
}

fn mutate(target: &Target) {
    // Most inputs of the corpus were found without a fault and are far from one, so the seeds are mutated as well.
    for inputs in [corpus(target), (target.seeds)()] {
        let mut mutator = Mutator::new(inputs, 1);
        let mut wrong = 0;
        for _ in 0..MUTATIONS {
            let input = mutator.next_input();
            if is_found(target, &input) {
                println!("above: {:?}", String::from_utf8_lossy(&input));
                wrong += 1;
            }
        }
        assert_eq!(wrong, 0, "mutations show a fault");
    }
}

#[test]
fn jwt_corpus_passes_and_reaches_everything() {
    replay(&check::jwt::TARGET);
}

#[test]
fn jwt_mutations_find_nothing() {
    mutate(&check::jwt::TARGET);
}

#[test]
fn api_corpus_passes_and_reaches_everything() {
    replay(&check::api::TARGET);
}

#[test]
fn api_mutations_find_nothing() {
    mutate(&check::api::TARGET);
}

#[test]
fn json_patch_corpus_passes_and_reaches_everything() {
    replay(&check::json_patch::TARGET);
}

#[test]
fn json_patch_mutations_find_nothing() {
    mutate(&check::json_patch::TARGET);
}

#[test]
fn config_corpus_passes_and_reaches_everything() {
    replay(&check::config::TARGET);
}

#[test]
fn config_mutations_find_nothing() {
    mutate(&check::config::TARGET);
}

#[test]
fn client_address_corpus_passes_and_reaches_everything() {
    replay(&check::client_address::TARGET);
}

#[test]
fn client_address_mutations_find_nothing() {
    mutate(&check::client_address::TARGET);
}

#[test]
fn every_target_is_here() {
    for target in check::TARGETS {
        assert!(!target.reachable.is_empty(), "{}", target.name);
    }
}

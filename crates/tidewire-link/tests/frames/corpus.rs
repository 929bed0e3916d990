//! The fuzzer's committed corpus, replayed, and mutations of it. `e2e/faults` shows that they find the planted faults.

#[path = "../../../../fuzz/src/corpus.rs"]
mod archive;
#[path = "../../../tidewire-wire/tests/codec/harness/mutate.rs"]
mod mutate;
#[path = "../../../tidewire-wire/tests/shared/replay.rs"]
mod replay;

use std::time::Duration;

use tidewire_core::time::Instant;
use tidewire_link::frame::Process;
use tidewire_link::link::{Config, Link, Output};

use crate::check::{LOCAL, Operation, PEER, config, finding};

/// A few seconds in a debug build.
const MUTATIONS: usize = 10_000;

fn inputs() -> Vec<Vec<u8>> {
    let inputs = archive::read("links").expect("the corpus is in the repository");
    inputs.into_iter().map(|(_, input)| input).collect()
}

#[test]
fn corpus_passes() {
    let inputs = inputs();
    assert!(inputs.len() >= 20);
    for input in &inputs {
        assert_eq!(finding(input), None, "{input:02x?}");
    }
}

#[test]
fn mutations_of_the_corpus_find_nothing() {
    replay::check_mutations(inputs(), MUTATIONS, finding);
}

/// Writes conversations of two links to `fuzz/corpus/links`, from which the program `corpus` makes the archive.
#[test]
#[ignore = "writes the seeds of the corpus"]
fn write_seeds() {
    let folder = archive::folder().join("links");
    std::fs::create_dir_all(&folder).expect("the folder is writable");
    for seed in 0..24 {
        let mut input = Vec::new();
        for operation in conversation(seed) {
            operation.encode(&mut input);
        }
        assert_eq!(finding(&input), None, "{seed}");
        std::fs::write(folder.join(format!("seed-{seed:03}")), input).expect("a seed is written");
    }
}

/// The operations on the first of two links that talk to each other over a carrier that loses frames and breaks.
fn conversation(seed: u64) -> Vec<Operation> {
    let mut operations = Vec::new();
    let mut state = seed;
    let mut below = |bound: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    let mut now = Instant(1_000_000_000);
    let mut first = Link::new(config(), now);
    let other = |birth| Config {
        local: Process { node: PEER, birth },
        peer: LOCAL.node,
        ..config()
    };
    let mut second = Link::new(other(4), now);
    let mut delivered = 0;
    let mut act = |first: &mut Link, operation: Operation, now: Instant| {
        match &operation {
            Operation::Up => first.carrier_up(now),
            Operation::Down => first.carrier_down(now),
            Operation::Time(_) => first.handle_time(now),
            Operation::Frame(bytes) => drop(first.handle_frame(now, bytes)),
            Operation::Handled => first.handled(now, first.stats().birth, u64::MAX),
            Operation::Left => first.peer_left(now, 4),
            Operation::Post(tens) => {
                first.post(first.stats().birth, &vec![7; usize::from(*tens) * 10]);
                first.end_turn(now);
            }
        }
        operations.push(operation);
    };
    act(&mut first, Operation::Up, now);
    second.carrier_up(now);
    for round in 0..20 {
        for _ in 0..8 {
            while let Some(output) = first.poll_output() {
                if let Output::Send(bytes) = output
                    && below(10) > 0
                {
                    let _ = second.handle_frame(now, &bytes);
                }
            }
            while let Some(output) = second.poll_output() {
                match output {
                    Output::Send(bytes) if below(10) > 0 => {
                        act(&mut first, Operation::Frame(bytes), now);
                    }
                    Output::Deliver { number, .. } => delivered = number,
                    _ => {}
                }
            }
        }
        match below(8) {
            0..3 => act(&mut first, Operation::Post(1 + below(40) as u8), now),
            3..5 => {
                second.post(LOCAL.birth, &vec![9; 1 + below(400) as usize]);
                second.end_turn(now);
            }
            5 => act(&mut first, Operation::Handled, now),
            6 => second.handled(now, LOCAL.birth, delivered),
            _ if round > 12 && below(2) == 0 => {
                second = Link::new(other(5 + round), now);
                second.carrier_up(now);
            }
            _ => {
                act(&mut first, Operation::Down, now);
                act(&mut first, Operation::Up, now);
                second.carrier_down(now);
                second.carrier_up(now);
            }
        }
        let millis = below(150) as u16;
        now = now + Duration::from_millis(u64::from(millis));
        act(&mut first, Operation::Time(millis), now);
        second.handle_time(now);
    }
    act(&mut first, Operation::Left, now);
    operations
}

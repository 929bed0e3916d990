//! The fuzzer's committed corpus, replayed: every input passes all checks, and together they reach every action of
//! every topic, read by its receiving side, in protobuf and in JSON.

#[path = "../../../../fuzz/src/corpus.rs"]
mod archive;

use crate::harness::{Reached, check};

/// The corpus stays small enough to clone and to replay in seconds.
const CORPUS_BYTES_MAX: usize = 2 << 20;

/// By topic: the actions that a server reads, and those that a client reads.
const ACTIONS: [(u32, &[u32], &[u32]); 6] = [
    (2, &[2, 5], &[3, 4, 6, 7, 100, 101]),
    (3, &[2], &[3, 4, 100, 101, 102]),
    (
        4,
        &[2, 3, 4, 5, 6, 7, 8],
        &[2, 3, 4, 5, 6, 11, 12, 100, 101, 103, 104, 105, 106, 120],
    ),
    (
        5,
        &[
            2, 3, 5, 9, 16, 17, 18, 19, 20, 21, 22, 23, 25, 26, 27, 28, 29, 30, 35,
        ],
        &[
            2, 4, 6, 8, 10, 13, 14, 18, 19, 21, 22, 23, 25, 26, 27, 28, 31, 32, 33, 34, 35, 100,
            101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 113, 114, 115, 116, 117,
        ],
    ),
    (
        6,
        &[2, 4, 5, 6, 7, 8, 9],
        &[
            2, 4, 5, 7, 8, 9, 100, 101, 102, 103, 104, 106, 107, 108, 109,
        ],
    ),
    (
        7,
        &[2, 4, 10, 11, 12, 13],
        &[3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 100, 101, 102, 103],
    ),
];

/// The inputs with their names, in the order of the names.
pub fn inputs() -> Vec<(String, Vec<u8>)> {
    archive::read("decode").expect("the corpus is in the repository")
}

#[test]
fn corpus_passes_and_reaches_every_action() {
    let inputs = inputs();
    let mut reached = Reached::new();
    for (name, input) in &inputs {
        // Names the input if a check panics; shown only then.
        println!("{name}");
        reached.extend(check(input));
    }
    let mut missing = Vec::new();
    let mut actions = 0;
    for (topic, to_server, to_client) in ACTIONS {
        let readers = [
            ("server", to_server),
            ("client", to_client),
            ("json server", to_server),
            ("json client", to_client),
        ];
        for (reader, known) in readers {
            for action in known.iter().map(|action| (reader, topic, *action)) {
                actions += 1;
                if !reached.contains(&action) {
                    missing.push(action);
                }
            }
        }
    }
    assert_eq!(missing, [], "actions that no input of the corpus reaches");
    println!("{} inputs reach all {actions} actions", inputs.len());
}

#[test]
fn corpus_is_small() {
    let bytes: usize = inputs().iter().map(|(_, input)| input.len()).sum();
    assert!(bytes <= CORPUS_BYTES_MAX, "{bytes} bytes");
}

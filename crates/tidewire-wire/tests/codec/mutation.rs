//! Mutations of the corpus find no fault in the codecs. `e2e/faults` shows that they find each planted one.

#[path = "../shared/replay.rs"]
mod replay;

use crate::corpus;
use crate::harness::mutate;
use crate::harness::{Input, check, finding};
use tidewire_wire::frame::websocket::Role;

/// Enough to find each fault many times over, a few seconds in a debug build.
const MUTATIONS: usize = 100_000;

fn inputs() -> Vec<Vec<u8>> {
    corpus::inputs()
        .into_iter()
        .map(|(_, input)| input)
        .collect()
}

#[test]
fn mutations_of_the_corpus_find_nothing() {
    replay::check_mutations(inputs(), MUTATIONS, finding);
}

#[test]
fn costliest_message_stays_within_the_allocation_limit() {
    let mut body = vec![0x08, 3];
    body.extend([0x3A, 0].repeat(20_000));
    let mut envelope = vec![0x10, 4, 0x1A];
    envelope.extend(length_prefix(body.len()));
    envelope.extend(body);
    let mut payload = length_prefix(envelope.len());
    payload.extend(envelope);
    let input = Input::seed(Role::Server, &payload);
    assert_eq!(check(&input), [("server", 4, 3)].into());
    assert_eq!(finding(&input), None);
}

#[test]
fn costliest_text_stays_within_the_allocation_limit() {
    let names = ["\"\""; 20_000].join(",");
    let text = format!("{{\"topic\":4,\"action\":3,\"names\":[{names}]}}");
    let input = Input::text_seed(Role::Server, &text);
    assert_eq!(check(&input), [("json server", 4, 3)].into());
    assert_eq!(finding(&input), None);
    let positions = ["{}"; 20_000].join(",");
    let text = format!("{{\"topic\":4,\"action\":3,\"positions\":[{positions}]}}");
    assert_eq!(finding(&Input::text_seed(Role::Server, &text)), None);
    for deep in ["[".repeat(60_000), "[".repeat(30_000) + &"]".repeat(30_000)] {
        assert_eq!(finding(&Input::text_seed(Role::Server, &deep)), None);
    }
}

/// A length as a three-byte varint.
fn length_prefix(length: usize) -> Vec<u8> {
    vec![
        length as u8 | 0x80,
        (length >> 7) as u8 | 0x80,
        (length >> 14) as u8,
    ]
}

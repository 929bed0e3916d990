//! The cost of one EVENT EMIT in the codecs, in nanoseconds, medians of several rounds.
//! Run with `cargo run --release -p tidewire-wire --example codec_cost`.

use std::hint::black_box;
use std::time::Instant;

use tidewire_core::message::{Event, Message};
use tidewire_wire::frame::websocket::{Decoder, Role};
use tidewire_wire::protocol::deepstream::{Deepstream, Dialect};

const MESSAGES: usize = 20_000;
const ROUNDS: usize = 21;

fn main() {
    println!("data bytes  frame decode  message decode  encode to frame");
    for data_bytes in [16, 128, 1024, 16_384] {
        let text = format!("\"{}\"", "x".repeat(data_bytes - 2));
        let message = Message::Event(Event::publication("benchmark/event", Some(&text)));
        let (mut frame, mut payload) = (Vec::new(), Vec::new());
        Deepstream::encode_masked_frame(&message, [1, 2, 3, 4], &mut frame);
        Deepstream::encode(Dialect::Server, &message, &mut payload);
        println!(
            "{data_bytes:>10}  {:>12.0}  {:>14.0}  {:>15.0}",
            median(|| decode_frames(&frame)),
            median(|| decode_messages(&payload)),
            median(|| encode_frames(&message)),
        );
    }
}

/// The median over the rounds of what `measure` returns for all messages, in nanoseconds per message.
fn median(mut measure: impl FnMut() -> f64) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| measure() / MESSAGES as f64).collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

/// Finds and unmasks every frame of a stream of equal ones. The stream is built again each time, outside of the
/// measurement, because unmasking changes it.
fn decode_frames(frame: &[u8]) -> f64 {
    let mut stream = frame.repeat(MESSAGES);
    let mut rest = &mut stream[..];
    let mut decoder = Decoder::new(Role::Server);
    let start = Instant::now();
    for _ in 0..MESSAGES {
        let consumed = match decoder.decode(rest, frame.len()) {
            Ok(decoded) => black_box(decoded).consumed,
            Err(error) => panic!("our own frame: {error}"),
        };
        rest = &mut rest[consumed..];
    }
    start.elapsed().as_nanos() as f64
}

fn decode_messages(payload: &[u8]) -> f64 {
    let start = Instant::now();
    for _ in 0..MESSAGES {
        black_box(Deepstream::decode(black_box(payload))).expect("our own message");
    }
    start.elapsed().as_nanos() as f64
}

fn encode_frames(message: &Message<'_>) -> f64 {
    let mut log = Vec::with_capacity(1 << 20);
    let start = Instant::now();
    for _ in 0..MESSAGES {
        if log.len() > 1 << 19 {
            log.clear();
        }
        Deepstream::encode_frame(Dialect::Client, black_box(message), &mut log);
    }
    start.elapsed().as_nanos() as f64
}

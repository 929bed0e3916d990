//! What compression of one message saves and costs, by its size: the table of docs/decisions/0007. The quickest of several
//! rounds. Run with `cargo run --release -p tidewire-wire --example deflate_cost`.

use std::hint::black_box;
use std::time::Instant;

use tidewire_wire::frame::deflate::{Deflater, Inflater};
use tidewire_wire::frame::websocket::{self, Decoder, Opcode, Role};

const MESSAGES: usize = 200;
const ROUNDS: usize = 21;

fn main() {
    println!("bytes  plain frame  compressed  left  deflate us  inflate us");
    for bytes in [
        100, 155, 256, 384, 512, 768, 1024, 2500, 3100, 16_384, 65_536,
    ] {
        let messages: Vec<Vec<u8>> = (0..MESSAGES as u64)
            .map(|number| ticks(number * 1000, bytes).into_bytes())
            .collect();
        let (mut plain, mut deflated) = (Vec::new(), Vec::new());
        for message in &messages {
            websocket::encode(Opcode::Binary, message, &mut plain);
            if !Deflater::default().encode_frame(Opcode::Binary, message, &mut deflated) {
                websocket::encode(Opcode::Binary, message, &mut deflated);
            }
        }
        println!(
            "{bytes:>5}  {:>11}  {:>10}  {:>3.0}%  {:>10.1}  {:>10.1}",
            plain.len() / MESSAGES,
            deflated.len() / MESSAGES,
            100.0 * deflated.len() as f64 / plain.len() as f64,
            quickest(|| deflate(&messages)),
            quickest(|| inflate(&deflated, bytes)),
        );
    }
}

/// The least of what `measure` returns for all messages, in microseconds per message.
fn quickest(mut measure: impl FnMut() -> f64) -> f64 {
    let rounds = (0..ROUNDS).map(|_| measure() / MESSAGES as f64);
    rounds.fold(f64::INFINITY, f64::min) / 1000.0
}

fn deflate(messages: &[Vec<u8>]) -> f64 {
    let mut deflater = Deflater::default();
    let mut out = Vec::with_capacity(1 << 20);
    let start = Instant::now();
    for message in messages {
        out.clear();
        black_box(deflater.encode_frame(Opcode::Binary, black_box(message), &mut out));
    }
    start.elapsed().as_nanos() as f64
}

fn inflate(stream: &[u8], bytes_max: usize) -> f64 {
    let mut stream = stream.to_vec();
    let mut rest = &mut stream[..];
    let mut decoder = Decoder::with_deflate(Role::Client);
    let mut inflater = Inflater::default();
    let start = Instant::now();
    while !rest.is_empty() {
        let decoded = decoder
            .decode_inflated(rest, bytes_max, &mut inflater)
            .expect("our own frame");
        let consumed = black_box(decoded).consumed;
        rest = &mut rest[consumed..];
    }
    start.elapsed().as_nanos() as f64
}

/// JSON of a ticker, cut to `bytes`: prices of instruments, each of 155 bytes.
fn ticks(number: u64, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 200);
    for index in number.. {
        if text.len() >= bytes {
            break;
        }
        let noise = index.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
        let price = |cents: u64| format!("{}.{:02}", 100 + cents / 100 % 900, cents % 100);
        text.push_str(&format!(
            "{{\"id\":{},\"symbol\":\"SYM{:03}\",\"bid\":{},\"ask\":{},\"last\":{},\"open\":{},\"volume\":{},\"time\":{},\"venue\":\"XETR\",\"currency\":\"EUR\"}}",
            100_000 + noise % 900_000,
            noise % 50,
            price(noise % 70_000),
            price(noise % 70_000 + 3),
            price(noise % 70_000 + 1),
            price(noise % 50_000),
            1_000_000 + noise % 9_000_000,
            1_795_000_000_000 + index * 137,
        ));
    }
    text.truncate(bytes);
    text
}

//! Checks that must hold for any bytes, shared by the tests and the fuzz target. An input is a seed for the cuts and a stream of batches.

#[path = "../../shared/panics.rs"]
mod panics;

use std::sync::Arc;

use tidewire_core::permission::{AllowAll, Permission};
use tidewire_wire::entry::{DecodeError, DecodeLimits, Decoder, Post, begin_batch, encode};

pub const LIMITS: DecodeLimits = DecodeLimits {
    post_bytes_max: 1 << 16,
    pattern_bytes_max: 64,
};

/// What decoding may allocate for one byte of input. The costliest input is a list of absent payloads: two bytes each, for which a growing
/// list holds 32, twice while it grows.
const ALLOCATED_BYTES_PER_INPUT_BYTE: u64 = 64;

/// What decoding may allocate for no reason of length: the compilation of a pattern.
const ALLOCATED_BYTES_BASE: u64 = 4 << 20;

/// The rules of each change up to this one are known.
const RULES_MAX: u64 = 1_000;

/// The posts of a stream, and the error with which it ends.
pub fn decode<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    limits: DecodeLimits,
) -> (Vec<Post>, Option<DecodeError>) {
    let rules = |number| (number <= RULES_MAX).then(|| Arc::new(AllowAll) as Arc<dyn Permission>);
    let mut decoder = Decoder::new(limits);
    let mut posts = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        loop {
            match decoder.decode(&rules) {
                Ok(Some(post)) => posts.push(post),
                Ok(None) => break,
                Err(error) => return (posts, Some(error)),
            }
        }
    }
    (posts, None)
}

/// The bytes of posts, in one batch.
pub fn batch(posts: &[Post]) -> Vec<u8> {
    let mut bytes = Vec::new();
    begin_batch(&mut bytes);
    for post in posts {
        encode(post, &mut bytes);
    }
    bytes
}

/// The failed check of an input, if one fails.
pub fn finding(input: &[u8]) -> Option<String> {
    panics::failure(|| check(input))
}

fn check(input: &[u8]) -> Result<(), String> {
    let Some((&seed, stream)) = input.split_first() else {
        return Ok(());
    };
    let mut whole = None;
    let allocated = allocation_counter::measure(|| whole = Some(decode([stream], LIMITS)));
    let (posts, error) = whole.expect("the stream was decoded");
    let allowed = ALLOCATED_BYTES_BASE + ALLOCATED_BYTES_PER_INPUT_BYTE * stream.len() as u64;
    if allocated.bytes_max > allowed {
        let bytes = allocated.bytes_max;
        return Err(format!(
            "{bytes} bytes were allocated, allowed are {allowed}"
        ));
    }
    // Entries can't be compared, but their bytes can.
    let bytes = batch(&posts);
    let (again, failed) = decode([&bytes[..]], LIMITS);
    if failed.is_some() || again.len() != posts.len() || batch(&again) != bytes {
        return Err(format!("{posts:?} came back as {again:?} and {failed:?}"));
    }
    let pieces = cut(stream, seed);
    let (split, split_error) = decode(pieces.iter().copied(), LIMITS);
    if split_error != error || split.len() != posts.len() || batch(&split) != bytes {
        let lens: Vec<usize> = pieces.iter().map(|piece| piece.len()).collect();
        return Err(format!(
            "cut into {lens:?}: {split_error:?}, whole: {error:?}"
        ));
    }
    Ok(())
}

/// Pieces of 0 to 7 bytes, or of one size.
fn cut(mut stream: &[u8], seed: u8) -> Vec<&[u8]> {
    let mut random = u32::from(seed) + 1;
    let mut pieces = Vec::new();
    while !stream.is_empty() {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let size = match seed {
            0 => 1,
            _ => (random >> 28) as usize & 7,
        };
        let (piece, rest) = stream.split_at(size.min(stream.len()));
        pieces.push(piece);
        stream = rest;
    }
    pieces
}

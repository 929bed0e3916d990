//! The regular expression of a pattern, whose size is bounded.

use regex::{Regex, RegexBuilder};

/// Bytes that a compiled pattern may take; matching may keep the same number of bytes again. Larger patterns are refused like malformed
/// ones. Names are usually matched by texts, `.*` and small classes, which take a tenth of this. A pattern of this size compiles in at most
/// a millisecond, and one of sixteen times the size took seven.
const PATTERN_BYTES_MAX: usize = 64 << 10;

/// A pattern that compiles to fewer bytes is matched in one step, a larger one in [`LARGE_WEIGHT`] steps.
const SMALL_PATTERN_BYTES: usize = 8 << 10;

/// Steps of a search for providers that a large pattern takes for each name.
const LARGE_WEIGHT: u8 = 8;

/// Compiles a pattern. It is matched anywhere in the name, in linear time, so it can't have look-around or back-references. Also returns
/// the steps that a match takes.
pub(super) fn compile(pattern: &str) -> Option<(Regex, u8)> {
    let compile = |bytes_max| {
        RegexBuilder::new(pattern)
            .size_limit(bytes_max)
            .dfa_size_limit(PATTERN_BYTES_MAX)
            .nest_limit(64)
            .build()
            .ok()
    };
    let small = compile(SMALL_PATTERN_BYTES).map(|regex| (regex, 1));
    small.or_else(|| Some((compile(PATTERN_BYTES_MAX)?, LARGE_WEIGHT)))
}

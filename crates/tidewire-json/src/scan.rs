//! Finds where strings, values and the entries of containers begin and end.
//!
//! It serves text that [`super::check`] has accepted and does not check it again. On any other text it answers
//! [`Malformed`] or a meaningless place, but it never panics and always ends.

use std::ops::Range;

/// The text is not JSON at the place where the scanner looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The byte at `at`, or 0 behind the end; outside of strings, 0 is not JSON.
#[inline]
pub(crate) fn peek(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

/// Where the white space that starts at `at` ends.
#[inline]
pub(crate) fn skip_space(bytes: &[u8], mut at: usize) -> usize {
    while matches!(peek(bytes, at), b' ' | b'\n' | b'\r' | b'\t') {
        at += 1;
    }
    at
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// Marks the bytes of `word` that equal `byte`. Exact for the lowest mark; marks above it may be wrong.
#[inline]
const fn equal_bytes(word: u64, byte: u8) -> u64 {
    bytes_below(word ^ (ONES * byte as u64), 1)
}

/// Marks the bytes of `word` below `limit` (at most 128). Exact for the lowest mark; marks above it may be wrong.
#[inline]
const fn bytes_below(word: u64, limit: u8) -> u64 {
    word.wrapping_sub(ONES * limit as u64) & !word & HIGHS
}

/// Where the first byte from `at` on is that `marks` marks, or the text's length. Eight bytes a step: one step
/// covers most keys and short values.
#[inline]
fn find(bytes: &[u8], mut at: usize, marks: impl Fn(u64) -> u64) -> usize {
    let mut rest = bytes.get(at..).unwrap_or_default();
    while let Some((chunk, after)) = rest.split_first_chunk::<8>() {
        let hits = marks(u64::from_le_bytes(*chunk));
        if hits != 0 {
            return at + hits.trailing_zeros() as usize / 8;
        }
        at += 8;
        rest = after;
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let hits = marks(u64::from_le_bytes(last));
    (at + hits.trailing_zeros() as usize / 8).min(bytes.len())
}

/// Where the next quote or backslash is.
#[inline]
fn find_quote(bytes: &[u8], at: usize) -> usize {
    find(bytes, at, |word| {
        equal_bytes(word, b'"') | equal_bytes(word, b'\\')
    })
}

/// Position of the next byte that a string must escape or that ends it: quote, backslash, control character.
#[inline]
pub(crate) fn find_special(bytes: &[u8], at: usize) -> usize {
    find(bytes, at, |word| {
        equal_bytes(word, b'"') | equal_bytes(word, b'\\') | bytes_below(word, 0x20)
    })
}

/// Where the next quote or bracket of either kind is. Bit 0x20 is all that differs between `[` and `{`, `]` and `}`.
#[inline]
fn find_structure(bytes: &[u8], at: usize) -> usize {
    find(bytes, at, |word| {
        let folded = word | (ONES * 0x20);
        equal_bytes(word, b'"') | equal_bytes(folded, b'{') | equal_bytes(folded, b'}')
    })
}

/// A string literal of a source text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RawString {
    /// The text between the quotes.
    pub inner: Range<usize>,
    /// Whether it has escapes.
    pub escaped: bool,
}

impl RawString {
    /// The string whose opening quote is at `at`.
    #[inline]
    pub fn scan(bytes: &[u8], at: usize) -> Result<Self, Malformed> {
        if peek(bytes, at) != b'"' {
            return Err(Malformed);
        }
        let start = at + 1;
        let mut end = find_quote(bytes, start);
        let mut escaped = false;
        while peek(bytes, end) == b'\\' {
            escaped = true;
            end = find_quote(bytes, end + 2);
        }
        if peek(bytes, end) != b'"' {
            return Err(Malformed);
        }
        Ok(Self {
            inner: start..end,
            escaped,
        })
    }

    /// The place behind the closing quote.
    pub fn end(&self) -> usize {
        self.inner.end + 1
    }
}

/// The place behind the container whose opening bracket is at `at`. Most of a patch's time is spent here, passing
/// over what the path does not touch, so it takes 64 bytes a step and looks at single brackets only where the
/// container may end.
pub(crate) fn container_end(bytes: &[u8], at: usize) -> Result<usize, Malformed> {
    let mut rest = bytes.get(at..).unwrap_or_default();
    let mut done = at;
    let mut strings = StringMask::default();
    let mut open = 0;
    while !rest.is_empty() {
        let mut padded = [0; 64];
        let (block, after) = rest.split_first_chunk::<64>().unwrap_or_else(|| {
            padded[..rest.len()].copy_from_slice(rest);
            (&padded, &[])
        });
        let outside = !strings.advance(block);
        let opening = mark(block, |byte| byte | 0x20 == b'{') & outside;
        let closing = mark(block, |byte| byte | 0x20 == b'}') & outside;
        if open > closing.count_ones() {
            open = open + opening.count_ones() - closing.count_ones();
        } else {
            let mut brackets = opening | closing;
            while brackets != 0 {
                let bracket = brackets & brackets.wrapping_neg();
                if opening & bracket != 0 {
                    open += 1;
                } else {
                    open = open.checked_sub(1).ok_or(Malformed)?;
                    if open == 0 {
                        return Ok(done + bracket.trailing_zeros() as usize + 1);
                    }
                }
                brackets ^= bracket;
            }
        }
        done += block.len();
        rest = after;
    }
    Err(Malformed)
}

/// Marks the bytes of a block for which `is_marked` holds, the first byte in the lowest bit. The loop over an array
/// becomes vector instructions; the multiplication gathers one bit of each of eight bytes.
#[inline]
fn mark(block: &[u8; 64], is_marked: impl Fn(u8) -> bool) -> u64 {
    let flags = block.map(|byte| u8::from(is_marked(byte)));
    let (words, _) = flags.as_chunks::<8>();
    let pack = |word: &[u8; 8]| u64::from_le_bytes(*word).wrapping_mul(0x0102_0408_1020_4080) >> 56;
    words
        .iter()
        .rev()
        .fold(0, |mask, word| mask << 8 | pack(word))
}

/// Knows which bytes are in strings, block after block.
#[derive(Default)]
struct StringMask {
    /// All ones if the last block ended in a string.
    inside: u64,
    /// One if the last block ended with a backslash that escapes the next byte.
    escaped: u64,
}

impl StringMask {
    /// Marks the bytes of the next block that belong to strings; of the quotes the opening ones.
    #[inline]
    fn advance(&mut self, block: &[u8; 64]) -> u64 {
        let backslashes = mark(block, |byte| byte == b'\\');
        let quotes = mark(block, |byte| byte == b'"') & !self.escapes(backslashes);
        // Bit n becomes the parity of bits 0 to n: whether the number of quotes there is odd.
        let mut inside = quotes;
        for shift in [1, 2, 4, 8, 16, 32] {
            inside ^= inside << shift;
        }
        inside ^= self.inside;
        self.inside = 0_u64.wrapping_sub(inside >> 63);
        inside
    }

    /// Marks the bytes that a backslash escapes.
    #[inline]
    fn escapes(&mut self, backslashes: u64) -> u64 {
        let mut escaped = self.escaped;
        // A backslash that is escaped itself escapes nothing.
        let mut escaping = backslashes & !escaped;
        self.escaped = 0;
        while escaping != 0 {
            let backslash = escaping & escaping.wrapping_neg();
            self.escaped = backslash >> 63;
            escaped |= backslash << 1;
            escaping &= !(backslash | backslash << 1);
        }
        escaped
    }
}

/// Nesting depth of the containers in the value that starts `bytes`; 0 if the value is not a container.
pub(crate) fn nesting(bytes: &[u8]) -> Result<usize, Malformed> {
    let mut at = 0;
    let mut open = 0_usize;
    let mut nesting = 0;
    if !is_container(bytes, 0) {
        return Ok(0);
    }
    loop {
        at = find_structure(bytes, at);
        match peek(bytes, at) {
            b'"' => at = RawString::scan(bytes, at)?.end(),
            b'{' | b'[' => {
                open += 1;
                nesting = nesting.max(open);
                at += 1;
            }
            b'}' | b']' => {
                open = open.checked_sub(1).ok_or(Malformed)?;
                at += 1;
                if open == 0 {
                    return Ok(nesting);
                }
            }
            _ => return Err(Malformed),
        }
    }
}

/// Whether a container opens at `at`.
#[inline]
pub(crate) fn is_container(bytes: &[u8], at: usize) -> bool {
    matches!(peek(bytes, at), b'{' | b'[')
}

/// The place behind the value that starts at `at`.
#[inline]
pub(crate) fn value_end(bytes: &[u8], at: usize) -> Result<usize, Malformed> {
    match peek(bytes, at) {
        b'"' => Ok(RawString::scan(bytes, at)?.end()),
        b'{' | b'[' => container_end(bytes, at),
        _ => {
            let mut end = at;
            while matches!(peek(bytes, end), b'0'..=b'9' | b'a'..=b'z' | b'.' | b'-' | b'+' | b'E')
            {
                end += 1;
            }
            if end == at { Err(Malformed) } else { Ok(end) }
        }
    }
}

/// A member of an object or an element of an array.
pub(crate) struct JsonMember {
    /// The key, in objects.
    pub key: Option<RawString>,
    /// The value's text.
    pub value: Range<usize>,
}

impl JsonMember {
    /// Where its first byte is.
    pub fn start(&self) -> usize {
        // The key's opening quote is the byte before the text between the quotes.
        self.key
            .as_ref()
            .map_or(self.value.start, |key| key.inner.start - 1)
    }
}

/// Walks the entries of one container in their order.
pub(crate) struct Entries<'a> {
    bytes: &'a [u8],
    close: u8,
    /// Entries so far.
    pub count: usize,
    /// The place behind the last entry, or behind the opening bracket if the container has no entry yet.
    pub end: usize,
}

impl<'a> Entries<'a> {
    /// The container whose opening bracket is at `at`.
    pub fn of(bytes: &'a [u8], at: usize) -> Result<Self, Malformed> {
        let close = match peek(bytes, at) {
            b'{' => b'}',
            b'[' => b']',
            _ => return Err(Malformed),
        };
        Ok(Self {
            bytes,
            close,
            count: 0,
            end: at + 1,
        })
    }

    /// The next entry, or `None` at the closing bracket.
    #[inline]
    pub fn advance(&mut self) -> Result<Option<JsonMember>, Malformed> {
        let bytes = self.bytes;
        self.advance_by(|_, start| value_end(bytes, start))
    }

    /// The next entry, whose value ends where `value_end` finds it from the key and the value's start.
    #[inline]
    pub fn advance_by(
        &mut self,
        value_end: impl FnOnce(Option<&RawString>, usize) -> Result<usize, Malformed>,
    ) -> Result<Option<JsonMember>, Malformed> {
        let mut at = skip_space(self.bytes, self.end);
        let byte = peek(self.bytes, at);
        if byte == self.close {
            return Ok(None);
        }
        if self.count > 0 {
            if byte != b',' {
                return Err(Malformed);
            }
            at = skip_space(self.bytes, at + 1);
        }
        let mut key = None;
        if self.close == b'}' {
            let raw = RawString::scan(self.bytes, at)?;
            at = skip_space(self.bytes, raw.end());
            if peek(self.bytes, at) != b':' {
                return Err(Malformed);
            }
            at = skip_space(self.bytes, at + 1);
            key = Some(raw);
        }
        self.end = value_end(key.as_ref(), at)?;
        self.count += 1;
        Ok(Some(JsonMember {
            key,
            value: at..self.end,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn find_agrees_with_a_byte_at_a_time() {
        for length in 0..40 {
            for index in 0..=length {
                for special in [b'"', b'\\', 0x1f, 0] {
                    let mut bytes = vec![0xc3; length];
                    if let Some(byte) = bytes.get_mut(index) {
                        *byte = special;
                    }
                    for from in 0..=index {
                        assert_eq!(find_special(&bytes, from), index, "{bytes:?} from {from}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_byte_value_is_classified() {
        for byte in 0..=u8::MAX {
            let bytes = [b'a', byte, b'a'];
            let special = byte < 0x20 || byte == b'"' || byte == b'\\';
            assert_eq!(
                find_special(&bytes, 0),
                if special { 1 } else { 3 },
                "{byte:#x}"
            );
            let structure = b"\"[]{}".contains(&byte);
            assert_eq!(
                find_structure(&bytes, 0),
                if structure { 1 } else { 3 },
                "{byte:#x}"
            );
        }
    }

    #[test]
    fn containers_end_where_their_bracket_closes() {
        for (text, end, depth) in [
            ("{}", 2, 1),
            ("[] ,1", 2, 1),
            (r#"{"a":[{"b":"}]"}]},"#, 18, 3),
            (r#"["\\",["\"]"]]]"#, 14, 2),
        ] {
            // Wherever the blocks begin and end, the answer is the same.
            for shift in 0..130 {
                let shifted = format!(
                    "[\"{}\",{text}",
                    "x\\\"".repeat(shift / 3) + &"y".repeat(shift % 3)
                );
                let start = shifted.len() - text.len();
                assert_eq!(
                    container_end(shifted.as_bytes(), start),
                    Ok(start + end),
                    "{text}"
                );
                let whole = format!("{}]", &shifted[..start + end]);
                assert_eq!(
                    container_end(whole.as_bytes(), 0),
                    Ok(whole.len()),
                    "{whole}"
                );
                assert_eq!(nesting(whole.as_bytes()), Ok(depth + 1), "{whole}");
            }
        }
        for text in ["", "[", r#"["]"#, r#"["\"#, "{[}", "]", "1"] {
            assert!(container_end(text.as_bytes(), 0).is_err(), "{text}");
        }
        assert_eq!(nesting(b"1"), Ok(0));
        assert_eq!(nesting(b"[["), Err(Malformed));
    }

    #[test]
    fn blocks_find_strings_as_a_byte_at_a_time_does() {
        // Every arrangement of quotes and backslashes in 10 bytes, at each place where blocks may meet.
        for arrangement in 0..3_usize.pow(10) {
            let mut bytes = vec![b'a'; 55];
            let mut digits = arrangement;
            for _ in 0..10 {
                bytes.push(b"a\"\\"[digits % 3]);
                digits /= 3;
            }
            bytes.resize(128, b'a');
            let (mut inside, mut escaped) = (false, false);
            let expected: Vec<bool> = bytes
                .iter()
                .map(|&byte| {
                    inside ^= byte == b'"' && !escaped;
                    escaped = byte == b'\\' && !escaped;
                    inside
                })
                .collect();
            let mut strings = StringMask::default();
            let masks = bytes
                .as_chunks::<64>()
                .0
                .iter()
                .map(|block| strings.advance(block));
            let found: Vec<bool> = masks
                .flat_map(|mask| (0..64).map(move |bit| mask >> bit & 1 == 1))
                .collect();
            assert_eq!(found, expected, "{arrangement}");
        }
    }

    #[test]
    fn entries_of_malformed_containers_are_refused() {
        for text in [
            "",
            "1",
            r#"{"a" 1}"#,
            "{a:1}",
            "[1 2]",
            "[,1]",
            "[1,",
            r#"{"a":}"#,
        ] {
            let walked = Entries::of(text.as_bytes(), 0).and_then(|mut entries| {
                while entries.advance()?.is_some() {}
                Ok(())
            });
            assert_eq!(walked, Err(Malformed), "{text}");
        }
    }
}

//! The context of a trace as text: `traceparent` of W3C Trace Context.

use tidewire_core::time::Instant;
use tidewire_core::trace::Trace;

/// Characters of a `traceparent` of version 00.
const TRACEPARENT_BYTES: usize = 55;

/// Parses a `traceparent`. Of a later version, only the part that version 00 has is read, as the standard requires.
#[must_use]
pub fn parse(text: &str) -> Option<Trace> {
    let (head, rest) = text.as_bytes().split_at_checked(TRACEPARENT_BYTES)?;
    let [_, _, b'-', .., b'-', _, _] = head else {
        return None;
    };
    if head[35] != b'-' || head[52] != b'-' {
        return None;
    }
    let [version] = bytes(&head[..2])?;
    let is_whole = match version {
        0 => rest.is_empty(),
        0xFF => false,
        _ => rest.is_empty() || rest[0] == b'-',
    };
    let (id, span) = (bytes(&head[3..35])?, bytes(&head[36..52])?);
    let [flags]: [u8; 1] = bytes(&head[53..])?;
    let is_context = is_whole && id != [0; 16] && span != [0; 8];
    is_context.then_some(Trace {
        id,
        span,
        is_sampled: flags & 1 == 1,
        since: Instant::default(),
    })
}

/// Formats it as `traceparent`.
#[must_use]
pub fn format(trace: &Trace) -> TraceText {
    let mut text = *b"00-________________________________-________________-00";
    write(&trace.id, &mut text[3..35]);
    write(&trace.span, &mut text[36..52]);
    text[54] += u8::from(trace.is_sampled);
    TraceText(text)
}

/// A `traceparent`.
#[derive(Clone, Copy, Debug)]
pub struct TraceText([u8; TRACEPARENT_BYTES]);

impl TraceText {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Only hexadecimal digits and hyphens are written.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// The bytes of hexadecimal digits, which are lowercase.
fn bytes<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

fn digit(character: u8) -> Option<u8> {
    match character {
        b'0'..=b'9' => Some(character - b'0'),
        b'a'..=b'f' => Some(character - b'a' + 10),
        _ => None,
    }
}

fn write(bytes: &[u8], out: &mut [u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (byte, pair) in bytes.iter().zip(out.chunks_exact_mut(2)) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_parsed_context_is_formatted_to_the_same_text() {
        for text in [TEXT, &TEXT.replace("-01", "-00")] {
            let trace = parse(text).unwrap();
            assert_eq!(format(&trace).as_str(), text);
            assert_eq!(trace.is_sampled, text == TEXT);
        }
        assert_eq!(parse(TEXT).unwrap().id[..2], [0x0A, 0xF7]);
    }

    #[test]
    fn later_versions_and_flags_are_read_as_far_as_they_are_known() {
        let known = parse(TEXT);
        for text in [
            format!("01{}", &TEXT[2..]),
            format!("cc{}-what-comes", &TEXT[2..]),
            TEXT.replace("-01", "-03"),
        ] {
            assert_eq!(parse(&text), known, "{text}");
        }
    }

    #[test]
    fn an_invalid_context_is_none() {
        let cases = [
            String::new(),
            TEXT[..54].to_owned(),
            format!("{TEXT}-more"),
            format!("ff{}", &TEXT[2..]),
            format!("01{}more", &TEXT[2..]),
            TEXT.to_uppercase(),
            TEXT.replace('-', "_"),
            TEXT.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            TEXT.replace("b7ad6b7169203331", &"0".repeat(16)),
            TEXT.replace("-b7", "-é"),
            TEXT.replace("c-b", "cb-"),
            TEXT.replace("-01", "0-1"),
        ];
        for text in cases {
            assert_eq!(parse(&text), None, "{text}");
        }
    }
}

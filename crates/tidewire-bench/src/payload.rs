//! Published payloads: the number of the message alone, before market ticks, or before a chat text. Each message has
//! other numbers in its ticks, so that they compress no better than a real ticker.

use std::fmt::Write;

/// The text before the number, unless the number is alone.
const BEFORE_NUMBER: &str = "{\"id\":";
/// The approximate length of a tick; a payload ends with the tick that brings it nearest to the requested length.
const TICK_BYTES: usize = 46;
/// The length of a chat message, as JSON.
pub const CHAT_BYTES: usize = 200;
/// The chat text, repeated as often as it fits.
const SAID: &str = "the quick brown fox jumps over the lazy dog and ";

/// The content of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Its number.
    Number,
    /// Its number and ticks, about this many bytes.
    Ticks(usize),
    /// Its number and a text, [`CHAT_BYTES`] bytes.
    Chat,
}

impl Content {
    /// JSON text with this number.
    #[must_use]
    pub fn with_number(self, number: u64) -> String {
        match self {
            Self::Number => number.to_string(),
            Self::Ticks(bytes) => ticks(number, bytes),
            Self::Chat => chat(number),
        }
    }
}

fn ticks(number: u64, bytes: usize) -> String {
    let mut text = format!("{BEFORE_NUMBER}{number},\"ticks\":[");
    let mut state = number;
    let mut is_first = true;
    while is_first || text.len() + TICK_BYTES / 2 < bytes {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let (symbol, bid) = ((state >> 40) % 500, 10_000 + (state >> 30) % 90_000);
        let comma = if is_first { "" } else { "," };
        is_first = false;
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "{comma}{{\"symbol\":\"S{symbol:03}\",\"bid\":{}.{:02},\"size\":{}}}",
            bid / 100,
            bid % 100,
            (state >> 50) % 1000
        );
    }
    text.push_str("]}");
    text
}

fn chat(number: u64) -> String {
    const END: &str = "\"}";
    let mut text = format!("{BEFORE_NUMBER}{number},\"text\":\"");
    let left = CHAT_BYTES.saturating_sub(text.len() + END.len());
    text.extend(SAID.chars().cycle().take(left));
    text + END
}

/// The expected text of the number.
#[must_use]
pub fn number(payload: &str) -> &str {
    match payload.strip_prefix(BEFORE_NUMBER) {
        Some(rest) => rest.split(',').next().unwrap_or_default(),
        None => payload,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_lengths_are_about_as_asked_for() {
        let check = |content: Content, bytes: usize, tolerance: usize| {
            let payload = content.with_number(1_000_007);
            assert_eq!(number(&payload), "1000007");
            assert!(serde_json::from_str::<serde_json::Value>(&payload).is_ok());
            assert!(payload.len().abs_diff(bytes) <= tolerance, "{payload}");
        };
        check(Content::Number, 7, 0);
        check(Content::Ticks(155), 155, TICK_BYTES / 2 + 4);
        check(Content::Ticks(2500), 2500, TICK_BYTES / 2 + 4);
        check(Content::Chat, CHAT_BYTES, 0);
        let ticks = |number| Content::Ticks(155).with_number(number);
        assert_ne!(ticks(1_000_001)[15..], ticks(1_000_002)[15..]);
        assert_eq!(number("other"), "other");
    }
}

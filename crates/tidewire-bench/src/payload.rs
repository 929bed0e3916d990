//! What is published: the number of the message alone, or in front of ticks of a market, as long as is asked for. Each
//! message has other numbers in its ticks, so that compressing finds no more in them than in a real ticker.

use std::fmt::Write;

/// What stands before the number where there are ticks.
const BEFORE_NUMBER: &str = "{\"id\":";

/// About the length of a tick; a payload ends with the tick that brings it nearest to what is asked for.
const TICK_BYTES: usize = 46;

/// JSON text with this number, of about `bytes` bytes if the number alone is shorter.
#[must_use]
pub fn with_number(number: u64, bytes: usize) -> String {
    if bytes == 0 {
        return number.to_string();
    }
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

/// The text that should be the number.
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
        for bytes in [0, 155, 2500] {
            let payload = with_number(1_000_007, bytes);
            assert_eq!(number(&payload), "1000007");
            assert!(serde_json::from_str::<serde_json::Value>(&payload).is_ok());
            assert!(
                bytes == 0 || payload.len().abs_diff(bytes) < TICK_BYTES / 2 + 5,
                "{payload}"
            );
        }
        assert_ne!(
            with_number(1_000_001, 155)[15..],
            with_number(1_000_002, 155)[15..]
        );
        assert_eq!(number("other"), "other");
    }
}

//! The client's offers in `Sec-WebSocket-Extensions` and the server's choice (RFC 6455, section 9; RFC 7692, section
//! 7.1). Only permessage-deflate is supported.

use thiserror::Error;

/// The name of the only supported extension.
pub const DEFLATE: &str = "permessage-deflate";

/// The only window for compression, as a power of two: all recipients share a message, so there can be one only
/// (`docs/decisions/0007-compressed-once-for-all-recipients.md`).
const WINDOW_BITS: u8 = 15;

/// The header violates RFC 6455, section 9.1; the handshake fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("Sec-WebSocket-Extensions is malformed")]
pub struct MalformedOffer;

/// The answer to the first acceptable offer of `header`, as the value of the response's header. The caller joins all
/// values of the request's header by commas.
///
/// The answer always forbids both sides to reuse the context of earlier messages, which an offer can't refuse.
///
/// # Errors
///
/// The header is malformed. Unknown extensions, unknown or repeated parameters and bad values are not an error: the
/// server declines such an offer and tries the next one.
pub fn accept(header: &str) -> Result<Option<String>, MalformedOffer> {
    let mut taken = None;
    for element in split(header, ',')? {
        // A list may have empty elements (RFC 7230, section 7).
        if element.trim().is_empty() {
            continue;
        }
        let offer = Offer::parse(element)?;
        if taken.is_none() {
            taken = offer.answer();
        }
    }
    Ok(taken)
}

/// One extension with its parameters.
struct Offer<'h> {
    name: &'h str,
    parameters: Vec<(&'h str, Option<&'h str>)>,
}

impl<'h> Offer<'h> {
    fn parse(element: &'h str) -> Result<Self, MalformedOffer> {
        let mut parts = split(element, ';')?.into_iter();
        let name = token(parts.next().unwrap_or_default())?;
        let parameters = parts.map(parse_parameter).collect::<Result<_, _>>()?;
        Ok(Self { name, parameters })
    }

    /// The answer; `None` if the offer is declined.
    fn answer(&self) -> Option<String> {
        if !self.name.eq_ignore_ascii_case(DEFLATE) {
            return None;
        }
        let mut answer =
            format!("{DEFLATE}; server_no_context_takeover; client_no_context_takeover");
        for (index, (name, value)) in self.parameters.iter().enumerate() {
            let is_repeated = self.parameters[..index]
                .iter()
                .any(|(earlier, _)| earlier == name);
            let is_good = match (*name, *value) {
                _ if is_repeated => false,
                ("server_no_context_takeover" | "client_no_context_takeover", None) => true,
                // A smaller window of the client needs no answer, because the server inflates every window.
                ("client_max_window_bits", value) => {
                    value.is_none_or(|bits| window(bits).is_some())
                }
                ("server_max_window_bits", Some(bits)) => {
                    let is_ours = window(bits) == Some(WINDOW_BITS);
                    if is_ours {
                        answer.push_str("; server_max_window_bits=15");
                    }
                    is_ours
                }
                _ => false,
            };
            if !is_good {
                return None;
            }
        }
        Some(answer)
    }
}

fn parse_parameter(part: &str) -> Result<(&str, Option<&str>), MalformedOffer> {
    let Some((name, value)) = part.split_once('=') else {
        return Ok((token(part)?, None));
    };
    let value = value.trim();
    // A quoted value must be a token too.
    let value = match value.strip_prefix('"') {
        Some(quoted) => quoted.strip_suffix('"').ok_or(MalformedOffer)?,
        None => value,
    };
    Ok((token(name)?, Some(token(value)?)))
}

/// A window size from 8 to 15 without a leading zero.
fn window(bits: &str) -> Option<u8> {
    let is_plain = !bits.starts_with(['0', '+']);
    let bits = bits.parse().ok().filter(|_| is_plain)?;
    (8..=15).contains(&bits).then_some(bits)
}

/// The text without surrounding blanks, if it is a token (RFC 7230, section 3.2.6).
fn token(text: &str) -> Result<&str, MalformedOffer> {
    let text = text.trim_matches([' ', '\t']);
    let is_token = !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte));
    is_token.then_some(text).ok_or(MalformedOffer)
}

/// Splits at a separator outside of quotes.
fn split(text: &str, separator: char) -> Result<Vec<&str>, MalformedOffer> {
    let mut is_quoted = false;
    let parts = text
        .split(|character: char| {
            is_quoted ^= character == '"';
            character == separator && !is_quoted
        })
        .collect();
    if is_quoted {
        return Err(MalformedOffer);
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: &str = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";

    #[test]
    fn offers_that_can_be_met_are_taken() {
        let with_window = format!("{BOTH}; server_max_window_bits=15");
        let cases = [
            ("permessage-deflate", BOTH),
            ("Permessage-Deflate", BOTH),
            // Chromium, Firefox and Node's `ws`.
            ("permessage-deflate; client_max_window_bits", BOTH),
            ("permessage-deflate;client_max_window_bits=9", BOTH),
            (
                "permessage-deflate; server_no_context_takeover; client_no_context_takeover",
                BOTH,
            ),
            (
                "permessage-deflate; server_max_window_bits=15",
                &with_window,
            ),
            (
                "permessage-deflate; server_max_window_bits=\"15\"",
                &with_window,
            ),
            // The first that can be met.
            (
                "permessage-deflate; server_max_window_bits=9, permessage-deflate",
                BOTH,
            ),
            ("x-webkit-deflate-frame, permessage-deflate", BOTH),
            ("foo; bar=\"a\", , permessage-deflate", BOTH),
            (
                "permessage-deflate, permessage-deflate; server_max_window_bits=15",
                BOTH,
            ),
        ];
        for (header, expected) in cases {
            assert_eq!(accept(header), Ok(Some(expected.to_owned())), "{header}");
        }
    }

    #[test]
    fn other_offers_are_declined() {
        let cases = [
            "",
            " , ",
            "foo",
            "x-webkit-deflate-frame",
            "permessage-deflate; unknown",
            "permessage-deflate; server_no_context_takeover=1",
            "permessage-deflate; server_no_context_takeover; server_no_context_takeover",
            "permessage-deflate; client_max_window_bits; client_max_window_bits=10",
            "permessage-deflate; server_max_window_bits",
            "permessage-deflate; server_max_window_bits=8",
            "permessage-deflate; server_max_window_bits=14",
            "permessage-deflate; server_max_window_bits=16",
            "permessage-deflate; server_max_window_bits=015",
            "permessage-deflate; server_max_window_bits=+15",
            "permessage-deflate; client_max_window_bits=7",
            "permessage-deflate; client_max_window_bits=x",
        ];
        for header in cases {
            assert_eq!(accept(header), Ok(None), "{header}");
        }
    }

    #[test]
    fn malformed_headers_fail() {
        let cases = [
            ";",
            "permessage-deflate;",
            "permessage-deflate; =1",
            "permessage-deflate; client_max_window_bits=",
            "permessage-deflate; client_max_window_bits=\"15",
            "permessage deflate",
            "permessage-deflate, (",
            "permessage-deflate; a=\"b;c\"",
        ];
        for header in cases {
            assert_eq!(accept(header), Err(MalformedOffer), "{header}");
        }
    }
}

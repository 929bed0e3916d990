//! JavaScript's tokens, as far as expressions use them. Every token has the byte where it begins.

use crate::number::{is_space, parse_radix};
use crate::text::Text;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    Number(f64),
    Text(Text<'static>),
    /// A name, keyword or path variable.
    Word(String),
    Sign(&'static str),
    End,
}

/// Why a text is not a valid rule, and at which byte.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct RuleError {
    /// The reason.
    pub reason: String,
    /// The byte of the expression.
    pub offset: usize,
}

impl RuleError {
    pub(crate) fn new(reason: impl Into<String>, offset: usize) -> Self {
        Self {
            reason: reason.into(),
            offset,
        }
    }
}

/// Longer signs first. The list also has signs that no expression may contain, so that the error can name them.
const SIGNS: [&str; 52] = [
    ">>>=", "===", "!==", "...", "**=", "<<=", ">>=", ">>>", "&&=", "||=", "??=", "==", "!=", "<=",
    ">=", "&&", "||", "??", "?.", "=>", "++", "--", "**", "<<", ">>", "+=", "-=", "*=", "/=", "%=",
    "&=", "|=", "^=", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", "(", ")", "[", "]", "{",
    "}", ",", ".", "=",
];
const REFUSED_SIGNS: [&str; 7] = ["&", "|", "^", "~", ";", "`", "#"];

pub(crate) struct Lexer<'s> {
    source: &'s str,
    at: usize,
}

impl<'s> Lexer<'s> {
    pub(crate) fn new(source: &'s str) -> Self {
        Self { source, at: 0 }
    }

    fn rest(&self) -> &'s str {
        self.source.get(self.at..).unwrap_or_default()
    }

    /// The next token and where it begins.
    pub(crate) fn next(&mut self) -> Result<(Token, usize), RuleError> {
        self.skip_blank()?;
        let start = self.at;
        let rest = self.rest();
        let Some(first) = rest.chars().next() else {
            return Ok((Token::End, start));
        };
        let is_number = first.is_ascii_digit()
            || (first == '.' && rest[1..].starts_with(|next: char| next.is_ascii_digit()));
        let token = if is_number {
            Token::Number(self.number()?)
        } else if first == '"' || first == '\'' {
            Token::Text(self.text(first)?)
        } else if is_word_start(first) {
            let end = rest
                .find(|letter| !is_word_part(letter))
                .unwrap_or(rest.len());
            self.at += end;
            Token::Word(rest[..end].to_owned())
        } else {
            Token::Sign(self.sign(rest, first)?)
        };
        Ok((token, start))
    }

    fn sign(&mut self, rest: &str, first: char) -> Result<&'static str, RuleError> {
        let mut known = SIGNS.iter().chain(&REFUSED_SIGNS);
        let found = known.find(|sign| rest.starts_with(**sign));
        let Some(mut sign) = found.copied() else {
            return Err(RuleError::new(
                format!("unexpected character {first:?}"),
                self.at,
            ));
        };
        if sign == "?." && rest[2..].starts_with(|next: char| next.is_ascii_digit()) {
            sign = "?";
        }
        self.at += sign.len();
        Ok(sign)
    }

    /// White space and comments.
    fn skip_blank(&mut self) -> Result<(), RuleError> {
        loop {
            let rest = self.rest();
            let blank = rest.len() - rest.trim_start_matches(is_space).len();
            self.at += blank;
            let rest = &rest[blank..];
            if rest.starts_with("//") {
                self.at += rest
                    .find(['\n', '\r', '\u{2028}', '\u{2029}'])
                    .unwrap_or(rest.len());
            } else if let Some(comment) = rest.strip_prefix("/*") {
                let Some(end) = comment.find("*/") else {
                    return Err(RuleError::new("unclosed comment", self.at));
                };
                self.at += end + 4;
            } else {
                return Ok(());
            }
        }
    }

    fn number(&mut self) -> Result<f64, RuleError> {
        let start = self.at;
        let rest = self.rest();
        let radix = match rest.get(..2) {
            Some("0x" | "0X") => Some(4),
            Some("0o" | "0O") => Some(3),
            Some("0b" | "0B") => Some(1),
            _ => None,
        };
        let refuse = |reason: &str| RuleError::new(reason, start);
        if let Some(bits) = radix {
            let digits = &rest[2..];
            let end = digits
                .find(|letter| !is_word_part(letter))
                .unwrap_or(digits.len());
            self.at += 2 + end;
            let number = parse_radix(&digits[..end], bits);
            return if number.is_nan() {
                Err(refuse("not a number"))
            } else {
                Ok(number)
            };
        }
        let bytes = rest.as_bytes();
        let digits = |mut at: usize| {
            while bytes.get(at).is_some_and(u8::is_ascii_digit) {
                at += 1;
            }
            at
        };
        let mut end = digits(0);
        if end > 1 && bytes[0] == b'0' {
            return Err(refuse("a number that starts with 0"));
        }
        if bytes.get(end) == Some(&b'.') {
            end = digits(end + 1);
        }
        if matches!(bytes.get(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            let exponent = digits(end + 1 + sign);
            if exponent == end + 1 + sign {
                return Err(refuse("an exponent without digits"));
            }
            end = exponent;
        }
        if rest[end..].starts_with(is_word_part) {
            return Err(refuse("a number followed by a name"));
        }
        self.at += end;
        rest[..end].parse().map_err(|_| refuse("not a number"))
    }

    fn text(&mut self, quote: char) -> Result<Text<'static>, RuleError> {
        let start = self.at;
        let mut units = Vec::new();
        let mut letters = self.rest().char_indices().skip(1).peekable();
        let open = || RuleError::new("unclosed text literal", start);
        loop {
            let (index, letter) = letters.next().ok_or_else(open)?;
            if letter == quote {
                self.at += index + 1;
                return Ok(Text::from_units(units));
            }
            if matches!(letter, '\n' | '\r') {
                return Err(open());
            }
            if letter != '\\' {
                push(&mut units, letter);
                continue;
            }
            let (_, escape) = letters.next().ok_or_else(open)?;
            let refuse = |reason: &str| RuleError::new(reason, start + index);
            match escape {
                'b' => units.push(8),
                't' => units.push(9),
                'n' => units.push(10),
                'v' => units.push(11),
                'f' => units.push(12),
                'r' => units.push(13),
                'x' => {
                    units.push(hexadecimal(&mut letters, 2).ok_or_else(|| refuse(DIGITS_MISSING))?)
                }
                'u' if letters.peek().is_some_and(|(_, next)| *next == '{') => {
                    letters.next();
                    let mut code = 0_u32;
                    let mut count = 0;
                    loop {
                        let (_, letter) = letters.next().ok_or_else(open)?;
                        if letter == '}' && count > 0 {
                            break;
                        }
                        let digit = letter.to_digit(16).ok_or_else(|| refuse(DIGITS_MISSING))?;
                        code = code.saturating_mul(16).saturating_add(digit);
                        count += 1;
                    }
                    match (char::from_u32(code), u16::try_from(code)) {
                        (Some(character), _) => push(&mut units, character),
                        (None, Ok(surrogate)) => units.push(surrogate),
                        _ => return Err(refuse("not a Unicode character")),
                    }
                }
                'u' => {
                    units.push(hexadecimal(&mut letters, 4).ok_or_else(|| refuse(DIGITS_MISSING))?)
                }
                '0' if !letters
                    .peek()
                    .is_some_and(|(_, next)| next.is_ascii_digit()) =>
                {
                    units.push(0)
                }
                '0'..='9' => return Err(refuse("an octal escape")),
                '\r' => {
                    letters.next_if(|(_, next)| *next == '\n');
                }
                '\n' | '\u{2028}' | '\u{2029}' => {}
                other => push(&mut units, other),
            }
        }
    }

    /// A regular expression whose first slash is at `start`: its source and flags.
    pub(crate) fn regular(&mut self, start: usize) -> Result<(&'s str, &'s str), RuleError> {
        self.at = start + 1;
        let rest = self.rest();
        let (mut in_class, mut escaped) = (false, false);
        for (index, letter) in rest.char_indices() {
            match letter {
                '\n' | '\r' | '\u{2028}' | '\u{2029}' => break,
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '[' => in_class = true,
                ']' => in_class = false,
                '/' if !in_class => {
                    let flags = &rest[index + 1..];
                    let end = flags
                        .find(|letter| !is_word_part(letter))
                        .unwrap_or(flags.len());
                    self.at += index + 1 + end;
                    return Ok((&rest[..index], &flags[..end]));
                }
                _ => {}
            }
        }
        Err(RuleError::new("unclosed regular expression", start))
    }
}

const DIGITS_MISSING: &str = "hexadecimal digits are missing";

fn hexadecimal(letters: &mut impl Iterator<Item = (usize, char)>, count: usize) -> Option<u16> {
    let mut code = 0;
    for _ in 0..count {
        code = code * 16 + letters.next()?.1.to_digit(16)? as u16;
    }
    Some(code)
}

fn push(units: &mut Vec<u16>, letter: char) {
    units.extend_from_slice(letter.encode_utf16(&mut [0; 2]));
}

fn is_word_start(letter: char) -> bool {
    letter == '_' || letter == '$' || letter.is_alphabetic()
}

fn is_word_part(letter: char) -> bool {
    is_word_start(letter) || letter.is_numeric()
}

//! Regular expressions of queries: a dialect that means the same in the `regex` crate and in JavaScript.
//!
//! The pattern is translated: each literal character becomes an escape, each class a list of ranges. So no construct reaches the engine
//! that this file does not know. The engine matches in linear time. `packages/client/src/query/pattern.ts` does the same for JavaScript.

use std::iter::Peekable;
use std::str::CharIndices;

use regex::bytes::{Regex, RegexBuilder};

use crate::limits::{QueryLimits, REGEX_TEXT_BYTES_MAX};

/// A compiled regular expression.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    /// Flags and pattern, which identify it.
    text: Box<str>,
    regex: Regex,
    /// The text that every match begins with, if the pattern is anchored.
    prefix: Option<Box<str>>,
}

/// Which flags of `$options` have an effect.
#[derive(Clone, Copy, Default)]
struct Flags {
    ignore_case: bool,
    multi_line: bool,
    dot_all: bool,
    extended: bool,
}

/// `\s` of JavaScript.
const SPACE: &str = r"\t\n\x0B\x0C\r \u{A0}\u{1680}\u{2000}-\u{200A}\u{2028}\u{2029}\u{202F}\u{205F}\u{3000}\u{FEFF}";
const WORD: &str = "0-9A-Za-z_";

impl Pattern {
    /// Compiles a pattern. The error has the correction.
    pub fn parse(pattern: &str, options: &str, limits: &QueryLimits) -> Result<Self, String> {
        if pattern.len() > limits.regex_bytes_max {
            return Err(format!(
                "has {} bytes; use at most {}",
                pattern.len(),
                limits.regex_bytes_max
            ));
        }
        let mut flags = Flags::default();
        for flag in options.chars() {
            match flag {
                'i' => flags.ignore_case = true,
                'm' => flags.multi_line = true,
                's' => flags.dot_all = true,
                'x' => flags.extended = true,
                'g' | 'u' | 'y' => {}
                _ => return Err(format!("has the option \"{flag}\"; use i, m, s and x")),
            }
        }
        let mut translator = Translator {
            rest: pattern.char_indices().peekable(),
            flags,
            out: String::new(),
            prefix: None,
        };
        translator.translate()?;
        let regex = RegexBuilder::new(&translator.out)
            .case_insensitive(flags.ignore_case)
            .size_limit(limits.regex_compiled_bytes_max)
            .dfa_size_limit(limits.regex_compiled_bytes_max)
            .build()
            .map_err(|error| match error {
                regex::Error::CompiledTooBig(_) => {
                    "is too large when compiled; repeat less".to_owned()
                }
                _ => "does not compile; simplify it".to_owned(),
            })?;
        let set = |is_set, letter| if is_set { letter } else { "" };
        let text = format!(
            "{}{}{}{}/{pattern}",
            set(flags.ignore_case, "i"),
            set(flags.multi_line, "m"),
            set(flags.dot_all, "s"),
            set(flags.extended, "x")
        );
        Ok(Self {
            text: text.into(),
            regex,
            prefix: translator
                .prefix
                .filter(|it| !it.is_empty())
                .map(Into::into),
        })
    }

    pub fn is_match(&self, text: &[u8]) -> bool {
        text.len() <= REGEX_TEXT_BYTES_MAX && self.regex.is_match(text)
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text that every match begins with.
    pub fn prefix(&self) -> Option<&str> {
        self.prefix.as_deref()
    }
}

struct Translator<'a> {
    rest: Peekable<CharIndices<'a>>,
    flags: Flags,
    out: String,
    /// The literal characters after an anchor at the start. `None` if there is no anchor.
    prefix: Option<String>,
}

type Translated<T> = Result<T, String>;

impl Translator<'_> {
    fn next(&mut self) -> Option<char> {
        self.rest.next().map(|(_, character)| character)
    }

    fn peek(&mut self) -> Option<char> {
        self.rest.peek().map(|(_, character)| *character)
    }

    fn skip(&mut self, character: char) -> bool {
        self.rest.next_if(|(_, it)| *it == character).is_some()
    }

    fn translate(&mut self) -> Translated<()> {
        let mut open = 0_usize;
        // Whether the last part may be repeated.
        let mut can_repeat = false;
        // Whether each character so far belongs to the prefix, and whether a part has been read.
        let mut in_prefix = !self.flags.ignore_case && !self.flags.multi_line;
        let mut is_first = true;
        while let Some(character) = self.next() {
            if self.flags.extended {
                if character.is_ascii_whitespace() || character == '\u{B}' {
                    continue;
                }
                if character == '#' {
                    while self.next().is_some_and(|it| it != '\n') {}
                    continue;
                }
            }
            let was_first = std::mem::replace(&mut is_first, false);
            let mut literal = None;
            match character {
                '^' => {
                    self.out
                        .push_str(if self.flags.multi_line { "(?m:^)" } else { "^" });
                    can_repeat = false;
                    if was_first && in_prefix {
                        self.prefix = Some(String::new());
                        continue;
                    }
                }
                '$' => {
                    self.out
                        .push_str(if self.flags.multi_line { "(?m:$)" } else { "$" });
                    can_repeat = false;
                }
                '.' => {
                    self.out.push_str(if self.flags.dot_all {
                        "(?s:.)"
                    } else {
                        r"[^\n]"
                    });
                    can_repeat = true;
                }
                '(' => {
                    if self.skip('?') && !self.skip(':') {
                        return Err("has a group with \"(?\"; only \"(?:\" is supported".into());
                    }
                    self.out.push_str("(?:");
                    open += 1;
                    can_repeat = false;
                }
                ')' => {
                    open = open.checked_sub(1).ok_or(
                        "has a closing parenthesis too many; write \"\\)\" for the character",
                    )?;
                    self.out.push(')');
                    can_repeat = true;
                }
                '|' => {
                    self.out.push('|');
                    can_repeat = false;
                    // Another alternative may begin with another text.
                    self.prefix = None;
                }
                '*' | '+' | '?' | '{' => {
                    if !can_repeat {
                        return Err(format!(
                            "has nothing that \"{character}\" repeats; write \"\\{character}\" for the character"
                        ));
                    }
                    self.repetition(character)?;
                    can_repeat = false;
                    // The character before may not be there.
                    if in_prefix && let Some(prefix) = &mut self.prefix {
                        prefix.pop();
                    }
                }
                '[' => {
                    self.class()?;
                    can_repeat = true;
                }
                ']' | '}' => {
                    return Err(format!(
                        "has a \"{character}\" that closes nothing; write \"\\{character}\" for the character"
                    ));
                }
                '\\' => match self.escape()? {
                    Escape::Literal(it) => literal = Some(it),
                    Escape::Class(class) => {
                        self.out.push_str(&class);
                        can_repeat = true;
                    }
                    Escape::Boundary(boundary) => {
                        self.out.push_str(boundary);
                        can_repeat = false;
                    }
                },
                _ => literal = Some(character),
            }
            if let Some(literal) = literal {
                push_literal(literal, &mut self.out);
                can_repeat = true;
                if in_prefix && let Some(prefix) = &mut self.prefix {
                    prefix.push(literal);
                }
            } else {
                in_prefix = false;
            }
        }
        if open > 0 {
            return Err("has an open group; close it with \")\"".into());
        }
        Ok(())
    }

    /// The rest of `*`, `+`, `?`, `{n}`, `{n,}` or `{n,m}`, which may be lazy.
    fn repetition(&mut self, first: char) -> Translated<()> {
        self.out.push(first);
        if first == '{' {
            let least = self.digits()?;
            if self.skip(',') {
                self.out.push(',');
                if self.peek() != Some('}') && self.digits()? < least {
                    return Err(
                        "has a repetition whose maximum is below its minimum; exchange them".into(),
                    );
                }
            }
            if !self.skip('}') {
                return Err("has a \"{\" without \"n}\", \"n,}\" or \"n,m}\"; write \"\\{\" for the character".into());
            }
            self.out.push('}');
        }
        if self.skip('?') {
            self.out.push('?');
        }
        Ok(())
    }

    fn digits(&mut self) -> Translated<u32> {
        let mut digits = String::new();
        while let Some((_, digit)) = self.rest.next_if(|(_, it)| it.is_ascii_digit()) {
            digits.push(digit);
        }
        let count = digits.parse().ok().filter(|count| *count <= 1000);
        self.out.push_str(&digits);
        count.ok_or_else(|| {
            "has a repetition whose count is not a number up to 1000; correct it".into()
        })
    }

    fn class(&mut self) -> Translated<()> {
        self.out.push('[');
        if self.skip('^') {
            self.out.push('^');
        }
        let unclosed = || "has an open class; close it with \"]\"".to_owned();
        let mut is_empty = true;
        loop {
            let low = match self.next().ok_or_else(unclosed)? {
                ']' if is_empty => {
                    return Err("has an empty class; write \"\\]\" for the character".into());
                }
                ']' => break,
                '[' => return Err("has a \"[\" in a class; write \"\\[\" for the character".into()),
                '\\' => match self.escape()? {
                    Escape::Literal(it) => it,
                    Escape::Class(class) => {
                        self.out.push_str(&class);
                        is_empty = false;
                        if self.peek() == Some('-') {
                            self.next();
                            if self.peek() != Some(']') {
                                return Err("has a range that begins with a class; write \"\\-\" for the character".into());
                            }
                            push_literal('-', &mut self.out);
                        }
                        continue;
                    }
                    Escape::Boundary(_) => return Err("has \"\\b\" in a class; remove it".into()),
                },
                character => character,
            };
            is_empty = false;
            push_literal(low, &mut self.out);
            if self.peek() != Some('-') {
                continue;
            }
            self.next();
            let high = match self.peek().ok_or_else(unclosed)? {
                ']' => {
                    push_literal('-', &mut self.out);
                    continue;
                }
                '\\' => {
                    self.next();
                    match self.escape()? {
                        Escape::Literal(it) => it,
                        _ => return Err(
                            "has a range that ends with a class; write \"\\-\" for the character"
                                .into(),
                        ),
                    }
                }
                character => {
                    self.next();
                    character
                }
            };
            if high < low {
                return Err("has a range whose end is before its start; exchange them".into());
            }
            self.out.push('-');
            push_literal(high, &mut self.out);
        }
        self.out.push(']');
        Ok(())
    }

    /// What follows a backslash.
    fn escape(&mut self) -> Translated<Escape> {
        let letter = self
            .next()
            .ok_or("ends with a backslash; write \"\\\\\" for the character")?;
        Ok(match letter {
            'd' => Escape::Class("[0-9]".into()),
            'D' => Escape::Class("[^0-9]".into()),
            'w' => Escape::Class(format!("[{WORD}]")),
            'W' => Escape::Class(format!("[^{WORD}]")),
            's' => Escape::Class(format!("[{SPACE}]")),
            'S' => Escape::Class(format!("[^{SPACE}]")),
            'b' => Escape::Boundary(r"(?-u:\b)"),
            // Between two bytes of one character this would be true without the Unicode form.
            'B' => return Err("has \"\\B\", which is not supported; remove it".into()),
            'n' => Escape::Literal('\n'),
            'r' => Escape::Literal('\r'),
            't' => Escape::Literal('\t'),
            'f' => Escape::Literal('\u{C}'),
            'v' => Escape::Literal('\u{B}'),
            'x' => Escape::Literal(self.code_point(2)?),
            'u' => Escape::Literal(self.code_point(4)?),
            '^' | '$' | '\\' | '.' | '*' | '+' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '|'
            | '/' | '-' | '#' | ' ' => Escape::Literal(letter),
            _ => {
                return Err(format!(
                    "has the escape \"\\{letter}\", which is not supported; remove it"
                ));
            }
        })
    }

    fn code_point(&mut self, digits: usize) -> Translated<char> {
        let mut code = 0;
        for _ in 0..digits {
            let digit = self.next().and_then(|it| it.to_digit(16));
            code = code << 4
                | digit.ok_or_else(|| {
                    format!("has an escape without {digits} hexadecimal digits; add them")
                })?;
        }
        char::from_u32(code)
            .ok_or_else(|| "has an escape of a surrogate; write the character".into())
    }
}

enum Escape {
    Literal(char),
    Class(String),
    Boundary(&'static str),
}

fn push_literal(character: char, out: &mut String) {
    out.push_str(&format!("\\u{{{:X}}}", u32::from(character)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pattern: &str, options: &str) -> Result<Pattern, String> {
        Pattern::parse(pattern, options, &QueryLimits::default())
    }

    #[test]
    fn prefixes_are_what_every_match_begins_with() {
        for (pattern, options, prefix) in [
            ("^abc", "", Some("abc")),
            ("^abc$", "", Some("abc")),
            ("^ab*", "", Some("a")),
            ("^ab{2}c", "", Some("a")),
            ("^a.c", "", Some("a")),
            ("^a(b|c)d", "", None),
            ("^a|b", "", None),
            ("^a\\.b\\d", "", Some("a.b")),
            ("abc", "", None),
            ("^abc", "i", None),
            ("^abc", "m", None),
            ("^", "", None),
            ("^ a b", "x", Some("ab")),
        ] {
            let parsed = parse(pattern, options).expect("valid");
            assert_eq!(parsed.prefix(), prefix, "{pattern}");
        }
    }

    #[test]
    fn patterns_have_a_compiled_limit() {
        assert!(parse("(?:(?:a{100}){100}){100}", "").is_err());
        assert!(parse("a{1001}", "").is_err());
        assert!(parse(&"a".repeat(257), "").is_err());
        let long = "a".repeat(REGEX_TEXT_BYTES_MAX + 1);
        assert!(!parse("a", "").expect("valid").is_match(long.as_bytes()));
    }
}

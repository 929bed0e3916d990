//! JavaScript's regular expressions, as far as they can be matched in linear time, translated for the `regex` crate.
//!
//! JavaScript matches UTF-16 units. A text with surrogates is rewritten so that each of its units is one character:
//! surrogates become characters of a private plane, in the text and in the pattern. Classes and letters are written
//! as explicit sets of units, so neither crate's Unicode tables have an effect.
//!
//! Refused: look-around, back-references, `\B`, the flags `m`, `u`, `v`, `y` and `d`, and brackets that only lenient
//! browsers accept as plain characters.

use std::borrow::Cow;
use std::fmt::Write;

use regex::RegexBuilder;

use crate::text::{Text, has_pairs};

/// The new position of surrogates: U+D800 becomes this character.
const MOVED: u32 = 0x10_f000;
/// The largest repetition number. More would exceed the limit of the compiled expression anyway.
const REPEAT_MAX: u32 = 1000;

/// A compiled expression.
#[derive(Clone, Debug)]
pub(crate) struct Regular {
    /// `/source/flags`, as `String` shows it.
    pub(crate) shown: String,
    /// Whether it returns all matches.
    pub(crate) global: bool,
    regex: regex::Regex,
}

/// The result of one match: the text of each group, the whole match first.
pub(crate) type Groups = Vec<Option<Text<'static>>>;

/// Why an expression is refused, and at which byte of its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) reason: String,
    pub(crate) offset: usize,
}

impl Regular {
    /// Compiles `source`, the text between the slashes.
    pub(crate) fn compile(
        source: &str,
        flags: &str,
        nesting_max: usize,
        bytes_max: usize,
    ) -> Result<Self, Refused> {
        let refuse = |reason: String, offset: usize| Refused { reason, offset };
        let mut sorted: Vec<char> = flags.chars().collect();
        sorted.sort_unstable();
        for (index, flag) in sorted.iter().enumerate() {
            if !matches!(flag, 'g' | 'i' | 's') {
                let reason = format!("the flag `{flag}` of a regular expression is not supported");
                return Err(refuse(reason, source.len()));
            }
            if index > 0 && sorted[index - 1] == *flag {
                return Err(refuse(
                    format!("the flag `{flag}` appears twice"),
                    source.len(),
                ));
            }
        }
        let mut translator = Translator {
            letters: source.char_indices().collect(),
            at: 0,
            end: source.len(),
            out: String::new(),
            folds: sorted.contains(&'i').then(Folds::new),
            dot_all: sorted.contains(&'s'),
            nesting_max,
        };
        translator.alternatives(0)?;
        if translator.at < translator.letters.len() {
            return Err(translator.refused("a `)` without `(`"));
        }
        let regex = RegexBuilder::new(&translator.out)
            .size_limit(bytes_max)
            .dfa_size_limit(bytes_max)
            .build()
            .map_err(|error| {
                let reason = match error {
                    regex::Error::CompiledTooBig(limit) => {
                        format!("the regular expression takes more than {limit} bytes")
                    }
                    _ => "the regular expression is not valid".to_owned(),
                };
                refuse(reason, 0)
            })?;
        let flags: String = sorted.iter().collect();
        Ok(Self {
            shown: format!("/{source}/{flags}"),
            global: sorted.contains(&'g'),
            regex,
        })
    }

    /// The result of `String.match` for an expression without `g`.
    pub(crate) fn first(&self, text: &Text<'_>) -> Option<Groups> {
        let haystack = haystack(text);
        let found = self.regex.captures(&haystack)?;
        let groups = found
            .iter()
            .map(|group| group.map(|group| restored(group.as_str())));
        Some(groups.collect())
    }

    /// The result with `g`: every match. It calls `charge` before each search, which may cost the whole text.
    pub(crate) fn all<E>(
        &self,
        text: &Text<'_>,
        mut charge: impl FnMut(u64) -> Result<(), E>,
    ) -> Result<Vec<Text<'static>>, E> {
        let haystack = haystack(text);
        let mut found = Vec::new();
        let mut at = 0;
        while at <= haystack.len() {
            charge((haystack.len() - at) as u64)?;
            let Some(hit) = self.regex.find_at(&haystack, at) else {
                break;
            };
            found.push(restored(hit.as_str()));
            at = hit.end();
            if hit.is_empty() {
                let next = haystack[at..].chars().next();
                at += next.map_or(1, char::len_utf8);
            }
        }
        Ok(found)
    }
}

/// The text with one character for each unit.
fn haystack<'t>(text: &'t Text<'_>) -> Cow<'t, str> {
    match text {
        Text::Plain(plain) if !has_pairs(plain) => Cow::Borrowed(plain),
        _ => text
            .units()
            .iter()
            .map(|unit| moved(*unit))
            .collect::<String>()
            .into(),
    }
}

fn restored(matched: &str) -> Text<'static> {
    if !has_pairs(matched) {
        return matched.to_owned().into();
    }
    let units = matched.chars().map(|character| {
        let code = u32::from(character);
        // Every other character of a haystack is one unit.
        if code >= MOVED {
            (code - MOVED + 0xd800) as u16
        } else {
            code as u16
        }
    });
    Text::from_units(units.collect())
}

/// The character that represents a unit.
fn moved(unit: u16) -> char {
    let code = u32::from(unit);
    char::from_u32(code)
        .unwrap_or_else(|| char::from_u32(code - 0xd800 + MOVED).unwrap_or('\u{fffd}'))
}

/// A set of units: one bit for each.
#[derive(Clone)]
struct Units(Box<[u64; 1024]>);

impl Units {
    fn new() -> Self {
        Self(Box::new([0; 1024]))
    }

    fn of(ranges: &[(u16, u16)]) -> Self {
        let mut units = Self::new();
        for &(from, to) in ranges {
            units.add(from, to);
        }
        units
    }

    fn add(&mut self, from: u16, to: u16) {
        for unit in from..=to {
            self.0[usize::from(unit >> 6)] |= 1 << (unit & 63);
        }
    }

    fn has(&self, unit: u16) -> bool {
        self.0[usize::from(unit >> 6)] >> (unit & 63) & 1 == 1
    }

    fn join(&mut self, other: &Self) {
        for (word, more) in self.0.iter_mut().zip(other.0.iter()) {
            *word |= more;
        }
    }

    fn inverted(mut self) -> Self {
        for word in self.0.iter_mut() {
            *word = !*word;
        }
        self
    }

    /// Writes the set as a class. Ranges do not cross the border of the surrogates, because these were moved.
    fn write(&self, out: &mut String) {
        let start = out.len();
        out.push('[');
        let mut unit = 0_u32;
        while unit <= 0xffff {
            let first = unit as u16;
            if !self.has(first) {
                unit += 1;
                continue;
            }
            let mut last = first;
            while last < u16::MAX && !matches!(last, 0xd7ff | 0xdfff) && self.has(last + 1) {
                last += 1;
            }
            let (from, to) = (u32::from(moved(first)), u32::from(moved(last)));
            // Writing to a string can't fail.
            let _ = write!(out, "\\x{{{from:X}}}-\\x{{{to:X}}}");
            unit = u32::from(last) + 1;
        }
        out.push(']');
        if out.ends_with("[]") {
            out.truncate(start);
            out.push_str("[a&&b]");
        }
    }
}

/// The units that are equal if case is ignored: by their upper case, as in JavaScript without the flag `u`.
struct Folds(Vec<u16>);

impl Folds {
    fn new() -> Self {
        Self((0..=u16::MAX).map(fold).collect())
    }

    /// Adds every unit that differs from a member in case only.
    fn close(&self, units: &Units) -> Units {
        let mut folded = Units::new();
        for unit in (0..=u16::MAX).filter(|unit| units.has(*unit)) {
            let to = self.0[usize::from(unit)];
            folded.add(to, to);
        }
        let mut closed = Units::new();
        for unit in (0..=u16::MAX).filter(|unit| folded.has(self.0[usize::from(*unit)])) {
            closed.add(unit, unit);
        }
        closed
    }
}

fn fold(unit: u16) -> u16 {
    let Some(character) = char::from_u32(unit.into()) else {
        return unit;
    };
    let mut upper = character.to_uppercase();
    let (Some(single), None) = (upper.next(), upper.next()) else {
        return unit;
    };
    match u16::try_from(u32::from(single)) {
        Ok(folded) if unit < 128 || folded >= 128 => folded,
        _ => unit,
    }
}

const DIGITS: &[(u16, u16)] = &[(0x30, 0x39)];
const WORDS: &[(u16, u16)] = &[(0x30, 0x39), (0x41, 0x5a), (0x5f, 0x5f), (0x61, 0x7a)];
const SPACES: &[(u16, u16)] = &[
    (9, 13),
    (0x20, 0x20),
    (0xa0, 0xa0),
    (0x1680, 0x1680),
    (0x2000, 0x200a),
    (0x2028, 0x2029),
    (0x202f, 0x202f),
    (0x205f, 0x205f),
    (0x3000, 0x3000),
    (0xfeff, 0xfeff),
];
const LINE_ENDS: &[(u16, u16)] = &[(10, 10), (13, 13), (0x2028, 0x2029)];

/// One member of a class.
enum Member {
    Unit(u16),
    Set(Units),
}

struct Translator {
    letters: Vec<(usize, char)>,
    at: usize,
    end: usize,
    out: String,
    folds: Option<Folds>,
    dot_all: bool,
    nesting_max: usize,
}

impl Translator {
    fn peek(&self) -> Option<char> {
        self.letters.get(self.at).map(|(_, letter)| *letter)
    }

    fn next(&mut self) -> Option<char> {
        let letter = self.peek()?;
        self.at += 1;
        Some(letter)
    }

    fn eat(&mut self, letter: char) -> bool {
        let eats = self.peek() == Some(letter);
        self.at += usize::from(eats);
        eats
    }

    fn refused(&self, reason: impl Into<String>) -> Refused {
        Refused {
            reason: reason.into(),
            offset: self
                .letters
                .get(self.at)
                .map_or(self.end, |(offset, _)| *offset),
        }
    }

    /// Alternatives up to a closing bracket or the end.
    fn alternatives(&mut self, depth: usize) -> Result<(), Refused> {
        if depth > self.nesting_max {
            return Err(self.refused("the regular expression nests too deep"));
        }
        while let Some(letter) = self.peek() {
            match letter {
                ')' => return Ok(()),
                '|' => {
                    self.at += 1;
                    self.out.push('|');
                }
                '^' | '$' => {
                    self.at += 1;
                    self.out.push_str(if letter == '^' { "\\A" } else { "\\z" });
                    self.no_repetition()?;
                }
                '(' => {
                    self.group(depth)?;
                    self.repetition()?;
                }
                '*' | '+' | '?' => {
                    return Err(self.refused(format!("nothing to repeat before `{letter}`")));
                }
                '{' | '}' | ']' => {
                    return Err(self.refused(format!("unescaped `{letter}`; write `\\{letter}`")));
                }
                '\\' if self
                    .letters
                    .get(self.at + 1)
                    .is_some_and(|(_, next)| *next == 'b') =>
                {
                    self.at += 2;
                    self.out.push_str("(?-u:\\b)");
                    self.no_repetition()?;
                }
                _ => self.atom()?,
            }
        }
        Ok(())
    }

    fn group(&mut self, depth: usize) -> Result<(), Refused> {
        self.at += 1;
        if self.eat('?') {
            match self.next() {
                Some(':') => self.out.push_str("(?:"),
                Some('<')
                    if self
                        .peek()
                        .is_some_and(|letter| letter.is_ascii_alphabetic() || letter == '_') =>
                {
                    // Only `groups` uses a name, and rules can't read it.
                    while let Some(letter) = self.next() {
                        if letter == '>' {
                            break;
                        }
                        if !(letter.is_ascii_alphanumeric() || letter == '_') {
                            return Err(self.refused("the name of a group is not valid"));
                        }
                    }
                    self.out.push('(');
                }
                Some('=' | '!' | '<') => {
                    self.at -= 1;
                    return Err(self.refused("look-around can't be matched in linear time"));
                }
                _ => return Err(self.refused("a group of this kind is not supported")),
            }
        } else {
            self.out.push('(');
        }
        self.alternatives(depth + 1)?;
        if !self.eat(')') {
            return Err(self.refused("a `(` without `)`"));
        }
        self.out.push(')');
        Ok(())
    }

    fn no_repetition(&self) -> Result<(), Refused> {
        match self.peek() {
            Some('*' | '+' | '?' | '{') => Err(self.refused("nothing to repeat")),
            _ => Ok(()),
        }
    }

    fn repetition(&mut self) -> Result<(), Refused> {
        match self.peek() {
            Some(letter @ ('*' | '+' | '?')) => {
                self.at += 1;
                self.out.push(letter);
            }
            Some('{') => self.counted()?,
            _ => return Ok(()),
        }
        if self.eat('?') {
            self.out.push('?');
        }
        self.no_repetition()
    }

    fn counted(&mut self) -> Result<(), Refused> {
        self.at += 1;
        let least = self.count()?;
        let most = if self.eat(',') {
            if self.peek() == Some('}') {
                None
            } else {
                Some(self.count()?)
            }
        } else {
            Some(least)
        };
        if !self.eat('}') {
            return Err(self.refused("unescaped `{`; write `\\{`"));
        }
        let _ = match most {
            Some(most) if most < least => {
                return Err(self.refused("the numbers of a repetition are out of order"));
            }
            Some(most) => write!(self.out, "{{{least},{most}}}"),
            None => write!(self.out, "{{{least},}}"),
        };
        Ok(())
    }

    fn count(&mut self) -> Result<u32, Refused> {
        let mut count = None;
        while let Some(digit) = self.peek().and_then(|letter| letter.to_digit(10)) {
            self.at += 1;
            let more = count.unwrap_or(0) * 10 + digit;
            if more > REPEAT_MAX {
                return Err(self.refused(format!("more than {REPEAT_MAX} repetitions")));
            }
            count = Some(more);
        }
        count.ok_or_else(|| self.refused("unescaped `{`; write `\\{`"))
    }

    /// A character, an escape or a class, with its repetition.
    fn atom(&mut self) -> Result<(), Refused> {
        match self.next() {
            Some('.') => {
                let none = if self.dot_all { &[][..] } else { LINE_ENDS };
                Units::of(none).inverted().write(&mut self.out);
            }
            Some('[') => self.class()?,
            Some('\\') => match self.escape(false)? {
                Member::Unit(unit) => self.unit(unit),
                Member::Set(units) => units.write(&mut self.out),
            },
            Some(letter) => {
                // As in JavaScript, the repetition applies to the second half of a pair only.
                let mut pair = [0; 2];
                for unit in letter.encode_utf16(&mut pair) {
                    self.unit(*unit);
                }
            }
            None => {}
        }
        self.repetition()
    }

    fn unit(&mut self, unit: u16) {
        let single = Units::of(&[(unit, unit)]);
        match &self.folds {
            Some(folds) => folds.close(&single).write(&mut self.out),
            None => single.write(&mut self.out),
        }
    }

    /// An escape after its backslash.
    fn escape(&mut self, in_class: bool) -> Result<Member, Refused> {
        let Some(letter) = self.next() else {
            return Err(self.refused("a backslash at the end"));
        };
        let unit = match letter {
            'd' => return Ok(Member::Set(Units::of(DIGITS))),
            'D' => return Ok(Member::Set(Units::of(DIGITS).inverted())),
            'w' => return Ok(Member::Set(Units::of(WORDS))),
            'W' => return Ok(Member::Set(Units::of(WORDS).inverted())),
            's' => return Ok(Member::Set(Units::of(SPACES))),
            'S' => return Ok(Member::Set(Units::of(SPACES).inverted())),
            'b' if in_class => 8,
            'f' => 12,
            'n' => 10,
            'r' => 13,
            't' => 9,
            'v' => 11,
            '0' if !self.peek().is_some_and(|next| next.is_ascii_digit()) => 0,
            'x' => self.hexadecimal(2)?,
            'u' => self.hexadecimal(4)?,
            '0'..='9' | 'k' => {
                self.at -= 1;
                return Err(self.refused("back-references can't be matched in linear time"));
            }
            letter if letter.is_ascii_alphabetic() => {
                self.at -= 1;
                return Err(self.refused(format!("`\\{letter}` is not supported")));
            }
            letter => match u16::try_from(u32::from(letter)) {
                Ok(unit) => unit,
                Err(_) => return Err(self.refused("an escape of a character above U+FFFF")),
            },
        };
        Ok(Member::Unit(unit))
    }

    fn hexadecimal(&mut self, count: usize) -> Result<u16, Refused> {
        let mut unit = 0;
        for _ in 0..count {
            let digit = self.peek().and_then(|letter| letter.to_digit(16));
            let Some(digit) = digit else {
                return Err(self.refused(format!("{count} hexadecimal digits are missing")));
            };
            self.at += 1;
            unit = unit * 16 + digit as u16;
        }
        Ok(unit)
    }

    fn class(&mut self) -> Result<(), Refused> {
        let negated = self.eat('^');
        let mut units = Units::new();
        loop {
            if self.peek().is_none() {
                return Err(self.refused("a `[` without `]`"));
            }
            if self.eat(']') {
                break;
            }
            let members = self.class_member()?;
            let is_range = self.peek() == Some('-')
                && self
                    .letters
                    .get(self.at + 1)
                    .is_some_and(|(_, next)| *next != ']');
            if !is_range {
                members.iter().for_each(|member| add(&mut units, member));
                continue;
            }
            self.at += 1;
            let ends = self.class_member()?;
            let (Some(Member::Unit(from)), Some(Member::Unit(to))) = (members.last(), ends.first())
            else {
                return Err(self.refused("a range that starts or ends with a set"));
            };
            if from > to {
                return Err(self.refused("a range out of order"));
            }
            units.add(*from, *to);
            // Of a character of two units next to the dash only one half belongs to the range.
            members
                .iter()
                .chain(&ends)
                .for_each(|member| add(&mut units, member));
        }
        let units = match &self.folds {
            Some(folds) => folds.close(&units),
            None => units,
        };
        let units = if negated { units.inverted() } else { units };
        units.write(&mut self.out);
        Ok(())
    }

    fn class_member(&mut self) -> Result<Vec<Member>, Refused> {
        match self.next() {
            Some('\\') => Ok(vec![self.escape(true)?]),
            Some(letter) => {
                let mut pair = [0; 2];
                let units = letter.encode_utf16(&mut pair);
                Ok(units.iter().map(|unit| Member::Unit(*unit)).collect())
            }
            None => Err(self.refused("a `[` without `]`")),
        }
    }
}

fn add(units: &mut Units, member: &Member) {
    match member {
        Member::Unit(unit) => units.add(*unit, *unit),
        Member::Set(set) => units.join(set),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile(source: &str, flags: &str) -> Result<Regular, Refused> {
        Regular::compile(source, flags, 20, 1 << 20)
    }

    fn check(source: &str, flags: &str, text: &Text<'_>, expected: Option<&str>) {
        let regular = compile(source, flags).expect(source);
        let found = regular
            .first(text)
            .and_then(|groups| groups.into_iter().next().flatten());
        assert_eq!(
            found,
            expected.map(|text| text.to_owned().into()),
            "{source} {flags} {text:?}"
        );
    }

    #[test]
    fn matches_as_javascript_does() {
        let plain =
            |source, text: &'static str, expected| check(source, "", &text.into(), expected);
        plain("^a.c$", "abc", Some("abc"));
        plain("a.c", "a\nc", None);
        plain(r"\d+", "٣7", Some("7"));
        plain(r"\w+", "éab", Some("ab"));
        plain(r"\s", "\u{feff}", Some("\u{feff}"));
        plain(r"\bfoo\b", "a foo b", Some("foo"));
        plain(r"\bfoo", "éfoo", Some("foo"));
        plain("^.$", "😀", None);
        plain("^..$", "😀", Some("😀"));
        plain("😀", "x😀", Some("😀"));
        plain("[^a]", "é", Some("é"));
        plain("[]", "a", None);
        plain("[^]", "\n", Some("\n"));
        plain(r"[\w.-]+@\w+\.\w{2,}", "me.x@host.de", Some("me.x@host.de"));
        plain("a|ab", "ab", Some("a"));
        plain("a+?", "aaa", Some("a"));
        plain("x{2}", "xxx", Some("xx"));
        check("straße", "i", &"STRAßE".into(), Some("STRAßE"));
        check("k", "i", &"\u{212a}".into(), None);
        check("[^x]", "i", &"X".into(), None);
        check("a.c", "s", &"a\nc".into(), Some("a\nc"));
    }

    #[test]
    fn all_matches_advance_as_in_javascript() {
        let regular = compile("a*", "g").expect("valid");
        let all = regular.all::<()>(&"baa".into(), |_| Ok(())).expect("free");
        assert_eq!(all, [Text::from(""), "aa".into(), "".into()]);
    }

    #[test]
    fn a_lone_surrogate_is_a_unit() {
        let lone = Text::from_units(vec![0xd83d]);
        let regular = compile(r"\ud83d", "").expect("valid");
        assert_eq!(regular.first(&lone), Some(vec![Some(lone.clone())]));
        assert_eq!(regular.first(&"😀".into()), Some(vec![Some(lone)]));
    }

    #[test]
    fn refuses_what_is_not_linear_or_not_strict() {
        for (source, flags, offset) in [
            ("a(?=b)", "", 3),
            ("(?<!a)b", "", 2),
            (r"(a)\1", "", 4),
            ("a**", "", 2),
            ("^*", "", 1),
            ("*", "", 0),
            ("(a", "", 2),
            ("a)", "", 1),
            ("[a", "", 2),
            ("[b-a]", "", 4),
            ("a{2,1}", "", 6),
            ("a{", "", 2),
            ("}", "", 0),
            (r"\B", "", 1),
            (r"\p", "", 1),
            ("a", "u", 1),
            ("a", "gg", 1),
            ("a{1001}", "", 6),
            ("((a{500}){500}){500}", "", 0),
        ] {
            let refused = compile(source, flags).expect_err(source);
            assert_eq!(refused.offset, offset, "{source}: {}", refused.reason);
        }
        assert!(compile(&"(".repeat(100), "").is_err());
    }
}

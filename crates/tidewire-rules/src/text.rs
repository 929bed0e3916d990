//! JavaScript's texts: sequences of UTF-16 units, which may contain lone surrogates.
//!
//! Nearly all texts are well-formed, so they are stored as UTF-8, borrowed from their source; only a text that UTF-8
//! can't represent is stored as units. Each text has exactly one form, so equality compares forms.

use std::borrow::Cow;
use std::cmp::Ordering;

use crate::number::is_space;

/// A text. `Units` is never well-formed UTF-16, else it would be `Plain`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Text<'v> {
    Plain(Cow<'v, str>),
    Units(Vec<u16>),
}

impl<'v> From<&'v str> for Text<'v> {
    fn from(text: &'v str) -> Self {
        Self::Plain(Cow::Borrowed(text))
    }
}

impl From<String> for Text<'_> {
    fn from(text: String) -> Self {
        Self::Plain(Cow::Owned(text))
    }
}

impl<'v> Text<'v> {
    pub(crate) fn from_units(units: Vec<u16>) -> Self {
        match String::from_utf16(&units) {
            Ok(text) => text.into(),
            Err(_) => Self::Units(units),
        }
    }

    /// The text of the inside of a JSON string literal.
    pub(crate) fn from_literal(inner: &'v str, escaped: bool) -> Self {
        if escaped {
            Self::from_units(unescape(inner))
        } else {
            inner.into()
        }
    }

    /// The same text, borrowed from this one.
    pub(crate) fn borrowed(&'v self) -> Self {
        match self {
            Self::Plain(text) => Self::Plain(Cow::Borrowed(text)),
            Self::Units(units) => Self::Units(units.clone()),
        }
    }

    pub(crate) fn into_owned(self) -> Text<'static> {
        match self {
            Self::Plain(text) => Text::Plain(Cow::Owned(text.into_owned())),
            Self::Units(units) => Text::Units(units),
        }
    }

    /// The text if UTF-8 can represent it.
    pub(crate) fn plain(&self) -> Option<&str> {
        match self {
            Self::Plain(text) => Some(text),
            Self::Units(_) => None,
        }
    }

    pub(crate) fn units(&self) -> Cow<'_, [u16]> {
        match self {
            Self::Plain(text) => Cow::Owned(text.encode_utf16().collect()),
            Self::Units(units) => Cow::Borrowed(units),
        }
    }

    /// JavaScript's `length`.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Plain(text) if text.is_ascii() => text.len(),
            Self::Plain(text) => count_units(text),
            Self::Units(units) => units.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Plain(text) => text.is_empty(),
            Self::Units(units) => units.is_empty(),
        }
    }

    /// The text with an escape for every unit outside of ASCII and for the backslash.
    pub(crate) fn escaped(&self) -> String {
        let mut escaped = String::new();
        for unit in self.units().iter() {
            match u8::try_from(*unit) {
                Ok(byte @ (b' '..=b'[' | b']'..=b'~')) => escaped.push(char::from(byte)),
                _ => escaped.push_str(&format!("\\u{unit:04x}")),
            }
        }
        escaped
    }

    /// The cost of a scan of the whole text, in bytes.
    pub(crate) fn cost(&self) -> u64 {
        match self {
            Self::Plain(text) => text.len() as u64,
            Self::Units(units) => units.len() as u64 * 2,
        }
    }

    /// The text of one unit.
    pub(crate) fn at(&self, index: usize) -> Option<Text<'static>> {
        let unit = match self {
            Self::Plain(text) if text.is_ascii() => u16::from(*text.as_bytes().get(index)?),
            Self::Plain(text) => text.encode_utf16().nth(index)?,
            Self::Units(units) => *units.get(index)?,
        };
        Some(Text::from_units(vec![unit]))
    }

    pub(crate) fn concat(self, other: &Text<'_>) -> Text<'v> {
        match (self, other) {
            (Self::Plain(left), Text::Plain(right)) => {
                let mut whole = match left {
                    Cow::Owned(owned) => owned,
                    Cow::Borrowed(text) => {
                        let mut whole = String::with_capacity(text.len() + right.len());
                        whole.push_str(text);
                        whole
                    }
                };
                whole.push_str(right);
                whole.into()
            }
            (left, right) => {
                let mut units = left.units().into_owned();
                units.extend_from_slice(&right.units());
                Self::from_units(units)
            }
        }
    }

    pub(crate) fn starts_with(&self, part: &Text<'_>, from: f64) -> bool {
        if let (Self::Plain(text), Text::Plain(part)) = (self, part)
            && from <= 0.0
        {
            return text.starts_with(part.as_ref());
        }
        let (units, part) = (self.units(), part.units());
        let start = clamp(from, units.len());
        units[start..].starts_with(&part)
    }

    pub(crate) fn ends_with(&self, part: &Text<'_>, end: Option<f64>) -> bool {
        if let (Self::Plain(text), Text::Plain(part), None) = (self, part, end) {
            return text.ends_with(part.as_ref());
        }
        let (units, part) = (self.units(), part.units());
        let end = end.map_or(units.len(), |end| clamp(end, units.len()));
        units[..end].ends_with(&part)
    }

    /// The first position of `part`, from a position on.
    pub(crate) fn index_of(&self, part: &Text<'_>, from: f64) -> Option<usize> {
        if let (Self::Plain(text), Text::Plain(part)) = (self, part)
            && from <= 0.0
        {
            // A well-formed part can't begin or end within a pair of surrogates, so a search by bytes finds the same
            // positions as by units.
            return text.find(part.as_ref()).map(|at| count_units(&text[..at]));
        }
        let (units, part) = (self.units(), part.units());
        let start = clamp(from, units.len());
        find_units(&units, &part, start)
    }

    pub(crate) fn upper(&self) -> Text<'static> {
        self.by_runs(&|run| run.to_uppercase())
    }

    pub(crate) fn lower(&self) -> Text<'static> {
        self.by_runs(&|run| run.to_lowercase())
    }

    /// Changes everything except lone surrogates, which have no case and end the context of characters with case.
    fn by_runs(&self, change: &dyn Fn(&str) -> String) -> Text<'static> {
        match self {
            Self::Plain(text) => change(text).into(),
            Self::Units(units) => {
                let mut changed = Vec::with_capacity(units.len());
                let mut run = String::new();
                for character in char::decode_utf16(units.iter().copied()) {
                    match character {
                        Ok(character) => run.push(character),
                        Err(lone) => {
                            changed.extend(change(&run).encode_utf16());
                            run.clear();
                            changed.push(lone.unpaired_surrogate());
                        }
                    }
                }
                changed.extend(change(&run).encode_utf16());
                Text::from_units(changed)
            }
        }
    }

    pub(crate) fn trim(&self) -> Text<'static> {
        match self {
            Self::Plain(text) => text.trim_matches(is_space).to_owned().into(),
            Self::Units(units) => {
                let is_blank = |unit: &u16| char::from_u32((*unit).into()).is_some_and(is_space);
                let start = units.iter().position(|unit| !is_blank(unit)).unwrap_or(0);
                let end = units
                    .iter()
                    .rposition(|unit| !is_blank(unit))
                    .map_or(0, |last| last + 1);
                Text::from_units(units[start..end].to_vec())
            }
        }
    }

    /// Orders by units, as `<` compares texts.
    pub(crate) fn order(&self, other: &Text<'_>) -> Ordering {
        match (self, other) {
            // Bytes and units have the same order, unless a pair of surrogates meets U+E000 or more.
            (Self::Plain(left), Text::Plain(right)) if !has_pairs(left) && !has_pairs(right) => {
                left.as_ref().cmp(right.as_ref())
            }
            (Self::Plain(left), Text::Plain(right)) => {
                left.encode_utf16().cmp(right.encode_utf16())
            }
            _ => self.units().cmp(&other.units()),
        }
    }
}

/// Whether a text has characters that take two units.
pub(crate) fn has_pairs(text: &str) -> bool {
    text.bytes().any(|byte| byte >= 0xf0)
}

fn count_units(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

/// A position within `0..=max`.
fn clamp(position: f64, max: usize) -> usize {
    if position >= max as f64 {
        max
    } else {
        // Not-a-number and negative numbers become 0.
        position as usize
    }
}

/// In time of the sum of both lengths, because users supply the searched text, too (Knuth, Morris and Pratt).
fn find_units(units: &[u16], part: &[u16], start: usize) -> Option<usize> {
    let mut borders = vec![0_usize; part.len() + 1];
    let mut matched = 0;
    for index in 1..part.len() {
        while matched > 0 && part[index] != part[matched] {
            matched = borders[matched];
        }
        matched += usize::from(part[index] == part[matched]);
        borders[index + 1] = matched;
    }
    let mut matched = 0;
    if part.is_empty() {
        return Some(start);
    }
    for (index, unit) in units.iter().enumerate().skip(start) {
        while matched > 0 && *unit != part[matched] {
            matched = borders[matched];
        }
        matched += usize::from(*unit == part[matched]);
        if matched == part.len() {
            return Some(index + 1 - part.len());
        }
    }
    None
}

/// The units of the inside of a checked JSON string literal. Characters without an escape represent themselves.
fn unescape(inner: &str) -> Vec<u16> {
    let mut units = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let Some((plain, after)) = rest.split_once('\\') {
        units.extend(plain.encode_utf16());
        let mut letters = after.chars();
        let Some(letter) = letters.next() else {
            return units;
        };
        rest = letters.as_str();
        units.push(match letter {
            'b' => 8,
            'f' => 12,
            'n' => 10,
            'r' => 13,
            't' => 9,
            'u' => {
                let unit = rest
                    .get(..4)
                    .and_then(|digits| u16::from_str_radix(digits, 16).ok());
                rest = rest.get(4..).unwrap_or_default();
                unit.unwrap_or(0xfffd)
            }
            other => {
                let mut pair = [0; 2];
                units.extend_from_slice(other.encode_utf16(&mut pair));
                continue;
            }
        });
    }
    units.extend(rest.encode_utf16());
    units
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(units: &[u16]) -> Text<'static> {
        Text::from_units(units.to_vec())
    }

    #[test]
    fn length_index_and_order_count_units() {
        let smile = Text::from("a😀");
        assert_eq!(smile.len(), 3);
        assert_eq!(smile.at(1), Some(units(&[0xd83d])));
        assert_eq!(smile.at(3), None);
        // U+1F600 begins with D83D, which is below U+E000.
        assert_eq!(
            Text::from("😀").order(&Text::from("\u{e000}")),
            Ordering::Less
        );
        assert_eq!(Text::from("b").order(&Text::from("é")), Ordering::Less);
    }

    #[test]
    fn halves_of_a_pair_join_and_are_found() {
        let (high, low) = (units(&[0xd83d]), units(&[0xde00]));
        assert_eq!(high.clone().concat(&low), Text::from("😀"));
        assert!(Text::from("😀").starts_with(&high, 0.0));
        assert!(Text::from("😀").ends_with(&low, None));
        assert_eq!(Text::from("a😀").index_of(&low, 0.0), Some(2));
        assert_eq!(Text::from("a😀b").index_of(&Text::from("b"), 0.0), Some(3));
        assert_eq!(Text::from("aab").index_of(&Text::from("ab"), 1.0), Some(1));
        assert_eq!(Text::from("abc").index_of(&Text::from(""), 9.0), Some(3));
    }

    #[test]
    fn case_and_space_leave_lone_surrogates_alone() {
        let text = units(&[u16::from(b'a'), 0xd800, u16::from(b'b'), 32]);
        assert_eq!(
            text.upper(),
            units(&[u16::from(b'A'), 0xd800, u16::from(b'B'), 32])
        );
        assert_eq!(
            text.trim(),
            units(&[u16::from(b'a'), 0xd800, u16::from(b'b')])
        );
        assert_eq!(Text::from("straße ΑΣ").upper(), Text::from("STRASSE ΑΣ"));
        assert_eq!(Text::from("ΑΣ").lower(), Text::from("ας"));
        assert_eq!(
            Text::from("\u{feff}\u{2029} x\u{85}").trim(),
            Text::from("x\u{85}")
        );
    }

    #[test]
    fn literals_of_json_are_read() {
        assert_eq!(
            Text::from_literal(r"a\u0062\n\/", true),
            Text::from("ab\n/")
        );
        assert_eq!(Text::from_literal(r"\ud83d\ude00", true), Text::from("😀"));
        assert_eq!(Text::from_literal(r"\ud83d", true), units(&[0xd83d]));
    }
}

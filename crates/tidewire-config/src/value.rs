//! The kinds of values of options, their texts, and the errors of wrong ones.

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use zeroize::Zeroize as _;

use super::nearest::nearest;
use super::option::{Input, Value, WrongValue};

/// A value that the server chooses if it is not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Auto<T> {
    /// Written `auto`.
    #[default]
    Auto,
    /// Set by the operator.
    Set(T),
}

impl<T: Copy> Auto<T> {
    /// The value that is set, or else the result of `work_out`.
    pub fn or_else(self, work_out: impl FnOnce() -> T) -> T {
        match self {
            Self::Auto => work_out(),
            Self::Set(value) => value,
        }
    }
}

/// A time limit that can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limited {
    /// Written `never`.
    Never,
    /// After this time.
    After(Duration),
}

impl Limited {
    /// The time; `None` for `never`.
    #[must_use]
    pub fn time(self) -> Option<Duration> {
        match self {
            Self::Never => None,
            Self::After(time) => Some(time),
        }
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteCount(pub u64);

impl ByteCount {
    /// As a size in memory.
    #[must_use]
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

const SIZE_UNITS: [(&str, u64); 9] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

const TIME_UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

/// The number at the start of `text`, and the unit after it.
fn split_unit(text: &str) -> (&str, &str) {
    let end = text
        .find(|character: char| !character.is_ascii_digit())
        .unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

fn scale(text: &str, units: &[(&str, u64)], plain: Option<u64>) -> Option<u64> {
    let (number, unit) = split_unit(text.trim());
    let factor = if unit.is_empty() {
        plain?
    } else {
        units
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(unit))
            .map(|(_, factor)| *factor)?
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

fn scaled_text(count: u64, units: &[(&str, u64)], plain: &str) -> String {
    let unit = units
        .iter()
        .filter(|(_, factor)| count != 0 && count.is_multiple_of(*factor))
        .max_by_key(|(_, factor)| *factor);
    match unit {
        Some((unit, factor)) => format!("{}{unit}", count / factor),
        None => format!("{count}{plain}"),
    }
}

/// A value written as one word or number.
pub trait Scalar: Sized {
    /// Parses a text.
    ///
    /// # Errors
    /// Description of the problem, with the text.
    fn parse(text: &str) -> Result<Self, String>;
    /// The value as text. `parse` returns the same value for it.
    fn format(&self) -> String;
    /// Description of the allowed texts, for people.
    fn kind() -> String;
}

impl Scalar for ByteCount {
    fn parse(text: &str) -> Result<Self, String> {
        scale(text, &SIZE_UNITS, Some(1))
            .map(Self)
            .ok_or_else(|| format!("{text:?} is not a size; write it as `65536`, `64KiB` or `1MB`"))
    }

    fn format(&self) -> String {
        let count = self.0;
        let is_binary = count.is_multiple_of(1_024) || !count.is_multiple_of(1_000);
        if is_binary {
            scaled_text(count, &SIZE_UNITS[1..5], "")
        } else {
            scaled_text(count, &SIZE_UNITS[5..], "")
        }
    }

    fn kind() -> String {
        "a size".into()
    }
}

impl Scalar for Duration {
    fn parse(text: &str) -> Result<Self, String> {
        scale(text, &TIME_UNITS, (text.trim() == "0").then_some(1))
            .map(Self::from_millis)
            .ok_or_else(|| {
                format!("{text:?} is not a time; write it with a unit, as `500ms`, `30s` or `2m`")
            })
    }

    fn format(&self) -> String {
        let count = u64::try_from(self.as_millis()).unwrap_or(u64::MAX);
        // Minutes from 10 minutes on; below that seconds are easier to read.
        if count >= 600_000 {
            scaled_text(count, &TIME_UNITS, "s")
        } else {
            scaled_text(count, &TIME_UNITS[..2], "s")
        }
    }

    fn kind() -> String {
        "a time".into()
    }
}

impl Scalar for Limited {
    fn parse(text: &str) -> Result<Self, String> {
        if text == "never" {
            return Ok(Self::Never);
        }
        Duration::parse(text).map(Self::After)
    }

    fn format(&self) -> String {
        match self {
            Self::Never => "never".into(),
            Self::After(time) => time.format(),
        }
    }

    fn kind() -> String {
        "a time or `never`".into()
    }
}

impl<T: Scalar> Scalar for Auto<T> {
    fn parse(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        T::parse(text)
            .map(Self::Set)
            .map_err(|reason| format!("{reason}, or `auto`"))
    }

    fn format(&self) -> String {
        match self {
            Self::Auto => "auto".into(),
            Self::Set(value) => value.format(),
        }
    }

    fn kind() -> String {
        format!("{} or `auto`", T::kind())
    }
}

impl Scalar for bool {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(format!("{text:?} is neither `true` nor `false`")),
        }
    }

    fn format(&self) -> String {
        self.to_string()
    }

    fn kind() -> String {
        "`true` or `false`".into()
    }
}

fn parse_count<T: FromStr + Display>(text: &str, max: T) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is not a number from 0 to {max}"))
}

macro_rules! count {
    ($($type:ty),*) => { $(
        impl Scalar for $type {
            fn parse(text: &str) -> Result<Self, String> {
                parse_count(text, Self::MAX)
            }

            fn format(&self) -> String {
                self.to_string()
            }

            fn kind() -> String {
                "a number".into()
            }
        }
    )* };
}
count!(u16, u32, usize);

impl Scalar for String {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }

    fn format(&self) -> String {
        quote(self)
    }

    fn kind() -> String {
        "text".into()
    }
}

impl Scalar for PathBuf {
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("the path is empty".into());
        }
        Ok(Self::from(text))
    }

    fn format(&self) -> String {
        quote(&self.to_string_lossy())
    }

    fn kind() -> String {
        "a path".into()
    }
}

/// An optional file; written `none` if it is not set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OptionalPath(pub Option<PathBuf>);

impl Scalar for OptionalPath {
    fn parse(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        PathBuf::parse(text).map(|path| Self(Some(path)))
    }

    fn format(&self) -> String {
        self.0
            .as_ref()
            .map_or_else(|| "none".into(), Scalar::format)
    }

    fn kind() -> String {
        "a path or `none`".into()
    }
}

/// A number of bytes; written `none` if it is not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OptionalBytes(pub Option<ByteCount>);

impl Scalar for OptionalBytes {
    fn parse(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        ByteCount::parse(text).map(|count| Self(Some(count)))
    }

    fn format(&self) -> String {
        self.0
            .as_ref()
            .map_or_else(|| "none".into(), Scalar::format)
    }

    fn kind() -> String {
        "a size or `none`".into()
    }
}

/// Text that must not be shown. Its option must have the trait `secret` too, so that it is masked when options are printed. Its memory
/// is wiped when it is dropped.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(pub String);

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Scalar for Secret {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(Self(text.to_owned()))
    }

    fn format(&self) -> String {
        quote(&self.0)
    }

    fn kind() -> String {
        "a secret".into()
    }
}

/// Source of the permission rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Rules {
    /// Written `none`: the operator has set nothing.
    #[default]
    None,
    /// Written `allow_all`.
    AllowAll,
    /// This file.
    File(PathBuf),
}

impl Scalar for Rules {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "allow_all" => Ok(Self::AllowAll),
            path => PathBuf::parse(path).map(Self::File),
        }
    }

    fn format(&self) -> String {
        match self {
            Self::None => "none".into(),
            Self::AllowAll => "allow_all".into(),
            Self::File(path) => path.format(),
        }
    }

    fn kind() -> String {
        "a path, `allow_all` or `none`".into()
    }
}

/// `text` as YAML, in quotes if it would have another meaning without them.
pub(super) fn quote(text: &str) -> String {
    let is_plain_character =
        |character: char| character.is_ascii_alphanumeric() || "./_-".contains(character);
    let is_plain = text.chars().all(is_plain_character)
        && text.starts_with(|first: char| first.is_ascii_alphabetic() || "./".contains(first))
        && !matches!(
            text,
            "true" | "false" | "null" | "yes" | "no" | "on" | "off" | "."
        );
    if is_plain {
        text.to_owned()
    } else {
        serde_json::Value::from(text).to_string()
    }
}

/// An option that is one of several words. The macro `choice` defines it.
pub trait Choice: Copy + 'static {
    /// All values with their words.
    const ALL: &'static [(&'static str, Self)];
    /// Its word.
    fn word(self) -> &'static str;
}

/// Parses the word of a value.
///
/// # Errors
/// The word is unknown. The error has all words, and the nearest one.
pub fn parse_choice<T: Choice>(text: &str) -> Result<T, String> {
    if let Some((_, value)) = T::ALL.iter().find(|(word, _)| *word == text) {
        return Ok(*value);
    }
    let words = || T::ALL.iter().map(|(word, _)| *word);
    let hint =
        nearest(text, words()).map_or(String::new(), |word| format!("; did you mean {word:?}?"));
    let all = words().filter(is_listed).collect::<Vec<_>>().join(", ");
    Err(format!("{text:?} is not one of {all}{hint}"))
}

/// All words of an option, for people.
#[must_use]
pub fn choice_kind<T: Choice>() -> String {
    let words = T::ALL.iter().map(|(word, _)| *word).filter(is_listed);
    let words: Vec<String> = words.map(|word| format!("`{word}`")).collect();
    words.join(", ")
}

/// Whether a word is shown to people. Words that begin with `test_` exist in builds for tests only.
fn is_listed(word: &&str) -> bool {
    !word.starts_with("test_")
}

/// Defines an option that is one of several words.
macro_rules! choice {
    ($(#[doc = $doc:literal])* $name:ident {
        $( $(#[doc = $member_doc:literal])* $(#[cfg($cfg:meta)])? $member:ident = $word:literal, )*
    }) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $( $(#[doc = $member_doc])* $(#[cfg($cfg)])? $member, )*
        }

        impl $crate::value::Choice for $name {
            const ALL: &'static [(&'static str, Self)] = &[
                $( $(#[cfg($cfg)])? ($word, Self::$member), )*
            ];

            fn word(self) -> &'static str {
                match self {
                    $( $(#[cfg($cfg)])? Self::$member => $word, )*
                }
            }
        }

        impl $crate::value::Scalar for $name {
            fn parse(text: &str) -> Result<Self, String> {
                $crate::value::parse_choice(text)
            }

            fn format(&self) -> String {
                $crate::value::Choice::word(*self).to_owned()
            }

            fn kind() -> String {
                $crate::value::choice_kind::<Self>()
            }
        }
    };
}
pub(crate) use choice;

impl<T: Scalar> Value for T {
    fn set(&mut self, input: &Input) -> Result<(), WrongValue> {
        match input {
            Input::Scalar(text) => {
                *self = T::parse(text)?;
                Ok(())
            }
            Input::List(_) => Err(format!("a list is given; write {} instead", T::kind()).into()),
        }
    }

    fn show(&self) -> String {
        self.format()
    }

    fn kind(&self) -> String {
        T::kind()
    }
}

/// A list of scalars.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List<T>(pub Vec<T>);

impl<T> std::ops::Deref for List<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T: Scalar> Value for List<T> {
    fn set(&mut self, input: &Input) -> Result<(), WrongValue> {
        let entries: Vec<&str> = match input {
            Input::Scalar(text) if text.is_empty() => Vec::new(),
            Input::Scalar(text) => text.split(',').map(str::trim).collect(),
            Input::List(entries) => entries.iter().map(|entry| entry.value.as_str()).collect(),
        };
        let parse = |(index, text)| {
            T::parse(text).map_err(|reason| WrongValue {
                reason,
                index: Some(index),
            })
        };
        self.0 = entries
            .into_iter()
            .enumerate()
            .map(parse)
            .collect::<Result<_, _>>()?;
        Ok(())
    }

    fn show(&self) -> String {
        let entries: Vec<String> = self.0.iter().map(Scalar::format).collect();
        format!("[{}]", entries.join(", "))
    }

    fn kind(&self) -> String {
        format!("a list, each {}", T::kind())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_units() {
        let check = |text: &str, expected: Option<u64>| {
            assert_eq!(
                ByteCount::parse(text).ok(),
                expected.map(ByteCount),
                "{text}"
            );
        };
        check("65536", Some(65_536));
        check("64KiB", Some(65_536));
        check("64 kib", Some(65_536));
        check("1MB", Some(1_000_000));
        check("2GiB", Some(2 << 30));
        check("7B", Some(7));
        check("", None);
        check("MiB", None);
        check("1.5MiB", None);
        check("-1", None);
        check("1Mi", None);
        check("99999999999TiB", None);
    }

    #[test]
    fn times_need_units() {
        let check = |text: &str, expected: Option<u64>| {
            let expected = expected.map(Duration::from_millis);
            assert_eq!(Duration::parse(text).ok(), expected, "{text}");
        };
        check("500ms", Some(500));
        check("30s", Some(30_000));
        check("2m", Some(120_000));
        check("1 h", Some(3_600_000));
        check("0", Some(0));
        check("30", None);
        check("s", None);
        check("30 seconds", None);
        check("18446744073709551615h", None);
    }

    #[test]
    fn written_values_are_read_back_unchanged() {
        fn check<T: Scalar + PartialEq + std::fmt::Debug>(value: T, expected: &str) {
            assert_eq!(value.format(), expected);
            assert_eq!(T::parse(expected), Ok(value));
        }
        check(ByteCount(0), "0");
        check(ByteCount(1 << 20), "1MiB");
        check(ByteCount(1_000_000), "1MB");
        check(ByteCount(1_234), "1234");
        check(ByteCount(16 * 1024), "16KiB");
        check(Duration::ZERO, "0s");
        check(Duration::from_millis(1_500), "1500ms");
        check(Duration::from_secs(180), "180s");
        check(Duration::from_secs(600), "10m");
        check(Limited::Never, "never");
        check(Auto::Set(3_u16), "3");
        check(Auto::<u16>::Auto, "auto");
    }

    #[test]
    fn text_is_quoted_where_yaml_would_misread_it() {
        let check = |text: &str, expected: &str| assert_eq!(quote(text), expected);
        check("./tidewire-data", "./tidewire-data");
        check("/deepstream", "/deepstream");
        check("::1", "\"::1\"");
        check("127.0.0.1", "\"127.0.0.1\"");
        check("*", "\"*\"");
        check("", "\"\"");
        check("no", "\"no\"");
        check("a: b", "\"a: b\"");
        check("with \"quotes\"", "\"with \\\"quotes\\\"\"");
    }

    #[test]
    fn a_wrong_entry_of_a_list_is_named() {
        let mut list = List(vec![1_u16]);
        let wrong = list
            .set(&Input::Scalar("1, two, 3".into()))
            .expect_err("two is not a number");
        assert_eq!(wrong.index, Some(1));
        assert_eq!(list, List(vec![1]));
    }
}

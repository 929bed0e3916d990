//! Rules of event history in options: `news/* count=1000 bytes=1MiB age=1h keep=store`.

use std::time::Duration;

use tidewire_core::history_rules::{self, Keep};
use tidewire_core::name_pattern::NamePattern;

use super::value::{ByteCount, Scalar};

/// Maximum number of events of one name, if the rule has no `count`.
const COUNT_MAX: usize = 1_000;
/// Maximum bytes of these events, if the rule has no `bytes`.
const BYTES_MAX: ByteCount = ByteCount(1 << 20);
/// How long the server keeps them, if the rule has no `age`.
const AGE_MAX: Duration = Duration::from_secs(3_600);

/// Pattern of names that have history, and the limits for each name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryRule {
    pattern: NamePattern,
    count_max: usize,
    bytes_max: ByteCount,
    age_max: Duration,
    keep: Keep,
}

impl HistoryRule {
    /// The rule in the engine's form.
    pub(super) fn of_engine(&self) -> history_rules::HistoryRule {
        history_rules::HistoryRule {
            pattern: self.pattern.clone(),
            count_max: self.count_max,
            bytes_max: self.bytes_max.as_usize(),
            age_max: self.age_max,
            keep: self.keep,
        }
    }

    fn set(&mut self, bound: &str) -> Result<(), String> {
        let (key, value) = bound.split_once('=').ok_or_else(|| wrong(bound))?;
        match key {
            "count" => self.count_max = Scalar::parse(value)?,
            "bytes" => self.bytes_max = Scalar::parse(value)?,
            "age" => self.age_max = Scalar::parse(value)?,
            "keep" => {
                self.keep = match value {
                    "memory" => Keep::Memory,
                    "store" => Keep::Store,
                    _ => return Err(format!("{bound:?}: write `keep=memory` or `keep=store`")),
                }
            }
            _ => return Err(wrong(bound)),
        }
        let keeps = self.count_max > 0 && self.bytes_max.0 > 0 && !self.age_max.is_zero();
        keeps
            .then_some(())
            .ok_or_else(|| format!("{bound:?} keeps no events; write a value above 0"))
    }
}

fn wrong(bound: &str) -> String {
    format!(
        "{bound:?} is not a limit of a history; write `count=1000`, `bytes=1MiB`, `age=1h` or `keep=store`"
    )
}

impl Scalar for HistoryRule {
    fn parse(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let Some(pattern) = words.next() else {
            return Err(
                "a pattern of names is missing; write it first, as in `news/* count=1000`".into(),
            );
        };
        let mut rule = Self {
            pattern: NamePattern::new(pattern),
            count_max: COUNT_MAX,
            bytes_max: BYTES_MAX,
            age_max: AGE_MAX,
            keep: Keep::Memory,
        };
        words.try_for_each(|bound| rule.set(bound))?;
        Ok(rule)
    }

    fn format(&self) -> String {
        let Self {
            pattern,
            count_max,
            bytes_max,
            age_max,
            keep,
        } = self;
        let keep = match keep {
            Keep::Memory => "memory",
            Keep::Store => "store",
        };
        let (bytes, age) = (bytes_max.format(), age_max.format());
        format!("{pattern} count={count_max} bytes={bytes} age={age} keep={keep}").format()
    }

    fn kind() -> String {
        "a pattern of names with limits, as `news/* count=1000 bytes=1MiB age=1h`".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_a_pattern_with_bounds() {
        let check = |text: &str, count: usize, bytes: u64, age_s: u64| {
            let rule = HistoryRule::parse(text).expect("a rule");
            assert_eq!(rule.count_max, count, "{text}");
            assert_eq!(rule.bytes_max, ByteCount(bytes), "{text}");
            assert_eq!(rule.age_max, Duration::from_secs(age_s), "{text}");
            assert!(rule.pattern.matches("news/a"), "{text}");
        };
        check("news/*", 1_000, 1 << 20, 3_600);
        check("  news/*   count=5 ", 5, 1 << 20, 3_600);
        check("* age=90s bytes=10KB count=7", 7, 10_000, 90);
        for text in [
            "",
            " ",
            "a count",
            "a count=",
            "a count=0",
            "a count=-1",
            "a bytes=0",
            "a age=0",
            "a age=5",
            "a size=5",
            "a keep=disk",
            "a b count=1",
        ] {
            HistoryRule::parse(text).expect_err(text);
        }
    }

    #[test]
    fn written_values_are_read_back_unchanged() {
        for text in [
            "a*b",
            "news/* count=5 bytes=3MB age=2h",
            "* age=500ms keep=store",
        ] {
            let rule = HistoryRule::parse(text).expect("a rule");
            let written = rule.format();
            let again = HistoryRule::parse(written.trim_matches('"'));
            assert_eq!(again.as_ref(), Ok(&rule), "{written}");
        }
    }
}

//! Rates in options: `100/s`, `600/m`, with `burst 500` if more may come at once after a pause.

use std::time::Duration;

use tidewire_core::rate::Rate;

use super::value::Scalar;

/// A rate, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OptionalRate(pub Option<Rate>);

/// Units of time, and the minimum number of permits of each. With fewer a client would wait so long that it looks dead.
const UNITS: [(&str, Duration, u32); 2] = [
    ("s", Duration::from_secs(1), 1),
    ("m", Duration::from_secs(60), 6),
];
/// Maximum number of permits. A higher rate would limit nothing, and the time for one permit in whole nanoseconds would be inexact.
const COUNT_MAX: u32 = 10_000_000;

fn parse(text: &str) -> Option<Rate> {
    let (rate, burst) = match text.split_once(" burst ") {
        Some((rate, burst)) => (rate, Some(burst.trim().parse::<u32>().ok()?)),
        None => (text, None),
    };
    let (count, unit) = rate.trim().split_once('/')?;
    let (_, period, count_min) = UNITS.into_iter().find(|(name, ..)| *name == unit.trim())?;
    let count: u32 = count.trim().parse().ok()?;
    if !(count_min..=COUNT_MAX).contains(&count) {
        return None;
    }
    let burst = burst.unwrap_or(count);
    (1..=COUNT_MAX).contains(&burst).then(|| Rate {
        interval: period / count,
        burst,
    })
}

impl Scalar for OptionalRate {
    fn parse(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        parse(text).map(|rate| Self(Some(rate))).ok_or_else(|| {
            format!(
                "{text:?} is not a rate; write it as `100/s`, `600/m` (at least 6) or `100/s burst 500`, or `none`"
            )
        })
    }

    fn format(&self) -> String {
        let Some(Rate { interval, burst }) = self.0 else {
            return "none".into();
        };
        let (unit, count) = UNITS
            .into_iter()
            .map(|(unit, period, _)| (unit, period.as_nanos() / interval.as_nanos().max(1)))
            .find(|(unit, count)| *count > 0 || *unit == "m")
            .unwrap_or(("m", 0));
        format!("\"{count}/{unit} burst {burst}\"")
    }

    fn kind() -> String {
        "a rate as `100/s`, or `none`".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_a_unit_and_maybe_a_burst() {
        let check = |text: &str, expected: Option<(u64, u32)>| {
            let expected = expected.map(|(micros, burst)| {
                OptionalRate(Some(Rate {
                    interval: Duration::from_micros(micros),
                    burst,
                }))
            });
            assert_eq!(OptionalRate::parse(text).ok(), expected, "{text}");
        };
        check("100/s", Some((10_000, 100)));
        check("100/s burst 500", Some((10_000, 500)));
        check("1/s", Some((1_000_000, 1)));
        check("600/m", Some((100_000, 600)));
        check("6/m burst 1", Some((10_000_000, 1)));
        for text in [
            "",
            "100",
            "100/h",
            "0/s",
            "5/m",
            "-1/s",
            "1.5/s",
            "100/s burst 0",
            "100/s burst",
            "100/s 500",
            "10000001/s",
            "99999999999/s",
        ] {
            check(text, None);
        }
        assert_eq!(OptionalRate::parse("none"), Ok(OptionalRate(None)));
    }

    #[test]
    fn written_values_are_read_back_unchanged() {
        for text in [
            "none",
            "100/s burst 500",
            "7/m burst 3",
            "1/s burst 1",
            "1000000/s burst 9",
        ] {
            let rate = OptionalRate::parse(text).expect("a rate");
            let written = rate.format();
            let again = OptionalRate::parse(written.trim_matches('"')).expect("a rate");
            assert_eq!(again.format(), written, "{text}");
        }
    }
}

//! Numbers of JSON: doubles, and 64-bit integers that stay exact.

use std::cmp::Ordering;

/// A number in its only form: equal numbers are equal values of this type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    /// An integer of 64 bits, however the text writes it.
    Int(i64),
    /// Any other number; infinite beyond the range of a double, as `JSON.parse` reads it.
    Float(f64),
}

/// 2^63, the first double that no `i64` holds.
const INT_END: f64 = 9_223_372_036_854_775_808.0;

impl Number {
    /// Reads the text of a JSON number. `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() < 20
            && let Ok(int) = text.parse()
        {
            return Some(Self::Int(int));
        }
        // `parse` accepts more than JSON does, such as `inf`; the tape passes digits, signs, dots and exponents only.
        match text.parse::<i64>() {
            Ok(int) => Some(Self::Int(int)),
            Err(_) => text.parse().ok().map(Self::of),
        }
    }

    fn of(float: f64) -> Self {
        if float.fract() == 0.0 && (-INT_END..INT_END).contains(&float) {
            Self::Int(float as i64)
        } else {
            Self::Float(float)
        }
    }

    pub fn compare(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Int(left), Self::Int(right)) => left.cmp(&right),
            (Self::Float(left), Self::Float(right)) => left.total_cmp(&right),
            (Self::Int(left), Self::Float(right)) => int_against_float(left, right),
            (Self::Float(left), Self::Int(right)) => int_against_float(right, left).reverse(),
        }
    }

    /// Appends the only text of the number. An infinite one is written as the text that `JSON.parse` reads as infinite.
    pub fn write(self, out: &mut String) {
        match self {
            Self::Int(int) => out.push_str(&int.to_string()),
            Self::Float(f64::INFINITY) => out.push_str("1e999"),
            Self::Float(f64::NEG_INFINITY) => out.push_str("-1e999"),
            Self::Float(float) => out.push_str(&format!("{float:?}")),
        }
    }

    /// Whether the remainder of the division by `divisor` (not 0) is `remainder`. It has the sign of the dividend.
    pub fn has_remainder(self, divisor: i64, remainder: i64) -> bool {
        match self {
            // The only division that overflows is by -1, whose remainder is 0.
            Self::Int(int) => int.checked_rem(divisor).unwrap_or(0) == remainder,
            Self::Float(float) => float % divisor as f64 == remainder as f64,
        }
    }

    /// The largest double that is not above the number, and the rest. The rest is 0 below 2^53 and less than 1,024 above.
    pub fn floor(self) -> (f64, u16) {
        match self {
            Self::Float(float) => (float, 0),
            Self::Int(int) => {
                let mut float = int as f64;
                if int_against_float(int, float) == Ordering::Less {
                    float = float.next_down();
                }
                let rest = i128::from(int) - float as i128;
                (float, u16::try_from(rest).unwrap_or(u16::MAX))
            }
        }
    }
}

/// `float` may be any double here, also an integer.
fn int_against_float(int: i64, float: f64) -> Ordering {
    if float >= INT_END {
        return Ordering::Less;
    }
    if float < -INT_END {
        return Ordering::Greater;
    }
    let floor = float.floor();
    match int.cmp(&(floor as i64)) {
        Ordering::Equal if float > floor => Ordering::Less,
        order => order,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_numbers_have_one_form() {
        for texts in [
            ["1", "1.0", "10e-1"],
            ["0", "-0", "-0.0"],
            ["1e400", "1e999", "123e500"],
            ["1e18", "1000000000000000000", "1.0e18"],
        ] {
            let numbers = texts.map(Number::parse);
            assert!(
                numbers[0].is_some() && numbers.iter().all(|it| *it == numbers[0]),
                "{texts:?}"
            );
        }
    }

    #[test]
    fn integers_stay_exact_against_doubles() {
        let ascending = [
            "-1e400",
            "-1e19",
            "-9223372036854775808",
            "-9007199254740993",
            "-9007199254740992",
            "-1.5",
            "-1",
            "-1e-400",
            "0.5",
            "1",
            "1.5",
            "9007199254740992",
            "9007199254740993",
            "9007199254740994.0",
            "9223372036854775807",
            "9223372036854775808",
            "1e19",
            "1e400",
        ];
        let numbers: Vec<Number> = ascending
            .iter()
            .filter_map(|text| Number::parse(text))
            .collect();
        assert_eq!(numbers.len(), ascending.len());
        for (left_at, left) in numbers.iter().enumerate() {
            for (right_at, right) in numbers.iter().enumerate() {
                assert_eq!(
                    left.compare(*right),
                    left_at.cmp(&right_at),
                    "{left:?} {right:?}"
                );
            }
        }
    }

    #[test]
    fn remainders_have_the_sign_of_the_dividend() {
        let has = |text, divisor, remainder| {
            Number::parse(text).is_some_and(|it| it.has_remainder(divisor, remainder))
        };
        assert!(
            has("5", 4, 1)
                && has("-3", 4, -3)
                && has("-9223372036854775808", -1, 0)
                && has("1e19", 10, 0)
        );
        assert!(!has("-3", 4, 1) && !has("5.5", 4, 1) && !has("1e400", 4, 1));
    }
}

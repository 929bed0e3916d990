//! Shares of a whole in options: `0`, `0.01`, `1`.

use super::value::Scalar;

/// A number from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ratio(f64);

// `parse` refuses NaN, the only number that does not equal itself.
impl Eq for Ratio {}

impl Ratio {
    /// The share 0.
    pub const NONE: Self = Self(0.0);

    /// The number.
    #[must_use]
    pub fn number(self) -> f64 {
        self.0
    }
}

impl Scalar for Ratio {
    fn parse(text: &str) -> Result<Self, String> {
        let number = text.trim().parse().ok();
        number
            .filter(|number| (0.0..=1.0).contains(number))
            .map(Self)
            .ok_or_else(|| format!("{text:?} is not a number from 0 to 1"))
    }

    fn format(&self) -> String {
        self.0.to_string()
    }

    fn kind() -> String {
        "a number from 0 to 1".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_from_0_to_1() {
        for (text, expected) in [("0", 0.0), ("0.01", 0.01), (" 1 ", 1.0), ("1e-3", 0.001)] {
            assert_eq!(Ratio::parse(text), Ok(Ratio(expected)));
            assert_eq!(Ratio::parse(&Ratio(expected).format()), Ok(Ratio(expected)));
        }
        for text in ["", "1.1", "-0.1", "NaN", "1%", "half"] {
            assert!(Ratio::parse(text).is_err(), "{text}");
        }
    }
}

//! What the report asks of results: one figure of a contender in a cell, over all its turns.

use crate::result::Status;
use crate::runner::contender::Role;
use crate::runner::store::{MeasuredCell, MeasuredContender, RunResults};
use crate::statistics::Summary;

/// Deliveries in a second of the server's processor time.
pub const DELIVERIES: &str = "deliveries_per_server_cpu_second";
/// Milliseconds of a round.
pub const ROUND: &str = "round_ms_median";
/// The single rounds behind it.
const ROUND_SAMPLES: &str = "round_ms";

/// A figure over all turns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// The median.
    pub value: f64,
    /// Whether the server was cut off, so that a time is more than this.
    pub is_bound: bool,
    /// How many values it is the median of.
    pub count: usize,
}

impl MeasuredContender {
    /// The median of a figure over its turns; of rounds, over all rounds of all turns.
    #[must_use]
    pub fn figure(&self, name: &str) -> Option<Figure> {
        let values: Vec<f64> = match name {
            ROUND => {
                let samples = self
                    .turns
                    .iter()
                    .filter_map(|turn| turn.samples.get(ROUND_SAMPLES));
                samples.flatten().copied().collect()
            }
            _ => {
                let figures = self.turns.iter().filter_map(|turn| turn.figures.get(name));
                figures.copied().collect()
            }
        };
        Some(Figure {
            value: Summary::of(&values)?.median,
            is_bound: self.is_over_time(),
            count: values.len(),
        })
    }

    /// Whether a turn of it was cut off.
    #[must_use]
    pub fn is_over_time(&self) -> bool {
        self.turns
            .iter()
            .any(|turn| turn.status == Status::OverTime)
    }
}

impl MeasuredCell {
    /// A figure of the one contender of a role that there is one of.
    #[must_use]
    pub fn of(&self, role: Role, name: &str) -> Option<f64> {
        let one = self.contenders.iter().find(|one| one.role == role)?;
        Some(one.figure(name)?.value)
    }

    /// A figure of a contender by its name.
    #[must_use]
    pub fn of_named(&self, contender: &str, name: &str) -> Option<f64> {
        let one = self.contenders.iter().find(|one| one.name == contender)?;
        Some(one.figure(name)?.value)
    }

    /// The best figure of the rivals, with the rival's title.
    #[must_use]
    pub fn best_rival(&self, name: &str, is_more_better: bool) -> Option<(&str, f64)> {
        let rivals = self.contenders.iter().filter(|one| one.role == Role::Rival);
        let figures = rivals.filter_map(|one| Some((&*one.title, one.figure(name)?.value)));
        match is_more_better {
            true => figures.max_by(|a, b| a.1.total_cmp(&b.1)),
            false => figures.min_by(|a, b| a.1.total_cmp(&b.1)),
        }
    }
}

impl RunResults {
    /// The cell with this name.
    #[must_use]
    pub fn cell(&self, id: &str) -> Option<&MeasuredCell> {
        self.cells.iter().find(|cell| cell.id == id)
    }
}

/// A number for people: three digits that count, millions and thousands as such.
#[must_use]
pub fn short(value: f64) -> String {
    let size = value.abs();
    let (scaled, unit) = match size {
        _ if size >= 1e6 => (value / 1e6, " M"),
        _ if size >= 1e4 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        scaled if scaled == 0.0 || scaled >= 100.0 => 0,
        scaled if scaled >= 10.0 => 1,
        scaled if scaled >= 1.0 => 2,
        _ => 3,
    };
    format!("{scaled:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        let check = |value: f64, expected: &str| assert_eq!(short(value), expected);
        check(0.0, "0");
        check(0.0138, "0.014");
        check(4.56, "4.56");
        check(56.78, "56.8");
        check(1234.4, "1234");
        check(31_800.0, "31.8 k");
        check(54_120_000.0, "54.1 M");
    }
}

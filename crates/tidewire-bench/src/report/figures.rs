//! Figures for the report: one figure of a contender in a cell, over all its turns.

use crate::result::Status;
use crate::run_results::{MeasuredCell, MeasuredContender, Role, RunResults};
use crate::statistics::Summary;

/// Deliveries per second of the server's processor time.
pub const DELIVERIES: &str = "deliveries_per_server_cpu_second";
/// Nanoseconds of the server for each delivery.
pub const CPU: &str = "server_ns_each";
/// Milliseconds of a round.
pub const ROUND: &str = "round_ms_median";
/// The single rounds behind it.
const ROUND_SAMPLES: &str = "round_ms";

/// A figure over all turns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// The median.
    pub value: f64,
    /// Whether the server was interrupted, so that a time is more than this.
    pub is_bound: bool,
    /// The number of values behind the median.
    pub count: usize,
}

/// Whether a turn's figure is valid. If nothing was done within the time, there is no speed.
fn counts(name: &str, value: f64) -> bool {
    value > 0.0 || !name.contains("_per_")
}

impl MeasuredContender {
    /// The median of a figure over its turns; of rounds, over all rounds of all turns.
    #[must_use]
    pub fn figure(&self, name: &str) -> Option<Figure> {
        if name == ROUND {
            return self.round();
        }
        let figures = self.turns.iter().filter_map(|turn| turn.figures.get(name));
        let values: Vec<f64> = figures
            .copied()
            .filter(|value| counts(name, *value))
            .collect();
        Some(Figure {
            value: Summary::of(&values)?.median,
            is_bound: self.is_over_time(),
            count: values.len(),
        })
    }

    /// A figure as a multiple of another contender's: the median of the ratios of their turns, the first to the first
    /// and so on, which are neighbours in time. A machine that changes its speed for some turns changes both alike.
    /// Rounds are many in a turn, and interrupted if a server is slow: theirs is the ratio of the medians.
    #[must_use]
    pub fn ratio(&self, to: &Self, name: &str) -> Option<f64> {
        if name == ROUND {
            return Some(self.figure(name)?.value / to.figure(name)?.value);
        }
        let ratios = self.turns.iter().zip(&to.turns).filter_map(|(one, other)| {
            let (value, yardstick) = (*one.figures.get(name)?, *other.figures.get(name)?);
            (counts(name, value) && yardstick > 0.0).then_some(value / yardstick)
        });
        Some(Summary::of(&ratios.collect::<Vec<_>>())?.median)
    }

    /// The median round. The last round of an interrupted turn took more than its time: it counts with that time if
    /// this is more than the complete rounds took. A turn that began with little time left shows less, and does not
    /// count.
    fn round(&self) -> Option<Figure> {
        let (mut whole, mut cut) = (Vec::new(), Vec::new());
        for turn in &self.turns {
            let rounds = turn.samples.get(ROUND_SAMPLES)?;
            match (turn.status, rounds.split_last()) {
                (Status::OverTime, Some((last, before))) => {
                    cut.push(*last);
                    whole.extend_from_slice(before);
                }
                _ => whole.extend_from_slice(rounds),
            }
        }
        let least = match Summary::of(&whole) {
            Some(summary) => summary.median,
            None => cut.iter().copied().fold(0.0, f64::max),
        };
        let whole_count = whole.len();
        whole.extend(cut.into_iter().filter(|time| *time >= least));
        Some(Figure {
            value: Summary::of(&whole)?.median,
            is_bound: whole.len() > whole_count,
            count: whole.len(),
        })
    }

    /// Whether a turn of it was interrupted.
    #[must_use]
    pub fn is_over_time(&self) -> bool {
        self.turns
            .iter()
            .any(|turn| turn.status == Status::OverTime)
    }
}

impl MeasuredCell {
    /// A figure of the only contender of a role.
    #[must_use]
    pub fn of(&self, role: Role, name: &str) -> Option<f64> {
        Some(self.one(role)?.figure(name)?.value)
    }

    /// A figure of the only contender of a role as a multiple of another's.
    #[must_use]
    pub fn ratio(&self, role: Role, to: Role, name: &str) -> Option<f64> {
        self.one(role)?.ratio(self.one(to)?, name)
    }

    /// Tidewire's figure as a multiple of the strongest rival's, with the rival's title.
    #[must_use]
    pub fn ratio_to_rivals(&self, name: &str, is_more_better: bool) -> Option<(&str, f64)> {
        let tidewire = self.one(Role::Tidewire)?;
        let rivals = self.contenders.iter().filter(|one| one.role == Role::Rival);
        let ratios = rivals.filter_map(|one| Some((&*one.title, tidewire.ratio(one, name)?)));
        match is_more_better {
            true => ratios.min_by(|a, b| a.1.total_cmp(&b.1)),
            false => ratios.max_by(|a, b| a.1.total_cmp(&b.1)),
        }
    }

    /// The only contender of a role.
    #[must_use]
    pub fn one(&self, role: Role) -> Option<&MeasuredContender> {
        self.contenders.iter().find(|one| one.role == role)
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

/// A number for people: three significant digits, millions and thousands as such.
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
    use super::super::fixture;
    use super::*;

    #[test]
    fn a_round_that_was_cut_off_counts_where_it_says_more() {
        let check = |turns: &[(&[f64], Status)], expected: (f64, bool)| {
            let mut one = fixture::contender("x", Role::Rival, &[]);
            let empty = one.turns.remove(0);
            for (rounds, status) in turns {
                let mut turn = empty.clone();
                turn.samples
                    .insert(ROUND_SAMPLES.to_owned(), rounds.to_vec());
                turn.status = *status;
                one.turns.push(turn);
            }
            let figure = one.figure(ROUND).unwrap();
            assert_eq!((figure.value, figure.is_bound), expected, "{turns:?}");
        };
        let (whole, cut) = (Status::Complete, Status::OverTime);
        check(&[(&[1.0, 3.0], whole), (&[5.0], whole)], (3.0, false));
        // Nothing but cut ones: the longest.
        check(&[(&[90.0], cut), (&[20.0], cut)], (90.0, true));
        check(&[(&[80.0, 30.0], cut)], (80.0, false));
        check(&[(&[80.0, 100.0], cut)], (90.0, true));
    }

    /// A contender whose turns have this figure, `None` for one that lacks it.
    fn in_turns(name: &str, values: &[Option<f64>]) -> MeasuredContender {
        let mut one = fixture::contender("x", Role::Rival, &[]);
        let empty = one.turns.remove(0);
        for value in values {
            let mut turn = empty.clone();
            if let Some(value) = value {
                turn.set(name, *value);
            }
            one.turns.push(turn);
        }
        one
    }

    #[test]
    fn a_ratio_compares_turns_that_lie_side_by_side() {
        let check = |one: &[Option<f64>], other: &[Option<f64>], expected: Option<f64>| {
            let [one, other] = [one, other].map(|values| in_turns(DELIVERIES, values));
            assert_eq!(one.ratio(&other, DELIVERIES), expected);
        };
        // The machine is half as fast from the second turn on, which the other's fewer turns hardly see.
        let one = [8.0, 4.0, 4.0, 4.0, 4.0].map(Some);
        check(&one, &[4.0, 4.0, 2.0].map(Some), Some(2.0));
        check(&one, &[Some(4.0), None, Some(0.0)], Some(2.0));
        check(
            &[None, Some(0.0), Some(6.0)],
            &[2.0; 3].map(Some),
            Some(3.0),
        );
        check(&one, &[], None);
    }

    #[test]
    fn the_rival_with_the_worst_comparison_counts() {
        let cell = fixture::cell("x", "grid", "X", &[(ROUND, 50.0), (DELIVERIES, 8e6)]);
        assert_eq!(cell.ratio_to_rivals(ROUND, false), Some(("bun & co", 0.5)));
        assert_eq!(
            cell.ratio_to_rivals(DELIVERIES, true),
            Some(("bun & co", 2.0))
        );
        assert_eq!(cell.ratio(Role::Tidewire, Role::Null, ROUND), Some(5.0));
        assert_eq!(cell.ratio(Role::Variant, Role::Null, ROUND), None);
        assert_eq!(cell.ratio_to_rivals("latency_ms_p99", false), None);
    }

    #[test]
    fn without_deliveries_there_is_no_speed() {
        let one = fixture::contender(
            "x",
            Role::Rival,
            &[(DELIVERIES, 0.0), ("connection_bytes", 0.0)],
        );
        assert_eq!(one.figure(DELIVERIES), None);
        assert_eq!(one.figure("connection_bytes").unwrap().value, 0.0);
    }

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

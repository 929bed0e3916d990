//! What others do to a pair's latency: alone, beside a flood, beside a stuck reader, beside a crowd, and beside the same
//! crowd with a stuck reader in it, in turn in one run. It fails if a p99 is too long, or if the stuck reader in the crowd
//! makes the pair slower than the crowd alone does.

use std::time::Duration;

use clap::{Arg, ArgMatches, Command, value_parser};

use super::neighbour::Neighbour;
use super::{Scenario, pairs};
use crate::cli;
use crate::failure::Failure;
use crate::result::Cell;
use crate::statistics::Summary;
use crate::target::Target;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "strain",
    about: "A pair's latency beside a flood, a stuck reader, a crowd and both; fails above a p99",
    arguments,
    is_pinned: true,
    run,
};

/// Between two messages of the pair.
const INTERVAL: Duration = Duration::from_millis(25);

fn arguments(command: Command) -> Command {
    super::cell_arguments(cli::server_arguments(command, "1"))
        .arg(cli::number("crowd", "10000", "Connections of the crowd"))
        .arg(cli::number("seconds", "10", "How long each time"))
        .arg(cli::number("rounds", "3", "Rounds, in turn"))
        .arg(limit("p99-max-ms", "5", "The longest median of the p99s"))
        .arg(limit(
            "stuck-factor-max",
            "1.5",
            "How much longer it may be with the stuck reader in the crowd",
        ))
}

fn limit(name: &'static str, default: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .default_value(default)
        .value_parser(value_parser!(f64))
        .help(help)
}

fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let crowd = cli::take_count(matches, "crowd", 1)?;
    let time = Duration::from_secs(cli::take_count(matches, "seconds", 1)? as u64);
    let rounds = cli::take_count(matches, "rounds", 1)?;
    let time_max = super::take_time_max(matches)?;
    let mut all = Vec::new();
    super::measure(matches, true, |target| {
        all = measure(target, crowd, time, rounds, time_max)?;
        Ok(all.clone())
    })?;
    judge(
        &P99s::of(&all)?,
        cli::take(matches, "p99-max-ms")?,
        cli::take(matches, "stuck-factor-max")?,
    )
}

fn measure(
    target: &Target,
    crowd: usize,
    time: Duration,
    rounds: usize,
    time_max: Duration,
) -> Result<Vec<Cell>, Failure> {
    let neighbours = [
        None,
        Some(Neighbour::Flood),
        Some(Neighbour::StuckReader),
        Some(Neighbour::Crowd(crowd)),
        Some(Neighbour::StuckCrowd(crowd)),
    ];
    let mut cells = Vec::new();
    for _ in 0..rounds {
        for neighbour in neighbours {
            let stream = pairs::stream(1, INTERVAL, time, neighbour, time_max);
            cells.push(stream.run("strain", "a pair at 25 ms", target)?);
        }
    }
    Ok(cells)
}

/// The medians of the p99s, in milliseconds, by cell in the order of the first round.
struct P99s(Vec<(String, f64)>);

impl P99s {
    fn of(cells: &[Cell]) -> Result<Self, Failure> {
        let mut names: Vec<&String> = Vec::new();
        for cell in cells {
            if !names.contains(&&cell.cell) {
                names.push(&cell.cell);
            }
        }
        let median = |name: &String| {
            let of_name = cells.iter().filter(|cell| cell.cell == *name);
            let p99s: Vec<f64> = of_name
                .filter_map(|cell| cell.figures.get("latency_ms_p99").copied())
                .collect();
            Summary::of(&p99s).map(|summary| (name.clone(), summary.median))
        };
        let medians: Option<Vec<(String, f64)>> = names.into_iter().map(median).collect();
        medians
            .map(Self)
            .ok_or_else(|| Failure::Server("a cell has no latencies".to_owned()))
    }
}

fn judge(p99s: &P99s, p99_max: f64, factor_max: f64) -> Result<(), Failure> {
    for (name, p99) in &p99s.0 {
        println!("{name}: p99 {p99:.3} ms (median of the rounds)");
    }
    // A figure that is not a number is no pass.
    let is_over = |figure: f64, max: f64| figure.is_nan() || figure > max;
    if let Some((name, p99)) = p99s.0.iter().find(|(_, p99)| is_over(*p99, p99_max)) {
        return Err(Failure::Threshold(format!(
            "{name}: p99 {p99:.3} ms, more than {p99_max} ms"
        )));
    }
    if let [.., (_, crowd), (_, stuck)] = &p99s.0[..] {
        let factor = stuck / crowd;
        println!("the stuck reader in the crowd: {factor:.2} times the p99 without it");
        if is_over(factor, factor_max) {
            return Err(Failure::Threshold(format!(
                "with a stuck reader in the crowd the p99 is {factor:.2} times as long, more than {factor_max}"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p99s(crowd: f64, stuck: f64) -> P99s {
        let named = [("alone", 0.1), ("crowd", crowd), ("stuck", stuck)];
        P99s(named.map(|(name, p99)| (name.to_owned(), p99)).to_vec())
    }

    #[test]
    fn a_long_p99_and_a_costly_stuck_reader_fail() {
        assert!(judge(&p99s(2.0, 2.9), 5.0, 1.5).is_ok());
        assert!(judge(&p99s(2.0, 3.1), 5.0, 1.5).is_err());
        assert!(judge(&p99s(5.1, 5.1), 5.0, 1.5).is_err());
        assert!(judge(&p99s(f64::NAN, 1.0), 5.0, 1.5).is_err());
    }
}

//! The grid in smoke size, Tidewire against the null server in turns: fails when a delivery costs Tidewire more than
//! an allowed multiple of the null server's time.

use std::time::Duration;

use clap::{ArgMatches, Command};

use super::Scenario;
use super::grid::{CELL_TIME_MAX, Grid, Medium, Outcome, PATIENCE};
use crate::arguments;
use crate::failure::Failure;
use crate::payload::Content;
use crate::process;
use crate::server::{Server, ServerKind};
use crate::statistics::Summary;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "smoke",
    about: "Grid of 100/10, Tidewire against the null server; fails above a ratio",
    arguments,
    is_pinned: true,
    run,
};

/// Part of the rounds that only warms up.
const WARM_UP_PART: usize = 20;

fn arguments(command: Command) -> Command {
    command
        .arg(arguments::server_bin())
        .arg(arguments::number(
            "rounds",
            "500",
            "Measured rounds of a repetition",
        ))
        .arg(arguments::number(
            "repetitions",
            "7",
            "Repetitions, each server in turn",
        ))
        .arg(
            clap::Arg::new("ratio-max")
                .long("ratio-max")
                .default_value("2.0")
                .value_parser(clap::value_parser!(f64))
                .help("Maximum server time per delivery with one shard, as a multiple of the null server's"),
        )
}

/// A server and the results of its repetitions.
struct Contender {
    kind: ServerKind,
    server: Server,
    outcomes: Vec<Outcome>,
}

fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let program = arguments::take_server_bin(matches)?;
    let rounds = arguments::take_count(matches, "rounds", 1)?;
    let repetitions = arguments::take_count(matches, "repetitions", 1)?;
    let ratio_max: f64 = arguments::take(matches, "ratio-max")?;
    let tidewire = |shards| ServerKind::Tidewire {
        program: program.clone(),
        shards,
        has_rules: false,
        options: Vec::new(),
    };
    let mut contenders = [
        ServerKind::Null { has_rooms: false },
        tidewire(1),
        tidewire(3),
    ]
    .into_iter()
    .map(|kind| {
        let server = Server::start(&kind)?;
        let outcomes = Vec::new();
        Ok(Contender {
            kind,
            server,
            outcomes,
        })
    })
    .collect::<Result<Vec<_>, Failure>>()?;
    println!("machine: {}", process::machine());
    for seed in 0..repetitions as u64 {
        let grid = Grid {
            medium: Medium::Event,
            subscribers: 100,
            publishers: 10,
            burst: 1,
            content: Content::Number,
            warm_up_rounds: rounds / WARM_UP_PART,
            rounds,
            seed,
            patience: PATIENCE,
            time_max: CELL_TIME_MAX,
        };
        for contender in &mut contenders {
            let outcome = grid.run(contender.server.target())?;
            contender.outcomes.push(outcome);
        }
    }
    println!("grid: 100 subscribers, 10 publishers, {repetitions} x {rounds} rounds, in turns");
    let null_nanos = server_nanos(&contenders[0])?.median;
    for contender in &contenders {
        println!("{}", line(contender, null_nanos)?);
    }
    check_ratio(server_nanos(&contenders[1])?.median / null_nanos, ratio_max)
}

fn server_nanos(contender: &Contender) -> Result<Summary, Failure> {
    let nanos: Option<Vec<f64>> = contender
        .outcomes
        .iter()
        .map(Outcome::server_nanos)
        .collect();
    nanos
        .and_then(|nanos| Summary::of(&nanos))
        .ok_or_else(|| Failure::Server(format!("{}: no times", contender.kind.label())))
}

fn line(contender: &Contender, null_nanos: f64) -> Result<String, Failure> {
    let nanos = server_nanos(contender)?;
    let rounds: Vec<Duration> = contender
        .outcomes
        .iter()
        .flat_map(|outcome| outcome.rounds.iter().copied())
        .collect();
    let round = Summary::of_times_ms(&rounds).map_or(f64::NAN, |times| times.median);
    Ok(format!(
        "{:20} {:7.1} ns of server time per delivery ({:.1} to {:.1}), {:5.2} of null, round {round:.3} ms",
        contender.kind.label(),
        nanos.median,
        nanos.min,
        nanos.max,
        nanos.median / null_nanos,
    ))
}

fn check_ratio(ratio: f64, ratio_max: f64) -> Result<(), Failure> {
    // A ratio that is not a number fails.
    if ratio <= ratio_max {
        return Ok(());
    }
    Err(Failure::Threshold(format!(
        "a delivery takes {ratio:.2} times the null server's time, more than {ratio_max}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_above_the_allowed_one_fails() {
        assert!(check_ratio(1.99, 2.0).is_ok());
        assert!(check_ratio(2.01, 2.0).is_err());
        assert!(check_ratio(f64::NAN, 2.0).is_err());
    }
}

//! The report of a run: one self-contained HTML file, and a checklist in text.

pub mod figures;
#[cfg(test)]
pub(crate) mod fixture;
mod html;
mod plot;
pub mod verdict;

use std::fs;
use std::path::{Path, PathBuf};

use clap::ArgMatches;

use crate::failure::Failure;
use crate::result::{Cell, Status};
use crate::run_results::{RunResults, Store};
use figures::short;
use verdict::State;

/// The file's name in a run's folder.
pub const FILE: &str = "report.html";

/// The subcommand.
#[must_use]
pub fn command() -> clap::Command {
    clap::Command::new("report")
        .about("Write the HTML report of a run again, from its results.json")
        .arg(crate::arguments::folder())
}

/// Writes the report of the run in a folder again.
///
/// # Errors
/// There are no results, or the file can't be written.
pub fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let default = Path::new("target/bench/full").to_owned();
    let folder = matches.get_one::<PathBuf>("folder").unwrap_or(&default);
    let store = Store::open(folder)?;
    let results = store.results()?;
    write(&store, &results)?;
    print!("{}", checklist(&results));
    Ok(())
}

/// Writes the report into a run's folder.
///
/// # Errors
/// The file can't be written.
pub fn write(store: &Store, results: &RunResults) -> Result<(), Failure> {
    let file = store.file(FILE);
    fs::write(&file, html::page(results)).map_err(Failure::system(file.display().to_string()))
}

/// One line for each of the lines.
#[must_use]
pub fn checklist(results: &RunResults) -> String {
    let mut text = String::new();
    for verdict in verdict::verdicts(results) {
        let state = state(verdict.state);
        text += &format!("{state}: {}\n    {}\n", verdict.line, verdict.figures);
    }
    text
}

fn state(state: State) -> &'static str {
    match state {
        State::Met => "met",
        State::NotMet => "NOT MET",
        State::NotMeasured => "not measured",
    }
}

/// A turn on one line: its time, and the figures that are worth a look while it runs.
#[must_use]
pub fn brief(turn: &Cell) -> String {
    let over = if turn.status == Status::OverTime {
        "> "
    } else {
        ""
    };
    let mut parts = vec![format!("{over}{:.1} s", turn.elapsed_s)];
    for (name, value) in &turn.figures {
        let is_worth = name == figures::ROUND
            || name.ends_with("_per_server_cpu_second")
            || name.ends_with("_per_second") && turn.mode == "connect"
            || name.starts_with("latency_ms_p99")
            || name.starts_with("connection_bytes");
        if is_worth {
            parts.push(format!("{name} {}", short(*value)));
        }
    }
    if turn.generator_was_bottleneck {
        parts.push("the generator was the bottleneck".to_owned());
    }
    if turn.is_disturbed() {
        let percent = turn.stolen_share * 100.0;
        parts.push(format!("the host used {percent:.1} % of a processor"));
    }
    parts.join(", ")
}

//! The command lines of `tidewire torture` and of the servers that it starts.

use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, Command};

use super::{Break, Settings};

/// The default duration of a run.
const MINUTES: u64 = 10;

/// `tidewire torture`.
pub fn torture() -> Command {
    let number = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("N")
            .value_parser(clap::value_parser!(u64))
            .help(help)
    };
    Command::new("torture")
        .about("Kill, stop and cut off servers under load, and check that no acknowledged write is lost")
        .arg(number("minutes", "Minutes to run [default: 10]").conflicts_with("seconds"))
        .arg(number(
            "seconds",
            "Seconds to run, instead of minutes",
        ))
        .arg(number(
            "seed",
            "Seed of the order of faults, as an earlier run printed it [default: random]",
        ))
        .arg(break_argument())
}

/// `tidewire torture-node`, the server that only the torture test starts.
pub fn node() -> Command {
    Command::new("torture-node")
        .hide(true)
        .about("Run a server for the torture test, in a folder that the test has made")
        .arg(break_argument())
}

fn break_argument() -> Arg {
    Arg::new("break")
        .long("break")
        .value_name("WHAT")
        .value_parser(PossibleValuesParser::new(Break::ALL.map(Break::name)))
        .help("Break the servers on purpose, to check that the loss is found")
}

/// Reads the settings from the command line of `tidewire torture`.
pub fn settings(matches: &ArgMatches) -> Settings {
    let number = |name: &str| matches.get_one::<u64>(name).copied();
    let minutes = number("minutes").unwrap_or(MINUTES);
    let seconds = number("seconds").unwrap_or_else(|| minutes.saturating_mul(60));
    Settings {
        time: Duration::from_secs(seconds),
        seed: number("seed"),
        broken: broken(matches),
    }
}

/// Reads the fault of `--break`.
pub fn broken(matches: &ArgMatches) -> Option<Break> {
    Break::named(matches.get_one::<String>("break")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(arguments: &[&str]) -> Result<Settings, clap::Error> {
        let matches = torture().try_get_matches_from([&["torture"], arguments].concat())?;
        Ok(settings(&matches))
    }

    #[test]
    fn times_seeds_and_breaks_are_read() {
        let check = |arguments: &[&str], seconds, seed, broken| {
            let time = Duration::from_secs(seconds);
            let expected = Settings { time, seed, broken };
            assert_eq!(asked(arguments).unwrap(), expected, "{arguments:?}");
        };
        check(&[], 600, None, None);
        check(&["--minutes", "2", "--seed", "7"], 120, Some(7), None);
        check(
            &["--seconds", "30", "--break", "skip-sync"],
            30,
            None,
            Some(Break::SkipSync),
        );
        assert!(asked(&["--minutes", "1", "--seconds", "1"]).is_err());
        assert!(asked(&["--break", "everything"]).is_err());
    }
}

//! The command lines of `tidewire torture` and of the servers that it starts.

use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, Command};

use super::{Break, ClusterSettings, RemoteUrl, Settings};

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
    let text = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name(value)
            .help(help)
            .requires(NODES)
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
        .arg(
            number(NODES, "Test a cluster with this number of nodes, from 3 to 9")
                .value_parser(clap::value_parser!(u64).range(3..=9))
                .requires("store"),
        )
        .arg(
            text("store", "URL", "Store of the cluster, postgres:// or redis://; it must be empty")
                .value_parser(store_url),
        )
        .arg(
            text("link", "URL", "Broker of the links [default: the nodes are linked directly]")
                .value_parser(link_url),
        )
        .arg(number("faults", "Number of faults after which the run on a cluster ends").requires(NODES))
        .arg(text("restart-store", "COMMAND", "Shell command that restarts the store under load"))
        .arg(text("restart-link", "COMMAND", "Shell command that restarts the broker under load").requires("link"))
        .arg(break_argument())
}

/// The option that makes the test run on a cluster.
const NODES: &str = "nodes";

fn store_url(text: &str) -> Result<RemoteUrl, String> {
    let url = RemoteUrl::parse(text)?;
    match url.scheme() {
        "postgres" | "postgresql" | "redis" => Ok(url),
        _ => Err("the store of a cluster is postgres:// or redis://".to_owned()),
    }
}

fn link_url(text: &str) -> Result<RemoteUrl, String> {
    let url = RemoteUrl::parse(text)?;
    match url.scheme() {
        "nats" | "redis" | "amqp" | "kafka" => Ok(url),
        _ => Err("the broker of the links is nats://, redis://, amqp:// or kafka://".to_owned()),
    }
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
    let minutes = number("minutes").map(|minutes| minutes.saturating_mul(60));
    let fault_count = number("faults");
    // A number of faults replaces the default time.
    let default = fault_count.is_none().then_some(MINUTES * 60);
    let seconds = number("seconds").or(minutes).or(default);
    Settings {
        time: seconds.map(Duration::from_secs),
        seed: number("seed"),
        broken: broken(matches),
        cluster: cluster(matches, fault_count),
    }
}

fn cluster(matches: &ArgMatches, fault_count: Option<u64>) -> Option<ClusterSettings> {
    let url = |name: &str| matches.get_one::<RemoteUrl>(name).cloned();
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    Some(ClusterSettings {
        node_count: usize::try_from(*matches.get_one::<u64>(NODES)?).ok()?,
        // Required: clap refuses a command line without it.
        store: url("store")?,
        link: url("link"),
        fault_count,
        restart_store: text("restart-store"),
        restart_link: text("restart-link"),
    })
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
            let expected = Settings {
                time: Some(Duration::from_secs(seconds)),
                seed,
                broken,
                cluster: None,
            };
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

    #[test]
    fn a_cluster_has_a_store_and_a_number_of_faults_or_a_time() {
        let nodes = ["--nodes", "3", "--store", "postgres://u@h/d"];
        let with = |more: &[&str]| asked(&[&nodes, more].concat());
        let cluster = |more: &[&str]| with(more).unwrap().cluster.unwrap();
        assert_eq!(cluster(&[]).store.text(), "postgres://u@h/d");
        assert_eq!(with(&[]).unwrap().time, Some(Duration::from_secs(600)));
        let counted = with(&["--faults", "50", "--link", "nats://h"]).unwrap();
        assert_eq!(counted.time, None);
        let counted = counted.cluster.unwrap();
        assert_eq!((counted.node_count, counted.fault_count), (3, Some(50)));
        assert_eq!(counted.link.unwrap().text(), "nats://h");
        assert_eq!(
            with(&["--faults", "5", "--seconds", "9"]).unwrap().time,
            Some(Duration::from_secs(9))
        );
        assert!(asked(&["--nodes", "3"]).is_err(), "without a store");
        assert!(asked(&["--nodes", "2", "--store", "redis://h/1"]).is_err());
        assert!(asked(&["--store", "redis://h/1"]).is_err(), "without nodes");
        assert!(asked(&["--faults", "5"]).is_err(), "without nodes");
        assert!(with(&["--link", "http://h"]).is_err());
        assert!(
            with(&["--restart-link", "true"]).is_err(),
            "without a broker"
        );
        assert!(asked(&["--nodes", "3", "--store", "nats://h"]).is_err());
    }
}

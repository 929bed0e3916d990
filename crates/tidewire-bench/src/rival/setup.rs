//! Fetches and builds the rivals' dependencies, each from its registry: npm packages, a crate, Debian's NATS server.
//! It does not repeat finished steps, so a second call takes a second.

use std::path::Path;
use std::process::{Command, Stdio};

use clap::ArgMatches;
use clap::builder::PossibleValuesParser;

use super::{FOLDER, single_names, target_folder};
use crate::failure::Failure;

/// The names of the rivals that need a step.
const NPM_RIVALS: [&str; 6] = [
    "deepstream",
    "socketio-ws",
    "socketio-bun",
    "bun",
    "feathers",
    "repoll",
];

/// The subcommand.
#[must_use]
pub fn command() -> clap::Command {
    clap::Command::new("setup")
        .about("Fetch and build the rivals from their registries")
        .arg(names_argument("only", "Set up only these rivals"))
}

/// An argument with names of rivals, separated by commas.
pub(crate) fn names_argument(name: &'static str, help: &'static str) -> clap::Arg {
    clap::Arg::new(name)
        .long(name)
        .value_name("NAMES")
        .value_delimiter(',')
        .value_parser(PossibleValuesParser::new(single_names()))
        .help(help)
}

/// Sets up the rivals of the arguments, all without arguments.
///
/// # Errors
/// A step failed.
pub fn run(matches: &ArgMatches) -> Result<(), Failure> {
    match matches.get_many::<String>("only") {
        Some(names) => set_up(&names.map(String::as_str).collect::<Vec<_>>()),
        None => set_up(&single_names()),
    }
}

/// Sets up the rivals with these names.
///
/// # Errors
/// A step failed.
pub fn set_up(names: &[&str]) -> Result<(), Failure> {
    let wants = |rivals: &[&str]| names.iter().any(|name| rivals.contains(name));
    if wants(&NPM_RIVALS) {
        install_packages()?;
    }
    if wants(&["socketioxide"]) {
        build_crate()?;
    }
    if wants(&["nats"]) {
        install_nats()?;
    }
    for name in names {
        if let Some(rival) = super::named(name) {
            println!("{name}: {}", rival.version()?);
        }
    }
    Ok(())
}

fn install_packages() -> Result<(), Failure> {
    let folder = Path::new(FOLDER);
    let modified = |file: &str| {
        folder
            .join(file)
            .metadata()
            .and_then(|file| file.modified())
    };
    // npm writes this file last.
    let installed = modified("node_modules/.package-lock.json").ok();
    let wanted = modified("package-lock.json").map_err(Failure::system("package-lock.json"))?;
    if installed.is_some_and(|installed| installed >= wanted) {
        return Ok(());
    }
    let mut npm = Command::new("npm");
    npm.args(["ci", "--no-audit", "--no-fund", "--prefix", FOLDER]);
    run_step(npm, "apt-get install -y nodejs npm")
}

fn build_crate() -> Result<(), Failure> {
    let mut cargo = Command::new("cargo");
    cargo
        .args(["build", "--locked", "--release", "--manifest-path"])
        .arg(Path::new(FOLDER).join("socketioxide/Cargo.toml"))
        .arg("--target-dir")
        .arg(target_folder());
    run_step(cargo, "the Rust toolchain")
}

fn install_nats() -> Result<(), Failure> {
    const INSTALL: &str = "apt-get install -y nats-server";
    let is_installed = || {
        let mut nats = Command::new("nats-server");
        nats.arg("--version").stdout(Stdio::null());
        nats.status().is_ok_and(|status| status.success())
    };
    if is_installed() {
        return Ok(());
    }
    let mut apt = Command::new("sh");
    apt.args(["-c", &format!("apt-get update -qq && {INSTALL}")]);
    run_step(apt, INSTALL)
}

/// Runs a step to its end and shows its output.
fn run_step(mut command: Command, remedy: &str) -> Result<(), Failure> {
    let shown = format!("{command:?}").replace('"', "");
    println!("setup: {shown}");
    let status = command
        .status()
        .map_err(|error| Failure::Server(format!("{shown}: {error}; required: {remedy}")))?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::Server(format!(
            "{shown} ended with {status}; required: {remedy}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rival_has_its_step() {
        let steps: Vec<&str> = [&NPM_RIVALS[..], &["socketioxide", "nats"]].concat();
        for name in single_names() {
            assert!(steps.contains(&name), "{name}");
        }
    }

    #[test]
    fn unknown_names_are_refused() {
        let parse = |names: &str| command().try_get_matches_from(["setup", "--only", names]);
        assert!(parse("nats,bun").is_ok());
        assert!(parse("nats,pigeon").is_err());
    }

    #[test]
    fn a_step_that_fails_says_what_is_needed() {
        let failure = run_step(Command::new("false"), "a true one").unwrap_err();
        assert!(failure.to_string().contains("a true one"), "{failure}");
        let failure = run_step(Command::new("/nonexistent/npm"), "npm").unwrap_err();
        assert!(failure.to_string().contains("required: npm"), "{failure}");
    }
}

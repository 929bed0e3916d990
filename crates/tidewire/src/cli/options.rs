//! The options of the configuration on the command line: a flag for each, `--set NAME=VALUE`, and the text of `tidewire help options`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command};
use tidewire_config::layer::{rows, walk};
use tidewire_config::nearest::nearest;
use tidewire_config::option::{OptionRow, Value, Visitor};
use tidewire_config::{Config, Sources};
use tidewire_server::exit::{Exit, Failure};

/// The options that `--help` shows, in its order, each with a text that fits into one line together with the default. `tidewire help
/// options` shows all options.
const COMMON: [(&str, &str); 8] = [
    (
        "dev",
        "Development mode: demo, admin page, reasons of denials",
    ),
    ("network.host", "Addresses to listen on"),
    ("network.port", "Port to listen on; 0 takes a free one"),
    ("store.path", "Data folder"),
    (
        "auth.chain",
        "Authentication, as file, jwt or webhook; if empty, every login succeeds",
    ),
    (
        "permissions",
        "File of permission rules, or allow_all for no rules",
    ),
    ("shards", "Number of shards, each a thread"),
    ("log.level", "error, warn, info, debug or trace"),
];

/// The heading of the options that every command accepts.
const HEADING: &str = "Configuration";
const CONFIG: &str = "config";
const SET: &str = "set";

/// The flags of options that a command line has. `--set` sets all other options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flags {
    /// One flag for each option. The help hides the flags of options that are not common.
    All,
    /// The flags of the common options.
    Common,
}

/// Adds `--config`, `--set` and the flags of the options. Every subcommand accepts them too.
pub(super) fn add_to(command: Command, flags: Flags) -> Command {
    let config = Arg::new(CONFIG)
        .long(CONFIG)
        .value_name("FILE")
        .global(true)
        .help_heading(HEADING)
        .display_order(0)
        .help("Configuration file [default: tidewire.yml, if it exists]");
    let set = Arg::new(SET)
        .long(SET)
        .value_name("NAME=VALUE")
        .global(true)
        .action(ArgAction::Append)
        .allow_hyphen_values(true)
        .help_heading(HEADING)
        .display_order(1)
        .help("Set any option by its name: --set limits.calls_max=100");
    let mut list = List::default();
    walk(&mut Config::default(), &mut list);
    let flags = list.options.iter().filter_map(|option| flag(option, flags));
    command.args([config, set]).args(flags)
}

fn flag(option: &Listed, flags: Flags) -> Option<Arg> {
    let row = &option.row;
    let argument = Arg::new(row.name.clone())
        .long(row.flag())
        .global(true)
        .action(ArgAction::Set)
        .value_name(row.key().to_ascii_uppercase())
        .help_heading(HEADING);
    let argument = match COMMON.iter().position(|(name, _)| *name == row.name) {
        Some(index) => argument
            .help(format!("{}{}", COMMON[index].1, option.default))
            .display_order(2 + index),
        None if flags == Flags::Common => return None,
        None => argument.help(summary(row)).hide(true),
    };
    Some(if row.name == "dev" {
        argument
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
    } else {
        argument.allow_hyphen_values(true)
    })
}

/// The first sentence of an option's documentation, without the full stop.
fn summary(row: &OptionRow) -> String {
    let doc = row.doc.concat();
    let first = doc.trim().split_inclusive(". ").next().unwrap_or_default();
    first.trim().trim_end_matches('.').to_owned()
}

/// The sources of the configuration of a command.
///
/// # Errors
/// A `--set` has no value or an unknown name, or the command line sets an option to two values.
pub(super) fn sources(
    matches: &ArgMatches,
    environment: BTreeMap<String, String>,
) -> Result<Sources, Failure> {
    let rows = rows();
    let given = |row: &OptionRow| {
        let text = matches.get_one::<String>(&row.name)?;
        Some((row.name.clone(), text.clone()))
    };
    let mut flags: Vec<(String, String)> = rows.iter().filter_map(given).collect();
    for text in matches.get_many::<String>(SET).unwrap_or_default() {
        let (name, value) = set(&rows, text)?;
        if let Some((_, other)) = flags.iter().find(|(known, _)| known == name)
            && *other != value
        {
            let line = format!("the command line sets {name} twice, to {other:?} and to {value:?}");
            return Err(Failure::new(Exit::Configuration, line));
        }
        flags.push((name.to_owned(), value.to_owned()));
    }
    Ok(Sources {
        file: matches.get_one::<String>(CONFIG).map(PathBuf::from),
        environment,
        flags,
    })
}

/// Parses the text of `--set`.
fn set<'a>(rows: &[OptionRow], text: &'a str) -> Result<(&'a str, &'a str), Failure> {
    let wrong = |line| Err(Failure::new(Exit::Configuration, line));
    let Some((name, value)) = text.split_once('=') else {
        return wrong(format!(
            "--set {text:?} has no value; write --set NAME=VALUE, as --set store.path=/var/lib/tidewire"
        ));
    };
    if rows.iter().any(|row| row.name == name) {
        return Ok((name, value));
    }
    let names = rows.iter().map(|row| row.name.as_str());
    let hint = nearest(name, names).map_or_else(
        || "`tidewire help options` lists them".to_owned(),
        |near| format!("did you mean {near:?}?"),
    );
    wrong(format!("--set {name:?} is not an option; {hint}"))
}

/// The text of `tidewire help options`: every option with its default, by section.
pub(super) fn all() -> String {
    let mut list = List::default();
    walk(&mut Config::default(), &mut list);
    let mut text = "Options of the configuration. Each can be a flag, --set NAME=VALUE, a line of tidewire.yml\n\
         or an environment variable, and the first of these that is given counts. docs/configuration.md\n\
         explains them in full; `tidewire config print` prints a tidewire.yml with all defaults.\n"
        .to_owned();
    for Listed {
        row,
        section,
        default,
    } in &list.options
    {
        text.push_str(section);
        let value_name = row.key().to_ascii_uppercase();
        let _ = writeln!(text, "  --{} <{value_name}>", row.flag());
        let _ = writeln!(text, "      {}: {}{default}", row.name, summary(row));
    }
    text
}

/// An option, and the parts of its help.
struct Listed {
    row: OptionRow,
    /// The heading of its section, if the option is the first one of the section.
    section: String,
    /// ` [default: ...]`; empty for a secret.
    default: String,
}

/// All options in the order of the file.
#[derive(Default)]
struct List {
    options: Vec<Listed>,
    /// The heading of the current section, until its first option.
    section: String,
}

impl Visitor for List {
    fn section(&mut self, name: &str, _doc: &'static [&'static str]) {
        if !name.is_empty() {
            self.section = format!("\n{name}:\n");
        }
    }

    fn option(&mut self, row: OptionRow, value: &mut dyn Value) {
        let is_of_root = !row.name.contains('.');
        let section = match is_of_root {
            true => "\n".to_owned(),
            false => std::mem::take(&mut self.section),
        };
        let default = match row.traits.secret {
            true => String::new(),
            false => format!(" [default: {}]", value.show()),
        };
        self.options.push(Listed {
            row,
            section,
            default,
        });
    }
}

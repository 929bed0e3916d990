//! The commands of `tidewire schema`.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command};

/// The file of schemas if the command line names none.
const DEFAULT_FILE: &str = "tidewire.schema.json";

/// A parsed command of `tidewire schema`, with its file of schemas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemaCommand {
    /// Check all stored records.
    Check(PathBuf),
    /// Print TypeScript types.
    Types(PathBuf),
}

pub(super) fn command() -> Command {
    let file = || {
        let file = Arg::new("file").value_name("FILE");
        let parser = clap::value_parser!(PathBuf);
        file.value_parser(parser)
            .default_value(DEFAULT_FILE)
            .help("File with the schemas of collections and events")
    };
    Command::new("schema")
        .about("Check stored records against schemas, and make types of these")
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommand(
            Command::new("check")
                .about("List the stored records that do not fit their schema; exit code 1 if there is one; the server can run")
                .arg(file()),
        )
        .subcommand(
            Command::new("types")
                .about("Print the types of all collections and events in TypeScript, for @tidewire/client")
                .arg(file()),
        )
}

pub(super) fn parsed(word: &str, matches: &ArgMatches) -> SchemaCommand {
    let file = matches.get_one("file").cloned().unwrap_or_default();
    match word {
        "types" => SchemaCommand::Types(file),
        _ => SchemaCommand::Check(file),
    }
}

//! The commands of `tidewire store`.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command};

/// What is to be done with what is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreCommand {
    /// Verify every record.
    Check,
    /// Copy the data folder to a new folder.
    Backup(PathBuf),
    /// Bring a backup into a data folder.
    Restore(PathBuf),
    /// Write the records as lines.
    Export(PathBuf),
    /// Bring the records of an export into the stores.
    Import {
        /// Where they are.
        file: PathBuf,
        /// Whether they take the place of others.
        replaces: bool,
    },
    /// Move records to the stores that their names lead to.
    Move,
}

pub(super) fn command() -> Command {
    let path = |value: &'static str, help: &'static str| {
        let parser = clap::value_parser!(PathBuf);
        let path = Arg::new("path").value_name(value).required(true);
        path.value_parser(parser).help(help)
    };
    Command::new("store")
        .about("Check, back up and move what is stored")
        .subcommand_required(true)
        .arg(
            Arg::new("store")
                .long("store")
                .value_name("NAME")
                .global(true)
                .help("The store below `stores` that is meant alone, or default for that of `store`"),
        )
        .subcommand(Command::new("check").about(
            "Verify every stored record; no server may have the data folder, and one of another store may run",
        ))
        .subcommand(
            Command::new("backup")
                .about("Copy the data folder as it is at one instant; the server may run")
                .arg(path("FOLDER", "Where to; it must not be there yet")),
        )
        .subcommand(
            Command::new("restore")
                .about("Bring a backup into a data folder that holds no store yet")
                .arg(path("FOLDER", "The backup")),
        )
        .subcommand(
            Command::new("export")
                .about("Write the records of all stores as JSON Lines; the server may run")
                .arg(path("FILE", "Where to, a new file; - is standard output")),
        )
        .subcommand(
            Command::new("import")
                .about("Bring an export into the configured stores; no server may run on them")
                .arg(path("FILE", "The export; - is standard input"))
                .arg(
                    Arg::new("replace")
                        .long("replace")
                        .action(ArgAction::SetTrue)
                        .help("Let records of the export take the place of others with their names"),
                ),
        )
        .subcommand(Command::new("move").about(
            "Move records to the stores that their names lead to, after a change of the prefixes; no server may run",
        ))
}

/// The store that is meant, if it is not the default one.
pub(super) fn named(matches: &ArgMatches) -> Option<String> {
    matches.get_one("store").cloned()
}

pub(super) fn parsed(word: &str, matches: &ArgMatches) -> StoreCommand {
    // Required where there is one: clap has refused what lacks it.
    let path = || matches.get_one("path").cloned().unwrap_or_default();
    match word {
        "backup" => StoreCommand::Backup(path()),
        "restore" => StoreCommand::Restore(path()),
        "export" => StoreCommand::Export(path()),
        "import" => StoreCommand::Import {
            file: path(),
            replaces: matches.get_flag("replace"),
        },
        "move" => StoreCommand::Move,
        _ => StoreCommand::Check,
    }
}

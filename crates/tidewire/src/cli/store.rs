//! The commands of `tidewire store`.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command};

/// A parsed command of `tidewire store`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreCommand {
    /// Verify every record.
    Check,
    /// Copy the data folder to a new folder.
    Backup(PathBuf),
    /// Restore a backup into a data folder.
    Restore(PathBuf),
    /// Write the records as JSON Lines.
    Export(PathBuf),
    /// Import the records of an export into the stores.
    Import {
        /// File of the export.
        file: PathBuf,
        /// Whether imported records replace existing ones.
        replaces: bool,
    },
    /// Move records to the stores to which their names belong.
    Move,
}

pub(super) fn command() -> Command {
    let path = |value: &'static str, help: &'static str| {
        let parser = clap::value_parser!(PathBuf);
        let path = Arg::new("path").value_name(value).required(true);
        path.value_parser(parser).help(help)
    };
    Command::new("store")
        .about("Check, back up, restore, export, import and move records")
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .arg(
            Arg::new("store")
                .long("store")
                .value_name("NAME")
                .global(true)
                .help("Use only this store of `stores`, or `default` for the one of `store`"),
        )
        .subcommand(Command::new("check").about(
            "Verify the checksum of every record; the server must be stopped, except with a remote store",
        ))
        .subcommand(
            Command::new("backup")
                .about("Copy the data folder as of one instant; the server can run")
                .arg(path("FOLDER", "Folder to create; it must not exist")),
        )
        .subcommand(
            Command::new("restore")
                .about("Restore a backup into a data folder without a store")
                .arg(path("FOLDER", "Folder of the backup")),
        )
        .subcommand(
            Command::new("export")
                .about("Write all records as JSON Lines; the server can run")
                .arg(path("FILE", "File to create, or - for standard output")),
        )
        .subcommand(
            Command::new("import")
                .about("Import records from JSON Lines; the server must be stopped")
                .arg(path("FILE", "File of an export, or - for standard input"))
                .arg(
                    Arg::new("replace")
                        .long("replace")
                        .action(ArgAction::SetTrue)
                        .help("Overwrite existing records [default: keep them]"),
                ),
        )
        .subcommand(Command::new("move").about(
            "Move records to their stores after a change of `stores.*.prefixes`; the server must be stopped",
        ))
}

/// The name of the option `--store`, if it is given.
pub(super) fn named(matches: &ArgMatches) -> Option<String> {
    matches.get_one("store").cloned()
}

pub(super) fn parsed(word: &str, matches: &ArgMatches) -> StoreCommand {
    // Required by the commands that have it: clap refuses a command line without it.
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

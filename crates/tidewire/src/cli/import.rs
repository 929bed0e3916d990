//! The command `tidewire import deepstream`: imports the configuration of deepstream from a folder, or its records from their database.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command};
use tidewire_migrate::records::Layout;

use super::text_argument;

/// The parsed command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImportCommand {
    /// Import the configuration.
    Configuration {
        /// Folder of deepstream's configuration.
        folder: PathBuf,
        /// Folder for Tidewire's configuration.
        into: PathBuf,
        /// Whether the command writes nothing.
        is_dry: bool,
    },
    /// Import the records.
    Records(RecordImport),
}

/// An import of deepstream's records into the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordImport {
    /// Address of the database of deepstream's records.
    pub from: String,
    /// File with its password.
    pub password_file: Option<PathBuf>,
    /// File with the certificates of the authorities to trust, instead of the system's list.
    pub ca: Option<PathBuf>,
    /// Names of tables and collections in the database.
    pub layout: Layout,
    /// Whether imported records replace existing ones.
    pub replaces: bool,
    /// Whether the command writes nothing.
    pub is_dry: bool,
}

pub(super) fn command() -> Command {
    let path =
        |name, help| text_argument(name, "FILE", help).value_parser(clap::value_parser!(PathBuf));
    let switch = |name, help| {
        Arg::new(name)
            .long(name)
            .action(ArgAction::SetTrue)
            .help(help)
    };
    Command::new("import")
        .about("Import the configuration or the records of a deepstream server")
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommand(
            Command::new("deepstream")
                .about("Translate a configuration of deepstream (FOLDER), or import its records (--from); the server must be stopped")
                .arg(
                    Arg::new("folder")
                        .value_name("FOLDER")
                        .value_parser(clap::value_parser!(PathBuf))
                        .required_unless_present("from")
                        .help("Folder with config.yml or conf/config.yml of deepstream"),
                )
                .arg(
                    text_argument(
                        "into",
                        "FOLDER",
                        "Folder for tidewire.yml and copies of the files of rules and users",
                    )
                    .value_parser(clap::value_parser!(PathBuf))
                    .default_value("."),
                )
                .arg(
                    text_argument(
                        "from",
                        "URL",
                        "Database of deepstream's connector, without a password: postgresql://user@host/database, mongodb://user@host/database or redis://host/0",
                    )
                    .conflicts_with("folder"),
                )
                .arg(path("password-file", "File with the password of the database"))
                .arg(path(
                    "ca",
                    "File with the trusted CA certificates (PEM) [default: the list of the system]",
                ))
                .arg(
                    text_argument("schema", "NAME", "PostgreSQL: schema of the tables")
                        .default_value("ds"),
                )
                .arg(
                    text_argument(
                        "default-table",
                        "NAME",
                        "PostgreSQL: table of names without a slash",
                    )
                    .default_value("default"),
                )
                .arg(
                    text_argument(
                        "split-char",
                        "TEXT",
                        "MongoDB: separator between collection and the rest of a name",
                    )
                    .default_value("/"),
                )
                .arg(
                    text_argument(
                        "default-collection",
                        "NAME",
                        "MongoDB: collection of names without the separator",
                    )
                    .default_value("deepstream_docs"),
                )
                .arg(switch(
                    "replace",
                    "Overwrite existing records [default: keep them]",
                ))
                .arg(switch("dry-run", "Read and check everything, but write nothing")),
        )
}

pub(super) fn parsed(matches: &ArgMatches) -> ImportCommand {
    // Required, or with a default: clap refuses a command line without them.
    let text = |name: &str| matches.get_one::<String>(name).cloned().unwrap_or_default();
    if let Some(folder) = matches.get_one::<PathBuf>("folder") {
        return ImportCommand::Configuration {
            folder: folder.clone(),
            into: matches.get_one("into").cloned().unwrap_or_default(),
            is_dry: matches.get_flag("dry-run"),
        };
    }
    ImportCommand::Records(RecordImport {
        from: text("from"),
        password_file: matches.get_one("password-file").cloned(),
        ca: matches.get_one("ca").cloned(),
        layout: Layout {
            schema: text("schema"),
            default_table: text("default-table"),
            split_char: text("split-char"),
            default_collection: text("default-collection"),
        },
        replaces: matches.get_flag("replace"),
        is_dry: matches.get_flag("dry-run"),
    })
}

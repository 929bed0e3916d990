//! The command line: its commands, and a flag for every option of the configuration.

mod import;
mod manual;
mod options;
mod schema;
mod store;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command};
use tidewire_auth::jwt::mint::TokenRequest;
use tidewire_config::Sources;
use tidewire_config::value::Scalar;
use tidewire_http::rule_case::CaseText;

use tidewire_server::exit::{Exit, Failure};
use tidewire_torture::{self as torture, Break};

pub use import::{ImportCommand, RecordImport};
pub use manual::write_pages;
use options::{Flags, sources};
pub use schema::SchemaCommand;
pub use store::StoreCommand;

/// A parsed command line.
#[derive(Clone, Debug)]
pub enum Invocation {
    /// Start the server.
    Start(Sources),
    /// Check the configuration.
    ConfigCheck(Sources),
    /// Print the defaults, or the values in effect.
    ConfigPrint {
        /// Whether to print the values in effect and their origins, instead of the defaults.
        is_effective: bool,
        /// Sources of the values in effect.
        sources: Sources,
    },
    /// Ask the running server for its health.
    Health(Sources),
    /// Hash the password on standard input.
    Hash,
    /// Make a key of a back end.
    Key {
        /// Its id.
        id: String,
        /// User id of its sessions; the id of the key if `None`.
        user: Option<String>,
        /// Time until it expires; never if `None`.
        lifetime: Option<Duration>,
    },
    /// Make a token.
    Token {
        /// User, lifetime, claims and signing key.
        order: TokenRequest,
        /// Sources of the secret, the issuer and the audience.
        sources: Sources,
    },
    /// Check, copy or move stored records. The name selects one store.
    Store(StoreCommand, Option<String>, Sources),
    /// Check stored records against schemas, or make types of these.
    Schema(SchemaCommand, Sources),
    /// Import the configuration or the records of a deepstream server.
    Import(ImportCommand, Sources),
    /// Manage the users of the record store.
    User(UserCommand, Sources),
    /// Show or change the cluster of the running server.
    Cluster(ClusterCommand, Sources),
    /// Write, explain or test permission rules.
    Rules(RulesCommand),
    /// Run the torture test.
    Torture(torture::Settings),
    /// Start one of the servers of the torture test.
    TortureNode {
        /// The fault to inject.
        broken: Option<Break>,
        /// Sources of its configuration.
        sources: Sources,
    },
    /// Print a text: help, version, completions, a manual page.
    Text(String),
    /// Write the manual pages into a folder.
    ManualPages(PathBuf),
}

/// A command of `tidewire cluster`, for the running server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterCommand {
    /// Print the members.
    Status,
    /// Hand the names over, leave the cluster and stop.
    Leave,
    /// Evict the member with this number.
    Evict(u16),
    /// Give the rules of a file to all nodes.
    Rules(PathBuf),
}

/// A command of `tidewire rules`.
#[derive(Clone, Debug)]
pub enum RulesCommand {
    /// Write an initial file.
    Init(PathBuf),
    /// Print which rule decides a case.
    Explain(Sources, Box<CaseText>),
    /// Run the cases of a file.
    Test(Sources, PathBuf),
}

/// A command of `tidewire user`, for the users of the record store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserCommand {
    /// Print their names.
    List,
    /// Add one, with the password on standard input.
    Add {
        /// Its name.
        name: String,
        /// `user.data` of rules as JSON.
        server_data: Option<String>,
        /// Data that the client receives at login, as JSON.
        client_data: Option<String>,
    },
    /// Set the password of a user to the one on standard input.
    SetPassword {
        /// Its name.
        name: String,
    },
    /// Remove one.
    Remove {
        /// Its name.
        name: String,
    },
}

/// The command line. A completion script has the common options only: with all options of each command it would have a megabyte.
fn command(flags: Flags) -> Command {
    let root = Command::new("tidewire")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Realtime server for records, events, rpc and presence")
        .after_help(
            "`tidewire help options` lists all options, `tidewire help COMMAND` explains a command.",
        )
        .subcommand_required(false)
        .disable_help_subcommand(true)
        .subcommand(Command::new("start").about("Start the server; `tidewire` alone does the same"))
        .subcommand(config_command())
        .subcommand(rules_command())
        .subcommand(user_command())
        .subcommand(token_command())
        .subcommand(key_command())
        .subcommand(
            Command::new("hash")
                .about("Hash the password on standard input, for the file of auth.file.path"),
        )
        .subcommand(store::command())
        .subcommand(schema::command())
        .subcommand(import::command())
        .subcommand(
            Command::new("health")
                .about("Ask the running server for its health; exit code 0 if it is well, 1 if not"),
        )
        .subcommand(cluster_command())
        .subcommand(torture::command::torture())
        .subcommand(torture::command::node())
        .subcommand(manual::completions())
        .subcommand(manual::man())
        .subcommand(manual::help())
        .subcommand(Command::new("version").about("Print the version"));
    options::add_to(root, flags)
}

fn config_command() -> Command {
    let effective = Arg::new("effective")
        .long("effective")
        .action(ArgAction::SetTrue)
        .help("Print the values in effect instead, each with its source");
    Command::new("config")
        .about("Check or print the configuration")
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommand(
            Command::new("check")
                .about("List every mistake in the configuration; exit code 2 if there is one"),
        )
        .subcommand(
            Command::new("print")
                .about(
                    "Print a tidewire.yml with the default and the documentation of every option",
                )
                .arg(effective),
        )
}

fn key_command() -> Command {
    let lifetime = text_argument(
        "expires-in",
        "TIME",
        "Time until it expires [default: never]",
    );
    Command::new("key")
        .about("Make a key that a backend logs in with, for the file of auth.keys.path")
        .arg(text_argument("id", "ID", "Id of the key: letters, digits, - and _").required(true))
        .arg(text_argument(
            "user",
            "ID",
            "User id of its sessions [default: the id of the key]",
        ))
        .arg(lifetime.value_parser(|text: &str| <Duration as Scalar>::parse(text)))
}

fn text_argument(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

fn token_command() -> Command {
    let argument = text_argument;
    Command::new("token")
        .about("Make a JSON Web Token that the configured auth.jwt accepts, for development")
        .arg(argument("user", "ID", "User id of its sessions").required(true))
        .arg(
            argument("expires-in", "TIME", "Time until it expires")
                .default_value("1h")
                .value_parser(|text: &str| <Duration as Scalar>::parse(text)),
        )
        .arg(
            argument(
                "claim",
                "NAME=VALUE",
                "Claim to add; a value that is JSON is added as JSON; can be repeated",
            )
            .action(ArgAction::Append),
        )
        .arg(
            argument(
                "signing-key",
                "FILE",
                "Private key (PEM) that signs it, instead of auth.jwt.secret",
            )
            .value_parser(clap::value_parser!(PathBuf)),
        )
}

fn order(token: &ArgMatches) -> TokenRequest {
    let claims = token.get_many::<String>("claim").unwrap_or_default();
    TokenRequest {
        // The first is required, and the second has a default: clap refuses a command line without them.
        user: token.get_one::<String>("user").cloned().unwrap_or_default(),
        lifetime: token
            .get_one::<Duration>("expires-in")
            .copied()
            .unwrap_or_default(),
        claims: claims.cloned().collect(),
        signing_key: token.get_one::<PathBuf>("signing-key").cloned(),
    }
}

fn user_command() -> Command {
    let name = || {
        Arg::new("name")
            .value_name("NAME")
            .required(true)
            .help("User name, as in the login")
    };
    Command::new("user")
        .about("Manage the users of `auth.chain: store`; the server must be stopped")
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommand(Command::new("list").about("Print the names of all users"))
        .subcommand(
            Command::new("add")
                .about("Add a user, with the password on standard input")
                .arg(name())
                .arg(text_argument(
                    "server-data",
                    "JSON",
                    "Data of the user in permission rules (user.data)",
                ))
                .arg(text_argument(
                    "client-data",
                    "JSON",
                    "Data that the client receives at login",
                )),
        )
        .subcommand(
            Command::new("set-password")
                .about("Set the password of a user to the one on standard input")
                .arg(name()),
        )
        .subcommand(
            Command::new("remove")
                .about("Remove a user and refuse its next logins")
                .arg(name()),
        )
}

fn cluster_command() -> Command {
    let node = Arg::new("node")
        .value_name("NODE")
        .required(true)
        .value_parser(clap::value_parser!(u16))
        .help("Number of the node, as `tidewire cluster status` shows it");
    let file = Arg::new("file")
        .value_name("FILE")
        .required(true)
        .value_parser(clap::value_parser!(PathBuf))
        .help("File with the rules");
    Command::new("cluster")
        .about("Show or change the cluster of the running server, by its admin API")
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommand(Command::new("status").about("Print the members of the cluster"))
        .subcommand(
            Command::new("leave")
                .about("Hand the names of this node over, leave the cluster and stop the server"),
        )
        .subcommand(
            Command::new("evict")
                .about("Evict another node; it closes its clients and joins again")
                .arg(node),
        )
        .subcommand(
            Command::new("rules")
                .about("Give the rules of a file to all nodes, and wait until they are in force")
                .arg(file),
        )
}

fn cluster_invocation(
    matches: &ArgMatches,
    environment: BTreeMap<String, String>,
) -> Result<Invocation, Failure> {
    let (word, deepest) = matches.subcommand().unwrap_or(("status", matches));
    let command = match word {
        "leave" => ClusterCommand::Leave,
        // The arguments are required: clap refuses a command line without them.
        "evict" => ClusterCommand::Evict(deepest.get_one("node").copied().unwrap_or_default()),
        "rules" => ClusterCommand::Rules(
            deepest
                .get_one::<PathBuf>("file")
                .cloned()
                .unwrap_or_default(),
        ),
        _ => ClusterCommand::Status,
    };
    Ok(Invocation::Cluster(command, sources(deepest, environment)?))
}

fn user_invocation(
    matches: &ArgMatches,
    environment: BTreeMap<String, String>,
) -> Result<Invocation, Failure> {
    let (word, deepest) = matches.subcommand().unwrap_or(("list", matches));
    let text = |name: &str| deepest.get_one::<String>(name).cloned();
    // Required by the commands that have it: clap refuses a command line without it.
    let name = || text("name").unwrap_or_default();
    let command = match word {
        "add" => UserCommand::Add {
            name: name(),
            server_data: text("server-data"),
            client_data: text("client-data"),
        },
        "set-password" => UserCommand::SetPassword { name: name() },
        "remove" => UserCommand::Remove { name: name() },
        _ => UserCommand::List,
    };
    Ok(Invocation::User(command, sources(deepest, environment)?))
}

fn rules_command() -> Command {
    let text = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name(value)
            .allow_hyphen_values(true)
            .help(help)
    };
    Command::new("rules")
        .about("Write, test and explain permission rules")
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommand(
            Command::new("init").about("Write a commented file of rules to start from").arg(
                Arg::new("file")
                    .value_name("FILE")
                    .default_value("permissions.yml")
                    .help("File to write; an existing file is not overwritten"),
            ),
        )
        .subcommand(
            Command::new("test").about("Run test cases against the rules; exit code 1 if one fails").arg(
                Arg::new("file").value_name("FILE").required(true).help("File of test cases; docs/permissions.md shows the format"),
            ),
        )
        .subcommand(
            Command::new("explain")
                .about("Show which rule decides, as in `tidewire rules explain record.write profile/ann --user ann`")
                .arg(
                    Arg::new("rule")
                        .value_name("SECTION.RULE")
                        .required(true)
                        .help("Right to ask for, as record.read or event.publish"),
                )
                .arg(Arg::new("name").value_name("NAME").help("Record, event, rpc or user; none asks for the presence of all users"))
                .arg(text("user", "ID", "User id [default: open]"))
                .arg(text("user-data", "JSON", "Data of the user from authentication (user.data)"))
                .arg(text("payload", "JSON", "Payload, or the record after the write (data)"))
                .arg(text("old", "JSON", "Record before the write (oldData)"))
                .arg(text("action", "ACTION", "Action, as PATCH, if one rule covers several"))
                .arg(
                    text("other", "NAME=JSON", "Another record that the rule reads; can be repeated")
                        .action(ArgAction::Append),
                ),
        )
}

fn rules_invocation(
    matches: &ArgMatches,
    environment: BTreeMap<String, String>,
) -> Result<RulesCommand, Failure> {
    let (name, deepest) = matches.subcommand().unwrap_or(("init", matches));
    let text = |name: &str| deepest.get_one::<String>(name).cloned();
    Ok(match name {
        "explain" => {
            let others = deepest.get_many::<String>("other").into_iter().flatten();
            let case = CaseText {
                rule: text("rule").unwrap_or_default(),
                name: text("name"),
                user: text("user").unwrap_or_else(|| "open".to_owned()),
                user_data: text("user-data"),
                payload: text("payload"),
                old: text("old"),
                action: text("action"),
                others: others.cloned().collect(),
            };
            RulesCommand::Explain(sources(deepest, environment)?, Box::new(case))
        }
        "test" => {
            let file = PathBuf::from(text("file").unwrap_or_default());
            RulesCommand::Test(sources(deepest, environment)?, file)
        }
        _ => RulesCommand::Init(PathBuf::from(
            text("file").unwrap_or_else(|| "permissions.yml".to_owned()),
        )),
    })
}

/// Parses the command line.
///
/// # Errors
/// The command line is wrong. The error names the nearest flag or command.
pub fn parse(
    arguments: impl Iterator<Item = OsString>,
    environment: BTreeMap<String, String>,
) -> Result<Invocation, Failure> {
    let matches = match command(Flags::All).try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) if is_text(error.kind()) => {
            return Ok(Invocation::Text(error.to_string()));
        }
        Err(error) => {
            return Err(Failure::new(
                Exit::Configuration,
                one_line(&error.to_string()),
            ));
        }
    };
    Ok(match matches.subcommand() {
        Some(("config", config)) => match config.subcommand() {
            Some(("print", print)) => Invocation::ConfigPrint {
                is_effective: print.get_flag("effective"),
                sources: sources(print, environment)?,
            },
            _ => {
                let (_, deepest) = config.subcommand().unwrap_or(("check", config));
                Invocation::ConfigCheck(sources(deepest, environment)?)
            }
        },
        Some(("version", _)) => {
            Invocation::Text(format!("tidewire {}\n", env!("CARGO_PKG_VERSION")))
        }
        Some(("health", health)) => Invocation::Health(sources(health, environment)?),
        Some(("hash", _)) => Invocation::Hash,
        Some(("key", key)) => Invocation::Key {
            // The arguments are required: clap refuses a command line without them.
            id: key.get_one::<String>("id").cloned().unwrap_or_default(),
            user: key.get_one::<String>("user").cloned(),
            lifetime: key.get_one::<Duration>("expires-in").copied(),
        },
        Some(("rules", rules)) => Invocation::Rules(rules_invocation(rules, environment)?),
        Some(("user", user)) => user_invocation(user, environment)?,
        Some(("cluster", cluster)) => cluster_invocation(cluster, environment)?,
        Some(("torture", torture)) => Invocation::Torture(torture::command::settings(torture)),
        Some(("torture-node", node)) => Invocation::TortureNode {
            broken: torture::command::broken(node),
            sources: sources(node, environment)?,
        },
        Some(("token", token)) => Invocation::Token {
            order: order(token),
            sources: sources(token, environment)?,
        },
        Some(("import", import)) => {
            let (_, deepest) = import.subcommand().unwrap_or(("deepstream", import));
            Invocation::Import(import::parsed(deepest), sources(deepest, environment)?)
        }
        Some(("store", store)) => {
            let (word, deepest) = store.subcommand().unwrap_or(("check", store));
            Invocation::Store(
                store::parsed(word, deepest),
                store::named(deepest),
                sources(deepest, environment)?,
            )
        }
        Some(("schema", schema)) => {
            let (word, deepest) = schema.subcommand().unwrap_or(("check", schema));
            Invocation::Schema(
                schema::parsed(word, deepest),
                sources(deepest, environment)?,
            )
        }
        Some(("completions", completions)) => Invocation::Text(manual::script(completions)?),
        Some(("man", man)) => manual::page(man)?,
        Some(("help", help)) => Invocation::Text(manual::text(help)?),
        Some((_, start)) => Invocation::Start(sources(start, environment)?),
        None => Invocation::Start(sources(&matches, environment)?),
    })
}

fn is_text(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::DisplayHelp | ErrorKind::DisplayVersion)
}

/// The first line of clap's message and its tips, without the usage.
fn one_line(text: &str) -> String {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut first = lines
        .next()
        .unwrap_or_default()
        .trim_start_matches("error: ")
        .to_owned();
    // The next line has the missing argument.
    if first.ends_with(':')
        && let Some(missing) = lines.next()
    {
        first = format!("{first} {missing}");
    }
    let tips = lines.filter_map(|line| line.strip_prefix("tip: "));
    let tip = tips
        .map(str::trim)
        .next()
        .unwrap_or("run `tidewire --help`");
    format!("{first}; {tip}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tidewire_config::layer::rows;

    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Invocation, Failure> {
        let arguments = std::iter::once("tidewire").chain(arguments.iter().copied());
        parse(arguments.map(OsString::from), BTreeMap::new())
    }

    #[test]
    fn the_command_line_is_well_formed() {
        command(Flags::All).debug_assert();
    }

    #[test]
    fn every_option_has_a_flag_and_a_variable_of_its_own() {
        let all = rows();
        let flags: BTreeSet<String> = all
            .iter()
            .map(tidewire_config::option::OptionRow::flag)
            .collect();
        let variables: BTreeSet<String> = all
            .iter()
            .map(tidewire_config::option::OptionRow::variable)
            .collect();
        assert_eq!(flags.len(), all.len());
        assert_eq!(variables.len(), all.len());
    }

    #[test]
    fn flags_may_stand_before_and_behind_the_command() {
        let check = |arguments: &[&str], expected: &[(&str, &str)]| {
            let Ok(Invocation::Start(sources)) = parsed(arguments) else {
                panic!("{arguments:?} starts the server")
            };
            let flags: Vec<(&str, &str)> = sources
                .flags
                .iter()
                .map(|(name, text)| (name.as_str(), text.as_str()))
                .collect();
            assert_eq!(flags, expected, "{arguments:?}");
        };
        check(&[], &[]);
        check(&["start"], &[]);
        check(&["--port", "7000"], &[("network.port", "7000")]);
        check(&["start", "--port", "7000"], &[("network.port", "7000")]);
        check(&["--port=7000", "start"], &[("network.port", "7000")]);
        check(&["--dev"], &[("dev", "true")]);
        check(&["--dev=false", "start"], &[("dev", "false")]);
        check(
            &["start", "--dev", "--data", "/d"],
            &[("dev", "true"), ("store.path", "/d")],
        );
        check(&["--log-level", "warn"], &[("log.level", "warn")]);
        check(&["--limits-calls-max", "7"], &[("limits.calls_max", "7")]);
    }

    #[test]
    fn mistakes_are_one_line_with_the_nearest_name() {
        let check = |arguments: &[&str], parts: &[&str]| {
            let failure = parsed(arguments).expect_err("not understood");
            assert_eq!(failure.exit, Exit::Configuration);
            for part in parts {
                assert!(
                    failure.line.contains(part),
                    "{arguments:?}: {}",
                    failure.line
                );
            }
        };
        check(&["--prot", "7000"], &["--prot", "--port"]);
        check(&["strat"], &["strat", "start"]);
        check(&["--port"], &["--port"]);
        check(&["config"], &["config"]);
        check(&["user", "add"], &["<NAME>"]);
    }
}

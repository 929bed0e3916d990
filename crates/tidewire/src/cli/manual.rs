//! The commands that explain the command line: `help`, `completions` and `man`.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::aot::Shell;
use clap_mangen::Man;
use tidewire_server::exit::{Exit, Failure};

use super::options::{self, Flags};
use super::{Invocation, command};

const SHELL: &str = "shell";
const FOLDER: &str = "folder";
const WORDS: &str = "command";
/// The word after `help` for the list of options.
const OPTIONS: &str = "options";

/// `tidewire completions`.
pub(super) fn completions() -> Command {
    Command::new("completions")
        .about("Print a completion script for a shell")
        .after_help(
            "bash: tidewire completions bash > /usr/share/bash-completion/completions/tidewire\n\
             zsh:  tidewire completions zsh > /usr/share/zsh/site-functions/_tidewire\n\
             fish: tidewire completions fish > /usr/share/fish/vendor_completions.d/tidewire.fish",
        )
        .arg(
            Arg::new(SHELL)
                .value_name("SHELL")
                .required(true)
                .value_parser(value_parser!(Shell))
                .help("Shell that the script is for"),
        )
}

/// `tidewire man`.
pub(super) fn man() -> Command {
    Command::new("man")
        .about("Print the manual page, or write the pages of all commands into a folder")
        .after_help(
            "tidewire man | man -l -\n\
             tidewire man /usr/local/share/man/man1",
        )
        .arg(
            Arg::new(FOLDER)
                .value_name("FOLDER")
                .value_parser(value_parser!(PathBuf))
                .help("Folder for a page for each command; created if it does not exist"),
        )
}

/// `tidewire help`.
pub(super) fn help() -> Command {
    Command::new("help")
        .about("Explain a command, as in `tidewire help store backup`, or list all `options`")
        .arg(
            Arg::new(WORDS)
                .value_name("COMMAND")
                .num_args(0..)
                .help("Words of the command, or `options`"),
        )
}

/// The completion script.
///
/// # Errors
/// The script is not text, which would be a bug.
pub(super) fn script(matches: &ArgMatches) -> Result<String, Failure> {
    // Required: clap refuses a command line without it.
    let shell = matches.get_one(SHELL).copied().unwrap_or(Shell::Bash);
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut command(Flags::Common), "tidewire", &mut out);
    text_of(out)
}

/// Runs `tidewire man`.
pub(super) fn page(matches: &ArgMatches) -> Result<Invocation, Failure> {
    if let Some(folder) = matches.get_one::<PathBuf>(FOLDER) {
        return Ok(Invocation::ManualPages(folder.clone()));
    }
    let mut out = Vec::new();
    Man::new(command(Flags::All))
        .render(&mut out)
        .map_err(|error| Failure::new(Exit::Bug, format!("no manual page: {error}")))?;
    text_of(out).map(Invocation::Text)
}

/// Writes the manual pages of all commands into a folder.
///
/// # Errors
/// The folder or a page can't be written.
pub fn write_pages(folder: &Path) -> Result<(), Failure> {
    let written = fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(command(Flags::All), folder));
    written.map_err(|error| {
        let line = format!("the manual pages can't be written to {folder:?}: {error}");
        Failure::new(Exit::Configuration, line)
    })
}

/// The text of `tidewire help`.
///
/// # Errors
/// The words are not a command.
pub(super) fn text(matches: &ArgMatches) -> Result<String, Failure> {
    let words: Vec<&str> = matches
        .get_many::<String>(WORDS)
        .unwrap_or_default()
        .map(String::as_str)
        .collect();
    if words == [OPTIONS] {
        return Ok(options::all());
    }
    let mut root = command(Flags::All);
    root.build();
    let mut found = &mut root;
    for (index, word) in words.iter().enumerate() {
        if found.find_subcommand(word).is_none() {
            let line = format!(
                "\"{}\" is not a command; `tidewire help` lists the commands, `tidewire help options` the options",
                words[..=index].join(" ")
            );
            return Err(Failure::new(Exit::Configuration, line));
        }
        found = found.find_subcommand_mut(word).expect("it was found above");
    }
    Ok(found.render_help().to_string())
}

fn text_of(bytes: Vec<u8>) -> Result<String, Failure> {
    String::from_utf8(bytes).map_err(|error| Failure::new(Exit::Bug, error.to_string()))
}

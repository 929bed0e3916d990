//! The exit codes of the command and the line of text that a failure prints.

use std::process::ExitCode;

use tidewire_config::without_error_numbers;

/// How the command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The server stopped on request and lost nothing.
    Stopped,
    /// The command found a problem. For `tidewire health` it is an unhealthy server; for `store check`, `backup`, `restore` and
    /// `export` a damaged record; for an import of records a record that was kept unchanged or refused; for
    /// `torture` a loss.
    Unwell,
    /// The configuration, the command line or the file of `store import` is wrong.
    Configuration,
    /// The server can't listen on an address.
    Address,
    /// The data folder is locked, not writable, of a newer format, or full.
    DataFolder,
    /// The server stopped on request, but the deadline cut something off.
    CutOff,
    /// `tidewire torture` found no loss, but could not try everything.
    Unproven,
    /// A bug.
    Bug,
}

impl Exit {
    /// The code as the operating system sees it.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Stopped => 0,
            Self::Unwell => 1,
            Self::Configuration => 2,
            Self::Address => 3,
            Self::DataFolder => 4,
            Self::CutOff => 5,
            Self::Unproven => 6,
            Self::Bug => 70,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Why the command ends, as an exit code and a line of text.
#[derive(Debug, thiserror::Error)]
#[error("{line}")]
pub struct Failure {
    /// The code.
    pub exit: Exit,
    /// One line: the error and the remedy.
    pub line: String,
}

impl Failure {
    /// A failure; line breaks in `line` become spaces.
    #[must_use]
    pub fn new(exit: Exit, line: impl Into<String>) -> Self {
        let line = without_error_numbers(line.into()).replace(['\n', '\r'], " ");
        Self { exit, line }
    }
}

/// Makes every panic end the process with the exit code of a bug and one line that names the source location.
///
/// The state of a panicking thread is unknown, and all acknowledged writes are on disk. So a restart is the safe way to continue.
pub fn end_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        let location = panic
            .location()
            .map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
        let payload = panic.payload();
        let text = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message")
            .replace(['\n', '\r'], " ");
        eprintln!(
            "tidewire: a bug at {location}: {text}; please report this line and start the server again"
        );
        std::process::exit(i32::from(Exit::Bug.code()));
    }));
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const CHILD: &str = "TIDEWIRE_TEST_PANICS";

    #[test]
    fn a_panic_ends_the_process_with_one_line() {
        if std::env::var_os(CHILD).is_some() {
            end_on_panic();
            let ended = std::thread::spawn(|| panic!("two\nlines")).join();
            unreachable!("the hook ended the process: {ended:?}");
        }
        let this_test = "exit::tests::a_panic_ends_the_process_with_one_line";
        let child = Command::new(std::env::current_exe().expect("a test has a path"))
            .args(["--exact", this_test, "--nocapture"])
            .env(CHILD, "1")
            .output()
            .expect("the test binary starts");
        assert_eq!(child.status.code(), Some(70));
        let text = String::from_utf8_lossy(&child.stderr);
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(
            text.contains("src/exit.rs") && text.contains("two lines"),
            "{text}"
        );
    }
}

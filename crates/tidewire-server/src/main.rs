//! The `tidewire` command.

use std::process::ExitCode;

use tidewire_server::command;

fn main() -> ExitCode {
    command::main()
}

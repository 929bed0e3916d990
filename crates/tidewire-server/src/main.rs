//! The `tidewire` command.

use std::process::ExitCode;

use tidewire_server::command;
use tidewire_server::store::sqlite::Sync;

fn main() -> ExitCode {
    command::main(Sync::Full)
}

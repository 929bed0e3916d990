//! The `tidewire` command: the command line, the first screen, and what each invocation does. It joins the server with the torture
//! test and the migration, which the server does not know.

mod cli;
mod command;
mod first_screen;
mod health;
mod log;
mod rules;
mod service_manager;
mod store_command;
mod terminal;
mod user;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::main()
}

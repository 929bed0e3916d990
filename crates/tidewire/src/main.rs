//! The `tidewire` command: the command line, the first screen, and the commands. It joins the server with the torture test and the
//! migration, on which the server does not depend.

mod cli;
mod cluster;
mod command;
mod crash;
mod first_screen;
mod health;
mod log;
mod rules;
mod schema;
mod service_manager;
mod store_command;
mod terminal;
mod user;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::main()
}

//! A server that answers writes before they are on disk. It exists so that the tests of power cuts can show that they
//! would notice, and only in builds with the feature `test-faults`.

use std::process::ExitCode;

use tidewire_server::command;
use tidewire_server::store::sqlite::Sync;

fn main() -> ExitCode {
    command::main(Sync::Off)
}

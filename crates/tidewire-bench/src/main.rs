//! `tidewire-bench`: see `docs/bench.md`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let matches = tidewire_bench::cli::command().get_matches();
    match tidewire_bench::cli::run(&matches) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("tidewire-bench: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

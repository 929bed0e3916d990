//! `tidewire import deepstream`: imports the records of a deepstream server into the stores, and prints the numbers of its result.

use std::fs;
use std::time::Instant;

use tidewire_config::plan::{Plan, has_password};
use tidewire_migrate::records::{MigrationError, Source, SourceKind, migrate};
use tidewire_store::remote::{Membership, RemoteOptions};
use tokio::runtime::Handle;

use crate::cli::RecordImport;
use crate::terminal::print_out;
use tidewire_server::exit::{Exit, Failure};

use super::stores::OpenStores;
use super::{KEPT, data, limits, refuse_memory, runtime, verdict};

/// Runs the import.
///
/// # Errors
/// The command failed. The error has a line with the next step.
pub fn run(plan: &Plan, command: RecordImport) -> Result<Exit, Failure> {
    let start = Instant::now();
    let runtime = runtime()?;
    let (is_dry, replaces) = (command.is_dry, command.replaces);
    let source = source(plan, command, runtime.handle())?;
    let limits = limits(plan);
    let migrated = if is_dry {
        migrate(&source, limits, None).map_err(|error| data(&error))?
    } else {
        refuse_memory(plan)?;
        let mut stores = OpenStores::open(plan, runtime.handle())?;
        let importer = stores.importer(replaces).map_err(MigrationError::from);
        let migrated = importer.and_then(|importer| migrate(&source, limits, Some(importer)));
        let migrated = migrated.map_err(|error| data(&error));
        let closed = stores.close();
        let migrated = migrated?;
        closed?;
        migrated
    };
    let seconds = start.elapsed().as_secs_f32();
    print_out(&format!("{migrated}\nin {seconds:.1} s\n"))?;
    verdict(
        migrated.refused.count == 0,
        "some records were refused (see above), the others imported; fix them or raise the limits, and import again",
    )?;
    let is_all = migrated
        .imported
        .is_none_or(|imported| imported.kept_count == 0);
    verdict(is_all, KEPT)
}

/// The database of deepstream's records.
fn source(plan: &Plan, command: RecordImport, runtime: &Handle) -> Result<Source, Failure> {
    let wrong = |line: String| Failure::new(Exit::Configuration, line);
    let Some(kind) = SourceKind::of(&command.from) else {
        let line = "--from: unknown kind of database; write an address with postgresql://, mongodb:// or redis://";
        return Err(wrong(line.to_owned()));
    };
    if has_password(&command.from) {
        let line = "--from: the address has a password, which logs would show; write it into a file, and name that with --password-file";
        return Err(wrong(line.to_owned()));
    }
    let password = match &command.password_file {
        None => String::new(),
        Some(path) => fs::read_to_string(path)
            .map_err(|error| wrong(format!("--password-file: {}: {error}", path.display())))?
            .trim_end()
            .to_owned(),
    };
    Ok(Source {
        kind,
        layout: command.layout,
        options: RemoteOptions {
            url: command.from,
            password: password.into(),
            ca: command.ca,
            timeout: plan.config.store.timeout,
            // The command only reads from this server.
            is_relaxed: true,
            membership: Membership::Alone,
            runtime: runtime.clone(),
        },
    })
}

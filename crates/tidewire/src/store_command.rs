//! `tidewire store`: checks, backs up, exports, imports and moves stored records. Each command prints one line with the numbers of its
//! result.

pub mod deepstream;
mod stores;

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::iter;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Instant;

use tidewire_config::option::join;
use tidewire_config::plan::Plan;
use tidewire_config::section::StoreKind;
use tidewire_config::stores::{DEFAULT_NAME, NamedStores, SECTION};
use tidewire_core::json::JsonLimits;
use tidewire_core::store::StoreReader;
use tidewire_store::ReadOnlyStore;
use tidewire_store::backup;
use tidewire_store::check::check_records;
use tidewire_store::transfer::export::{Exported, export};
use tidewire_store::transfer::import::{ImportError, Limits, import, verify};
use tokio::runtime::{Builder, Runtime};

use crate::cli::StoreCommand;
use crate::terminal::print_out;
use tidewire_server::exit::{Exit, Failure};
use tidewire_server::node::{open_all_read_only, store_kind};

use stores::OpenStores;

/// The file name for standard input or output.
const STANDARD: &str = "-";
/// Size of the buffers for reading and writing.
const BUFFER_BYTES: usize = 1 << 18;

/// Runs the command on the configured stores.
///
/// # Errors
/// The command failed. The error has a line with the next step.
pub fn run(plan: &Plan, store: Option<&str>, command: &StoreCommand) -> Result<Exit, Failure> {
    let plan = &of_store(plan, store, command)?;
    match command {
        StoreCommand::Check => check(plan),
        StoreCommand::Backup(to) => {
            only_of_a_folder(plan, "backup")?;
            let copied =
                backup::backup(&plan.config.store.path, to).map_err(|error| data(&error))?;
            let server_state = match copied.was_in_use {
                true => " while the server runs",
                false => "",
            };
            print_out(&format!("backed up to {to:?}{server_state}, {copied}\n"))?;
            verdict(
                copied.check.is_sound(),
                "the data folder has damaged records, and the backup has them too; restore them from an older backup",
            )
        }
        StoreCommand::Restore(from) => {
            only_of_a_folder(plan, "restore")?;
            let folder = &plan.config.store.path;
            let copied = backup::restore(from, folder).map_err(|error| data(&error))?;
            print_out(&format!("restored to {folder:?}, {copied}\n"))?;
            verdict(
                copied.check.is_sound(),
                "the backup has damaged records, which are restored unchanged; restore them from an older backup",
            )
        }
        StoreCommand::Export(to) => export_to(plan, to),
        StoreCommand::Import { file, replaces } => import_from(plan, file, *replaces),
        StoreCommand::Move => move_records(plan),
    }
}

/// The plan with the named store as its only store.
fn of_store(plan: &Plan, store: Option<&str>, command: &StoreCommand) -> Result<Plan, Failure> {
    let mut plan = plan.clone();
    let Some(wanted) = store else {
        return Ok(plan);
    };
    if *command == StoreCommand::Move {
        let line = "a move uses all stores; remove --store";
        return Err(Failure::new(Exit::Configuration, line));
    }
    if wanted == DEFAULT_NAME {
        plan.config.stores = NamedStores::default();
        return Ok(plan);
    }
    let own = {
        let mut named = plan.config.stores.iter();
        let found = named.find(|(name, _)| *name == wanted);
        found.map(|(_, named)| named.store.clone())
    };
    let Some(mut own) = own else {
        let line = format!("--store {wanted}: unknown store; name one of `stores`, or `default`");
        return Err(Failure::new(Exit::Configuration, line));
    };
    if own.kind != StoreKind::Sqlite {
        // The store has no folder. The lock of the node's folder shows whether a server runs.
        own.path = plan.config.store.path;
    }
    plan.config.store = own;
    plan.config.stores = NamedStores::default();
    Ok(plan)
}

fn move_records(plan: &Plan) -> Result<Exit, Failure> {
    let start = Instant::now();
    let runtime = runtime()?;
    let mut stores = OpenStores::open(plan, runtime.handle())?;
    let moved = stores.move_strays();
    stores.close()?;
    let moved = moved.map_err(|error| data(&error))?;
    let seconds = start.elapsed().as_secs_f32();
    print_out(&format!("{moved}, in {seconds:.1} s\n"))?;
    verdict(
        moved.corrupt.count == 0,
        "some records are corrupt (see above) and were not moved, and the server will not find them; restore them from a backup",
    )
}

fn check(plan: &Plan) -> Result<Exit, Failure> {
    let path = &plan.config.store.path;
    let report = match plan.config.store.kind {
        StoreKind::Sqlite => tidewire_store::check(path).map_err(|error| data(&error))?,
        _ => {
            let runtime = runtime()?;
            let kind = store_kind(plan, runtime.handle())?;
            let mut store =
                tidewire_store::open_read_only(&kind, path).map_err(|error| data(&error))?;
            check_records(&mut *store.reader).map_err(|error| data(&error))?
        }
    };
    print_out(&format!("{report}\n"))?;
    verdict(
        report.is_sound(),
        "some records are damaged (see above), the server serves the others; restore the store from a backup",
    )
}

/// Refuses a remote store, because backup and restore copy the files of a data folder.
fn only_of_a_folder(plan: &Plan, word: &str) -> Result<(), Failure> {
    let kind = match plan.config.store.kind {
        StoreKind::Sqlite => return Ok(()),
        other => other,
    };
    let line = format!(
        "store.kind: `store {word}` works only with the SQLite store of a data folder; back up a store of the kind {kind:?} with the tools of its server, or use `tidewire store export` and `import`"
    );
    Err(Failure::new(Exit::Configuration, line))
}

fn export_to(plan: &Plan, to: &Path) -> Result<Exit, Failure> {
    let start = Instant::now();
    let runtime = runtime()?;
    let mut stores = open_all_read_only(plan, runtime.handle())?;
    let exported = if to == Path::new(STANDARD) {
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock());
        write_export(&mut stores, &mut out)?
    } else {
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(to);
        let file = file.map_err(|error| {
            let line = format!("{to:?}: {error}; name a new file for the export");
            Failure::new(Exit::Configuration, line)
        })?;
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, file);
        let exported = write_export(&mut stores, &mut out);
        let synced = exported.and_then(|exported| {
            let synced = out.get_ref().sync_all();
            synced.map_err(|error| data(&format!("the export can't be written: {error}")))?;
            Ok(exported)
        });
        synced.inspect_err(|_| {
            // `import` refuses an export without its last line.
            let _ = fs::remove_file(to);
        })?
    };
    let seconds = start.elapsed().as_secs_f32();
    // Standard output may be the export.
    eprintln!("{exported}, in {seconds:.1} s");
    verdict(
        exported.corrupt.count == 0,
        "some records are corrupt (see above), and the export does not have them; restore them from a backup",
    )
}

fn write_export(stores: &mut [ReadOnlyStore], out: &mut dyn Write) -> Result<Exported, Failure> {
    let readers = stores
        .iter_mut()
        .map(|store| &mut *store.reader as &mut dyn StoreReader);
    export(readers, out).map_err(|error| data(&error))
}

fn import_from(plan: &Plan, from: &Path, replaces: bool) -> Result<Exit, Failure> {
    refuse_memory(plan)?;
    let start = Instant::now();
    let limits = limits(plan);
    let input: Box<dyn BufRead> = if from == Path::new(STANDARD) {
        Box::new(BufReader::with_capacity(BUFFER_BYTES, io::stdin().lock()))
    } else {
        // If any line is damaged, the command refuses the whole file.
        verify(open(from)?, limits).map_err(|error| refused(from, &error))?;
        Box::new(open(from)?)
    };
    let runtime = runtime()?;
    let mut stores = OpenStores::open(plan, runtime.handle())?;
    let importer = stores.importer(replaces);
    let imported = importer.and_then(|importer| import(input, limits, importer));
    stores.close()?;
    let imported = imported.map_err(|error| refused(from, &error))?;
    let seconds = start.elapsed().as_secs_f32();
    print_out(&format!("{imported}, in {seconds:.1} s\n"))?;
    verdict(imported.kept_count == 0, KEPT)
}

/// The line about existing records that the import did not replace.
const KEPT: &str = "existing records with another version or value were kept; import with --replace to replace them";

/// Refuses an import into memory, which would end with this command.
fn refuse_memory(plan: &Plan) -> Result<(), Failure> {
    let named = plan.config.stores.iter();
    let named = named.map(|(name, named)| (join(SECTION, name), named.store.kind));
    let mut all = iter::once(("store".to_owned(), plan.config.store.kind)).chain(named);
    match all.find(|(_, kind)| *kind == StoreKind::Memory) {
        None => Ok(()),
        Some((section, _)) => {
            let line = format!(
                "{section}.kind: the memory store ends with this command; import into another kind of store"
            );
            Err(Failure::new(Exit::Configuration, line))
        }
    }
}

/// Limits of an imported record.
fn limits(plan: &Plan) -> Limits {
    let limits = &plan.config.limits;
    Limits {
        name_bytes_max: limits.name_bytes_max.as_usize(),
        json: JsonLimits {
            nesting_max: limits.nesting_max,
            bytes_max: limits.record_bytes_max.as_usize(),
            array_gap_max: limits.array_gap_max,
        },
    }
}

fn open(path: &Path) -> Result<BufReader<File>, Failure> {
    let file = File::open(path);
    let file =
        file.map_err(|error| Failure::new(Exit::Configuration, format!("{path:?}: {error}")))?;
    Ok(BufReader::with_capacity(BUFFER_BYTES, file))
}

/// The failure of an import. The exit code distinguishes a wrong file from a failed store.
fn refused(path: &Path, error: &ImportError) -> Failure {
    match error {
        ImportError::Store { .. } => data(error),
        _ => Failure::new(Exit::Configuration, format!("{path:?}: {error}")),
    }
}

/// The runtime of the connections to remote stores.
fn runtime() -> Result<Runtime, Failure> {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build();
    runtime.map_err(|error| Failure::new(Exit::Bug, format!("threads can't be started: {error}")))
}

fn data(error: &dyn fmt::Display) -> Failure {
    Failure::new(Exit::DataFolder, error.to_string())
}

fn verdict(is_well: bool, line: &str) -> Result<Exit, Failure> {
    match is_well {
        true => Ok(Exit::Stopped),
        false => Err(Failure::new(Exit::Unwell, line)),
    }
}

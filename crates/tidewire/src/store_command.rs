//! `tidewire store`: checks, backs up and moves what is stored. Each command says in one line of figures what it did.

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
use tidewire_store::Beside;
use tidewire_store::backup;
use tidewire_store::check::check_records;
use tidewire_store::transfer::export::{Exported, export};
use tidewire_store::transfer::import::{ImportError, Limits, import, verify};
use tokio::runtime::{Builder, Runtime};

use crate::cli::StoreCommand;
use crate::terminal::print_out;
use tidewire_server::exit::{Exit, Failure};
use tidewire_server::node::{open_all_beside, store_kind};

use stores::OpenStores;

/// The file that stands for standard input or output.
const STANDARD: &str = "-";
/// Bytes that are read or written at a time.
const BUFFER_BYTES: usize = 1 << 18;

/// Does what was asked for with the store that is configured.
///
/// # Errors
/// It can't be done, with the line that says what to do.
pub fn run(plan: &Plan, store: Option<&str>, command: &StoreCommand) -> Result<Exit, Failure> {
    let plan = &of_store(plan, store, command)?;
    match command {
        StoreCommand::Check => check(plan),
        StoreCommand::Backup(to) => {
            only_of_a_folder(plan, "backup")?;
            let copied =
                backup::backup(&plan.config.store.path, to).map_err(|error| data(&error))?;
            let beside = match copied.beside_server {
                true => " beside the running server",
                false => "",
            };
            print_out(&format!("backed up to {to:?}{beside}, {copied}\n"))?;
            verdict(
                copied.check.is_sound(),
                "the backup has what is damaged in the data folder",
            )
        }
        StoreCommand::Restore(from) => {
            only_of_a_folder(plan, "restore")?;
            let folder = &plan.config.store.path;
            let copied = backup::restore(from, folder).map_err(|error| data(&error))?;
            print_out(&format!("restored to {folder:?}, {copied}\n"))?;
            verdict(
                copied.check.is_sound(),
                "the backup was damaged when it was taken",
            )
        }
        StoreCommand::Export(to) => export_to(plan, to),
        StoreCommand::Import { file, replaces } => import_from(plan, file, *replaces),
        StoreCommand::Move => move_records(plan),
    }
}

/// The plan as if the store of this name were the only one.
fn of_store(plan: &Plan, store: Option<&str>, command: &StoreCommand) -> Result<Plan, Failure> {
    let mut plan = plan.clone();
    let Some(wanted) = store else {
        return Ok(plan);
    };
    if *command == StoreCommand::Move {
        let line = "a move is about all stores; leave out --store";
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
        let line = format!("--store {wanted}: there is no such store below `stores`");
        return Err(Failure::new(Exit::Configuration, line));
    };
    if own.kind != StoreKind::Sqlite {
        // It has no folder; that of the node shows whether a server runs.
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
        "corrupt records stay where they are, as said above, and are not looked for any more; restore them from a backup",
    )
}

fn check(plan: &Plan) -> Result<Exit, Failure> {
    let path = &plan.config.store.path;
    let report = match plan.config.store.kind {
        StoreKind::Sqlite => tidewire_store::check(path).map_err(|error| data(&error))?,
        _ => {
            let runtime = runtime()?;
            let kind = store_kind(plan, runtime.handle())?;
            let mut beside =
                tidewire_store::open_beside(&kind, path).map_err(|error| data(&error))?;
            check_records(&mut *beside.reader).map_err(|error| data(&error))?
        }
    };
    print_out(&format!("{report}\n"))?;
    verdict(
        report.is_sound(),
        "the store is damaged as said above and serves the rest; restore it from a backup",
    )
}

/// Backups are of files that are ours.
fn only_of_a_folder(plan: &Plan, word: &str) -> Result<(), Failure> {
    let kind = match plan.config.store.kind {
        StoreKind::Sqlite => return Ok(()),
        other => other,
    };
    let line = format!(
        "store.kind: store {word} is for the SQLite store of a data folder; back up a store of {kind:?} with its server's own tools, or move its records with `tidewire store export` and `import`"
    );
    Err(Failure::new(Exit::Configuration, line))
}

fn export_to(plan: &Plan, to: &Path) -> Result<Exit, Failure> {
    let start = Instant::now();
    let runtime = runtime()?;
    let mut stores = open_all_beside(plan, runtime.handle())?;
    let exported = if to == Path::new(STANDARD) {
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock());
        write_export(&mut stores, &mut out)?
    } else {
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(to);
        let file = file.map_err(|error| {
            let line = format!("{to:?}: {error}; an export is written to a new file");
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
            // Without its last line nobody could use it.
            let _ = fs::remove_file(to);
        })?
    };
    let seconds = start.elapsed().as_secs_f32();
    // Standard output may have the export.
    eprintln!("{exported}, in {seconds:.1} s");
    verdict(
        exported.corrupt.count == 0,
        "corrupt records are left out of the export, as said above",
    )
}

fn write_export(stores: &mut [Beside], out: &mut dyn Write) -> Result<Exported, Failure> {
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
        // A damaged file is refused as a whole.
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

/// What is to be done about records that stayed.
const KEPT: &str = "records that are there in another version or with another value were kept; import with --replace to replace them";

/// Nothing can be brought into what ends with this command.
fn refuse_memory(plan: &Plan) -> Result<(), Failure> {
    let named = plan.config.stores.iter();
    let named = named.map(|(name, named)| (join(SECTION, name), named.store.kind));
    let mut all = iter::once(("store".to_owned(), plan.config.store.kind)).chain(named);
    match all.find(|(_, kind)| *kind == StoreKind::Memory) {
        None => Ok(()),
        Some((section, _)) => {
            let line = format!(
                "{section}.kind: memory is gone when this command ends; import into another store"
            );
            Err(Failure::new(Exit::Configuration, line))
        }
    }
}

/// What an imported record may be at most.
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

/// What is wrong with the file ends with another code than what is wrong with the store.
fn refused(path: &Path, error: &ImportError) -> Failure {
    match error {
        ImportError::Store { .. } => data(error),
        _ => Failure::new(Exit::Configuration, format!("{path:?}: {error}")),
    }
}

/// What drives the connections to a store on a server.
fn runtime() -> Result<Runtime, Failure> {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build();
    runtime.map_err(|error| Failure::new(Exit::Bug, format!("no threads: {error}")))
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

//! `tidewire schema`: checks stored records against a file of schemas, and makes types of it.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use tidewire_config::plan::Plan;
use tidewire_core::store::{Loaded, StoreError, StoreReader};
use tidewire_core::text::{Name, RESERVED};
use tidewire_schema::{BYTES_MAX, SchemaFile};
use tidewire_server::exit::{Exit, Failure};
use tidewire_server::node::open_all_read_only;
use tokio::runtime::Builder;

use crate::cli::SchemaCommand;
use crate::terminal::print_out;

/// Records that the command reads at once.
const PAGE_COUNT: usize = 100;
/// Empty pages in a row while the store reports more records, which were deleted between its two queries.
const EMPTY_MAX: u32 = 10;
/// Lines about one record.
const MISFITS_MAX: usize = 8;

/// Runs the command.
///
/// # Errors
/// The file is wrong, the stores can't be read, or a record does not fit.
pub fn run(
    command: &SchemaCommand,
    plan: impl FnOnce() -> Result<Plan, Failure>,
) -> Result<Exit, Failure> {
    match command {
        SchemaCommand::Types(path) => print_out(&load(path)?.typescript()),
        SchemaCommand::Check(path) => check(&load(path)?, &plan()?),
    }
}

fn load(path: &Path) -> Result<SchemaFile, Failure> {
    let refused = |reason: &dyn fmt::Display| {
        Failure::new(Exit::Configuration, format!("{}: {reason}", path.display()))
    };
    let mut text = String::new();
    let file =
        File::open(path).map_err(|error| refused(&format!("{error}; name the file of schemas")))?;
    // One byte more shows that the file is too long.
    let mut file = file.take(BYTES_MAX as u64 + 1);
    file.read_to_string(&mut text)
        .map_err(|error| refused(&error))?;
    SchemaFile::parse(&text).map_err(|error| refused(&error))
}

/// The numbers of a check.
#[derive(Debug, Default)]
struct Report {
    checked_count: u64,
    misfit_count: u64,
    /// Records of collections without a schema.
    free_count: u64,
    corrupt_count: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} records checked, {} do not fit, {} without a schema, {} corrupt",
            self.checked_count, self.misfit_count, self.free_count, self.corrupt_count
        )
    }
}

fn check(schemas: &SchemaFile, plan: &Plan) -> Result<Exit, Failure> {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build();
    let runtime = runtime
        .map_err(|error| Failure::new(Exit::Bug, format!("threads can't be started: {error}")))?;
    let mut stores = open_all_read_only(plan, runtime.handle())?;
    let mut report = Report::default();
    let mut out = io::BufWriter::new(io::stdout().lock());
    for store in &mut stores {
        check_store(schemas, &mut *store.reader, &mut report, &mut out)?;
    }
    let printed = writeln!(out, "{report}").and_then(|()| out.flush());
    printed.map_err(unprinted)?;
    match (report.misfit_count, report.corrupt_count) {
        (0, 0) => Ok(Exit::Stopped),
        (0, _) => Err(Failure::new(
            Exit::Unwell,
            "corrupt records were not checked; list them with `tidewire store check`",
        )),
        _ => Err(Failure::new(
            Exit::Unwell,
            "some records do not fit their schema (see above); change these records or the schema",
        )),
    }
}

fn check_store(
    schemas: &SchemaFile,
    reader: &mut dyn StoreReader,
    report: &mut Report,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let unread = |error: StoreError| {
        Failure::new(
            Exit::DataFolder,
            format!("the store can't be read: {error}; try again when it can"),
        )
    };
    let mut last: Option<Name> = None;
    let mut empty_count = 0;
    loop {
        let mut newest = None;
        let mut printed = Ok(());
        let has_more = reader
            .scan("", last.as_ref(), PAGE_COUNT, &mut |name, loaded| {
                if printed.is_ok() {
                    printed = check_record(schemas, &name, &loaded, report, out);
                }
                newest = Some(name);
            })
            .map_err(unread)?;
        printed.map_err(unprinted)?;
        empty_count = match &newest {
            None => empty_count + 1,
            Some(_) => 0,
        };
        last = newest.or(last);
        if !has_more {
            return Ok(());
        }
        if empty_count > EMPTY_MAX {
            let line = "the store reports more records than it returns; check it with `tidewire store check`";
            return Err(Failure::new(Exit::DataFolder, line));
        }
    }
}

fn check_record(
    schemas: &SchemaFile,
    name: &Name,
    loaded: &Loaded,
    report: &mut Report,
    out: &mut dyn Write,
) -> io::Result<()> {
    // Clients can't write these records: users, and histories of events.
    if name.starts_with(RESERVED) {
        return Ok(());
    }
    let record = match loaded {
        Loaded::Found(record) => record,
        Loaded::Corrupt => {
            report.corrupt_count += 1;
            return Ok(());
        }
        Loaded::Missing => return Ok(()),
    };
    let Some(schema) = schemas.of_record(name) else {
        report.free_count += 1;
        return Ok(());
    };
    report.checked_count += 1;
    let value = match serde_json::from_str(record.data.as_str()) {
        Ok(value) => value,
        Err(error) => {
            report.misfit_count += 1;
            return writeln!(out, "{:?}: can't be checked: {error}", name.as_str());
        }
    };
    let mut misfits = schema.misfits(&value);
    let mut count = 0;
    for misfit in misfits.by_ref().take(MISFITS_MAX) {
        count += 1;
        writeln!(out, "{:?}: {misfit}", name.as_str())?;
    }
    if misfits.next().is_some() {
        writeln!(out, "{:?}: and more", name.as_str())?;
    }
    report.misfit_count += u64::from(count > 0);
    Ok(())
}

fn unprinted(error: io::Error) -> Failure {
    let line = format!("standard output can't be written: {error}; name another target");
    Failure::new(Exit::Unwell, line)
}

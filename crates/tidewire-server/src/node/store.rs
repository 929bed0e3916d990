//! Opens the store that the options name.

use std::path::Path;

use tokio::runtime::Handle;

use crate::config::plan::Plan;
use crate::config::section::{Durability, StoreKind as StoreChoice, StoreServer};
use crate::exit::{Exit, Failure};
use crate::store::folder::DataFolder;
use crate::store::remote::{OpenStore, RemoteOptions};
use crate::store::sqlite::SqliteOptions;
use crate::store::{self, StoreKind};
use crate::torture::sabotage::Break;

/// The store of the options.
///
/// # Errors
/// Its password can't be read.
pub(crate) fn store_kind(plan: &Plan, runtime: &Handle) -> Result<StoreKind, Failure> {
    let server = |option, server: &StoreServer| {
        Ok(RemoteOptions {
            url: server.url.clone(),
            password: password(option, server)?,
            ca: server.ca.0.clone(),
            timeout: plan.config.store.timeout,
            is_relaxed: plan.config.store.durability == Durability::Relaxed,
            runtime: runtime.clone(),
        })
    };
    let options = &plan.config.store;
    Ok(match options.kind {
        StoreChoice::Sqlite => StoreKind::Sqlite(SqliteOptions::default()),
        StoreChoice::Memory => StoreKind::Memory { bytes_max: None },
        StoreChoice::Mongodb => StoreKind::Mongodb(server("store.mongodb", &options.mongodb)?),
        StoreChoice::Postgres => StoreKind::Postgres(server("store.postgres", &options.postgres)?),
        StoreChoice::Redis => StoreKind::Redis(server("store.redis", &options.redis)?),
    })
}

/// Opens the store and says in the log what an acknowledged write means with it.
///
/// # Errors
/// It can't be opened, or its password can't be read.
pub(crate) fn open_store(
    plan: &Plan,
    broken: Option<Break>,
    folder: &DataFolder,
    runtime: &Handle,
) -> Result<OpenStore, Failure> {
    let mut kind = store_kind(plan, runtime)?;
    if let Some(broken) = broken {
        broken.loosen(&mut kind);
    }
    let open = store::open(&kind, folder)
        .map_err(|error| Failure::new(Exit::DataFolder, error.to_string()))?;
    let open = match broken {
        None => open,
        Some(broken) => broken.apply(open, runtime).map_err(|error| {
            Failure::new(Exit::Bug, format!("the store can't be broken: {error}"))
        })?,
    };
    match &open.promise.weakness {
        None => tracing::info!(acknowledged = open.promise.text, "the store is open"),
        Some(weakness) => tracing::warn!(
            weakness,
            "the store is open, and acknowledged writes may be lost, as store.durability allows"
        ),
    }
    Ok(open)
}

/// The password of the file, or of the option.
fn password(option: &str, server: &StoreServer) -> Result<String, Failure> {
    let Some(path) = &server.password_file.0 else {
        return Ok(server.password.0.clone());
    };
    read(path).map_err(|error| {
        let line = format!("{option}.password_file: {}: {error}", path.display());
        Failure::new(Exit::Configuration, line)
    })
}

fn read(path: &Path) -> std::io::Result<String> {
    Ok(std::fs::read_to_string(path)?.trim_end().to_owned())
}

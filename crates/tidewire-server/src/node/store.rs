//! Opens the stores of the configuration.

use std::path::Path;

use tidewire_config::option::join;
use tidewire_config::plan::Plan;
use tidewire_config::section::{Durability, Store, StoreKind as StoreChoice, StoreServer};
use tidewire_config::stores;
use tidewire_config::value::OptionalBytes;
use tidewire_core::route::StoreId;
use tidewire_core::store::{Store as OpenedStore, StoreError};
use tidewire_http::metrics::Metrics;
use tidewire_http::status::{Reason, Status};
use tidewire_store::folder::DataFolder;
use tidewire_store::remote::{Membership, OpenStore, Promise, RemoteOptions};
use tidewire_store::scrub::{Scrub, ScrubHealth, ScrubOptions};
use tidewire_store::sqlite::SqliteOptions;
use tidewire_store::sqlite::quota::Quota;
use tidewire_store::{ReadOnlyStore, StoreKind};
use tokio::runtime::Handle;
use zeroize::Zeroizing;

use crate::exit::{Exit, Failure};

/// The default store of the options.
///
/// # Errors
/// Its password can't be read.
pub fn store_kind(plan: &Plan, runtime: &Handle) -> Result<StoreKind, Failure> {
    kind_of(
        "store",
        &plan.config.store,
        plan.config.cluster.enabled,
        runtime,
    )
}

/// The store that a section of the configuration describes. A member of a cluster shares it with others.
fn kind_of(
    section: &str,
    options: &Store,
    is_member: bool,
    runtime: &Handle,
) -> Result<StoreKind, Failure> {
    let server = |option, server: &StoreServer| {
        Ok(RemoteOptions {
            url: server.url.clone(),
            password: password(&join(section, option), server)?,
            ca: server.ca.0.clone(),
            timeout: options.timeout,
            is_relaxed: options.durability == Durability::Relaxed,
            membership: match is_member {
                true => Membership::Joins { node: 0 },
                false => Membership::Alone,
            },
            runtime: runtime.clone(),
        })
    };
    Ok(match options.kind {
        StoreChoice::Sqlite => StoreKind::Sqlite(SqliteOptions::default()),
        StoreChoice::Memory => StoreKind::Memory { bytes_max: None },
        StoreChoice::Mongodb => StoreKind::Mongodb(server("mongodb", &options.mongodb)?),
        StoreChoice::Postgres => StoreKind::Postgres(server("postgres", &options.postgres)?),
        StoreChoice::Redis => StoreKind::Redis(server("redis", &options.redis)?),
    })
}

/// Opens a store for reading only, so that a command can read it while a server runs. `section` is its section of the
/// configuration, and `node_folder` the data folder of the node.
///
/// # Errors
/// The store does not exist or can't be read.
pub(super) fn open_read_only(
    section: &str,
    options: &Store,
    node_folder: &Path,
    runtime: &Handle,
) -> Result<ReadOnlyStore, Failure> {
    let kind = kind_of(section, options, false, runtime)?;
    let folder = match kind {
        StoreKind::Sqlite(_) => &options.path,
        _ => node_folder,
    };
    tidewire_store::open_read_only(&kind, folder)
        .map_err(|error| Failure::new(Exit::DataFolder, format!("{section}: {error}")))
}

/// Wraps the default store of a server, for example to record or disturb its requests.
pub trait StoreWrapper {
    /// Changes the options with which the store is opened.
    fn adjust(&self, kind: &mut StoreKind);

    /// Wraps the open store.
    ///
    /// # Errors
    /// The system can't provide a thread or a signal handler.
    fn wrap(&self, open: OpenStore, runtime: &Handle) -> std::io::Result<OpenStore>;
}

/// Opens the default store and logs what it promises for an acknowledged write.
///
/// # Errors
/// It can't be opened, or its password can't be read.
pub fn open_store(
    plan: &Plan,
    wrapper: Option<&dyn StoreWrapper>,
    folder: &DataFolder,
    runtime: &Handle,
) -> Result<OpenStore, Failure> {
    let mut kind = store_kind(plan, runtime)?;
    limit(&mut kind, plan);
    if let Some(wrapper) = wrapper {
        wrapper.adjust(&mut kind);
    }
    let mut open = tidewire_store::open(&kind, folder)
        .map_err(|error| Failure::new(Exit::DataFolder, error.to_string()))?;
    declare_indexes(&mut open, plan, StoreId::DEFAULT)
        .map_err(|error| Failure::new(Exit::DataFolder, error.to_string()))?;
    let open = match wrapper {
        None => open,
        Some(wrapper) => wrapper.wrap(open, runtime).map_err(|error| {
            Failure::new(Exit::Bug, format!("the store can't be wrapped: {error}"))
        })?,
    };
    note_open("store", &open.promise);
    Ok(open)
}

/// Opens a store other than the default one, in its own data folder if it needs one, else in the node's.
///
/// # Errors
/// As [`open_store`], or its folder can't be used.
pub(crate) fn open_named(
    name: &str,
    options: &Store,
    plan: &Plan,
    node_folder: &DataFolder,
    runtime: &Handle,
) -> Result<(OpenStore, Option<DataFolder>), Failure> {
    let section = join(stores::SECTION, name);
    let failure = |line: String| {
        // The texts of the store crate name the options of the default store.
        let line = line.replace("with --data", &format!("with {section}.path"));
        let line = line.replace("store.durability", &join(&section, "durability"));
        Failure::new(Exit::DataFolder, format!("{section}: {line}"))
    };
    let mut kind = kind_of(&section, options, false, runtime)?;
    limit(&mut kind, plan);
    let own = matches!(kind, StoreKind::Sqlite(_)).then(|| DataFolder::open(&options.path));
    let folder = own
        .transpose()
        .map_err(|error| failure(error.to_string()))?;
    let mut open = tidewire_store::open(&kind, folder.as_ref().unwrap_or(node_folder))
        .map_err(|error| failure(error.to_string()))?;
    let number = plan
        .config
        .stores
        .iter()
        .position(|(other, _)| other == name);
    let number = number.and_then(|index| u8::try_from(index + 1).ok());
    if let Some(number) = number {
        declare_indexes(&mut open, plan, StoreId(number))
            .map_err(|error| failure(error.to_string()))?;
    }
    note_open(&section, &open.promise);
    Ok((open, folder))
}

/// Declares to a store the indexes of the collections whose records it may have.
fn declare_indexes(open: &mut OpenStore, plan: &Plan, store: StoreId) -> Result<(), StoreError> {
    let routes = plan.config.stores.routes();
    let mut definitions = Vec::new();
    for (prefix, of) in plan.config.collections.indexes().iter() {
        let mut below = routes
            .prefixes()
            .filter(|(route, _)| route.starts_with(prefix));
        if routes.find(prefix) == store || below.any(|(_, other)| other == store) {
            definitions.extend(of.definitions.iter().cloned());
        }
    }
    open.store.set_indexes(&definitions)
}

/// Sets the quotas of a store in a data folder.
fn limit(kind: &mut StoreKind, plan: &Plan) {
    let limits = &plan.config.limits;
    let bytes = |option: OptionalBytes| option.0.map(|count| count.0);
    if let StoreKind::Sqlite(options) = kind {
        options.quota = Quota {
            store_bytes_max: bytes(limits.store_bytes_max),
            user_bytes_max: bytes(limits.user_store_bytes_max),
        };
    }
}

fn note_open(section: &str, promise: &Promise) {
    match &promise.weakness {
        None => tracing::info!(section, acknowledged = promise.text, "the store is open"),
        Some(weakness) => tracing::warn!(
            section,
            weakness,
            "the store is open, but acknowledged writes may be lost, as its durability allows"
        ),
    }
}

/// The password from the password file if one is set, else from the option.
fn password(option: &str, server: &StoreServer) -> Result<Zeroizing<String>, Failure> {
    let Some(path) = &server.password_file.0 else {
        return Ok(server.password.0.clone().into());
    };
    read(path).map_err(|error| {
        let line = format!("{option}.password_file: {}: {error}", path.display());
        Failure::new(Exit::Configuration, line)
    })
}

fn read(path: &Path) -> std::io::Result<Zeroizing<String>> {
    let text = Zeroizing::new(std::fs::read_to_string(path)?);
    Ok(text.trim_end().to_owned().into())
}

/// Starts to scrub a store, unless it is in memory or the interval is `never`.
///
/// # Errors
/// The store can't open a reader, or the system can't start a thread.
pub(super) fn start_scrub(
    options: &Store,
    store: &mut dyn OpenedStore,
    health: &ScrubHealth,
) -> Result<Option<Scrub>, Failure> {
    let (Some(interval), true) = (
        options.scrub_interval.time(),
        options.kind != StoreChoice::Memory,
    ) else {
        return Ok(None);
    };
    let failed = |error: &dyn std::fmt::Display| Failure::new(Exit::DataFolder, error.to_string());
    let reader = store.reader().map_err(|error| failed(&error))?;
    let options = ScrubOptions {
        interval,
        bytes_per_second: options.scrub_bytes_per_second.0,
    };
    let scrub = Scrub::start(reader, options, health.clone()).map_err(|error| failed(&error))?;
    Ok(Some(scrub))
}

/// Makes `/ready` and the metrics report the findings of scrubs.
pub(super) fn watch_scrub(status: &Status, metrics: &Metrics, health: &ScrubHealth) {
    let help = "Stored records that the scrub has compared with their checksums";
    metrics.register_counter("store_scrubbed_records", help, &health.records);
    let help = "Times that the scrub has reached the end of a store";
    metrics.register_counter("store_scrub_passes", help, &health.passes);
    let help = "Stored records in which the scrub has found a checksum mismatch";
    metrics.register_gauge("store_damaged_records", help, &health.damaged);
    let damaged = health.damaged.clone();
    status.watch_damage(Box::new(move || {
        let count = damaged.get();
        let text = format!(
            "{count} stored records do not pass their checksums and are not served; restore them from a backup"
        );
        let code = "damaged_records";
        (count > 0).then_some(Reason { code, text })
    }));
}

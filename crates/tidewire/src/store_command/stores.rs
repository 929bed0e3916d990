//! The stores of a command.

use tidewire_config::plan::Plan;
use tidewire_core::route::StoreRoutes;
use tidewire_store::folder::DataFolder;
use tidewire_store::remote::OpenStore;
use tidewire_store::transfer::import::ImportError;
use tidewire_store::transfer::importer::Importer;
use tidewire_store::transfer::moving::{MoveError, Moved, move_strays};
use tokio::runtime::Handle;

use tidewire_server::exit::Failure;
use tidewire_server::node::{NamedOpen, open_all};

use super::data;

/// All stores of a configuration, open for exclusive use by this command.
pub(super) struct OpenStores {
    stores: Vec<OpenStore>,
    routes: StoreRoutes,
    /// Locks of the data folders, held until the stores are closed.
    _folders: Vec<DataFolder>,
}

impl OpenStores {
    /// Opens the stores.
    pub(super) fn open(plan: &Plan, runtime: &Handle) -> Result<Self, Failure> {
        let folder = DataFolder::open(&plan.config.store.path).map_err(|error| data(&error))?;
        let named = open_all(plan, None, &folder, runtime)?;
        let mut folders = vec![folder];
        let mut stores = Vec::with_capacity(named.len());
        for NamedOpen { open, folder, .. } in named {
            stores.push(open);
            folders.extend(folder);
        }
        Ok(Self {
            stores,
            routes: plan.config.stores.routes(),
            _folders: folders,
        })
    }

    /// An importer that writes each record into the store to which its name belongs.
    pub(super) fn importer(&mut self, replaces: bool) -> Result<Importer<'_>, ImportError> {
        let stores = self.stores.iter_mut();
        let stores = stores.map(|open| (&mut *open.store as _, open.opened));
        Importer::new(stores, self.routes.clone(), replaces)
    }

    /// Moves each record that is in another store than the one to which its name belongs.
    pub(super) fn move_strays(&mut self) -> Result<Moved, MoveError> {
        move_strays(&mut self.stores, &self.routes)
    }

    /// Closes all stores, even if closing one of them fails.
    pub(super) fn close(mut self) -> Result<(), Failure> {
        let closed = self.stores.iter_mut().map(|open| open.store.close());
        let closed: Vec<_> = closed.collect();
        let first = closed.into_iter().find_map(Result::err);
        first.map_or(Ok(()), |error| Err(data(&error)))
    }
}

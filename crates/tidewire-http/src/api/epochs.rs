//! The epochs in entity tags and stream ids. The epoch of a record is derived from the store that keeps it.
//!
//! Incarnations are unique only within one store, so a tag must also distinguish stores. A record may be deleted, and created
//! again after its prefix was moved to another store. There it may get the same incarnation as before.

use std::hash::{DefaultHasher, Hash, Hasher};

use tidewire_core::address::Epoch;
use tidewire_core::route::StoreRoutes;

/// The epoch of each store. See the comment at the top of this file.
#[derive(Debug)]
pub struct RecordEpochs {
    routes: StoreRoutes,
    /// Epochs by store number.
    epochs: Vec<u64>,
}

impl RecordEpochs {
    /// Makes the epochs of the given stores, in order of their numbers, beginning with the default store. The default store's
    /// epoch is used unchanged; the epochs of other stores are hashed with their names.
    pub fn new<'a>(
        routes: StoreRoutes,
        stores: impl IntoIterator<Item = (&'a str, Epoch)>,
    ) -> Self {
        let epoch = |(number, (name, epoch)): (usize, (&str, Epoch))| match number {
            0 => epoch.0,
            _ => hash(&(name, epoch.0)),
        };
        let epochs = stores.into_iter().enumerate().map(epoch).collect();
        Self { routes, epochs }
    }

    /// The epoch of a record's states. Tags with different epochs never match.
    pub(super) fn of(&self, name: &str) -> u64 {
        self.epochs[self.routes.find(name).index()]
    }

    /// The epoch of the states of several records, in this order. It is the common epoch if all records have the same one.
    pub(super) fn of_all(&self, names: &[String]) -> u64 {
        let epochs: Vec<u64> = names.iter().map(|name| self.of(name)).collect();
        match epochs.split_first() {
            None => self.of(""),
            Some((first, others)) if others.iter().all(|epoch| epoch == first) => *first,
            Some(_) => hash(&epochs),
        }
    }
}

/// A hash that is the same in each process of this version of the server. In another version tags may change, which costs
/// clients one read.
fn hash(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use tidewire_core::route::StoreId;

    use super::*;

    fn epochs(default: u64, logs: u64, prefix: &str) -> RecordEpochs {
        let routes = StoreRoutes::new([(prefix, StoreId(1))]);
        RecordEpochs::new(routes, [("default", Epoch(default)), ("logs", Epoch(logs))])
    }

    #[test]
    fn a_record_has_the_epoch_of_its_store_and_no_other_store_has_it() {
        let both = epochs(7, 7, "logs/");
        assert_eq!(both.of("a"), 7);
        assert_ne!(both.of("logs/a"), 7);
        for (other, is_kept, is_kept_in_logs) in [
            (epochs(7, 7, "logs/"), true, true),
            (epochs(8, 7, "logs/"), false, true),
            (epochs(7, 8, "logs/"), true, false),
            (epochs(8, 6, "logs/"), false, false),
            (epochs(7, 7, "else/"), true, false),
        ] {
            assert_eq!(other.of("a") == both.of("a"), is_kept, "{other:?}");
            let is_same = other.of("logs/a") == both.of("logs/a");
            assert_eq!(is_same, is_kept_in_logs, "{other:?}");
        }
    }

    #[test]
    fn several_records_have_the_epochs_of_all_their_stores() {
        let names = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| (*name).to_owned()).collect()
        };
        let both = epochs(7, 7, "logs/");
        assert_eq!(both.of_all(&[]), 7);
        assert_eq!(both.of_all(&names(&["a", "b"])), 7);
        let logs = both.of("logs/a");
        assert_eq!(both.of_all(&names(&["logs/a", "logs/b"])), logs);
        let mixed = names(&["a", "logs/a"]);
        assert!(![7, logs].contains(&both.of_all(&mixed)));
        for other in [
            epochs(8, 7, "logs/"),
            epochs(7, 8, "logs/"),
            epochs(8, 6, "logs/"),
            epochs(7, 7, "a"),
        ] {
            assert_ne!(other.of_all(&mixed), both.of_all(&mixed), "{other:?}");
        }
    }
}

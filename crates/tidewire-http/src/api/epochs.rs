//! The epochs in entity tags and stream ids. The epoch of a record is derived from the store that keeps it, and in a cluster from the slot of
//! its name: if the owner of a slot is lost, versions that it has shown may be used again.
//!
//! Incarnations are unique only within one store, so a tag must also distinguish stores. A record may be deleted, and created
//! again after its prefix was moved to another store. There it may get the same incarnation as before.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{PoisonError, RwLock};

use tidewire_core::address::Epoch;
use tidewire_core::route::{StoreId, StoreRoutes};
use tidewire_core::slot::{ClusterKey, TagRules};
use tidewire_core::view::{SlotEpochs, StoredView};

/// The epoch of each store. See the comment at the top of this file.
#[derive(Debug)]
pub struct RecordEpochs {
    routes: StoreRoutes,
    tags: TagRules,
    /// By store number.
    stores: Vec<StoreEpochs>,
}

/// The epochs of a store.
#[derive(Debug)]
struct StoreEpochs {
    /// Its name; `None` for the default store.
    name: Option<Box<str>>,
    slots: RwLock<(SlotEpochs, Option<ClusterKey>)>,
}

impl StoreEpochs {
    /// The epoch of the records with a tag.
    fn of(&self, tag: &str) -> u64 {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        let epoch = match &*slots {
            (epochs, Some(key)) if !epochs.raised.is_empty() => epochs.of(key.slot(tag)),
            (epochs, _) => epochs.epoch,
        };
        match &self.name {
            None => epoch.0,
            Some(name) => hash(&(&**name, epoch.0)),
        }
    }
}

impl RecordEpochs {
    /// Makes the epochs of the given stores, in order of their numbers, beginning with the default store. The default store's
    /// epochs are used unchanged; the epochs of other stores are hashed with their names.
    pub fn new<'a>(
        routes: StoreRoutes,
        tags: TagRules,
        stores: impl IntoIterator<Item = (&'a str, Epoch)>,
    ) -> Self {
        let epochs = |(number, (name, epoch)): (usize, (&str, Epoch))| StoreEpochs {
            name: (number > 0).then(|| name.into()),
            slots: RwLock::new((SlotEpochs::all(epoch), None)),
        };
        let stores = stores.into_iter().enumerate().map(epochs).collect();
        Self {
            routes,
            tags,
            stores,
        }
    }

    /// Takes over the epochs of a store from its new view. Afterwards, tags of the earlier epochs of its raised slots never match.
    pub fn adopt(&self, store: StoreId, view: &StoredView) {
        if let Some(store) = self.stores.get(store.index()) {
            let mut slots = store.slots.write().unwrap_or_else(PoisonError::into_inner);
            *slots = (view.epochs.clone(), view.key);
        }
    }

    /// The epoch of a record's states. Tags with different epochs never match.
    pub(super) fn of(&self, name: &str) -> u64 {
        self.stores[self.routes.find(name).index()].of(self.tags.tag(name))
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
    use super::*;

    fn epochs(default: u64, logs: u64, prefix: &str) -> RecordEpochs {
        let routes = StoreRoutes::new([(prefix, StoreId(1))]);
        let tags = TagRules::new(["orders"]);
        RecordEpochs::new(
            routes,
            tags,
            [("default", Epoch(default)), ("logs", Epoch(logs))],
        )
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

    #[test]
    fn a_lost_owner_changes_the_tags_of_its_slots_only() {
        let (before, after) = (epochs(7, 7, "logs/"), epochs(7, 7, "logs/"));
        let key = ClusterKey([3; 16]);
        let lost = key.slot("orders/1");
        let mut view = StoredView::empty();
        view.key = Some(key);
        view.epochs = SlotEpochs::all(Epoch(7));
        after.adopt(StoreId::DEFAULT, &view);
        let names: Vec<String> = (0..40_000).map(|number| format!("a/{number}")).collect();
        assert!(names.iter().all(|name| after.of(name) == before.of(name)));
        view.epochs.raise(&[lost], Epoch(8));
        after.adopt(StoreId::DEFAULT, &view);
        assert!(
            names.iter().any(|name| key.slot(name) == lost),
            "one has the slot"
        );
        for name in &names {
            let is_lost = key.slot(name) == lost;
            assert_eq!(after.of(name), if is_lost { 8 } else { 7 }, "{name}");
        }
        // All names with one tag have one slot.
        assert_eq!([after.of("orders/1"), after.of("orders/1/items/2")], [8, 8]);
        // The other store has other views.
        assert_eq!(after.of("logs/a"), before.of("logs/a"));
        after.adopt(StoreId(1), &view);
        let logs = (0..40_000).map(|number| format!("logs/{number}"));
        let changed = logs
            .filter(|name| after.of(name) != before.of(name))
            .count();
        assert!((1..50).contains(&changed), "{changed}");
        let mixed = ["orders/1".to_owned(), names[0].clone()];
        assert_ne!(after.of_all(&mixed), before.of_all(&mixed));
    }
}

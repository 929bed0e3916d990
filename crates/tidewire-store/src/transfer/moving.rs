//! Moves records to the stores to which their names route, after the prefixes have changed. A move can be repeated, even after an
//! error: a record is deleted in its old store only when the new store has it.

use std::collections::BTreeMap;
use std::fmt;

use tidewire_core::route::{StoreId, StoreRoutes};
use tidewire_core::store::{Expected, Loaded, StoreChange, StoreError, StoreWrite, StoredRecord};
use tidewire_core::text::Name;

use super::import::ExportedRecord;
use super::importer::{Intake, commit_alone};
use crate::check::Corrupt;
use crate::remote::OpenStore;
use crate::stray;
use crate::walk::Walk;

/// The result of a move.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Records that were moved.
    pub moved_count: u64,
    /// Records that do not pass their checksum. They stay in the old store.
    pub corrupt: Corrupt,
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            moved_count,
            corrupt,
        } = self;
        write!(
            f,
            "{moved_count} records moved, {} corrupt{corrupt}",
            corrupt.count
        )
    }
}

/// Why a move failed.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// Two stores have different records with one name.
    #[error(
        "{name:?} is in two stores with different values, and only one of them can stay; export both stores, and delete the record in one of them"
    )]
    Twice {
        /// The name.
        name: Name,
    },
    /// A store has failed.
    #[error("a store failed: {0}; repeat the move when the store works again")]
    Store(#[from] StoreError),
}

/// Reads all stores and moves each record that belongs in another store.
///
/// # Errors
/// A store fails, or two stores have different records with one name. Records that were moved before stay moved.
pub fn move_strays(stores: &mut [OpenStore], routes: &StoreRoutes) -> Result<Moved, MoveError> {
    let mut moved = Moved::default();
    for from in 0..stores.len() {
        // A node has at most as many stores as fit into the number.
        let number = StoreId(u8::try_from(from).unwrap_or(u8::MAX));
        let mut reader = stores[from].store.reader()?;
        for range in stray::ranges(number, routes) {
            let mut walk = Walk::below(range);
            loop {
                let mut strays: BTreeMap<StoreId, Vec<(Name, StoredRecord)>> = BTreeMap::new();
                let page = walk.next_page(&mut *reader, &mut |name, loaded| {
                    let target = routes.find(name);
                    match loaded {
                        _ if target == number => {}
                        Loaded::Found(record) => {
                            strays
                                .entry(target)
                                .or_default()
                                .push((name.clone(), record));
                        }
                        Loaded::Missing => {}
                        Loaded::Corrupt => moved.corrupt.add(name.clone()),
                    }
                })?;
                for (target, records) in strays {
                    let count = records.len() as u64;
                    copy(&mut stores[target.index()], &records)?;
                    remove(&mut stores[from], records)?;
                    moved.moved_count += count;
                }
                if !page.has_more {
                    break;
                }
            }
        }
    }
    Ok(moved)
}

fn copy(to: &mut OpenStore, records: &[(Name, StoredRecord)]) -> Result<(), MoveError> {
    let names: Vec<Name> = records.iter().map(|(name, _)| name.clone()).collect();
    let found = to.store.reader()?.load(&names)?;
    for ((name, record), found) in records.iter().zip(found) {
        let is_same = match found {
            Loaded::Missing => true,
            Loaded::Found(there) => (there.version, &there.data) == (record.version, &record.data),
            Loaded::Corrupt => false,
        };
        if !is_same {
            return Err(MoveError::Twice { name: name.clone() });
        }
    }
    let mut intake = Intake::new(&mut *to.store, to.opened, false)?;
    for (name, record) in records {
        intake.add(ExportedRecord {
            name: name.clone(),
            version: record.version,
            data: record.data.clone(),
        })?;
    }
    Ok(intake.commit()?)
}

fn remove(from: &mut OpenStore, records: Vec<(Name, StoredRecord)>) -> Result<(), StoreError> {
    let delete = |(name, record): (Name, StoredRecord)| StoreWrite {
        writer: None,
        name,
        expected: Expected::of(&record),
        change: StoreChange::Delete,
    };
    let writes: Vec<StoreWrite> = records.into_iter().map(delete).collect();
    commit_alone(&mut *from.store, from.opened, &writes)
}

#[cfg(test)]
mod tests {
    use tidewire_core::store::{Incarnation, Version};
    use tidewire_core::text::Payload;

    use super::*;
    use crate::memory::MemoryDisk;
    use crate::remote::Promise;

    fn record(version: u32) -> StoredRecord {
        StoredRecord {
            incarnation: Incarnation(7),
            version: Version(version),
            data: Payload::from_checked(&format!("[{version}]")),
            write_keys: None,
        }
    }

    /// A store with these records.
    fn store(disk: &MemoryDisk, records: &[(&str, u32)]) -> OpenStore {
        let (store, opened) = disk.open(None);
        let mut open = OpenStore {
            store: Box::new(store),
            opened,
            promise: Promise::synced("a test"),
        };
        let put = |(name, version): &(&str, u32)| StoreWrite {
            writer: None,
            name: Name::from(*name),
            expected: Expected::Missing,
            change: StoreChange::Put(record(*version)),
        };
        let writes: Vec<StoreWrite> = records.iter().map(put).collect();
        open.store
            .commit(opened.view(), opened.member(), &writes)
            .expect("room");
        open
    }

    /// Names and versions of all records.
    fn kept(open: &mut OpenStore) -> Vec<(String, u32)> {
        let mut kept = Vec::new();
        let mut reader = open.store.reader().expect("a reader");
        let mut visit = |name: Name, loaded| match loaded {
            Loaded::Found(found) => {
                assert_eq!(found.data, record(found.version.0).data);
                kept.push((name.to_string(), found.version.0));
            }
            other => panic!("{name} is {other:?}"),
        };
        let more = reader.scan("", None, 10_000, &mut visit).expect("read");
        assert!(!more);
        kept
    }

    fn routes() -> StoreRoutes {
        StoreRoutes::new([("b/", StoreId(1)), ("b/c/", StoreId(2))])
    }

    #[test]
    fn every_record_moves_to_its_store_and_stays_there() {
        let disks: [MemoryDisk; 3] = Default::default();
        let many: Vec<String> = (0..700).map(|n| format!("b/{n:03}")).collect();
        let mut first: Vec<(&str, u32)> = many.iter().map(|name| (name.as_str(), 3)).collect();
        first.extend([("a", 1), ("b/c/x", 9), ("c", 1)]);
        let mut stores = vec![
            store(&disks[0], &first),
            store(&disks[1], &[("b/c/y", 2), ("z", 4), ("b/own", 5)]),
            store(&disks[2], &[("b/d", 6)]),
        ];
        let moved = move_strays(&mut stores, &routes()).expect("all can be moved");
        assert_eq!(moved.moved_count, 700 + 1 + 2 + 1);
        let names = |pairs: &[(&str, u32)]| -> Vec<(String, u32)> {
            pairs
                .iter()
                .map(|(name, version)| ((*name).to_owned(), *version))
                .collect()
        };
        assert_eq!(kept(&mut stores[0]), names(&[("a", 1), ("c", 1), ("z", 4)]));
        assert_eq!(kept(&mut stores[1]).len(), 700 + 2);
        assert_eq!(kept(&mut stores[2]), names(&[("b/c/x", 9), ("b/c/y", 2)]));
        for (number, open) in (0..).map(StoreId).zip(&mut stores) {
            let mut reader = open.store.reader().expect("a reader");
            let stray = stray::find(&mut *reader, number, &routes()).expect("read");
            assert_eq!(stray, None);
        }
        let again = move_strays(&mut stores, &routes()).expect("nothing is left");
        assert_eq!(again, Moved::default());
    }

    #[test]
    fn a_move_goes_on_where_another_one_ended_and_overwrites_nothing() {
        let disks: [MemoryDisk; 2] = Default::default();
        // An earlier move has copied "b/a" and not removed it yet.
        let mut stores = vec![
            store(&disks[0], &[("b/a", 3), ("b/b", 4)]),
            store(&disks[1], &[("b/a", 3)]),
        ];
        let routes = StoreRoutes::new([("b/", StoreId(1))]);
        let moved = move_strays(&mut stores, &routes).expect("they are the same");
        assert_eq!(moved.moved_count, 2);
        assert_eq!(kept(&mut stores[0]), []);
        let mut stores = vec![
            store(&MemoryDisk::default(), &[("b/a", 4)]),
            stores.remove(1),
        ];
        let refused = move_strays(&mut stores, &routes).expect_err("they differ");
        assert!(
            refused.to_string().contains("\"b/a\" is in two stores"),
            "{refused}"
        );
        assert_eq!(kept(&mut stores[0]).len(), 1);
        assert_eq!(kept(&mut stores[1])[0], ("b/a".to_owned(), 3));
    }
}

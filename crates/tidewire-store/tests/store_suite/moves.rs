//! Exports and imports between stores of any kinds.

use tempfile::TempDir;
use tidewire_core::json::JsonLimits;
use tidewire_core::route::StoreRoutes;
use tidewire_core::store::{Loaded, Store, StoreReader, Version};
use tidewire_core::text::Name;
use tidewire_store::StoreKind;
use tidewire_store::folder::DataFolder;
use tidewire_store::transfer::export::export;
use tidewire_store::transfer::import::{Imported, Limits, import, verify};
use tidewire_store::transfer::importer::Importer;

use crate::store_suite::{Open, put, record};

/// The name of a kind of store, and a function that creates an empty one.
pub type StoreCase<'a> = (&'a str, &'a dyn Fn() -> StoreKind);

/// Records in each store: more than two pages and more than two batches.
const COUNT: u32 = 1_200;

const LIMITS: Limits = Limits {
    name_bytes_max: 1024,
    json: JsonLimits {
        array_gap_max: usize::MAX,
        nesting_max: 64,
        bytes_max: 1 << 20,
    },
};

/// An open store, with the folder that it needs.
struct Location {
    store: Open,
    kind: StoreKind,
    path: TempDir,
    _folder: DataFolder,
}

impl Location {
    fn new(kind: StoreKind) -> Self {
        let path = tempfile::tempdir().expect("a temporary folder");
        let folder = DataFolder::open(path.path()).expect("an empty folder opens");
        let open = tidewire_store::open(&kind, &folder).expect("the store opens");
        Self {
            store: Open::new((open.store, open.opened)),
            kind,
            path,
            _folder: folder,
        }
    }

    /// A reader of another process, which works while the store is open. The memory store has only its own reader.
    fn reader(&mut self) -> Box<dyn StoreReader> {
        match self.kind {
            StoreKind::Memory { .. } => self.store.reader().expect("a reader"),
            _ => {
                let read_only = tidewire_store::open_read_only(&self.kind, self.path.path());
                read_only.expect("it can be read while it is open").reader
            }
        }
    }

    fn contents(&mut self) -> Vec<(Name, Version, String)> {
        let mut all = Vec::new();
        let visit = &mut |name, loaded| {
            let Loaded::Found(record) = loaded else {
                panic!("{name:?} is {loaded:?}")
            };
            all.push((name, record.version, record.data.as_str().to_owned()));
        };
        let mut reader = self.store.reader().expect("a reader");
        let more = reader.scan("", None, 1_000_000, visit).expect("scans");
        assert!(!more);
        all
    }
}

/// Fills a store of each kind, and imports its records into an empty store of each kind.
pub fn between_all(kinds: &[StoreCase<'_>]) {
    let mut sources = Vec::new();
    for (from, kind) in kinds {
        let mut source = Location::new(kind());
        let unusual = [format!("{from}/\0\"\\"), format!("{from}/\u{10ffff}é")];
        let names = (0..COUNT).map(|i| format!("{from}/{i}")).chain(unusual);
        let writes: Vec<_> = names
            .map(|name| put(&name, record(3, "{\"a\":[1e400,\"\\ud800\"]}")))
            .collect();
        source.store.commit(&writes).expect("committed");
        let mut lines = Vec::new();
        let mut reader = source.reader();
        let readers = [&mut *reader as &mut dyn StoreReader];
        let exported = export(readers, &mut lines).expect("exported");
        let all = source.contents();
        assert_eq!(exported.record_count, all.len() as u64, "{from}");
        assert_eq!(
            verify(&*lines, LIMITS).expect("complete"),
            exported.record_count
        );
        // The export has not changed the owner of the store.
        let after = [put("after", record(1, "[]"))];
        source.store.commit(&after).expect("still the owner");
        sources.push((*from, all, lines));
    }
    for (to, kind) in kinds {
        let mut target = Location::new(kind());
        let mut expected = Vec::new();
        for (from, all, lines) in &sources {
            let opened = target.store.opened;
            let mut bring = || {
                let stores: [(&mut dyn Store, _); 1] = [(&mut *target.store, opened)];
                let importer = Importer::new(stores, StoreRoutes::default(), false)?;
                import(&**lines, LIMITS, importer)
            };
            let count = all.len() as u64;
            let added = Imported {
                added_count: count,
                ..Imported::default()
            };
            let unchanged = Imported {
                unchanged_count: count,
                ..Imported::default()
            };
            assert_eq!(bring().expect("imported"), added, "{from} to {to}");
            assert_eq!(bring().expect("imported"), unchanged, "{from} to {to}");
            expected.extend(all.iter().cloned());
        }
        expected.sort();
        assert_eq!(target.contents(), expected, "into {to}");
    }
}

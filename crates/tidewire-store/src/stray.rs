//! Finds records in a store to which their names no longer route, for example after a change of the prefixes. The server would never
//! read them there.

use tidewire_core::route::{StoreId, StoreRoutes};
use tidewire_core::store::{Loaded, StoreError, StoreReader};
use tidewire_core::text::Name;

use super::range::prefix_end;

/// Finds a record of `store` that belongs in another store. It reads a few names for each prefix, however many records there are.
///
/// # Errors
/// The store can't be read now.
pub fn find(
    reader: &mut dyn StoreReader,
    store: StoreId,
    routes: &StoreRoutes,
) -> Result<Option<Name>, StoreError> {
    for range in ranges(store, routes) {
        let mut from = Begin::Start;
        while let Some(name) = next(reader, range, from)? {
            match routes.prefix_of(&name) {
                // Skips all names with this prefix. A longer prefix among them that routes to another store has its own range.
                Some((own, to)) if to == store => match prefix_end(own) {
                    Some(end) if end.starts_with(range) => from = Begin::At(end.as_str().into()),
                    _ => break,
                },
                _ => return Ok(Some(name)),
            }
        }
    }
    Ok(None)
}

/// The prefixes below which a store may hold records of other stores.
pub(super) fn ranges(store: StoreId, routes: &StoreRoutes) -> impl Iterator<Item = &str> {
    let others = routes.prefixes().filter(move |(_, to)| *to != store);
    // Only the default store may hold names without a prefix.
    let all = (store != StoreId::DEFAULT).then_some("");
    others.map(|(prefix, _)| prefix).chain(all)
}

/// Where a search continues.
enum Begin {
    Start,
    At(Name),
    After(Name),
}

/// The first sound record with a prefix. A corrupt record can't be read in any store, so it does not matter where it is.
fn next(
    reader: &mut dyn StoreReader,
    prefix: &str,
    mut from: Begin,
) -> Result<Option<Name>, StoreError> {
    loop {
        let after = match from {
            Begin::Start => None,
            Begin::After(name) => Some(name),
            Begin::At(name) => match reader.load(std::slice::from_ref(&name))?[..] {
                [Loaded::Found(_)] => return Ok(Some(name)),
                _ => Some(name),
            },
        };
        let mut found = None;
        reader.scan(prefix, after.as_ref(), 1, &mut |name, loaded| {
            found = Some((name, loaded));
        })?;
        match found {
            Some((name, Loaded::Found(_))) => return Ok(Some(name)),
            Some((name, _)) => from = Begin::After(name),
            None => return Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use tidewire_core::store::{
        Expected, Incarnation, Store, StoreChange, StoreWrite, StoredRecord, Version,
    };
    use tidewire_core::text::Payload;

    use super::*;
    use crate::memory::MemoryDisk;

    #[test]
    fn records_of_another_store_are_found() {
        let routes = StoreRoutes::new([
            ("a/", StoreId(1)),
            ("a/b/", StoreId(2)),
            ("a/b/c/", StoreId(1)),
            ("z\u{10ffff}", StoreId(1)),
        ]);
        let check = |store: u8, names: &[&str], expected: Option<&str>| {
            let (mut disk, opened) = MemoryDisk::default().open(None);
            let put = |name: &&str| StoreWrite {
                writer: None,
                name: Name::from(*name),
                expected: Expected::Missing,
                change: StoreChange::Put(StoredRecord {
                    incarnation: Incarnation(1),
                    version: Version(1),
                    data: Payload::from_checked("{}"),
                    write_keys: None,
                }),
            };
            let writes: Vec<StoreWrite> = names.iter().map(put).collect();
            disk.commit(opened.view(), opened.member(), &writes)
                .expect("room for it");
            let mut reader = disk.reader().expect("a reader");
            let found = find(&mut *reader, StoreId(store), &routes).expect("a store");
            assert_eq!(found.as_deref(), expected, "{store} with {names:?}");
        };
        check(0, &[], None);
        check(0, &["\u{1}u", "a", "a0", "b", "z"], None);
        check(0, &["a", "a/x", "b"], Some("a/x"));
        check(0, &["a/b/c/x"], Some("a/b/c/x"));
        check(1, &["a/", "a/x", "a/y", "a/b/c/x", "z\u{10ffff}x"], None);
        check(1, &["a/b/c/x", "a/b/x"], Some("a/b/x"));
        // The smallest text after a prefix is a valid name, too.
        check(1, &["a/x", "a0"], Some("a0"));
        check(1, &["a/b/c/x", "a/b/c0"], Some("a/b/c0"));
        check(1, &["a/x", "b"], Some("b"));
        check(1, &["\u{1}u"], Some("\u{1}u"));
        check(2, &["a/b/x", "a/b/y"], None);
        check(2, &["a/b/c/x"], Some("a/b/c/x"));
        check(2, &["a/b/x", "a/x"], Some("a/x"));
    }
}

//! Routes of record names to stores by prefix, and the checks of these prefixes.

use std::collections::BTreeMap;

use tidewire_core::route::{StoreId, StoreRoutes};
use tidewire_core::text::RESERVED;

use super::collections;
use super::layer::{Loaded, Problem};
use super::section::{Config, StoreKind};
use super::stores::{self, NamedStores};
use super::value::Scalar as _;

impl NamedStores {
    /// All prefixes with the numbers of their stores. The default store is number 0, the others follow in the order of their names.
    fn prefixes(&self) -> impl Iterator<Item = (&str, StoreId)> {
        let numbered = (1..).map(StoreId).zip(self.iter());
        numbered.flat_map(|(id, (_, named))| {
            let prefixes = named.prefixes.iter();
            prefixes.map(move |prefix| (prefix.as_str(), id))
        })
    }

    /// The routes in the engine's form.
    #[must_use]
    pub fn routes(&self) -> StoreRoutes {
        StoreRoutes::new(self.prefixes())
    }
}

/// Problems with the prefixes of named stores, each with its place.
pub(super) fn problems(loaded: &Loaded) -> Vec<Problem> {
    let config = &loaded.config;
    let mut problems = Vec::new();
    let mut taken: BTreeMap<&str, (String, usize)> = BTreeMap::new();
    for (name, named) in config.stores.iter() {
        let option = stores::option(name, "prefixes");
        let origin_of =
            |index: usize| format!("{option} ({})", loaded.entry_origin(&option, index));
        if named.prefixes.is_empty() {
            let reason = "a store without prefixes keeps no records; set at least one, as [logs/]";
            let origin = format!("{option} ({})", loaded.origin(&option));
            problems.push(Problem::new(origin, reason));
        }
        for (index, prefix) in named.prefixes.iter().enumerate() {
            if let Some(reason) = prefix_problem(config, prefix) {
                problems.push(Problem::new(origin_of(index), reason));
            } else if let Some((other, at)) = taken.get(prefix.as_str()) {
                let first = loaded.entry_origin(other, *at);
                let reason =
                    format!("{prefix:?} is already in {other} ({first}); remove one of the two");
                problems.push(Problem::new(origin_of(index), reason));
            } else if let Some(outer) = needless(config, prefix) {
                let reason = format!(
                    "{prefix:?} begins with {outer:?}, which leads to the same store; remove it"
                );
                problems.push(Problem::new(origin_of(index), reason));
            }
            taken.entry(prefix).or_insert((option.clone(), index));
        }
    }
    problems.extend(doubles(loaded));
    problems.extend(index_problems(loaded));
    problems
}

/// Problems with the indexes of collections: each store that may have records of the collection must keep them.
fn index_problems(loaded: &Loaded) -> Vec<Problem> {
    let config = &loaded.config;
    let mut problems = Vec::new();
    for (collection, problem) in config.collections.with_indexes() {
        let option = collections::indexes_option(collection);
        let origin = format!("{option} ({})", loaded.origin(&option));
        if let Some(reason) = problem.or_else(|| unstored(config, collection)) {
            problems.push(Problem::new(origin, reason));
        }
    }
    problems
}

/// Why no store keeps the indexes of a collection.
fn unstored(config: &Config, collection: &str) -> Option<String> {
    let prefix = format!("{collection}/");
    let memory_only = &config.record.memory_only_prefixes;
    if let Some(outer) = memory_only
        .iter()
        .find(|outer| prefix.starts_with(outer.as_str()))
    {
        return Some(format!(
            "the records are never stored, because record.memory_only_prefixes has {outer:?}; remove one of the two"
        ));
    }
    let routes = config.stores.routes();
    let below = routes
        .prefixes()
        .filter(|(route, _)| route.starts_with(&prefix));
    let numbers: Vec<StoreId> = below
        .map(|(_, store)| store)
        .chain([routes.find(&prefix)])
        .collect();
    let named = config
        .stores
        .iter()
        .map(|(name, named)| (stores::option(name, "kind"), &named.store));
    let all = std::iter::once(("store.kind".to_owned(), &config.store)).chain(named);
    let (option, store) = (0..)
        .map(StoreId)
        .zip(all)
        .find(|(id, (_, store))| numbers.contains(id) && !keeps_indexes(store.kind))?
        .1;
    Some(format!(
        "the records are in a store with {option} {}, which keeps no indexes; use sqlite, postgres or redis, or remove the indexes",
        store.kind.format()
    ))
}

fn keeps_indexes(kind: StoreKind) -> bool {
    matches!(
        kind,
        StoreKind::Sqlite | StoreKind::Postgres | StoreKind::Redis
    )
}

fn prefix_problem(config: &Config, prefix: &str) -> Option<String> {
    if prefix.is_empty() {
        return Some(
            "an empty prefix matches every name; remove it, because `store` already keeps the records that no prefix matches"
                .into(),
        );
    }
    if prefix.starts_with(RESERVED) {
        return Some(
            "names that begin with U+0001 belong to the server, which keeps them in `store`; choose another prefix".into(),
        );
    }
    let memory_only = &config.record.memory_only_prefixes;
    let outer = memory_only
        .iter()
        .find(|outer| prefix.starts_with(outer.as_str()))?;
    Some(format!(
        "{prefix:?} is never stored, because record.memory_only_prefixes has {outer:?}; remove one of the two"
    ))
}

/// The longest other prefix that `prefix` begins with, if it leads to the same store. Then `prefix` has no effect.
fn needless<'a>(config: &'a Config, prefix: &str) -> Option<&'a str> {
    let all: Vec<(&str, StoreId)> = config.stores.prefixes().collect();
    let own = all.iter().find(|(other, _)| *other == prefix)?.1;
    let outer = all
        .into_iter()
        .filter(|(other, _)| prefix.starts_with(other) && *other != prefix)
        .max_by_key(|(other, _)| other.len())?;
    (outer.1 == own).then_some(outer.0)
}

/// Problems with stores that would be in the same place: the store that opens second would take the data away from the first.
fn doubles(loaded: &Loaded) -> Vec<Problem> {
    let config = &loaded.config;
    let first = ("store".to_owned(), &config.store);
    let named = config
        .stores
        .iter()
        .map(|(name, named)| (format!("{}.{name}", stores::SECTION), &named.store));
    let mut seen: BTreeMap<(&str, String), String> = BTreeMap::new();
    let mut problems = Vec::new();
    for (section, store) in std::iter::once(first).chain(named) {
        let (key, address) = match store.kind {
            StoreKind::Memory => continue,
            StoreKind::Sqlite => ("path", store.path.to_string_lossy().into_owned()),
            StoreKind::Mongodb => ("mongodb.url", store.mongodb.url.clone()),
            StoreKind::Postgres => ("postgres.url", store.postgres.url.clone()),
            StoreKind::Redis => ("redis.url", store.redis.url.clone()),
        };
        // `plan` refuses a missing option.
        if address.is_empty() {
            continue;
        }
        let option = format!("{section}.{key}");
        if let Some(other) = seen.get(&(key, address.clone())) {
            let origin = format!("{option} ({})", loaded.origin(&option));
            let reason = format!("{other} is in the same place; choose another one for this store");
            problems.push(Problem::new(origin, reason));
        }
        seen.entry((key, address)).or_insert(section);
    }
    problems
}

//! Which names lead to which store, and what is refused about it.

use std::collections::BTreeMap;

use tidewire_core::route::{StoreId, StoreRoutes};
use tidewire_core::text::RESERVED;

use super::layer::{Loaded, Problem};
use super::section::{Config, StoreKind};
use super::stores::{self, NamedStores};

impl NamedStores {
    /// All prefixes with the numbers of their stores. The default store is number 0, the others follow in the order of their names.
    fn prefixes(&self) -> impl Iterator<Item = (&str, StoreId)> {
        let numbered = (1..).map(StoreId).zip(self.iter());
        numbered.flat_map(|(id, (_, named))| {
            let prefixes = named.prefixes.iter();
            prefixes.map(move |prefix| (prefix.as_str(), id))
        })
    }

    /// As the engine takes them.
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
        let place = |index: usize| format!("{option} ({})", loaded.entry_origin(&option, index));
        if named.prefixes.is_empty() {
            let reason = "a store without prefixes keeps nothing; give at least one, as [logs/]";
            let origin = format!("{option} ({})", loaded.origin(&option));
            problems.push(Problem::new(origin, reason));
        }
        for (index, prefix) in named.prefixes.iter().enumerate() {
            if let Some(reason) = prefix_problem(config, prefix) {
                problems.push(Problem::new(place(index), reason));
            } else if let Some((other, at)) = taken.get(prefix.as_str()) {
                let first = loaded.entry_origin(other, *at);
                let reason = format!("{prefix:?} stands in {other} already ({first})");
                problems.push(Problem::new(place(index), reason));
            } else if let Some(outer) = needless(config, prefix) {
                let reason = format!(
                    "{prefix:?} is a part of {outer:?}, which leads to the same store; leave it out"
                );
                problems.push(Problem::new(place(index), reason));
            }
            taken.entry(prefix).or_insert((option.clone(), index));
        }
    }
    problems.extend(doubles(loaded));
    problems
}

fn prefix_problem(config: &Config, prefix: &str) -> Option<String> {
    if prefix.is_empty() {
        return Some(
            "every name begins with nothing; what has no other store is kept in that of `store`"
                .into(),
        );
    }
    if prefix.starts_with(RESERVED) {
        return Some(
            "names that begin with U+0001 are the server's own, in the store of `store`".into(),
        );
    }
    let memory_only = &config.record.memory_only_prefixes;
    let outer = memory_only
        .iter()
        .find(|outer| prefix.starts_with(outer.as_str()))?;
    Some(format!(
        "{prefix:?} is never stored, because record.memory_only_prefixes has {outer:?}; take out one of the two"
    ))
}

/// The longest shorter prefix that leads where `prefix` leads, if nothing between the two leads elsewhere.
fn needless<'a>(config: &'a Config, prefix: &str) -> Option<&'a str> {
    let all: Vec<(&str, StoreId)> = config.stores.prefixes().collect();
    let own = all.iter().find(|(other, _)| *other == prefix)?.1;
    let outer = all
        .into_iter()
        .filter(|(other, _)| prefix.starts_with(other) && *other != prefix)
        .max_by_key(|(other, _)| other.len())?;
    (outer.1 == own).then_some(outer.0)
}

/// Stores that would be one and the same: the store that is opened second would take the data away from the first.
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
        let (key, place) = match store.kind {
            StoreKind::Memory => continue,
            StoreKind::Sqlite => ("path", store.path.to_string_lossy().into_owned()),
            StoreKind::Mongodb => ("mongodb.url", store.mongodb.url.clone()),
            StoreKind::Postgres => ("postgres.url", store.postgres.url.clone()),
            StoreKind::Redis => ("redis.url", store.redis.url.clone()),
        };
        // A missing option is refused elsewhere.
        if place.is_empty() {
            continue;
        }
        let option = format!("{section}.{key}");
        if let Some(other) = seen.get(&(key, place.clone())) {
            let origin = format!("{option} ({})", loaded.origin(&option));
            let reason = format!("that is where {other} is; two stores need two places");
            problems.push(Problem::new(origin, reason));
        }
        seen.entry((key, place)).or_insert(section);
    }
    problems
}
